"""What a collection says of itself: what was tried, what it is worth on held-out data, and what is in use."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from bitrank.collection.drift import Cost, Drift
from bitrank.collection.promises import Curve
from bitrank.ranking.gate.report import Line, Report

_FIGURES = {"map": "MAP", "p10": "P@10", "ndcg10": "nDCG@10", "new_ndcg10": "nDCG@10 of unjudged items"}


@dataclass(frozen=True)
class Version:
    """One ranking that was in use: number 0 is the plain one.

    Examples
    --------
    >>> Version(1, "labels", "QueryVectorRanker", 0.8)
    Version(number=1, kind='labels', ranker='QueryVectorRanker', blend=0.8, facts={})
    """

    number: int
    kind: str  # "plain", or the evidence that it was learned from
    ranker: str | None = None
    blend: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict, hash=False)


PLAIN = Version(0, "plain")


@dataclass(frozen=True)
class Learned:
    """The outcome of one call of `learn`.

    Attributes
    ----------
    kind : str
        The evidence.
    ranker : str
    accepted : bool
    reason : str
    gate : Report
        What was tried, with its held-out figures; empty where nothing was held out.
    seconds : float
    notes : list of str
        What the evidence lacked.
    memory : dict or None
        What a gate found of remembering judged pairs: the fields of `bitrank.ranking.memory.judge.Judged`.
    """

    kind: str
    ranker: str
    accepted: bool
    reason: str
    gate: Report = field(default_factory=Report, hash=False)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list, hash=False)
    memory: dict[str, Any] | None = field(default=None, hash=False)

    def to_json(self) -> dict[str, Any]:
        """The outcome as JSON values."""
        return {**vars(self), "gate": self.gate.stored()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(**{**value, "gate": Report.load(value["gate"], "guarded")})


class MemoryReport(NamedTuple):
    """What a collection remembers.

    Examples
    --------
    >>> print(MemoryReport(2, 7, 1, 0, 200, 0.06))
    remembers 2 judged queries with 7 items in 200 bytes, and lifts what they name; no gate has judged 1 of them
    """

    n_queries: int
    n_items: int  # over all lists
    n_unjudged: int  # queries that joined since the gate judged the others
    n_pinned: int  # items
    n_bytes: int
    offset: float | None  # what a lift costs, by the verdict of the gate; None: only pinned items are lifted

    def __str__(self) -> str:
        lifts = "lifts nothing" if not self.n_pinned else f"lifts the {self.n_pinned} that are pinned"
        lifts = lifts if self.offset is None else "lifts what they name"
        out = (
            f"remembers {self.n_queries} judged queries with {self.n_items} items in {self.n_bytes} bytes, and {lifts}"
        )
        pinned = f"; {self.n_pinned} items are pinned" if self.n_pinned and self.offset is not None else ""
        return out + pinned + (f"; no gate has judged {self.n_unjudged} of them" if self.n_unjudged else "")


@dataclass(frozen=True)
class CollectionReport:
    """What a collection holds, how it is ranked, and what the last call of `learn` found. Print it.

    Attributes
    ----------
    n_items, n_bits, bytes_per_item : int
        Bytes are those of codes, head and rest, without ids, entries of the index and cells.
    n_scanned : int or None
        Bits that a search reads of every item; the others are read of a shortlist.
    n_dimensions : int or None
    hasher : str or None
    metric : str
    recall : float or None
        Share of the ten nearest vectors that the plain search finds, on held-out rows of the collection.
    costs : list of Cost
        What numbers of bits per dimension cost and find, on rows that their codes were not fitted on.
    drift : Drift or None
        How well codes hold the items that were added.
    version : Version
        What is in use.
    learned : Learned or None
        The last call of `learn`; `learned.gate` holds what it tried.
    memory : MemoryReport or None
        What is remembered.
    curve : Curve or None
        What a promise of recall costs the ranking in use, where the collection has cells.

    Examples
    --------
    >>> from bitrank import Collection
    >>> print(Collection.from_codes([[1], [2], [4]]).report())
    3 items of 8 bits: 1 byte per item
    in use: the plain ranking (nothing was learned yet)
    """

    n_items: int
    n_bits: int
    bytes_per_item: int
    n_scanned: int | None = None
    n_dimensions: int | None = None
    hasher: str | None = None
    metric: str = "cosine"
    recall: float | None = None
    costs: list[Cost] = field(default_factory=list, hash=False)
    drift: Drift | None = None
    version: Version = PLAIN
    learned: Learned | None = None
    memory: MemoryReport | None = None
    curve: Curve | None = None

    @property
    def winner(self) -> Line | None:
        """The line of the last gate that was accepted, or None."""
        return None if self.learned is None else self.learned.gate.winner

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        parts = {"memory": self.memory, "drift": self.drift, "curve": self.curve}
        facts: dict[str, Any] = {name: part and part._asdict() for name, part in parts.items()}
        facts |= {"version": asdict(self.version), "learned": self.learned and self.learned.to_json()}
        facts |= {"winner": self.winner, "costs": [cost._asdict() for cost in self.costs]}
        return {**vars(self), **facts}

    def frame(self) -> Any:
        """Every line that the last gate tried, as a pandas frame."""
        from bitrank.core.lazy import import_extra

        return import_extra("pandas", "demo").DataFrame([] if self.learned is None else self.learned.gate)

    def plot(self, axes: Any = None) -> Any:
        """Draw the figure that decides against the share of what was learned, with its error; needs matplotlib.

        Before anything was learned, draw recall against the bytes that a search reads of every item.
        """
        from bitrank.core.lazy import import_extra

        learned = self.learned is not None and self.learned.gate
        if not learned and not self.costs:
            raise ValueError("report must be of something learned with held-out figures to be drawn, got none")
        if axes is None:
            axes = import_extra("matplotlib.pyplot", "demo").subplots()[1]
        if self.learned is None or not learned:
            axes.plot([cost.n_scanned for cost in self.costs], [cost.recall for cost in self.costs], "o-")
            for cost in self.costs:
                axes.annotate(f" {cost.bits:g} bits, {cost.n_bytes} bytes", (cost.n_scanned, cost.recall))
            axes.set_xlabel("bytes of an item that a search reads")
            axes.set_ylabel("recall of the ten nearest vectors, held out")
            return axes
        gate = self.learned.gate
        plain, *tried = gate
        groups: dict[str, list[Line]] = {}
        for line in tried:
            params = Report.params_of(line)
            label = ", ".join(f"{name} {value}" for name, value in params.items()) or self.learned.ranker
            groups.setdefault(label, [{**plain, "blend": 0.0}]).append(line)
        for label, lines in groups.items():
            errors = [line.get(f"{gate.figure}_error") or 0.0 for line in lines]
            axes.errorbar([line["blend"] for line in lines], [line[gate.figure] for line in lines], errors, label=label)
        axes.set_xlabel("share of what was learned")
        axes.set_ylabel(f"{_FIGURES.get(gate.figure, gate.scoring)}, held out")
        axes.legend()
        return axes

    def __str__(self) -> str:
        unit = "byte" if self.bytes_per_item == 1 else "bytes"
        source = f", {self.hasher} of {self.n_dimensions} dimensions, {self.metric}" if self.hasher else ""
        lines = [f"{self.n_items} items of {self.n_bits} bits{source}: {self.bytes_per_item} {unit} per item"]
        if self.n_scanned not in (None, self.n_bits):
            lines[0] += f", {-(-self.n_scanned // 8)} of them scanned"
        if self.recall is not None:
            lines.append(f"recall of the ten nearest vectors, plain ranking, held-out rows: {self.recall:.3f}")
        if self.costs:
            lines.append("bits per dimension: bytes per item (scanned), recall on held-out rows of a sample")
            rows = [f"{c.bits:g}: {c.n_bytes} ({c.n_scanned}), {c.recall:.3f}" for c in self.costs]
            lines.append("; ".join(rows))
        if self.drift is not None:
            lines.append(str(self.drift))
        if self.version.ranker is None:
            why = "nothing was learned yet" if self.learned is None else f"version {self.version.number}"
            lines.append(f"in use: the plain ranking ({why})")
        else:
            lines.append(
                f"in use: version {self.version.number}, {self.version.ranker} learned from {self.version.kind}, "
                f"share {self.version.blend:g}"
            )
        lines += [str(each) for each in (self.memory, self.curve) if each is not None]
        if self.learned is not None:
            lines += self._learned_lines(self.learned)
        return "\n".join(lines)

    def _learned_lines(self, learned: Learned) -> list[str]:
        verdict, gate = "accepted" if learned.accepted else "refused", learned.gate
        lines = [f"learned from {learned.kind} in {learned.seconds:.1f} s: {verdict}, {learned.reason}"]
        if gate:
            lines.append(f"{'held out':<28}{'plain':>9}{'learned':>9}{'gain':>9}")
        for name, before in gate.before.items():
            after = gate.after[name]
            label = _FIGURES.get(name, gate.scoring)
            if before is not None and after is not None and gate.accepted:
                lines.append(f"{label:<28}{before:>9.3f}{after:>9.3f}{after - before:>+9.3f}")
            elif before is not None:
                lines.append(f"{label:<28}{before:>9.3f}{'–':>9}{'–':>9}")
        if gate.accepted:
            lines.append(f"standard error of the gain: {gate.gain_error:.3f}")
        if learned.memory is not None:
            lines += self._memory_lines(learned.memory)
        return lines + [f"note: {note}" for note in learned.notes]

    @staticmethod
    def _memory_lines(memory: dict[str, Any]) -> list[str]:
        lines = [f"memory of the judged queries: {memory['use']} in use, {memory['reason']}"]
        for line in memory["lines"][1:]:
            chosen = " (chosen)" if line["offset"] == memory["offset"] and not memory["together"] else ""
            gain = f"nDCG@10 {line['ndcg10']:.3f}, {line['gain']:+.3f} ± {line['error']:.3f}"
            lost = f"items that no list names {-line['loss']:+.3f}"
            lines.append(f"  offset {line['offset']:.2f}: {gain}; {lost}{chosen}")
        for line in memory["together"]:
            offset = "" if line["offset"] is None else f" offset {line['offset']:.2f}"
            lines.append(f"  held out by all: {line['use']}{offset}, nDCG@10 {line['ndcg10']:.3f}")
        return lines
