"""`BitPlanes`: several bits per dimension where the variance is, whose first bytes are a code of their own."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bitrank.core.arrays import to_rows
from bitrank.core.checks import check_codes, check_count
from bitrank.core.codes import signs
from bitrank.core.types import Codes, Estimates, Products
from bitrank.hashing.axes import FAMILIES, Asked, Axes, Floats, Reals, Spectra
from bitrank.hashing.hasher import Hasher
from bitrank.hashing.layout import Layout, Number
from bitrank.hashing.pca import random_rotation
from bitrank.hashing.rehearsal import learn_layout

METRICS = ("cosine", "dot", "l2")


class BitPlanes(Hasher):
    """Codes that estimate products and distances of vectors, with any number of bits per dimension.

    Each axis has the bits that its variance deserves, and two numbers per item correct what the levels lose. A score
    is linear in the bits, so that a search by weighted Hamming distance ranks by it. Bits are in the order of the
    weights that queries give them: the first `n_scanned_` of them, the head, find a shortlist that the whole code
    orders.

    Parameters
    ----------
    bits : float, default 4.0
        Bits per dimension on average, from 0.25 to 8. Two or three bytes per item are added for the corrections.
    metric : {"cosine", "dot", "l2"}
        What makes vectors near.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    n_bits_ : int
        Bits per code.
    n_scanned_ : int
        Bits of the head, a multiple of 8; `Index` takes it as `n_scanned`.
    shortlist_ : int
        Rows for ten results whose whole codes are read, so that the head loses nothing that matters.
    bit_weights_ : float array of shape (n_bits,)
        Mean weight that queries give each bit; `Index` takes the first `n_scanned_` as `query_weights`.
    family_ : {"principal", "unit", "random"}
        Axes chosen by recall on held-out rows: principal ones; those of vectors scaled to one length; random ones.
    bits_per_axis_ : float array of shape (n_features,)

    Examples
    --------
    >>> from bitrank import Index
    >>> X = np.random.default_rng(0).normal(size=(500, 32)) / np.arange(1, 33)
    >>> planes = BitPlanes(bits=4, metric="l2", random_state=0).fit(X)
    >>> codes = planes.transform(X)
    >>> codes.shape[1] * 8 == planes.n_bits_
    True
    >>> index = Index(codes, n_bits=planes.n_bits_, n_scanned=planes.n_scanned_)
    >>> index.search((planes.project(X[:3], head=True), planes.project(X[:3])), k=1).ids
    array([[0],
           [1],
           [2]])
    """

    _learned: ClassVar[dict[str, str]] = {
        "facts_": "a",
        "center_": "d",
        "axes_": "dd",
        "bits_per_axis_": "d",
        "steps_": "d",
        "alpha_": "d",
        "numbers_": "bc",
        "layout_": "ne",
        "bit_weights_": "w",
    }

    facts_: Floats
    bit_weights_: Floats

    def __init__(
        self, bits: float = 4.0, metric: Literal["cosine", "dot", "l2"] = "cosine", random_state: Any = None
    ) -> None:
        self.bits = bits
        self.metric = metric
        self.random_state = random_state

    def _check_params(self, n_features: int) -> int:
        if not isinstance(self.bits, Real) or isinstance(self.bits, bool) or not 0.25 <= self.bits <= 8:
            raise ValueError(f"bits must be a number from 0.25 to 8, got {self.bits!r}")
        if self.metric not in METRICS:
            raise ValueError(f"metric must be one of {METRICS}, got {self.metric!r}")
        return getattr(self, "n_bits_", 0)

    def fit_family(self, X: npt.ArrayLike, family: str, spectra: Spectra | None = None) -> Self:
        """Fit with axes of a family; `spectra` keeps what codes of the same vectors with other bits have in common.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(100, 16))
        >>> BitPlanes(metric="l2").fit_family(X, "random").family_
        'random'
        """
        self._wanted = family, spectra
        try:
            return self.fit(X)
        finally:
            del self._wanted

    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        self._check_lengths(X)
        wanted = getattr(self, "_wanted", (None, None))
        with np.errstate(over="ignore", invalid="ignore"):
            found = learn_layout(X, self.metric, float(self.bits), check_random_state(self.random_state), *wanted)
        layout, axes = found.layout, found.layout.axes
        family, length = FAMILIES.index(found.family), axes.length
        sizes = layout.n_bits, layout.n_scanned, found.shortlist
        return {
            "facts_": np.array([length, family, layout.t0, found.recall, *sizes, layout.slope], np.float64),
            "center_": axes.center,
            "axes_": axes.axes.astype(np.float64),
            "bits_per_axis_": axes.bits.astype(np.float64),
            "steps_": axes.steps.astype(np.float64),
            "alpha_": axes.alpha.astype(np.float64),
            "numbers_": np.array([layout.head_w, layout.w, layout.f]),
            "layout_": np.column_stack([layout.places, layout.exponents]).astype(np.float64),
            "bit_weights_": found.weights,
        }

    def _set(self, learned: dict[str, Floats], n_bits: int) -> None:
        length, family, t0, recall, kept, n_scanned, shortlist, slope = learned["facts_"].tolist()
        learned = {**learned, "axes_": learned["axes_"].astype(np.float32)}
        bits = learned["bits_per_axis_"].astype(np.int64)
        places, exponents = learned["layout_"].astype(np.int64).T
        axes = Axes(
            self.metric,
            length,
            learned["center_"],
            FAMILIES[int(family)] == "unit",
            learned["axes_"].astype(np.float32),
            bits,
            learned["steps_"].astype(np.float32),
            learned["alpha_"].astype(np.float32),
        )
        head_w, w, f = (Number(low, step, int(n)) for low, step, n in learned["numbers_"].tolist())
        self._layout = Layout(axes, places, exponents, head_w, w, f, t0, slope, int(n_scanned), int(kept))
        super()._set(learned, self._layout.n_bits)
        self.n_scanned_, self.shortlist_, self.recall_ = self._layout.n_scanned, int(shortlist), recall
        self.bit_weights_ = self.bit_weights_[: self.n_bits_]

    @property
    def family_(self) -> str:
        """The family of the axes."""
        return FAMILIES[int(self.facts_[1])]

    def project(self, X: npt.ArrayLike, head: bool = False) -> Reals:
        """Compute queries, one real per bit: signs are the code that is asked for, magnitudes the weights.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        head : bool
            Ask the first `n_scanned_` bits alone, with the head's own correction. Sizes are rounded to whole units, for
            which `Index` computes exact distances as sums of 16 bits.

        Returns
        -------
        values : float32 array of shape (n, n_bits), or (n, n_scanned)
        """
        return self.reals(self.ask(X), head)

    def ask(self, X: npt.ArrayLike) -> Asked:
        """Compute what `estimate` and both forms of `project` share."""
        vectors = self._vectors(X)
        try:
            return self._layout.axes.ask(vectors)
        except OverflowError:
            self._refuse(vectors)

    def products(self, asked: Asked, head: bool = False) -> Products:
        """Compute `project` from what `ask` returned, as `Index` takes it at once."""
        return self._layout.products(asked, head)

    def reals(self, asked: Asked, head: bool = False) -> Reals:
        """Compute `project` from what `ask` returned."""
        return self._layout.products(asked, head).reals()

    def transform(self, X: npt.ArrayLike) -> Codes:
        """Compute packed codes.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        codes : uint8 array of shape (n, n_bits / 8)
        """
        vectors = self._vectors(X)
        self._check_lengths(vectors)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return self._layout.encode(vectors)
        except OverflowError:
            self._refuse(vectors)

    def estimate(self, codes: Codes, Q: npt.ArrayLike) -> Reals:
        """Estimate scores of vectors from codes.

        Parameters
        ----------
        codes : uint8 array of shape (n, n_bytes) or (n_queries, n, n_bytes)
            The same ones for all queries, or some for each.
        Q : array-like of shape (n_queries, n_features)

        Returns
        -------
        scores : float32 array of shape (n_queries, n)
            Products, cosines, or squared distances with a minus sign.
        """
        asked = self.ask(Q)
        reals, codes = self.reals(asked), np.asarray(codes)
        if codes.ndim == 3:
            flat = signs(check_codes(codes.reshape(-1, codes.shape[-1]), self.n_bits_), self.n_bits_)
            products = np.einsum("qb,qnb->qn", reals, flat.reshape(*codes.shape[:2], -1))
        else:
            products = reals @ signs(check_codes(codes, self.n_bits_), self.n_bits_).T
        return self.estimates(products, codes, asked)

    @property
    def tail_bytes(self) -> int:
        """Bytes at the end of a code that hold its correction, without which no product becomes an estimate."""
        return self._layout.tail_bytes

    def estimates(self, products: Reals, tails: Codes, asked: Asked) -> Reals:
        """Compute estimates from products of queries with the ±1 of codes, and the last bytes of the codes."""
        return self._layout.estimates(products, self._layout.f_of(tails), asked)

    @property
    def sums(self) -> tuple[npt.NDArray[np.int64], Reals]:
        """Which sum each bit belongs to, and what it adds to or takes from it: the axes of `bitrank.index.cells`."""
        return self._layout.sums()

    def estimating(self, asked: Asked) -> Estimates:
        """What `Index.search` takes to order rows by their estimated distances."""
        layout = self._layout
        stored = (layout.f.low, layout.f.step) if layout.tail_bytes else (layout.f.middle, 0.0)
        return Estimates(layout.tail_bytes, *stored, self.metric == "l2", layout.terms(asked))

    def scale(self, asked: Asked) -> tuple[Floats, Floats]:
        """What turns products into similarities of items with a typical correction: (first + product)·second.

        Similarities are 1 for a vector and itself: cosines, products divided by the query's, and what distances are
        short of those of two typical vectors.
        """
        scale, offset = asked.scale, asked.offset
        layout, beta = self._layout, asked.beta[:, 0].astype(np.float64)
        f, length = layout.f.middle, layout.axes.length
        unit = 2 * length**2 if self.metric == "l2" else 1.0 if self.metric == "cosine" else (scale / length) ** 2
        second = np.where(scale > 0, scale, 1) / f
        more = offset + unit if self.metric == "l2" else offset
        return beta * (layout.used_w.middle + layout.t0 * f) + more / second, second / np.where(unit > 0, unit, 1)

    def distances(self, scores: Reals) -> Reals:
        """Turn scores into distances: one less the cosine, minus the product, or the Euclidean distance."""
        if self.metric == "l2":
            return np.sqrt(np.maximum(-scores, 0))
        return 1 - scores if self.metric == "cosine" else -scores

    def decode(self, codes: Codes) -> Reals:
        """Compute vectors whose products with queries are the estimated ones.

        Parameters
        ----------
        codes : uint8 array of shape (n, n_bytes)

        Returns
        -------
        vectors : float32 array of shape (n, n_features)
        """
        return self._layout.decode(check_codes(codes, self.n_bits_))

    def points(self, codes: Codes) -> Reals:
        """Items as vectors to learn from, in a space where the products with queries rank.

        These are decoded vectors less the centre, turned at random and of a mean square about one, and a last number
        for what the score owes to the item alone.

        Parameters
        ----------
        codes : uint8 array of shape (n, n_bytes)

        Returns
        -------
        points : float32 array of shape (n, n_point_)

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(100, 16))
        >>> planes = BitPlanes(metric="l2", random_state=0).fit(X)
        >>> items, queries = planes.points(planes.transform(X)), planes.points_of(planes.ask(X))
        >>> bool(((queries @ items.T).argmax(axis=1) == np.arange(100)).mean() > 0.95)
        True
        """
        turn, scale = self._turn()
        coordinates = self._layout.coordinates(check_codes(codes, self.n_bits_))
        typical = -0.5 if self.metric == "l2" else 0.0  # a constant of the query less
        return np.column_stack([coordinates[:, :-1] @ turn * scale, (coordinates[:, -1] - typical) * (scale * scale)])

    def points_of(self, asked: Asked) -> Reals:
        """Queries in the space of `points`."""
        turn, scale = self._turn()
        return np.column_stack([asked.y @ turn, asked.beta / scale])

    def ask_at(self, points: Reals, asked: Asked) -> Asked:
        """What queries at other points ask, estimates being scaled as before: the inverse of `points_of`."""
        turn, scale = self._turn()
        z = np.column_stack([points[:, :-1] @ turn.T, points[:, -1] * scale, asked.lengths2])
        return asked._replace(z=z)

    def error(self, X: npt.ArrayLike) -> float:
        """Share of the variance of vectors around the centre that their levels do not hold.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(100, 16))
        >>> planes = BitPlanes(metric="l2", random_state=0).fit(X)
        >>> planes.error(X) < planes.error(2 * X) < 1
        True
        """
        axes, vectors = self._layout.axes, self._vectors(X)
        measured = axes.measure(vectors)
        missed = measured.a.astype(np.float64)
        missed[:, : axes.m] -= axes.decoded(axes.quantise(measured.a), self._layout.bits)
        whole, size = np.einsum("ij,ij->i", measured.a, measured.a, dtype=np.float64), measured.size**2
        return float(np.einsum("ij,ij,i->", missed, missed, size) / max(float(whole @ size), 1e-300))

    @property
    def n_point_(self) -> int:
        """Length of a point."""
        return self._layout.axes.m + 1

    def _turn(self) -> tuple[Reals, np.float32]:
        """A rotation of the axes that have bits, the same for as many axes, and the scale of items."""
        if not hasattr(self, "_turned"):
            axes = self._layout.axes
            rest = 1.0 if self.metric == "l2" else max(0.05, 1 - float(axes.center @ axes.center))
            turn = random_rotation(axes.m, np.random.RandomState(0)).astype(np.float32)
            self._turned = turn, np.float32(np.sqrt(axes.m / rest))
        return self._turned

    def prefix(self, n_bytes: int) -> Self:
        """Return the hasher whose codes are the first bytes of this one's.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(100, 16))
        >>> planes = BitPlanes(metric="l2", random_state=0).fit(X)
        >>> (planes.prefix(3).transform(X) == planes.transform(X)[:, :3]).all()
        np.True_
        """
        n_bits = 8 * check_count("n_bytes", n_bytes, 1)
        if n_bits > self.n_bits_:
            raise ValueError(f"n_bytes must be at most {self.n_bits_ // 8}, those of a code, got {n_bytes}")
        learned = {name: getattr(self, name) for name in self._learned}
        learned["facts_"] = learned["facts_"].copy()
        learned["facts_"][4] = n_bits
        out = type(self)(self.bits, self.metric, self.random_state)
        out.n_features_in_ = self.n_features_in_
        out._set(learned, n_bits)
        return out

    def _vectors(self, X: Any) -> npt.NDArray[Any]:
        """Vectors, checked at once where they are a matrix of floats: scikit-learn takes longer than the product."""
        if not hasattr(self, "_layout"):
            check_is_fitted(self, "n_bits_")
        if (
            type(X) is np.ndarray
            and X.ndim == 2
            and X.dtype.char in "fd"
            and X.shape[1] == self.n_features_in_
            and len(X)
        ):
            return X
        return np.asarray(validate_data(self, to_rows(X, "X"), reset=False, dtype="numeric"))

    def _refuse(self, vectors: npt.NDArray[Any]) -> NoReturn:
        """Say what is wrong with vectors whose products are not finite."""
        validate_data(self, vectors, reset=False)
        self._check_lengths(vectors)
        largest = np.abs(vectors).max()
        raise ValueError(f"X must have projections that fit in float32, got values up to {largest:.3g}")

    def _check_lengths(self, X: npt.NDArray[Any]) -> None:
        if self.metric == "cosine":
            zero = ~X.any(axis=1)
            if zero.any():
                raise ValueError(f"X must have no zero vectors for the cosine, got one in row {int(zero.argmax())}")
