"""`MDSHRanker`: the weights that multidimensional spectral hashing gives to its own bits."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np

from bitrank.core.checks import check_weights
from bitrank.core.types import Queries, Weights
from bitrank.ranking.evidence.kinds import LabelEvidence, Matrix, QueryRows
from bitrank.ranking.plain import UniformRanker
from bitrank.ranking.ranker import scaled


@dataclass(eq=False, repr=False)
class MDSHRanker(UniformRanker):
    """Rank codes of `MultidimensionalSpectralHashing` by the eigenvalues of its eigenfunctions.

    The affinity of two vectors is Σ λ_k b_k(x) b_k(y), b_k being bits as ±1: a weighted Hamming distance with the
    weights λ_k. Nothing is learned from labels. The products of eigenfunctions of several components, which
    have no bits of their own, are left out.

    Parameters
    ----------
    eigenvalues : array of shape (n_bits,), optional
        `hasher.eigenvalues_`; ones by default.
    n_bits : int, optional
        Length of the codes; by default the number of eigenvalues, or all bits of the codes' bytes.

    Attributes
    ----------
    weights_ : float32 array of shape (n_bits,)
    n_bits_ : int

    Examples
    --------
    >>> from bitrank.hashing import MultidimensionalSpectralHashing
    >>> X = np.random.default_rng(0).normal(size=(300, 4)) * [4, 2, 1, 1]
    >>> hasher = MultidimensionalSpectralHashing(n_bits=6).fit(X)
    >>> codes = hasher.transform(X)
    >>> ranker = MDSHRanker(hasher.eigenvalues_).fit(codes)
    >>> bool((np.diff(ranker.queries_for(codes[:1]).weights[0]) <= 0).all())
    True
    """

    _arrays: ClassVar[dict[str, str]] = {"weights_": "b"}

    _ungated_blend = 1.0

    weights_: Weights = field(init=False)

    eigenvalues: Any = None
    _: KW_ONLY
    n_bits: int | None = None

    def _fit_labels(self, evidence: LabelEvidence) -> None:
        weights = np.ones(evidence.n_bits) if self.eigenvalues is None else self.eigenvalues
        weights = check_weights(weights, evidence.n_bits)
        if weights.ndim != 1:
            raise ValueError(f"eigenvalues must be one vector, got shape {weights.shape}")
        self.weights_ = weights

    def _n_bits(self) -> int | None:
        if self.n_bits is not None or self.eigenvalues is None:
            return self.n_bits
        return int(np.asarray(self.eigenvalues).shape[-1])

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        return scaled(queries, self.weights_)
