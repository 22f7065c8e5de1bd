"""`Encoder`: codes of documents and weighted queries, from embeddings, with a hasher and a ranker where given."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import as_float32
from bitrank.core.codes import from_embeddings, split_vectors
from bitrank.core.types import Codes, Queries
from bitrank.hashing import load_hasher
from bitrank.hashing.hasher import Hasher
from bitrank.ranking import Ranker, load_ranker

Path = str | os.PathLike[str]


class Encoder:
    """Turn embeddings into codes, and query embeddings into codes with weights.

    Parameters
    ----------
    hasher : fitted Hasher, or path of one, optional
        Makes the codes; by default they are the signs of the embeddings.
    ranker : fitted Ranker, or path of one, optional
        Gives the weights of queries; by default they are the magnitudes of the query (the asymmetric distance). Where
        it learned with features, these must be the embeddings: queries bring theirs.

    Examples
    --------
    >>> encoder = Encoder()
    >>> encoder.codes([[0.5, -2.0, 1.0]])
    array([[160]], dtype=uint8)
    >>> encoder.queries([[0.5, -2.0, 1.0]], None).weights
    array([[0.5, 2. , 1. ]], dtype=float32)
    """

    def __init__(self, hasher: Hasher | Path | None = None, ranker: Ranker | Path | None = None) -> None:
        self.hasher = load_hasher(hasher) if isinstance(hasher, str | os.PathLike) else hasher
        self.ranker = load_ranker(ranker) if isinstance(ranker, str | os.PathLike) else ranker
        if self.hasher is not None and self.ranker is not None and self.hasher.n_bits_ != self.ranker.n_bits_:
            raise ValueError(
                f"ranker must be of the hasher's {self.hasher.n_bits_} bits, got one of {self.ranker.n_bits_} bits"
            )

    def n_bits(self, n_dimensions: int) -> int:
        """Bits of the code of an embedding, which must fit the ranker."""
        n_bits = n_dimensions if self.hasher is None else self.hasher.n_bits_
        if self.ranker is not None and self.ranker.n_bits_ != n_bits:
            raise ValueError(f"embeddings must give the {self.ranker.n_bits_} bits of the ranker, got {n_bits}")
        return n_bits

    def codes(self, embeddings: npt.ArrayLike) -> Codes:
        """Packed codes of embeddings of documents, one row per document."""
        return from_embeddings(embeddings, "float") if self.hasher is None else self.hasher.transform(embeddings)

    def queries(self, embeddings: npt.ArrayLike, collection: Any) -> Queries:
        """Codes and weights of embeddings of queries; `collection` is what they will search."""
        rows = as_float32(embeddings, "queries")
        reals = rows if self.hasher is None else self.hasher.project(rows)
        if self.ranker is None:
            return Queries(*split_vectors(reals))
        return self.ranker.queries_for(reals, features=self.ranker.features_of(rows), collection=collection)


def similarities(distances: npt.NDArray[np.float32], queries: Queries) -> npt.NDArray[np.float64]:
    """Distances of each query as similarities from 0 (all bits differ) to 1 (all bits are equal)."""
    totals = queries.weights.sum(axis=1, keepdims=True, dtype=np.float64)
    return 1 - distances / np.where(totals > 0, totals, 1)
