"""`BitrankSearchIndex`: MTEB retrieval and reranking tasks through bitrank's codes and rankers.

It is a search backend of MTEB's `SearchEncoderWrapper` (extra `bitrank[mteb]`, which needs PyTorch); this module itself
does not import MTEB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bitrank.core.arrays import to_array
from bitrank.core.checks import check_count
from bitrank.integrations.documents import AnyHasher, AnyRanker, Documents

Scores = list[list[float]]
Places = list[list[int]]


class BitrankSearchIndex:
    """A search backend that keeps the codes of embeddings: MTEB's `IndexEncoderSearchProtocol`.

    Pass it as ``SearchEncoderWrapper(model, index_backend=BitrankSearchIndex())``. Scores are those of
    `bitrank.Collection.similarity`; the model's own similarity function is not used.

    Parameters
    ----------
    ranker, hasher : Ranker and Hasher, or paths of saved ones, optional
        What weighs the bits of a query, by default its embedding's magnitudes; and what makes codes of embeddings, by
        default their signs.
    bits : float, optional
        Bits per dimension of codes by `BitPlanes`, which learns from the embeddings that are added first, at least 100.

    Examples
    --------
    >>> import numpy as np
    >>> index = BitrankSearchIndex()
    >>> index.add_documents(np.array([[0.5, -1.0, 0.25], [-0.5, 1.0, 0.25]]), ["a", "b"])
    >>> scores, places = index.search(np.array([[-1.0, 2.0, -1.0]]), top_k=2)
    >>> places
    [[1, 0]]
    """

    def __init__(self, ranker: AnyRanker = None, hasher: AnyHasher = None, bits: float | None = None) -> None:
        self._parts, self._bits = (hasher, ranker), bits
        self.clear()

    def clear(self) -> None:
        """Forget all documents."""
        self._documents = Documents(*self._parts, bits=self._bits)  # records are the places of documents

    def add_documents(self, embeddings: Any, idxs: Sequence[str]) -> None:
        """Add the codes of embeddings of documents."""
        matrix = to_array(embeddings, "embeddings")
        if matrix.ndim != 2 or len(matrix) != len(idxs):
            raise ValueError(f"embeddings must have one row for each of the {len(idxs)} ids, got shape {matrix.shape}")
        first = len(self._documents.records)
        self._documents.put(idxs, range(first, first + len(idxs)), list(matrix))

    def search(
        self,
        embeddings: Any,
        top_k: int,
        similarity_fn: Callable[[Any, Any], Any] | None = None,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        query_idx_to_id: Mapping[int, str] | None = None,
    ) -> tuple[Scores, Places]:
        """Search all documents, or rerank those of `top_ranked` per query.

        Returns
        -------
        scores, places : one list per query, nearest first
            Places in the order of the added documents, or in that of the query's list when reranking.
        """
        matrix, records = to_array(embeddings, "embeddings"), self._documents.records
        if not records:
            raise ValueError("documents must be added before a search, got none")
        if top_ranked is None:
            return self._search(matrix, min(check_count("top_k", top_k, 1), len(records)), None, records)
        if query_idx_to_id is None:
            raise ValueError("query_idx_to_id must name the queries when reranking, got None")
        found = []
        for row in range(len(matrix)):
            ids = top_ranked.get(query_idx_to_id[row], ())
            place_of = {text_id: place for place, text_id in enumerate(ids)}
            found.append(
                self._search(matrix[[row]], min(top_k, len(ids)), list(ids), place_of) if ids else ([[]], [[]])
            )
        return [scores for (scores,), _ in found], [places for _, (places,) in found]

    def _search(self, matrix: Any, k: int, ids: list[str] | None, place_of: Mapping[str, int]) -> tuple[Scores, Places]:
        collection = self._documents.collection
        results = collection.search(matrix, k, filter=ids)
        return collection.similarity(results).tolist(), [[place_of[i] for i in row] for row in results.ids.tolist()]
