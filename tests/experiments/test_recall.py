"""The comparison with other quantisers: truth, recall, bars and tables."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

pytest.importorskip("faiss")
pytest.importorskip("matplotlib")
pytest.importorskip("usearch")

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in ("vectors", "quantisers", "recall", "recall_tables", "report"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_neighbours_are_the_true_ones(metric):
    from vectors import synthetic

    vectors = synthetic("lengths", metric, n=600, d=16)
    if metric == "dot":
        expected = np.argsort(-(vectors.Q @ vectors.X.T), axis=1)[:, :10]
    else:
        nearest = NearestNeighbors(
            n_neighbors=10, metric="euclidean" if metric == "l2" else "cosine", algorithm="brute"
        )
        expected = nearest.fit(vectors.X).kneighbors(vectors.Q, return_distance=False)
    assert (np.sort(vectors.neighbours(), axis=1) == np.sort(expected, axis=1)).mean() > 0.999  # but for rounding


def test_recall_counts_neighbours_among_the_ids():
    from vectors import recall

    assert recall(np.array([[1, 2], [3, 4]]), np.array([[2, 9, 1], [7, 3, -1]])) == 0.75


@pytest.mark.parametrize("name", ["isotropic", "sparse", "clusters", "student", "lengths", "few", "duplicates"])
def test_synthetic_vectors_are_finite_and_repeat(name):
    from vectors import synthetic

    vectors = synthetic(name, "l2", n=1000, d=24)
    assert np.isfinite(vectors.X).all()
    assert (len(vectors.Q), vectors.X.dtype) == (500, np.float32)
    assert (vectors.X == synthetic(name, "l2", n=1000, d=24).X).all()


@pytest.mark.parametrize(
    "name", ["float32, flat", "FAISS RaBitQ, 4 bits", "FAISS ScalarQuantizer, 8 bits", "USearch, i8"]
)
@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_peers_find_what_is_near(name, metric):
    from quantisers import CONTENDERS
    from vectors import recall, synthetic

    vectors = synthetic("few", metric, d=32)
    built = CONTENDERS[name](vectors.X, metric)
    assert recall(vectors.neighbours(), built.search(vectors.Q, 10)) > (0.999 if "flat" in name else 0.6)
    assert built.n_scanned <= built.n_bytes <= 4 * vectors.X.shape[1]


def test_bars_are_met_or_missed():
    from recall import bars

    row = lambda recall, size: {"recall": recall, "bytes": size}  # noqa: E731
    stored = {
        "bitrank, 1 bit": row(0.80, 50),
        "FAISS RaBitQ, 1 bit": row(0.76, 56),
        "bitrank, 4 bits": row(0.96, 230),
        "FAISS RaBitQ, 4 bits": row(0.955, 212),
        "turbovec, 4 bits": row(0.95, 203),
    }
    figures = bars({"recall": {"NFCorpus": stored}, "times": {"NFCorpus": {
        "bitrank, 4 bits": {"us": 6.0, "us_in_batch": 13.0}, "turbovec, 4 bits": {"us": 10.0, "us_in_batch": 10.0},
    }}})  # fmt: skip
    assert {name for name, figure in figures.items() if not figure.met} == {
        "NFCorpus: 4 bits above FAISS RaBitQ",
        "NFCorpus: 4 bits, bytes beyond FAISS RaBitQ",
        "NFCorpus: default",
        "NFCorpus: time in a batch, of turbovec's",
        "mean of default above turbovec, 4 bits",
    }


def test_tables_replace_what_stands_between_their_marks(tmp_path):
    from recall_tables import fill, recall_table

    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table: one -->\nold\n<!-- end -->\nb\n<!-- table: two -->\nkept\n<!-- end -->\n")
    table = recall_table({"recall": {"A": {"float32, flat": {"recall": 0.9}}, "B": {}}}, ["A", "B"])
    fill(page, {"one": table})
    assert page.read_text() == (
        "a\n<!-- table: one -->\n| recall@10 | A | B |\n| --- | --- | --- |\n| float32, flat | .900 | – |\n"
        "<!-- end -->\nb\n<!-- table: two -->\nkept\n<!-- end -->\n"
    )


def test_pages_show_what_was_measured():
    """The tables of the README and of docs/ are those that `make bench-recall` writes."""
    from recall_tables import ROOT, pages, tables

    for path in pages():
        text = path.read_text(encoding="utf-8")
        for name, table in tables().items():
            assert f"<!-- table: {name} -->" not in text or table in text, f"{name} in {path.relative_to(ROOT)}"
