"""`Shards`: one collection on several servers, searched at once, with merged results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from bitrank.core.codes import merge
from bitrank.core.types import AnyQueries, Codes, Ids, Method, Results, n_bytes
from bitrank.engines.contract import Engine, check_created
from bitrank.engines.stages import Fetched

T = TypeVar("T")


class PartialResults(Results):
    """Results without the codes of shards that did not answer; `missing` names these shards.

    Examples
    --------
    >>> results = PartialResults(np.array([[7]]), np.float32([[0]]))
    >>> results.missing = ("postgresql://second/",)
    >>> results.ids, results.missing
    (array([[7]]), ('postgresql://second/',))
    """

    missing: tuple[str, ...] = ()


class Shards(Engine):
    """Engines of which number ``id % n_shards`` stores the code of an id.

    Each shard adds all of its codes or none, in its own transaction: after a ConnectionError of `add` or `remove`,
    repeat the call.

    Parameters
    ----------
    shards : sequence of Engine
        Always in the same order, which decides where an id is stored.
    missing : {"raise", "report"}
        Result of a search when a shard does not answer: a ConnectionError that names it, or `PartialResults` of the
        others. All other methods need every shard.

    Examples
    --------
    >>> import bitrank
    >>> with bitrank.connect(["memory://", "memory://"]) as engine:  # Shards of two engines
    ...     engine.create(n_bits=8)
    ...     engine.add(np.uint8([[1], [3], [7]]), ids=[0, 1, 2])
    ...     engine.search(np.uint8([[3]]), k=2).ids
    array([[1, 0]])
    """

    def __init__(self, shards: Sequence[Engine], missing: Literal["raise", "report"] = "raise") -> None:
        if missing not in ("raise", "report"):
            raise ValueError(f'missing must be "raise" or "report", got {missing!r}')
        if not shards:
            raise ValueError("shards must hold at least one engine, got none")
        self._shards = list(shards)
        self._missing = missing
        self._threads = ThreadPoolExecutor(len(self._shards), thread_name_prefix="bitrank-shard")

    @property
    def n_bits(self) -> int:
        """Bits per code, the same in every shard."""
        counts = self._all(lambda number: self._shards[number].n_bits)
        if len(set(counts)) > 1:
            raise ValueError(f"all shards must have codes of the same number of bits, got {counts}")
        return counts[0]

    def create(self, n_bits: int) -> None:
        """Create the tables."""
        n_bits = check_created(n_bits)
        self._all(lambda number: self._shards[number].create(n_bits))

    def _add(self, codes: Codes, ids: Ids) -> None:
        place = ids % len(self._shards)
        self._all(lambda number: self._shards[number].add(codes[place == number], ids[place == number]))

    def _remove(self, ids: Ids) -> None:
        self._all(lambda number: self._shards[number].remove(ids[ids % len(self._shards) == number]))

    def _optimize(self) -> None:
        self._all(lambda number: self._shards[number].optimize())

    def _search(
        self, queries: AnyQueries, k: int, weights: npt.ArrayLike | None, method: Method | None, candidates: int | None
    ) -> Results:
        answers, lost = self._ask(
            lambda number: self._shards[number].search(queries, k, weights, method=method, candidates=candidates)
        )
        if lost and (self._missing == "raise" or not answers):
            raise self._error(lost)
        merged = merge(answers.values(), k)
        if self._missing == "raise":
            return merged
        partial = PartialResults(*merged)
        partial.missing = tuple(repr(self._shards[number]) for number in lost)
        return partial

    def _count(self) -> int:
        return sum(self._all(lambda number: self._shards[number].count()))

    def _ids(self) -> Ids:
        return np.concatenate(self._all(lambda number: self._shards[number].ids))

    def _lookup(self, ids: Ids) -> Fetched:
        empty = np.empty(0, np.int64), np.empty((0, n_bytes(self.n_bits)), np.uint8)

        def look_up(number: int) -> Fetched:
            some = ids[ids % len(self._shards) == number]
            return self._shards[number]._lookup(some) if len(some) else empty

        stored, codes = zip(*self._all(look_up), strict=True)
        return np.concatenate(stored), np.concatenate(codes)

    def _sample(self, n: int) -> Codes:
        """Draw from every shard in proportion to its codes."""
        counts = self._all(lambda number: self._shards[number].count())
        ends = np.round(np.cumsum([0, *counts]) * min(1.0, n / max(1, sum(counts)))).astype(int)
        sizes = np.diff(ends).tolist()
        empty = np.empty((0, n_bytes(self.n_bits)), np.uint8)
        return np.concatenate(
            self._all(lambda number: self._shards[number].sample(sizes[number]) if sizes[number] else empty)
        )

    def close(self) -> None:
        """Close all connections."""
        self._threads.shutdown()
        for shard in self._shards:
            shard.close()

    def _all(self, work: Callable[[int], T]) -> list[T]:
        """Answers of all shards, or a ConnectionError that names those that do not answer."""
        answers, lost = self._ask(work)
        if lost:
            raise self._error(lost)
        return list(answers.values())

    def _ask(self, work: Callable[[int], T]) -> tuple[dict[int, T], dict[int, ConnectionError]]:
        """Answers by shard number, and the errors of shards that do not answer."""
        futures = [self._threads.submit(work, number) for number in range(len(self._shards))]
        wait(futures)  # leave no shard at work when an error is raised
        lost = {number: e for number, f in enumerate(futures) if isinstance(e := f.exception(), ConnectionError)}
        return {number: f.result() for number, f in enumerate(futures) if number not in lost}, lost

    def _error(self, lost: dict[int, ConnectionError]) -> ConnectionError:
        errors = "; ".join(f"shard {number}, {self._shards[number]!r}: {error}" for number, error in lost.items())
        return ConnectionError(f"{len(lost)} of {len(self._shards)} shards are missing: {errors}")
