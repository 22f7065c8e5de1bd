"""Online against online: a stream in which classes appear, codes that change against weights that change."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank import OnlineRankingSVM
from bitrank.core.codes import distances, signs, split_vectors
from bitrank.core.metrics import mean_average_precision
from bitrank.core.types import Codes, Queries
from bitrank.hashing import OnlineKernelHashing
from bitrank.ranking.evidence.quadruplets import draw_quadruplets
from bitrank.ranking.gate.judge import mean_one
from bitrank.ranking.networks.batches import label_batches
from bitrank.ranking.networks.network import start_network, train
from bitrank_papers.labelled import draw_pairs
from experiments.data import Data, Rows, draw_queries, make_hasher, split
from experiments.judging import Records, record
from experiments.plan import Group

# Classes present at each step; CIFAR-10 starts with its vehicles.
N_CLASSES = (4, 4, 6, 6, 8, 8, 10, 10)
ORDER = {"cifar10": (0, 1, 8, 9, 2, 3, 4, 5, 6, 7)}
LEARNERS = ("Hamming", "OnlineRankingSVM", "online query vectors", "OKH", "OKH, old codes kept")
CELLS = tuple(f"{name}-step{step}" for step in range(len(N_CLASSES)) for name in LEARNERS)

# CPU seconds of learning and of encoding; bytes of vectors read, of codes written, and of what searches must be told.
COSTS = ("learn_seconds", "encode_seconds", "bytes_read", "bytes_written", "bytes_published")

N_ARRIVALS = 1000  # labelled rows per step
N_UPDATES, BATCH = 200, 10  # of the weights, in quadruplets
N_PAIRS = 4000  # of the codes
N_DESCENTS, N_HIDDEN = 100, 128  # of the query vectors
BLENDS = (0.0, 0.25, 0.5, 0.75, 1.0)


def follow(group: Group, wanted: list[str], data: Data) -> Records:
    """Let every learner follow the same labelled arrivals, and measure it after each step.

    The collection holds all rows of the present classes. Weights and vectors are learned on codes of a hasher that saw
    the first classes only. OKH changes the codes: the collection is encoded again after each step, or keeps for each
    row the code that it got when its class appeared.
    """
    random = np.random.default_rng(group.seed)
    rows = split("full", data.y, group.seed)
    order = np.array(ORDER.get(group.dataset, range(10)))
    by_class = {c: random.permutation(rows.train[data.y[rows.train] == c]) for c in order}
    first = np.concatenate([by_class[c] for c in order[: N_CLASSES[0]]])
    hasher = make_hasher(group.hasher, group.n_bits, group.seed).fit(data.X[first])
    items = rows.test
    queries = draw_queries(data.y[items], random, most=500)
    learners = [cls(hasher, data, items, group) for cls in (_Plain, _Weights, _Vectors, _Codes, _OldCodes)]
    for step, n_classes in enumerate(N_CLASSES):
        present = order[:n_classes]
        arrivals = _draw_arrivals(by_class, present, random)
        inside = np.flatnonzero(np.isin(data.y[items], present))
        present_queries = queries[np.isin(data.y[items][queries], present)]
        for name, learner in zip(LEARNERS, learners, strict=True):
            start = time.perf_counter()
            cost = learner.learn(arrivals, inside)
            codes, searched = learner.codes[inside], learner.queries(present_queries)
            y = data.y[items]
            figures = _judge(codes, y[inside], searched, y[present_queries])
            params = {"n_items": len(inside), "n_queries": len(present_queries), "n_classes": n_classes, **cost}
            if (cell := f"{name}-step{step}") in wanted:
                yield cell, record(figures, start, params)


def _judge(codes: Codes, y: npt.NDArray[Any], searched: Queries, query_y: npt.NDArray[Any]) -> dict[str, float]:
    to_items = distances(searched.codes, codes, searched.weights, threads=1)
    return {"map": mean_average_precision(to_items, query_y[:, None] == y)}


def _draw_arrivals(by_class: dict[Any, Rows], present: Rows, random: np.random.Generator) -> Rows:
    """Draw labelled rows evenly over the present classes, in random order."""
    n = N_ARRIVALS // len(present)
    return random.permutation(np.concatenate([random.permutation(by_class[c])[:n] for c in present]))


class _Plain:
    """Codes of the first hasher, by Hamming distance; also the base of the learners on these codes."""

    def __init__(self, hasher: Any, data: Data, items: Rows, group: Group) -> None:
        self.data, self.items, self.group = data, items, group
        self.hasher, self.n_bits, self.seed = hasher, group.n_bits, group.seed
        self.codes = hasher.transform(data.X[items])

    def learn(self, arrivals: Rows, inside: Rows) -> dict[str, float]:
        """Learn from arrivals; return CPU seconds and bytes."""
        return _cost()

    def queries(self, rows: Rows) -> Queries:
        """Codes and weights of queries among the items."""
        return Queries(self.codes[rows], np.ones((len(rows), self.n_bits), np.float32))


class _Weights(_Plain):
    """One weight per bit, by passive-aggressive updates."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ranker = OnlineRankingSVM(n_bits=self.n_bits)

    def learn(self, arrivals: Rows, inside: Rows) -> dict[str, float]:
        start = time.process_time()
        codes = self.hasher.transform(self.data.X[arrivals])
        drawn = draw_quadruplets(self.data.y[arrivals], N_UPDATES * BATCH, codes=codes, random_state=self.seed)
        for batch in np.array_split(drawn, N_UPDATES):
            self.ranker.partial_fit(codes, batch)
        return _cost(time.process_time() - start, 0, 0, 0, 4 * self.n_bits)

    def queries(self, rows: Rows) -> Queries:
        return self.ranker.queries_for(self.codes[rows])


class _Vectors(_Plain):
    """A vector per query from its bits: the network of `QueryVectorRanker`, trained further at each step.

    All labelled arrivals are kept, as codes; every fifth is held out to choose the blend with the query's own code.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.random = np.random.default_rng(self.seed)
        self.network = start_network(self.n_bits, self.n_bits, self.random, n_hidden=N_HIDDEN)
        self.seen = np.empty((0, self.codes.shape[1]), np.uint8)
        self.y = np.empty(0, np.int64)
        self.blend = 0.0

    def learn(self, arrivals: Rows, inside: Rows) -> dict[str, float]:
        start = time.process_time()
        self.seen = np.vstack([self.seen, self.hasher.transform(self.data.X[arrivals])])
        self.y = np.concatenate([self.y, self.data.y[arrivals]])
        held_out = np.arange(len(self.y)) % 5 == 0
        draw = label_batches(self.seen, self.n_bits, self.y, np.flatnonzero(~held_out))
        inputs = signs(self.seen, self.n_bits)
        rate = min(0.01, 0.32 / self.n_bits)
        train(
            *(self.network, draw, lambda batch: inputs[batch.queries]),
            rate=rate,
            n_steps=N_DESCENTS,
            random=self.random,
            label="query vectors",
        )
        maps = []
        for blend in BLENDS:
            searched = self._searched(self.seen[held_out], blend)
            maps.append(_judge(self.seen[~held_out], self.y[~held_out], searched, self.y[held_out])["map"])
        self.blend = BLENDS[int(np.argmax(maps))]
        n_bytes = sum(part.nbytes for part in self.network if isinstance(part, np.ndarray))
        return _cost(time.process_time() - start, 0, 0, 0, n_bytes)

    def queries(self, rows: Rows) -> Queries:
        return self._searched(self.codes[rows], self.blend)

    def _searched(self, codes: Codes, blend: float) -> Queries:
        bits = signs(codes, self.n_bits)
        learned = mean_one(bits * self.network(bits))
        return Queries(*split_vectors(bits * ((1 - blend) + blend * learned)))


class _Codes(_Plain):
    """Online kernel hashing; the collection is encoded again after each step."""

    def __init__(self, hasher: Any, data: Data, items: Rows, group: Group) -> None:
        super().__init__(hasher, data, items, group)
        self.online = OnlineKernelHashing(group.n_bits, random_state=group.seed)
        self.random = np.random.RandomState(group.seed)

    def learn(self, arrivals: Rows, inside: Rows) -> dict[str, float]:
        start = time.process_time()
        classes = np.unique(self.data.y[arrivals], return_inverse=True)[1]
        first, second = draw_pairs(classes, N_PAIRS, self.random)
        pairs = np.column_stack([first, second, classes[first] == classes[second]])
        self.online.partial_fit(self.data.X[arrivals], pairs=self.random.permutation(pairs))
        return self._encode(inside, time.process_time() - start)

    def _encode(self, inside: Rows, seconds: float) -> dict[str, float]:
        start = time.process_time()
        self.codes[inside] = self.online.transform(self.data.X[self.items[inside]])
        return self._encoding_cost(seconds, time.process_time() - start, len(inside))

    def _encoding_cost(self, seconds: float, encoding: float, n: int) -> dict[str, float]:
        read = n * self.data.X.shape[1] * self.data.X.itemsize
        return _cost(seconds, encoding, read, n * self.codes.shape[1])


class _OldCodes(_Codes):
    """Online kernel hashing; rows keep the code of the step at which their class appeared."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.encoded = np.zeros(len(self.items), bool)

    def _encode(self, inside: Rows, seconds: float) -> dict[str, float]:
        start = time.process_time()
        fresh = inside[~self.encoded[inside]]
        if len(fresh):
            self.codes[fresh] = self.online.transform(self.data.X[self.items[fresh]])
        self.encoded[fresh] = True
        return self._encoding_cost(seconds, time.process_time() - start, len(fresh))

    def queries(self, rows: Rows) -> Queries:
        codes = self.online.transform(self.data.X[self.items[rows]])
        return Queries(codes, np.ones((len(rows), self.n_bits), np.float32))


def _cost(*costs: float) -> dict[str, float]:
    """The first of `COSTS`, by name; the others are zero."""
    return dict(zip(COSTS, (*costs, *[0] * (len(COSTS) - len(costs))), strict=True))
