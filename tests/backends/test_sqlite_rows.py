"""The function by which SQLite hashes keys, natively and in Python: the same for every value."""
import pytest
from hypothesis import given, settings, strategies as st

from flambeau.data.sql import sqlite_rows
from flambeau.data.sql.permute import key_from
from flambeau.data.sql.sqlite_statements import hash_of_values
from tests.thorough import THOROUGH

pytestmark = pytest.mark.pinned

VALUES = st.one_of(st.integers(-2 ** 63, 2 ** 63 - 1), st.floats(allow_nan=False), st.binary(max_size=20), st.none(),
                   st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9))


@settings(max_examples=200 if THOROUGH else 40, deadline=None)
@given(st.lists(VALUES, max_size=4))
def test_the_native_hash_is_the_one_of_python(values):
    if sqlite_rows.library() is None:
        pytest.skip("SQLite's functions cannot be reached from this Python")
    handle = sqlite_rows.SQLiteHandle("file::memory:", 0)
    text = f"SELECT {sqlite_rows.HASH_NAME}({', '.join('?' * len(values))})"
    statement = sqlite_rows.SQLiteStatement(handle, text, tuple(values))
    [[found]], *_ = statement.rows(["int64"], 1)
    statement.close()
    handle.close()
    assert found == hash_of_values(*values) and 0 <= found < 2 ** 63


def test_the_hash_of_numbers_is_the_key_of_permutations():
    for numbers in ((0,), (5, -7), (2 ** 31 - 1, 10 ** 12, -2 ** 63)):
        assert hash_of_values(*numbers) == key_from(*numbers) >> 1
    spread = [hash_of_values(3, i) * 16 >> 63 for i in range(1600)]       # into sixteen parts
    assert sum((spread.count(part) - 100) ** 2 / 100 for part in range(16)) < 50      # 15 on average; 50: 1 in 10^5
    unlike = (("a",), (b"a\0",), ("a", ""), ("",), (None, None))
    assert len({hash_of_values(*values) for values in unlike}) == 5
