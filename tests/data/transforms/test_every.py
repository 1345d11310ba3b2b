"""A transform is declared by being made in a module of data/transforms; what else it needs is missed here by name."""
from pathlib import Path

import pytest

from .table import BASES, BY_THEMSELVES, EVERY, SIZES_DRAWN, TABLE

ROWS = {row[0] for row in TABLE + SIZES_DRAWN}
PAGE = Path(__file__).parents[3].joinpath("docs", "images.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(EVERY.keys() - BASES))
def test_a_transform_is_whole(name):
    assert EVERY[name].__doc__, f"{name} says nothing of what it does"
    assert name in ROWS | BY_THEMSELVES, f"TABLE in tests/data/transforms/table.py has no row for {name}"
    assert f"`{name}`" in PAGE, f'the table "What there is" of docs/images.md does not name `{name}`'


def test_no_name_is_left_over():
    assert ROWS | BY_THEMSELVES <= EVERY.keys() and not ROWS & BY_THEMSELVES
