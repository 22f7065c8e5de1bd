"""MTEB's mock tasks through `BitrankSearchIndex`, and its results against NumPy."""

import numpy as np
import pytest

from bitrank import SignBits
from bitrank.core.codes import distances, from_embeddings
from bitrank.integrations.mteb import BitrankSearchIndex
from bitrank.ranking import WhRank

X = np.random.default_rng(0).normal(size=(50, 40))
Q = np.random.default_rng(1).normal(size=(4, 40))
IDS = [f"d{row}" for row in range(50)]


def test_search_is_that_of_the_asymmetric_distance():
    index = BitrankSearchIndex()
    index.add_documents(X[:30], IDS[:30])
    index.add_documents(X[30:], IDS[30:])
    scores, places = index.search(Q, 7)
    cosines = Q @ np.where(X > 0, 1, -1).T / np.linalg.norm(Q, axis=1, keepdims=True) / np.sqrt(40)
    similarity = cosines * np.sqrt(np.pi / 2)  # of a vector and the signs of another that is normal
    order = np.argsort(-similarity, axis=1)[:, :7]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_allclose(scores, np.take_along_axis(similarity, order, 1), rtol=1e-5)
    assert [len(row) for row in index.search(Q, 1000)[1]] == [50] * 4
    index.clear()
    with pytest.raises(ValueError, match="documents must be added before a search"):
        index.search(Q, 3)


def test_reranking_gives_places_in_the_list_of_each_query():
    index = BitrankSearchIndex()
    index.add_documents(X, IDS)
    top_ranked = {"a": ["d9", "d3", "d40"], "b": ["d1"], "c": []}
    names = dict(enumerate("abcx"))
    scores, places = index.search(Q, 2, None, top_ranked, names)
    all_scores, all_places = index.search(Q, 50)
    known = dict(zip(all_places[0], all_scores[0], strict=True))
    expected = sorted((known[row], place) for place, row in enumerate((9, 3, 40)))[::-1][:2]
    assert list(zip(scores[0], places[0], strict=True)) == expected
    assert places[1:] == [[0], [], []]
    with pytest.raises(ValueError, match="query_idx_to_id must name the queries"):
        index.search(Q, 2, None, top_ranked)


def test_ranker_and_hasher():
    hasher = SignBits().fit(X)
    ranker = WhRank().fit(hasher.transform(X), np.arange(50) % 5, queries=hasher.project(X))
    index = BitrankSearchIndex(ranker, hasher)
    index.add_documents(X, IDS)
    asked = ranker.queries_for(hasher.project(Q))
    expected = np.argsort(distances(asked.codes, hasher.transform(X), asked.weights), axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(index.search(Q, 5)[1], expected)
    with pytest.raises(ValueError, match="embeddings must have one row for each of the 50 ids"):
        index.add_documents(X[:3], IDS)


def test_vectors_of_queries_are_the_features_that_the_ranker_learned_from(featured):
    index = BitrankSearchIndex(featured.ranker, featured.hasher)
    index.add_documents(featured.items, [str(row) for row in range(400)])
    codes, reals = featured.hasher.transform(featured.items), featured.hasher.project(featured.queries)
    asked = featured.ranker.queries_for(reals, features=featured.queries, collection=codes)
    expected = np.sort(distances(asked.codes, codes, asked.weights), axis=1)[:, :10]
    totals = asked.weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(index.search(featured.queries, 10)[0], 1 - 2 * expected / totals, rtol=1e-4)


TASKS = """
MockRetrievalTask MockRetrievalDialogTask MockMultilingualRetrievalTask MockInstructionRetrieval
MockMultilingualInstructionRetrieval MockRerankingTask MockMultilingualRerankingTask MockInstructionReranking
MockMultilingualInstructionReranking MockMultiChoiceTask MockMultilingualMultiChoiceTask
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TASKS.split())
def test_mock_tasks(name):
    mteb = pytest.importorskip("mteb")
    from mteb import mocks
    from mteb.models import SearchEncoderWrapper

    def run(backend):
        model = SearchEncoderWrapper(mteb.get_model("mteb/baseline-random-encoder"), index_backend=backend)
        results = mteb.evaluate(model, getattr(mocks, name)(), cache=None, co2_tracker=False, show_progress_bar=False)
        return results.task_results[0].scores

    scores, rival = run(BitrankSearchIndex()), run(None)
    assert scores.keys() == rival.keys()
    for split, parts in scores.items():
        for part, other in zip(parts, rival[split], strict=True):
            assert part.keys() == other.keys()
            assert 0 <= part["main_score"] <= 1


@pytest.mark.filterwarnings("ignore")
def test_the_forms_of_sentence_transformers():
    module = pytest.importorskip("sentence_transformers")
    quantize = (
        getattr(module, "quantize_embeddings", None)
        or pytest.importorskip("sentence_transformers.quantization").quantize_embeddings
    )
    codes = np.packbits(X > 0, axis=1)
    for precision in ("ubinary", "binary"):
        np.testing.assert_array_equal(from_embeddings(quantize(X, precision=precision), precision), codes)
    with pytest.raises(ValueError, match='give form="binary"'):
        from_embeddings(quantize(X, precision="binary"))
