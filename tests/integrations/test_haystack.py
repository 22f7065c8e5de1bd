"""Haystack's own tests of document stores on `BitrankDocumentStore`, and the store and retriever beyond them."""

from dataclasses import replace

import numpy as np
import pytest
from haystack import Document, Pipeline
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import FilterPolicy
from haystack.testing.document_store import CountDocumentsByFilterTest, DocumentStoreBaseExtendedTests

from bitrank import SignBits
from bitrank.core.codes import distances
from bitrank.integrations.haystack import BitrankDocumentStore, BitrankEmbeddingRetriever
from bitrank.ranking import WhRank

X = np.random.default_rng(0).normal(size=(30, 48))
QUERY = np.random.default_rng(1).normal(size=48)
DOCUMENTS = [
    Document(id=f"d{row}", content=f"text {row}", meta={"group": row % 3}, embedding=x.tolist())
    for row, x in enumerate(X)
]


class TestHaystack(DocumentStoreBaseExtendedTests, CountDocumentsByFilterTest):
    """All of Haystack's tests of the protocol and of its extension, and those of counts by filter."""

    @pytest.fixture
    def document_store(self):
        return BitrankDocumentStore()

    @staticmethod
    def assert_documents_are_equal(received, expected):
        """The store keeps the bits of embeddings only, so documents come back without them."""
        assert received == [replace(document, embedding=None) for document in expected]

    def test_write_documents(self, document_store):
        """Without a policy, a known id is an error: the store's own choice."""
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError, match="already exists"):
            document_store.write_documents([document])
        self.assert_documents_are_equal(document_store.filter_documents(), [document])


@pytest.fixture
def store():
    store = BitrankDocumentStore()
    store.write_documents([*DOCUMENTS, Document(id="plain", content="no embedding", meta={"group": 1})])
    return store


def test_results_are_those_of_the_asymmetric_distance(store):
    similarity = QUERY @ np.where(X > 0, 1, -1).T / np.linalg.norm(QUERY) / np.sqrt(48) * np.sqrt(np.pi / 2)
    found = store.embedding_retrieval(QUERY.tolist(), top_k=31)
    order = np.argsort(-similarity)
    assert [document.id for document in found] == [f"d{row}" for row in order]
    np.testing.assert_allclose([document.score for document in found], similarity[order], rtol=1e-5)
    condition = {"field": "meta.group", "operator": "==", "value": 1}
    filtered = store.embedding_retrieval(QUERY.tolist(), condition, top_k=31)
    assert filtered == [document for document in found if document.meta["group"] == 1]


def test_a_pipeline_of_the_retriever_survives_its_serialisation(store, tmp_path):
    store.path = str(tmp_path / "store")
    store.save()
    pipeline = Pipeline()
    narrow = {"field": "meta.group", "operator": "!=", "value": 2}
    pipeline.add_component(
        "retriever", BitrankEmbeddingRetriever(store, filters=narrow, top_k=5, filter_policy=FilterPolicy.MERGE)
    )
    question = {"query_embedding": QUERY.tolist(), "filters": {"field": "meta.group", "operator": "!=", "value": 0}}
    answer = pipeline.run({"retriever": question})["retriever"]["documents"]
    assert len(answer) == 5
    assert {document.meta["group"] for document in answer} == {1}
    again = Pipeline.loads(
        pipeline.dumps(), allowed_modules=["bitrank.integrations.haystack"]
    )  # the store is read from its folder
    assert again.run({"retriever": question})["retriever"]["documents"] == answer


def test_saved_ranker_and_hasher(tmp_path):
    hasher = SignBits().fit(X)
    ranker = WhRank().fit(hasher.transform(X), np.arange(30) % 3, queries=hasher.project(X))
    hasher.save(tmp_path / "hasher.npz")
    ranker.save(tmp_path / "texts.ranker")
    paths = {"ranker": str(tmp_path / "texts.ranker"), "hasher": str(tmp_path / "hasher.npz")}
    store = BitrankDocumentStore(str(tmp_path / "store"), **paths)
    store.write_documents(DOCUMENTS)
    asked = ranker.queries_for(hasher.project(QUERY[None]))
    order = np.argsort(distances(asked.codes, hasher.transform(X), asked.weights)[0], kind="stable")[:10]
    found = store.embedding_retrieval(QUERY.tolist())
    assert [document.id for document in found] == [f"d{row}" for row in order]
    store.save()
    assert BitrankDocumentStore(str(tmp_path / "store")).embedding_retrieval(QUERY.tolist()) == found
    assert BitrankDocumentStore.from_dict(store.to_dict()).embedding_retrieval(QUERY.tolist()) == found
    for name, path in paths.items():  # the folder has the other one
        again = BitrankDocumentStore(str(tmp_path / "store"), **{name: path})
        assert again.embedding_retrieval(QUERY.tolist()) == found
        assert again.collection.versions == store.collection.versions
    SignBits().fit(-X).save(tmp_path / "other.npz")
    with pytest.raises(ValueError, match="hasher must be the one that made the codes in"):
        BitrankDocumentStore(str(tmp_path / "store"), hasher=str(tmp_path / "other.npz"))


def test_mistakes(store):
    for call, message in (
        (lambda: store.save(), "path must be the folder to write"),
        (lambda: store.embedding_retrieval([1.0]), "queries must be vectors of 48 numbers, or packed codes"),
        (lambda: BitrankEmbeddingRetriever(store, top_k=0), "top_k must be an int of at least 1, got 0"),
        (lambda: BitrankEmbeddingRetriever("store"), "document_store must be a BitrankDocumentStore, got str"),
        (lambda: store.write_documents([replace(DOCUMENTS[0], id="new", embedding=[1.0])]), "must have 48 columns"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert store.count_documents() == 31


def test_bits_per_dimension(tmp_path):
    X = np.random.default_rng(0).normal(size=(120, 16))
    store = BitrankDocumentStore(str(tmp_path / "store"), bits=4)
    store.write_documents([Document(id=str(row), embedding=x.tolist()) for row, x in enumerate(X)])
    assert store.to_dict()["init_parameters"]["bits"] == 4
    cosines = X @ X[3] / np.linalg.norm(X, axis=1) / np.linalg.norm(X[3])
    found = store.embedding_retrieval(X[3].tolist(), top_k=5)
    assert found[0].id == "3"
    np.testing.assert_allclose([document.score for document in found], cosines[[int(d.id) for d in found]], atol=0.1)
    store.save()
    again = BitrankDocumentStore.from_dict(store.to_dict())
    assert [d.id for d in again.embedding_retrieval(X[3].tolist(), top_k=5)] == [d.id for d in found]
