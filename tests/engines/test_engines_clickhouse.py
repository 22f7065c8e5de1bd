"""ClickHouse beyond the contract: tables that are there, names, clusters, and a server that goes away."""

import subprocess
import sys

import numpy as np
import pytest
from clickhouse_http import ClickHouse

import bitrank
from bitrank import Index
from bitrank.core.codes import pack
from bitrank.engines import clickhouse, quantize_weights

CODES = pack(np.random.default_rng(0).integers(0, 2, (1000, 64)))
WEIGHTS = quantize_weights(np.random.default_rng(2).lognormal(0, 1, 64))


@pytest.fixture(autouse=True, scope="module")
def memory():
    """A connection that stays open: what chDB holds in memory ends with the last one."""
    with bitrank.connect("chdb://", "kept") as engine:
        yield engine


def assert_ranks_as_index(engine, codes=CODES):
    found = engine.search(codes[:3], 10, WEIGHTS)
    expected = Index(codes).search(codes[:3], 10, WEIGHTS)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)
    two = engine.search(codes[:3], 10, WEIGHTS, method="rerank", candidates=len(codes))
    np.testing.assert_array_equal(two.ids, expected.ids)


@pytest.mark.parametrize("name", ["a b", "a`; DROP TABLE codes; --", "a\\", "a'b\"c", "é%s", "select"])
def test_any_name_is_quoted(name):
    with bitrank.connect("chdb://", name) as engine:
        engine.create(64)
        engine.add(CODES, np.arange(1000))
        engine.remove([999])
        engine.optimize()
        assert engine.count() == 999
        assert_ranks_as_index(engine, CODES[:999])
        tables = [row[0] for row in engine._client.query("SHOW TABLES").result_rows]
        assert name in tables
        assert not [table for table in tables if "_adding_" in table]


def test_a_name_that_chdb_takes_for_a_file_is_refused():
    with bitrank.connect("chdb://", "{a,b}") as engine, pytest.raises(ValueError, match="name must be one under which"):
        engine.create(64)


@pytest.mark.slow
def test_many_ids_at_once():
    codes = np.random.default_rng(1).integers(0, 256, (60_000, 2), dtype=np.uint8)
    with bitrank.connect("chdb://", "many") as engine:
        engine.create(16)
        engine.add(codes, np.arange(60_000) + 10**12)
        engine.remove(np.arange(50_000) + 10**12)
        assert engine.count() == 10_000


def test_a_bulk_in_several_parts(monkeypatch):
    monkeypatch.setattr(clickhouse, "BATCH", 300)
    with bitrank.connect("chdb://", "parts") as engine:
        engine.create(64)
        engine.add(CODES, np.arange(1000))
        assert_ranks_as_index(engine)


def table(name, definition):
    with bitrank.connect("chdb://", name) as engine:
        engine._client.command(f"CREATE TABLE {name} {definition}")
        block = b"".join(number.to_bytes(8, "little") + code.tobytes() for number, code in enumerate(CODES))
        if "FixedString(8)" in definition:
            engine._client.raw_insert(name, insert_block=block, fmt="RowBinary")


def test_a_table_that_is_there_is_searched_and_not_written():
    table("mine", "(id Int64, code FixedString(8)) ENGINE = MergeTree ORDER BY id")
    with bitrank.connect("chdb://", "mine") as engine:
        engine.create(64)
        assert (engine.count(), engine.n_bits) == (1000, 64)
        assert_ranks_as_index(engine)
        for call in (lambda: engine.add(CODES, np.arange(1000)), lambda: engine.remove([1]), engine.optimize):
            with pytest.raises(ValueError, match="got one of MergeTree"):
                call()
        assert engine.count() == 1000


def test_columns_of_other_names_and_types():
    with bitrank.connect("chdb://", "products", id_column="the `sku`", code_column="bits") as engine:
        with pytest.raises(ValueError, match="must be id and code"):
            engine.create(64)
        engine._client.command(
            "CREATE TABLE products (`the \\`sku\\`` UInt32, title String, bits FixedString(8)) "
            "ENGINE = ReplacingMergeTree ORDER BY title"
        )
        rows = (f"({number}, 'title {number}', unhex('{code.tobytes().hex()}'))" for number, code in enumerate(CODES))
        engine._client.command(f"INSERT INTO products VALUES {', '.join(rows)}")
        assert engine.count() == 1000
        assert_ranks_as_index(engine)
        with pytest.raises(ValueError, match="only to a table that create"):
            engine.add(CODES, np.arange(1000))


@pytest.mark.parametrize(
    "definition",
    [
        "(id Int64, code String) ENGINE = MergeTree ORDER BY id",
        "(id String, code FixedString(9)) ENGINE = MergeTree ORDER BY id",
        "(id Int64, codes Int32) ENGINE = MergeTree ORDER BY id",
    ],
)
def test_a_table_of_another_shape_is_refused(definition):
    name = f"strange_{abs(hash(definition))}"
    table(name, definition)
    with bitrank.connect("chdb://", name) as engine:
        for call in (lambda: engine.create(64), engine.count):
            with pytest.raises(ValueError, match="whole numbers and FixedString"):
                call()


CLUSTER = """<clickhouse><tcp_port>9000</tcp_port><remote_servers><mine>
  <shard><replica><host>127.0.0.1</host><port>9000</port></replica></shard>
</mine></remote_servers></clickhouse>"""


def test_a_distributed_table_is_searched(tmp_path):
    # One shard, which is chDB itself: it has no port for others to reach it.
    (tmp_path / "cluster.xml").write_text(CLUSTER)
    server = ClickHouse(tmp_path / "data", config=tmp_path / "cluster.xml").start()
    try:
        with bitrank.connect(server.url, "patches") as engine:
            engine.create(64)
            engine.add(CODES, np.arange(1000))
            engine.add(CODES, np.arange(1000))
            all_of_them = "Distributed(mine, currentDatabase(), patches, id)"
            engine._client.command(f"CREATE TABLE patches_all AS patches ENGINE = {all_of_them}")
        with bitrank.connect(server.url, "patches_all") as engine:
            assert (engine.n_bits, engine._table_engine) == (64, "Distributed")
            assert engine.count() == 1000
            assert_ranks_as_index(engine)
            with pytest.raises(ValueError, match="got one of Distributed"):
                engine.add(CODES, np.arange(1000))
    finally:
        server.kill()


@pytest.fixture
def server(tmp_path):
    server = ClickHouse(tmp_path).start()
    yield server
    server.kill()


def test_cut_in_the_middle_of_a_bulk_add_leaves_nothing_and_a_retry_is_safe(server, monkeypatch):
    monkeypatch.setattr(clickhouse, "BATCH", 100)
    with bitrank.connect(server.url) as engine:
        engine.create(64)
        engine.add(CODES[:500], np.arange(500))
        inserts, insert = [], engine._client.raw_insert

        def cut(*args, **kwargs):
            if len(inserts) == 3:
                server.kill()
            inserts.append(1)
            return insert(*args, **kwargs)

        monkeypatch.setattr(engine._client, "raw_insert", cut)
        with pytest.raises(ConnectionError, match="ClickHouse cannot be reached"):
            engine.add(CODES[500:], np.arange(500, 1000))
        monkeypatch.undo()
        server.start()
        assert engine.count() == 500
        assert_ranks_as_index(engine, CODES[:500])
        engine.add(CODES[500:], np.arange(500, 1000))
        engine.add(CODES[500:], np.arange(500, 1000))
        assert engine.count() == 1000
        assert_ranks_as_index(engine)


@pytest.mark.slow
def test_server_restarted_between_queries(server):
    with bitrank.connect(server.url) as engine:
        engine.create(64)
        engine.add(CODES, np.arange(1000))
        assert_ranks_as_index(engine)
        server.kill()
        with pytest.raises(ConnectionError, match="ClickHouse cannot be reached"):
            engine.search(CODES[:1], 1)
        server.start()
        assert_ranks_as_index(engine)


def test_no_server_is_a_connection_error(server):
    url = server.url
    server.kill()
    with pytest.raises(ConnectionError, match="ClickHouse cannot be reached"):
        bitrank.connect(url)


@pytest.mark.slow
def test_a_folder_of_chdb_outlives_the_process(tmp_path):
    # A process of its own for each: chDB holds one folder a process.
    program = """
import sys
import numpy as np
import bitrank
from bitrank.core.codes import pack
with bitrank.connect("chdb://" + sys.argv[1]) as engine:
    engine.create(20)
    if sys.argv[2] == "add":
        engine.add(pack(np.eye(20)), np.arange(20) + 100)
    print(engine.count(), engine.search(pack(np.eye(20)), 1).ids[:, 0].tolist() == list(range(100, 120)))
"""
    for step in ("add", "read"):
        command = [sys.executable, "-c", program, str(tmp_path / "data"), step]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["20", "True"]
