"""Statements as text: where one ends, what stands in quotes, which are parameters."""
import sqlite3

import pytest
from hypothesis import given, settings, strategies as st

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
