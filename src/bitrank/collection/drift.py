"""How well codes hold the items that they were fitted on, and those that were added since."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

_FEWEST_ADDED, _MOST_LOST = 100, 0.02  # items that were added, and recall that they may lose before a warning


class Cost(NamedTuple):
    """What a number of bits per dimension costs and gives, on held-out rows."""

    bits: float
    n_bytes: int  # per item
    n_scanned: int  # bytes of them
    recall: float  # of the ten nearest vectors
    error: float  # share of the vectors' variance that the codes do not hold


class Drift(NamedTuple):
    """How much worse codes hold the items that were added than those that they were fitted on.

    Examples
    --------
    >>> print(Drift(500, 0.01, 0.04, 0.031))
    500 added items: codes miss 4.0% of their variance, 1.0% of the fitted items', about .031 of recall
    """

    n: int
    fitted: float  # share of the variance around the centre that codes do not hold
    added: float
    lost: float  # recall of the added items, by what as much of a share costs on held-out rows

    @property
    def is_large(self) -> bool:
        """Whether so many items were added that lose so much recall that the codes should be made again."""
        return self.n >= _FEWEST_ADDED and self.lost > _MOST_LOST

    def __str__(self) -> str:
        lost = f"{self.lost:.3f}".removeprefix("0")
        shares = f"{self.added:.1%} of their variance, {self.fitted:.1%} of the fitted items'"
        return f"{self.n} added items: codes miss {shares}, about {lost} of recall"


@dataclass(frozen=True)
class Fit:
    """What numbers of bits cost, and shares of the variance that codes miss: of fitted items, of n that were added."""

    costs: list[Cost]
    fitted: float
    added: float = 0.0
    n: int = 0

    def with_added(self, error: float, n: int) -> Self:
        """After n more items, of whose variance codes miss a share."""
        total = self.n + n
        return replace(self, added=(self.added * self.n + error * n) / total, n=total)

    def drift(self, bits: float) -> Drift | None:
        """How much worse codes of so many bits per dimension hold what was added; None where nothing was."""
        lost = _recall_lost(self.costs, bits, self.added)
        return Drift(self.n, self.fitted, self.added, lost) if self.n else None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"costs": [cost._asdict() for cost in self.costs]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self | None:
        """Read what `to_json` wrote; None of nothing."""
        return cls(**value | {"costs": [Cost(**cost) for cost in value["costs"]]}) if value else None


def _recall_lost(table: list[Cost], bits: float, error: float) -> float:
    """Recall that items lose of whose variance the codes miss this share, by what fewer bits lose on held-out rows."""
    if not table:
        return 0.0
    rows = sorted(table, key=lambda cost: cost.error)
    errors, recalls = [cost.error for cost in rows], [cost.recall for cost in rows]
    own = float(np.interp(bits, [cost.bits for cost in table], [cost.recall for cost in table]))
    more = [*errors, max(1.0, errors[-1] + 1e-6)], [*recalls, 0.0]
    return max(0.0, own - float(np.interp(error, *more)))
