"""Statements as text: where one ends, what stands in quotes, which are parameters."""
import contextlib
import sqlite3

import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.data.sql.query import checked, without_parameters
from tests.thorough import THOROUGH

pytestmark = pytest.mark.pinned

some = settings(max_examples=200 if THOROUGH else 30, deadline=None)
HARMLESS = ["';'", "';;''; '", '";"', '"a"";"', "-- ; \n", "/* ; */", "/* a\n;'\" */", "`;`", "x", "1", "(", ")", " ",
            "\n", "$$ ; $$", "$a$ ; $b$ $a$", "- ", "/ ", "\t"]


@some
@given(st.lists(st.sampled_from(HARMLESS)), st.sampled_from(["", ";", " ; ", ";\n-- end ;\n", ";/* ; */ ;"]))
def test_semicolons_inside_of_something_end_nothing(pieces, end):
    text = "SELECT " + " ".join(pieces)
    assert checked(text + end).text.rstrip() == text.rstrip() or end == " ; "


@some
@given(st.lists(st.sampled_from(HARMLESS)), st.sampled_from(["SELECT 1", "x", "'", '"text"', "1"]))
def test_anything_behind_the_end_is_a_second_statement(pieces, second):
    with pytest.raises(ValueError, match="second statement"):
        checked("SELECT " + " ".join(pieces) + ";" + second)


@pytest.mark.parametrize("text", ["select 1", "WITH a AS (SELECT 1) SELECT * FROM a", "VALUES (1)", "(SELECT 1)",
                                  "FROM t", "TABLE t", "-- why\nSELECT 1", "/* SELECT */ select 1"])
def test_what_gives_rows(text):
    assert checked(text, [1]) == (text, (1,))


@pytest.mark.parametrize("text", ["INSERT INTO t VALUES (1)", "DELETE FROM t", "PRAGMA x", "ATTACH 'x' AS y", "1",
                                  "'select'"])
def test_what_does_not(text):
    with pytest.raises(ValueError, match="give a statement that gives rows"):
        checked(text)


@pytest.mark.parametrize("params", ["text", b"bytes", 5, {1, 2}])
def test_params_are_a_sequence_or_a_dict(params):
    with pytest.raises(TypeError, match="give a list or tuple of values, or a dict"):
        checked("SELECT 1", params)


@pytest.mark.parametrize("text, params", [
    ("SELECT ?, '?', ?2, \"?\" -- ?", (1, 2)), ("SELECT :a, @b, $c, ':a'", {"a": 1, "b": 2, "c": 3}),
])
def test_parameters_are_found_outside_of_quotes(text, params):
    con = sqlite3.connect(":memory:")
    without = without_parameters(text)
    if "?2" in text:
        con.execute("SELECT ?, ?2", params)
    assert [v for v in con.execute(without).fetchone() if v is not None and v != "?"] in ([], [":a"])
    con.close()


@pytest.mark.parametrize("error, words, ask", [
    (TypeError, "key=3: give the name of a column, or a list", lambda sql: sql(key=3)),
    (TypeError, r"key={'id'}: give the name of a column, or a list", lambda sql: sql(key={"id"})),
    (TypeError, r"features=\[1\]: give the name of a column", lambda sql: sql(features=[1])),
    (TypeError, "label=0: give the name of a column", lambda sql: sql(label=0)),
    (ValueError, "nulls=True for column 'a': give 'raise', 'nan', 'mask' or a number", lambda sql: sql(nulls=True)),
    (ValueError, "shuffle='': give False, 'block' or 'global'", lambda sql: sql().batches(2, "")),
    (ValueError, r"shuffle=\[\]: give False, 'block' or 'global'", lambda sql: sql().batches(2, [])),
    (ValueError, "cache='' cannot be the path of a file: it is empty", lambda sql: sql().batches(2, cache="")),
    (TypeError, "cache=3: give the path of a file", lambda sql: sql().batches(2, cache=3)),
    (TypeError, "cache=b'x': give the path of a file", lambda sql: sql().batches(2, cache=b"x")),
    (ValueError, "cache='/' cannot be the path of a file: it is a folder", lambda sql: sql().batches(2, cache="/")),
    (ValueError, "cache='/no/t' cannot be the path of a file: there is no such folder",
     lambda sql: sql().batches(2, cache="/no/t")),
    (ValueError, "state={}: give what state_dict.. of an iterator of batches has given", lambda sql: sql().resume({})),
    (ValueError, "state=None: give what state_dict.. of", lambda sql: sql().resume(None)),
    (ValueError, "state={.*'more': 1}: give", lambda sql: sql().resume({**sql().batches(2).state_dict(), "more": 1})),
    (TypeError, r"dataset\['a'\]: rows are counted", lambda sql: sql()["a"]),
    (TypeError, r"dataset\[slice\(1, 3, None\)\]: rows are counted", lambda sql: sql()[1:3]),
])
def test_arguments_that_nobody_would_give(error, words, ask):
    con = sqlite3.connect(":memory:")
    con.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a REAL)")
    con.execute("INSERT INTO t VALUES (1, 0.5), (2, 1.5)")
    con.commit()
    with contextlib.closing(con), pytest.raises(error, match=words):
        ask(lambda **options: torch.data.sql("SELECT * FROM t", con, **{"key": "id", **options}))
