"""The LangChain store beyond LangChain's own tests: results against NumPy, rankers, filters, files, errors."""

import asyncio

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from bitrank import SignBits
from bitrank.core.codes import distances, from_embeddings
from bitrank.integrations.langchain import BitrankVectorStore
from bitrank.ranking import QueryAdaptiveRanker, WhRank

MODEL = DeterministicFakeEmbedding(size=48)
TEXTS = [f"text {number}" for number in range(40)]
METADATA = [{"group": number % 3, "tags": ["a"]} for number in range(40)]
X = np.array(MODEL.embed_documents(TEXTS))
QUERY = np.array(MODEL.embed_query("a question"))


@pytest.fixture
def store():
    return BitrankVectorStore.from_texts(TEXTS, MODEL, METADATA, ids=TEXTS)


def test_results_are_those_of_the_asymmetric_distance(store):
    found = store.similarity_search_with_score("a question", k=7)
    similarity = QUERY @ np.where(X > 0, 1, -1).T / np.linalg.norm(QUERY) / np.sqrt(48) * np.sqrt(np.pi / 2)
    order = np.argsort(-similarity)[:7]
    assert [document.id for document, _ in found] == [TEXTS[row] for row in order]
    np.testing.assert_allclose([score for _, score in found], similarity[order], rtol=1e-5)
    assert found[0][0].metadata == METADATA[order[0]]
    assert store.similarity_search_by_vector(QUERY.tolist(), k=7) == [document for document, _ in found]
    assert asyncio.run(store.asimilarity_search_with_score("a question", k=7)) == found
    relevance = store.similarity_search_with_relevance_scores("a question", k=7)
    np.testing.assert_allclose([score for _, score in relevance], (1 + similarity[order]) / 2, rtol=1e-5)


def test_ranker_and_hasher_give_codes_and_weights(tmp_path):
    hasher = SignBits().fit(X)
    codes, reals = hasher.transform(X), hasher.project(X)
    ranker = WhRank().fit(codes, np.arange(40) % 4, queries=reals)
    ranker.save(tmp_path / "texts.ranker")
    hasher.save(tmp_path / "hasher.npz")
    store = BitrankVectorStore.from_texts(
        TEXTS, MODEL, ids=TEXTS, ranker=tmp_path / "texts.ranker", hasher=tmp_path / "hasher.npz"
    )
    asked = ranker.queries_for(hasher.project(QUERY[None]))
    order = np.argsort(distances(asked.codes, codes, asked.weights)[0], kind="stable")[:5]
    assert [document.id for document in store.similarity_search("a question", k=5)] == [TEXTS[row] for row in order]
    with pytest.raises(ValueError, match="X must have 48 columns, got 16"):
        BitrankVectorStore(DeterministicFakeEmbedding(size=16), ranker=ranker).add_texts(["a"])
    small = QueryAdaptiveRanker(n_bits=8, random_state=0).fit(codes[:, :1], np.arange(40) % 4)
    with pytest.raises(ValueError, match="ranker must be of the 48 bits of the collection, got one of 8 bits"):
        BitrankVectorStore(MODEL, ranker=small, hasher=hasher)


def test_filters(store):
    for condition in ({"group": 1}, lambda document: document.metadata["group"] == 1, {"group": 1, "tags": ["a"]}):
        found = store.similarity_search("a question", k=40, filter=condition)
        assert {document.id for document in found} == set(TEXTS[1::3])
    assert store.similarity_search("a question", filter={"group": 7}) == []
    assert store.similarity_search("a question", filter={"none": None}) == []
    with pytest.raises(ValueError, match="filter must be a function of a document or a dict"):
        store.similarity_search("a question", filter=["group"])


def test_a_saved_store_answers_the_same(store, tmp_path):
    store.delete(["text 3"])
    store.add_texts(["text 5, changed"], [{"group": 9}], ids=["text 5"])
    before = store.similarity_search_with_score("a question", k=40)
    assert len(before) == 39
    for _ in range(2):
        store.save(tmp_path / "store")
        store = BitrankVectorStore.load(tmp_path / "store", MODEL)
        assert store.similarity_search_with_score("a question", k=40) == before
    store.add_texts(["text 3"], ids=["text 3"])
    assert len(store) == 40
    ranker = WhRank().fit(from_embeddings(X), np.arange(40) % 4, queries=X)
    store.collection.use(ranker)
    store.save(tmp_path / "ranked")
    loaded = BitrankVectorStore.load(tmp_path / "ranked", MODEL)
    again = BitrankVectorStore.load(tmp_path / "store", MODEL, ranker=ranker)
    again.add_texts(["text 3"], ids=["text 3"])
    ranked = store.similarity_search_with_score("a question", k=40)
    assert ranked != before
    assert loaded.similarity_search_with_score("a question", k=40) == ranked
    assert again.similarity_search_with_score("a question", k=40) == ranked


def test_the_collection_of_a_store_learns(store, tmp_path):
    before = store.similarity_search_with_score("a question", k=5)
    labels = np.argmax(X[:, :3], axis=1)
    report = store.collection.learn(labels=labels, ranker="WhRank", features=X)
    assert report.version.ranker == "WhRank"
    after = store.similarity_search_with_score("a question", k=5)
    assert after != before
    store.save(tmp_path / "store")
    assert BitrankVectorStore.load(tmp_path / "store", MODEL).similarity_search_with_score("a question", k=5) == after
    store.collection.forget()
    assert store.similarity_search_with_score("a question", k=5) == before


def test_diverse_results(store):
    twins = [Document(id=f"twin {number}", page_content="a question") for number in range(3)]
    store.add_documents(twins)
    near = store.similarity_search("a question", k=3)
    assert {document.id for document in near} == {"twin 0", "twin 1", "twin 2"}
    diverse = store.max_marginal_relevance_search("a question", k=3, fetch_k=10, lambda_mult=0.3)
    assert sum(document.id.startswith("twin") for document in diverse) == 1
    retriever = store.as_retriever(search_type="mmr", search_kwargs={"k": 3, "fetch_k": 10, "lambda_mult": 0.3})
    assert retriever.invoke("a question") == diverse
    assert BitrankVectorStore(MODEL).max_marginal_relevance_search("a question") == []


def test_mistakes_change_nothing(store, tmp_path):
    for call, message in (
        (lambda: store.add_texts(["a"], ids=["1", "2"]), "ids must have one value for each of the 1 texts, got 2"),
        (lambda: store.add_texts(["a"], metadatas=[]), "metadatas must have one value for each of the 1 texts, got 0"),
        (lambda: store.similarity_search("a", k=0), "k must be an int of at least 1, got 0"),
        (
            lambda: store.similarity_search_by_vector([1.0, 2.0]),
            "queries must be vectors of 48 numbers, or packed codes",
        ),
        (lambda: store.similarity_search_by_vector([np.nan] * 48), "must be finite, got nan"),
        (lambda: BitrankVectorStore.load(tmp_path, MODEL), "collection.json is missing: no collection was saved there"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert len(store) == 40
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ValueError, match="path must be a saved collection or an empty folder"):
        store.save(tmp_path / "other")
    store.add_texts(["a"], [{"when": object()}])
    with pytest.raises(ValueError, match="records must be JSON values to be saved"):
        store.save(tmp_path / "store")
    assert not (tmp_path / "store").exists()
    assert store.delete()
    assert len(store) == 0
    assert store.similarity_search("a") == []


class TestSeveralBitsPerDimension:
    TEXTS = tuple(f"page {number}" for number in range(150))

    @pytest.fixture
    def store(self):
        store = BitrankVectorStore(MODEL, bits=4)
        store.add_texts(self.TEXTS[:120], ids=self.TEXTS[:120])
        store.add_texts(self.TEXTS[120:], ids=self.TEXTS[120:])  # the axes stay
        return store

    def test_scores_are_cosines(self, store, tmp_path):
        X = np.array(MODEL.embed_documents(self.TEXTS))
        cosines = X @ QUERY / np.linalg.norm(X, axis=1) / np.linalg.norm(QUERY)
        found = store.similarity_search_with_score("a question", k=10)
        places = [self.TEXTS.index(document.id) for document, _ in found]
        assert len(set(places) & set(np.argsort(-cosines)[:10].tolist())) >= 7
        np.testing.assert_allclose([score for _, score in found], cosines[places], atol=0.06)
        assert store.collection.bytes_per_item < 4 * 48 / 6
        store.save(tmp_path / "store")
        assert (
            BitrankVectorStore.load(tmp_path / "store", MODEL).similarity_search_with_score("a question", k=10) == found
        )

    def test_diverse_results_compare_what_codes_decode_to(self, store):
        vectors = store.collection.hasher.decode(store.collection.codes(self.TEXTS))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        near = store.similarity_search_with_score("a question", k=20)
        chosen = [document.id for document, _ in near[:1]]
        scores = {document.id: score for document, score in near}
        row = {text: place for place, text in enumerate(self.TEXTS)}
        while len(chosen) < 4:
            value = {
                text: 0.5 * score - 0.5 * max(float(vectors[row[text]] @ vectors[row[other]]) for other in chosen)
                for text, score in scores.items()
                if text not in chosen
            }
            chosen.append(max(value, key=value.get))
        found = store.max_marginal_relevance_search("a question", k=4)
        assert [document.id for document in found] == chosen

    def test_mistakes(self):
        store = BitrankVectorStore(MODEL, bits=2)
        with pytest.raises(
            ValueError, match=r"the first embeddings of a store with bits must be at least 100, .* got 3"
        ):
            store.add_texts(self.TEXTS[:3])
        assert len(store) == 0
        with pytest.raises(ValueError, match="bits must be None for a hasher or a ranker"):
            BitrankVectorStore(MODEL, bits=2, hasher=SignBits().fit(X))
        with pytest.raises(ValueError, match=r"bits must be a number from 0.25 to 8, got 9"):
            BitrankVectorStore(MODEL, bits=9).add_texts(self.TEXTS)
