"""An index in two parts: heads that are scanned, and rests that are read for a shortlist."""

import copy
import json
import pickle
import re
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_reference import assert_equal, random_codes, reference

from bitrank import _kernel
from bitrank.core.codes import pack, weighted_hamming
from bitrank.core.types import Estimates, Queries
from bitrank.index import Index, IndexFormatError
from bitrank.index.storage import read_meta


def brute_force(head, whole, codes, ids, n_scanned, shortlist, k):
    """The k nearest by whole codes of the rows nearest by heads, in NumPy, from reals."""
    out = np.full((len(head), k), -1, np.int64), np.full((len(head), k), np.inf, np.float32)
    heads = codes[:, : n_scanned // 8]
    for q in range(len(head)):
        near = weighted_hamming(pack(head[q : q + 1] > 0), heads, np.abs(head[q]))[0]
        rows = np.lexsort((ids, near))[:shortlist]
        if len(rows):
            far = weighted_hamming(pack(whole[q : q + 1] > 0), codes[rows], np.abs(whole[q]))[0]
            best = np.lexsort((ids[rows], far))[:k]
            out[0][q, : len(best)], out[1][q, : len(best)] = ids[rows][best], far[best]
    return out


def reals(rng, n, n_bits):
    return rng.normal(size=(n, n_bits)).astype(np.float32) * np.exp(-np.arange(n_bits, dtype=np.float32) / 20)


def example(n=900, n_bits=150, n_scanned=40, **options):
    rng = np.random.default_rng(0)
    codes, ids = random_codes(rng, n, n_bits, True), rng.choice(5 * n, n, replace=False)
    index = Index(codes, n_bits=n_bits, n_scanned=n_scanned, ids=ids, **options)
    return index, codes, ids, reals(rng, 4, n_scanned), reals(rng, 4, n_bits)


@given(st.integers(0, 2**32 - 1), st.sampled_from(_kernel.kernel_paths()))
def test_any_sequence_of_writes_and_searches(seed, path):
    rng = np.random.default_rng(seed)
    n_scanned = 8 * int(rng.integers(1, 20))
    n_bits = n_scanned + int(rng.integers(1, 200))
    weights = rng.random(n_bits) if rng.integers(2) else None
    index, kept = Index(n_bits=n_bits, n_scanned=n_scanned, weights=weights), {}
    for _ in range(6):
        n = int(rng.integers(0, 300))
        codes = random_codes(rng, n, n_bits, bool(rng.integers(2)))
        some = rng.permutation(list(kept))[:n].astype(int)
        action = rng.choice(["add", "add", "remove", "update", "optimize"])
        if action == "add":
            ids = rng.permutation(n) + index.largest_id + 1
            index.add(codes, ids)
            kept |= zip(ids.tolist(), codes, strict=True)
        elif action == "remove":
            index.remove(some)
            for i in some.tolist():
                del kept[i]
        elif action == "update":
            index.update(some, codes[: len(some)])
            kept |= zip(some.tolist(), codes[: len(some)], strict=True)
        else:
            index.optimize(rng.random(n_scanned))
        ids = np.array(sorted(kept), np.int64)
        codes = np.array([kept[i] for i in ids.tolist()], np.uint8).reshape(len(ids), -(-n_bits // 8))
        assert list(index) == ids.tolist()
        np.testing.assert_array_equal(index.codes(ids[::3]), codes[::3])
        exported = index.export()
        np.testing.assert_array_equal(exported[0][np.argsort(exported[1])], codes)
        head, whole = reals(rng, 2, n_scanned), reals(rng, 2, n_bits)
        k = int(rng.integers(1, 30))
        shortlist, threads = k + int(rng.integers(0, 60)), int(rng.integers(1, 4))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BITRANK_KERNEL", path)
            results = index.search((head, whole), k, shortlist=shortlist, threads=threads)
            assert_equal(results, brute_force(head, whole, codes, ids, n_scanned, shortlist, k))
            wanted = rng.random(len(ids)) < 0.3
            results = index.search((head, whole), k, shortlist=shortlist, filter=wanted if n % 2 else ids[wanted])
            expected = brute_force(head, whole, codes[wanted], ids[wanted], n_scanned, shortlist, k)
            assert_equal(results, expected)


def test_a_whole_query_asks_both_parts():
    index, codes, ids, _, whole = example()
    expected = brute_force(whole[:, :40], whole, codes, ids, 40, 100, 10)
    assert_equal(index.search(whole, 10), expected)
    assert_equal(index.search(Queries(pack(whole > 0), np.abs(whole)), 10), expected)
    assert_equal(index.search(pack(whole > 0), 10, np.abs(whole), shortlist=100), expected)
    weighted = Index(codes, n_bits=150, n_scanned=40, ids=ids, weights=np.abs(whole[0]))
    assert_equal(weighted.search(pack(whole[:1] > 0), 10), (expected[0][:1], expected[1][:1]))


def test_the_shortlist_grows_with_k_and_may_be_all_of_it():
    index, codes, ids, head, whole = example()
    assert_equal(index.search((head, whole), 50), brute_force(head, whole, codes, ids, 40, 200, 50))
    results = index.search((head, whole), 70, shortlist=70)
    assert_equal(results, brute_force(head, whole, codes, ids, 40, 70, 70))
    everything = index.search((head, whole), 900, shortlist=900)
    for q in range(4):
        expected = reference(pack(whole[q : q + 1] > 0), codes, ids, np.abs(whole[q]), 900)
        assert_equal(type(everything)(everything.ids[q : q + 1], everything.distances[q : q + 1]), expected)


def test_heads_alone_and_candidates_by_heads():
    index, codes, ids, head, whole = example()
    heads = Index(np.ascontiguousarray(codes[:, :5]), ids=ids)
    assert_equal(index.search((head, None), 20), heads.search(head, 20))
    plain = np.where(whole[:, :40] > 0, 1, -1).astype(np.float32)
    results = index.search(whole, 10, method="rerank", candidates=80)
    assert_equal(results, brute_force(plain, whole, codes, ids, 40, 80, 10))


def test_radius_distances_and_candidates_are_of_whole_codes():
    index, codes, ids, _, whole = example()
    exact = Index(codes, n_bits=150, ids=ids)
    radius = float(exact.search(whole, 30).distances[:, -1].mean())
    assert_equal(index.search_radius(whole, radius), exact.search_radius(whole, radius))
    assert index.search_radius(whole, -1).ids.shape == (4, 0)
    np.testing.assert_array_equal(index.distances(whole, ids[:70]), exact.distances(whole, ids[:70]))
    candidates = np.tile([*ids[:50], -1], (4, 1))
    assert_equal(index.rerank(whole, candidates, 10), exact.rerank(whole, candidates, 10))


def test_without_rest_it_is_the_exact_index():
    index, codes, ids, _, whole = example(n_scanned=150)
    assert index.n_scanned == 150
    assert_equal(index.search(whole, 10), Index(codes, n_bits=150, ids=ids).search(whole, 10))


def test_the_weights_of_queries_order_bits_and_change_no_result():
    index, codes, ids, head, whole = example()
    means = np.random.default_rng(1).random(40)
    other = Index(codes, n_bits=150, n_scanned=40, ids=ids, query_weights=means)
    assert other._snapshot.order.tolist() == np.argsort(-means).tolist()
    other.add(codes[:1], [10**6])
    other.remove([10**6])
    other.optimize()  # keeps the order
    assert other._snapshot.order.tolist() == np.argsort(-means).tolist()
    assert_equal(other.search((head, whole), 20), index.search((head, whole), 20))
    other.optimize(-np.sort(-means)[::-1])
    assert other._snapshot.order.tolist() == list(range(39, -1, -1))
    assert_equal(other.search((head, whole), 20), index.search((head, whole), 20))


@pytest.mark.parametrize("mmap", [False, True])
def test_saved_loaded_copied_and_pickled(tmp_path, mmap):
    index, codes, _, head, whole = example()
    index.remove(index.ids[:100])
    index.add(codes[:7], np.arange(7) + 10**6)
    expected = index.search((head, whole), 30)
    index.save(tmp_path)
    loaded = Index.load(tmp_path, mmap=mmap)
    assert repr(loaded) == "Index(807 codes of 150 bits, 40 scanned, plain)"
    for other in (loaded, loaded.copy(), copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert_equal(other.search((head, whole), 30), expected)
    rest = loaded._snapshot.segments[0].rest
    mapped = rest.base is not None and isinstance(rest.base, np.memmap)
    assert mapped == mmap
    loaded.add(codes[:3])
    loaded.optimize()
    loaded.save(tmp_path)
    assert len(Index.load(tmp_path)) == 810


def damaged(folder, name, change):
    """Change a file of an index and the checksum that meta.json has of it."""
    meta = read_meta(folder)
    entry = meta["files"][name]
    change(folder / entry["name"])
    data = np.fromfile(folder / entry["name"], np.uint8)
    entry |= {"size": len(data), "checksum": f"{_kernel.checksum(data):016x}"}
    text = json.dumps(meta, sort_keys=True, separators=(",", ":")).encode()
    checksum = f"{_kernel.checksum(np.frombuffer(text, np.uint8)):016x}"
    (folder / "meta.json").write_text(json.dumps(meta | {"checksum": checksum}))
    return entry["name"]


def test_a_damaged_rest_is_named(tmp_path):
    index = example()[0]
    index.save(tmp_path)
    entry = read_meta(tmp_path)["files"]["rest-0"]
    file, data = tmp_path / entry["name"], (tmp_path / entry["name"]).read_bytes()
    file.write_bytes(data[:-1])
    with pytest.raises(IndexFormatError, match=f"{entry['name']} is damaged: {len(data) - 1} bytes instead of"):
        Index.load(tmp_path)
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(IndexFormatError, match=f"{entry['name']} is damaged: its checksum does not fit"):
        Index.load(tmp_path)
    file.unlink()
    with pytest.raises(IndexFormatError, match=f"{entry['name']} is missing"):
        Index.load(tmp_path)
    file.write_bytes(data)
    # The rest of another collection, under checksums that fit.
    other = tmp_path / "other"
    example(n=800)[0].save(other)
    foreign = other / read_meta(other)["files"]["rest-0"]["name"]
    name = damaged(tmp_path, "rest-0", lambda file: shutil.copy(foreign, file))
    with pytest.raises(IndexFormatError, match=re.escape(f"{name} must hold the rest of 900 codes, 14 bytes each")):
        Index.load(tmp_path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Index(n_bits=64, n_scanned=12),
            "n_scanned must be a multiple of 8 up to 64, the bits of a code, got 12",
        ),
        (lambda: Index(n_bits=64, n_scanned=72), "n_scanned must be a multiple of 8 up to 64"),
        (lambda: Index(n_bits=64, n_scanned=0), "n_scanned must be an int of at least 1, got 0"),
        (lambda: Index(n_bits=64, n_scanned="8"), "n_scanned must be an int of at least 1, got '8'"),
        (lambda: Index(n_bits=64, n_scanned=8, query_weights=np.ones(64)), "weights must hold 8 values"),
        (lambda: Index(n_bits=64, n_scanned=8, query_weights=np.ones((1, 8))), "query_weights must be one vector of 8"),
        (lambda: Index(n_bits=64).search(np.zeros((1, 8), np.uint8), 1, shortlist=9), "shortlist must be None for"),
    ],
)
def test_bad_parts_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("queries", "options", "message"),
    [
        (lambda h, w: (h[:, :39], w), {}, r"reals must have shape \(n_queries, 40\), got \(4, 39\)"),
        (lambda h, w: (h, h), {}, r"reals must have shape \(n_queries, 150\), got \(4, 40\)"),
        (lambda h, w: (h[:3], w), {}, "as many heads as whole ones, got 3 and 4"),
        (lambda h, w: (h, w, w), {}, r"must be a tuple of two, \(head, whole\), got 3"),
        (lambda h, w: (h, w), {"weights": np.ones(150)}, "weights must be None for queries in two parts"),
        (lambda h, w: (h, w * np.float32(np.nan)), {}, "finite"),
        (lambda h, w: h, {}, r"reals must have shape \(n_queries, 150\), got \(4, 40\)"),
        (lambda h, w: (h, w), {"shortlist": 4}, "shortlist must be at least k, 5, got 4"),
        (lambda h, w: (h, w), {"shortlist": 5.5}, "shortlist must be an int of at least 1, got 5.5"),
        (lambda h, w: w, {"shortlist": 0}, "shortlist must be an int of at least 1, got 0"),
    ],
)
def test_bad_queries_are_refused(queries, options, message):
    index, _, _, head, whole = example()
    with pytest.raises(ValueError, match=message):
        index.search(queries(head, whole), 5, **options)


def half_byte_distances(reals, codes, n_scanned):
    """Weights of differing bits in float32: those of a half byte, then the high and the low halves of head and rest."""
    differ = np.unpackbits(codes, axis=1, count=len(reals)) != (reals > 0)
    weights = np.where(differ, np.abs(reals), np.float32(0))
    weights = np.pad(weights, ((0, 0), (0, -len(reals) % 8))).reshape(len(codes), -1, 2, 4)
    halves = np.add.accumulate(weights, axis=3)[..., -1]
    parts = [np.add.accumulate(part, axis=1)[:, -1] for part in np.split(halves, [n_scanned // 8], axis=1)]
    return (parts[0][:, 0] + parts[0][:, 1]) + (parts[1][:, 0] + parts[1][:, 1])


@given(st.integers(0, 2**32 - 1), st.integers(0, 2), st.booleans(), st.sampled_from(_kernel.kernel_paths()))
def test_estimates_order_the_nearest_by_whole_codes(seed, n_tail, root, path):
    random = np.random.default_rng(seed)
    n, k, shortlist = int(random.integers(1, 200)), 7, 20
    n_scanned = 8 * int(random.integers(1, 20))
    n_bits = n_scanned + 16 + int(random.integers(1, 300))
    codes = random_codes(random, n, n_bits, False)
    head, whole = (random.normal(size=(3, width)).astype(np.float32) for width in (n_scanned, n_bits))
    terms = np.column_stack([random.normal(size=3), -random.uniform(0.5, 1, 3), random.normal(size=3)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITRANK_KERNEL", path)
        options = {"n_scanned": n_scanned, "query_weights": random.random(n_scanned) if random.integers(2) else None}
        index = Index(codes[: n // 2], n_bits=n_bits, **options)
        index.add(codes[n // 2 :])
        asked = {"k": k, "shortlist": shortlist, "threads": 1}
        found = index.search((head, whole), **asked, estimates=Estimates(n_tail, 2.0, 0.25, root, terms))
    listed = brute_force(head, whole, codes, np.arange(n), n_scanned, shortlist, shortlist)[0]
    for q, (first, second, third) in enumerate(terms):
        rows = np.sort(listed[q][listed[q] >= 0])
        distances = half_byte_distances(whole[q], codes[rows], n_scanned)
        kept = np.lexsort((rows, distances))[:k]
        tails = codes[rows[kept]].astype(float)
        f = 2 + 0.25 * (0, tails[:, -1], tails[:, -2] * 256 + tails[:, -1])[n_tail]
        weights = np.pad(np.abs(whole[q]).astype(float), (0, -n_bits % 8)).reshape(-1, 8)
        totals = np.add.accumulate([third, *np.add.accumulate(weights)[-1]])
        expected = first + second * (totals[-1] - 2.0 * distances[kept]) / f
        expected = (np.sqrt(np.maximum(expected, 0)) if root else expected).astype(np.float32)
        order = np.lexsort((rows[kept], expected))
        np.testing.assert_array_equal(found.ids[q, : len(kept)], rows[kept][order])
        np.testing.assert_array_equal(found.distances[q, : len(kept)], expected[order])
        assert (found.ids[q, len(kept) :] == -1).all()


def test_estimates_are_refused_where_they_do_not_fit():
    index = Index(np.zeros((4, 7), np.uint8), n_scanned=16)
    head, whole = np.full((1, 16), -1, np.float32), np.full((1, 56), -1, np.float32)
    for n_tail, shape, queries in ((3, (1, 3), whole), (1, (2, 3), whole), (1, (1, 2), whole), (1, (1, 3), None)):
        with pytest.raises(ValueError, match="must"):
            index.search((head, queries), k=1, estimates=Estimates(n_tail, 1.0, 0.0, False, np.zeros(shape)))
