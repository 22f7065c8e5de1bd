"""One contract over every engine, against the NumPy reference and `Index`."""

import itertools
import os
import sys

import numpy as np
import pytest
from gpu_numpy import NumpyDevice
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from milvus_server import ON_DEMAND

import bitrank
from bitrank import Index, QueryVectorRanker
from bitrank.core.codes import hamming, pack, weighted_hamming
from bitrank.core.types import Queries, SearchIndex
from bitrank.engines import ENGINES, quantize_weights
from bitrank.gpu import index as gpu_index
from bitrank.gpu.index import GpuIndex

# Addresses other than `scheme://`; of engines that run on servers, fixtures `<scheme>_address` start them.
# Names of tables differ in every test.
ADDRESSES = {
    "shards": ["memory://"] * 3,
    "usearch": "usearch://?scan=true",  # compares every code, since the graph may miss some
}
SERVERS = {"postgresql", "clickhouse", "milvus"}
# Engines that cannot weigh bits.
RERANK_ONLY = {"milvus", "usearch"}
# Engines under test: Milvus in `make test-milvus` only.
RUNNING = [scheme for scheme in [*ENGINES, "shards"] if scheme != "milvus" or ON_DEMAND in os.environ]
METHODS = ["exact", "rerank"]

NAMES = (f"codes_{number}" for number in itertools.count())


@pytest.fixture(params=RUNNING)
def scheme(request):
    return request.param


@pytest.fixture
def connect(scheme, request):
    """Connect to the engine, under a new name unless one is passed."""
    server = scheme in SERVERS
    address = request.getfixturevalue(f"{scheme}_address") if server else ADDRESSES.get(scheme, f"{scheme}://")
    opened = []

    def connect(name=None, **options):
        opened.append(bitrank.connect(address, next(NAMES) if name is None else name, **options))
        return opened[-1]

    yield connect
    for engine in opened:
        engine.close()


@pytest.fixture(params=METHODS)
def method(scheme, request):
    """The methods of an engine."""
    if request.param == "exact" and scheme in RERANK_ONLY:
        pytest.skip("no exact search")
    return request.param


def random_codes(n, n_bits, seed=0):
    return pack(np.random.default_rng(seed).integers(0, 2, (n, n_bits)))


def reference(queries, codes, ids, weights, k):
    """Ids and distances by NumPy alone."""
    distances = weighted_hamming(queries, codes, weights)
    order = np.array([np.lexsort((ids, row)) for row in distances])[:, :k]
    found = ids[order], np.take_along_axis(distances, order, axis=1)
    missing = ((0, 0), (0, k - order.shape[1]))
    return np.pad(found[0], missing, constant_values=-1), np.pad(found[1], missing, constant_values=np.inf)


def assert_same(results, expected):
    assert results.ids.dtype == np.int64
    assert results.distances.dtype == np.float32
    np.testing.assert_array_equal(results.ids, expected[0])
    np.testing.assert_array_equal(results.distances, expected[1])


def filled(connect, n, n_bits, seed=0):
    """An engine with n codes under ids that are not their rows."""
    engine = connect()
    engine.create(n_bits)
    codes, ids = random_codes(n, n_bits, seed), np.random.default_rng(seed).permutation(10 * n)[:n]
    engine.add(codes, ids)
    return engine, codes, ids


@pytest.mark.parametrize("n_bits", [16, 32, 64, 98, 128, 256, 1000, 1024])
def test_exact_ranks_as_the_reference_and_as_index(scheme, connect, n_bits):
    engine, codes, ids = filled(connect, 300, n_bits)
    queries = random_codes(3, n_bits, seed=1)
    weights = quantize_weights(np.random.default_rng(2).lognormal(0, 1, n_bits))
    if scheme in RERANK_ONLY:
        with pytest.raises(ValueError, match=r'method must be "rerank" for .*, which cannot weigh bits, got "exact"'):
            engine.search(queries, 5, weights, method="exact")
        assert_same(engine.search(queries, 5, weights), engine.search(queries, 5, weights, method="rerank"))
        return
    results = engine.search(queries, 20, weights)
    assert_same(results, reference(queries, codes, ids, weights, 20))
    assert_same(results, Index(codes, n_bits=n_bits, ids=ids).search(queries, 20, weights))
    assert_same(engine.search(queries, 20, weights, method="exact"), results)


def test_exact_takes_weights_per_query_and_none(scheme, connect):
    if scheme in RERANK_ONLY:
        pytest.skip("no exact search")
    engine, codes, ids = filled(connect, 200, 24)
    queries = random_codes(4, 24, seed=1)
    weights = quantize_weights(np.random.default_rng(2).random((4, 24)), bits=5)
    assert_same(engine.search(queries, 7, weights), reference(queries, codes, ids, weights, 7))
    assert_same(engine.search(queries, 7), reference(queries, codes, ids, np.ones(24), 7))
    assert_same(engine.search(queries, 7, np.zeros(24)), reference(queries, codes, ids, np.zeros(24), 7))
    for large in (np.full(24, 1 << 20), np.arange(24) * 1e30):
        assert_same(engine.search(queries, 7, large), reference(queries, codes, ids, large, 7))


@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_exact_takes_any_weights(scheme, connect, spread):
    """Also those that whole numbers of few bits tell badly apart, and codes of which many are equal."""
    if scheme in RERANK_ONLY:
        pytest.skip("no exact search")
    engine = connect()
    engine.create(20)
    codes = np.repeat(random_codes(30, 20), 15, axis=0)
    ids = np.random.default_rng(0).permutation(len(codes))
    engine.add(codes, ids)
    queries = random_codes(4, 20, seed=1)
    weights = np.random.default_rng(2).lognormal(0, spread, (4, 20)).astype(np.float32)
    for k in (1, 20, len(codes) + 5):
        assert_same(engine.search(queries, k, weights), reference(queries, codes, ids, weights, k))


def test_queries_of_a_ranker(connect, method):
    """What `Ranker.queries_for` returns is searched as it is."""
    engine, codes, ids = filled(connect, 200, 24)
    queries = Queries(random_codes(4, 24, seed=1), np.random.default_rng(2).random((4, 24), np.float32))
    expected = reference(queries.codes, codes, ids, queries.weights, 7)
    assert_same(engine.search(queries, k=7, method=method), expected)
    with pytest.raises(ValueError, match="weights must be None"):
        engine.search(queries, 7, np.ones(24), method=method)


@pytest.mark.parametrize("n_bits", [16, 64, 98, 1024])
def test_candidates_for_all_rank_as_the_reference(connect, n_bits):
    engine, codes, ids = filled(connect, 150, n_bits)
    queries = random_codes(3, n_bits, seed=1)
    weights = np.random.default_rng(2).random((3, n_bits)).astype(np.float32)
    expected = reference(queries, codes, ids, weights, 10)
    for candidates in (None, 150, 400):
        assert_same(engine.search(queries, 10, weights, method="rerank", candidates=candidates), expected)
    engine.optimize()
    assert_same(engine.search(queries, 10, weights, method="rerank"), expected)


def test_candidates_are_the_nearest_by_hamming_distance(scheme, connect):
    engine, codes, ids = filled(connect, 500, 64)
    queries = random_codes(5, 64, seed=1)
    weights = np.random.default_rng(2).lognormal(0, 1, 64).astype(np.float32)
    results = engine.search(queries, 10, weights, method="rerank", candidates=40)
    row = {number: at for at, number in enumerate(ids)}
    plain, weighted = hamming(queries, codes), weighted_hamming(queries, codes, weights)
    for at in range(5):
        rows = [row[number] for number in results.ids[at]]
        np.testing.assert_array_equal(results.distances[at], weighted[at, rows])
        assert sorted(rows, key=lambda r: (weighted[at, r], ids[r])) == rows
        # Which of the codes at the farthest Hamming distance are candidates is the engine's choice.
        limit = np.sort(plain[at])[39]
        assert scheme == "shards" or (plain[at, rows] <= limit).all()  # each shard brings as many
        sure = np.flatnonzero((plain[at] < limit) & (weighted[at] < results.distances[at, -1]))
        assert set(sure) <= set(rows)


def test_magnitudes_of_reals_multiply_the_weights(connect, method):
    engine, codes, ids = filled(connect, 100, 20)
    reals = np.random.default_rng(3).normal(size=(2, 20)).astype(np.float32)
    weights = np.random.default_rng(4).random(20).astype(np.float32)
    expected = reference(pack(reals > 0), codes, ids, weights * np.abs(reals), 5)
    assert_same(engine.search(reals, 5, weights, method=method), expected)


@settings(max_examples=settings.default.max_examples // 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_shapes_and_values(scheme, connect, data):
    n_bits = data.draw(st.integers(1, 80))
    n = data.draw(st.integers(0, 40))
    largest = 2**63 - (2 if scheme == "milvus" else 1)
    ids = data.draw(st.lists(st.integers(0, largest), min_size=n, max_size=n, unique=True))
    codes = random_codes(n, n_bits, data.draw(st.integers(0, 9))) if n else np.empty((0, (n_bits + 7) // 8), np.uint8)
    queries = random_codes(data.draw(st.integers(1, 3)), n_bits, 99)
    weights = np.array(data.draw(st.lists(st.integers(0, 255), min_size=n_bits, max_size=n_bits)), np.float32)
    k = data.draw(st.integers(1, 50))
    engine = connect()
    engine.create(n_bits)
    engine.add(codes, np.array(ids, np.int64))
    assert engine.count() == n
    expected = reference(queries, codes, np.array(ids, np.int64), weights, k)
    assert_same(engine.search(queries, k, weights, method="rerank"), expected)
    if scheme not in RERANK_ONLY:
        assert_same(engine.search(queries, k, weights), expected)
        floats = weights * np.float32(0.37)
        assert_same(engine.search(queries, k, floats), reference(queries, codes, np.array(ids, np.int64), floats, k))
    engine.close()


def test_adding_removing_and_adding_again(connect, method):
    engine, codes, ids = filled(connect, 100, 32)
    engine.add(codes, ids)  # a retry
    assert engine.count() == 100
    engine.remove(ids[:30])
    engine.remove(np.append(ids[:30], 10**12))  # a retry, and one that never was
    assert engine.count() == 70
    engine.add(codes[:10], ids[30:40])  # other codes for ids that are there
    codes = np.concatenate([codes[:10], codes[40:]])
    queries, weights = random_codes(3, 32, seed=5), np.arange(32)
    assert_same(engine.search(queries, 15, weights, method=method), reference(queries, codes, ids[30:], weights, 15))
    engine.add(np.empty((0, 4), np.uint8), np.empty(0, np.int64))
    engine.remove([])
    assert engine.count() == 70


def test_ids_and_the_codes_of_ids(connect):
    engine = connect()
    engine.create(n_bits=98)
    assert engine.ids.tolist() == []
    codes = random_codes(60, 98)
    ids = np.random.default_rng(3).permutation(1000)[:60]
    engine.add(codes, ids)
    engine.remove(ids[:5])
    listed = engine.ids
    assert listed.dtype == np.int64
    assert listed.tolist() == sorted(ids[5:].tolist())
    asked = ids[[40, 7, 40, 20]]
    np.testing.assert_array_equal(engine.codes(asked), codes[[40, 7, 40, 20]])
    assert engine.codes(asked[:0]).shape == (0, 13)
    unknown = int(np.setdiff1d(np.arange(1000), ids)[0])
    for missing in (unknown, int(ids[0]), -1):
        with pytest.raises(ValueError, match=f"ids must be in the engine, got {missing}, which is not"):
            engine.codes([int(ids[9]), missing])


@pytest.fixture(params=["Index", "GpuIndex", *RUNNING])
def any_index(request, monkeypatch):
    """Make any `SearchIndex` of codes and ids, empty or not."""
    if request.param == "Index":
        return lambda codes, ids, n_bits: Index(codes, ids=ids, n_bits=n_bits)
    if request.param == "GpuIndex":
        monkeypatch.setattr(gpu_index, "Device", NumpyDevice)
        return lambda codes, ids, n_bits: GpuIndex(codes, ids=ids, n_bits=n_bits)
    scheme = request.param
    address = request.getfixturevalue(f"{scheme}_address") if scheme in SERVERS else ADDRESSES.get(scheme)

    def make(codes, ids, n_bits):
        engine = bitrank.connect(address or f"{scheme}://", next(NAMES))
        request.addfinalizer(engine.close)
        engine.create(n_bits)
        engine.add(codes, ids)
        return engine

    return make


@pytest.mark.parametrize("n", [0, 1, 300])
def test_the_contract_of_everything_that_searches(any_index, n):
    """`SearchIndex`: what a collection and a ranker ask of an index, a GPU or an engine."""
    codes, ids = (
        random_codes(n, 98) if n else np.empty((0, 13), np.uint8),
        np.random.default_rng(0).permutation(9 * n)[:n],
    )
    index: SearchIndex = any_index(codes, ids, 98)
    assert index.n_bits == 98
    assert index.ids.dtype == np.int64
    assert index.ids.tolist() == sorted(ids.tolist())
    some = np.random.default_rng(1).permutation(n)[:70]
    np.testing.assert_array_equal(index.codes(ids[some]), codes[some])
    assert index.codes(ids[:0]).shape == (0, 13)
    with pytest.raises(ValueError, match=f"ids must be in the .*, got {9 * n}, which is not"):
        index.codes([*ids[:1], 9 * n])
    sample = index.sample(50)
    assert sample.shape == (min(n, 50), 13)
    assert as_set(sample) <= as_set(codes)
    np.testing.assert_array_equal(index.sample(50), sample)
    queries, weights = random_codes(3, 98, seed=1), np.random.default_rng(2).random((3, 98)).astype(np.float32)
    expected = reference(queries, codes, ids, weights, 20)
    assert_same(index.search(queries, 20, weights, method="rerank", candidates=400), expected)
    assert_same(index.search(Queries(queries, weights), k=20, method="rerank"), expected)
    with pytest.raises(ValueError, match="k must be"):
        index.search(queries, 0, weights)


def as_set(codes):
    return {code.tobytes() for code in codes}


def test_a_sample_is_drawn_evenly_and_stays_the_same(connect):
    engine = connect()
    engine.create(24)
    assert engine.sample(5).shape == (0, 3)
    codes = pack((np.arange(600)[:, None] >> np.arange(24)) & 1)  # all different: the row number in the first ten bits
    engine.add(codes, 10 * np.arange(600))
    sample = engine.sample(100)
    assert sample.dtype == np.uint8
    assert sample.shape == (100, 3)
    assert len(as_set(sample)) == 100
    assert as_set(sample) <= as_set(codes)
    np.testing.assert_array_equal(engine.sample(100), sample)
    rows = np.flatnonzero([code.tobytes() in as_set(sample) for code in codes])
    assert 20 <= (rows < 200).sum() <= 50  # a third, and not those that were added first or last
    assert 20 <= (rows >= 400).sum() <= 50
    assert as_set(engine.sample(1000)) == as_set(codes)
    engine.remove(10 * np.arange(300))
    assert as_set(engine.sample(1000)) == as_set(codes[300:])


@pytest.fixture(scope="module")
def two_of_four():
    """A ranker that learned two of four classes, with the codes and classes of all."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 100)
    codes = pack(np.repeat(rng.integers(2, size=(4, 32)), 100, axis=0) ^ (rng.random((400, 32)) < 0.15))
    ranker = QueryVectorRanker(n_steps=10, random_state=0).fit(codes[y < 2], y[y < 2])
    ranker.bits_part_ = ranker.bits_part_._replace(blend=0.5)  # whatever the gate says of so few rows
    return ranker, codes, y


def test_engines_know_what_they_hold(connect):
    engine, codes, ids = filled(connect, 40, 24)
    absent = next(number for number in range(400) if number not in ids)
    assert (len(engine), engine.largest_id) == (40, ids.max())
    assert engine.holds([int(ids[3]), absent, -1]).tolist() == [True, False, False]
    queries, weights = random_codes(2, 24, seed=1), np.random.default_rng(0).random((2, 24)).astype(np.float32)
    found = engine.distances(queries, np.array([[ids[3], absent, ids[5]], [-1, ids[5], ids[5]]]), weights)
    expected = weighted_hamming(queries, codes, weights)
    np.testing.assert_array_equal(
        found, [[expected[0, 3], np.inf, expected[0, 5]], [np.inf, expected[1, 5], expected[1, 5]]]
    )
    assert np.isinf(engine.distances(queries, np.full((2, 1), absent))).all()
    engine.remove(ids)
    assert engine
    assert (len(engine), engine.largest_id) == (0, -1)


def test_trust_is_told_from_an_engine(connect, two_of_four):
    ranker, codes, y = two_of_four
    engine = connect()
    engine.create(32)
    engine.add(codes, np.arange(400))
    trust = ranker.queries_for(codes, collection=engine).trust
    assert trust[y < 2].mean() > trust[y >= 2].mean() + 0.3
    # The order of a sample does not matter to it.
    np.testing.assert_allclose(trust, ranker.queries_for(codes, collection=codes).trust, atol=0.02)


def test_fewer_codes_than_k_and_no_query(connect, method):
    engine = connect()
    engine.create(16)
    assert engine.search(random_codes(2, 16), 3, method=method).ids.tolist() == [[-1] * 3] * 2
    engine.add(random_codes(2, 16), [5, 4])
    assert (engine.search(random_codes(2, 16), 4, method=method).ids[:, 2:] == -1).all()
    assert engine.search(np.empty((0, 2), np.uint8), 4, method=method).ids.shape == (0, 4)


def test_creating_again_keeps_the_codes_and_another_shape_is_refused(connect):
    engine, _, _ = filled(connect, 10, 24)
    engine.create(24)
    assert (engine.count(), engine.n_bits) == (10, 24)
    with pytest.raises(ValueError, match=r"32.*24"):
        engine.create(32)
    assert (engine.count(), engine.n_bits) == (10, 24)


def test_without_a_table_the_error_says_create(connect):
    engine = connect()
    for call in (
        engine.count,
        engine.optimize,
        lambda: engine.n_bits,
        lambda: engine.add(random_codes(1, 8), [0]),
        lambda: engine.remove([0]),
        lambda: engine.search(random_codes(1, 8), 1),
        lambda: engine.sample(1),
    ):
        with pytest.raises(ValueError, match=r"create\(n_bits\)"):
            call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.create(0), "n_bits must be"),
        (lambda e: e.create(1.5), "n_bits must be"),
        (lambda e: e.add(random_codes(2, 32), [1, 2]), "3 bytes wide"),
        (lambda e: e.add(np.full((1, 3), 255, np.uint8), [1]), "zero"),
        (lambda e: e.add(random_codes(2, 20), [1]), "one value for each of the 2"),
        (lambda e: e.add(random_codes(2, 20), [1, 1]), "unique"),
        (lambda e: e.add(random_codes(1, 20), [-1]), "from 0 to"),
        (lambda e: e.remove([0.5]), "vector of ints"),
        (lambda e: e.search(random_codes(1, 32), 5), "3 bytes wide"),
        (lambda e: e.search(random_codes(1, 20), 0), "k must be"),
        (lambda e: e.search(random_codes(1, 20), 5, np.ones(19)), "20 values"),
        (lambda e: e.search(random_codes(1, 20), 5, -np.ones(20)), "not negative"),
        (lambda e: e.search(random_codes(1, 20), 5, method="rerank", candidates=0), "candidates must be"),
        (lambda e: e.search(random_codes(1, 20), 5, method="rerank", candidates="all"), "candidates must be"),
        (lambda e: e.search(random_codes(1, 20), 5, method="exact", candidates=10), "None unless method is .* got 10"),
        (lambda e: e.search(random_codes(1, 20), 5, method="fast"), "method must be one of"),
        (lambda e: e.sample(0), "n must be"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(connect, call, message):
    engine = connect()
    engine.create(20)
    codes, ids = random_codes(5, 20), np.arange(5)
    engine.add(codes, ids)
    with pytest.raises(ValueError, match=message):
        call(engine)
    assert engine.count() == 5
    assert_same(engine.search(codes, 5, method="rerank"), reference(codes, codes, ids, np.ones(20), 5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nothing://"], "memory://"), (["codes"], "memory://"), ([7], "text"), (["memory://", ""], "not be empty|empty")],
)
def test_connecting_to_nothing_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        bitrank.connect(*arguments)


@pytest.mark.parametrize(
    ("scheme", "module", "extra"),
    [
        ("clickhouse", "clickhouse_connect", "clickhouse"),
        ("chdb", "chdb", "chdb"),
        ("milvus", "pymilvus", "milvus"),
        ("duckdb", "duckdb", "duckdb"),
        ("faiss", "faiss", "faiss"),
        ("usearch", "usearch.index", "usearch"),
    ],
)
def test_without_its_extra_the_error_says_how_to_install_it(monkeypatch, scheme, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'bitrank\[{extra}\]'"):
        bitrank.connect(f"{scheme}://")
