"""The gate of a memory: nDCG of what is lifted, lists that are left out, the placebo, and the choice of an offset."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitrank.core.codes import signs
from bitrank.core.types import Queries
from bitrank.index import Index
from bitrank.ranking import QueryVectorRanker
from bitrank.ranking.memory import judge as judging
from bitrank.ranking.memory.entries import Lists
from bitrank.ranking.memory.judge import Asking, HeldOut, judge
from bitrank.ranking.memory.lifting import MOST, PIVOT, TIE

N_BITS = 64


class World:
    """Items and queries about topics; queries want items of their topic that the codes do not tell from others."""

    def __init__(self, seed, n_queries=80, n_topics=8, flipped=0.12):
        rng = self.rng = np.random.default_rng(seed)
        n_items = 400
        self.codes = rng.integers(0, 256, (n_items, N_BITS // 8), dtype=np.uint8)
        topics = rng.integers(n_topics, size=n_queries)
        centres = rng.random((n_topics, N_BITS)) < 0.5
        bits = centres[topics] ^ (rng.random((n_queries, N_BITS)) < flipped)
        self.queries = np.packbits(bits, axis=1)
        wanted = rng.permutation(n_items)[: n_topics * 12].reshape(n_topics, 12)
        pairs = [(q, i, 1) for q in range(n_queries) for i in rng.choice(wanted[topics[q]], 6, replace=False)]
        self.pairs = np.array(sorted(pairs))

    def shuffled(self):
        """The pairs, their lists exchanged."""
        out = self.pairs.copy()
        out[:, 0] = self.rng.permutation(len(self.queries))[out[:, 0]]
        return out[np.lexsort((out[:, 1], out[:, 0]))]

    def asking(self):
        """Search by plain codes; what was learned is given as reals."""
        index, similar = Index(self.codes), signs(self.queries, N_BITS) @ signs(self.queries, N_BITS).T / N_BITS

        def plain(rows):
            queries = Queries(self.queries[rows], np.ones((len(rows), N_BITS), np.float32))
            return queries, (np.full(len(rows), float(N_BITS)), np.full(len(rows), 1 / N_BITS))

        return Asking(
            lambda queries, k: index.search(queries, k),
            lambda queries, ids: index.distances(queries, ids),
            lambda rows: similar[rows].astype(np.float64),
            plain,
            lambda rows, _: plain(rows),
        )

    def judge(self, pairs, seed=0, folds=(), accepted=False):
        """The gate's verdict, with every query a judged one of its own."""
        entries = np.column_stack([pairs, np.zeros(len(pairs), int)])
        places = np.arange(len(self.queries))
        return judge(self.asking(), pairs, places, entries, list(folds), accepted, np.random.default_rng(seed))


def reference(world, query, pairs, offset):
    """nDCG@10 of a query by the definition, its own list left out."""
    own = signs(world.queries, N_BITS)[query]
    plain = signs(world.codes, N_BITS) @ own / N_BITS
    score, nearest = plain.copy(), {}
    for other, item, _ in pairs.tolist():
        if other != query:
            near = float(signs(world.queries, N_BITS)[other] @ own) / N_BITS
            nearest[item] = max(nearest.get(item, -2), near)
    lifts = {i: m + TIE * (plain[i] - PIVOT) - offset for i, m in nearest.items()}
    lifts = {i: value for i, value in lifts.items() if value > plain[i]}
    for item in sorted(lifts, key=lambda i: (-np.float32(lifts[i]), i))[:MOST]:
        score[item] = lifts[item]
    wanted = {int(i): 2.0**g - 1 for q, i, g in pairs.tolist() if q == query}
    best = sorted(range(len(score)), key=lambda i: (-np.float32(score[i]), i))[:10]
    ideal = sorted(wanted.values(), reverse=True)[:10]
    return sum(wanted.get(i, 0) / np.log2(r + 2) for r, i in enumerate(best)) / sum(
        g / np.log2(r + 2) for r, g in enumerate(ideal)
    )


@pytest.mark.parametrize("offset", [0.0, 0.12])
def test_queries_that_are_left_out_are_judged_by_the_definition(offset):
    world = World(0)
    pairs = world.pairs.copy()
    pairs[::3, 2] = 2
    asking, rows = world.asking(), np.arange(0, 80, 7)
    held_out = HeldOut.of(asking, asking.plain(rows), rows, rows, judging._of(pairs, rows))
    found = held_out.judge(Lists.of(np.column_stack([pairs, pairs[:, 2] * 0]), 80), offset)
    np.testing.assert_allclose(found, [reference(world, row, pairs, offset) for row in rows.tolist()], atol=1e-6)


def test_an_offset_is_found_where_queries_want_what_similar_ones_wanted_and_nothing_where_lists_are_exchanged():
    opened = 0
    for seed in range(12):
        world = World(seed)
        found = world.judge(world.pairs, seed)
        assert (found.use, found.offset in judging.OFFSETS) == ("memory", True)
        line = next(line for line in found.lines if line["offset"] == found.offset)
        assert line["gain"] > 0.2
        opened += world.judge(world.shuffled(), seed).offset is not None
    assert opened <= 1


def test_few_queries_and_lists_that_share_nothing_are_refused():
    world = World(1)
    few = world.judge(world.pairs[world.pairs[:, 0] < 9])
    assert few.offset is None
    assert "at least 10 queries" in few.reason
    alone = np.column_stack([np.arange(80), np.arange(80), np.ones(80, int)])
    assert "placebo" in world.judge(alone).reason


def test_what_everybody_wants_is_no_reason_to_lift_it():
    world = World(2)
    popular = np.array([(q, i, 1) for q in range(80) for i in range(6)])
    assert world.judge(popular).offset is None


def test_vector_and_memory_are_compared_on_the_queries_that_both_leave_out():
    world = World(3)
    thirds = np.array_split(np.arange(80), 3)
    folds = [(np.flatnonzero(~np.isin(world.pairs[:, 0], third)), third, None) for third in thirds]
    found = world.judge(world.pairs, folds=folds, accepted=True)
    by_use = {line["use"]: line["ndcg10"] for line in found.together}
    assert set(by_use) == {"neither", "vector", "memory", "both"}
    assert by_use["vector"] == by_use["neither"]  # what was learned ranks as the codes do
    assert found.use in ("memory", "both")
    scores = []  # a fold's memory knows the other folds alone
    for rows, third, _ in folds:
        for query in third.tolist():
            known = np.vstack([world.pairs[rows], world.pairs[world.pairs[:, 0] == query]])
            scores.append(reference(world, query, known, found.together[2]["offset"]))
    assert np.isclose(np.mean(scores), by_use["memory"], atol=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_ndcg_equals_its_definition(seed):
    rng = np.random.default_rng(seed)
    n, k = rng.integers(1, 5), rng.integers(1, 11)
    found = np.array([rng.permutation(20)[:k] for _ in range(n)])
    found[rng.random(found.shape) < 0.1] = -1
    wanted = {(q, i): int(rng.integers(1, 4)) for q, i in rng.integers([n, 20], size=(30, 2)).tolist()}
    rows = np.array([[*key, grade] for key, grade in sorted(wanted.items())])
    out = judging._ndcg(found, rows)
    for q in range(n):
        worth = {int(i): 2.0**g - 1 for row, i, g in rows.tolist() if row == q}
        ideal = sum(g / np.log2(r + 2) for r, g in enumerate(sorted(worth.values(), reverse=True)[:10]))
        gain = sum(worth.get(int(i), 0) / np.log2(r + 2) for r, i in enumerate(found[q]))
        assert np.isnan(out[q]) if ideal == 0 else np.isclose(out[q], gain / ideal)


def test_a_ranker_tells_what_its_gate_held_out():
    world, told = World(4, n_queries=120), []
    reals = signs(world.queries, N_BITS) * world.rng.uniform(0.5, 2, (120, N_BITS)).astype(np.float32)
    ranker = QueryVectorRanker(n_steps=60, random_state=0)
    ranker.fit_pairs(world.codes, world.pairs, queries=reals, beside=lambda *fold: told.append(fold))
    assert ranker.report_.accepted
    assert sorted(np.concatenate([queries for _, queries, _ in told]).tolist()) == list(range(120))
    for rows, queries, vectors in told:
        assert not set(world.pairs[rows, 0].tolist()) & set(queries.tolist())
        assert vectors.shape == (len(queries), N_BITS)
