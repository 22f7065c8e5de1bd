"""The LlamaIndex store: results against NumPy, filters against LlamaIndex's own store, indexes, files, errors."""

import asyncio

import numpy as np
import pytest
from llama_index.core import StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import Document, ImageNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from bitrank import SignBits
from bitrank.core.codes import distances, from_embeddings
from bitrank.integrations.llama_index import BitrankVectorStore
from bitrank.ranking import WhRank

X = np.random.default_rng(0).normal(size=(40, 48))
QUERY = np.random.default_rng(1).normal(size=48)
METADATA = [
    {"group": row % 3, "weight": row / 2, "name": f"Text {row}", "tags": ["odd" if row % 2 else "even", f"t{row}"]}
    for row in range(40)
]
for _row in range(0, 40, 7):
    del METADATA[_row]["weight"]
    METADATA[_row]["tags"] = []


def nodes(**changed):
    return [
        TextNode(
            id_=f"n{row}",
            text=f"text {row}",
            metadata=dict(METADATA[row]),
            embedding=X[row].tolist(),
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc {row // 10}")},
            **changed,
        )
        for row in range(40)
    ]


def ask(store, k=7, embedding=QUERY, **options):
    return store.query(VectorStoreQuery(query_embedding=list(embedding), similarity_top_k=k, **options))


def one(key, value, operator="=="):
    return MetadataFilter(key=key, value=value, operator=FilterOperator(operator))


@pytest.fixture
def store():
    store = BitrankVectorStore()
    assert store.add(nodes()) == [f"n{row}" for row in range(40)]
    return store


def test_results_are_those_of_the_asymmetric_distance(store):
    found = ask(store)
    similarity = QUERY @ np.where(X > 0, 1, -1).T / np.linalg.norm(QUERY) / np.sqrt(48) * np.sqrt(np.pi / 2)
    order = np.argsort(-similarity)[:7]
    assert found.ids == [f"n{row}" for row in order]
    np.testing.assert_allclose(found.similarities, similarity[order], rtol=1e-5)
    for node, row in zip(found.nodes, order, strict=True):
        assert node == TextNode(**{**nodes()[row].model_dump(), "embedding": None})
        assert node.ref_doc_id == f"doc {row // 10}"
    assert store.client is store.collection
    assert len(store.client) == 40
    assert asyncio.run(store.aquery(VectorStoreQuery(query_embedding=QUERY.tolist(), similarity_top_k=7))) == found


FILTERS = [
    one("group", 1),
    one("group", 1, "!="),
    one("weight", 7.5, ">"),
    one("weight", 7.5, ">="),
    one("weight", 7.5, "<"),
    one("weight", 7.5, "<="),
    one("weight", 7.5, "!="),
    one("group", [0, 2], "in"),
    one("group", [0, 2], "nin"),
    one("weight", [1.0], "nin"),
    one("tags", ["t3", "t4"], "any"),
    one("tags", ["odd", "t3"], "all"),
    one("tags", "odd", "contains"),
    one("tags", None, "is_empty"),
    one("weight", None, "is_empty"),
    one("name", "xt 1", "text_match"),
    one("name", "TEXT 1", "text_match_insensitive"),
    one("ref_doc_id", "doc 2"),
    one("absent", 1),
]


@pytest.mark.parametrize("condition", FilterCondition)
@pytest.mark.parametrize("first", FILTERS, ids=lambda each: f"{each.key} {each.operator.value}")
def test_filters_are_those_of_llama_index(first, condition, store):
    simple = SimpleVectorStore()
    simple.add(nodes())
    for filters in ([first], [first, one("group", 2)], []):
        both = MetadataFilters(filters=filters, condition=condition)
        expected = sorted(ask(simple, 40, filters=both).ids)
        assert sorted(ask(store, 40, filters=both).ids) == expected
        assert sorted(node.node_id for node in store.get_nodes(filters=both)) == expected
    simple.delete_nodes(filters=MetadataFilters(filters=[first], condition=condition))
    store.delete_nodes(filters=MetadataFilters(filters=[first], condition=condition))
    assert sorted(node.node_id for node in store.get_nodes()) == sorted(simple.data.embedding_dict)


def test_nested_filters(store):
    low = MetadataFilters(filters=[one("group", 0), one("group", 1)], condition=FilterCondition.OR)
    light = MetadataFilters(filters=[one("weight", 5.0, ">")], condition=FilterCondition.NOT)
    found = {node.node_id for node in store.get_nodes(filters=MetadataFilters(filters=[low, light]))}
    expected = {f"n{r}" for r, data in enumerate(METADATA) if data["group"] < 2 and data.get("weight", 0) <= 5}
    assert found == expected


def test_ids_of_nodes_and_of_documents_narrow_a_search(store):
    everything = ask(store, 40).ids
    assert ask(store, 40, node_ids=["n3", "n5", "absent"]).ids == [i for i in everything if i in ("n3", "n5")]
    assert ask(store, 40, doc_ids=["doc 1"]).ids == [i for i in everything if 10 <= int(i[1:]) < 20]
    both = ask(store, 40, doc_ids=["doc 1"], node_ids=["n12", "n3"], filters=MetadataFilters(filters=[one("group", 0)]))
    assert both.ids == ["n12"]
    for none in (
        {"node_ids": ["absent"]},
        {"doc_ids": ["n3"]},
        {"filters": MetadataFilters(filters=[one("group", 9)])},
    ):
        found = ask(store, 40, **none)
        assert (found.ids, found.nodes, found.similarities) == ([], [], [])
    assert ask(store, 40, node_ids=[], doc_ids=[]).ids == everything  # as an index asks for all
    assert store.get_nodes([]) == []
    store.delete_nodes([])
    assert len(store.get_nodes()) == 40


def test_nodes_are_replaced_returned_and_deleted(store):
    store.add([TextNode(id_="n3", text="changed", embedding=(-X[3]).tolist())])
    assert len(store.client) == 40
    assert [node.text for node in store.get_nodes(["n3", "n4", "absent"])] == ["changed", "text 4"]
    assert ask(store, 40, -X[3]).ids[0] == "n3"
    store.delete("doc 3")
    asyncio.run(store.adelete("doc 2"))
    store.delete("doc 2")
    assert sorted(ask(store, 40).ids) == sorted(f"n{row}" for row in range(20))
    store.delete_nodes(["n3", "absent"])
    asyncio.run(store.adelete_nodes(["n4"]))
    store.delete_nodes(["n5", "n6"], MetadataFilters(filters=[one("group", 2)]))
    assert {node.node_id for node in asyncio.run(store.aget_nodes())} == {f"n{r}" for r in range(20)} - {
        "n3",
        "n4",
        "n5",
    }
    assert asyncio.run(store.async_add(nodes()[:6])) == [f"n{row}" for row in range(6)]
    assert len(store.get_nodes()) == 20
    store.clear()
    assert store.get_nodes() == []
    assert ask(store).ids == []
    asyncio.run(store.aclear())


def test_kinds_of_nodes_survive(tmp_path):
    store = BitrankVectorStore()
    image = ImageNode(id_="image", text="a cat", image="aGk=", metadata={"n": 1}, embedding=[0.5, -1.0])
    store.add([image])
    store.persist(str(tmp_path / "store"))
    for each in (store, BitrankVectorStore.from_persist_path(str(tmp_path / "store"))):
        (node,) = each.get_nodes()
        assert type(node) is ImageNode
        assert (node.image, node.text, node.metadata, node.embedding) == ("aGk=", "a cat", {"n": 1}, None)


def test_ranker_and_hasher(tmp_path):
    hasher = SignBits().fit(X)
    ranker = WhRank().fit(hasher.transform(X), np.arange(40) % 4, queries=hasher.project(X))
    ranker.save(tmp_path / "texts.ranker")
    hasher.save(tmp_path / "hasher.npz")
    store = BitrankVectorStore(ranker=tmp_path / "texts.ranker", hasher=tmp_path / "hasher.npz")
    store.add(nodes())
    asked = ranker.queries_for(hasher.project(QUERY[None]))
    order = np.argsort(distances(asked.codes, hasher.transform(X), asked.weights)[0], kind="stable")[:7]
    found = ask(store)
    assert found.ids == [f"n{row}" for row in order]
    store.persist(str(tmp_path / "store"))
    assert ask(BitrankVectorStore.from_persist_path(str(tmp_path / "store"))) == found


def test_the_collection_of_a_store_learns(store):
    plain = ask(store)
    report = store.collection.learn(labels=np.argmax(X[:, :3], axis=1), ranker="WhRank", features=X)
    assert report.learned.accepted
    asked = store.collection.ranker.queries_for(QUERY[None], collection=from_embeddings(X))
    order = np.argsort(distances(asked.codes, from_embeddings(X), asked.weights)[0], kind="stable")[:7]
    assert ask(store).ids == [f"n{row}" for row in order] != plain.ids


def test_diverse_results(store):
    store.add([TextNode(id_=f"twin {row}", text="twin", embedding=QUERY.tolist()) for row in range(3)])
    assert sorted(ask(store, 3).ids) == ["twin 0", "twin 1", "twin 2"]
    diverse = ask(store, 3, mode=VectorStoreQueryMode.MMR, mmr_threshold=0.3)
    assert sum(i.startswith("twin") for i in diverse.ids) == 1
    query = VectorStoreQuery(query_embedding=QUERY.tolist(), similarity_top_k=3, mode=VectorStoreQueryMode.MMR)
    assert store.query(query, mmr_threshold=0.3) == diverse
    assert store.query(query, mmr_threshold=0.3, mmr_prefetch_k=3).ids[0].startswith("twin")
    assert sorted(store.query(query, mmr_threshold=1).ids) == ["twin 0", "twin 1", "twin 2"]


class Characters(MockEmbedding):
    """Counts of characters."""

    def _vector(self, text):
        return (np.bincount([ord(letter) % 32 for letter in text], minlength=32) - 0.5).tolist()

    def _get_text_embedding(self, text):
        return self._vector(text)

    def _get_query_embedding(self, query):
        return self._vector(query)

    async def _aget_query_embedding(self, query):
        return self._vector(query)


def test_an_index_over_the_store(tmp_path):
    model = Characters(embed_dim=32)
    documents = [
        Document(id_=name, text=f"all about {name}", metadata={"name": name}) for name in ("cats", "dogs", "xylophones")
    ]
    storage = StorageContext.from_defaults(vector_store=BitrankVectorStore())
    index = VectorStoreIndex.from_documents(documents, storage, embed_model=model)
    (best,) = index.as_retriever(similarity_top_k=1).retrieve("all about dogs")
    assert best.node.text == "all about dogs"
    assert best.node.ref_doc_id == "dogs"
    assert asyncio.run(index.as_retriever(similarity_top_k=1).aretrieve("all about dogs")) == [best]
    index.delete_ref_doc("dogs")
    index.update_ref_doc(Document(id_="cats", text="all about lions", metadata={"name": "lions"}))
    filters = MetadataFilters(filters=[one("name", "lions")])
    for _ in range(2):  # the second save replaces the first
        storage.persist(tmp_path / "storage")
    vectors = BitrankVectorStore.from_persist_dir(str(tmp_path / "storage"))
    loaded = load_index_from_storage(
        StorageContext.from_defaults(persist_dir=str(tmp_path / "storage"), vector_store=vectors), embed_model=model
    )
    for each in (loaded, VectorStoreIndex.from_vector_store(vectors, embed_model=model)):
        found = each.as_retriever(similarity_top_k=5).retrieve("all about dogs")
        assert {hit.node.ref_doc_id for hit in found} == {"cats", "xylophones"}
        (lions,) = each.as_retriever(filters=filters).retrieve("xylophones")
        assert lions.node.text == "all about lions"


def test_a_saved_store_answers_the_same(store, tmp_path):
    path = str(tmp_path / "store")
    store.persist(path)
    BitrankVectorStore.from_persist_path(path).persist(str(tmp_path / "copy"))
    store.delete("doc 1")
    store.persist(path)
    again = BitrankVectorStore.from_persist_path(path)
    assert ask(again, 40) == ask(store, 40)
    again.add(nodes()[:1])
    store.add(nodes()[1:2])
    store.persist(path)
    with pytest.raises(ValueError, match="must not have changed since it was loaded"):
        again.persist(path)
    fresh = BitrankVectorStore()
    fresh.add(nodes()[:3])
    fresh.persist(path)  # a new store takes the place of what was there, as LlamaIndex expects
    assert ask(BitrankVectorStore.from_persist_path(path), 40).ids == ask(fresh, 40).ids


def test_mistakes_change_nothing(store, tmp_path):
    (tmp_path / "vectors.json").write_text("{}")
    sparse = VectorStoreQueryMode.SPARSE
    for call, message in (
        (lambda: ask(store, mode=sparse), "mode must be default or mmr, got sparse"),
        (lambda: store.query(VectorStoreQuery()), "query_embedding must be the embedding of the query, got None"),
        (lambda: ask(store, k=0), "k must be an int of at least 1, got 0"),
        (lambda: ask(store, embedding=[1.0]), "queries must be vectors of 48 numbers"),
        (lambda: ask(store, embedding=[np.nan] * 48), "must be finite, got nan"),
        (lambda: store.add([TextNode(text="none")]), "embedding not set"),
        (lambda: store.add([*nodes()[:1], TextNode(text="short", embedding=[1.0])]), "rows of one length"),
        (lambda: store.persist(str(tmp_path / "a"), fs=object()), "fs must be None for a folder on a disk, got object"),
        (lambda: store.persist(str(tmp_path / "vectors.json")), "path must be a folder"),
        (lambda: BitrankVectorStore.from_persist_path(str(tmp_path)), "collection.json is missing"),
        (lambda: BitrankVectorStore.from_persist_dir(str(tmp_path)), "collection.json is missing"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert len(store.get_nodes()) == len(store.client) == 40


def test_bits_per_dimension():
    X = np.random.default_rng(0).normal(size=(120, 16))
    store = BitrankVectorStore(bits=4)
    store.add([TextNode(id_=str(row), text=str(row), embedding=x.tolist()) for row, x in enumerate(X)])
    cosines = X @ X[3] / np.linalg.norm(X, axis=1) / np.linalg.norm(X[3])
    found = store.query(VectorStoreQuery(query_embedding=X[3].tolist(), similarity_top_k=5))
    assert found.ids[0] == "3"
    np.testing.assert_allclose(found.similarities, cosines[[int(i) for i in found.ids]], atol=0.1)
