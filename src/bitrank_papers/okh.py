"""Online kernel hashing: passive-aggressive updates of kernel hash functions, one pair at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, validate_data

from bitrank.core.checks import check_count, class_numbers
from bitrank.core.progress import progress
from bitrank.hashing.hasher import Floats
from bitrank_papers.anchors import AnchorKernel, KernelHasher, fit_kernel
from bitrank_papers.labelled import Rows, draw_pairs


@dataclass(eq=False, repr=False, kw_only=True)
class OnlineKernelHashing(KernelHasher):
    """Online kernel hashing (OKH).

    Codes of a similar pair should be equal in all bits, those of a dissimilar pair differ in a share of them. A pair
    for which this fails moves the hash functions as little as possible towards codes for which it holds: the nearest
    ones, those whose flipped bits have the smallest values before the sign.

    `fit` draws the anchors and streams random pairs. `partial_fit` continues with pairs as they come; its first call
    draws the anchors from its vectors. Whenever the hash functions change, stored codes must be computed again.

    Parameters
    ----------
    n_bits : int, default 32
        May exceed the number of features.
    dissimilar_share : float, default 0.5
        Share of the bits in which codes of a dissimilar pair should differ.
    C : float, default 0.01
        Largest step of an update.
    n_anchors : int, default 300
        Anchors, drawn among the first vectors; all of them where there are fewer.
    n_pairs : int, default 20000
        Pairs that `fit` draws among the labelled rows, half of them of one class.
    n_labelled : int, default 5000
        Rows whose labels `fit` uses, drawn evenly over the classes.
    random_state : int, RandomState or None
        Seed of the anchors, of the first hash functions and of the pairs.

    References
    ----------
    L.-K. Huang, Q. Yang and W.-S. Zheng, Online hashing, IJCAI 2013.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 8)), np.arange(200) % 4
    >>> X[np.arange(200), y] += 6
    >>> hasher = OnlineKernelHashing(n_bits=8, random_state=0).fit(X, y)
    >>> before = hasher.components_
    >>> hasher = hasher.partial_fit(X, pairs=[[0, 4, 1], [0, 1, 0]])  # (row, row, similar or not)
    >>> hasher.transform(X[:2]).shape
    (2, 1)
    """

    dissimilar_share: float = 0.5
    C: float = 0.01
    n_anchors: int = 300
    n_pairs: int = 20_000

    def _check_params(self, n_features: int) -> int:
        check_count("n_pairs", self.n_pairs, 0)
        if not 0 < self.dissimilar_share <= 1:
            raise ValueError(f"dissimilar_share must be above 0 and at most 1, got {self.dissimilar_share}")
        if not self.C > 0:
            raise ValueError(f"C must be above 0, got {self.C}")
        return super()._check_params(n_features)

    def _learn_labelled(
        self, X: npt.NDArray[Any], classes: Rows, rows: Rows, n_bits: int, random: np.random.RandomState
    ) -> dict[str, Floats]:
        kernel, W = self._start(X, n_bits, random)
        first, second = draw_pairs(classes[rows], self.n_pairs, random)
        shuffled = random.permutation(self.n_pairs)
        first, second = first[shuffled], second[shuffled]
        similar = classes[rows][first] == classes[rows][second]
        W = self._stream(kernel(X[rows]), first, second, similar, W)
        return {**kernel.learned(), "components_": W}

    def partial_fit(self, X: npt.ArrayLike, y: Any = None, *, pairs: npt.ArrayLike | None = None) -> Self:
        """Update the hash functions with pairs of these vectors, in their order.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        y : array-like of shape (n,), optional
            Class of each vector: rows 0 and 1 are a pair, rows 2 and 3, and so on. Not needed with `pairs`.
        pairs : int array of shape (m, 3), optional
            (row, row, 1 if similar and 0 if not).

        Returns
        -------
        self
        """
        is_first = not hasattr(self, "components_")
        checked = check_array(X, ensure_min_samples=2, estimator=self, input_name="X")
        if not is_first:
            validate_data(self, X, reset=False, skip_check_array=True)
        n_bits = self._check_params(checked.shape[1])
        if not is_first and n_bits != self.n_bits_:
            raise ValueError(f"n_bits must be the fitted {self.n_bits_}, got {n_bits}: fit again")
        first, second, similar = check_pairs(pairs, y, len(checked), type(self).__name__)
        if is_first:
            kernel, W = self._start(checked, n_bits, check_random_state(self.random_state))
        else:
            kernel, W = self._kernel, self.components_.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            values = kernel(checked)
        if not np.isfinite(values).all():
            raise ValueError(
                f"X must hold values that can be squared and summed, got up to {np.abs(checked).max():.3g}"
            )
        W = self._stream(values, first, second, similar, W)
        if is_first:
            validate_data(self, X, skip_check_array=True)
        self._set({**kernel.learned(), "components_": W}, n_bits)
        return self

    def _start(self, X: npt.NDArray[Any], n_bits: int, random: np.random.RandomState) -> tuple[AnchorKernel, Floats]:
        """Draw anchors, and random hash functions of length one."""
        kernel = fit_kernel(X, self.n_anchors, random)
        W = random.standard_normal((len(kernel.anchors), n_bits))
        return kernel, W / np.sqrt(np.square(W).sum(axis=0))

    def _stream(self, values: Floats, first: Rows, second: Rows, similar: npt.NDArray[np.bool_], W: Floats) -> Floats:
        """Update W with each pair in turn, in place: each update depends on the one before."""
        wanted = round(self.dissimilar_share * W.shape[1])
        for i, j, alike in progress(zip(first, second, similar, strict=True), len(first), label="pairs of OKH"):
            update(W, values[[i, j]], alike, wanted, self.C)
        return W


def update(W: Floats, pair: Floats, similar: bool, wanted: int, C: float) -> None:
    """Update W in place with one pair (2, m): at the least |W' − W|²/2 + Cξ that reaches the nearest right codes.

    With f the codes and g the nearest codes that are right, the change is τ Σ z (g − f)ᵀ over both rows, where
    τ = min(C, (⟨f − g, Wᵀz⟩ + √loss) / |Σ z (g − f)ᵀ|²).
    """
    values = pair @ W
    bits = values > 0
    differ = bits[0] != bits[1]
    loss = int(differ.sum()) if similar else max(0, wanted - int(differ.sum()))
    if loss == 0:
        return
    sizes = np.abs(values)
    eligible = np.flatnonzero(differ == similar)
    side = sizes[:, eligible].argmin(axis=0)  # of the two rows, the one whose bit is less sure is flipped
    sure = sizes[side, eligible]
    cheapest = np.argsort(sure, kind="stable")[:loss]
    columns, rows = eligible[cheapest], side[cheapest]
    signs = np.where(bits[rows, columns], -2.0, 2.0)  # g − f
    squares = 4 * np.square(pair).sum(axis=1)[rows].sum()
    if squares > 0:
        tau = min(C, (2 * sure[cheapest].sum() + np.sqrt(loss)) / squares)
        W[:, columns] += tau * pair[rows].T * signs


def check_pairs(pairs: Any, y: Any, n: int, name: str) -> tuple[Rows, Rows, npt.NDArray[np.bool_]]:
    """Check pairs of n rows: as given, or consecutive rows with their classes."""
    if pairs is None:
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None, and so are pairs")
        classes = class_numbers(y, n)
        first = np.arange(0, n - 1, 2)
        return first, first + 1, classes[first] == classes[first + 1]
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "iu":
        raise ValueError(f"pairs must be integers of shape (m, 3), got {array.dtype} of shape {array.shape}")
    if array.size and not (array[:, :2].min() >= 0 and array[:, :2].max() < n):
        raise ValueError(f"pairs must hold rows from 0 to {n - 1}, got {array[:, :2].min()} to {array[:, :2].max()}")
    if not np.isin(array[:, 2], (0, 1)).all():
        raise ValueError("pairs must be 1 if similar and 0 if not in the third column, got other values")
    return array[:, 0].astype(np.int64), array[:, 1].astype(np.int64), array[:, 2] == 1
