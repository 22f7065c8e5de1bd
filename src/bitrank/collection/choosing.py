"""How many bits vectors get: wishes, and what each number of bits costs on held-out rows."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bitrank.collection.drift import Cost, Fit
from bitrank.collection.planes import PlaneQueries
from bitrank.core.checks import check_count
from bitrank.core.codes import sample_rows
from bitrank.hashing.axes import Spectra
from bitrank.index import Index

if TYPE_CHECKING:
    from bitrank.hashing import BitPlanes
    from bitrank.hashing.hasher import Hasher

DEFAULT_BITS = 4.0
_TRIED = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)  # bits per dimension
_ROWS, _QUERIES, _K = 5000, 200, 10
_FEWEST = 25  # queries whose recall says anything
_OF_NUMBERS = 16  # bits per code beside those of the dimensions

Matrix = npt.NDArray[Any]


def fit_hasher(
    vectors: Matrix,
    queries: Matrix | None,
    hasher: Hasher | None,
    wishes: dict[str, Any],
    metric: Any,
    seed: int | None,
) -> tuple[Any, Fit | None]:
    """A fitted hasher, the one that is given or `BitPlanes` by a wish of the caller, and what numbers of bits cost."""
    from bitrank.hashing import BitPlanes

    wished = [name for name, wish in wishes.items() if wish is not None]
    if wished and hasher is not None:
        raise ValueError(f"{wished[0]} must be None for a hasher, which has its own, got both")
    if len(wished) > 1:
        raise ValueError(f"from_vectors must get one wish, got {' and '.join(wished)}")
    if hasher is not None:
        return _fitted(hasher, vectors), None
    if len(vectors) < 2:
        raise ValueError(f"X must hold at least two rows, whose values choose the thresholds, got {len(vectors)}")
    n_bytes, float_recall = wishes["bytes"], wishes["float_recall"]
    if float_recall is not None:
        check_float_recall(float_recall)
    bits = DEFAULT_BITS if wishes["bits"] is None else wishes["bits"]
    bits = bits if n_bytes is None else bits_for(n_bytes, vectors.shape[1])
    planes = BitPlanes(bits, metric, seed).fit(vectors)
    table = costs(planes, vectors, queries)
    enough = bits if float_recall is None else bits_of_recall(table, float_recall)
    if enough != bits:
        planes = BitPlanes(enough, metric, seed).fit_family(vectors, planes.family_)
    return planes, Fit(table, planes.error(held_out(vectors, None)[0])) if table else None


def _fitted(hasher: Any, vectors: Matrix) -> Any:
    """A hasher that was fitted on vectors like these, or a copy of it that is fitted on these."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    from bitrank.hashing.hasher import Hasher

    if not isinstance(hasher, Hasher):
        raise ValueError(f"hasher must be a Hasher, got {hasher!r:.60}")
    try:
        check_is_fitted(hasher, "n_bits_")
    except NotFittedError:
        return copy.deepcopy(hasher).fit(vectors)
    n = hasher.n_features_in_
    if n != vectors.shape[1]:
        raise ValueError(f"X must have the {n} columns that the hasher was fitted on, got {vectors.shape[1]}")
    return hasher


def costs(like: BitPlanes, vectors: Matrix, queries: Matrix | None) -> list[Cost]:
    """Fit codes of several sizes on a sample, and search for rows that they were not fitted on."""
    sample, asked = held_out(vectors, queries)
    if len(asked) < _FEWEST or len(sample) <= _K:
        return []
    out, spectra = list[Cost](), Spectra()
    for bits in _TRIED:
        planes = type(like)(bits, like.metric, like.random_state).fit_family(sample, like.family_, spectra)
        found = recall_of(planes, sample, asked, like.metric)
        out.append(Cost(bits, planes.n_bits_ // 8, planes.n_scanned_ // 8, found, planes.error(asked)))
    return out


def held_out(vectors: Matrix, queries: Matrix | None) -> tuple[Matrix, Matrix]:
    """A sample of the vectors, and queries: those that are given, or a tenth of the sample's rows, at most."""
    rows = np.random.default_rng(0).permutation(sample_rows(len(vectors), _ROWS))
    if queries is not None:
        return vectors[np.sort(rows)], queries[sample_rows(len(queries), _QUERIES)]
    n = min(_QUERIES, len(rows) // 10)
    return vectors[np.sort(rows[n:])], vectors[np.sort(rows[:n])]


def recall_of(hasher: Any, items: Matrix, queries: Matrix, metric: str) -> float:
    """Share of the ten nearest of the items that the plain search finds."""
    items, asked = items.astype(np.float32), queries.astype(np.float32)
    scores = asked @ items.T
    if metric == "cosine":
        lengths = np.linalg.norm(items, axis=1)
        scores /= np.where(lengths > 0, lengths, 1)
    elif metric == "l2":
        scores -= 0.5 * (items**2).sum(axis=1)
    near = np.argpartition(-scores, _K - 1, axis=1)[:, :_K]
    n_scanned = getattr(hasher, "n_scanned_", None)
    index = Index(hasher.transform(items), n_bits=hasher.n_bits_, n_scanned=n_scanned)
    if n_scanned is None:
        found = index.search(hasher.project(asked), _K).ids
    else:
        found = PlaneQueries.of(hasher, asked).search(index, _K)[0]
    return float((near[:, :, None] == found[:, None, :]).any(axis=2).mean())


def recall_on_held_out(hasher: Any, vectors: Matrix, metric: str, queries: Matrix | None = None) -> float | None:
    """Recall of the plain search for rows of the vectors among others, or for queries; None for few rows."""
    items, asked = held_out(vectors, queries)
    return recall_of(hasher, items, asked, metric) if len(asked) and len(items) > _K else None


def bits_for(n_bytes: Any, n_dimensions: int) -> float:
    """The most bits per dimension whose codes fit in some bytes.

    Examples
    --------
    >>> bits_for(50, 384)
    1.0
    """
    most = (8 * check_count("bytes", n_bytes, 1) - _OF_NUMBERS) / n_dimensions
    if most < 0.25:
        least = -(-(0.25 * n_dimensions + _OF_NUMBERS) // 8)
        raise ValueError(f"bytes must be at least {least:.0f} for {n_dimensions} dimensions, got {n_bytes}")
    return min(8.0, most)


def check_float_recall(float_recall: Any) -> None:
    """Check a wish."""
    if not isinstance(float_recall, int | float) or isinstance(float_recall, bool) or not 0 < float_recall <= 1:
        raise ValueError(f"float_recall must be a number above 0 and at most 1, got {float_recall!r:.60}")


def bits_of_recall(table: list[Cost], float_recall: float) -> float:
    """The fewest bits per dimension that reach a recall, or the most where none do."""
    reached = [cost.bits for cost in table if cost.recall >= float_recall]
    return reached[0] if reached else table[-1].bits if table else DEFAULT_BITS
