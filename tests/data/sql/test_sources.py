"""What every database has to do, the same tests for all: types, NULLs, keys, orders, workers, resuming, ranks."""
import math
import warnings
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pytest

import flambeau as torch
from flambeau.data.sql.source import TableChanged
from tests.thorough import sample

from .sources import BOOLEAN, DATE, DECIMAL, INTEGER, REAL, TEXT, TIMESTAMP, digest, plain_table, together

pytestmark = [pytest.mark.pinned, pytest.mark.usefixtures("small_blocks")]

EVERY_TYPE = {"id": INTEGER, "whole": INTEGER, "real": REAL, "money": DECIMAL, "flag": BOOLEAN, "day": DATE,
              "moment": TIMESTAMP, "word": TEXT}
EVERY_ROW = [
    (1, -7, 0.5, Decimal("12.25"), True, date(1970, 1, 2), datetime(1970, 1, 1, 0, 0, 1, 500_000), "red"),
    (2, 2 ** 20, -1e30, Decimal("-0.5"), False, date(1969, 12, 31), datetime(2000, 1, 1), "blue"),
]


# --- types ----------------------------------------------------------------------------------------------------------


def test_every_type_has_its_meaning(engine):
    engine.table("t", EVERY_TYPE, EVERY_ROW, key=["id"])
    given = engine.sql("SELECT * FROM t", key="id", dtype=torch.float64, codes={"word": {"red": 0, "blue": 1}}).read()
    assert given.dtype is torch.float64
    assert given.tolist() == [[-7, 0.5, 12.25, 1, 1, 1.5, 0], [2 ** 20, -1e30, -0.5, 0, -1, 946_684_800, 1]]


@pytest.mark.parametrize("column, dtype, expected", [
    ("whole", None, torch.int64), ("flag", None, torch.int64), ("word", None, torch.int64),
    ("real", None, torch.float32), ("money", None, torch.float32), ("whole", torch.float32, torch.float32),
    ("flag", torch.bool, torch.bool),
])
def test_a_label_is_whole_or_floating(engine, column, dtype, expected):
    engine.table("t", EVERY_TYPE, EVERY_ROW, key=["id"])
    data = engine.sql("SELECT * FROM t", key="id", features=["day"], label=column,
                      codes={"word": {"red": 0, "blue": 1}} if column == "word" else None,
                      dtype=None if dtype is None else {column: dtype})
    x, y = data.read()
    assert x.dtype is torch.float32 and y.dtype is expected and y.shape == (2,)


def test_text_needs_codes(engine):
    engine.table("t", EVERY_TYPE, EVERY_ROW, key=["id"])
    with pytest.raises(TypeError, match=r"column 'word' is text .*codes=\{'word': "):
        engine.sql("SELECT id, word FROM t", key="id")
    data = engine.sql("SELECT id, word FROM t", key="id", codes={"word": {"red": 3}})
    with pytest.raises(ValueError, match="column 'word' holds 'blue', for which codes=.* has no number; it has 'red'"):
        data.read()


@pytest.mark.parametrize("dtype, value, error, words", [
    (torch.int8, 200, OverflowError, "holds 200, which torch.int8 cannot hold: its range is -128 to 127"),
    (torch.uint8, -1, OverflowError, "holds -1, which torch.uint8 cannot hold"),
    (torch.bool, 2, OverflowError, "holds 2, which torch.bool cannot hold"),
    (torch.float16, 70_000, OverflowError, "holds 70000, which is too large for torch.float16"),
])
def test_whole_numbers_that_do_not_fit(engine, dtype, value, error, words):
    engine.table("t", {"id": INTEGER, "x": INTEGER}, [(0, 1), (1, value)], key=["id"])
    with pytest.raises(error, match=words):
        engine.sql("SELECT * FROM t", key="id", dtype=dtype).read()


@pytest.mark.parametrize("dtype, value, error, words", [
    (torch.float32, 1e39, OverflowError, "column 'x' holds 1e.39, which is too large for torch.float32"),
    (torch.int64, 1.5, ValueError, "column 'x' holds 1.5, which is no whole number"),
    (torch.int64, 1e19, OverflowError, "column 'x' holds 1e.19, which torch.int64 cannot hold"),
])
def test_real_numbers_that_do_not_fit(engine, dtype, value, error, words):
    engine.table("t", {"id": INTEGER, "x": REAL}, [(0, 1.0), (1, value)], key=["id"])
    with pytest.raises(error, match=words):
        engine.sql("SELECT * FROM t", key="id", dtype=dtype).read()


def test_infinities_are_numbers(engine):
    engine.table("t", {"id": INTEGER, "x": REAL}, [(0, math.inf), (1, -math.inf)], key=["id"])
    assert engine.sql("SELECT * FROM t", key="id").read().tolist() == [[math.inf], [-math.inf]]


def test_rounded_whole_numbers_are_said_once(engine):
    engine.table("t", {"id": INTEGER, "x": INTEGER}, [(0, 2 ** 24), (1, 2 ** 24 + 1)], key=["id"])
    data = engine.sql("SELECT * FROM t", key="id")
    with pytest.warns(UserWarning, match="column 'x' holds 16777217, which torch.float32 rounds to 16777216") as told:
        assert data.read().tolist() == [[2.0 ** 24], [2.0 ** 24]]
        data.read()
    assert len(told) == 1 and told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wide = engine.sql("SELECT * FROM t", key="id", dtype=torch.int64).read()
    assert wide.tolist() == [[2 ** 24], [2 ** 24 + 1]]


def test_integers_of_64_bits_stay_themselves(engine):
    edges = [-2 ** 63, -1, 0, 2 ** 53 + 1, 2 ** 63 - 1]
    engine.table("t", {"id": INTEGER, "x": INTEGER}, list(enumerate(edges)), key=["id"])
    assert engine.sql("SELECT * FROM t", key="id", dtype=torch.int64).read().tolist() == [[edge] for edge in edges]


# --- NULLs ----------------------------------------------------------------------------------------------------------

HOLES = [(0, 1.0, None, 5), (1, None, 2, 6), (2, 3.0, None, 7)]


@pytest.fixture
def holes(engine):
    return engine.table("t", {"id": INTEGER, "x": REAL, "n": INTEGER, "y": INTEGER}, HOLES, key=["id"])


@pytest.mark.parametrize("nulls, x", [
    ("nan", [[1.0, math.nan], [math.nan, 2.0], [3.0, math.nan]]),
    (-1, [[1.0, -1], [-1, 2.0], [3.0, -1]]),
    ({"x": 9.5, "n": "nan"}, [[1.0, math.nan], [9.5, 2.0], [3.0, math.nan]]),
])
def test_nulls_become_what_is_asked_for(holes, nulls, x):
    data = holes.sql("SELECT * FROM t", key="id", label="y", nulls=nulls)
    given, y = data.read()
    np.testing.assert_array_equal(given.numpy(), np.array(x, np.float32))
    assert y.tolist() == [5, 6, 7]


def test_nulls_as_a_mask(holes):
    x, mask, y = holes.sql("SELECT * FROM t", key="id", label="y", nulls="mask").read()
    assert x.tolist() == [[1, 0], [0, 2], [3, 0]] and y.tolist() == [5, 6, 7]
    assert mask.dtype is torch.bool and mask.tolist() == [[False, True], [True, False], [False, True]]


@pytest.mark.parametrize("way", ["read", "batches", "workers", "rows"])
def test_nulls_are_refused_with_column_and_count(holes, way):
    data = holes.sql("SELECT * FROM t", key="id", label="y")
    with pytest.raises(ValueError, match=r"there are NULLs in 'x' \(1 of them\), 'n' \(2 of them\). Say what they are"):
        match way:
            case "read": data.read()
            case "batches": list(data.batches(2))
            case "workers": list(data.batches(2, workers=2))
            case "rows": data[0]


def test_nan_needs_a_floating_dtype(holes):
    with pytest.raises(ValueError, match="nulls='nan': column 'x' becomes torch.int64, which has no NaN"):
        holes.sql("SELECT * FROM t", key="id", dtype=torch.int64, nulls="nan")


def test_a_number_for_nulls_has_to_fit(holes):
    for number, dtype in ((1e39, torch.float32), (1e5, torch.float16), (300, torch.int8), (0.5, torch.int64),
                          (math.nan, torch.int32), (-1, torch.uint8), (2, torch.bool), (2.0 ** 63, torch.int64)):
        for nulls in (number, {"x": number}):
            with pytest.raises(ValueError, match=f"column 'x' becomes {dtype}, which cannot hold that"):
                holes.sql("SELECT * FROM t", key="id", features=["x"], dtype=dtype, nulls=nulls)


def test_numbers_for_nulls_at_the_edges(holes):
    for number, dtype in ((math.inf, torch.float32), (-128, torch.int8), (3.0, torch.int64), (65504, torch.float16)):
        data = holes.sql("SELECT id, n FROM t", key="id", dtype=dtype, nulls=number)
        assert data.read().ravel().tolist().count(number) == 2


def test_nulls_of_a_label_need_a_number_of_its_own(engine):
    """What is said for all columns and cannot be in the label is not said of it: neither a mask nor half a class."""
    engine.table("t", {"id": INTEGER, "x": REAL, "y": INTEGER}, [(0, None, 1), (1, 2.0, None)], key=["id"])
    for nulls in ("mask", "nan", 0.5):
        with pytest.raises(ValueError, match=r"there are NULLs in 'y' \(1 of them\). Say which number they are, "
                                             r"nulls=\{'y': 0\}; or leave"):
            engine.sql("SELECT * FROM t", key="id", label="y", nulls=nulls).read()
    x, y = engine.sql("SELECT * FROM t", key="id", label="y", nulls={"x": 0.5, "y": 7}).read()
    assert x.tolist() == [[0.5], [2.0]] and y.tolist() == [1, 7]


def test_null_may_have_a_code(engine):
    engine.table("t", {"id": INTEGER, "word": TEXT}, [(0, "a"), (1, None)], key=["id"])
    data = engine.sql("SELECT * FROM t", key="id", label="word", features=["id"], codes={"word": {"a": 1, None: 7}})
    assert data.read()[1].tolist() == [1, 7]


# --- every row once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", sample([0, 7, 1, 8, 33, 9, 31, 100, 32], 2))
def test_sizes_at_the_edges_of_blocks_and_groups(engine, rows):
    x, y = plain_table(engine, rows, gap=3)
    data = engine.sql("SELECT * FROM t", key="id", label="label")
    assert len(data) == rows
    given = data.read()
    np.testing.assert_array_equal(given[0].numpy(), x)
    np.testing.assert_array_equal(given[1].numpy(), y)
    for batch_size in (1, 5, 8, 32, 200):
        batches = list(data.batches(batch_size))
        assert [len(b) for _, b in batches] == [min(batch_size, rows - at) for at in range(0, rows, batch_size)]
        if rows:
            np.testing.assert_array_equal(together(batches)[0], x)
    if rows:
        shuffled = together(data.batches(5, "block", seed=1, epoch=0))[0]
        assert sorted(shuffled.tolist()) == sorted(x.tolist())


@pytest.mark.parametrize("shuffle", ["block", "global"])
def test_every_row_once_and_in_another_order_each_epoch(engine, shuffle):
    x, y = plain_table(engine, 203, gap=2)
    data = engine.sql("SELECT * FROM t", key="id", label="label")
    orders = []
    for seed, epoch in [(0, 0), (0, 1), (1, 0)]:
        a, labels = together(data.batches(10, shuffle, seed=seed, epoch=epoch))
        order = np.lexsort(a.T)
        np.testing.assert_array_equal(a[order], x[np.lexsort(x.T)])
        by_value = dict(zip(map(tuple, x.tolist()), y.tolist()))
        assert [by_value[row] for row in map(tuple, a.tolist())] == labels.tolist()     # a label stays with its row
        orders.append(a.tolist())
    assert orders[0] != orders[1] != orders[2] != orders[0] and orders[0] != x.tolist()


@pytest.mark.parametrize("shuffle", [False, "block", "global"])
def test_the_same_bytes_for_any_number_of_workers_and_after_resuming(connected, shuffle):
    plain_table(connected, 150)
    data = connected.sql("SELECT * FROM t", key="id", label="label")
    first = list(data.batches(7, shuffle, seed=3, epoch=1))
    for workers in sample([1, 2, 4], 2):
        assert digest(data.batches(7, shuffle, seed=3, epoch=1, workers=workers)) == digest(first)
    rng = np.random.default_rng(0)
    for stop in sample([0, len(first), *rng.integers(1, len(first), 4).tolist()], 2):
        iterator = data.batches(7, shuffle, seed=3, epoch=1, workers=stop % 3)
        begun = [next(iterator) for _ in range(stop)]
        state = iterator.state_dict()
        iterator.close()
        other = connected.sql("SELECT * FROM t", key="id", label="label")          # as in another process
        assert digest(begun + list(other.resume(state, workers=(stop + 1) % 3))) == digest(first)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("shuffle", [False, "block", "global"])
def test_ranks_are_disjoint_and_exhaustive(engine, ranks, shuffle):
    x, _ = plain_table(engine, 101)
    data = engine.sql("SELECT * FROM t", key="id", label="label")
    parts = [together(data.batches(4, shuffle, seed=5, epoch=0, rank=rank, ranks=ranks))[0] for rank in range(ranks)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert sorted(np.concatenate(parts).tolist()) == sorted(x.tolist())
    if ranks == 3:
        resumed = data.batches(4, shuffle, seed=5, epoch=0, rank=1, ranks=3, start=2, workers=1)
        np.testing.assert_array_equal(together(resumed)[0], parts[1][8:])


def test_drop_last(engine):
    plain_table(engine, 50)
    data = engine.sql("SELECT * FROM t", key="id")
    assert [len(batch) for batch in data.batches(16, "block", seed=0, drop_last=True)] == [16] * 3
    assert len(data.batches(16, drop_last=True)) == 3 and len(data.batches(16)) == 4
    assert list(data.batches(51, drop_last=True)) == []


def test_single_rows_and_the_datasets_of_torch(connected):
    x, y = plain_table(connected, 60)
    data = connected.sql("SELECT * FROM t", key="id", label="label")
    assert data[41][0].tolist() == x[41].tolist() and int(data[-1][1]) == y[-1]
    with pytest.raises(IndexError, match="row 60 of a query that gives 60"):
        data[60]
    some = data.__getitems__([59, 0, 7, 8, 0])
    np.testing.assert_array_equal(np.stack([row.numpy() for row, _ in some]), x[[59, 0, 7, 8, 0]])
    train, test = torch.utils.data.random_split(data, [40, 20], torch.Generator().manual_seed(0))
    loaders = [torch.utils.data.DataLoader(part, 7) for part in (train, test)]
    given = [tuple(row.tolist()) for loader in loaders for rows, _ in loader for row in rows]
    assert sorted(given) == sorted(map(tuple, x.tolist()))


# --- keys -----------------------------------------------------------------------------------------------------------


def test_composite_keys(engine):
    rows = [(i // 10, i % 10 * 3, float(i)) for i in range(100)]
    engine.table("t", {"a": INTEGER, "b": INTEGER, "x": REAL}, rows, key=["a", "b"])
    data = engine.sql("SELECT * FROM t", key=["a", "b"])
    assert together(data.batches(9))[0].ravel().tolist() == list(range(100))
    shuffled = together(data.batches(9, "block", seed=0, workers=1))[0].ravel()
    assert sorted(shuffled.tolist()) == list(range(100)) and shuffled.tolist() != list(range(100))


def test_text_keys(engine):
    words = sorted({f"{'aAbBé_%'[i % 7]}{i * 7919 % 1000}'\"" for i in range(90)}, key=lambda w: w.encode())
    engine.table("t", {"name": TEXT, "x": REAL}, [(word, float(i)) for i, word in enumerate(words)], key=["name"])
    data = engine.sql("SELECT name, x FROM t", key="name")
    for shuffle in ("block", "global"):
        assert sorted(together(data.batches(9, shuffle, seed=0))[0].ravel().tolist()) == list(range(len(words)))
    assert sorted(together(data.batches(9))[0].ravel().tolist()) == list(range(len(words)))


def test_views_and_aggregates(engine):
    plain_table(engine, 100)
    engine.execute("CREATE VIEW v AS SELECT label, sum(b) AS total, count(*) AS n FROM t WHERE id >= 10 GROUP BY label")
    given = together(engine.sql("SELECT * FROM v", key="label", dtype=torch.float64).batches(3, "block", seed=1))[0]
    assert sorted(given[:, 1].tolist()) == [10.0] * 9


def test_duplicate_keys_are_refused(engine):
    engine.table("t", {"id": INTEGER, "x": REAL}, [(1, 0.0), (2, 1.0), (2, 2.0)])
    data = engine.sql("SELECT * FROM t", key="id")
    with pytest.raises(ValueError, match=r"key=\['id'\]: 2 comes more than once"):
        data.batches(2)


def test_null_keys_are_refused(engine):
    engine.table("t", {"id": INTEGER, "x": REAL}, [(1, 0.0), (None, 1.0)])
    with pytest.raises(ValueError, match=r"key=\['id'\]: 'id' is NULL in a row"):
        engine.sql("SELECT * FROM t", key="id").batches(2)


def test_names_that_need_quotes(engine):
    engine.table("odd", {"select": INTEGER, "a b": REAL, "é": REAL}, [(1, 2.0, 3.0), (2, 4.0, 5.0)])
    data = engine.sql('SELECT * FROM odd', key="select")
    assert data.read().tolist() == [[2, 3], [4, 5]] == together(data.batches(2))[0].tolist()


# --- queries --------------------------------------------------------------------------------------------------------


def test_parameters_are_bound(connected):
    plain_table(connected, 60)
    first, second = connected.places
    query = f"SELECT id, a, b FROM t WHERE label >= {first} AND label < {second}"
    data = connected.sql(query, params=[2, 7], key="id")
    assert len(data) == 30 == len(data.read()) == len(together(data.batches(8, "block", seed=0, workers=1))[0])
    hostile = connected.sql(f"SELECT id, a FROM t WHERE 'x; DROP TABLE t' <> {first}",
                            params=["'; DROP TABLE t; --"], key="id")
    assert len(hostile.read()) == 60


@pytest.mark.parametrize("query, words", [
    ("SELECT * FROM t; DROP TABLE t", "second statement, in line 1: 'DROP TABLE t'"),
    ("SELECT 1 AS x;\n-- fine\n; SELECT 2", "second statement, in line 3"),
    ("DROP TABLE t", "begins with 'DROP'"), ("", "holds no statement"), (" -- nothing", "holds no statement"),
])
def test_one_statement_that_gives_rows(engine, query, words):
    plain_table(engine, 3)
    with pytest.raises(ValueError, match=words):
        engine.sql(query)
    assert len(engine.sql("SELECT * FROM t;  -- one is enough ;", key="id")) == 3


@pytest.mark.parametrize("options, words", [
    (dict(key="nope"), "key='nope' is no column of the query, which has id, a, b, label"),
    (dict(features=["a", "z"]), "features='z' is no column"), (dict(label="z"), "label='z' is no column"),
    (dict(features=["a", "a"]), "names a column twice"),
    (dict(features=["a"], nulls={"b": 0}), "neither one of features"),
    (dict(nulls="zero"), "nulls='zero' for column"), (dict(nulls=None), "nulls=None"),
    (dict(features=[]), "no column left"),
    (dict(dtype={"a": torch.float64}), "'a' would be torch.float64 and 'b' torch.float32, but they are one tensor"),
])
def test_wrong_options_are_refused_at_the_call(engine, options, words):
    plain_table(engine, 3)
    with pytest.raises(ValueError, match=words):
        engine.sql("SELECT * FROM t", **{"key": "id", **options})


def test_explain_shows_the_statements(engine):
    plain_table(engine, 30)
    text = engine.sql("SELECT * FROM t", key="id", label="label").explain()
    assert "features   float32[n, 2]: a, b\nlabel      int64[n]: label" in text and "SELECT * FROM t" in text


# --- changes --------------------------------------------------------------------------------------------------------


def test_a_change_during_an_epoch_is_noticed_or_not_seen(connected):
    x, _ = plain_table(connected, 200)
    data = connected.sql("SELECT * FROM t", key="id", label="label")
    before = digest(data.batches(8, "block", seed=0, epoch=0))
    iterator = data.batches(8, "block", seed=0, epoch=0, workers=1)
    first = next(iterator)
    connected.execute("UPDATE t SET a = a + 1000")
    if connected.one_state:
        assert digest([first, *iterator]) == before
    else:
        with pytest.raises(TableChanged, match="was written to while it was read"):
            list(iterator)
    # the next epoch reads what is there then
    given = together(data.batches(8, "block", seed=0, epoch=1))[0]
    np.testing.assert_allclose(np.sort(given[:, 0]), np.sort(x[:, 0]) + 1000, atol=1e-3)


def test_a_look_at_a_row_sees_what_is_there_then(connected):
    x, _ = plain_table(connected, 60)
    data = connected.sql("SELECT * FROM t", key="id", label="label")
    assert data[7][0].tolist() == x[7].tolist()
    connected.execute("UPDATE t SET a = 5000 WHERE id = 7")
    assert data[7][0].tolist() == [5000, x[7, 1]]
    connected.execute("DELETE FROM t WHERE id = 21")
    try:
        data[20]
    except TableChanged:                 # a database that cannot tell; the rows do, and are then found anew
        pass
    assert data[21][0].tolist() == x[22].tolist()


def test_an_epoch_after_rows_were_added_has_them(connected):
    plain_table(connected, 20)
    data = connected.sql("SELECT * FROM t", key="id", label="label")
    assert sum(len(y) for _, y in data.batches(8)) == 20
    connected.insert("t", [(1000 + i, 0.0, 0, 0) for i in range(20)])
    assert sum(len(y) for _, y in data.batches(8)) == 40
