"""`Shards`: one collection over several servers, each a part of it; a search asks all of them and merges.

`connect` makes it of a list of addresses; a shard is any other engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_ids
from bitrank.codes import nearest
from bitrank.engines.contract import Engine, check_add, check_created
from bitrank.vocabulary import Codes, Method, Queries, Results

T = TypeVar("T")


class PartialResults(Results):
    """Results that may lack the codes of some shards, and say of which."""

    missing: tuple[str, ...] = ()


class Shards(Engine):
    """Engines that share the ids between them by ``id % n_shards``; the methods are those of `Engine`.

    A shard adds all of its codes or none, but not all shards at once: after a ConnectionError of `add` or `remove`,
    the same call once more completes it.

    Parameters
    ----------
    shards : sequence of Engine
        Always in the same order: it decides where an id belongs.
    missing : {"raise", "report"}
        What a search does when a shard does not answer: a ConnectionError that names it; or `PartialResults` from the
        others, whose ``missing`` names it. All else needs every shard.
    """

    def __init__(self, shards: Sequence[Engine], missing: Literal["raise", "report"] = "raise") -> None:
        if missing not in ("raise", "report"):
            raise ValueError(f'missing must be "raise" or "report", got {missing!r}')
        if not shards:
            raise ValueError("there must be at least one shard, got none")
        self._shards = list(shards)
        self._missing = missing
        self._threads = ThreadPoolExecutor(len(self._shards), thread_name_prefix="bitrank-shard")

    @property
    def n_bits(self) -> int:
        """Bits of a code, the same in every shard."""
        found = self._all(lambda number: self._shards[number].n_bits)
        if len(set(found)) > 1:
            raise ValueError(f"all shards must have codes of the same number of bits, got {found}")
        return found[0]

    def create(self, n_bits: int) -> None:
        """Make the tables."""
        n_bits = check_created(n_bits)
        self._all(lambda number: self._shards[number].create(n_bits))

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add codes, or replace them, each in the shard of its id."""
        codes, checked = check_add(codes, ids, self.n_bits)
        place = checked % len(self._shards)
        self._all(lambda number: self._shards[number].add(codes[place == number], checked[place == number]))

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove what is there of these ids."""
        checked = check_ids(ids)
        self._all(lambda number: self._shards[number].remove(checked[checked % len(self._shards) == number]))

    def optimize(self) -> None:
        """Build what makes the first stage fast, in every shard."""
        self._all(lambda number: self._shards[number].optimize())

    def search(
        self,
        queries: Queries | npt.NDArray[Any],
        k: int,
        weights: npt.ArrayLike | None = None,
        *,
        method: Method = "exact",
        candidates: int | None = None,
    ) -> Results:
        """Find the k nearest codes of each query; every shard fetches as many candidates."""
        found, lost = self._ask(
            lambda number: self._shards[number].search(queries, k, weights, method=method, candidates=candidates)
        )
        if lost and (self._missing == "raise" or not found):
            raise self._error(lost)
        ids, distances = (np.concatenate(parts, axis=1) for parts in zip(*found.values(), strict=True))
        merged = nearest(ids, distances, k)
        if self._missing == "raise":
            return merged
        partial = PartialResults(*merged)
        partial.missing = tuple(repr(self._shards[number]) for number in lost)
        return partial

    def count(self) -> int:
        """Number of codes in all shards."""
        return sum(self._all(lambda number: self._shards[number].count()))

    def close(self) -> None:
        """Give back all connections."""
        self._threads.shutdown()
        for shard in self._shards:
            shard.close()

    def _all(self, work: Callable[[int], T]) -> list[T]:
        """What every shard answers to work, or a ConnectionError that names those that do not."""
        found, lost = self._ask(work)
        if lost:
            raise self._error(lost)
        return list(found.values())

    def _ask(self, work: Callable[[int], T]) -> tuple[dict[int, T], dict[int, ConnectionError]]:
        """Answers by the number of the shard, and what came instead from those that are lost."""
        asked = [self._threads.submit(work, number) for number in range(len(self._shards))]
        wait(asked)  # so that none is still at work when an error leaves
        lost = {number: e for number, a in enumerate(asked) if isinstance(e := a.exception(), ConnectionError)}
        return {number: a.result() for number, a in enumerate(asked) if number not in lost}, lost

    def _error(self, lost: dict[int, ConnectionError]) -> ConnectionError:
        each = "; ".join(f"shard {number}, {self._shards[number]!r}: {error}" for number, error in lost.items())
        return ConnectionError(f"{len(lost)} of {len(self._shards)} shards are missing: {each}")
