"""Indexes of vectors that others make, each built from vectors and asked for ids, and bitrank's own.

A contender is a function from vectors and a metric to `Built`, or to None where it has no such metric. Bytes per item
are those of the codes: what all items share (rotations, axes, codebooks) and ids are left out, edges of graphs are not.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import usearch.index

from bitrank import Collection

Search = Callable[[np.ndarray, int], np.ndarray]
N_SAMPLE = 10_000  # rows that codebooks are trained on


class Built(NamedTuple):
    """A search, the bytes per item in all, and those read for every item of a scan."""

    search: Search
    n_bytes: float
    n_scanned: float


def collection(bits: float | None, X: np.ndarray, metric: str) -> Built:
    """bitrank: vectors in, ids out."""
    made = Collection.from_vectors(X, bits=bits, metric=metric, random_state=0)
    scanned = getattr(made.index, "n_scanned", made.n_bits)
    return Built(lambda Q, k: made.search(Q, k, threads=1).ids, made.bytes_per_item, -(-scanned // 8))


def flat(X: np.ndarray, metric: str) -> Built:
    """FAISS IndexFlat: float32, exact."""
    return _faiss(faiss.IndexFlat(X.shape[1], _metric(metric)), X)


def rabitq(bits: int, X: np.ndarray, metric: str) -> Built:
    """FAISS IndexRaBitQ, after a random rotation as its authors have it."""
    d = X.shape[1]
    return _faiss(faiss.IndexRaBitQ(d, _metric(metric), bits), X, faiss.RandomRotationMatrix(d, d))


def rabitq_fast_scan(bits: int, X: np.ndarray, metric: str) -> Built:
    """FAISS IndexRaBitQFastScan."""
    d = X.shape[1]
    return _faiss(faiss.IndexRaBitQFastScan(d, _metric(metric), 32, bits), X, faiss.RandomRotationMatrix(d, d))


def pq_fast_scan(X: np.ndarray, metric: str) -> Built:
    """FAISS IndexPQFastScan: four bits for every two dimensions."""
    return _faiss(faiss.IndexPQFastScan(X.shape[1], X.shape[1] // 2, 4, _metric(metric)), X)


def opq(X: np.ndarray, metric: str) -> Built:
    """The same after the rotation of optimised product quantisation, ten rounds."""
    d = X.shape[1]
    rotation, quantiser = faiss.OPQMatrix(d, d // 2), faiss.ProductQuantizer(d, d // 2, 4)
    rotation.pq, rotation.niter, rotation.max_train_points = quantiser, 10, N_SAMPLE
    built = _faiss(faiss.IndexPQFastScan(d, d // 2, 4, _metric(metric)), X, rotation)
    rotation.pq = None
    return built


def scalar(kind: str, X: np.ndarray, metric: str) -> Built:
    """FAISS IndexScalarQuantizer."""
    return _faiss(faiss.IndexScalarQuantizer(X.shape[1], getattr(faiss.ScalarQuantizer, kind), _metric(metric)), X)


def turbovec(bits: int, X: np.ndarray, metric: str) -> Built | None:
    """TurboQuant of turbovec, calibrated on random rows."""
    import turbovec

    if metric == "l2":
        return None
    index = turbovec.TurboQuantIndex(X.shape[1], bits)
    index.calibrate(_sample(X, 1024))
    empty = len(index.to_bytes())
    for part in _parts(X):
        index.add(part)
    index.prepare()
    size = (len(index.to_bytes()) - empty) / len(X)
    return Built(lambda Q, k: index.search(Q, k)[1], size, size)


def rabitqlib(bits: int, X: np.ndarray, metric: str) -> Built:
    """The RaBitQ authors' library: IvfIndex with one cluster, so that every code is scanned."""
    import rabitqlib

    index = rabitqlib.IvfIndex(X.shape[1], len(X), 1, bits, metric="l2" if metric == "l2" else "ip")
    index.build(X, X.mean(axis=0, keepdims=True), np.zeros(len(X), np.uint32))
    n_few = min(256, len(X) // 2)
    few = rabitqlib.IvfIndex(X.shape[1], n_few, 1, bits, metric="l2" if metric == "l2" else "ip")
    few.build(np.array(X[:n_few]), X[:n_few].mean(axis=0, keepdims=True), np.zeros(n_few, np.uint32))
    with tempfile.TemporaryDirectory() as folder:
        sizes = []
        for each in (index, few):
            each.save(f"{folder}/index")
            sizes.append(sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()))
    size = (sizes[0] - sizes[1]) / (len(X) - n_few)
    return Built(lambda Q, k: index.search(Q, k, 1)[0], size, size)


def lvq(primary: int, residual: int, X: np.ndarray, metric: str) -> Built:
    """scalable-vs Flat: locally adaptive quantisation, scanned whole."""
    import svs

    with tempfile.TemporaryDirectory() as folder:
        loader = svs.LVQLoader(_svs_loader(X, folder), primary, residual)
        index = svs.Flat(loader, _svs_metric(metric), num_threads=1)
    size = X.shape[1] * (primary + residual) / 8 + 4  # a scale and an offset of 16 bits
    return Built(lambda Q, k: index.search(Q, k)[0], size, size)


def leanvec(X: np.ndarray, metric: str) -> Built:
    """scalable-vs Vamana over LeanVec: a graph over half of the dimensions in 4 bits, ranked again by 8 bits each."""
    import svs

    d = X.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        loader = svs.LeanVecLoader(
            _svs_loader(X, folder), d // 2, svs.LeanVecKind.lvq8, svs.LeanVecKind.lvq8, alignment=0
        )
        options = svs.VamanaBuildParameters(graph_max_degree=32, window_size=64, alpha=1.2 if metric == "l2" else 0.95)
        index = svs.Vamana.build(options, loader, _svs_metric(metric), num_threads=os.cpu_count())
    index.num_threads, index.search_window_size = 1, 100
    return Built(lambda Q, k: index.search(Q, k)[0], d / 2 + 4 + d + 4 + 4 * 33, 0)


def usearch_exact(dtype: str, X: np.ndarray, metric: str) -> Built:
    """USearch, scanned whole: int8 of one scale for all, or signs around the mean."""
    mean, scale = X.mean(axis=0), np.float32(127 / np.abs(X).max())
    if dtype == "b1":
        convert, kind = (lambda rows: np.packbits(rows > mean, axis=1)), "Hamming"
    else:
        convert, kind = (lambda rows: np.rint(rows * scale).clip(-127, 127).astype(np.int8)), _USEARCH[metric]
    codes = convert(X)

    def search(Q: np.ndarray, k: int) -> np.ndarray:
        found = usearch.index.search(codes, convert(Q), k, usearch.index.MetricKind[kind], exact=True, threads=1)
        return np.atleast_2d(found.keys).astype(np.int64)

    return Built(search, codes.shape[1], codes.shape[1])


def hnsw(X: np.ndarray, metric: str) -> Built:
    """hnswlib: the usual graph over float32, M = 16, ef = 100."""
    import hnswlib

    index = hnswlib.Index("l2" if metric == "l2" else "ip", X.shape[1])
    index.init_index(len(X), M=16, ef_construction=200, random_seed=0)
    index.add_items(X, num_threads=os.cpu_count())
    index.set_ef(100)
    return Built(
        lambda Q, k: index.knn_query(Q, k, num_threads=1)[0].astype(np.int64), index.index_file_size() / len(X), 0
    )


def _faiss(index: Any, X: np.ndarray, transform: Any = None) -> Built:
    whole = index if transform is None else faiss.IndexPreTransform(transform, index)
    whole.train(_sample(X, N_SAMPLE if transform is None or isinstance(transform, faiss.OPQMatrix) else 100_000))
    for part in _parts(X):
        whole.add(part)
    return Built(lambda Q, k: whole.search(Q, k)[1], index.code_size, index.code_size)


_USEARCH = {"cosine": "Cos", "dot": "IP", "l2": "L2sq"}


def _metric(metric: str) -> int:
    return faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT


def _sample(X: np.ndarray, n: int) -> np.ndarray:
    rows = np.sort(np.random.default_rng(0).permutation(len(X))[:n])
    return np.ascontiguousarray(X[rows])


def _parts(X: np.ndarray) -> list[np.ndarray]:
    return [np.ascontiguousarray(part) for part in np.array_split(X, max(1, len(X) // 20_000))]


def _svs_loader(X: np.ndarray, folder: str) -> Any:
    import svs

    if "GenuineIntel" not in Path("/proc/cpuinfo").read_text():
        raise RuntimeError("scalable-vs ends the process where LVQ is used on other processors than Intel's")
    svs.np_to_svs(np.ascontiguousarray(X), f"{folder}/x.svs")
    return svs.VectorDataLoader(f"{folder}/x.svs", svs.DataType.float32, X.shape[1])


def _svs_metric(metric: str) -> Any:
    import svs

    return svs.DistanceType.L2 if metric == "l2" else svs.DistanceType.MIP


CONTENDERS: dict[str, Callable[[np.ndarray, str], Built | None]] = {
    "float32, flat": flat,
    "bitrank, ½ bit": partial(collection, 0.5),
    "bitrank, 1 bit": partial(collection, 1),
    "bitrank, 2 bits": partial(collection, 2),
    "bitrank, 4 bits": partial(collection, 4),
    "bitrank, 6 bits": partial(collection, 6),
    "turbovec, 2 bits": partial(turbovec, 2),
    "turbovec, 4 bits": partial(turbovec, 4),
    "FAISS RaBitQ, 1 bit": partial(rabitq, 1),
    "FAISS RaBitQ, 2 bits": partial(rabitq, 2),
    "FAISS RaBitQ, 4 bits": partial(rabitq, 4),
    "FAISS RaBitQFastScan, 1 bit": partial(rabitq_fast_scan, 1),
    "FAISS RaBitQFastScan, 4 bits": partial(rabitq_fast_scan, 4),
    "FAISS PQFastScan, 2 bits": pq_fast_scan,
    "FAISS OPQ, 2 bits": opq,
    "FAISS ScalarQuantizer, 4 bits": partial(scalar, "QT_4bit"),
    "FAISS ScalarQuantizer, 8 bits": partial(scalar, "QT_8bit"),
    "rabitqlib, 1 bit": partial(rabitqlib, 1),
    "rabitqlib, 4 bits": partial(rabitqlib, 4),
    "scalable-vs LVQ4x4": partial(lvq, 4, 4),
    "scalable-vs LVQ8": partial(lvq, 8, 0),
    "scalable-vs LeanVec, graph": leanvec,
    "USearch, i8": partial(usearch_exact, "i8"),
    "USearch, b1": partial(usearch_exact, "b1"),
    "hnswlib, graph": hnsw,
}
