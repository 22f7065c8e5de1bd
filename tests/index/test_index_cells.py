"""`Index.make_cells` and `search(recall=)`: what is read is ranked exactly, and promises are kept."""

import itertools
import mmap
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitrank import Index
from bitrank._kernel import kernel_paths
from bitrank.index.cells import Axes
from bitrank.index.reading import Calibration


def clustered(n, n_bits, seed=0, flips=0.08):
    """Codes of many kinds, and queries that are not among them."""
    rng = np.random.default_rng(seed)
    kinds = rng.random((max(4, n // 100), n_bits)) < 0.5
    bits = kinds[rng.integers(0, len(kinds), n + 300)] ^ (rng.random((n + 300, n_bits)) < flips)
    return np.packbits(bits[:n], axis=1), np.where(bits[n:], 1, -1) * rng.gamma(2, size=(300, n_bits)).astype(
        np.float32
    )


@pytest.fixture(scope="module")
def made():
    codes, queries = clustered(10_000, 96)
    index = Index(codes, n_bits=96)
    exact = index.copy()
    index.make_cells()
    return index, exact, queries


def recall_of(found, true):
    pairs = [(set(a) - {-1}, set(b) - {-1}) for a, b in zip(found.tolist(), true.tolist(), strict=True)]
    return np.mean([len(a & b) / len(b) for a, b in pairs])


def test_exact_search_stays_exact(made):
    index, exact, queries = made
    for k in (1, 10, 300):
        for asked in (queries, np.packbits(queries > 0, axis=1)):
            ours, theirs = index.search(asked, k), exact.search(asked, k)
            assert (ours.ids == theirs.ids).all()
            assert (ours.distances == theirs.distances).all()


@pytest.mark.parametrize("k", [1, 10, 100])
def test_the_promise_is_kept_for_what_was_calibrated(made, k):
    index, exact, queries = made
    calibration = index.calibrate(queries[:200])
    assert (calibration.on, calibration.n_queries) == ("queries", 200)
    fresh, true = queries[200:], exact.search(queries[200:], k).ids
    shares = []
    for recall in (0.8, 0.95, 0.99):
        out = index.search(fresh, k, recall=recall, calibration=calibration)
        assert recall_of(out.ids, true) >= recall - 0.05  # a hundred queries
        shares.append(out.share.mean())
    assert shares[0] <= shares[1] <= shares[2]
    assert shares[1] < 0.6


def test_distances_are_those_of_the_rows_that_were_found(made):
    index, exact, queries = made
    ids, distances = index.search(queries, 10, recall=0.9)
    for query, row, values in zip(queries[:5], ids, distances, strict=False):
        order = np.argsort(row)
        expected = exact.distances(query[None], row[order])[0]
        assert (values[order] == expected).all()
    assert (np.diff(distances) >= 0).all()


def test_without_a_calibration_both_rules_are_followed(made):
    index, exact, queries = made
    weights = np.random.default_rng(1).lognormal(0, 0.7, queries.shape)
    true = exact.search(queries * weights, 10).ids
    assert recall_of(index.search(queries * weights, 10, recall=0.95).ids, true) >= 0.92


def test_weights_that_part_the_bits_of_a_number_read_all():
    codes, queries = clustered(3000, 64)
    index = Index(codes)
    index.make_cells(axes=Axes(np.arange(64) // 4, np.tile(np.float32([8, 4, 2, 1]), 16)))
    calibration = index.calibrate(queries[:50]).for_others()
    found = index.search(queries, 10, recall=0.9, calibration=calibration)
    assert (found.ids == index.search(queries, 10).ids).all()
    assert (found.share == 1).all()
    numbers = np.repeat(queries[:, :16], 4, axis=1) * np.tile(np.float32([8, 4, 2, 1]), 16)
    assert index.search(numbers, 10, recall=0.9, calibration=calibration).share.shape == (300,)


def test_filters_find_k_rows_or_all(made):
    index, exact, queries = made
    calibration = index.calibrate(queries[:100])
    for wanted in (np.arange(5), np.arange(0, 10_000, 97)):
        out = index.search(queries, 10, recall=0.9, calibration=calibration, filter=wanted)
        true = exact.search(queries, 10, filter=wanted)
        assert recall_of(out.ids, true.ids) >= 0.9
        assert ((out.ids >= 0).sum(axis=1) == (true.ids >= 0).sum(axis=1)).all()


def test_one_query_or_many_read_the_same_share_by_share(made):
    index, _, queries = made
    measured = index.calibrate(queries[:100])
    many = index.search(queries[:90], 10, recall=0.9, calibration=measured)
    one = [index.search(query[None], 10, recall=0.9, calibration=measured, threads=1) for query in queries[:90]]
    assert (np.concatenate([each.ids for each in one]) == many.ids).all()
    assert (np.concatenate([each.share for each in one]) == many.share).all()


@pytest.mark.parametrize("path", kernel_paths())
@pytest.mark.parametrize("n_bits", [64, 96, 200])
def test_every_path_reads_what_it_is_told(path, n_bits, monkeypatch):
    monkeypatch.setenv("BITRANK_KERNEL", path)
    codes, queries = clustered(3000, n_bits, seed=1)
    index = Index(codes, n_bits=n_bits)
    exact = index.copy()
    index.make_cells()
    measured = index.calibrate(queries[:50])
    share, none, rule = (tuple((value,) * 7 for _ in range(3)) for value in (1.0, 0.0, 1e9))
    for known, n in itertools.product((True, False), (1, 3, 70)):
        shares = share if known else none
        everything = Calibration(**{**measured.__dict__, "shares": shares, "radii": rule, "known": known})
        found = index.search(queries[:n], 10, recall=0.95, calibration=everything)
        true = exact.search(queries[:n], 10)
        assert (found.ids == true.ids).all()
        assert (found.distances == true.distances).all()


def test_rows_join_and_leave(made):
    index, exact, queries = (each.copy() if isinstance(each, Index) else each for each in made)
    more, _ = clustered(4000, 96, seed=0)
    for each in (index, exact):
        each.add(more[:50])
        each.add(more[50:])
        each.remove(np.arange(0, 10_000, 10))
    true = exact.search(queries, 10)
    assert (index.search(queries, 10).ids == true.ids).all()
    assert recall_of(index.search(queries, 10, recall=0.95).ids, true.ids) >= 0.93
    index.optimize()
    assert index.has_cells
    assert (index.search(queries, 10).ids == true.ids).all()


@pytest.mark.parametrize("mapped", [False, True])
def test_saved_and_loaded(made, tmp_path, mapped):
    index, _, queries = made
    calibration = index.calibrate(queries[:100])
    index.save(tmp_path / "a")
    loaded = Index.load(tmp_path / "a", mmap=mapped)
    again = Calibration.from_json(calibration.to_json())
    ours = index.search(queries, 10, recall=0.9, calibration=calibration)
    theirs = loaded.search(queries, 10, recall=0.9, calibration=again)
    assert (ours.ids == theirs.ids).all()
    assert (ours.share == theirs.share).all()
    loaded.add(np.zeros((3, 12), np.uint8))
    assert loaded.has_cells


@settings(deadline=None)
@given(st.integers(64, 700), st.integers(1, 80), st.integers(0, 5), st.booleans())
def test_any_shape(n, n_bits, seed, duplicates):
    rng = np.random.default_rng(seed)
    bits = rng.random((n, n_bits)) < 0.5
    if duplicates:
        bits = bits[rng.integers(0, 3, n)]
    codes = np.packbits(bits, axis=1)
    index = Index(codes, n_bits=n_bits)
    exact = index.copy()
    index.make_cells()
    queries = rng.normal(size=(5, n_bits)).astype(np.float32)
    for k in (1, 7, n + 3):
        assert (index.search(queries, k).ids == exact.search(queries, k).ids).all()
        out = index.search(queries, k, recall=0.999)
        assert ((out.ids >= 0).sum(axis=1) == min(n, k)).all()


def test_two_parts():
    codes, queries = clustered(6000, 128)
    index = Index(codes, n_scanned=64)
    exact = index.copy()
    index.make_cells()
    asked = queries[:, :64], queries
    calibration = index.calibrate(asked)
    true = exact.search(asked, 10)
    assert (index.search(asked, 10).ids == true.ids).all()
    out = index.search(asked, 10, recall=0.95, calibration=calibration)
    assert recall_of(out.ids, true.ids) >= 0.9


def referenced(folder):
    """Pages of the mapped blocks in a folder that were read since the last time; None where nobody counts them."""
    try:
        lines = Path("/proc/self/smaps").read_text().splitlines()
        Path("/proc/self/clear_refs").write_text("1")
    except OSError:
        return None
    counted, inside = 0, False
    for line in lines:
        if "-" in line.split(" ")[0]:
            inside = str(folder) in line and "-blocks-" in line
        elif inside and line.startswith("Referenced:"):
            counted += int(line.split()[1]) * 1024 // mmap.PAGESIZE
    return counted


def test_a_mapped_index_touches_the_pages_of_the_blocks_that_it_reads(tmp_path):
    codes, queries = clustered(12_000, 512)
    index = Index(codes)
    index.make_cells()
    index.save(tmp_path)
    calibration = index.calibrate(queries[:200])
    loaded = Index.load(tmp_path)
    loaded.search(queries[:1], 10, recall=0.9, calibration=calibration)  # ranks blocks by their means, read once
    referenced(tmp_path)
    loaded.search(queries[:1], 10)
    total = referenced(tmp_path)
    if total is None or total < 60:
        pytest.skip("pages that were read are not counted here")
    as_chosen = 0
    for query in queries[200:215]:
        referenced(tmp_path)
        share = loaded.search(query[None], 10, recall=0.9, calibration=calibration, threads=1).share[0]
        n_blocks = round(share * len(codes) / 64)  # of a page each, which may begin within one
        as_chosen += 0 < referenced(tmp_path) <= 2 * n_blocks + 8 < total / 4
    assert as_chosen > 7  # the system marks pages of its own now and then


def test_searches_while_rows_are_added(made):
    index, _, queries = (each.copy() if isinstance(each, Index) else each for each in made)
    more, _ = clustered(2000, 96, seed=3)
    failed = []

    def search():
        try:
            for _ in range(20):
                assert (index.search(queries[:20], 5, recall=0.9).ids >= 0).all()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for start in range(0, 2000, 100):
        index.add(more[start : start + 100])
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize(
    ("recall", "message"),
    [
        (0.5, r"recall must be None, or a number from 0.8 to 0.999, got 0.5"),
        (1, r"recall must be None, or a number from 0.8 to 0.999, got 1"),
        ("high", r"recall must be None, or a number from 0.8 to 0.999, got 'high'"),
    ],
)
def test_mistaken_promises(made, recall, message):
    index, _, queries = made
    with pytest.raises(ValueError, match=message):
        index.search(queries, 10, recall=recall)


def test_mistakes():
    index = Index(np.zeros((100, 2), np.uint8))
    with pytest.raises(ValueError, match=r"recall must be None for an index without cells \(see make_cells\), got 0.9"):
        index.search(np.zeros((1, 2), np.uint8), 1, recall=0.9)
    with pytest.raises(ValueError, match="the index must have cells to be calibrated: call make_cells, got none"):
        index.calibrate()
    with pytest.raises(ValueError, match="the index must hold at least 64 rows to make cells of, got 3"):
        Index(np.zeros((3, 2), np.uint8)).make_cells()
    index.make_cells()
    with pytest.raises(ValueError, match="ids must have one value for each of the 1 queries, got 2"):
        index.calibrate(np.zeros((1, 2), np.uint8), ids=[1, 2])
