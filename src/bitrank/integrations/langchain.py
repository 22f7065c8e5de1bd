"""`BitrankVectorStore`: a LangChain vector store that keeps the sign bits of embeddings.

Needs the extra `bitrank[langchain]`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from bitrank.collection import Collection
from bitrank.core.lazy import import_extra
from bitrank.integrations.documents import AnyHasher, AnyRanker, Documents

import_extra("langchain_core", "langchain")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_core.vectorstores import VectorStore  # noqa: E402

Filter = dict[str, Any] | Callable[[Document], bool] | None


class BitrankVectorStore(VectorStore):
    """Documents by the codes of their embeddings, searched by weighted Hamming distance.

    Scores are those of `bitrank.Collection.similarity`: for sign bits, the estimated cosine.

    Parameters
    ----------
    embedding : Embeddings
        The model. Its embeddings of documents become codes, one bit per dimension, and are not kept.
    ranker : Ranker or path of a saved one, optional
        Weights the bits of a query. By default the magnitudes of the query's embedding do.
    hasher : Hasher or path of a saved one, optional
        Makes the codes. By default they are the signs of the embeddings.
    bits : float, optional
        Bits per dimension of codes by `BitPlanes`, which learns from the texts that are added first, at least 100.
    recall : float, optional
        Share of the exact results that searches find, from 0.8 to 0.999: from 200 000 texts on they read less for it.

    Examples
    --------
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> store = BitrankVectorStore(DeterministicFakeEmbedding(size=64))
    >>> store.add_texts(["a cat", "a dog"], metadatas=[{"legs": 4}, {"legs": 4}], ids=["1", "2"])
    ['1', '2']
    >>> store.similarity_search("a dog", k=1)
    [Document(id='2', metadata={'legs': 4}, page_content='a dog')]
    """

    def __init__(
        self,
        embedding: Embeddings,
        *,
        ranker: AnyRanker = None,
        hasher: AnyHasher = None,
        bits: float | None = None,
        recall: float | None = None,
    ) -> None:
        self._embedding = embedding
        self._documents = Documents(hasher, ranker, bits=bits, recall=recall)

    @property
    def embeddings(self) -> Embeddings:
        """The model."""
        return self._embedding

    @property
    def collection(self) -> Collection:
        """What searches and learns; another one from the first text on, where neither hasher nor ranker was given."""
        return self._documents.collection

    def __len__(self) -> int:
        return len(self._documents.records)

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embed texts and add them; a text with an id that exists replaces the old one. Returns the ids."""
        contents = list(texts)
        for name, values in (("metadatas", metadatas), ("ids", ids)):
            if values is not None and len(values) != len(contents):
                raise ValueError(f"{name} must have one value for each of the {len(contents)} texts, got {len(values)}")
        names = [text_id or str(uuid.uuid4()) for text_id in ids or [None] * len(contents)]
        records = [
            {"text": text, "metadata": dict(metadata)}
            for text, metadata in zip(contents, metadatas or [{}] * len(contents), strict=True)
        ]
        if contents:
            self._documents.put(names, records, self._embedding.embed_documents(contents))
        return names

    def delete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents by id, or all of them; unknown ids are passed over."""
        self._documents.drop(list(self._documents.records) if ids is None else ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents of those ids that exist."""
        records = self._documents.records
        return [_document(text_id, records[text_id]) for text_id in ids if text_id in records]

    def similarity_search_with_score_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        filter: Filter = None,  # noqa: A002
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Find the k documents nearest to an embedding, with their similarities.

        `filter` is a function of a document, or a dict of metadata that documents must have.
        """
        hits = self._documents.search(embedding, k, self._wanted(filter))
        return [(_document(text_id, record), score) for text_id, record, score in hits]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        """Find the k documents nearest to a text, with their similarities."""
        return self.similarity_search_with_score_by_vector(self._embedding.embed_query(query), k, **kwargs)

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        """Find the k documents nearest to an embedding."""
        return [document for document, _ in self.similarity_search_with_score_by_vector(embedding, k, **kwargs)]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Find the k documents nearest to a text."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Find k documents near to an embedding and unlike each other, compared by their codes."""
        hits = self._documents.diverse(embedding, k, fetch_k, lambda_mult, self._wanted(kwargs.get("filter")))
        return [_document(text_id, record) for text_id, record, _ in hits]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Find k documents near to a text and unlike each other."""
        embedding = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(embedding, k, fetch_k, lambda_mult, **kwargs)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda score: min(max((1 + score) / 2, 0), 1)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Make a store of texts; further arguments are those of the class."""
        store = cls(embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write all to a folder, as `Collection.save` does; metadata must be JSON values."""
        self._documents.save(path, replace=replace)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        embedding: Embeddings,
        *,
        ranker: AnyRanker = None,
        recall: float | None = None,
    ) -> Self:
        """Read a store that `save` wrote; a ranker takes the place of the one in use."""
        store = cls(embedding)
        store._documents = Documents(ranker=ranker, path=path, recall=recall)
        return store

    def _wanted(self, condition: Filter) -> list[str] | None:
        if condition is None:
            return None
        items = list(self._documents.records.items())
        if callable(condition):
            return [text_id for text_id, record in items if condition(_document(text_id, record))]
        if not isinstance(condition, dict):
            raise ValueError(f"filter must be a function of a document or a dict of metadata, got {condition!r}")
        return [text_id for text_id, record in items if condition.items() <= record["metadata"].items()]


def _document(text_id: str, record: dict[str, Any]) -> Document:
    return Document(id=text_id, page_content=record["text"], metadata=dict(record["metadata"]))
