"""`engine`: every database of `sources.ENGINES`, one after the other. `connected`: those, in every way there is."""
import contextlib
import importlib

import pytest

from .drivers import DRIVER_WAYS, DRIVERS
from .sources import ENGINES, WAYS

ENGINES = {**ENGINES, **{engine.name: engine for engine in DRIVERS}}
WAYS = {**WAYS, **{engine.name: engine for engine in DRIVER_WAYS}}


@pytest.fixture(params=list(ENGINES))
def engine(request, tmp_path):
    made = ENGINES[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture(params=[*ENGINES, *WAYS])
def connected(request, tmp_path):
    made = {**ENGINES, **WAYS}[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 8 rows, in groups of 4, of which no more than 4 are mixed, for every dialect."""
    from flambeau.data.sql.source import Dialect
    for module in ("adbc", "dbapi", "duckdb", "postgres", "sqlite", "tables"):
        with contextlib.suppress(ImportError):                  # its driver is not there
            importlib.import_module(f"flambeau.data.sql.{module}")
    for dialect in subclasses(Dialect):
        monkeypatch.setattr(dialect, "rows_in_block", 8)
        monkeypatch.setattr(dialect, "blocks_in_group", 4)
        monkeypatch.setattr(dialect, "groups_mixed", min(dialect.groups_mixed, 4))


def subclasses(cls):
    return [cls, *(below for sub in cls.__subclasses__() for below in subclasses(sub))]
