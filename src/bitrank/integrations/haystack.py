"""`BitrankDocumentStore` and `BitrankEmbeddingRetriever` for Haystack: documents by the codes of their embeddings.

Needs the extra `bitrank[haystack]`.
"""

import os
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import Any

from bitrank.collection import Collection
from bitrank.core.checks import check_count
from bitrank.core.lazy import import_extra
from bitrank.integrations.documents import Documents

import_extra("haystack", "haystack")

from haystack import Document, component, default_from_dict, default_to_dict  # noqa: E402
from haystack.document_stores.errors import DuplicateDocumentError  # noqa: E402
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy  # noqa: E402
from haystack.errors import FilterError  # noqa: E402
from haystack.utils.filters import document_matches_filter  # noqa: E402

Filters = dict[str, Any]


class BitrankDocumentStore:
    """A Haystack document store that keeps the sign bits of embeddings, and not the embeddings.

    Documents without an embedding are stored, and found by filters only.

    Parameters
    ----------
    path : str, optional
        Folder of the store: read if it exists, and written by `save`.
    ranker : str, optional
        Path of a saved ranker, which weights the bits of a query. By default that of the folder, else the magnitudes of
        the query's embedding do.
    hasher : str, optional
        Path of a saved hasher, which makes the codes. By default that of the folder, else they are the signs of the
        embeddings.
    bits : float, optional
        Bits per dimension of codes by `BitPlanes`, which learns from the embeddings that are added first, at least 100.
    recall : float, optional
        Share of the exact results that searches find, from 0.8 to 0.999: from 200 000 on they read less.

    Examples
    --------
    >>> store = BitrankDocumentStore()
    >>> store.write_documents([Document(id="1", content="a cat", embedding=[0.5, -1.0, 0.25])])
    1
    >>> store.embedding_retrieval([0.5, -1.0, -0.25], top_k=1)[0].content
    'a cat'
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        ranker: str | None = None,
        hasher: str | None = None,
        bits: float | None = None,
        recall: float | None = None,
    ) -> None:
        self.path, self.ranker, self.hasher, self.bits, self.recall = path, ranker, hasher, bits, recall
        exists = path is not None and any((Path(path) / name).exists() for name in ("collection.json", "store.json"))
        to_json = partial(Document.to_dict, flatten=False)
        self._documents = Documents(hasher, ranker, path if exists else None, to_json, Document.from_dict, bits, recall)

    @property
    def collection(self) -> Collection:
        """What searches and learns; another one from the first embedding on, where nothing was given or read."""
        return self._documents.collection

    def to_dict(self) -> dict[str, Any]:
        """Serialise the parameters; the documents are in the folder that `save` writes."""
        given = {"path": self.path, "ranker": self.ranker, "hasher": self.hasher}
        options = {name: value for name in ("bits", "recall") if (value := getattr(self, name)) is not None}
        data: dict[str, Any] = default_to_dict(self, **given, **options)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "BitrankDocumentStore":
        """Make a store from serialised parameters."""
        store: BitrankDocumentStore = default_from_dict(cls, data)
        return store

    def save(self, path: str | os.PathLike[str] | None = None, *, replace: bool = False) -> None:
        """Write all to a folder, by default that of the store, as `Collection.save` does; metadata must be JSON."""
        target = self.path if path is None else path
        if target is None:
            raise ValueError("path must be the folder to write for a store without one, got None")
        self._documents.save(target, replace=replace)

    def count_documents(self) -> int:
        """Count all documents."""
        return len(self._documents.records)

    def filter_documents(self, filters: Filters | None = None) -> list[Document]:
        """Return the documents that match a filter, without embeddings."""
        return [changed(document, meta=dict(document.meta)) for document in self._matching(filters)]

    def count_documents_by_filter(self, filters: Filters) -> int:
        """Count the documents that match a filter."""
        return len(self._matching(filters))

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Add documents and return how many were written; by default a known id is a DuplicateDocumentError."""
        if not isinstance(documents, list) or any(not isinstance(document, Document) for document in documents):
            raise ValueError(f"documents must be a list of Documents, got {documents!r:.80}")
        if policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
            known = [document.id for document in documents if document.id in self._documents.records]
            if known:
                raise DuplicateDocumentError(f"ID '{known[0]}' already exists.")
        if policy == DuplicatePolicy.SKIP:
            documents = [document for document in documents if document.id not in self._documents.records]
        self._documents.put(
            [document.id for document in documents],
            [changed(document, embedding=None, meta=dict(document.meta)) for document in documents],
            [document.embedding for document in documents],
        )
        return len(documents)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by id; unknown ids are passed over."""
        self._documents.drop(document_ids)

    def delete_all_documents(self) -> None:
        """Delete all documents."""
        self._documents.drop(list(self._documents.records))

    def delete_by_filter(self, filters: Filters) -> int:
        """Delete the documents that match a filter, and return how many."""
        ids = [document.id for document in self._matching(filters)]
        self._documents.drop(ids)
        return len(ids)

    def update_by_filter(self, filters: Filters, meta: dict[str, Any]) -> int:
        """Add metadata to the documents that match a filter, and return how many."""
        documents = self._matching(filters)
        self._documents.revise({d.id: changed(d, meta={**d.meta, **meta}) for d in documents})
        return len(documents)

    def embedding_retrieval(
        self, query_embedding: list[float], filters: Filters | None = None, top_k: int = 10
    ) -> list[Document]:
        """Find the documents nearest to an embedding; their scores are those of `Collection.similarity`."""
        wanted = [document.id for document in self._matching(filters)] if filters else None
        hits = self._documents.search(query_embedding, top_k, wanted)
        return [changed(document, score=score, meta=dict(document.meta)) for _, document, score in hits]

    def _matching(self, filters: Filters | None) -> list[Document]:
        documents = list(self._documents.records.values())
        if not filters:
            return documents
        if "operator" not in filters:
            raise FilterError(f"filters must have an operator, with field and value or with conditions, got {filters}")
        return [document for document in documents if document_matches_filter(filters, document)]


@component
class BitrankEmbeddingRetriever:
    """Find the documents of a `BitrankDocumentStore` nearest to the embedding of a query.

    Parameters
    ----------
    document_store : BitrankDocumentStore
    filters : dict, optional
        Filters of every search.
    top_k : int
    filter_policy : FilterPolicy
        Whether filters of `run` replace those of every search, or narrow them.

    Examples
    --------
    >>> store = BitrankDocumentStore()
    >>> store.write_documents([Document(content="a cat", embedding=[0.5, -1.0, 0.25])])
    1
    >>> retriever = BitrankEmbeddingRetriever(store, top_k=3)
    >>> retriever.run(query_embedding=[0.5, -1.0, 0.25])["documents"][0].content
    'a cat'
    """

    def __init__(
        self,
        document_store: BitrankDocumentStore,
        *,
        filters: Filters | None = None,
        top_k: int = 10,
        filter_policy: FilterPolicy = FilterPolicy.REPLACE,
    ) -> None:
        if not isinstance(document_store, BitrankDocumentStore):
            raise ValueError(f"document_store must be a BitrankDocumentStore, got {type(document_store).__name__}")
        self.document_store = document_store
        self.filters = filters
        self.top_k = check_count("top_k", top_k, 1)
        self.filter_policy = filter_policy

    def to_dict(self) -> dict[str, Any]:
        """Serialise the component."""
        data: dict[str, Any] = default_to_dict(
            self,
            document_store=self.document_store,
            filters=self.filters,
            top_k=self.top_k,
            filter_policy=self.filter_policy.value,
        )
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "BitrankEmbeddingRetriever":
        """Make the component from its serialised form."""
        params = data["init_parameters"] | {
            "filter_policy": FilterPolicy.from_str(data["init_parameters"]["filter_policy"])
        }
        retriever: BitrankEmbeddingRetriever = default_from_dict(cls, {**data, "init_parameters": params})
        return retriever

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Find the nearest documents."""
        combined = apply_filter_policy(self.filter_policy, self.filters, filters)
        k = self.top_k if top_k is None else check_count("top_k", top_k, 1)
        return {"documents": self.document_store.embedding_retrieval(query_embedding, combined, k)}
