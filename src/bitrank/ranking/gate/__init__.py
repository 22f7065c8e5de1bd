"""The gate: nothing learned ranks for anybody before held-out evidence says so."""
