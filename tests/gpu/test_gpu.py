"""`bitrank.gpu.GpuIndex` against `Index`: on a GPU where there is one, and everywhere with its kernels in NumPy."""

import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from gpu_numpy import DeviceArray, NumpyDevice
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_reference import WEIGHT_KINDS, assert_equal, random_codes, random_weights

from bitrank import Index
from bitrank.core.codes import merge
from bitrank.core.types import Queries
from bitrank.gpu import chunks, cuda, plan, search
from bitrank.gpu import index as gpu_index

try:
    cuda.Device(0)
    NO_GPU = None
except (ModuleNotFoundError, cuda.DeviceError) as error:
    NO_GPU = str(error)

N_BITS = [12, 16, 32, 40, 64, 98, 128, 192, 256, 384, 512, 1000, 1024]
SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.skipif(NO_GPU is not None, reason=f"the tests on a GPU are left out: {NO_GPU}")
def test_on_a_gpu():
    """One line for all tests that a machine without a GPU leaves out."""


@pytest.fixture(params=["numpy"] if NO_GPU else ["numpy", "cuda"])
def gpu(request, monkeypatch):
    """The index class and an array on its device, over NumPy or CUDA; few codes take every phase of a search."""
    monkeypatch.setattr(plan, "SAMPLE", 512)
    monkeypatch.setattr(plan, "RATIO", 4)
    monkeypatch.setattr(plan, "CAPACITY", 512)
    if request.param == "numpy":
        monkeypatch.setattr(plan, "TILE", 64)
        monkeypatch.setattr(plan, "SAMPLE", 64)
        monkeypatch.setattr(plan, "CAPACITY", 40)
        monkeypatch.setattr(gpu_index, "Device", NumpyDevice)
        return SimpleNamespace(name="numpy", Index=gpu_index.GpuIndex, array=lambda codes: codes.view(DeviceArray))
    import cupy

    return SimpleNamespace(name="cuda", Index=gpu_index.GpuIndex, array=cupy.asarray)


@st.composite
def cases(draw):
    return {
        "seed": draw(st.integers(0, 2**32 - 1)),
        "n": draw(st.one_of(st.integers(0, 200), st.integers(0, 3000))),
        "n_bits": draw(st.sampled_from(N_BITS)),
        "k": draw(st.one_of(st.integers(1, 20), st.integers(1, 2048))),
        "kind": draw(st.sampled_from(WEIGHT_KINDS)),
        "per_query": draw(st.booleans()),
        "clustered": draw(st.booleans()),
        "n_queries": draw(st.sampled_from([0, 1, 1, 2, 5, 20, 70])),
        "gaps": draw(st.booleans()),
        "n_adds": draw(st.integers(1, 3)),
    }


def build(gpu, case, **options):
    """The same rows in both indexes, in one or several chunks, in the order of ids or not."""
    rng = np.random.default_rng(case["seed"])
    n, n_bits = case["n"] * (1 if gpu.name == "numpy" else 10), case["n_bits"]
    codes = random_codes(rng, n, n_bits, case["clustered"])
    ids = rng.choice(3 * n + 5, n, replace=False) if case["gaps"] else np.arange(n)
    queries = random_codes(rng, case["n_queries"] if gpu.name == "cuda" else min(case["n_queries"], 3), n_bits, False)
    if n and len(queries):
        queries[0] = codes[rng.integers(n)]
    shape = (len(queries), n_bits) if case["per_query"] else (n_bits,)
    both = Index(n_bits=n_bits), gpu.Index(n_bits=n_bits, **options)
    for part in np.array_split(np.arange(n), case["n_adds"]):
        for index in both:
            index.add(codes[part], ids[part])
    return rng, *both, ids, queries, random_weights(rng, shape, case["kind"])


@given(case=cases())
@SETTINGS
def test_search_equals_the_cpu_index(gpu, case):
    _, cpu, index, _, queries, weights = build(gpu, case)
    expected = cpu.search(queries, case["k"], weights)
    assert_equal(index.search(queries, case["k"], weights), expected)
    candidates = 1 + case["k"] // 2
    assert_equal(
        index.search(queries, case["k"], weights, method="rerank", candidates=candidates),
        cpu.search(queries, case["k"], weights, method="rerank", candidates=candidates),
    )


@given(case=cases())
@SETTINGS
def test_radius_equals_the_cpu_index(gpu, case):
    rng, cpu, index, _, queries, weights = build(gpu, case)
    distances = cpu.search(queries, 50, weights).distances
    radius = float(rng.choice(distances.ravel())) if distances.size else 1.0
    assert_equal(index.search_radius(queries, radius, weights), cpu.search_radius(queries, radius, weights))
    assert index.search_radius(queries, -1, weights).ids.shape == (len(queries), 0)
    if cpu.n_bits < 100:
        assert_equal(index.search_radius(queries, np.inf, weights), cpu.search_radius(queries, np.inf, weights))


@given(case=cases(), share=st.floats(0, 1), as_mask=st.booleans())
@SETTINGS
def test_filter_and_removal_equal_the_cpu_index(gpu, case, share, as_mask):
    rng, cpu, index, ids, queries, weights = build(gpu, case)
    if as_mask and not case["gaps"]:
        mask = rng.random(len(ids)) < share
        assert_equal(index.search(queries, 7, weights, filter=mask), cpu.search(queries, 7, weights, filter=mask))
    gone = rng.random(len(ids)) < share / 2
    for one in (cpu, index):
        one.remove(ids[gone])
    assert len(index) == len(cpu)
    np.testing.assert_array_equal(index.ids, cpu.ids)
    wanted = rng.random(len(cpu)) < share
    chosen = wanted if as_mask else rng.permutation(cpu.ids[wanted])
    assert_equal(
        index.search(queries, case["k"], weights, filter=chosen), cpu.search(queries, case["k"], weights, filter=chosen)
    )
    distances = np.sort(cpu.search(queries, 20, weights).distances.ravel())
    radius = float(distances[len(distances) // 2]) if len(distances) else 1.0
    assert_equal(
        index.search_radius(queries, radius, weights, filter=chosen),
        cpu.search_radius(queries, radius, weights, filter=chosen),
    )


@given(case=cases(), share=st.sampled_from([0, 0.3]))
@SETTINGS
def test_streamed_chunks_equal_the_cpu_index(gpu, case, share):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "MERGED_BYTES", 1 << 14)
        patch.setattr("bitrank.gpu.index.STREAMED_BYTES", 1 << 13)
        memory = int(share * case["n"] * case["n_bits"] / 8)
        _, cpu, index, ids, queries, weights = build(gpu, case, memory=memory, overflow="stream")
        assert case["n"] < 10 or any(chunk.streamed for chunk in index._chunks)
        expected = cpu.search(queries, case["k"], weights)
        assert_equal(index.search(queries, case["k"], weights), expected)
        for one in (cpu, index):
            one.remove(ids[::3])
        assert_equal(index.search(queries, case["k"], weights), cpu.search(queries, case["k"], weights))
        assert_equal(index.search_radius(queries, 1, weights), cpu.search_radius(queries, 1, weights))


@given(seed=st.integers(0, 2**32 - 1))
@settings(SETTINGS, max_examples=20)
def test_any_sequence_of_writes(gpu, seed):
    rng = np.random.default_rng(seed)
    n_bits = int(rng.choice([16, 64, 98]))
    cpu, index = Index(n_bits=n_bits), gpu.Index(n_bits=n_bits)
    for _ in range(12):
        n = int(rng.integers(0, 300))
        action = rng.random()
        if action < 0.2:
            some, codes = rng.permutation(cpu.ids)[:n], random_codes(rng, n, n_bits, False)[: len(cpu)]
            cpu.update(some, codes)
            index.update(some, gpu.array(codes) if rng.integers(2) and len(codes) else codes)
        elif action < 0.7:
            codes = random_codes(rng, n, n_bits, bool(rng.integers(2)))
            ids = None if rng.integers(2) else rng.permutation(n) + max(cpu.ids, default=-1) + 1
            cpu.add(codes, ids)
            index.add(gpu.array(codes) if rng.integers(2) and n else codes, ids)
        else:
            gone = rng.permutation(cpu.ids)[:n]
            cpu.remove(gone)
            index.remove(gone)
        assert len(index) == len(cpu)
        assert list(index) == list(cpu)
        some = rng.permutation(cpu.ids)[:70]
        np.testing.assert_array_equal(index.codes(some), cpu.codes(some))
        np.testing.assert_array_equal(index.sample(50), cpu.sample(50))
        queries = random_codes(rng, 2, n_bits, False)
        assert_equal(index.search(queries, 9), cpu.search(queries, 9))
    assert len(index._chunks) <= 12


def test_hits_beyond_the_capacity_lower_the_limit(gpu, monkeypatch):
    """Tiles that the sample leaves out hold the nearest codes: every phase has too many hits."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(plan, "CAPACITY", 200)
    monkeypatch.setattr(plan, "RATIO", 2)
    codes = rng.integers(0, 256, (40 * plan.TILE, 8), dtype=np.uint8)
    tiles = np.arange(len(codes)) // plan.TILE
    codes[tiles % plan.phases(40, 20, plan.TILE)[-1].ratio != 0] &= 1
    query = np.zeros((1, 8), np.uint8)
    restarts = []
    index, cpu = gpu.Index(codes), Index(codes)
    scratch = type(index._device.scratch(search_task(index, query)))
    restart = scratch.restart
    monkeypatch.setattr(scratch, "restart", lambda self: restarts.append(1) or restart(self))
    for weights in (None, rng.random(64), np.zeros(64)):
        assert_equal(index.search(query, 20, weights), cpu.search(query, 20, weights))
    assert restarts
    assert_equal(index.search(codes[:33], 20), cpu.search(codes[:33], 20))


def search_task(index, query):
    weights = np.ones((1, 64), np.float32)
    quantised = search.quantise(query, weights, 100, 1)
    with index._work():
        return search.Task(query, weights, None, quantised, np.float32([np.inf]), 1, 1, 10)


def test_a_saved_index_and_its_weights(gpu, tmp_path):
    rng = np.random.default_rng(0)
    codes, queries = random_codes(rng, 5000, 98, True), random_codes(rng, 5, 98, False)
    weights = rng.random(98)
    for ids in (None, rng.permutation(5000), rng.permutation(20_000)[:5000]):
        cpu = Index(codes, n_bits=98, ids=ids, weights=weights)
        cpu.save(tmp_path / "saved")
        index = gpu.Index.load(tmp_path / "saved")
        assert_equal(index.search(queries, 20), cpu.search(queries, 20))
        streamed = gpu.Index.load(tmp_path / "saved", memory=20_000, overflow="stream")
        assert_equal(streamed.search(queries, 20), cpu.search(queries, 20))
        cpu.remove(cpu.ids[::2])
        assert_equal(gpu.Index.from_index(cpu).search(queries, 20), cpu.search(queries, 20))
    assert len(gpu.Index.from_index(Index(n_bits=98))) == 0
    parts = Index(codes, n_bits=98, n_scanned=40)
    parts.remove(np.arange(0, 500, 3))
    whole = gpu.Index.from_index(parts)
    np.testing.assert_array_equal(whole.codes(parts.ids), parts.codes(parts.ids))
    assert index._chunks[0].ids is not None
    assert gpu.Index.from_index(Index(codes, n_bits=98))._chunks[0].ids is None


def test_queries_reals_and_weights_of_the_index(gpu):
    rng = np.random.default_rng(0)
    codes, reals = random_codes(rng, 3000, 64, False), rng.standard_normal((4, 64)).astype(np.float32)
    weights = rng.random(64)
    cpu, index = Index(codes, weights=weights), gpu.Index(codes, weights=weights)
    assert_equal(index.search(reals, 10), cpu.search(reals, 10))
    queries = Queries(codes[:3], rng.random((3, 64)).astype(np.float32))
    assert_equal(index.search(queries, 10), cpu.search(queries, 10))
    cpu.weights = index.weights = None
    assert_equal(index.search(codes[:3], 10, threads=1), cpu.search(codes[:3], 10))
    assert repr(index) == "GpuIndex(3000 codes of 64 bits, plain, device 0)"


def test_codes_on_the_device_are_held_as_they_are(gpu):
    rng = np.random.default_rng(0)
    codes = random_codes(rng, 3000, 64, False)
    array = gpu.array(codes)
    index = gpu.Index(array)
    assert index._chunks[0].codes is array or index._chunks[0].codes.data.ptr == array.data.ptr
    assert_equal(index.search(codes[:70], 10), Index(codes).search(codes[:70], 10))
    index.add(gpu.array(random_codes(rng, 2000, 64, False)), ids=rng.permutation(2000) + 5000)
    assert len(index) == 5000
    with pytest.raises(ValueError, match="last 4 bits of a row zero"):
        gpu.Index(gpu.array(np.full((3, 8), 255, np.uint8)), n_bits=60)
    with pytest.raises(ValueError, match="8 bytes wide, got 2"):
        index.add(gpu.array(np.zeros((3, 2), np.uint8)))


def test_results_of_several_indexes_merge(gpu):
    rng = np.random.default_rng(0)
    codes, ids = random_codes(rng, 2000, 64, True), rng.permutation(2000)
    parts = [gpu.Index(codes[start::3], ids=ids[start::3]) for start in range(3)]
    merged = merge([part.search(codes[:5], 50) for part in parts], 50)
    assert_equal(merged, Index(codes, ids=ids).search(codes[:5], 50))


def test_codes_beyond_the_memory_say_how_many_fit(gpu):
    codes = np.zeros((1000, 8), np.uint8)
    index = gpu.Index(codes, memory=12_000)
    with pytest.raises(MemoryError, match=r"room for 500 more of 8 bytes, got 501; overflow='stream'"):
        index.add(codes[:501])
    with pytest.raises(MemoryError, match="room for 250 more of 16 bytes, got 300"):
        index.add(codes[:300], ids=np.arange(5000, 5300)[::-1])
    with pytest.raises(MemoryError, match="room for 1000 more of 8 bytes, got 3000"):
        gpu.Index.from_index(Index(np.zeros((3000, 8), np.uint8)), memory=8000)
    assert len(index) == 1000
    index.add(codes[:500])
    assert index.search(codes[:1], 2000).ids.max() == 1499


def test_an_allocation_that_fails_adds_nothing(gpu, monkeypatch):
    codes = np.zeros((1000, 8), np.uint8)
    index = gpu.Index(codes)

    def fail(shape, dtype):
        raise MemoryError("Out of memory allocating 8,000 bytes")

    with monkeypatch.context() as patch:
        patch.setattr(index._device, "empty", fail)
        with pytest.raises(MemoryError, match="Out of memory"):
            index.add(codes)
    assert len(index) == 1000
    assert index.search(codes[:1], 3).ids.tolist() == [[0, 1, 2]]


def test_a_failure_of_cuda_breaks_the_index(monkeypatch):
    monkeypatch.setattr(gpu_index, "Device", NumpyDevice)
    codes = np.zeros((1000, 8), np.uint8)
    index = gpu_index.GpuIndex(codes)
    index._device.fails_at = 2
    for _ in range(2):
        with pytest.raises(cuda.DeviceError, match="broken and can only be closed: CUDA failed on device 0"):
            index.search(codes[:1], 3)
    with pytest.raises(cuda.DeviceError, match="broken"):
        index.add(codes)
    index.close()
    assert len(index) == 0
    with pytest.raises(cuda.DeviceError, match="broken"):
        index.search(codes[:1], 3)


TRAP = """
import cupy, numpy as np
from bitrank.gpu import DeviceError, GpuIndex
codes = np.zeros((1000, 8), np.uint8)
with GpuIndex(codes) as index:
    index.search(codes[:1], 3)
    trap = cupy.RawKernel('extern "C" __global__ void trap() { asm("trap;"); }', "trap")
    launch = index._device._kernels.launch
    def failing(name, *arguments, **options):
        if name == "keep_best":
            trap((1,), (1,), ())
        launch(name, *arguments, **options)
    index._device._kernels.launch = failing
    for _ in range(2):
        try:
            index.search(codes[:1], 3)
        except DeviceError as error:
            print(error)
print(len(index), "closed")
"""


def test_a_kernel_that_traps_breaks_the_index(gpu):
    if gpu.name == "numpy":
        return
    done = subprocess.run([sys.executable, "-c", TRAP], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert all("the index is broken and can only be closed: CUDA failed" in line for line in lines[:2])
    assert lines[2] == "0 closed"


def test_a_closed_index_says_so(gpu):
    with gpu.Index(np.zeros((10, 2), np.uint8)) as index:
        assert len(index) == 10
    with pytest.raises(cuda.DeviceError, match="the index is closed"):
        index.search(np.zeros((1, 2), np.uint8), 1)


def test_threads_search_while_rows_come_and_go(gpu):
    rng = np.random.default_rng(0)
    codes, weights = random_codes(rng, 6000, 64, True), rng.random((3, 64)).astype(np.float32)
    queries = [codes[:1], codes[5:25], codes[7:9]]
    index = gpu.Index(codes[:4000])
    stages = [Index(codes[:n]) for n in range(4000, 6001, 500)]
    expected = [[stage.search(q, 30, w) for stage in stages] for q, w in zip(queries, weights, strict=True)]
    wrong, done = [], threading.Event()

    def searching(number):
        while not done.is_set():
            found = index.search(queries[number], 30, weights[number])
            if not any((found.ids == e.ids).all() and (found.distances == e.distances).all() for e in expected[number]):
                wrong.append(found)

    threads = [threading.Thread(target=searching, args=(number,)) for number in (0, 1, 2, 0)]
    for thread in threads:
        thread.start()
    for start in range(4000, 6000, 500):
        index.add(codes[start : start + 500])
        index.search(queries[1], 3)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i, c: c(), "n_bits must be an int"),
        (lambda i, c: c(n_bits=0), "n_bits must be from 1 to 1024, got 0"),
        (lambda i, c: c(n_bits=1025), "n_bits must be from 1 to 1024, got 1025"),
        (lambda i, c: c(n_bits=8, ids=[1]), "ids must be None for an index without codes"),
        (lambda i, c: c(n_bits=8, overflow="drop"), 'overflow must be "raise" or "stream", got'),
        (lambda i, c: c(np.zeros(3, np.uint8)), "codes must be a packed uint8 matrix"),
        (lambda i, c: c(np.zeros((2, 1))), "packed uint8 matrix"),
        (lambda i, c: c(np.full((2, 1), 255, np.uint8), n_bits=3), "last 5 bits"),
        (lambda i, c: i.add(np.zeros((1, 3), np.uint8)), "must be 2 bytes wide"),
        (lambda i, c: i.add(np.zeros((1, 2), np.uint8), ids=[0]), "new, got 0"),
        (lambda i, c: i.add(np.zeros((2, 2), np.uint8), ids=[7, 7]), "unique, got 7"),
        (lambda i, c: i.remove([0, 7]), "in the index, got 7"),
        (lambda i, c: i.search(np.zeros((1, 2), np.uint8), 0), "k must be an int of at least 1"),
        (lambda i, c: i.search(np.zeros((1, 2), np.uint8), 1, candidates=5), "candidates must be None unless"),
        (lambda i, c: i.search(np.zeros((1, 2), np.uint8), 1, method="ann"), "method must be one of"),
        (lambda i, c: i.search(np.zeros((1, 2), np.uint8), 1, filter=[True]), "each of the 2 rows"),
        (lambda i, c: i.search(np.zeros((1, 2), np.uint8), 1, filter=[5]), "in the index, got 5"),
        (lambda i, c: i.search(np.zeros((1, 2), np.uint8), 1, np.full(12, np.nan)), "finite"),
        (lambda i, c: i.search(np.zeros((1, 2), np.uint8), 1, np.full(12, np.inf)), "finite"),
        (lambda i, c: i.search(np.zeros((1, 2), np.uint8), 1, -np.ones(12)), "not negative"),
        (lambda i, c: i.search_radius(np.zeros((1, 2), np.uint8), np.nan), "radius must be a number"),
        (lambda i, c: setattr(i, "weights", np.full(12, np.nan)), "finite"),
        (lambda i, c: setattr(i, "weights", np.ones((1, 12))), "one vector"),
    ],
)
def test_bad_input_is_a_value_error_and_changes_nothing(gpu, call, message):
    codes = np.uint8([[255, 240], [0, 0]])
    index = gpu.Index(codes, n_bits=12, weights=np.arange(12))
    with pytest.raises(ValueError, match=message):
        call(index, gpu.Index)
    assert list(index) == [0, 1]
    assert index.weights.tolist() == list(range(12))
    assert index.search(codes[:1], 2).distances.tolist() == [[0, 66]]
