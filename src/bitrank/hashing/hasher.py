"""`Hasher`, the base of all hashers: validation, `project`, `transform` to packed codes, and `save`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import IO, Any, ClassVar, Self, TypeGuard

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from bitrank.core.archives import Archive, check_shapes, write_archive
from bitrank.core.arrays import to_rows
from bitrank.core.checks import check_codes, check_count
from bitrank.core.codes import pack
from bitrank.core.estimators import PlainMethods
from bitrank.core.types import Codes, PackedCodes
from bitrank.hashing.registry import FORMAT, VERSION

Floats = npt.NDArray[np.float64]

_FEW = 256  # rows that are projected at once, whatever their length


class Hasher(PlainMethods, TransformerMixin, BaseEstimator, ABC):
    """A scikit-learn transformer from vectors to packed binary codes.

    A subclass learns its arrays in `_learn` and, where it is not linear, applies them in `_project`. Codes have
    eight bits per column, which have no names: there is neither `get_feature_names_out` nor `set_output`.

    Attributes
    ----------
    n_bits_ : int
    mean_ : float array of shape (n_features,)
        Subtracted from vectors, in linear hashers.
    components_ : float array of shape (n_features, n_bits)
        One direction per bit, in linear hashers: vectors, less the mean, are multiplied with it.

    Examples
    --------
    >>> from bitrank.hashing import SignBits
    >>> hasher = SignBits().fit([[0.5, 0.25], [0.25, 0.75]])
    >>> hasher.project([[0.625, 0.25]])
    array([[ 0.25, -0.25]], dtype=float32)
    >>> hasher.transform([[0.625, 0.25]])
    array([[128]], dtype=uint8)
    """

    # Shape of each learned array: "d" is the number of features, "k" the number of bits, other letters are free.
    _learned: ClassVar[dict[str, str]] = {"mean_": "d", "components_": "dk"}

    # Parameters that older files lack; they then take their defaults.
    _newer_params: ClassVar[frozenset[str]] = frozenset()

    n_bits: int
    n_bits_: int
    n_features_in_: int
    mean_: Floats
    components_: Floats

    @abstractmethod
    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        """Learn the arrays of `_learned` from validated vectors."""

    def _learn_from(self, X: npt.NDArray[Any], y: Any, n_bits: int) -> dict[str, Floats]:
        """Learn from validated vectors and, in hashers that use them, labels."""
        return self._learn(X, n_bits)

    def _project(self, rows: Floats) -> Floats:
        """Real values of a block of rows, one column per bit."""
        return (rows - self.mean_) @ self.components_

    def _check_params(self, n_features: int) -> int:
        """Check the parameters and return the number of bits."""
        return check_count("n_bits", self.n_bits, 1)

    def fit(self, X: npt.ArrayLike, y: Any = None) -> Self:
        """Learn the hash functions.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            At least two vectors.
        y : array-like of shape (n,), optional
            Class of each vector, for hashers that learn from labels; ignored by the others.

        Returns
        -------
        self
        """
        X = to_rows(X, "X")
        checked = check_array(X, ensure_min_samples=2, estimator=self, input_name="X")
        n_bits = self._check_params(checked.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            learned = self._learn_from(checked, y, n_bits)
        if not all(np.isfinite(array).all() for array in learned.values()):
            raise ValueError(
                f"X must hold values that can be squared and summed, got up to {np.abs(checked).max():.3g}"
            )
        # Set attributes last: a failed fit leaves the hasher as it was.
        validate_data(self, X, skip_check_array=True)
        self._set(learned, n_bits)
        return self

    def project(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Compute the real values whose signs are the bits.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        values : float32 array of shape (n, n_bits)
        """
        checked = X if self._is_plain(X) else self._validated(X)
        with np.errstate(over="ignore", invalid="ignore"):
            if len(checked) <= _FEW:
                values = self._project(checked.astype(np.float64)).astype(np.float32)
            else:
                values = np.empty((len(checked), self.n_bits_), np.float32)
                for rows, block in blocks(checked, self.n_bits_):
                    values[rows] = self._project(block)
        if not np.isfinite(values).all():
            raise ValueError(
                f"X must have projections that fit in float32, got values up to {np.abs(checked).max():.3g}"
            )
        return values

    def _is_plain(self, X: Any) -> TypeGuard[npt.NDArray[Any]]:
        """Whether scikit-learn would take X as it is: its checks of one vector take longer than the projection."""
        plain = type(X) is np.ndarray and X.dtype in (np.float32, np.float64) and X.ndim == 2 and len(X) > 0
        fits = plain and X.shape[1] == getattr(self, "n_features_in_", 0) and not hasattr(self, "feature_names_in_")
        return fits and bool(np.isfinite(X).all())

    def _validated(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        check_is_fitted(self)
        checked: npt.NDArray[Any] = validate_data(self, to_rows(X, "X"), reset=False)
        return checked

    def transform(self, X: npt.ArrayLike) -> Codes:
        """Compute packed codes: a bit is set where `project` is positive.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        codes : uint8 array of shape (n, ceil(n_bits / 8))
            Where not all bits of the last byte count, they know how many do, and an `Index` of them has these.
        """
        codes = pack(self.project(X) > 0)
        return PackedCodes.of(codes, self.n_bits_) if self.n_bits_ % 8 else codes

    def check_codes(self, codes: Codes) -> None:
        """Refuse codes that this hasher cannot have made: those of another length.

        Parameters
        ----------
        codes : uint8 array of shape (n, n_bytes)
            Codes of a collection that queries of this hasher are to search.
        """
        check_is_fitted(self)
        check_codes(codes, self.n_bits_)

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write the fitted hasher to a file that `load_hasher` reads.

        The file is written at exactly this path, whole or not at all. A `random_state` that is not an int is
        stored as None.

        Parameters
        ----------
        path : path of the file
        """
        check_is_fitted(self)
        if self._check_params(self.n_features_in_) != self.n_bits_:
            raise ValueError(f"n_bits must be the fitted {self.n_bits_}, got {self.n_bits}: fit again")
        arrays = {name: getattr(self, name) for name in self._learned}
        if hasattr(self, "feature_names_in_"):
            arrays["feature_names_in_"] = self.feature_names_in_.astype(str)
        write_archive(path, FORMAT, VERSION, Archive(type(self).__name__, self.get_params(deep=False), {}, arrays))

    @classmethod
    def _from_archive(cls, archive: Archive) -> Self:
        """Rebuild a fitted hasher, or raise a ValueError that says what is wrong with the archive."""
        params, expected = archive.params, cls().get_params(deep=False).keys()
        if not expected - cls._newer_params <= params.keys() <= expected:
            raise ValueError(f"expected the parameters of {cls.__name__}, got {params}")
        hasher = cls(**params)
        check_shapes(archive.arrays, cls._learned, {})
        learned = {name: archive.arrays[name].astype(np.float64) for name in cls._learned}
        n_features = next(learned[name].shape[axes.index("d")] for name, axes in cls._learned.items() if "d" in axes)
        n_bits = hasher._check_params(n_features)
        check_shapes(learned, cls._learned, {"d": n_features, "k": n_bits})
        names = archive.arrays.get("feature_names_in_")
        if names is not None:
            if names.dtype.kind != "U" or names.shape != (n_features,):
                raise ValueError(f"expected {n_features} feature names, got {names.dtype} of shape {names.shape}")
            hasher.feature_names_in_ = names.astype(object)
        hasher.n_features_in_ = n_features
        hasher._set(learned, n_bits)
        return hasher

    def _set(self, learned: dict[str, Floats], n_bits: int) -> None:
        for name in self._learned:
            setattr(self, name, learned[name])
        self.n_bits_ = n_bits

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


@dataclass(eq=False, repr=False)
class RandomHasher(Hasher):
    """A hasher whose hash functions, or what they are learned from, are drawn at random."""

    n_bits: int = 32
    _: KW_ONLY
    random_state: Any = None


def blocks(X: npt.NDArray[Any], n_columns: int) -> Iterator[tuple[slice, Floats]]:
    """Yield rows of X in blocks of float64, without a copy of all of X.

    Always in float64, so that a vector gets the same code as float32, float64 or integers.
    """
    size = max(_FEW, 2**20 // max(X.shape[1], n_columns))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        yield rows, X[rows].astype(np.float64)
