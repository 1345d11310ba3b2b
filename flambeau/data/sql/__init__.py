"""A query of a database as a Dataset: `flambeau.data.sql(query, con, key="id")`.

    source           the protocol: what an engine has to answer
    engines          which engine a `con` belongs to
    query            the user's statement: one, with parameters
    sqlite …         the engines
    columns          from database columns to tensors: types, NULLs, codes
    blocks, permute  the order of rows in an epoch
    dataset          SQLDataset: read, batches, explain
    cache            a packed copy of the rows in a local file
"""
import sys
from types import ModuleType

from .dataset import SQLDataset
from .engines import source_of


def sql(query, con, *, params=None, key=None, features=None, label=None, dtype=None, nulls="raise", codes=None):
    """The rows that `query` gives, as a Dataset."""
    return SQLDataset(query, source_of(con), params=params, key=key, features=features, label=label, dtype=dtype,
                      nulls=nulls, codes=codes)


class _CallableModule(ModuleType):
    """`flambeau.data.sql` is this package, and the function of the same name: calling one calls the other."""

    def __call__(self, *args, **kwargs):
        return sql(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
