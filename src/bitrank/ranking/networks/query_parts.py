"""Parts of a `QueryVectorRanker`: a network with its inputs, and how it lies in a file."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from bitrank.core.archives import Archive, check_shapes
from bitrank.ranking.networks.inputs import Inputs
from bitrank.ranking.networks.network import Network

# Arrays of a part, with a letter per side: bits, inputs, hidden units, features and their components.
_SHAPES = {"direct": "bi", "shift": "b", "inner": "hi", "outer": "bh", "center": "f", "components": "fc"}


class Part(NamedTuple):
    """A network, what it sees of a query, and its share λ in the vector that is searched with."""

    inputs: Inputs
    network: Network
    blend: float

    def write(self, archive: Archive, name: str) -> None:
        """Add the part to an archive."""
        arrays = (*self.network, self.inputs.center, self.inputs.components)
        archive.arrays.update({f"{name}_{key}": array for key, array in zip(_SHAPES, arrays, strict=True)})
        archive.facts[f"{name}_part"] = {"reals": self.inputs.reals, "blend": self.blend}


class StoredPart(NamedTuple):
    """Arrays and facts of a part, as a file holds them."""

    arrays: dict[str, Any]
    facts: dict[str, Any]

    @classmethod
    def take(cls, archive: Archive, name: str) -> Self:
        """Take a part out of an archive, or raise a ValueError where it is not whole."""
        keys = [f"{name}_{key}" for key in _SHAPES]
        missing = [key for key in keys if key not in archive.arrays]
        if missing or f"{name}_part" not in archive.facts:
            raise ValueError(f"expected the arrays {keys}, got {sorted(archive.arrays)}")
        arrays = {key: archive.arrays.pop(f"{name}_{key}") for key in _SHAPES}
        return cls(arrays, archive.facts.pop(f"{name}_part"))

    def check(self, n_bits: int) -> Part:
        """The part, or a ValueError that says what is wrong with it."""
        arrays, facts = self
        shapes = _SHAPES | ({"direct": "b"} if arrays["direct"].ndim == 1 else {})
        check_shapes(arrays, shapes, {"b": n_bits, "i": n_bits + arrays["components"].shape[-1] + 1})
        share = facts.get("blend")
        if not isinstance(share, int | float) or not 0 <= share <= 1 or not isinstance(facts.get("reals"), bool):
            raise ValueError(f"expected a part with reals and blend, got {facts!r:.80}")
        inputs = Inputs(facts["reals"], arrays["center"], arrays["components"])
        return Part(inputs, Network(arrays["direct"], arrays["shift"], arrays["inner"], arrays["outer"]), share)
