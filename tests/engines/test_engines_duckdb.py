"""DuckDB beyond the contract: files, names, threads, and tables of others."""

import sys
from functools import partial

import duckdb
import numpy as np
import pytest
from threads import in_threads

import bitrank
from bitrank import Index
from bitrank.core.codes import pack

CODES = np.random.default_rng(0).integers(0, 256, (500, 8), dtype=np.uint8)
WEIGHTS = np.random.default_rng(1).lognormal(0, 1, 64).astype(np.float32)
EXPECTED = Index(CODES).search(CODES[:3], 10, WEIGHTS)


def test_a_file_holds_what_was_added(tmp_path):
    url = f"duckdb://{(tmp_path / 'my codes.duckdb').as_posix().replace(' ', '%20')}"
    with bitrank.connect(url) as engine:
        engine.create(20)
        engine.add(pack(np.eye(20)), np.arange(20) + 100)
    with bitrank.connect(url) as engine:
        assert (engine.count(), engine.n_bits) == (20, 20)
        assert engine.search(pack(np.eye(20)), 1).ids[:, 0].tolist() == list(range(100, 120))
        with pytest.raises(ValueError, match=r"24 bits, got one of 20"):
            engine.create(24)


@pytest.mark.parametrize("name", ["a b", 'a"; DROP TABLE codes; --', "a'b", "é%s", "select"])
def test_any_name_is_quoted(name):
    with bitrank.connect("duckdb://", name) as engine:
        engine.create(64)
        engine.add(CODES, np.arange(500))
        np.testing.assert_array_equal(engine.search(CODES[:3], 10, WEIGHTS).ids, EXPECTED.ids)
        assert engine._connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [(name,)]


def test_several_threads_take_turns():
    results = []
    with bitrank.connect("duckdb://") as engine:
        engine.create(64)

        def part(number):
            engine.add(CODES[number::4], np.arange(500)[number::4])
            engine.search(CODES[:1], 1)
            results.append(number)

        in_threads(*(partial(part, number) for number in range(4)))
        assert sorted(results) == [0, 1, 2, 3]
        np.testing.assert_array_equal(engine.search(CODES[:3], 10, WEIGHTS).distances, EXPECTED.distances)


def test_a_table_of_others_and_a_view_are_refused(tmp_path):
    path = tmp_path / "base.duckdb"
    with duckdb.connect(str(path)) as base:
        base.execute("CREATE TABLE codes (id BIGINT, code BIT)").fetchall()
        base.execute("CREATE VIEW seen AS SELECT 1").fetchall()
    with bitrank.connect(f"duckdb://{path}") as engine, pytest.raises(ValueError, match="that create"):
        engine.create(8)
    with bitrank.connect(f"duckdb://{path}", "seen") as engine:
        with pytest.raises(duckdb.Error):
            engine.create(8)
        with pytest.raises(ValueError, match=r"create\(n_bits\)"):
            engine.count()


def test_an_address_without_a_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="duckdb:///path/to/file"):
        bitrank.connect("duckdb://folder/codes.duckdb")
    with pytest.raises(ConnectionError, match="DuckDB cannot open"):
        bitrank.connect(f"duckdb://{tmp_path}/nowhere/codes.duckdb")


def test_without_pyarrow_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs pyarrow: pip install 'bitrank\[duckdb\]'"):
        bitrank.connect("duckdb://")
