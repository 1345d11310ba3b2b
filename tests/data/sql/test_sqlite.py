"""SQLite's own: cells that are not what their column says, databases in memory, how its files are named and opened."""
import contextlib
import pickle
import sqlite3
from types import SimpleNamespace

import pytest

import flambeau as torch
from flambeau.data.sql.engines import source_of
from flambeau.data.sql.sqlite import SQLiteSession

from .sources import SQLiteEngine, SQLiteNativeEngine, digest, plain_table, together

pytestmark = [pytest.mark.pinned, pytest.mark.usefixtures("small_blocks")]


@pytest.fixture(params=[SQLiteEngine, SQLiteNativeEngine])
def engine(request, tmp_path):
    made = request.param(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("declared, cell, words", [
    ("REAL", "abc", "column 'x' is taken for float and holds 'abc'; text becomes numbers by codes="),
    ("REAL", "nan", "holds 'nan'"), ("REAL", b"\1", r"holds b'\\x01'; cast it in the query"),
    ("INTEGER", 1.5, "column 'x' is taken for int and holds 1.5; cast it in the query, such as CAST.x AS REAL. AS x"),
    ("INTEGER", "12a", "holds '12a'"), ("BOOLEAN", 2, "column 'x' is taken for bool and holds 2"),
    ("", "7", "holds '7'"),
    ("", 2 ** 53 + 1, "holds 9007199254740993, which no float64 is equal to"),
])
def test_a_cell_that_is_not_what_its_column_says(engine, declared, cell, words):
    engine.table("t", {"id": "INTEGER PRIMARY KEY", "x": declared}, [(0, 1), (1, None), (2, cell), (3, 0)])
    with pytest.raises((TypeError, OverflowError), match=words):
        engine.sql("SELECT * FROM t", key="id", nulls=0).read()


def test_a_column_of_bytes_is_none_of_numbers_and_one_without_a_type_may_be(engine):
    """Newer versions of SQLite call both BLOB, so the first cell decides."""
    cells = [(0, None, None, None), (1, 2.5, b"12345678", 7), (2, 3, b"", None)]
    engine.table("t", {"id": "INTEGER PRIMARY KEY", "x y": "", "raw": "BLOB", "none": ""}, cells)
    data = engine.sql("SELECT * FROM t", key="id", features=["x y", "none"], nulls=0, dtype=torch.float64)
    assert data.read().tolist() == [[0, 0], [2.5, 7], [3, 0]]
    with pytest.raises(TypeError, match="column 'raw' is BLOB, which no tensor holds"):
        engine.sql("SELECT * FROM t", key="id", features=["raw"], nulls=0).read()


def test_a_query_that_fails_leaves_nothing_behind():
    """The first cell is asked for in a view, and whoever asks next needs one too."""
    session = SQLiteSession.__new__(SQLiteSession)
    session.con = sqlite3.connect(":memory:")
    session.con.execute("CREATE TABLE t (x BLOB, y INTEGER)")
    session.con.execute("INSERT INTO t VALUES (1, ?)", (-2 ** 63,))
    assert session.declared(SimpleNamespace(text="SELECT x FROM t WHERE abs(y) > 0")) is None       # it has no abs
    assert session.declared(SimpleNamespace(text="SELECT y, x FROM t")) == ["INTEGER", ""]
    session.con.close()


def test_expressions_have_no_type_and_are_taken_as_needed(engine):
    engine.table("t", {"id": "INTEGER PRIMARY KEY", "x": "INTEGER"}, [(0, 1), (1, 2 ** 53)])
    query = "SELECT id, x * 1.5 AS half, x + 1 AS more, x > 1 AS large FROM t"
    data = engine.sql(query, key="id", features=["half", "large"], dtype=torch.float64)
    assert data.read().tolist() == [[1.5, 0], [1.5 * 2 ** 53, 1]]
    with pytest.raises(OverflowError, match="column 'more' holds 9007199254740993"):
        engine.sql(query, key="id", dtype=torch.float64).read()
    whole = engine.sql(query, key="id", features=["more", "large"], dtype=torch.int64)
    assert whole.read().tolist() == [[2, 0], [2 ** 53 + 1, 1]]


def test_dates_as_text_and_as_numbers(engine):
    engine.table("t", {"id": "INTEGER PRIMARY KEY", "day": "DATE", "at": "DATETIME"}, [
        (0, "2000-01-01", "2000-01-01 00:00:00.250"), (1, 10957, 946684800.25),
        (2, "1969-12-31", "1969-12-31T23:59:59.500Z"), (3, "2000-01-01", "2000-01-01T01:00:00+01:00")])
    assert engine.sql("SELECT * FROM t", key="id", dtype=torch.float64).read().tolist() == [
        [10957, 946684800.25], [10957, 946684800.25], [-1, -0.5], [10957, 946684800]]


def test_a_collation_does_not_make_two_keys_one(engine):
    engine.execute("CREATE TABLE t (name TEXT COLLATE NOCASE, x REAL)")
    names = [letter + other for letter in "aAbB" for other in "xXyYzZ"]
    engine.insert("t", [(name, i) for i, name in enumerate(names)])
    data = engine.sql("SELECT * FROM t", key="name")
    assert sorted(together(data.batches(3, "block", seed=1))[0].ravel().tolist()) == list(range(24))


@pytest.mark.parametrize("make, sorts", [
    ("CREATE TABLE t (id INTEGER PRIMARY KEY, x REAL)", False), ("CREATE TABLE t (id INT PRIMARY KEY, x REAL)", False),
    ("CREATE TABLE t (id TEXT PRIMARY KEY, x REAL)", False),
    ("CREATE TABLE t (id INT PRIMARY KEY, x REAL) WITHOUT ROWID", False),
    ("CREATE TABLE t (id INT, x REAL)", True),
])
def test_an_index_of_the_key_saves_the_sorting(engine, make, sorts):
    engine.execute(make)
    engine.insert("t", [(f"{i:03}" if "TEXT" in make else i, i) for i in range(100)])
    data = engine.sql("SELECT * FROM t", key="id")
    iterator = data.batches(9, "block", seed=2)
    session, boundaries = iterator.reading.first, iterator.reading.boundaries
    assert session.sorts(data.query, boundaries) is sorts
    first = digest(iterator)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(session), "sorts", lambda *_: not sorts)
        if sorts is False:                                # sorted, it is the same
            assert digest(data.batches(9, "block", seed=2, epoch=0)) == first


def test_joins_and_conditions_are_read_in_order(engine):
    plain_table(engine, 120)
    engine.table("names", {"label": "INTEGER PRIMARY KEY", "weight": "REAL"}, [(i, i / 2) for i in range(10)])
    engine.execute("CREATE INDEX by_label ON t (label, id)")
    for query in ("SELECT t.id, a, weight FROM t JOIN names USING (label)", "SELECT id, a FROM t WHERE label = 3",
                  "SELECT id, a FROM t WHERE label IN (1, 5) UNION ALL SELECT id + 1000, b FROM t",
                  "SELECT id, a FROM (SELECT * FROM t ORDER BY a LIMIT 50)"):
        data = engine.sql(query, key="id", features=["a"])
        assert digest([data.read()]) == digest([torch.cat(list(data.batches(7)))]), query
        whole = sorted(data.read().ravel().tolist())
        assert sorted(together(data.batches(7, "block", seed=1))[0].ravel().tolist()) == whole


def test_parameters_by_name_and_by_number(engine):
    plain_table(engine, 60)
    for query, params in (("SELECT id, a FROM t WHERE label = :low OR label = :high", {"low": 2, "high": 3}),
                          ("SELECT id, a FROM t WHERE label = ?2 OR label = ?1", [3, 2])):
        data = engine.sql(query, params=params, key="id")
        assert len(data.read()) == 12 == len(together(data.batches(5, "block", seed=0, workers=1))[0])
        assert "SEARCH t USING INDEX sqlite_autoindex_t_1 (id>? AND id<?)" in data.explain()


def test_a_database_in_memory_is_copied():
    con = sqlite3.connect(":memory:")
    con.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x REAL)")
    con.executemany("INSERT INTO t VALUES (?, ?)", [(i, i) for i in range(50)])
    with pytest.raises(ValueError, match=r"in the middle of a transaction.*commit\(\) first"):
        torch.data.sql("SELECT * FROM t", con, key="id")
    con.commit()
    data = torch.data.sql("SELECT * FROM t", con, key="id")
    con.execute("DELETE FROM t")
    con.close()
    assert sorted(together(data.batches(7, "block", workers=2))[0].ravel().tolist()) == list(range(50))
    assert len(pickle.loads(pickle.dumps(data)).read()) == 50


def test_what_a_file_can_be_given_as(engine, monkeypatch):
    plain_table(engine, 5)
    monkeypatch.chdir(engine.tmp_path)
    with contextlib.closing(sqlite3.connect(engine.path)) as con:
        ways = [engine.path, str(engine.path), "tables.db", f"sqlite:///{engine.path}", f"file:{engine.path}?mode=ro",
                f"file:{engine.path}?mode=rw", f"file:{engine.path}", con,
                lambda: sqlite3.connect(engine.path, check_same_thread=False)]
        for way in ways:
            assert len(torch.data.sql("SELECT * FROM t", way, key="id").read()) == 5, way


def test_names_of_files_that_look_like_addresses(tmp_path):
    path = tmp_path / "a b?c#d%20.db"
    with contextlib.closing(sqlite3.connect(path)) as con, con:
        con.execute("CREATE TABLE t (x REAL)")
        con.execute("INSERT INTO t VALUES (1)")
    assert torch.data.sql("SELECT * FROM t", path).read().tolist() == [[1.0]]


@pytest.mark.parametrize("con, error, words", [
    ("nowhere.db", FileNotFoundError, "con='nowhere.db': there is no such file"),
    (":memory:", ValueError, "for every connection"),
    (5, TypeError, "con=5 is no database that is known here"), (None, TypeError, "con=None is no database"),
    (lambda: 5, TypeError, "which is no connection"),
])
def test_what_is_no_database(con, error, words):
    with pytest.raises(error, match=words):
        torch.data.sql("SELECT 1 AS x", con)


def test_nothing_is_written(engine):
    plain_table(engine, 5)
    session = source_of(engine.path).connect()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        session.con.execute("DELETE FROM t")
    session.close()
    factory = source_of(lambda: sqlite3.connect(engine.path)).connect()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        factory.con.execute("DELETE FROM t")
    factory.close()


def test_a_dataset_without_a_key_is_read_in_the_order_of_its_query(engine):
    x, _ = plain_table(engine, 50)
    data = engine.sql("SELECT a, b FROM t ORDER BY id DESC")
    assert len(data) == 50 and data.read().tolist() == x[::-1].tolist()
    assert together(data.batches(7, workers=1))[0].tolist() == x[::-1].tolist()
    assert together(data.batches(7, start=3))[0].tolist() == x[::-1][21:].tolist()
    for wrong in (dict(shuffle="block"), dict(shuffle="global"), dict(cache="x")):
        with pytest.raises(ValueError, match="needs a key"):
            data.batches(7, **wrong)
    with pytest.raises(ValueError, match="single rows are found by key"):
        data[0]


@pytest.mark.parametrize("options, words", [
    (dict(batch_size=0), "batch_size=0"), (dict(batch_size=2.5), "batch_size=2.5"), (dict(workers=-1), "workers=-1"),
    (dict(start=100), "start=100: the epoch has 2 batches"), (dict(rank=2, ranks=2), "ranks are counted from 0 to 1"),
    (dict(shuffle="blocks"), "shuffle='blocks': give False, 'block' or 'global'"), (dict(seed=-1), "seed=-1"),
    (dict(epoch=True), "epoch=True"),
])
def test_wrong_arguments_of_batches(engine, options, words):
    plain_table(engine, 10)
    data = engine.sql("SELECT * FROM t", key="id")
    with pytest.raises(ValueError, match=words):
        data.batches(**{"batch_size": 5, **options})
    assert len(list(data.batches(5))) == 2


def test_a_dataset_counts_its_epochs_and_seeds_itself_from_torch(engine):
    plain_table(engine, 100)

    def two_epochs():
        torch.manual_seed(3)
        data = engine.sql("SELECT * FROM t", key="id")
        return [digest(data.batches(10, "block")) for _ in range(2)]
    first, second = two_epochs()
    assert first != second and two_epochs() == [first, second]


def test_a_state_of_another_table_is_refused(engine):
    plain_table(engine, 30)
    data = engine.sql("SELECT * FROM t", key="id")
    state = data.batches(4, "block", seed=1).state_dict()
    assert all(isinstance(value, int | str) for value in state.values())
    engine.execute("DELETE FROM t WHERE id = 3")
    with pytest.raises(ValueError, match="the state is of 30 rows, and the query gives 29 now"):
        data.resume(state)


@pytest.mark.parametrize("kind", ["INTEGER PRIMARY KEY", "TEXT PRIMARY KEY", "REAL PRIMARY KEY"])
def test_a_global_order_is_the_same_with_and_without_the_native_loop(engine, kind):
    engine.execute(f"CREATE TABLE t (id {kind}, x REAL)")
    engine.insert("t", [(f"key {i}" if "TEXT" in kind else i / 2 if "REAL" in kind else i * 7, i) for i in range(300)])
    given = []
    for least in (0, 10 ** 9):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("flambeau.data.sql.sqlite.NATIVE_ROWS", least)
            data = engine.sql("SELECT * FROM t", key="id")
            given.append(together(data.batches(32, "global", 5, 2))[0].ravel().tolist())
    assert given[0] == given[1] and sorted(given[0]) == list(range(300)) != given[0]
