"""`BitrankVectorStore`: a LlamaIndex vector store that keeps the sign bits of embeddings.

Needs the extra `bitrank[llama-index]`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Self

from bitrank.collection import Collection
from bitrank.core.lazy import import_extra
from bitrank.integrations.documents import AnyHasher, AnyRanker, Documents

import_extra("llama_index.core", "llama-index")

from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402
from llama_index.core.schema import BaseNode  # noqa: E402
from llama_index.core.vector_stores.simple import DEFAULT_VECTOR_STORE, NAMESPACE_SEP  # noqa: E402
from llama_index.core.vector_stores.types import (  # noqa: E402
    DEFAULT_PERSIST_DIR,
    DEFAULT_PERSIST_FNAME,
    BasePydanticVectorStore,
    FilterCondition,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import (  # noqa: E402
    build_metadata_filter_fn,
    metadata_dict_to_node,
    node_to_metadata_dict,
)

_PATH = os.path.join(DEFAULT_PERSIST_DIR, DEFAULT_PERSIST_FNAME)


class BitrankVectorStore(BasePydanticVectorStore):
    """Nodes by the codes of their embeddings, searched by weighted Hamming distance.

    Similarities are those of `bitrank.Collection.similarity`: for sign bits, the estimated cosine. Nodes are stored
    with their text and come back without embeddings, of which only the bits are kept.

    Parameters
    ----------
    ranker : Ranker or path of a saved one, optional
        Weights the bits of a query. By default the magnitudes of the query's embedding do.
    hasher : Hasher or path of a saved one, optional
        Makes the codes. By default they are the signs of the embeddings.
    bits : float, optional
        Bits per dimension of codes by `BitPlanes`, which learns from the nodes that are added first, at least 100.
    recall : float, optional
        Share of the exact results that searches find, from 0.8 to 0.999: from 200 000 nodes on they read less for it.

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> store = BitrankVectorStore()
    >>> store.add([TextNode(id_="1", text="a cat", embedding=[0.5, -1.0, 0.25])])
    ['1']
    >>> result = store.query(VectorStoreQuery(query_embedding=[0.5, -1.0, 0.25], similarity_top_k=1))
    >>> result.ids, result.nodes[0].text
    (['1'], 'a cat')
    """

    stores_text: bool = True
    is_embedding_query: bool = True

    _documents: Documents = PrivateAttr()
    _folder: str | None = PrivateAttr(None)  # that was read or written

    def __init__(
        self,
        *,
        ranker: AnyRanker = None,
        hasher: AnyHasher = None,
        bits: float | None = None,
        recall: float | None = None,
    ) -> None:
        super().__init__()
        self._documents = Documents(hasher, ranker, bits=bits, recall=recall)

    @classmethod
    def class_name(cls) -> str:
        """The name in serialised forms."""
        return "BitrankVectorStore"

    @property
    def client(self) -> Collection:
        """What searches, learns and is saved; another one from the first node on, where nothing was given or read."""
        return self._documents.collection

    collection = client

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes with their embeddings; a node with an id that exists replaces the old one. Returns the ids."""
        ids = [node.node_id for node in nodes]
        self._documents.put(ids, list(map(node_to_metadata_dict, nodes)), [node.get_embedding() for node in nodes])
        return ids

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        self._documents.drop(self._wanted(doc_ids=[ref_doc_id]))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete the nodes that have one of the ids and match the filters; unknown ids are passed over."""
        self._documents.drop(self._wanted(node_ids, filters))

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return the nodes that have one of the ids and match the filters, without embeddings."""
        records = self._documents.records
        return [metadata_dict_to_node(records[node_id]) for node_id in self._wanted(node_ids, filters)]

    def clear(self) -> None:
        """Delete all nodes."""
        self._documents.drop(list(self._documents.records))

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find the nodes nearest to an embedding, in the modes "default" and "mmr" (maximal marginal relevance).

        Empty lists of `node_ids` and `doc_ids` narrow nothing: that is how an index asks for all.
        """
        embedding, k = query.query_embedding, query.similarity_top_k
        if embedding is None:
            raise ValueError("query_embedding must be the embedding of the query, got None")
        wanted = None
        if query.filters or query.node_ids or query.doc_ids:
            wanted = self._wanted(query.node_ids or None, query.filters, query.doc_ids or None)
        if query.mode == VectorStoreQueryMode.DEFAULT:
            hits = self._documents.search(embedding, k, wanted)
        elif query.mode == VectorStoreQueryMode.MMR:
            share = kwargs.get("mmr_threshold", query.mmr_threshold)
            n_near = kwargs.get("mmr_prefetch_k", 4 * k)
            hits = self._documents.diverse(embedding, k, n_near, 0.5 if share is None else share, wanted)
        else:
            raise ValueError(f"mode must be default or mmr, got {query.mode.value}")
        return VectorStoreQueryResult(
            nodes=[metadata_dict_to_node(record) for _, record, _ in hits],
            similarities=[score for _, _, score in hits],
            ids=[node_id for node_id, _, _ in hits],
        )

    def persist(self, persist_path: str = _PATH, fs: Any = None) -> None:
        """Write nodes, codes and what was learned to a folder; metadata must be JSON values.

        A store that was not read from that folder takes the place of the one there, as LlamaIndex expects.
        """
        if fs is not None:
            raise ValueError(f"fs must be None for a folder on a disk, got {type(fs).__name__}")
        folder = os.path.abspath(persist_path)
        self._documents.save(folder, replace=folder != self._folder)
        self._folder = folder

    @classmethod
    def from_persist_path(cls, persist_path: str, recall: float | None = None) -> Self:
        """Read a folder that `persist` wrote."""
        store = cls()
        store._documents = Documents(path=persist_path, recall=recall)
        store._folder = os.path.abspath(persist_path)
        return store

    @classmethod
    def from_persist_dir(cls, persist_dir: str = DEFAULT_PERSIST_DIR, namespace: str = DEFAULT_VECTOR_STORE) -> Self:
        """Read the folder that `StorageContext.persist` wrote."""
        return cls.from_persist_path(os.path.join(persist_dir, f"{namespace}{NAMESPACE_SEP}{DEFAULT_PERSIST_FNAME}"))

    def _wanted(
        self,
        node_ids: Sequence[str] | None = None,
        filters: MetadataFilters | None = None,
        doc_ids: Sequence[str] | None = None,
    ) -> list[str]:
        nodes, documents = (None if ids is None else set(ids) for ids in (node_ids, doc_ids))
        matches = _condition(filters or MetadataFilters(filters=[]))
        return [
            node_id
            for node_id, record in list(self._documents.records.items())
            if (nodes is None or node_id in nodes)
            and (documents is None or record["ref_doc_id"] in documents)
            and matches(record)
        ]


def _condition(filters: MetadataFilters) -> Callable[[dict[str, Any]], bool]:
    """A function of metadata that says whether they match filters, which may be nested."""
    tests = [
        _condition(each)
        if isinstance(each, MetadataFilters)
        else build_metadata_filter_fn(lambda metadata: metadata, MetadataFilters(filters=[each]))
        for each in filters.filters
    ]
    if filters.condition == FilterCondition.OR and tests:
        return lambda metadata: any(test(metadata) for test in tests)
    if filters.condition == FilterCondition.NOT:
        return lambda metadata: not any(test(metadata) for test in tests)
    return lambda metadata: all(test(metadata) for test in tests)
