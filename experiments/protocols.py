"""The protocols: names of their cells, and how each cell is computed.

`PROTOCOLS` lists them all. A protocol takes a group, the names of the cells to compute and the data set, and yields
(name, record) for each cell as it finishes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.svm import LinearSVC

from bitrank import OnlineRankingSVM, RankingSVM
from bitrank.core.codes import distances, unpack
from bitrank.core.metrics import evaluate
from bitrank.ranking.evidence.quadruplets import draw_quadruplets
from experiments import learned_codes, stream
from experiments.data import Coded, Data, Rows, Split, draw_queries, encode, make_hasher, split
from experiments.judging import Records, curve, judge, record, sizes
from experiments.plan import Group
from experiments.rankings import Rankings

# Names of rankings, in the order of the tables.
RANKINGS = (
    "Hamming",
    "WhRank",
    "WhRank-adaptive",
    "asymmetric",
    "paper-EGD",
    "paper-PGD",
    "paper-exact",
    "RankingSVM",
    "RankingSVM-map",
    "Online",
    "QueryAdaptive",
    "QueryAdaptive-map",
)
# Rankings learned on top of the magnitudes of float queries, as WhRank-adaptive and asymmetric use them: for faces,
# where those two are strong, and for text embeddings, whose queries are floats anyway.
FLOAT = {"youtube_faces": ("RankingSVM-float",), "banking77": ("RankingSVM-float", "QueryAdaptive-float")}
UNSEEN = (
    "Hamming",
    "WhRank-adaptive",
    "asymmetric",
    "paper-exact",
    "RankingSVM",
    "RankingSVM-classes",
    "Online",
    "QueryAdaptive",
    "QueryAdaptive-classes",
    "QueryVector",
    "QueryVector-classes",
)
CURVES = ("Hamming", "WhRank-adaptive", "paper-exact", "RankingSVM", "QueryAdaptive", "QueryVector")

QUADRUPLETS = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
QUADRUPLET_LEARNERS = ("paper-exact", "RankingSVM")

STEPS = (0, 1, 2, 3, 4, 5)
DRIFT_LEARNERS = ("Hamming", "frozen", "online", "retrained")
FIRST_CLASSES = {"cifar10": (0, 1, 8, 9)}  # the vehicles; the first half of the classes of any other set
MAX_ROWS_PER_HALF = 20_000
N_UPDATES, BATCH = 200, 10  # of the online learner at every step

PAGES = (0, 10, 100, 1000)
SLOTS = (0, 2, 5)  # explored positions of a page
CLICK_C = (0.01, 0.001)  # how far one page may move the weights: the default, and a tenth of it
PAGE_SIZE = 10
NOISE = 0.1


def compare(group: Group, wanted: list[str], data: Data) -> Records:
    """Measure every ranking on one set of codes: the protocols authors, full and unseen."""
    coded = encode(group, data, split(group.protocol, data.y, group.seed))
    rankings = Rankings(coded, group.dataset, group.seed)
    for name in wanted:
        start = time.perf_counter()
        query_codes, weights, _ = rankings.queries(name)
        fit_seconds = time.perf_counter() - start
        search = (coded.test_codes, coded.test_y, coded.queries, weights, query_codes)
        cell = record(judge(*search), start, {**sizes(coded), "fit_seconds": fit_seconds})
        if group.seed == 0 and name in CURVES:
            cell["curve"] = curve(*search)
        yield name, cell


def quadruplets(group: Group, wanted: list[str], data: Data) -> Records:
    """Learn from more and more quadruplets."""
    coded = encode(group, data, split("full", data.y, group.seed))
    rankings = Rankings(coded, group.dataset, group.seed)
    for n, name in itertools.product(QUADRUPLETS, QUADRUPLET_LEARNERS):
        if (cell := f"{name}-n{n}") not in wanted:
            continue
        start = time.perf_counter()
        learner = RankingSVM(n_quadruplets=n)
        ranker = rankings.paper("exact", n) if name == "paper-exact" else rankings.learn(learner)
        figures = judge(coded.test_codes, coded.test_y, coded.queries, ranker.weights_)
        yield cell, record(figures, start, {**sizes(coded), "n_quadruplets": n})


def drift(group: Group, wanted: list[str], data: Data) -> Records:
    """Double the collection in five steps with other classes; the hash functions stay the same.

    Frozen weights are learned before the first step. Retrained weights are learned anew at each step from all labelled
    rows so far. The online learner starts from the frozen weights and sees 2000 quadruplets of those rows per step.
    """
    random = np.random.default_rng(group.seed)
    classes = np.unique(data.y)
    is_first = np.isin(data.y, FIRST_CLASSES.get(group.dataset, classes[: len(classes) // 2]))
    old, new = (random.permutation(np.flatnonzero(half))[:MAX_ROWS_PER_HALF] for half in (is_first, ~is_first))
    size = min(len(old), len(new)) // 2
    train, test = np.concatenate([old[:size], new[:size]]), np.concatenate([old[size : 2 * size], new[size : 2 * size]])
    hasher = make_hasher(group.hasher, group.n_bits, group.seed).fit(data.X[old[:size]])
    codes, test_codes = hasher.transform(data.X[train]), hasher.transform(data.X[test])
    y, test_y = data.y[train], data.y[test]
    queries = np.concatenate([first + draw_queries(test_y[first:][:size], random, most=500) for first in (0, size)])

    weights: dict[str, Any] = {"Hamming": None}
    online, sampling = OnlineRankingSVM(), {}
    for step in STEPS:
        n = size + size * step // max(STEPS)
        seconds = dict.fromkeys(DRIFT_LEARNERS, 0.0)
        start = time.perf_counter()
        learner = RankingSVM(group.n_bits, random_state=group.seed).fit(codes[:n], y[:n])
        weights["retrained"], seconds["retrained"] = learner.weights_, time.perf_counter() - start
        if step == 0:
            weights["frozen"] = weights["online"] = learner.weights_
            sampling = {name: learner.params_.get(name) for name in ("strategy", "n_neighbors")}
            sampling["strategy"] = sampling["strategy"] or "uniform"
            online = OnlineRankingSVM(weights=learner.weights_, n_bits=group.n_bits)
        else:
            start = time.perf_counter()
            seed = group.seed + step
            drawn = draw_quadruplets(y[:n], N_UPDATES * BATCH, codes=codes[:n], random_state=seed, **sampling)
            for batch in np.array_split(drawn, N_UPDATES):
                online.partial_fit(codes[:n], batch)
            weights["online"], seconds["online"] = online.weights_, time.perf_counter() - start
        present = queries[queries < n]
        for name, vector in weights.items():
            if (cell := f"{name}-step{step}") not in wanted:
                continue
            start = time.perf_counter()
            figures = judge(test_codes[:n], test_y[:n], present, vector)
            figures["map_old"] = judge(test_codes[:n], test_y[:n], present[present < size], vector)["map"]
            params = {"step": step, "n_train": n, "n_items": n, "n_queries": len(present), "fit_seconds": seconds[name]}
            yield cell, record(figures, start - seconds[name], params)


def clicks(group: Group, wanted: list[str], data: Data) -> Records:
    """Show pages of results to simulated users with position bias and noise, and learn weights from their clicks.

    Users examine the item at rank r with probability 1/log2(r + 1) and click it if it is relevant; one decision in ten
    is wrong. Some positions of a page may go to items drawn from the first tenth of the ranking.
    """
    random = np.random.default_rng(group.seed)
    rows = split("full", data.y, group.seed)
    test = np.sort(random.permutation(rows.test)[:10_000])
    coded = encode(group, data, Split(rows.train, test, draw_queries(data.y[test], random)))
    users = np.setdiff1d(np.arange(len(test)), coded.queries)
    for c, slots in itertools.product(CLICK_C, SLOTS):
        random = np.random.default_rng(group.seed)
        online, weights = OnlineRankingSVM(n_bits=group.n_bits, C=c), None
        start = time.perf_counter()
        for page in range(max(PAGES) + 1):
            if page in PAGES and (cell := f"explore{slots}-C{c}-pages{page}") in wanted:
                figures = judge(coded.test_codes, coded.test_y, coded.queries, weights)
                yield cell, record(figures, start, {**sizes(coded), "pages": page, "slots": slots, "C": c})
            query = int(random.choice(users))
            shown = _page(coded, query, weights, slots, random)
            examined = random.random(PAGE_SIZE) < 1 / np.log2(np.arange(PAGE_SIZE) + 2)
            correct = random.random(PAGE_SIZE) >= NOISE
            clicked = examined & ((coded.test_y[shown] == coded.test_y[query]) == correct)
            online.learn_clicks(coded.test_codes[query], coded.test_codes[shown], clicked)
            weights = getattr(online, "weights_", None)  # unset until a page yields a constraint


def _page(coded: Coded, query: int, weights: Any, slots: int, random: np.random.Generator) -> Any:
    """Return rows to show: the nearest, ties in random order, and explored rows at random positions among them."""
    to_all = distances(coded.test_codes[[query]], coded.test_codes, weights, threads=1)[0].astype(np.float64)
    to_all[query] = np.inf
    order = np.lexsort((random.random(len(to_all)), to_all))[:-1]
    n_top = PAGE_SIZE - slots
    explored = random.choice(order[n_top : max(2 * PAGE_SIZE, len(order) // 10)], slots, replace=False)
    page = np.empty(PAGE_SIZE, np.int64)
    is_explored = np.zeros(PAGE_SIZE, bool)
    is_explored[random.choice(PAGE_SIZE, slots, replace=False)] = True
    page[is_explored], page[~is_explored] = explored, order[:n_top]
    return page


def classify_differences(group: Group, wanted: list[str], data: Data) -> Records:
    """Separate code differences within a class from those between classes by a linear SVM: the paper's Table 1."""
    start = time.perf_counter()
    random = np.random.default_rng(group.seed)
    by_class = [random.permutation(np.flatnonzero(data.y == label)[:1000]) for label in np.unique(data.y)]
    parts = [np.concatenate([rows[: len(rows) * 7 // 10] for rows in by_class])]
    parts += [np.concatenate([rows[len(rows) * 7 // 10 :] for rows in by_class])]
    hasher = make_hasher(group.hasher, group.n_bits, group.seed).fit(data.X[parts[0]])
    sets = [_differences(hasher, data, rows, group.n_bits, 10_000, random) for rows in parts]
    svm = LinearSVC(dual=False).fit(*sets[0])
    params = {"n_train_pairs": len(sets[0][1]), "n_test_pairs": len(sets[1][1])}
    yield wanted[0], record({"accuracy": svm.score(*sets[1])}, start, params)


def show_differences(group: Group, wanted: list[str], data: Data) -> Records:
    """Keep 100 code differences within a class and 100 between classes, and how often each bit differs."""
    start = time.perf_counter()
    random = np.random.default_rng(group.seed)
    rows = split("authors", data.y, group.seed).train
    hasher = make_hasher(group.hasher, group.n_bits, group.seed).fit(data.X[rows])
    bits, similar = _differences(hasher, data, rows, group.n_bits, 10_000, random)
    cell = record({}, start, {"n_pairs": len(bits)})
    for name, part in (("same", bits[similar]), ("different", bits[~similar])):
        cell[name] = ["".join(map(str, row)) for row in part[:100]]
        cell[f"{name}_rate"] = part.mean(axis=0).tolist()
    yield wanted[0], cell


def _differences(
    hasher: Any, data: Data, rows: Rows, n_bits: int, n: int, random: np.random.Generator
) -> tuple[Any, Any]:
    """Return the bits of n code differences within classes and n between classes, and which are within a class."""
    codes, y = hasher.transform(data.X[rows]), data.y[rows]
    first, second = random.integers(len(rows), size=(2, 50 * n))
    distinct, similar = first != second, y[first] == y[second]
    chosen = np.concatenate([np.flatnonzero(distinct & kind)[:n] for kind in (similar, ~similar)])
    return unpack(codes[first[chosen]] ^ codes[second[chosen]], n_bits), similar[chosen]


def timing(group: Group, wanted: list[str], data: Data) -> Records:
    """Time the evaluation of one cell with a tenth of every class as queries: distances, sorting, figures."""
    rows = split("full", data.y, group.seed)
    queries = draw_queries(data.y[rows.test], np.random.default_rng(group.seed), most=len(data.y))
    coded = encode(group, data, Split(rows.train, rows.test, queries))
    weights = Rankings(coded, group.dataset, group.seed).whrank.weights_
    relevant = coded.test_y[coded.queries][:, None] == coded.test_y
    start = time.perf_counter()
    figures = evaluate(distances(coded.test_codes[coded.queries], coded.test_codes, weights), relevant)
    yield wanted[0], record(figures, start, sizes(coded))


class Protocol(NamedTuple):
    """Names of the cells of a protocol, in the order of the tables, and the function that computes them."""

    rankings: tuple[str, ...]
    compute: Callable[[Group, list[str], Data], Records]


PROTOCOLS: dict[str, Protocol] = {
    "full": Protocol((*RANKINGS, "QueryVector", "Agreement"), compare),
    "authors": Protocol(RANKINGS, compare),
    "unseen": Protocol(UNSEEN, compare),
    "drift": Protocol(tuple(f"{name}-step{step}" for step in STEPS for name in DRIFT_LEARNERS), drift),
    "quadruplets": Protocol(tuple(f"{name}-n{n}" for n in QUADRUPLETS for name in QUADRUPLET_LEARNERS), quadruplets),
    "clicks": Protocol(
        tuple(f"explore{slots}-C{c}-pages{pages}" for c in CLICK_C for slots in SLOTS for pages in PAGES), clicks
    ),
    "acdv": Protocol(("linear-SVM",), classify_differences),
    "picture": Protocol(("pairs",), show_differences),
    "timing": Protocol(("WhRank",), timing),
    "learned": Protocol(learned_codes.RANKINGS, learned_codes.compare),
    "vectors": Protocol(("QueryVector",), learned_codes.compare),
    "eigenvalues": Protocol(("MDSHRanker",), learned_codes.eigenvalues),
    "published": Protocol(("Hamming",), learned_codes.published),
    "stream": Protocol(stream.CELLS, stream.follow),
}


def rankings_of(protocol: str, dataset: str) -> tuple[str, ...]:
    """Return the names of the cells of a protocol on a data set, in the order of the tables."""
    return (*PROTOCOLS[protocol].rankings, *(FLOAT.get(dataset, ()) if protocol == "full" else ()))
