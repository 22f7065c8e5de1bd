"""Batch work on Dask against the same work in memory: equal to the last bit, also when a worker is killed."""

import importlib
import os
import resource
import signal
import sys

import dask
import dask.array as da
import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from hypothesis import given
from hypothesis import strategies as st

import bitrank.dask
from bitrank import ITQ, Index, RankingSVM, SignBits
from bitrank.core import metrics
from bitrank.core.codes import distances, hamming, pack
from bitrank.core.types import Queries
from bitrank.datasets import digits
from bitrank.ranking.evidence.quadruplets import draw_quadruplets


@pytest.fixture(autouse=True)
def in_this_process(request):
    """Tasks run here, one after the other, unless a test asks for a cluster."""
    with dask.config.set(scheduler=None if "client" in request.fixturenames else "synchronous"):
        yield


@pytest.fixture(scope="module")
def cluster():
    settings = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "600MB", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**settings) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    """A client that knows the cluster by its address alone."""
    with Client(cluster.scheduler_address) as client:
        client.wait_for_workers(2, timeout=300)
        yield client


@st.composite
def row_chunks(draw, n):
    cuts = draw(st.lists(st.integers(0, n), max_size=4))
    return tuple(int(size) for size in np.diff([0, *sorted(cuts), n]))


@st.composite
def collections(draw):
    """Codes with many ties, labels, queries, and weights of every kind."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, n_bits, n_queries = draw(st.integers(1, 60)), draw(st.integers(1, 70)), draw(st.integers(1, 5))
    few = rng.integers(0, 2, (draw(st.integers(1, 8)), n_bits))
    noise = rng.random((n + n_queries, n_bits)) < draw(st.sampled_from([0, 0.1, 0.5]))
    codes = pack(few[rng.integers(len(few), size=n + n_queries)] ^ noise)
    weights = draw(
        st.sampled_from(
            [
                None,
                rng.integers(0, 4, n_bits),
                rng.lognormal(0, 1, n_bits),
                rng.lognormal(0, 1, (n_queries, n_bits)),
            ]
        )
    )
    chunks = draw(row_chunks(n))
    labels = rng.integers(0, draw(st.integers(1, 4)), n + n_queries)
    return n_bits, codes[:n], labels[:n], codes[n:], labels[n:], weights, chunks


def split(array, chunks):
    return da.from_array(array, chunks=(chunks, -1) if array.ndim == 2 else (chunks,))


def assert_equal(found, expected):
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)


@given(collections(), st.integers(1, 20), st.booleans())
def test_search_equals_one_index(collection, k, own_ids):
    n_bits, codes, _, queries, _, weights, chunks = collection
    ids = np.random.default_rng(0).permutation(3 * len(codes))[: len(codes)] if own_ids else None
    expected = Index(codes, n_bits=n_bits, ids=ids).search(queries, k, weights)
    ids = None if ids is None else da.from_array(ids, chunks=7)
    assert_equal(bitrank.dask.search(split(codes, chunks), queries, k, weights, n_bits=n_bits, ids=ids), expected)


def test_search_by_reals_equals_one_index():
    rng = np.random.default_rng(0)
    codes, queries, weights = pack(rng.integers(0, 2, (500, 24))), rng.normal(size=(4, 24)), rng.random(24)
    expected = Index(codes).search(queries, 9, weights)
    assert_equal(bitrank.dask.search(da.from_array(codes, chunks=(60, 1)), queries, 9, weights), expected)


def test_queries_of_a_ranker(itq_digits):
    """What `Ranker.queries_for` returns is searched and evaluated as it is."""
    codes, y = itq_digits.codes, itq_digits.y
    queries = Queries(itq_digits.queries[:9], np.random.default_rng(0).random((9, 32), np.float32))
    collection, labels, query_y = da.from_array(codes, chunks=(500, 4)), da.from_array(y, chunks=500), y[:9]
    assert_equal(bitrank.dask.search(collection, queries, 5), Index(codes).search(queries, 5))
    expected = bitrank.dask.evaluate(collection, labels, queries.codes, query_y, queries.weights)
    assert bitrank.dask.evaluate(collection, labels, queries, query_y) == expected


@given(collections())
def test_evaluate_equals_the_whole_matrix(collection):
    n_bits, codes, y, queries, query_y, weights, chunks = collection
    relevant = query_y[:, None] == y
    arguments = split(codes, chunks), split(y, chunks), queries, query_y, weights
    if not relevant.any():
        with pytest.raises(ValueError, match="at least one query must have a relevant item"):
            bitrank.dask.evaluate(*arguments, n_bits=n_bits)
        return
    expected = metrics.evaluate(distances(queries, codes, weights), relevant, ks=[1, 10])
    assert bitrank.dask.evaluate(*arguments, n_bits=n_bits, ks=[1, 10]) == expected


def test_evaluate_by_lots_and_with_short_tables(monkeypatch, itq_digits):
    rng = np.random.default_rng(0)
    weights = rng.lognormal(0, 1, 32)
    queries, query_y = itq_digits.queries[:30], itq_digits.query_y[:30]
    expected = metrics.evaluate(distances(queries, itq_digits.codes, weights), query_y[:, None] == itq_digits.y)
    monkeypatch.setattr(bitrank.dask.evaluation, "MAX_VALUES", 300)
    monkeypatch.setattr(metrics, "_TABLE", 100)
    codes, y = da.from_array(itq_digits.codes, chunks=(500, 4)), da.from_array(itq_digits.y, chunks=400)
    assert bitrank.dask.evaluate(codes, y, queries, query_y, weights) == expected


@given(st.data())
def test_uniform_draws_are_those_in_memory(data):
    y = np.array(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=40)))
    y = y.astype(data.draw(st.sampled_from(["int64", "float32", "U3"])))
    n, seed = data.draw(st.integers(1, 300)), data.draw(st.integers(0, 1000))
    in_blocks = da.from_array(y, chunks=(data.draw(row_chunks(len(y))),))
    try:
        expected = draw_quadruplets(y, n, random_state=seed)
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error)):
            bitrank.dask.draw_quadruplets(in_blocks, n, random_state=seed)
        return
    np.testing.assert_array_equal(bitrank.dask.draw_quadruplets(in_blocks, n, random_state=seed), expected)


def test_near_draws_are_near_distinct_and_of_the_right_classes(itq_digits):
    codes, y = itq_digits.codes, itq_digits.y
    arrays = da.from_array(y, chunks=500), da.from_array(codes, chunks=(350, 4))
    found = bitrank.dask.draw_quadruplets(
        arrays[0], 5000, strategy="near", codes=arrays[1], n_neighbors=50, random_state=1
    )
    assert found.shape == (5000, 4)
    assert len(np.unique(found, axis=0)) == 5000
    query, dissimilar, first, second = found.T
    assert (y[query] == y[first]).all()
    assert (y[query] == y[second]).all()
    assert (y[query] != y[dissimilar]).all()
    assert ((query != first) & (query != second) & (first != second)).all()
    all_distances = hamming(codes, codes)
    # The query itself is at distance 0, so the 50 nearest others reach to the 51st place.
    reach = np.sort(all_distances, axis=1)[:, 50]
    for item in (dissimilar, first, second):
        assert (all_distances[query, item] <= reach[query]).all()
    again = bitrank.dask.draw_quadruplets(
        arrays[0], 5000, strategy="near", codes=arrays[1], n_neighbors=50, random_state=1
    )
    np.testing.assert_array_equal(found, again)


def test_near_prefers_no_rows_among_equals():
    y = da.from_array(np.arange(4000) % 2, chunks=500)
    codes = da.zeros((4000, 2), dtype=np.uint8, chunks=(600, 2))
    found = bitrank.dask.draw_quadruplets(y, 3000, strategy="near", codes=codes, n_neighbors=30, random_state=0)
    assert 1500 < found[:, 1:].mean() < 2500
    assert (np.diff(found[:, 1:], axis=1) != 0).all()


def test_encode_equals_transform(itq_digits):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20)).astype(np.float32)
    hasher = ITQ(n_bits=13, random_state=0).fit(X)
    codes = bitrank.dask.encode(hasher, da.from_array(X, chunks=((100, 0, 200), (7, 13))))
    assert codes.chunks == ((100, 0, 200), (2,))
    np.testing.assert_array_equal(codes.compute(), hasher.transform(X))


CODES = da.zeros((6, 2), dtype=np.uint8, chunks=(4, 2))
Y = da.arange(6, chunks=3)
QUERY = np.zeros((1, 2), np.uint8)
UNKNOWN = CODES[da.from_array(np.arange(6) < 3, chunks=4)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bitrank.dask.search(np.zeros((6, 2), np.uint8), QUERY, 1), "codes must be a Dask array, got ndarray"),
        (lambda: bitrank.dask.search(CODES.astype(int), QUERY, 1), "packed uint8 matrix, got int64"),
        (lambda: bitrank.dask.search(UNKNOWN, QUERY, 1), "compute_chunk_sizes"),
        (lambda: bitrank.dask.search(CODES[:0], QUERY, 1), "at least one row"),
        (lambda: bitrank.dask.search(CODES[:, 0], QUERY, 1), "2 dimension"),
        (lambda: bitrank.dask.search(CODES, QUERY, 1, n_bits=17), "3 bytes wide, got 2"),
        (lambda: bitrank.dask.search(CODES + np.uint8(1), QUERY, 1, n_bits=15), "last 1 bits of a row zero"),
        (lambda: bitrank.dask.search(CODES, QUERY, 0), "k must be an int of at least 1"),
        (lambda: bitrank.dask.search(CODES, QUERY[:, :1], 1), "2 bytes wide, got 1"),
        (lambda: bitrank.dask.search(CODES, QUERY, 1, [-1] * 16), "not negative"),
        (lambda: bitrank.dask.search(CODES, QUERY, 1, ids=Y[:5]), "each of the 6 codes, got 5"),
        (lambda: bitrank.dask.search(CODES, QUERY, 1, ids=Y - 3), "ids must be from 0"),
        (lambda: bitrank.dask.search(CODES, QUERY, 6, ids=Y % 5), "ids must be unique, got 0"),
        (lambda: bitrank.dask.evaluate(CODES, Y[:5], QUERY, [1]), "y must hold one value for each of the 6"),
        (lambda: bitrank.dask.evaluate(CODES, Y, QUERY, [1, 2]), "each of the 1 queries"),
        (lambda: bitrank.dask.evaluate(CODES, Y, QUERY, [1], np.ones((2, 16))), "one row for each of the 1 queries"),
        (lambda: bitrank.dask.evaluate(CODES, Y, QUERY, [1], ks=[0]), "k must be an int of at least 1"),
        (lambda: bitrank.dask.encode(SignBits().fit(np.eye(3)), CODES), "3 features of the hasher, got 2"),
        (lambda: bitrank.dask.draw_quadruplets(Y, 0), "n_quadruplets must be at least 1"),
        (lambda: bitrank.dask.draw_quadruplets(Y // 3, 5, strategy="far"), "strategy must be one of"),
        (lambda: bitrank.dask.draw_quadruplets(Y // 3, 5, strategy="near"), 'for strategy "near", got None'),
        (
            lambda: bitrank.dask.draw_quadruplets(Y // 3, 5, strategy="near", codes=CODES[:5]),
            "each of the 6 labels, got 5",
        ),
        (lambda: bitrank.dask.draw_quadruplets(Y / 0, 5), "y must be finite"),
        (lambda: bitrank.dask.to_parquet({}, "nowhere"), "at least one array"),
        (lambda: bitrank.dask.to_parquet({"a": CODES, "b": Y[:5]}, "nowhere"), "one length"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_bad_input_is_a_value_error(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["dask", "pyarrow"])
def test_a_missing_extra_names_the_command(module, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("bitrank.dask", f"{module}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=rf"needs {module}\b.*: pip install 'bitrank\[dask\]'"):
        importlib.import_module("bitrank.dask")


@pytest.mark.slow
def test_the_whole_path_on_a_cluster(client, tmp_path):
    images, labels = digits()
    X = images[:3000].reshape(3000, -1).astype(np.float32)
    y, queries = labels[:3000].astype(np.int64), images[3000:3040].reshape(40, -1).astype(np.float32)
    hasher = ITQ(n_bits=32, random_state=0).fit(X[:1000])
    vectors = {"vector": da.from_array(X, chunks=(700, 784)), "label": da.from_array(y, chunks=700)}
    bitrank.dask.to_parquet(vectors, tmp_path / "vectors")

    labels_there = bitrank.dask.from_parquet(tmp_path / "vectors", "label")
    codes_there = bitrank.dask.encode(hasher, bitrank.dask.from_parquet(tmp_path / "vectors", "vector"))
    bitrank.dask.to_parquet({"code": codes_there, "label": labels_there}, tmp_path / "codes")
    codes, codes_there = hasher.transform(X), bitrank.dask.from_parquet(tmp_path / "codes")
    np.testing.assert_array_equal(codes_there.compute(), codes)

    quadruplets = bitrank.dask.draw_quadruplets(labels_there, 500, random_state=0)
    np.testing.assert_array_equal(quadruplets, draw_quadruplets(y, 500, random_state=0))
    rows, numbers = np.unique(quadruplets, return_inverse=True)
    ranker = RankingSVM(random_state=0, C=1.0).fit_constraints(
        codes_there[rows].compute(), numbers.reshape(quadruplets.shape)
    )
    asked, query_y = hasher.transform(queries), labels[3000:3040]
    expected = Index(codes).search(asked, 20, ranker.weights_)
    assert_equal(bitrank.dask.search(codes_there, asked, 20, ranker.weights_), expected)
    figures = metrics.evaluate(distances(asked, codes, ranker.weights_), query_y[:, None] == y)
    assert bitrank.dask.evaluate(codes_there, labels_there, asked, query_y, ranker.weights_) == figures


def killing(flag, start):
    """A function of blocks that kills its worker, once, when it comes to the block that begins at a row."""

    def pass_on(block, block_info):
        if block_info[0]["array-location"][0][0] == start and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    return pass_on


def pids(client):
    return set(client.run(os.getpid).values())


@pytest.mark.slow  # a worker is killed in a write below
def test_a_worker_killed_in_a_search_changes_nothing(client, tmp_path):
    rng = np.random.default_rng(0)
    codes, queries = rng.integers(0, 256, (4000, 8), dtype=np.uint8), rng.integers(0, 256, (5, 8), dtype=np.uint8)
    weights = rng.lognormal(0, 1, 64)
    before = pids(client)
    deadly = da.from_array(codes, chunks=(200, 8)).map_blocks(killing(tmp_path / "killed", 2000), dtype=np.uint8)
    assert_equal(bitrank.dask.search(deadly, queries, 30, weights), Index(codes).search(queries, 30, weights))
    assert (tmp_path / "killed").exists()
    client.wait_for_workers(2, timeout=300)
    assert len(pids(client) & before) == 1


@pytest.mark.slow
def test_a_worker_killed_in_a_write_leaves_a_whole_folder(client, tmp_path):
    codes = np.random.default_rng(0).integers(0, 256, (1000, 8), dtype=np.uint8)
    deadly = da.from_array(codes, chunks=(100, 8)).map_blocks(killing(tmp_path / "killed", 500), dtype=np.uint8)
    bitrank.dask.to_parquet({"code": deadly}, tmp_path / "codes")
    assert (tmp_path / "killed").exists()
    assert len(os.listdir(tmp_path / "codes")) == 10
    np.testing.assert_array_equal(bitrank.dask.from_parquet(tmp_path / "codes").compute(), codes)


def peak_memory(client):
    """Most memory that each worker has held, in MB, by process."""
    use = client.run(lambda: (os.getpid(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    return dict(use.values())


@pytest.mark.parametrize("n_parts", [8, pytest.param(128, marks=pytest.mark.slow)])  # 128 exceed a worker's memory
def test_memory_stays_bounded_over_a_large_folder(client, tmp_path, n_parts):
    rng = np.random.default_rng(0)
    codes, queries = rng.integers(0, 256, (50_000, 128), dtype=np.uint8), rng.integers(0, 256, (2, 128), dtype=np.uint8)
    bitrank.dask.to_parquet({"code": da.from_array(codes, chunks=(50_000, 128))}, tmp_path / "one")
    part = tmp_path / "one" / "part-000000.parquet"
    for number in range(1, n_parts):  # the same file under many names, read as many
        os.link(part, part.with_name(f"part-{number:06}.parquet"))
    weights = rng.lognormal(0, 1, 1024)
    before = peak_memory(client)
    found = bitrank.dask.search(bitrank.dask.from_parquet(tmp_path / "one"), queries, 5, weights)
    # Every copy ties: the nearest code is found in each, and the least ids win.
    expected = Index(codes).search(queries, 1, weights)
    np.testing.assert_array_equal(found.ids, expected.ids + 50_000 * np.arange(5))
    np.testing.assert_array_equal(found.distances, np.tile(expected.distances, 5))
    after = peak_memory(client)
    assert after.keys() == before.keys()  # none was killed for its use of memory
    assert all(after[pid] - before[pid] < 200 for pid in before), (before, after)
