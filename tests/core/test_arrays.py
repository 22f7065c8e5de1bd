"""Arrays of what people have: the same codes from every container, and errors that say what to do."""

import numpy as np
import pytest

from bitrank import Index, SignBits
from bitrank.core.arrays import to_array
from bitrank.core.checks import check_codes, check_labels, check_queries
from bitrank.core.codes import from_embeddings
from bitrank.ranking import UniformRanker

CODES = np.random.default_rng(0).integers(0, 256, (5, 4), dtype=np.uint8)
LISTS, BYTES = CODES.tolist(), [row.tobytes() for row in CODES]


def containers():
    """Every container of the same codes, by name, as a function that imports what it needs."""

    def pandas(kind):
        import pandas as pd

        return {"frame": pd.DataFrame, "arrays": lambda c: pd.Series(list(c)), "bytes": lambda c: pd.Series(BYTES)}[
            kind
        ](CODES)

    def polars(kind):
        pl = pytest.importorskip("polars")
        return {
            "frame": lambda: pl.DataFrame(CODES),
            "lists": lambda: pl.Series(LISTS, dtype=pl.List(pl.UInt8)),
            "arrays": lambda: pl.Series(LISTS, dtype=pl.Array(pl.UInt8, 4)),
            "bytes": lambda: pl.Series(BYTES),
        }[kind]()

    def arrow(kind):
        import pyarrow as pa

        lists = pa.list_(pa.uint8(), 4)
        return {
            "binary": lambda: pa.array(BYTES),
            "fixed": lambda: pa.array(BYTES, pa.binary(4)),
            "lists": lambda: pa.array(LISTS, pa.list_(pa.uint8())),
            "sliced": lambda: pa.array([[0] * 4, *LISTS], lists)[1:],
            "chunked": lambda: pa.chunked_array([pa.array(LISTS[:2], lists), pa.array(LISTS[2:], lists)]),
        }[kind]()

    def torch():
        return pytest.importorskip("torch").from_numpy(CODES.copy())

    def jax():
        return pytest.importorskip("jax").numpy.asarray(CODES)

    def mapped(tmp_path):
        np.save(tmp_path / "codes.npy", CODES)
        return np.load(tmp_path / "codes.npy", mmap_mode="r")

    yield "bytes", lambda _: BYTES
    yield "memory-mapped", mapped
    for kind in ("frame", "arrays", "bytes"):
        yield f"pandas {kind}", lambda _, kind=kind: pandas(kind)
    for kind in ("frame", "lists", "arrays", "bytes"):
        yield f"polars {kind}", lambda _, kind=kind: polars(kind)
    for kind in ("binary", "fixed", "lists", "sliced", "chunked"):
        yield f"arrow {kind}", lambda _, kind=kind: arrow(kind)
    yield "torch", lambda _: torch()
    yield "jax", lambda _: jax()
    yield "dlpack", lambda _: Exported(CODES)


class Exported:
    """An array of another library, which offers DLPack and nothing else."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in containers()])
def test_every_container_gives_the_same_codes(make, tmp_path):
    values = make(tmp_path)
    np.testing.assert_array_equal(to_array(values), CODES)
    assert to_array(values).dtype == np.uint8
    np.testing.assert_array_equal(Index(values).search(values, k=1).ids[:, 0], np.arange(5))
    assert UniformRanker().fit(values).n_bits_ == 32


def test_columns_of_vectors_reach_hashers_queries_and_labels():
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(1).normal(size=(20, 16))
    frame = pandas.DataFrame({"vector": list(X), "name": ["a", "b"] * 10, "id": np.arange(20) + 100})
    codes = from_embeddings(frame["vector"])
    np.testing.assert_array_equal(codes, np.packbits(X > 0, axis=1))
    index = Index(codes, ids=frame["id"])
    np.testing.assert_array_equal(index.search(frame["vector"], k=1).ids[:, 0], frame["id"])
    np.testing.assert_array_equal(check_labels(frame["name"], 20), ["a", "b"] * 10)
    np.testing.assert_array_equal(SignBits().fit(frame["vector"]).mean_, X.mean(axis=0))


def test_rows_of_hugging_face_datasets():
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"code": LISTS, "vector": (CODES / 256 - 0.4).tolist()})
    np.testing.assert_array_equal(from_embeddings(rows["code"]), CODES)
    for vectors in (rows["vector"], rows.with_format("numpy")["vector"], rows.with_format("arrow")["vector"]):
        np.testing.assert_array_equal(from_embeddings(vectors), np.packbits(CODES / 256 > 0.4, axis=1))
    with pytest.raises(ValueError, match=r"one column, got rows of \['code', 'vector'\]: choose one of them"):
        from_embeddings(rows)


def test_bits_and_signs_are_packed():
    bits = np.random.default_rng(2).integers(0, 2, (40, 13)).astype(bool)
    codes = np.packbits(bits, axis=1)
    for form in (bits, np.where(bits, 1, -1), np.where(bits, 1, -1).astype(np.int8), np.where(bits, 1.0, -1.0)):
        index = Index(form)
        assert index.n_bits == 13
        np.testing.assert_array_equal(index.codes(np.arange(40)), codes)
        np.testing.assert_array_equal(check_codes(form, 13), codes)
        np.testing.assert_array_equal(check_queries(form, None, 13)[0], codes)
        assert UniformRanker().fit(form).n_bits_ == 13
    with pytest.raises(ValueError, match="codes must have 12 columns, one per bit, got 13"):
        check_codes(bits, 12)


def test_whole_numbers_with_one_column_per_bit_are_reals():
    reals = np.random.default_rng(3).integers(-127, 128, (4, 24)).astype(np.int8)
    codes, weights = check_queries(reals, None, 24)
    np.testing.assert_array_equal(codes, np.packbits(reals > 0, axis=1))
    np.testing.assert_array_equal(weights, np.abs(reals.astype(float)))


def test_a_tensor_with_a_gradient_is_read():
    torch = pytest.importorskip("torch")
    values = torch.randn(3, 16, requires_grad=True)
    np.testing.assert_array_equal(to_array(values), values.detach().numpy())
    with pytest.raises(ValueError, match=r"got torch Tensor of torch.bfloat16, cpu: move it .* x.float\(\).cpu\(\)"):
        to_array(values.bfloat16())


class OnDevice(Exported):
    dtype, device = "float32", "cuda:0"

    def __dlpack__(self, **options):
        raise BufferError("cannot export from a GPU")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OnDevice(CODES), r"got \w+ OnDevice of float32, cuda:0: .*x.float\(\).cpu\(\)"),
        (lambda: [[1, 2], [3]], "codes must have rows of one length, got lengths .1, 2."),
        (lambda: [b"ab", b"abc"], r"rows of one length, 2 as in row 0, got shape \(3,\) in row 1"),
        (lambda: None, "codes must be an array, got NoneType"),
        (lambda: {"a": [1]}, "codes must be an array, got dict"),
        (lambda: [{"code": [1]}, {"code": [2]}], r"one column, got rows of \['code'\]: choose one of them"),
        (lambda: __import__("scipy.sparse").sparse.eye(3).tocsr(), r"got csr_\w+: call .toarray\(\) first"),
        (lambda: _pandas().Series([[1, 2], None]), "rows of one length, 2 as in row 0, got None in row 1"),
        (lambda: _pandas().DataFrame({"a": ["x"], "b": [1]}), "numbers only, got 'x': choose the columns"),
        (lambda: _arrow().table({"a": [1]}), r"one Arrow column, got a Table of \['a'\]"),
        (lambda: _arrow().array([None, b"ab"]), "no nulls, got 1 of 2"),
        (lambda: _arrow().array([b"a", b"ab"]), "must have one length"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(make, message):
    with pytest.raises(ValueError, match=message):
        check_codes(make())


def _pandas():
    import pandas

    return pandas


def _arrow():
    import pyarrow

    return pyarrow
