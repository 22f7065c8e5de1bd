"""The gate for constraints: it hides queries and items, refuses noise and placebos, and accepts what is true."""

import numpy as np
import pytest

from bitrank import OnlineRankingSVM, RankingSVM
from bitrank.core.codes import pack
from bitrank.ranking.evidence.kinds import check_constraint_evidence, pairs_of_constraints
from bitrank.ranking.gate import choose as gate
from bitrank.ranking.gate import placebo
from bitrank.ranking.gate.folds import split_pairs

N_BITS = 64
RANKERS = [RankingSVM, OnlineRankingSVM]
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


def few_actives(seed, k=10, n_bits=1024):
    """Random codes, ten of them "active": every triplet names an active as query and one as similar item."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (1010, n_bits // 8), dtype=np.uint8)
    rows = [(i, rng.integers(k, 1010), j) for i in range(k) for j in range(k) if i != j for _ in range(40)]
    return codes, np.array(rows)


def popular_items(seed, n_queries=60, n_popular=12):
    """Random queries that are no items, and the same few items similar to all of them."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (600, N_BITS // 8), dtype=np.uint8)
    queries = rng.integers(0, 256, (n_queries, N_BITS // 8), dtype=np.uint8)
    similar, far = rng.integers(n_popular, size=3000), rng.integers(n_popular, 600, size=3000)
    return codes, np.column_stack([rng.integers(n_queries, size=3000), far, similar]), queries


def of_classes(seed, n=400, n_rows=4000):
    """Codes whose first bits tell eight classes; similar items are of the query's class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(8, size=n)
    bits = rng.integers(2, size=(n, N_BITS))
    bits[:, :9] = (y[:, None] >> np.arange(3).repeat(3)) & 1 ^ (rng.random((n, 9)) < 0.05)
    rows = rng.integers(n, size=(20 * n_rows, 3))
    query, far, near = y[rows].T
    return pack(bits), rows[(query == near) & (query != far) & (rows[:, 0] != rows[:, 2])][:n_rows]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ranker", RANKERS)
def test_noise_among_few_actives_is_refused(ranker, seed):
    learned = ranker(random_state=seed).fit_constraints(*few_actives(seed))
    assert learned.blend_ == 0
    assert learned.weights_.min() == learned.weights_.max()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ranker", RANKERS)
def test_what_a_placebo_teaches_as_well_is_refused(ranker, seed):
    """Items that are similar to every query are found by any query: nothing was learned about queries."""
    codes, rows, queries = popular_items(seed)
    learned = ranker(random_state=seed).fit_constraints(codes, rows, queries=queries)
    assert learned.blend_ == 0
    assert learned.weights_.min() == learned.weights_.max()


CLASS = ((0, 80), (80, 400), (0, 80))


def test_what_is_true_of_all_queries_alike_is_left_to_the_placebo(monkeypatch):
    """One class looks for itself: whatever query a constraint is given to, it teaches the same."""
    rng = np.random.default_rng(0)
    bits = rng.integers(2, size=(400, N_BITS))
    bits[:80, :9] = rng.random((80, 9)) < 0.95  # the first 80 are the class
    codes, one = pack(bits), np.column_stack([rng.integers(low, high, 4000) for low, high in CLASS])
    one = one[one[:, 0] != one[:, 2]]
    refused = RankingSVM(N_BITS, random_state=0).fit_constraints(codes, one)
    assert refused.blend_ == 0
    assert refused.report_.refusal == placebo.REFUSAL
    assert refused.report_.pick("guarded") is not None
    monkeypatch.setattr(placebo, "_Z", -np.inf)
    monkeypatch.setattr(placebo, "_LEAST_SHARE", -np.inf)
    assert RankingSVM(N_BITS, random_state=0).fit_constraints(codes, one).blend_ > 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ranker", RANKERS)
def test_what_is_true_is_accepted(ranker, seed):
    codes, rows = of_classes(seed)
    learned = ranker(n_bits=N_BITS, random_state=seed).fit_constraints(codes, rows)
    assert learned.report_.accepted
    assert learned.report_.gain > 3 * learned.report_.gain_error
    assert learned.weights_[:9].mean() > 2 * learned.weights_[9:].mean()


@pytest.mark.parametrize("itself", [False, True])
def test_rows_to_learn_from_name_nothing_that_is_held_out(itself):
    codes, rows = of_classes(0)
    evidence = check_constraint_evidence(codes, rows, None if itself else codes.copy(), N_BITS)
    asked = []

    def make(some, _):
        def challengers(numbers, wanted):
            asked.append(some.rows[numbers])
            yield {}, np.ones(N_BITS, np.float32)

        return challengers

    report = gate.choose_by_constraints(evidence, make, random=np.random.default_rng(0))
    assert not report.accepted
    assert len(asked) == 3
    folds = split_pairs(pairs_of_constraints(evidence).pairs, 1 / 3, np.random.default_rng(0))
    for part, fold in zip(asked, folds, strict=True):
        assert len(part) > 50
        assert len(fold.new_items) > 100
        assert not set(part[:, 0]) & set(fold.queries)
        assert not set(part[:, 1:].ravel()) & set(fold.new_items)
        assert not itself or not set(part.ravel()) & set(fold.queries)


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([[0, 1, 2]], "evidence must come from at least two queries"),
        ([[0, 1, 2], [2, 1, 0]], "no constraint is left where queries and items are held out"),
    ],
)
def test_too_few_constraints_are_refused(ranker, rows, reason):
    codes = of_classes(0)[0]
    learned = ranker(n_bits=N_BITS, random_state=0).fit_constraints(codes, rows)
    assert learned.blend_ == 0
    assert learned.report_.refusal.startswith("too little evidence: " + reason)
    assert learned.weights_.min() == learned.weights_.max()
