"""`Cells`: blocks of similar rows, and the order in which a query reads them, whatever weights it brings.

Rows are ordered so that the 64 of a block are alike: flat k-means, and every cell halved along its longest direction.
The mean of a block, quantised to about 200 bits, is a code: a search of these codes ranks the blocks for any query that
is linear in the bits, each at its mean and some radii nearer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.codes import signs
from bitrank.core.progress import progress
from bitrank.core.types import Codes, Ids, Weights

Floats = npt.NDArray[np.float32]

# Beyond the most cells, cells hold more rows: finding the cell of a row takes a product with every centre.
ROWS_PER_CELL, ROWS_PER_BLOCK, _MOST_CELLS = 256, 64, 1 << 14
# Numbers per row that k-means sees, sample rows per cell, and its turns.
_MOST_AXES, _ROWS_TO_FIT, _TURNS = 96, 24, 6
_MANY = 100_000  # rows whose cells take seconds to find
# Bits of a block's mean, of its radius, and of one number of the mean at most.
_MEAN_BITS, _RADIUS_BITS, _MOST_BITS = 200, 6, 8
# Steps of a uniform quantiser of 1 to 8 bits on a Gaussian of deviation 1.
_STEPS = np.array([0, 1.596, 0.996, 0.586, 0.335, 0.188, 0.104, 0.057, 0.031], np.float32)


class Axes(NamedTuple):
    """What bits stand for: bit k adds `steps[k]` to, or takes it from, the number `axis[k]` of a row."""

    axis: npt.NDArray[np.int64]
    steps: Floats


class Cells(NamedTuple):
    """What orders rows and ranks blocks, learned from a sample of rows; plain arrays, which never change."""

    whole: Floats  # (n_bits, n_axes): signs of a code to coordinates
    centers: Floats  # (n_cells, n_axes)
    decode: Floats  # (n_scanned, n_numbers): signs to numbers
    lengths: Floats  # (n_scanned,): what a query's squares count in the length of what it asks of numbers
    mean: Floats  # (n_scanned,): mean sign of each bit
    coded: Floats  # (n_scanned, n_coded): means of signs to the coordinates that are coded
    asked: Floats  # (n_scanned, n_coded): queries to the same coordinates
    n_levels: npt.NDArray[np.uint8]  # (n_coded,): bits per coordinate
    steps: Floats  # (n_coded + 2,): of each coordinate, of the radius, and the radius in the middle of its levels

    @property
    def n_mean_bits(self) -> int:
        """Bits of a coded mean."""
        return int(self.n_levels.sum()) + _RADIUS_BITS

    def order(self, codes: Codes) -> npt.NDArray[np.uint32]:
        """Row numbers in the order in which runs of 64 rows are alike."""
        n_bits = len(self.whole)
        half = (self.centers**2).sum(axis=1) / 2
        cells = np.empty(len(codes), np.int64)
        together = max(64, min(8192, (1 << 25) // max(1, len(half))))
        steps: Iterable[int] = range(0, len(codes), together)
        for start in progress(steps, label="rows to cells") if len(codes) > _MANY else steps:
            part = slice(start, start + together)
            points = signs(codes[part], n_bits) @ self.whole
            cells[part] = (points @ self.centers.T - half).argmax(axis=1)
        rows = np.argsort(cells, kind="stable")
        starts = np.searchsorted(cells[rows], np.arange(len(half) + 1))
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            points = signs(codes[rows[start:stop]], n_bits) @ self.whole
            rows[start:stop] = rows[start:stop][_halved(points, ROWS_PER_BLOCK, start)]
        return rows.astype(np.uint32)

    def means(self, heads: Codes) -> Codes:
        """Coded means of runs of 64 rows."""
        n_blocks = -(-len(heads) // ROWS_PER_BLOCK)
        out = np.empty((n_blocks, -(-self.n_mean_bits // 8)), np.uint8)
        for start in range(0, n_blocks, 128):
            rows = heads[start * ROWS_PER_BLOCK : (start + 128) * ROWS_PER_BLOCK]
            missing = -len(rows) % ROWS_PER_BLOCK
            whole = signs(np.concatenate([rows, rows[-1:].repeat(missing, axis=0)]), len(self.mean))
            means = whole.reshape(-1, ROWS_PER_BLOCK, len(self.mean)).mean(axis=1)
            squares = ((whole @ self.decode) ** 2).sum(axis=1).reshape(-1, ROWS_PER_BLOCK).mean(axis=1)
            radii = np.sqrt(np.maximum(squares - ((means @ self.decode) ** 2).sum(axis=1), 0))
            out[start : start + 128] = self._code((means - self.mean) @ self.coded, radii)
        return out

    def asking(self) -> Floats:
        """Queries, one real per scanned bit, times this are reals per bit of a coded mean, and their mean score."""
        reals = np.repeat(self.asked * (self.steps[:-2] / 2), self.n_levels, axis=1) * _powers(self.n_levels)
        out: Floats = np.asfortranarray(np.column_stack([reals, self.mean]), np.float32)
        return out

    def asking_radii(self) -> Floats:
        """What the bits of a radius count for a query of length 1."""
        out: Floats = _powers([_RADIUS_BITS]) * (self.steps[-2] / 2)
        return out

    def radii(self, means: Codes) -> Floats:
        """Radii of blocks, as their codes have them."""
        bits = signs(means, self.n_mean_bits)[:, -_RADIUS_BITS:]
        out: Floats = bits @ self.asking_radii() + self.steps[-1]
        return out

    def _code(self, coordinates: Floats, radii: Floats) -> Codes:
        values = np.concatenate([coordinates, (radii - self.steps[-1])[:, None]], axis=1)
        levels = np.append(self.n_levels, _RADIUS_BITS)
        half = 2.0 ** (levels - 1.0)
        numbers = np.clip(np.floor(values / self.steps[:-1]) + half, 0, 2 * half - 1).astype(np.int64)
        shifts = np.array([i for n in levels.tolist() for i in range(n)[::-1]])
        return np.packbits((np.repeat(numbers, levels, axis=1) >> shifts) & 1, axis=1)


def rows_to_fit(n_rows: int) -> int:
    """How many rows `learn_cells` wants of so many."""
    return max(20_000, _ROWS_TO_FIT * min(_MOST_CELLS, n_rows // ROWS_PER_CELL))


def learn_cells(codes: Codes, n_bits: int, n_scanned: int, n_rows: int, axes: Axes | None, seed: int = 0) -> Cells:
    """Learn cells for `n_rows` rows from a sample of them.

    Parameters
    ----------
    codes : uint8 array of shape (n, ceil(n_bits / 8))
        Rows drawn at random.
    n_bits, n_scanned, n_rows : int
    axes : Axes, optional
        What the bits stand for; by default every bit is a number of its own.
    """
    from sklearn.cluster import KMeans

    n_cells = max(1, min(n_rows // ROWS_PER_CELL, _MOST_CELLS, len(codes)))
    axes = Axes(np.arange(n_bits), np.ones(n_bits, np.float32)) if axes is None else axes
    decode = _decoder(axes, n_bits)
    rows = signs(codes, n_bits)
    _, vectors = _principal(rows @ decode)
    whole = decode @ vectors[:, :_MOST_AXES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer different codes than cells
        means = KMeans(n_cells, init="random", n_init=1, max_iter=_TURNS, random_state=seed).fit(rows @ whole)
    centers = means.cluster_centers_.astype(np.float32)
    centers = centers[_halved(centers, 1, 0)]
    # What is scanned is what ranks blocks.
    heads = rows[:, :n_scanned]
    decode = _decoder(Axes(axes.axis[:n_scanned], axes.steps[:n_scanned]), n_scanned)
    decode = decode[:, (decode != 0).any(axis=0)]
    squares = (decode**2).sum(axis=0)
    lengths = ((decode != 0) / squares).sum(axis=1)
    mean = heads.mean(axis=0)
    # Means of blocks vary as centres of cells do; a mean of 64 rows is drawn nearer to them than rows are.
    _, values = np.unique(means.labels_, return_inverse=True)
    totals = np.zeros((int(values.max()) + 1, n_scanned), np.float32)
    np.add.at(totals, values, heads)
    totals /= np.bincount(values)[:, None]
    variances, vectors = _principal((totals - mean) @ decode)
    n_levels = _levels(variances)
    kept = n_levels > 0
    n_levels, variances, vectors = n_levels[kept], variances[kept], vectors[:, kept]
    out = Cells(
        whole,
        centers,
        decode.astype(np.float32),
        lengths.astype(np.float32),
        mean.astype(np.float32),
        (decode @ vectors).astype(np.float32),
        ((decode / squares) @ vectors).astype(np.float32),
        n_levels.astype(np.uint8),
        np.append(_STEPS[n_levels] * np.sqrt(variances), [1, 0]).astype(np.float32),
    )
    return out._replace(steps=np.append(out.steps[:-2], _radius_step(heads, decode, values)).astype(np.float32))


def _radius_step(heads: Floats, decode: Floats, cells: Ids) -> tuple[float, float]:
    """Step and middle of radii, from none to the largest of a cell."""
    numbers = heads @ decode
    means = np.zeros((int(cells.max()) + 1, numbers.shape[1]), np.float32)
    np.add.at(means, cells, numbers)
    means /= np.bincount(cells)[:, None]
    squares = np.bincount(cells, ((numbers - means[cells]) ** 2).sum(axis=1)) / np.bincount(cells)
    largest = 1.25 * float(np.sqrt(squares.max())) or 1.0
    return largest / 2**_RADIUS_BITS, largest / 2


def _levels(variances: Floats) -> npt.NDArray[np.uint8]:
    """Bits per coordinate by reverse water-filling, `_MEAN_BITS` in sum or all that coordinates may have."""
    varies = variances > 1e-9 * variances.max(initial=0)
    halves = np.log2(np.where(varies, variances, 1)) / 2
    low, high = float(halves.min()) - _MOST_BITS - 1, float(halves.max()) + 1
    for _ in range(40):
        middle = (low + high) / 2
        total = (varies * np.clip(np.rint(halves - middle), 0, _MOST_BITS)).sum()
        low, high = (middle, high) if total > _MEAN_BITS else (low, middle)
    levels: npt.NDArray[np.uint8] = (varies * np.clip(np.rint(halves - high), 0, _MOST_BITS)).astype(np.uint8)
    return levels


def _principal(values: Floats) -> tuple[Floats, Floats]:
    """Variances and axes of rows, the largest first."""
    centered = values - values.mean(axis=0)
    variances, vectors = np.linalg.eigh(centered.T @ centered / np.float32(max(1, len(values))))
    return np.maximum(variances[::-1], 0).astype(np.float32), vectors[:, ::-1].astype(np.float32)


def _decoder(axes: Axes, n_bits: int) -> Floats:
    out = np.zeros((n_bits, int(axes.axis.max()) + 1), np.float32)
    out[np.arange(n_bits), axes.axis] = axes.steps
    return out


def _halved(points: Floats, unit: int, start: int) -> Ids:
    """Rows in an order whose runs of `unit`, counted from `-start`, are alike: halved again and again."""
    rows = np.arange(len(points))
    parts = [(0, len(points))]
    while parts:
        first, last = parts.pop()
        if last - first < 2 or (first + start) // unit == (last - 1 + start) // unit:
            continue
        part = points[rows[first:last]]
        part = part - part.mean(axis=0)
        along = part[(part**2).sum(axis=1).argmax()]
        for _ in range(3):
            along = part.T @ (part @ along)
            along = along / max(float(np.linalg.norm(along)), 1e-30)
        rows[first:last] = rows[first:last][np.argsort(part @ along, kind="stable")]
        middle = round(((first + last) / 2 + start) / unit) * unit - start
        if not first < middle < last:
            middle = (first + start) // unit * unit + unit - start
        parts += [(first, middle), (middle, last)]
    return rows


def _powers(n_levels: Iterable[int]) -> Floats:
    """What each bit of numbers counts, the highest first."""
    return np.array([2.0**i for n in n_levels for i in range(int(n))[::-1]], np.float32)


def signed(codes: Codes, weights: Weights | None, n_bits: int) -> Floats:
    """Queries as one real per bit."""
    out = signs(codes, n_bits)
    return out if weights is None else out * weights
