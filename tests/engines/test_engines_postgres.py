"""PostgreSQL where it can fail: connections cut, servers restarted and killed, other shapes, strange names."""

import sys
import uuid
from functools import partial

import numpy as np
import psycopg
import pytest
from threads import in_threads

import bitrank
from bitrank import Index
from bitrank.core.codes import pack
from bitrank.engines import postgres as module
from bitrank.engines import quantize_weights
from bitrank.engines.postgres import PostgresEngine

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 256, (3000, 8), dtype=np.uint8)
IDS = RNG.permutation(10_000)[:3000]
QUERIES = RNG.integers(0, 256, (4, 8), dtype=np.uint8)
WEIGHTS = quantize_weights(RNG.lognormal(0, 1, 64))
EXPECTED = Index(CODES, ids=IDS).search(QUERIES, 10, WEIGHTS)


def new_name():
    return f"codes-{uuid.uuid4()}"


@pytest.fixture
def engine(postgresql_address):
    with bitrank.connect(postgresql_address, new_name()) as engine:
        engine.create(64)
        yield engine


@pytest.fixture
def sql(postgresql_address):
    """A session of an administrator."""
    with psycopg.connect(postgresql_address, autocommit=True) as connection:
        yield connection.execute


def assert_all_there(engine):
    assert engine.count() == len(IDS)
    found = engine.search(QUERIES, 10, WEIGHTS)
    np.testing.assert_array_equal(found.ids, EXPECTED.ids)
    np.testing.assert_array_equal(found.distances, EXPECTED.distances)


def session(engine):
    """The server's process of the engine's connection."""
    return engine._run(lambda connection: connection.info.backend_pid)


class Cuts:
    """Stands in for the progress bar of `add`, and cuts the connection between two chunks."""

    def __init__(self, monkeypatch, cut, times):
        self.left, self.cut = times, cut
        monkeypatch.setattr(module, "CHUNK", 500)
        monkeypatch.setattr(module, "progress", self)

    def __call__(self, chunks, label):
        for number, chunk in enumerate(chunks):
            if number == 3 and self.left:
                self.left -= 1
                self.cut()
            yield chunk


def test_a_connection_cut_in_the_middle_of_an_add_is_made_again(engine, sql, monkeypatch):
    cuts = Cuts(monkeypatch, lambda: sql("SELECT pg_terminate_backend(%s)", [engine._connection.info.backend_pid]), 1)
    engine.add(CODES, IDS)
    assert cuts.left == 0
    assert_all_there(engine)


def test_an_add_that_is_cut_again_adds_nothing_and_may_be_repeated(engine, sql, monkeypatch):
    engine.add(CODES[:7], IDS[:7])
    Cuts(monkeypatch, lambda: sql("SELECT pg_terminate_backend(%s)", [engine._connection.info.backend_pid]), 2)
    with pytest.raises(ConnectionError, match="does not answer"):
        engine.add(CODES, IDS)
    assert engine.count() == 7
    engine.add(CODES, IDS)
    engine.add(CODES, IDS)
    assert_all_there(engine)


@pytest.mark.slow
def test_a_server_killed_in_the_middle_of_an_add_and_restarted(two_servers, monkeypatch):
    server, _ = two_servers
    with bitrank.connect(server.url(), new_name()) as engine:
        engine.create(64)
        engine.add(CODES[:7], IDS[:7])
        Cuts(monkeypatch, server.kill, 1)
        with pytest.raises(ConnectionError, match=f"127.0.0.1:{server.port}/postgres does not answer"):
            engine.add(CODES, IDS)
        with pytest.raises(ConnectionError):
            engine.search(QUERIES, 10)
        server.start()
        assert engine.count() == 7
        engine.add(CODES, IDS)
        assert_all_there(engine)
        before = session(engine)
        server.stop()
        server.start()
        assert_all_there(engine)  # between queries: the caller notices nothing
        assert session(engine) != before


def test_an_error_while_adding_leaves_nothing(engine, monkeypatch):
    def fail():
        raise KeyboardInterrupt

    Cuts(monkeypatch, fail, 1)
    with pytest.raises(KeyboardInterrupt):
        engine.add(CODES, IDS)
    assert engine.count() == 0
    engine.add(CODES, IDS)
    assert_all_there(engine)


def test_a_table_that_is_locked_is_no_lost_connection(postgresql_address, engine, sql):
    with bitrank.connect(f"{postgresql_address}?options=-clock_timeout%3D50ms", engine._names[0]) as hasty:
        before = session(hasty)
        sql(f"BEGIN; LOCK TABLE {engine._table}")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            hasty.add(CODES, IDS)
        sql("COMMIT")
        hasty.add(CODES, IDS)
        assert_all_there(hasty)
        assert session(hasty) == before


def test_the_graph_finds_nearly_all_and_more_than_its_list_holds(engine, sql):
    rng = np.random.default_rng(1)
    centres = rng.integers(0, 2, (40, 64))
    codes = pack(centres[rng.integers(0, 40, 6000)] ^ (rng.random((6000, 64)) < 0.1))
    engine.add(codes, np.arange(6000))
    engine.optimize()
    engine.optimize()  # there already
    sql("ALTER ROLE bitrank SET enable_seqscan = off")
    try:
        engine._connection.close()
        for candidates in (100, 2500):
            expected = Index(codes).search(codes[:20], 50, WEIGHTS, method="rerank", candidates=candidates).ids
            found = engine.search(codes[:20], 50, WEIGHTS, method="rerank", candidates=candidates).ids
            assert (found >= 0).all()
            assert np.mean([np.isin(a, b).mean() for a, b in zip(found, expected, strict=True)]) >= 0.9
        # Removed rows, which the graph keeps until the next vacuum, take no places.
        engine.remove(np.arange(20, 3000))
        assert (engine.search(codes[:20], 50, WEIGHTS, method="rerank", candidates=100).ids >= 0).all()
        plan = sql(f"EXPLAIN SELECT id FROM {engine._table} ORDER BY code <~> '{0:064b}'::bit(64) LIMIT 100").fetchall()
        assert "Index Scan" in str(plan)
    finally:
        sql("ALTER ROLE bitrank RESET enable_seqscan")


@pytest.mark.parametrize("strange", ['x"; DROP TABLE t; --', "it's %s {0} $1", "ünï-cødé ☃", "SELECT", "a.b", "x" * 63])
def test_names_are_quoted(postgresql_address, sql, strange):
    sql("CREATE TABLE IF NOT EXISTS t (id int)")
    with bitrank.connect(postgresql_address, strange, id_column=f"{strange[:60]}id", code_column=strange) as engine:
        engine.create(64)
        engine.add(CODES, IDS)
        engine.optimize()
        engine.remove([10_001])
        assert_all_there(engine)
        assert engine.search(QUERIES, 3).ids.shape == (4, 3)
    assert sql("SELECT count(*) FROM pg_class WHERE relname = ANY(%s)", [[strange, "t"]]).fetchone() == (2,)
    sql(f"DROP TABLE {engine._table}")


@pytest.mark.parametrize("words", [{"name": "x" * 64}, {"name": "codes", "id_column": ""}, {"name": "☃" * 22}])
def test_names_that_would_be_cut_are_refused(postgresql_address, words):
    with pytest.raises(ValueError, match="1 to 63 bytes"):
        bitrank.connect(postgresql_address, **words)


@pytest.mark.parametrize(
    ("columns", "got"),
    [
        ("id bigint, code bytea", "code bytea"),
        ("id bigint, code bit varying", "code bit varying"),
        ("id text, code bit(64)", "id text"),
        ("id bigint", "got id bigint"),
        ("code bit(64)", "got code bit"),
    ],
)
def test_a_table_of_another_shape_is_refused(postgresql_address, sql, columns, got):
    name = new_name()
    sql(f'CREATE TABLE "{name}" ({columns})')
    with bitrank.connect(postgresql_address, name) as engine:
        for call in (lambda: engine.create(64), lambda: engine.add(CODES, IDS), lambda: engine.search(QUERIES, 1)):
            with pytest.raises(ValueError, match=got):
                call()
    assert sql(f'SELECT count(*) FROM "{name}"').fetchone() == (0,)


def test_codes_stay_where_they_are_in_a_table_of_the_user(postgresql_address, sql):
    """Other names, other columns, a smaller type of ids, and rows without a code."""
    name = new_name()
    sql(f'CREATE TABLE "{name}" (title text, nr int UNIQUE, bits bit(12), x int DEFAULT 3)')
    bits = np.random.default_rng(0).integers(0, 2, (50, 12))
    for number, row in enumerate(bits):
        sql(f'INSERT INTO "{name}" VALUES (%s, %s, %s)', ["a title", number, "".join(map(str, row))])
    sql(f'INSERT INTO "{name}" (title, nr) VALUES (%s, %s), (%s, NULL)', ["no code", 77, "no number"])
    with bitrank.connect(postgresql_address, name, id_column="nr", code_column="bits") as engine:
        assert (engine.n_bits, engine.count()) == (12, 50)
        expected = Index(pack(bits), n_bits=12).search(pack(bits[:3]), 60, np.arange(12))
        for method in ("exact", "rerank"):
            results = engine.search(pack(bits[:3]), 60, np.arange(12), method=method)
            np.testing.assert_array_equal(results.ids, expected.ids)
        engine.add(pack(bits[:1]), [100])
        assert engine.count() == 51
        sql(f'INSERT INTO "{name}" (nr, bits) VALUES (-5, %s)', ["0" * 12])
        with pytest.raises(ValueError, match="not be negative, got -5"):
            engine.search(pack(bits[:3]), 60)


def test_adding_needs_a_unique_index(postgresql_address, sql):
    name = new_name()
    sql(f'CREATE TABLE "{name}" (id bigint, code bit(64))')
    with bitrank.connect(postgresql_address, name) as engine, pytest.raises(ValueError, match="unique index"):
        engine.add(CODES, IDS)


@pytest.mark.slow
def test_without_pgvector_the_error_says_how_to_install_it(two_servers):
    """PostgreSQL 18 can be told where to look for extensions: there is none."""
    server = two_servers[1]
    with psycopg.connect(server.url(), autocommit=True) as administrator:
        administrator.execute("CREATE DATABASE bare")
        administrator.execute("ALTER DATABASE bare SET extension_control_path = '/nowhere'")
        administrator.execute("CREATE ROLE guest LOGIN")
    url = server.url("bare")
    with bitrank.connect(url, "codes") as engine, psycopg.connect(url, autocommit=True) as administrator:
        with pytest.raises(ValueError, match=r"apt install postgresql-<version>-pgvector.*CREATE EXTENSION vector"):
            engine.create(64)
        assert administrator.execute("SELECT to_regclass('codes')").fetchone() == (None,)
        administrator.execute("CREATE TABLE codes (id bigint PRIMARY KEY, code bit(64))")
        engine.add(CODES, IDS)
        with pytest.raises(ValueError, match="apt install"):
            engine.search(QUERIES, 10, method="rerank")
        with pytest.raises(ValueError, match="apt install"):
            engine.optimize()
        assert_all_there(engine)  # planes need nothing but PostgreSQL
    with psycopg.connect(server.url(), autocommit=True) as administrator:
        administrator.execute("CREATE DATABASE guarded")
    with (
        bitrank.connect(server.url("guarded").replace("bitrank@", "guest@"), "codes") as engine,
        pytest.raises(ValueError, match="as a superuser"),
    ):
        engine.create(64)


@pytest.mark.slow
def test_a_shard_that_is_killed_is_named(two_servers):
    urls, name = [server.url() for server in two_servers], new_name()
    killed = f"127.0.0.1:{two_servers[1].port}/postgres"
    with bitrank.connect(urls, name) as strict, bitrank.connect(urls, name, missing="report") as lenient:
        strict.create(64)
        strict.add(CODES, IDS)
        assert_all_there(strict)
        assert_all_there(lenient)
        assert lenient.search(QUERIES, 10, WEIGHTS).missing == ()
        two_servers[1].kill()
        with pytest.raises(ConnectionError, match=f"1 of 2 shards are missing: shard 1, .*{killed}"):
            strict.search(QUERIES, 10, WEIGHTS)
        even = IDS % 2 == 0
        ids, distances = found = lenient.search(QUERIES, 10, WEIGHTS)
        assert len(found.missing) == 1
        assert killed in found.missing[0]
        expected = Index(CODES[even], ids=IDS[even]).search(QUERIES, 10, WEIGHTS)
        np.testing.assert_array_equal(ids, expected.ids)
        np.testing.assert_array_equal(distances, expected.distances)
        for call in (lenient.count, lambda: lenient.add(CODES, IDS), lambda: lenient.remove(IDS)):
            with pytest.raises(ConnectionError, match=killed):
                call()
        two_servers[1].start()
        lenient.add(CODES, IDS)  # completes what was begun
        assert_all_there(strict)
        assert lenient.search(QUERIES, 10, WEIGHTS).missing == ()
        for server in two_servers:
            server.stop()
        with pytest.raises(ConnectionError, match="2 of 2"):
            lenient.search(QUERIES, 10)


def test_shards_of_different_shapes_are_refused(postgresql_address):
    name = new_name()
    with bitrank.connect([postgresql_address, "memory://"], name) as shards:
        shards.create(64)
    with bitrank.connect(postgresql_address, name) as engine, pytest.raises(ValueError, match="32 bits, got one of 64"):
        engine.create(32)
    with pytest.raises(ValueError, match='"raise" or "report"'):
        bitrank.connect([postgresql_address], missing="ignore")
    with pytest.raises(ValueError, match="at least one engine"):
        bitrank.connect([])


def test_several_threads_and_sessions_at_once(postgresql_address):
    """Eight make the same table at once, add their parts and search through one engine."""
    name, failures = new_name(), []
    with bitrank.connect(postgresql_address, name) as shared:

        def part(number):
            try:
                with bitrank.connect(postgresql_address, name) as engine:
                    engine.create(64)
                    engine.add(CODES[number::8], IDS[number::8])
                shared.search(QUERIES, 10, WEIGHTS, method="exact" if number % 2 else "rerank")
            except Exception as error:
                failures.append(error)

        in_threads(*(partial(part, number) for number in range(8)))
        assert failures == []
        assert_all_there(shared)


def test_no_server_is_a_connection_error_without_the_password():
    with (
        bitrank.connect("postgresql://me:secret@127.0.0.1:1/base?connect_timeout=2") as engine,
        pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1/base does not answer") as caught,
    ):
        engine.count()
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(engine)


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'bitrank\[postgres\]'"):
        PostgresEngine("postgresql://", "codes")


class TestCodesInTwoParts:
    """Heads in one column, rests in another."""

    WHOLE = RNG.integers(0, 256, (500, 13), dtype=np.uint8) & np.uint8([255] * 12 + [240])  # 100 bits
    IDS = RNG.permutation(2000)[:500]
    HEADS, WHOLES = RNG.normal(size=(3, 40)), RNG.normal(size=(3, 100))

    @pytest.fixture
    def engine(self, postgresql_address):
        with bitrank.connect(postgresql_address, new_name()) as engine:
            engine.create(100, n_scanned=40)
            engine.add(self.WHOLE, self.IDS)
            yield engine

    @pytest.fixture
    def index(self):
        return Index(self.WHOLE, n_bits=100, n_scanned=40, ids=self.IDS)

    @pytest.mark.parametrize("shortlist", [None, 12, 500])
    def test_results_are_those_of_an_index(self, engine, index, shortlist):
        for queries in ((self.HEADS, self.WHOLES), (self.HEADS, None), self.WHOLES, self.WHOLE[:3]):
            expected = index.search(queries, 10, shortlist=shortlist)
            found = engine.search(queries, 10, shortlist=shortlist)
            np.testing.assert_array_equal(found.ids, expected.ids)
            np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-6)

    def test_weights_and_candidates(self, engine, index):
        weights = RNG.lognormal(0, 1, 100)
        expected = index.search(self.WHOLE[:3], 10, weights)
        np.testing.assert_array_equal(engine.search(self.WHOLE[:3], 10, weights).ids, expected.ids)
        everything = engine.search(self.WHOLE[:3], 10, weights, method="rerank", candidates=500, shortlist=500)
        np.testing.assert_array_equal(everything.ids, Index(self.WHOLE, n_bits=100, ids=self.IDS, weights=weights)
                                      .search(self.WHOLE[:3], 10).ids)  # fmt: skip

    def test_whole_codes_come_back_and_change(self, engine, postgresql_address):
        assert (engine.n_bits, engine.n_scanned, engine.count()) == (100, 40, 500)
        np.testing.assert_array_equal(engine.codes(self.IDS), self.WHOLE)
        changed = self.WHOLE[:2] ^ np.uint8([0] * 12 + [128])  # of the rest alone
        engine.add(changed, self.IDS[:2])
        engine.remove(self.IDS[2:4])
        with bitrank.connect(postgresql_address, engine._names[0]) as other:
            assert (other.n_bits, other.n_scanned) == (100, 40)
            np.testing.assert_array_equal(other.codes(self.IDS[:2]), changed)
            assert other.count() == 498
            assert {row.tobytes() for row in other.sample(1000)} <= {*map(bytes, self.WHOLE), *map(bytes, changed)}

    def test_bad_input_changes_nothing(self, engine, postgresql_address):
        with pytest.raises(ValueError, match="shortlist must be at least k, 10, got 9"):
            engine.search(self.WHOLES, 10, shortlist=9)
        with pytest.raises(ValueError, match=r"weights must be None for queries in two parts"):
            engine.search((self.HEADS, self.WHOLES), 10, np.ones(100))
        with pytest.raises(ValueError, match="must have heads of 48 bits, got 40"):
            engine.create(100, n_scanned=48)
        with pytest.raises(ValueError, match="must hold codes of 40 bits, got one of 100"):
            engine.create(40)
        for n_scanned in (41, 104):
            with pytest.raises(ValueError, match="n_scanned must be a multiple of 8 up to 100"):
                engine.create(100, n_scanned=n_scanned)
        with bitrank.connect(postgresql_address, new_name()) as plain:
            plain.create(100)
            with pytest.raises(ValueError, match="shortlist must be None for a table without rests, got 10"):
                plain.search(self.WHOLES, 10, shortlist=10)
        with (
            bitrank.connect(postgresql_address, new_name(), code_column="c" * 59) as long,
            pytest.raises(ValueError, match="code_column must have at most 58 bytes"),
        ):
            long.create(100, n_scanned=40)
        np.testing.assert_array_equal(engine.codes(self.IDS), self.WHOLE)
