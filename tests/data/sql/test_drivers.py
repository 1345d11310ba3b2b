"""What a driver does beside the tests of all: files, streams, frames, ways of writing parameters, types."""
import contextlib
import datetime
import gc
import math
import multiprocessing
import os
import pickle
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pytest

import flambeau as torch
from flambeau.data.sql.engines import source_of
from flambeau.data.sql.postgres_arrays import element_starts
from flambeau.data.sql.ranges import range_condition, range_values
from flambeau.data.sql.source import TableChanged
from tests.backends.test_arrow import Column, Producer
from tests.patience import PATIENCE

from .drivers import ADBCPostgresEngine, DuckDBEngine, MariaDBEngine, PostgresEngine, foreign_driver, needs
from .sources import INTEGER, REAL, TEXT, digest, plain_table, together

pytestmark = [pytest.mark.pinned]


@pytest.fixture
def folder(tmp_path):
    """A folder of three Parquet files, with a thousand rows in all."""
    needs("duckdb")
    import duckdb
    with duckdb.connect() as con:
        for part in range(3):
            con.execute(f"COPY (SELECT range AS id, range / 7 AS x, range % 3 AS label FROM range(1000) "
                        f"WHERE range // 400 = {part}) TO '{tmp_path}/part-{part}.parquet'")
    return tmp_path


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_folder_of_parquet_files(folder):
    for con in (folder, str(folder), f"{folder}/*.parquet"):
        data = torch.data.sql("SELECT * FROM data WHERE id < 900", con, key="id", label="label")
        x, y = data.read()
        np.testing.assert_allclose(x[:, 0].numpy(), np.arange(900) / 7, rtol=1e-6)
        assert y.tolist() == [i % 3 for i in range(900)]
        shuffled = together(data.batches(64, "block", seed=0))[0].ravel()
        assert sorted(shuffled.tolist()) == x[:, 0].tolist() != shuffled.tolist()
    one = torch.data.sql("SELECT * FROM data", folder / "part-1.parquet", key="id")
    assert len(one) == 400
    named = torch.data.sql(f"SELECT * FROM '{folder}/part-2.parquet'", "duckdb:", key="id")
    assert len(named) == 200


MANY_FILES_QUERIES = [                 # whether a group needs no other file than those with its keys
    ("SELECT * FROM data", True),
    ("SELECT d.id, x, label FROM data AS d WHERE x > 20", True),
    ("SELECT x * 2 AS x, label, id FROM Data WHERE id % 5 <> 1", True),
    ("SELECT * EXCLUDE (x), avg(x) OVER () AS x FROM data", False),
    ("SELECT * FROM data WHERE x < (SELECT avg(x) FROM data)", False),
    ("SELECT * REPLACE (999 - id AS id) FROM data", False),
    ("SELECT 999 - id AS id, x, label FROM data", False),
    ("SELECT id + 0 AS id, x, label FROM data", False),
    ("SELECT id, x, label FROM data AS d(x, id, label)", False),
    ("SELECT id, max(x) AS x, any_value(label) AS label FROM data GROUP BY id", False),
    ("SELECT id, x, label FROM data ORDER BY x LIMIT 500", False),
    ("WITH d AS (SELECT * FROM data) SELECT * FROM d", False),
]


@pytest.mark.parametrize("apart", [True, False], ids=["keys by file", "keys in every file"])
@pytest.mark.parametrize("query, plain", MANY_FILES_QUERIES)
def test_of_many_files_those_are_read_that_have_the_keys(query, plain, apart, tmp_path, small_blocks):
    """What comes is what comes of one file with all of the rows; one of the files has none."""
    needs("duckdb")
    import duckdb
    (tmp_path / "many").mkdir()
    rows = "SELECT range AS id, (range * 37 % 1000)::DOUBLE AS x, range % 3 AS label FROM range(1000)"
    with duckdb.connect() as con:
        con.execute(f"COPY ({rows}) TO '{tmp_path}/one.parquet'")
        for part in range(9):
            which = "range // 128" if apart else "range % 8"
            con.execute(f"COPY ({rows} WHERE {which} = {part}) TO '{tmp_path}/many/{part}.parquet'")
    one, many = (torch.data.sql(query, tmp_path / name, key="id", label="label") for name in ("one.parquet", "many"))
    for shuffle, workers in (False, 0), ("block", 0), ("block", 2):
        given, expected = (together(data.batches(64, shuffle, seed=3, epoch=1, workers=w))
                           for data, w in ((many, workers), (one, 0)))
        for ours, theirs in zip(given, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    files = many.explain().split("for each group")[1].count(".parquet'")
    assert files == 0 if not plain else files < 8 if apart else files == 8, many.explain()


def test_a_csv_file(tmp_path):
    needs("duckdb")
    path = tmp_path / "rows.csv"
    path.write_text("id,x,word\n" + "".join(f"{i},{i / 4},{'ab'[i % 2]}\n" for i in range(50)))
    data = torch.data.sql("SELECT * FROM data", path, key="id", codes={"word": {"a": 0, "b": 1}})
    assert data.read().tolist() == [[i / 4, i % 2] for i in range(50)]


def test_files_that_are_replaced_are_noticed(folder, small_blocks):
    data = torch.data.sql("SELECT * FROM data", folder, key="id", label="label")
    iterator = data.batches(16, "block", seed=0, workers=0)
    next(iterator)
    os.utime(folder / "part-0.parquet", (1, 1))
    with pytest.raises(TableChanged, match="was written to while it was read"):
        list(iterator)


@pytest.mark.parametrize("version, fine", [("1.2.0", False), ("1.4.4", False), ("1.4.5", True), ("1.10.0", True),
                                           ("2.0.0", True), ("1.4.5.dev12", True)])
def test_a_duckdb_that_is_too_old_is_refused(version, fine):
    needs("duckdb")
    from flambeau.data.sql.duckdb import refuse_older
    with contextlib.nullcontext() if fine else pytest.raises(
            ImportError, match=f"DuckDB 1.4.5 or later is needed, and {version} is installed"):
        refuse_older(version)


def test_what_is_no_file_is_refused(tmp_path):
    needs("duckdb")
    with pytest.raises(FileNotFoundError, match="there are no such files"):
        torch.data.sql("SELECT * FROM data", tmp_path / "nothing.parquet")
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        torch.data.sql("SELECT 1", "duckdb:" + str(tmp_path / "nothing.duckdb"))


def test_a_connection_stays_in_its_process(tmp_path):
    engine = DuckDBEngine(tmp_path)
    plain_table(engine, 10)
    with pytest.raises(TypeError, match="cannot be sent to another process: give the path of the file"):
        pickle.dumps(engine.sql("SELECT * FROM t", key="id"))
    engine.close()
    data = torch.data.sql("SELECT * FROM t", tmp_path / "tables.duckdb", key="id")
    assert len(pickle.loads(pickle.dumps(data)).read()) == 10


# --- DuckDB's instances ---------------------------------------------------------------------------------------------


def wide_file(path, order="ASC", rows=40_000, columns=30):
    """A file of DuckDB with 30 columns of reals, each of which is id / 8 and a number more."""
    import duckdb
    with duckdb.connect(str(path)) as con:
        values = ", ".join(f"id / 8.0 + {i} AS f{i}" for i in range(columns))
        con.execute(f"CREATE TABLE t AS SELECT id, {values} FROM (SELECT range AS id FROM range({rows})) "
                    f"ORDER BY {'id' if order == 'ASC' else 'hash(id)'}")
    return path


@pytest.mark.parametrize("order", ["ASC", "hash"])
def test_rows_are_the_same_however_they_lie_in_the_file(tmp_path, order):
    needs("duckdb")
    expected = np.arange(40_000)[:, None] / 8 + np.arange(30)
    data = torch.data.sql("SELECT * FROM t", wide_file(tmp_path / "t.duckdb", order), key="id", dtype=torch.float64)
    np.testing.assert_array_equal(torch.cat(list(data.batches(1000, workers=1))).numpy(), expected)
    shuffled = torch.cat(list(data.batches(1000, "block", 0, 0, workers=2))).numpy()
    assert (shuffled[:, 0] != expected[:, 0]).any()
    np.testing.assert_array_equal(shuffled[np.argsort(shuffled[:, 0])], expected)
    assert data.source.unordered is (order == "hash")
    other = torch.data.sql("SELECT * FROM t", tmp_path / "t.duckdb", key="id", dtype=torch.float64)
    other.source.unordered = True                              # sorted by DuckDB, they are the same
    np.testing.assert_array_equal(torch.cat(list(other.batches(1000, "block", 0, 0))).numpy(), shuffled)


NUMBERED = [                    # queries, and whether a column more leaves their rows as they are
    ("SELECT * FROM t", True), ("\n select id, a FROM t AS u WHERE a > 0 -- and no more", True),
    ("SELECT id, a, 7 AS rowid FROM t WHERE id IN (SELECT id FROM t WHERE a < 1)", True),
    ("SELECT id, sum(a) OVER (ORDER BY id) AS a FROM t", True), ("SELECT id, a FROM numbered", False),
    ("SELECT DISTINCT id, a FROM t", False), ("SELECT id, a FROM t GROUP BY ALL", False),
    ("SELECT id, max(a) AS a FROM t GROUP BY id HAVING max(a) > 0", False), ("SELECT id, a FROM t LIMIT 400", False),
    ("SELECT id, a FROM t ORDER BY 1", False), ("FROM t SELECT id, a", False), ("(SELECT id, a FROM t)", False),
    ("WITH u AS (FROM t) SELECT id, a FROM u", False), ("SELECT id, a FROM seen", False),
    ("SELECT t.id, u.a FROM t JOIN t AS u USING (id)", False), ("SELECT id, unnest([a]) AS a FROM t", True),
    ("SELECT unnest([id, id + 0.5::INT]) AS id, a FROM t WHERE id % 9 = 0", False),
    ("SELECT id, a FROM t UNION ALL SELECT id + 1000, a FROM t", False),
    ("SELECT id, a FROM t QUALIFY row_number() OVER (ORDER BY id) < 99", False),
    ("SELECT id, a FROM range(300) AS r(id), t AS u(i, a, b, label) WHERE r.id = u.i", False)]


@pytest.mark.parametrize("way", ["file", "connection"])
def test_rows_are_found_by_number_where_a_query_has_numbers(tmp_path, small_blocks, way):
    """With rows deleted in between, so that numbers and keys differ. `numbered` has a column rowid of its own, which
    goes down; `seen` is a view."""
    engine = DuckDBEngine(tmp_path)
    plain_table(engine, 500)
    engine.execute("DELETE FROM t WHERE id % 7 = 3 OR id BETWEEN 100 AND 140")
    engine.execute("CREATE TABLE numbered AS SELECT -id AS rowid, id, a FROM t ORDER BY id")
    engine.execute("CREATE VIEW seen AS FROM t")
    expected = {text: engine.own.cursor().execute(f"SELECT id, a::FLOAT FROM ({text}\n) ORDER BY id").fetchall()
                for text, _ in NUMBERED}
    if way == "file":
        engine.close()
    for text, by_number in NUMBERED:
        data = torch.data.sql(text, engine.own if way == "connection" else tmp_path / "tables.duckdb", key="id",
                              features=["a"], label="id")
        given = list(data.batches(16, "block", 0, 0))
        numbers, found = torch.cat([y for _, y in given]).numpy(), torch.cat([x for x, _ in given]).numpy()[:, 0]
        places = np.argsort(numbers)
        assert [*zip(numbers[places].tolist(), found[places].tolist())] == expected[text], text
        assert (numbers[1:] < numbers[:-1]).any(), text
        assert ("flambeau_row" in data.explain()) is by_number, text
        np.testing.assert_array_equal(data[17][0].numpy(), np.float32(expected[text][17][1]))
    engine.close()


@pytest.mark.parametrize("installed", [True, False])
def test_duckdbs_public_ways_give_the_same(tmp_path, monkeypatch, installed):
    """Those that are used of other versions: with pyarrow, and without."""
    needs("duckdb", "pyarrow")
    from flambeau.data.sql import duckdb_session
    path = wide_file(tmp_path / "t.duckdb")

    def all_ways():
        keyed, keyless = (torch.data.sql("SELECT * FROM t WHERE f0 >= ?", path, params=[9], key=key)
                          for key in ("id", None))
        return [digest(keyed.batches(1000, "block", 0, 0)), digest(keyed.batches(1000)), digest(keyless.batches(1000))]
    expected = all_ways()
    monkeypatch.setattr(duckdb_session, "SUBMITS_STREAMS", False)
    if not installed:
        monkeypatch.setattr(duckdb_session.importlib.util, "find_spec", lambda name: None)
    assert all_ways() == expected


def test_what_happens_by_chance_costs_no_memory():
    """Sessions that read at the same time may be short of memory together. More is kept where it was never enough, or
    where a statement is short of it again and again."""
    engine = pytest.importorskip("flambeau.data.sql.duckdb", exc_type=ImportError)
    source = engine.source(":memory:")
    least = source.memory_mib
    assert source.more_memory(least) and source.memory_mib == 2 * least           # nothing has been fetched yet
    assert source.more_memory(least) and source.memory_mib == 2 * least           # another session had that before
    for _ in range(5):
        source.had_enough()
        for _ in range(engine.SHORTAGES_IN_A_ROW - 1):
            assert source.more_memory(2 * least) and source.memory_mib == 2 * least
    with ThreadPoolExecutor(1) as other:
        other.submit(source.had_enough).result()                                  # which says nothing of this thread's
    assert source.more_memory(2 * least) and source.memory_mib == 4 * least
    source.memory_mib = 1024
    assert not source.more_memory(1024)


def test_a_statement_that_needs_more_memory_gets_it(tmp_path, monkeypatch):
    needs("duckdb")
    from flambeau.data.sql import duckdb as engine, duckdb_session
    monkeypatch.setattr(engine, "MEMORY_MIB_A_SESSION", 0)
    data = torch.data.sql("SELECT * FROM t", wide_file(tmp_path / "t.duckdb"), key="id")
    expected = digest(data.batches(1000, "block", 0, 0))
    data.source.memory_mib = 1
    assert digest(data.batches(1000, "block", 0, 0, workers=2)) == expected and data.source.memory_mib > 1
    for module in (engine, duckdb_session):
        monkeypatch.setattr(module, "SORTING_MEMORY_MIB", 1)            # there is no more
    data.source.memory_mib = 1
    with pytest.raises(Exception, match="Out of Memory Error"):
        list(data.batches(1000, "block", 0, 0))


@pytest.mark.parametrize("key", ["id", "name"])
def test_keys_that_do_not_lie_in_order_are_sorted_with_little_memory(tmp_path, monkeypatch, key):
    needs("duckdb")
    import duckdb

    from flambeau.data.sql import duckdb as engine, duckdb_session
    path = str(tmp_path / "t.duckdb")
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE t AS SELECT (range * 7919) % 1000003 AS id, printf('%07d', id) AS name, "
                    "range::FLOAT AS x FROM range(1000003)")
    opened, open_instance = [], engine.DuckDBSource.open
    monkeypatch.setattr(engine.DuckDBSource, "open",
                        lambda self, mib, threads: opened.append((mib, threads)) or open_instance(self, mib, threads))

    def looked_at():
        opened.clear()
        data = torch.data.sql("SELECT * FROM t", path, key=key, features=["x"])
        assert len(data) == 1000003
        return data.source.connect().boundaries(data.query, (key,), 8192)

    plenty = looked_at()
    assert (duckdb_session.SORTING_KEYS_MIB, 1) in opened
    assert max(opened)[0] < duckdb_session.SORTING_MEMORY_MIB
    monkeypatch.setattr(duckdb_session, "SORTING_KEYS_MIB", 1)                # too little, and twice as much too
    assert looked_at() == plenty
    assert {(1, 1), (2, 1)} <= {*opened}


def test_sessions_of_a_process_share_an_instance_which_ends_with_them(tmp_path):
    needs("duckdb")
    data = torch.data.sql("SELECT * FROM t", wide_file(tmp_path / "t.duckdb"), key="id")
    instance = data.source.instance
    assert instance.now is None
    iterator = data.batches(1000, "block", 0, 0, workers=2)
    first = next(iterator)
    held = data.source.connect()
    held.con.execute("SELECT 1")
    mine = instance.now
    here, there = multiprocessing.Pipe()

    def child():                                               # has an instance of its own
        there.send(digest(data.batches(1000, "block", 0, 0)))
        there.send(instance.now is None and instance.of_parents == [None, mine])

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    there.close()
    assert here.poll(PATIENCE)
    given = here.recv()
    assert here.poll(PATIENCE) and here.recv() is True
    process.join(PATIENCE)
    assert process.exitcode == 0 and instance.now is mine
    assert digest([first, *iterator]) == given
    assert instance.now is mine and mine.sessions == 1
    held.close()
    assert instance.now is None and mine.sessions == 0


def test_nothing_is_written_to_the_programs_output(tmp_path):
    """DuckDB shows a bar of how far a long statement is, unless it is told not to."""
    needs("duckdb")
    data = torch.data.sql("SELECT * FROM t", wide_file(tmp_path / "t.duckdb"), key="id")
    session = data.source.connect()
    asked = "SELECT current_setting('enable_progress_bar')"
    assert session.con.execute(asked).fetchall() == [(False,)]
    with session.with_threads(sorts=False) as streamer:
        assert streamer.con.execute(asked).fetchall() == [(False,)]
    session.close()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_of_a_large_table_instances_forget(tmp_path, monkeypatch, small_blocks, workers):
    """DuckDB would remember all of it: whatever the number of rows, no instance looks at more than some ranges, and one
    that has looked at all to find boundaries is used no more. Every one that was opened is closed again, and there are
    never two: who has nothing to read does not hold one."""
    needs("duckdb")
    engine = DuckDBEngine(tmp_path)
    x, label = plain_table(engine, 500)
    engine.close()
    expected = digest(torch.data.sql("SELECT * FROM t", str(tmp_path / "tables.duckdb"), key="id",
                                     label="label").batches(32, "block", 0, 0))
    data = torch.data.sql("SELECT * FROM t", str(tmp_path / "tables.duckdb"), key="id", label="label")
    opened, instances = data.source.open, []
    fetched, looked_at = data.source.instance.fetched, {}

    def open_one(*args):
        instances.append(opened(*args))
        return instances[-1]

    def fetch_some(instance, ranges):
        looked_at[instance] = looked_at.get(instance, 0) + ranges
        return fetched(instance, ranges)
    monkeypatch.setattr(data.source, "open", open_one)
    monkeypatch.setattr(data.source.instance, "fetched", fetch_some)
    for module in ("duckdb_instance", "duckdb_session"):
        monkeypatch.setattr(f"flambeau.data.sql.{module}.RANGES_OF_INSTANCE", 10)
    monkeypatch.setattr("flambeau.data.sql.duckdb_session.ROWS_OF_INSTANCE", 490)
    assert digest(data.batches(32, "block", 0, 0, workers)) == expected
    ranges = list(looked_at.values())
    assert ranges[0] == 11 and len(ranges) > 4                        # the first has found the boundaries
    assert max(ranges) <= 10 + 4 * (workers or 2)                      # a group of each session that was reading
    assert len(instances) == 1
    assert data.source.instance.now is None
    for each in instances:
        with pytest.raises(Exception, match="(?i)closed"):
            each.execute("SELECT 1")


def test_an_instance_that_forgets_reads_the_file_that_is_there(tmp_path):
    """It is attached anew; if that fails, the instance is not used again."""
    needs("duckdb")
    path = wide_file(tmp_path / "t.duckdb")
    source = source_of(path)
    con = source.open(16, 1)
    assert source.forget(con) and con.execute("SELECT count(*) FROM t").fetchall()[0][0] > 0
    os.rename(path, tmp_path / "elsewhere.duckdb")
    assert source.forget(con) is False
    con.close()


@pytest.mark.parametrize("rows_read, keeps", [(10 ** 6, False), (300, True)])
def test_footers_are_kept_where_a_statement_would_read_many(tmp_path, monkeypatch, small_blocks, rows_read, keeps):
    """Else they would all be in memory in the end: those of two of ten files are read again instead."""
    needs("duckdb")
    import duckdb
    with duckdb.connect() as con:
        for part in range(10):
            con.execute(f"COPY (SELECT range AS id, range / 7 AS x FROM range({200 * part}, {200 * part + 200})) "
                        f"TO '{tmp_path}/{part}.parquet'")
    monkeypatch.setattr("flambeau.data.sql.duckdb.ROWS_OF_READ_FOOTERS", rows_read)
    data = torch.data.sql("SELECT * FROM data", str(tmp_path), key="id", features=["id"])
    first, second = data.batches(100, "block", 0, 0, workers=2), data.batches(100, "block", 0, 0)
    given = [rows[:, 0].tolist() for rows in first]
    next(second)
    session = data.source.connect()                                   # in the instance that the second reads from
    assert session.con.execute("SELECT current_setting('parquet_metadata_cache')").fetchall() == [(keeps,)]
    session.close()
    second.close()
    assert sorted(sum(given, [])) == list(range(2000)) and data.source.keeps_footers is keeps


@pytest.mark.parametrize("query, stretches", [
    ("SELECT * FROM t", 7), ("SELECT * FROM t WHERE a > ?", 7), ("SELECT * FROM t ORDER BY b", 1),
    ("SELECT * FROM seen", 1), ("SELECT * FROM t WHERE id < 0", 1)])
def test_a_large_table_without_a_key_is_read_by_several_instances(tmp_path, monkeypatch, query, stretches):
    """In the order of the query, with gaps where rows were deleted."""
    needs("duckdb")
    import duckdb
    engine = DuckDBEngine(tmp_path)
    plain_table(engine, 500)
    engine.execute("DELETE FROM t WHERE id % 7 = 3")
    engine.execute("CREATE VIEW seen AS SELECT * FROM t")
    engine.close()
    params = [0.5] if "?" in query else None
    data = torch.data.sql(query, str(tmp_path / "tables.duckdb"), params=params, features=["id", "a"],
                          dtype=torch.float64)
    opened, instances = data.source.open, []
    monkeypatch.setattr(data.source, "open", lambda *args: instances.append(opened(*args)) or instances[-1])
    expected = [rows.tolist() for rows in data.batches(32)]
    before = len(instances)
    monkeypatch.setattr("flambeau.data.sql.duckdb_session.ROWS_OF_INSTANCE", 74)
    assert [rows.tolist() for rows in data.batches(32)] == expected
    assert len(instances) - 2 * before == stretches - 1
    with duckdb.connect(str(tmp_path / "tables.duckdb")) as con:       # all are closed, or it could not be opened
        con.execute("UPDATE t SET a = 0")


# --- Arrow's streams ------------------------------------------------------------------------------------------------


def test_a_stream_without_any_library(monkeypatch):
    """Read in its own order, by a key, shuffled; and a second time."""
    rows = [[Column("l", range(lo, lo + 300)), Column("g", [i / 2 for i in range(lo, lo + 300)]),
             Column("c", [i % 2 for i in range(300)], dictionary=Column("u", ["no", "yes"]))] for lo in (300, 0, 600)]
    options = dict(features=["x"], label="word", codes={"word": {"no": 0, "yes": 1}})
    x, y = torch.data.sql("SELECT * FROM data", Producer(*rows, names=["id", "x", "word"]), **options).read()
    assert x[:2, 0].tolist() == [150.0, 150.5] and y[:4].tolist() == [0, 1, 0, 1]
    data = torch.data.sql("SELECT id, x, word FROM data", Producer(*rows, names=["id", "x", "word"]), key="id",
                          **options)
    assert data.read()[0][:, 0].tolist() == [i / 2 for i in range(900)]
    for shuffle in ("block", "global"):
        given = together(data.batches(32, shuffle, seed=0))[0].ravel()
        assert sorted(given.tolist()) == [i / 2 for i in range(900)] != given.tolist()
    keyless = torch.data.sql("SELECT * FROM data", Producer(*rows, names=["id", "x", "word"]), **options)
    given = together(keyless.batches(32, "block", seed=0))[0].ravel()
    assert sorted(given.tolist()) == [i / 2 for i in range(900)] != given.tolist()


def test_statements_that_need_a_database_are_refused():
    producer = Producer([Column("l", [1, 2])], names=["id"])
    for query in ("SELECT * FROM data WHERE id > 1", "SELECT id + 1 FROM data", "SELECT * FROM other"):
        with pytest.raises(NotImplementedError, match="answers SELECT . FROM data.*give DuckDB's connection as con"):
            torch.data.sql(query, producer)
    with pytest.raises(ValueError, match="has no column 'z'; it has id"):
        torch.data.sql("SELECT z FROM data", producer)


def test_what_is_done_without_a_database_is_explained():
    producer = Producer([Column("l", [3, 1, 2]), Column("g", [0, 1, 2])], names=["id", "x"])
    query = "SELECT /* both */ x, id -- as they lie\nFROM data -- all of it"
    by_key, by_place = torch.data.sql(query, producer, key="id"), torch.data.sql(query, producer)
    assert "id of" in by_key.explain() and ", sorted in memory" in by_key.explain()
    assert "1 range of the places of rows of" in by_place.explain() and "features   float32[n, 2]: x, id" in \
        by_place.explain()
    assert by_key.read().tolist() == [[1.0], [2.0], [0.0]]


def test_null_and_duplicate_keys_of_streams():
    twice = Producer([Column("l", [1, 2, 2]), Column("g", [0, 1, 2])], names=["id", "x"])
    with pytest.raises(ValueError, match=r"key=\['id'\]: .*2.* comes more than once"):
        torch.data.sql("SELECT * FROM data", twice, key="id").batches(2)
    missing = Producer([Column("l", [1, None]), Column("g", [0, 1])], names=["id", "x"])
    with pytest.raises(ValueError, match=r"key=\['id'\]: 'id' is NULL"):
        torch.data.sql("SELECT * FROM data", missing, key="id").batches(2)


EVERY = {
    "i8": ([1, None, -128], "int8"), "u64": ([2 ** 64 - 1, 0, None], "uint64"), "f32": ([0.5, None, -1.5], "float32"),
    "b": ([True, False, None], "bool"), "s": (["a", None, "é" * 20], "string"),
    "d": ([Decimal("1.25"), Decimal("-3.5"), None], "decimal"), "day": ([datetime.date(1970, 1, 3), None, datetime.date(
        1969, 12, 31)], "date"), "t": ([datetime.datetime(1970, 1, 1, 0, 0, 2), None, None], "timestamp")}
EVERY_NUMBER = {"i8": [1, None, -128], "u64": [2.0 ** 64, 0, None], "f32": [0.5, None, -1.5], "b": [1, 0, None],
                "s": [1, None, 2], "d": [1.25, -3.5, None], "day": [2, None, -1], "t": [2.0, None, None]}


def arrow_table():
    import pyarrow
    types = {"int8": pyarrow.int8(), "uint64": pyarrow.uint64(), "float32": pyarrow.float32(), "bool": pyarrow.bool_(),
             "string": pyarrow.string(), "decimal": pyarrow.decimal128(10, 2), "date": pyarrow.date32(),
             "timestamp": pyarrow.timestamp("ms")}
    return pyarrow.table({name: pyarrow.array(values, types[kind]) for name, (values, kind) in EVERY.items()})


PRODUCERS = {
    "pyarrow": lambda: arrow_table(),
    "pyarrow, sliced": lambda: __import__("pyarrow").concat_tables([arrow_table()] * 3).combine_chunks().slice(3, 3),
    "pyarrow, reader": lambda: arrow_table().to_reader(2),
    "pyarrow, one batch": lambda: arrow_table().to_batches()[0],
    "pyarrow, dictionaries": lambda: arrow_table().set_column(4, "s", arrow_table()["s"].dictionary_encode()),
    "pyarrow, large": lambda: arrow_table().set_column(4, "s", arrow_table()["s"].cast("large_string")),
    "pyarrow, views": lambda: arrow_table().set_column(4, "s", arrow_table()["s"].cast(
        __import__("pyarrow").string_view())),
    "polars": lambda: __import__("polars").from_arrow(arrow_table()),
    "polars, categories": lambda: __import__("polars").from_arrow(arrow_table()).with_columns(
        __import__("polars").col("s").cast(__import__("polars").Categorical)),
    "duckdb": lambda: __import__("duckdb").from_arrow(arrow_table()).to_arrow_table(),
    "pandas": lambda: arrow_table().to_pandas(types_mapper={
        __import__("pyarrow").int8(): __import__("pandas").Int8Dtype(),
        __import__("pyarrow").uint64(): __import__("pandas").UInt64Dtype()}.get),
}


@pytest.mark.parametrize("producer", PRODUCERS)
def test_every_type_of_every_producer(producer):
    needs("pyarrow", producer.split(",")[0])
    made = PRODUCERS[producer]()
    data = torch.data.sql("SELECT * FROM data", made, dtype=torch.float64, nulls="nan",
                          codes={"s": {"a": 1, "é" * 20: 2}})
    given = data.read().numpy()
    expected = np.array([[math.nan if value is None else value for value in EVERY_NUMBER[name]] for name in EVERY]).T
    np.testing.assert_array_equal(given, expected)
    del data, made
    gc.collect()


def test_pyarrow_gets_its_memory_back():
    needs("pyarrow")
    import pyarrow
    gc.collect()
    before = pyarrow.total_allocated_bytes()
    table = pyarrow.table({"x": np.arange(100_000.0)}).cast(pyarrow.schema([("x", pyarrow.float32())]))
    assert pyarrow.total_allocated_bytes() > before
    for _ in range(3):
        torch.data.sql("SELECT * FROM data", table).read()
        list(torch.data.sql("SELECT * FROM data", table).batches(1000, "block", seed=0))
    del table
    gc.collect()
    assert pyarrow.total_allocated_bytes() == before


def test_a_column_that_cannot_be_decoded_may_be_left_out():
    needs("pyarrow")
    import pyarrow
    table = pyarrow.table({"x": [1.0, 2.0], "many": [[1], [2, 3]]})
    assert torch.data.sql("SELECT * FROM data", table, features=["x"]).read().tolist() == [[1], [2]]
    with pytest.raises(TypeError, match="column 'many' is Arrow's .*, which no tensor holds"):
        torch.data.sql("SELECT * FROM data", table)


def rows_over_adbc(con):
    """The rows of a query over a connection of ADBC's, as the documentation says: as an Arrow stream."""
    with contextlib.closing(con), contextlib.closing(con.cursor()) as cursor:
        cursor.execute("SELECT * FROM t ORDER BY id")
        data = torch.data.sql("SELECT * FROM data", cursor.fetch_arrow(), key="id", label="label")
        return data.read(), together(data.batches(16, "block", 1, 0))[0]


def test_postgres_over_adbc(tmp_path):
    needs("psycopg", "adbc_driver_postgresql")
    import adbc_driver_postgresql.dbapi
    engine = PostgresEngine(tmp_path)
    x, label = plain_table(engine, 150)
    (read, labels), shuffled = rows_over_adbc(adbc_driver_postgresql.dbapi.connect(engine.address))
    np.testing.assert_array_equal(read.numpy(), x)
    assert labels.tolist() == label.tolist() and sorted(shuffled.tolist()) == sorted(x.tolist()) != shuffled.tolist()
    con = adbc_driver_postgresql.dbapi.connect(engine.address)           # an open one, of which copies read
    data = torch.data.sql("SELECT * FROM t WHERE id < $1", con, params=[100], key="id", label="label")
    np.testing.assert_array_equal(data.read()[0].numpy(), x[:100])
    expected = digest(engine.sql("SELECT * FROM t WHERE id < %s", params=[100], key="id", label="label").batches(
        9, "block", seed=3, epoch=1))
    assert digest(data.batches(9, "block", seed=3, epoch=1, workers=2)) == expected       # the same with psycopg
    with pytest.raises(TypeError, match="over ADBC PostgreSQL's parameters are .1, .2, …: give a list"):
        torch.data.sql("SELECT * FROM t WHERE id < $1", con, params={"most": 100}, key="id").read()
    con.close()
    engine.close()


@pytest.mark.parametrize("values", [["a", 'b"', "c\\", "d'", "{e,f}", "", "NULL", "é "], [0.1, 1e300, -2.5],
                                    ["2024-01-01", "1969-12-31"]])
def test_keys_of_every_type_over_adbc(tmp_path, small_blocks, values):
    """Texts with whatever means something in an array, floats and dates, alone and behind a number."""
    needs("psycopg", "adbc_driver_postgresql")
    engine = ADBCPostgresEngine(tmp_path)
    kind = "float8" if isinstance(values[0], float) else "date" if values[0][:2] in ("20", "19") else "text"
    engine.execute(f"CREATE TABLE t (n int2, k {kind}, x float8, PRIMARY KEY (n, k))")
    engine.insert("t", [(n, value, 100.0 * n + i) for n in range(9) for i, value in enumerate(values)])
    every = sorted(100.0 * n + i for n in range(9) for i in range(len(values)))
    data = engine.sql("SELECT * FROM t", key=["n", "k"], features=["x"])
    assert sorted(together(data.batches(5, "block", seed=0, workers=1))[0].ravel().tolist()) == every
    one = engine.sql("SELECT k, x FROM t WHERE n = 3", key="k", features=["x"])
    assert sorted(together(one.batches(2, "block", seed=0))[0].ravel().tolist()) == [x for x in every if x // 100 == 3]
    engine.close()


@pytest.mark.parametrize("make", [PostgresEngine, ADBCPostgresEngine])
@pytest.mark.parametrize("at_a_time", [1, 5, 38, 39])
def test_boundaries_come_some_at_a_time(tmp_path, small_blocks, monkeypatch, make, at_a_time):
    """Of a large table there are many; which are objects together at any moment changes nothing."""
    engine = make(tmp_path)
    x, _ = plain_table(engine, 150)                             # 19 blocks, and the two ends of each
    shuffled = lambda: together(engine.sql("SELECT * FROM t", key="id", label="label").batches(9, "block", seed=3))
    expected = shuffled()
    if make is ADBCPostgresEngine:
        from flambeau.data.sql import adbc_postgres as module
        monkeypatch.setattr(module, "BATCH_BYTES_OF_BOUNDARIES", 20 * at_a_time)
    else:
        from flambeau.data.sql import postgres as module
    monkeypatch.setattr(module, "BOUNDARIES_AT_A_TIME", at_a_time)
    found = shuffled()
    assert sorted(found[0].tolist()) == sorted(x.tolist())
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    engine.close()


@pytest.mark.parametrize("make", [PostgresEngine, ADBCPostgresEngine])
def test_a_look_at_a_row_leaves_no_transaction(tmp_path, make):
    engine = make(tmp_path)
    plain_table(engine, 60)
    data = engine.sql("SELECT * FROM t", key="id", label="label")
    for _ in range(2):
        data[7]
        found = engine.own.execute("SELECT count(*) FILTER (WHERE state <> 'idle'), count(*) FROM pg_stat_activity "
                                   "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'").fetchone()
        assert found == (0, 1)                                  # the one connection stays
    del data
    gc.collect()
    engine.close()


def test_duckdb_over_adbc(tmp_path):
    needs("duckdb", "adbc_driver_manager")
    adbc_driver_duckdb = pytest.importorskip("adbc_driver_duckdb.dbapi")
    engine = DuckDBEngine(tmp_path)
    x, label = plain_table(engine, 150)
    engine.close()
    (read, labels), shuffled = rows_over_adbc(adbc_driver_duckdb.connect(str(tmp_path / "tables.duckdb")))
    np.testing.assert_array_equal(read.numpy(), x)
    assert labels.tolist() == label.tolist() and sorted(shuffled.tolist()) == sorted(x.tolist()) != shuffled.tolist()


# --- DB-API ---------------------------------------------------------------------------------------------------------

STYLES = {"qmark": ("?", [20]), "format": ("%s", [20]), "pyformat": ("%(least)s", {"least": 20}),
          "numeric": (":1", [20]), "named": (":least", {"least": 20})}


@pytest.mark.parametrize("style", STYLES)
def test_every_paramstyle(tmp_path, style):
    place, params = STYLES[style]
    driver, path = foreign_driver(style), tmp_path / "t.db"
    with contextlib.closing(sqlite3.connect(path)) as con, con:
        con.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x REAL, word TEXT)")
        con.executemany("INSERT INTO t VALUES (?, ?, ?)", [(i * 3, i / 2, "a%b") for i in range(3000)])
    for query, given, first in ((f"SELECT id, x FROM t WHERE id >= {place}", params, 7),
                                ("SELECT id, x FROM t", None, 0),
                                ("SELECT id, x FROM t WHERE word LIKE 'a%b'", None, 0)):
        data = torch.data.sql(query, lambda: driver.connect(path), params=given, key="id")
        assert data.source.name.startswith("SQL, ")
        assert data.read().ravel().tolist() == [i / 2 for i in range(first, 3000)]
        shuffled = together(data.batches(100, "block", seed=1, workers=2))[0].ravel().tolist()
        assert sorted(shuffled) == [i / 2 for i in range(first, 3000)] != shuffled
        assert digest(data.batches(100, "block", 1, 5)) == digest(data.batches(100, "block", 1, 5, workers=1))
    with pytest.raises(NotImplementedError, match="shuffle='global' is not there for SQL; use shuffle='block'"):
        list(data.batches(10, "global", seed=0))


def test_composite_keys_over_a_foreign_driver(tmp_path):
    driver, path = foreign_driver("qmark"), tmp_path / "t.db"
    with contextlib.closing(sqlite3.connect(path)) as con, con:
        con.execute("CREATE TABLE t (a INTEGER, b TEXT, c INTEGER, x REAL, PRIMARY KEY (a, b, c))")
        con.executemany("INSERT INTO t VALUES (?, ?, ?, ?)",
                        [(i // 900, "pqr"[i // 300 % 3], i % 300, float(i)) for i in range(2700)])
    data = torch.data.sql("SELECT * FROM t", lambda: driver.connect(path), key=["a", "b", "c"], features=["x"])
    assert together(data.batches(100))[0].ravel().tolist() == list(range(2700))
    assert sorted(together(data.batches(100, "block", seed=0))[0].ravel().tolist()) == list(range(2700))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_ranges_of_keys_written_out(width):
    """Python's own comparison of tuples says which keys lie between two others."""
    con = sqlite3.connect(":memory:")
    names = ["a", "b", "c"][:width]
    con.execute(f"CREATE TABLE t ({', '.join(names)})")
    keys = [tuple(int(digit) for digit in np.base_repr(i, 4).zfill(width)) for i in range(4 ** width)]
    con.executemany(f"INSERT INTO t VALUES ({', '.join('?' * width)})", keys)
    rng = np.random.default_rng(width)
    for _ in range(50):
        low, high = sorted(keys[i] for i in rng.integers(0, len(keys), 2))
        text = range_condition(names, iter(lambda: "?", None))
        found = con.execute(f"SELECT * FROM t WHERE {text}", range_values([(low, high)])).fetchall()
        assert sorted(found) == [key for key in keys if low <= key <= high]
    con.close()


@pytest.mark.parametrize("con, words", [
    (3, "is no database that is known here: give the path of a SQLite or DuckDB file"),
    (lambda: object(), "gave builtins.object, which is no connection: it has no cursor"),
])
def test_what_is_no_database(con, words):
    with pytest.raises((TypeError, AttributeError), match=words):
        source_of(con)


def test_an_open_connection_of_a_foreign_driver_is_refused(tmp_path):
    con = foreign_driver("qmark").connect(tmp_path / "t.db")
    with pytest.raises(TypeError, match="an open connection: workers open their own, so give a function"):
        source_of(con)
    con.close()


# --- bytes of PostgreSQL --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2])
def test_elements_between_nulls(size):
    rng = np.random.default_rng(size)
    for share in (0.0, 0.1, 0.9, 1.0):
        words, starts = [], []
        for null in rng.random(500) < share:
            starts.append(len(words))
            words += [-1] if null else [4 * size, *rng.integers(-2, 9, size).tolist()]
        assert sorted(element_starts(np.array(words), size).tolist()) == starts


def test_postgres_types_beside_the_common_ones(tmp_path):
    engine = PostgresEngine(tmp_path)
    engine.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    engine.execute("CREATE DOMAIN small AS int CHECK (value < 100)")
    engine.execute("CREATE TABLE t (id uuid PRIMARY KEY, m mood, s small, f real, h smallint, z timestamptz, "
                   "n numeric)")
    engine.execute("""INSERT INTO t SELECT ('00000000-0000-0000-0000-' || lpad(g::text, 12, '0'))::uuid, 'glad', g,
                      g / 8.0, nullif(g, 3), '1970-01-01 01:00:00+01', 'NaN' FROM generate_series(0, 20) AS g""")
    data = engine.sql("SELECT * FROM t", key="id", nulls="nan", dtype=torch.float64, codes={"m": {"glad": 2}})
    expected = np.array([[2, g, g / 8, math.nan if g == 3 else g, 0, math.nan] for g in range(21)])
    np.testing.assert_array_equal(data.read().numpy(), expected)
    np.testing.assert_array_equal(together(data.batches(8))[0], expected)
    shuffled = together(data.batches(8, "block", seed=0, workers=1))[0]
    np.testing.assert_array_equal(shuffled[np.argsort(shuffled[:, 1])], expected)
    with pytest.raises(TypeError, match=r"column 'x' is integer\[\], which no tensor holds"):
        engine.sql("SELECT ARRAY[1] AS x")
    engine.close()


def test_postgres_parameters_by_name_and_percent_signs(tmp_path):
    engine = PostgresEngine(tmp_path)
    engine.table("t", {"id": INTEGER, "x": REAL, "w": TEXT}, [(i, i / 2, f"{i}%") for i in range(100)], key=["id"])
    named = engine.sql("SELECT id, x FROM t WHERE id < %(most)s AND w LIKE '%%\\%%'", params={"most": 50}, key="id")
    assert len(named.read()) == 50 == len(together(named.batches(8, "block", seed=0))[0])
    plain = engine.sql("SELECT id, x FROM t WHERE w LIKE '%\\%' AND id % 2 = 0", key="id")
    assert len(plain.read()) == 50 == len(together(plain.batches(8, "block", seed=0))[0])
    engine.close()


def test_mysql_reads_single_precision_whole(tmp_path):
    engine = MariaDBEngine(tmp_path)
    engine.table("t", {"id": INTEGER, "x": "FLOAT"}, [(0, 0.1), (1, 16777215.0)], key=["id"])
    assert engine.sql("SELECT * FROM t", key="id").read().ravel().tolist() == [float(np.float32(0.1)), 16777215.0]
    engine.close()
