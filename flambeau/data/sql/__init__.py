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
    """The rows that `query` gives, as a Dataset: `read()` it whole, go through `batches(…)`, or give it to a
    DataLoader.

    `con` is a path, an address, a frame or a function that connects: docs/sql.md lists them. `params` are bound to the
    query's parameters. `key` names the columns that are different in every row, `features` and `label` those of the two
    tensors. `dtype` is the features' (or a dictionary), `nulls` says what NULL becomes ("raise", "nan", "mask", a
    number, or a dictionary), `codes` which number a text is, for each column.

    >>> import sqlite3
    >>> con = sqlite3.connect(":memory:")
    >>> _ = con.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x REAL, y INTEGER)")
    >>> _ = con.execute("INSERT INTO t VALUES (1, 0.5, 0), (2, 1.5, 1)")
    >>> con.commit()
    >>> sql("SELECT * FROM t", con, key="id", label="y").read()
    (tensor([[0.5000],
            [1.5000]]), tensor([0, 1]))
    """
    return SQLDataset(query, source_of(con), params=params, key=key, features=features, label=label, dtype=dtype,
                      nulls=nulls, codes=codes)


class _CallableModule(ModuleType):
    """`flambeau.data.sql` is this package, and the function of the same name: calling one calls the other."""

    def __call__(self, *args, **kwargs):
        return sql(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
