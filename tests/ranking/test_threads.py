"""Learning uses one BLAS thread, and leaves the number as it was."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from bitrank import QueryVectorRanker, RankingSVM
from bitrank.ranking import query_vector
from bitrank.ranking.networks.threads import one_blas_thread
from bitrank.ranking.solvers import objective


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_one_thread_inside_and_as_many_as_before_outside():
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        assert one_blas_thread(blas_threads)() == {1}
        assert blas_threads() == before


def test_the_number_is_restored_after_an_error():
    @one_blas_thread
    def fail():
        raise ValueError("no")

    before = blas_threads()
    with pytest.raises(ValueError, match="no"):
        fail()
    assert blas_threads() == before


@pytest.mark.parametrize(
    ("ranker", "module", "name"),
    [
        (RankingSVM(n_quadruplets=50), objective.Objective, "__init__"),
        (QueryVectorRanker(n_steps=1), query_vector, "train"),
    ],
)
def test_rankers_learn_with_one_thread(ranker, module, name, monkeypatch):
    seen, original = set(), getattr(module, name)

    def spy(*args, **kwargs):
        seen.update(blas_threads())
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, spy)
    rng = np.random.default_rng(0)
    with threadpool_limits(limits=2, user_api="blas"):
        ranker.fit(rng.integers(0, 256, (60, 2), dtype=np.uint8), rng.integers(2, size=60))
    assert seen == {1}
