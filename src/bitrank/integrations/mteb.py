"""`BitrankSearchIndex`: MTEB retrieval and reranking tasks through bitrank's codes and rankers.

It is a search backend of MTEB's `SearchEncoderWrapper` (extra `bitrank[mteb]`, which needs PyTorch); this module itself
does not import MTEB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bitrank.core.arrays import to_array
from bitrank.core.checks import check_count
from bitrank.core.types import Queries
from bitrank.hashing.hasher import Hasher
from bitrank.index import Index
from bitrank.integrations.encoding import Encoder, Path, similarities
from bitrank.ranking import Ranker

Scores = list[list[float]]
Places = list[list[int]]


class BitrankSearchIndex:
    """A search backend that keeps the codes of embeddings: MTEB's `IndexEncoderSearchProtocol`.

    Pass it as ``SearchEncoderWrapper(model, index_backend=BitrankSearchIndex())``. Scores are similarities from 0 to 1;
    the model's own similarity function is not used.

    Parameters
    ----------
    ranker, hasher : Ranker and Hasher, or paths of saved ones, optional
        What weighs the bits of a query, by default its embedding's magnitudes; and what makes codes of embeddings, by
        default their signs.

    Examples
    --------
    >>> import numpy as np
    >>> index = BitrankSearchIndex()
    >>> index.add_documents(np.array([[0.5, -1.0, 0.25], [-0.5, 1.0, 0.25]]), ["a", "b"])
    >>> index.search(np.array([[-1.0, 2.0, -1.0]]), top_k=1)
    ([[0.75]], [[1]])
    """

    def __init__(self, ranker: Ranker | Path | None = None, hasher: Hasher | Path | None = None) -> None:
        self._encoder = Encoder(hasher, ranker)
        self.clear()

    def clear(self) -> None:
        """Forget all documents."""
        self._index: Index | None = None
        self._row_of: dict[str, int] = {}

    def add_documents(self, embeddings: Any, idxs: Sequence[str]) -> None:
        """Add the codes of embeddings of documents."""
        matrix = to_array(embeddings, "embeddings")
        if matrix.ndim != 2 or len(matrix) != len(idxs):
            raise ValueError(f"embeddings must have one row for each of the {len(idxs)} ids, got shape {matrix.shape}")
        n_bits, codes = self._encoder.n_bits(matrix.shape[1]), self._encoder.codes(matrix)
        if self._index is None:
            self._index = Index(n_bits=n_bits)
        first = len(self._index)
        self._index.add(codes)
        self._row_of |= {text_id: first + place for place, text_id in enumerate(idxs)}

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
        if self._index is None:
            raise ValueError("documents must be added before a search, got none")
        check_count("top_k", top_k, 1)
        queries = self._encoder.queries(embeddings, self._index)
        if top_ranked is None:
            results = self._index.search(queries, min(top_k, len(self._index)))
            return similarities(results.distances, queries).tolist(), results.ids.tolist()
        if query_idx_to_id is None:
            raise ValueError("query_idx_to_id must name the queries when reranking, got None")
        lists = [top_ranked.get(query_idx_to_id[place], ()) for place in range(len(queries.codes))]
        ranked = [self._rerank(queries, place, candidates, top_k) for place, candidates in enumerate(lists)]
        return [scores for scores, _ in ranked], [places for _, places in ranked]

    def _rerank(self, queries: Queries, place: int, ids: Sequence[str], k: int) -> tuple[list[float], list[int]]:
        if not ids:
            return [], []
        assert self._index is not None
        query = Queries(queries.codes[[place]], queries.weights[[place]])
        place_of = {self._row_of[text_id]: at for at, text_id in enumerate(ids)}
        results = self._index.rerank(query, [list(place_of)], min(k, len(place_of)))
        scores = similarities(results.distances, query)[0].tolist()
        return scores, [place_of[row] for row in results.ids[0].tolist()]
