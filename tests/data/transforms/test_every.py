"""A transform is declared by being made in a module of data/transforms; what else it needs is missed here by name."""
from pathlib import Path

import pytest

from flambeau.data import transforms
from flambeau.data.transforms import auto, colour, containers, functional, geometry, misc, mixing

from .table import BASES, BY_THEMSELVES, EVERY, SIZES_DRAWN, TABLE

ROWS = {row[0] for row in TABLE + SIZES_DRAWN}
PAGE = Path(__file__).parents[3].joinpath("docs", "images.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(EVERY.keys() - BASES))
def test_a_transform_is_whole(name):
    assert EVERY[name].__doc__, f"{name} says nothing of what it does"
    assert name in ROWS | BY_THEMSELVES, f"TABLE in tests/data/transforms/table.py has no row for {name}"
    assert f"`{name}`" in PAGE, f'the table "What there is" of docs/images.md does not name `{name}`'


@pytest.mark.parametrize("module", [auto, colour, containers, geometry, misc, mixing],
                         ids=lambda module: module.__name__)
def test_a_transform_is_imported_by_the_package(module):
    made = {name for name, found in vars(module).items() if isinstance(found, type)
            and issubclass(found, transforms.Transform) and not name.startswith("_")}
    assert made <= vars(transforms).keys()


@pytest.mark.parametrize("module", [functional.colour, functional.convert, functional.geometry, functional.smooth,
                                    functional.warps], ids=lambda module: module.__name__)
def test_a_function_is_imported_by_the_package(module):
    made = {name for name, found in vars(module).items() if hasattr(found, "of_tensor")}
    assert made <= vars(functional).keys()


def test_no_name_is_left_over():
    assert ROWS | BY_THEMSELVES <= EVERY.keys() and not ROWS & BY_THEMSELVES
