"""How the cells of each protocol are computed: the paper's tables, and the questions that it leaves open.

Every function takes a group and the names of its cells that are wanted, and yields (name, record) as they finish;
`run` writes them down.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

from bitrank import OnlineRankingSVM, RankingSVM
from bitrank.codes import acdv, distances, unpack
from bitrank.metrics import evaluate
from bitrank.ranking.quadruplets import draw_quadruplets
from experiments.plan import CLICK_C, PAGES, QUADRUPLETS, SLOTS, STEPS, Group
from experiments.protocols import Coded, Data, Split, curve, draw_queries, encode, judge, make_hasher, split
from experiments.rankings import Rankings

Record = dict[str, Any]
Records = Iterator[tuple[str, Record]]

CURVES = ("Hamming", "WhRank-adaptive", "paper-exact", "RankingSVM", "QueryAdaptive", "QueryVector")
# The kind of classes that the collection starts with; the others arrive later. Of CIFAR-10, the vehicles.
FIRST_KIND = {"cifar10": (0, 1, 8, 9)}
MOST_OF_A_KIND = 20_000
UPDATES, BATCH = 200, 10  # of the online learner at every step of the drift
PAGE = 10
NOISE = 0.1


def compare(group: Group, wanted: list[str], data: Data) -> Records:
    """Every ranking on one set of codes: the protocols authors, full and unseen."""
    coded = encode(group, data, split(group.protocol, data.y, group.seed))
    rankings = Rankings(coded, group.dataset, group.seed)
    for name in wanted:
        start = time.perf_counter()
        query_codes, weights = rankings.queries(name)
        learned = time.perf_counter() - start
        asked = (coded.test_codes, coded.test_y, coded.queries, weights, query_codes)
        record = _record(judge(*asked), start, sizes(coded))
        record["params"]["fit_seconds"] = learned
        # Curves are drawn from the first seed.
        if group.seed == 0 and name in CURVES:
            record["curve"] = curve(*asked)
        yield name, record


def quadruplets(group: Group, wanted: list[str], data: Data) -> Records:
    """How many quadruplets are needed."""
    coded = encode(group, data, split("full", data.y, group.seed))
    rankings = Rankings(coded, group.dataset, group.seed)
    for n in QUADRUPLETS:
        for name in ("paper-exact", "RankingSVM"):
            if (cell := f"{name}-n{n}") not in wanted:
                continue
            start = time.perf_counter()
            learner = RankingSVM(n_quadruplets=n)
            weights = rankings.paper("exact", n) if name == "paper-exact" else rankings.learn(learner).weights_
            figures = judge(coded.test_codes, coded.test_y, coded.queries, weights)
            yield cell, _record(figures, start, {**sizes(coded), "n_quadruplets": n})


def drift(group: Group, wanted: list[str], data: Data) -> Records:
    """The collection doubles, in five steps, with classes of another kind; the hash functions stay.

    Frozen weights are those learned before; retrained ones are learned anew at each step from all labelled rows there
    are; the online learner starts from the frozen ones and sees 2000 quadruplets of the rows there are at each step.
    """
    random = np.random.default_rng(group.seed)
    classes = np.unique(data.y)
    is_first = np.isin(data.y, FIRST_KIND.get(group.dataset, classes[: len(classes) // 2]))
    old, new = (random.permutation(np.flatnonzero(kind))[:MOST_OF_A_KIND] for kind in (is_first, ~is_first))
    size = min(len(old), len(new)) // 2
    train, test = np.concatenate([old[:size], new[:size]]), np.concatenate([old[size : 2 * size], new[size : 2 * size]])
    hasher = make_hasher(group.hasher, group.n_bits, group.seed).fit(data.X[old[:size]])
    codes, test_codes = hasher.transform(data.X[train]), hasher.transform(data.X[test])
    y, test_y = data.y[train], data.y[test]
    queries = np.concatenate([first + draw_queries(test_y[first:][:size], random, most=500) for first in (0, size)])

    weights: dict[str, Any] = {"Hamming": None}
    online, way = OnlineRankingSVM(), {}
    for step in STEPS:
        n = size + size * step // max(STEPS)
        seconds = dict.fromkeys(("Hamming", "frozen", "online", "retrained"), 0.0)
        start = time.perf_counter()
        learner = RankingSVM(group.n_bits, random_state=group.seed).fit(codes[:n], y[:n])
        weights["retrained"], seconds["retrained"] = learner.weights_, time.perf_counter() - start
        if step == 0:
            weights["frozen"] = weights["online"] = learner.weights_
            way = {name: learner.params_.get(name) for name in ("strategy", "n_neighbors")}
            way["strategy"] = way["strategy"] or "uniform"
            online = OnlineRankingSVM(weights=learner.weights_, n_bits=group.n_bits)
        else:
            start = time.perf_counter()
            drawn = draw_quadruplets(y[:n], UPDATES * BATCH, codes=codes[:n], random_state=group.seed + step, **way)
            for batch in np.array_split(drawn, UPDATES):
                online.partial_fit(codes[:n], batch)
            weights["online"], seconds["online"] = online.weights_, time.perf_counter() - start
        there = queries[queries < n]
        for name, vector in weights.items():
            if (cell := f"{name}-step{step}") not in wanted:
                continue
            start = time.perf_counter()
            figures = judge(test_codes[:n], test_y[:n], there, vector)
            figures["map_old"] = judge(test_codes[:n], test_y[:n], there[there < size], vector)["map"]
            params = {"step": step, "n_train": n, "n_items": n, "n_queries": len(there), "fit_seconds": seconds[name]}
            yield cell, _record(figures, start - seconds[name], params)


def clicks(group: Group, wanted: list[str], data: Data) -> Records:
    """Pages of results shown to users whose clicks are biased by position and noisy; the weights learn from them.

    An item at rank r is looked at with probability 1/log2(r + 1); one looked at is clicked if it is relevant, and nine
    clicks in ten are right. Some places of a page may be given to items drawn from the first tenth of the collection.
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
                yield cell, _record(figures, start, {**sizes(coded), "pages": page, "slots": slots, "C": c})
            query = int(random.choice(users))
            shown = _page(coded, query, weights, slots, random)
            seen = random.random(PAGE) < 1 / np.log2(np.arange(PAGE) + 2)
            right = random.random(PAGE) >= NOISE
            clicked = seen & ((coded.test_y[shown] == coded.test_y[query]) == right)
            online.learn_clicks(coded.test_codes[query], coded.test_codes[shown], clicked)
            weights = getattr(online, "weights_", None)  # nothing before the first page that says something


def _page(coded: Coded, query: int, weights: Any, slots: int, random: np.random.Generator) -> Any:
    """Rows to show: the best, ties in random order, and some explored ones at random places among them."""
    found = distances(coded.test_codes[[query]], coded.test_codes, weights, threads=1)[0].astype(np.float64)
    found[query] = np.inf
    order = np.lexsort((random.random(len(found)), found))[:-1]
    top, deeper = order[: PAGE - slots], order[PAGE - slots : max(2 * PAGE, len(order) // 10)]
    explored = random.choice(deeper, slots, replace=False)
    page = np.empty(PAGE, np.int64)
    places = np.zeros(PAGE, bool)
    places[random.choice(PAGE, slots, replace=False)] = True
    page[places], page[~places] = explored, top
    return page


def acdv_classes(group: Group, wanted: list[str], data: Data) -> Records:
    """Table 1: a linear SVM tells differences of codes within a class from those between classes."""
    start = time.perf_counter()
    random = np.random.default_rng(group.seed)
    by_class = [random.permutation(np.flatnonzero(data.y == label)[:1000]) for label in np.unique(data.y)]
    parts = [np.concatenate([rows[: len(rows) * 7 // 10] for rows in by_class])]
    parts += [np.concatenate([rows[len(rows) * 7 // 10 :] for rows in by_class])]
    hasher = make_hasher(group.hasher, group.n_bits, group.seed).fit(data.X[parts[0]])
    sets = [_pairs(hasher, data, rows, group.n_bits, 10_000, random) for rows in parts]
    svm = LinearSVC(dual=False).fit(*sets[0])
    params = {"n_train_pairs": len(sets[0][1]), "n_test_pairs": len(sets[1][1])}
    yield wanted[0], _record({"accuracy": svm.score(*sets[1])}, start, params)


def acdv_picture(group: Group, wanted: list[str], data: Data) -> Records:
    """A hundred differences of codes within a class and a hundred between classes, and how often each bit differs."""
    start = time.perf_counter()
    random = np.random.default_rng(group.seed)
    rows = split("authors", data.y, group.seed).train
    hasher = make_hasher(group.hasher, group.n_bits, group.seed).fit(data.X[rows])
    bits, similar = _pairs(hasher, data, rows, group.n_bits, 10_000, random)
    record = _record({}, start, {"n_pairs": len(bits)})
    for name, kind in (("same", bits[similar]), ("different", bits[~similar])):
        record[name] = ["".join(map(str, row)) for row in kind[:100]]
        record[f"{name}_rate"] = kind.mean(axis=0).tolist()
    yield wanted[0], record


def _pairs(hasher: Any, data: Data, rows: Any, n_bits: int, n: int, random: np.random.Generator) -> tuple[Any, Any]:
    """Bits of n differences within classes and n between them, and which is which."""
    codes, y = hasher.transform(data.X[rows]), data.y[rows]
    first, second = random.integers(len(rows), size=(2, 50 * n))
    other, similar = first != second, y[first] == y[second]
    chosen = np.concatenate([np.flatnonzero(other & kind)[:n] for kind in (similar, ~similar)])
    return unpack(acdv(codes[first[chosen]], codes[second[chosen]]), n_bits), similar[chosen]


def timing(group: Group, wanted: list[str], data: Data) -> Records:
    """How long it takes to judge one cell with all of a tenth of the classes as queries: distances, sort, figures."""
    rows = split("full", data.y, group.seed)
    every = draw_queries(data.y[rows.test], np.random.default_rng(group.seed), most=len(data.y))
    coded = encode(group, data, Split(rows.train, rows.test, every))
    weights = Rankings(coded, group.dataset, group.seed).weights(wanted[0])
    relevant = coded.test_y[coded.queries][:, None] == coded.test_y
    start = time.perf_counter()
    figures = evaluate(distances(coded.test_codes[coded.queries], coded.test_codes, weights), relevant)
    yield wanted[0], _record(figures, start, sizes(coded))


def sizes(coded: Coded) -> Record:
    """How much was learned from, searched in and searched with."""
    return {"n_train": len(coded.codes), "n_items": len(coded.test_codes), "n_queries": len(coded.queries)}


def _record(figures: dict[str, float], start: float, params: Record) -> Record:
    return {"figures": figures, "seconds": time.perf_counter() - start, "params": dict(params)}


PROTOCOLS: dict[str, Callable[[Group, list[str], Data], Records]] = {
    "full": compare,
    "authors": compare,
    "unseen": compare,
    "drift": drift,
    "quadruplets": quadruplets,
    "clicks": clicks,
    "acdv": acdv_classes,
    "picture": acdv_picture,
    "timing": timing,
}
