"""PostgreSQL that is killed, started again, too slow, or written to, in the middle of an epoch."""
import signal
import threading
import time

import numpy as np
import pytest

import flambeau as torch
from flambeau.data.sql import reading
from tests.data import servers
from tests.patience import PATIENCE

from .drivers import needs
from .sources import digest, together

pytestmark = [pytest.mark.pinned, pytest.mark.usefixtures("small_blocks")]


@pytest.fixture(scope="module")
def server():
    needs("psycopg")
    if servers.postgres_programs() is None:
        pytest.skip("there is no PostgreSQL on this machine")
    with servers.PostgresServer() as made:
        with connected(made) as con:
            con.execute("CREATE TABLE t AS SELECT g AS id, g / 2.0::float8 AS x, g % 10 AS label "
                        "FROM generate_series(0, 1999) AS g")
            con.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
            con.execute("CREATE FUNCTION slow(n int) RETURNS int VOLATILE LANGUAGE plpgsql "
                        "AS 'BEGIN PERFORM pg_sleep(0.05); RETURN n; END'")
        yield made


def connected(server):
    import psycopg
    return psycopg.connect(server.address, autocommit=True)


def over_adbc(address):
    pytest.importorskip("adbc_driver_postgresql")
    import adbc_driver_postgresql.dbapi
    return lambda: adbc_driver_postgresql.dbapi.connect(address)


WAYS = {"psycopg": lambda address: address, "adbc": over_adbc}
every_way = pytest.mark.parametrize("way", WAYS)


def dataset(server, way="psycopg", **options):
    return torch.data.sql("SELECT * FROM t", WAYS[way](server.address), key="id", label="label", **options)


def backends(server):
    """How many connections are open, without the one that asks."""
    with connected(server) as con:
        return con.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                           "AND pid <> pg_backend_pid()").fetchone()[0]


@every_way
@pytest.mark.parametrize("workers", [0, 2])
def test_the_server_is_killed_and_started_again(server, workers, way):
    expected = digest(dataset(server).batches(10, "block", 3, 1))
    iterator = dataset(server, way).batches(10, "block", 3, 1, workers)
    begun = [next(iterator) for _ in range(20)]
    server.kill()
    again = threading.Timer(0.5, server.start)
    again.start()
    try:
        assert digest([*begun, *iterator]) == expected
    finally:
        again.join()


@every_way
def test_the_server_stays_away(server, monkeypatch, way):
    monkeypatch.setattr(reading, "LONGEST_PAUSE", 0.1)
    data = dataset(server, way)
    data.retry_seconds = 0.5
    iterator = data.batches(10, "block", 3, 1)
    begun = [next(iterator) for _ in range(20)]
    server.stop(signal.SIGINT)
    try:
        with pytest.raises(ConnectionError, match=r"was lost before batch \d+ of epoch 1 \(seed=3\)"):
            for batch in iterator:
                begun.append(batch)
    finally:
        server.start()
    rest = dataset(server).batches(10, "block", 3, 1, start=len(begun))
    assert digest([*begun, *rest]) == digest(dataset(server).batches(10, "block", 3, 1))


@every_way
@pytest.mark.parametrize("workers", [0, 2])
def test_a_connection_that_the_server_ends(server, workers, way):
    expected = digest(dataset(server).batches(10, "block", 3, 1))
    iterator = dataset(server, way).batches(10, "block", 3, 1, workers)
    begun = [next(iterator) for _ in range(10)]
    with connected(server) as con:
        con.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                    "AND backend_type = 'client backend'")
    assert digest([*begun, *iterator]) == expected


@every_way
def test_a_statement_that_takes_too_long_says_so(server, way):
    """And a pass goes on where a statement is in time at the next attempt."""
    address = f"{server.address}&options=-cstatement_timeout%3D200"
    data = torch.data.sql("SELECT id, slow(id) AS x FROM t WHERE id < 100", WAYS[way](address), key="id")
    data.retry_seconds = 0.3
    with pytest.raises(ConnectionError, match="canceling statement due to statement timeout"):
        data.read()


def test_an_epoch_reads_one_state_while_others_write(server):
    data = dataset(server)
    expected = digest(data.batches(10, "block", 3, 1))
    iterator = data.batches(10, "block", 3, 1, workers=2)
    begun = [next(iterator) for _ in range(5)]
    with connected(server) as con:
        con.execute("UPDATE t SET x = x + 1000")
        con.execute("DELETE FROM t WHERE id % 2 = 1")
    try:
        assert digest([*begun, *iterator]) == expected
        assert sum(len(y) for _, y in data.batches(10)) == 1000
    finally:
        with connected(server) as con:
            con.execute("DELETE FROM t")
            con.execute("INSERT INTO t SELECT g, g / 2.0::float8, g % 10 FROM generate_series(0, 1999) AS g")


def test_what_was_lost_with_other_rows_in_between_is_an_error(server):
    """The snapshot dies with the server; if the rows are others then, the epoch cannot go on."""
    iterator = dataset(server).batches(10, "block", 3, 1)
    for _ in range(5):
        next(iterator)
    server.kill()
    server.start()
    with connected(server) as con:
        con.execute("DELETE FROM t WHERE id = 7")
    try:
        with pytest.raises((RuntimeError, ConnectionError), match="batch|chang|writ"):
            list(iterator)
    finally:
        with connected(server) as con:
            con.execute("INSERT INTO t VALUES (7, 3.5, 7)")


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("shuffle", [False, "block", "global"])
def test_a_cancelled_iteration_closes_its_connections(server, shuffle, workers):
    data = dataset(server)
    iterator = data.batches(10, shuffle, 3, 1, workers)
    next(iterator)
    assert backends(server)
    iterator.close()
    deadline = time.monotonic() + PATIENCE
    while (open_now := backends(server)) and time.monotonic() < deadline:    # a server is slow to see that one left,
        time.sleep(0.02)                                                      # even one that has just asked it this
    assert open_now == 0
    np.testing.assert_array_equal(np.sort(together(data.batches(100, shuffle, 3, 1))[0].ravel()), np.arange(2000) / 2)


def test_passwords_are_not_told():
    needs("psycopg")
    from flambeau.data.sql.postgres import source
    made = source("postgresql://me:secret@example.org/books")
    assert made.name == "PostgreSQL, example.org/books" and "secret" not in f"{made.name} {made.identity()}"
