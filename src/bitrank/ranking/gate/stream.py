"""The gate for streams: hold queries out as they come, and judge what was learned by their nDCG@10."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.codes import sample_rows
from bitrank.core.types import Codes, Rows, Weights
from bitrank.ranking.evidence.kinds import PairEvidence, QueryRows
from bitrank.ranking.gate.choose import BLENDS, blend
from bitrank.ranking.gate.folds import PairFold
from bitrank.ranking.gate.judge import Floats, HeldOutPairs, mean_one
from bitrank.ranking.gate.report import Report

_MOST_QUERIES, _MOST_ITEMS = 500, 10_000
_FEWEST_QUERIES = 30  # to judge by
_FIRST_LOOK, _LOOKS, _MOST_CALLS = 20, 0.1, 500  # calls between two looks: a tenth of those before


class _Kept(NamedTuple):
    """A held-out query, and the codes that are similar to it."""

    code: Codes
    magnitudes: Weights
    similar: set[bytes]


class StreamGate:
    """The newest held-out queries of a stream, at most 500, and the newest items, at most 10 000.

    Parameters
    ----------
    share : float
        Share of the queries to hold out; which ones depends on the query alone.
    start : array of shape (n_bits,)
        Weights before the stream, which rank until others surely rank better.

    Attributes
    ----------
    report : Report
        Every blend of the last look with its figures; the first line is the start.
    learned : array of shape (n_bits,)
        What the last weights were a blend of.
    """

    def __init__(self, share: float, start: Floats) -> None:
        if not 0 < share < 1:
            raise ValueError(f"hold_out must be from 0 to less than 1, got {share!r}")
        self._share, self._start = share, start
        self._queries: OrderedDict[bytes, _Kept] = OrderedDict()
        self._items: OrderedDict[bytes, None] = OrderedDict()
        self._n_calls, self._next_look = 0, _FIRST_LOOK
        self.learned, self.report = start, Report()

    def hold_out(self, queries: QueryRows, items: Codes, rows: Rows) -> npt.NDArray[np.bool_]:
        """Keep the constraints of held-out queries, and tell which rows they are.

        Parameters
        ----------
        queries : QueryRows
        items : packed codes
        rows : constraints, whose first column numbers the queries and the others the items
        """
        self._n_calls += 1
        for code in items:
            self._items[code.tobytes()] = None
            self._items.move_to_end(code.tobytes())
        while len(self._items) > _MOST_ITEMS:
            self._items.popitem(last=False)
        held_out = np.zeros(len(rows), bool)
        for place, (query, _, *similar) in enumerate(rows.tolist()):
            code, magnitudes = queries.codes[query], None if queries.magnitudes is None else queries.magnitudes[query]
            key = code.tobytes() + (b"" if magnitudes is None else magnitudes.tobytes())
            if int.from_bytes(blake2b(key, digest_size=4).digest()) < self._share * 2**32:
                held_out[place] = True
                sizes = np.ones(len(self._start), np.float32) if magnitudes is None else magnitudes
                kept = self._queries.setdefault(key, _Kept(code, sizes, set()))
                kept.similar.update(items[row].tobytes() for row in similar)
                self._queries.move_to_end(key)
        while len(self._queries) > _MOST_QUERIES:
            self._queries.popitem(last=False)
        return held_out

    def weights(self, learned: Floats, codes: Codes) -> Weights:
        """Weights to use: the start, blended with what was learned as far as held-out queries advise.

        Parameters
        ----------
        learned : array of shape (n_bits,)
        codes : packed codes of the collection, or what is known of it
        """
        self.learned = learned
        if self._n_calls >= self._next_look and len(self._queries) >= _FEWEST_QUERIES:
            self._next_look = self._n_calls + int(min(max(_FIRST_LOOK, _LOOKS * self._n_calls), _MOST_CALLS))
            self._judge(codes)
        amount = self.report.blend
        return (self._blend(amount) if amount else self._start).astype(np.float32)

    def _blend(self, amount: float) -> Floats:
        """The start and what was learned, at the scale of the latter."""
        return blend(self.learned, amount, mean_one(self._start)) * float(self.learned.mean())

    def _judge(self, codes: Codes) -> None:
        evidence = self._evidence(codes)
        magnitudes = np.stack([query.magnitudes for query in self._queries.values()])

        def rows(weights: Floats) -> Weights:
            return (weights * magnitudes).astype(np.float32)

        rival = evidence._replace(queries=evidence.queries._replace(magnitudes=rows(self._start)))
        everything = np.arange(len(self._queries))
        fold = PairFold(everything[:0], everything, everything[:0])
        held_out = HeldOutPairs(rival, fold, False, False, np.random.default_rng(0))
        plain = held_out.judge()
        lines = [{"blend": 0.0, **plain.figures(plain)}]
        for amount in BLENDS:
            factor = rows(self._blend(amount))
            ((_, scores),) = held_out.judge_blends(lambda numbers: factor[numbers], (1.0,))  # noqa: B023
            lines.append({"blend": amount, **scores.figures(plain)})
        self.report = Report(lines)

    def _evidence(self, codes: Codes) -> PairEvidence:
        """The held-out queries, a collection of codes that differ, and pairs of both."""
        kept = list(self._queries.values())
        similar = b"".join(code for query in kept for code in query.similar)
        parts = [codes[sample_rows(len(codes), _MOST_ITEMS)]]
        parts += [
            np.frombuffer(data, np.uint8).reshape(-1, codes.shape[1]) for data in (b"".join(self._items), similar)
        ]
        items = np.unique(np.concatenate(parts), axis=0)
        places = {code.tobytes(): row for row, code in enumerate(items)}
        pairs = [(query, places[code], 1) for query, each in enumerate(kept) for code in each.similar]
        queries = QueryRows(np.stack([query.code for query in kept]), None)
        return PairEvidence(items, np.array(pairs, np.int64), queries, None, len(self._start))
