"""`BitrankVectorStore`: a LangChain vector store that keeps the sign bits of embeddings.

Needs the extra `bitrank[langchain]`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from bitrank.core.codes import signs
from bitrank.core.lazy import import_extra
from bitrank.hashing.hasher import Hasher
from bitrank.integrations.encoding import Encoder, Path
from bitrank.integrations.records import Records
from bitrank.ranking import Ranker

import_extra("langchain_core", "langchain")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_core.vectorstores import VectorStore  # noqa: E402
from langchain_core.vectorstores.utils import maximal_marginal_relevance  # noqa: E402

Filter = dict[str, Any] | Callable[[Document], bool] | None


class BitrankVectorStore(VectorStore):
    """Documents by the codes of their embeddings, searched by weighted Hamming distance.

    Scores are similarities from 0 to 1, higher for nearer documents.

    Parameters
    ----------
    embedding : Embeddings
        The model. Its embeddings of documents become codes, one bit per dimension, and are not kept.
    ranker : Ranker or path of a saved one, optional
        Weights the bits of a query. By default the magnitudes of the query's embedding do.
    hasher : Hasher or path of a saved one, optional
        Makes the codes. By default they are the signs of the embeddings.

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
        self, embedding: Embeddings, *, ranker: Ranker | Path | None = None, hasher: Hasher | Path | None = None
    ) -> None:
        self._embedding = embedding
        self._records: Records[dict[str, Any]] = Records(Encoder(hasher, ranker))

    @property
    def embeddings(self) -> Embeddings:
        """The model."""
        return self._embedding

    def __len__(self) -> int:
        return len(self._records)

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
            self._records.put(names, records, self._embedding.embed_documents(contents))
        return names

    def delete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents by id, or all of them; unknown ids are passed over."""
        self._records.drop([i for i, _ in self._records.items()] if ids is None else ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents of those ids that exist."""
        return [_document(text_id, *self._records.get([text_id])) for text_id in ids if text_id in self._records]

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
        hits = self._records.search(embedding, k, self._wanted(filter))
        return [(_document(hit.id, *self._records.get([hit.id])), hit.score) for hit in hits]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        """Find the k documents nearest to a text, with their similarities."""
        return self.similarity_search_with_score_by_vector(self._embedding.embed_query(query), k, **kwargs)

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Find the k documents nearest to a text, embedded asynchronously."""
        return self.similarity_search_with_score_by_vector(await self._embedding.aembed_query(query), k, **kwargs)

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        """Find the k documents nearest to an embedding."""
        return [document for document, _ in self.similarity_search_with_score_by_vector(embedding, k, **kwargs)]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Find the k documents nearest to a text."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Find the k documents nearest to a text, embedded asynchronously."""
        return [document for document, _ in await self.asimilarity_search_with_score(query, k, **kwargs)]

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Find k documents near to an embedding and unlike each other, compared by the signs of their bits."""
        found = self.similarity_search_by_vector(embedding, fetch_k, **kwargs)
        if not found:
            return []
        index, codes = self._records.index, self._records.codes([str(document.id) for document in found])
        assert index is not None
        query = self._records.encoder.queries([embedding], index)
        vector = signs(query.codes, index.n_bits) * query.weights
        order = maximal_marginal_relevance(vector[0], list(signs(codes, index.n_bits)), lambda_mult, k)
        return [found[place] for place in order]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Find k documents near to a text and unlike each other."""
        embedding = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(embedding, k, fetch_k, lambda_mult, **kwargs)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda score: score

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write documents, codes, hasher and ranker to a folder; metadata must be JSON values."""
        self._records.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], embedding: Embeddings, *, ranker: Ranker | Path | None = None) -> Self:
        """Read a store that `save` wrote; a ranker takes the place of the saved one."""
        store = cls(embedding)
        store._records = Records.load(path)
        if ranker is not None:
            store._records.encoder = Encoder(store._records.encoder.hasher, ranker)
        return store

    def _wanted(self, condition: Filter) -> list[str] | None:
        if condition is None:
            return None
        if isinstance(condition, dict):
            return [i for i, record in self._records.items() if _matches(record["metadata"], condition)]
        if not callable(condition):
            raise ValueError(f"filter must be a function of a document or a dict of metadata, got {condition!r}")
        return [text_id for text_id, record in self._records.items() if condition(_document(text_id, record))]


def _matches(metadata: dict[str, Any], condition: dict[str, Any]) -> bool:
    return all(name in metadata and metadata[name] == value for name, value in condition.items())


def _document(text_id: str, record: dict[str, Any]) -> Document:
    return Document(id=text_id, page_content=record["text"], metadata=dict(record["metadata"]))
