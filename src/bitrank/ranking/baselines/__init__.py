"""Published rankers to compare with."""
