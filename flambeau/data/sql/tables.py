"""Tables that have no database: frames and Arrow's streams, held as NumPy columns.

There is no SQL engine in here. The one statement that is answered is `SELECT * FROM data`, or the names of columns in
place of the star; everything else is for DuckDB, which queries frames by their names. What is read in its own order
passes through batch by batch; for the order of a key, or a shuffled one, the columns that are asked for are held, once
for all sessions.
"""
import re
from hashlib import blake2b

import numpy as np

from ...base.locks import new_lock
from .query import without_comments
from .source import (
    Boundaries,
    Chunk,
    Dialect,
    Order,
    RowSession,
    RowSource,
    Snapshot,
    Wanted,
    refuse_duplicate_key,
    refuse_null_key,
)

TABLE_NAME = "data"                       # what the rows are called in the query
_SELECT_FROM_DATA = re.compile(r'\s*select\s+(?P<columns>.+?)\s+from\s+"?data"?\s*\Z', re.IGNORECASE | re.DOTALL)
_COLUMN = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([A-Za-z_]\w*))\s*\Z')


class TableSource(RowSource):
    """Columns that `table` gives: it has a `name`, `facts()`, and `chunks(wanted)`, its rows in their own order.

    `table.keep()` makes sure that rows can be read again, and says how many there are.
    """

    def __init__(self, table):
        self.table, self.name = table, table.name
        self.dialect = TableDialect(table.name)
        self.lock, self.kept, self.sorted_by = new_lock(), {}, {}

    def connect(self, snapshot=None):
        return TableSession(self)

    def identity(self):
        return f"{self.name} {id(self.table)}"    # nothing else tells two frames apart

    def __getstate__(self):
        return {**self.__dict__, "lock": None, "kept": {}, "sorted_by": {}}

    def __setstate__(self, state):
        self.__dict__.update(state, lock=new_lock())

    def columns(self, wanted):
        """These columns, whole."""
        with self.lock:
            self.hold(wanted)
        return Chunk(*zip(*(self.kept[each] for each in wanted)))

    def hold(self, wanted):
        """Read those columns that are not kept yet."""
        wanted = [each for each in wanted if each not in self.kept]
        if not wanted:
            return
        self.table.keep()
        chunks = list(self.table.chunks(wanted))
        for i, each in enumerate(wanted):
            values = [chunk.columns[i] for chunk in chunks] or [np.empty(0, array_type(each))]
            nulls = [np.zeros(len(chunk), bool) if chunk.nulls[i] is None else chunk.nulls[i] for chunk in chunks]
            some = any(chunk.nulls[i] is not None for chunk in chunks)
            self.kept[each] = (np.concatenate(values) if len(values) > 1 else values[0],
                               np.concatenate(nulls) if some else None)

    def positions(self, order, facts):
        """Where the rows stand, in that order."""
        with self.lock:
            if order not in self.sorted_by:
                self.sorted_by[order] = self.sort(order, facts)
            return self.sorted_by[order]

    def key_columns(self, key, facts):
        return self.columns([key_form(name, facts) for name in key])

    def sort(self, order, facts):
        if order.key:
            chunk = self.key_columns(order.key, facts)
        else:
            chunk = Chunk([np.arange(self.table.keep())], [None])         # by their positions
        ranks = [np.unique(values, return_inverse=True)[1] if values.dtype == object and nulls is None else
                 np.zeros(len(values)) if values.dtype == object else values      # NULL keys are refused elsewhere
                 for values, nulls in zip(chunk.columns, chunk.nulls)]
        if order.salt is not None:
            ranks.insert(0, hashed(chunk.columns, order.salt))
        return np.lexsort(ranks[::-1])


def array_type(wanted):
    return object if wanted.form == "text" else wanted.form


def key_form(name, facts):
    kind = next((fact.kind for fact in facts if fact.name == name), "unknown")
    forms = {"text": "text", "float": "float64", "decimal": "float64", "timestamp": "float64", "uint": "uint64"}
    return Wanted(name, kind, forms.get(kind, "int64"))


def hashed(columns, salt):
    """A number of 64 bits for each row, from its key and the salt alone."""
    mixed = np.full(len(columns[0]), salt, np.uint64)
    for values in columns:
        if values.dtype == object:
            bits = np.array([int.from_bytes(blake2b(repr(value).encode(), digest_size=8).digest(), "little")
                             for value in values.tolist()], np.uint64)
        else:
            bits = np.ascontiguousarray(values).view(np.uint64)
        mixed = scrambled(mixed + bits)
    return mixed


def scrambled(bits):
    """The last steps of SplitMix64: each bit of the result depends on all of `bits`."""
    bits = (bits + np.uint64(0x9E3779B97F4A7C15))
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


class TableDialect(Dialect):
    """No SQL is sent, so that what `explain()` shows says what is done. Rows have positions, and need no key."""
    positional = True

    def __init__(self, name):
        self.name = name

    def stream(self, query, wanted, order, skip=0, limit=None):
        by = "" if order is None else f"{'' if order.salt is None else 'a hash of '}{self.named(order.key)}"
        how = f"in the order of {by}" if by else "as they come"
        part = "" if not skip and limit is None else f", from row {skip} on" + (f", {limit} rows" if limit else "")
        return f"-- the columns {', '.join(each.name for each in wanted)} of {self.name}, {how}{part}"

    def boundaries(self, query, key, step):
        return f"-- {self.named(key)} of {self.name}{', sorted in memory' if key else ''}"

    def fetch(self, query, wanted, key, ranges):
        return f"-- {ranges} range{'' if ranges == 1 else 's'} of {self.named(key)} of {self.name}, gathered in memory"

    def named(self, key):
        return ", ".join(key) or "the places of rows"


class TableSession(RowSession):
    def __init__(self, source):
        super().__init__()
        self.source, self.dialect = source, source.dialect

    def describe(self, query):
        facts = self.source.table.facts()
        chosen = selected(query, self.source.name)
        if chosen is None:
            return facts
        by_name = {fact.name: fact for fact in facts}
        folded = {fact.name.lower(): fact for fact in facts}
        found = [by_name.get(name) or folded.get(name.lower()) for name in chosen]
        if None in found:
            raise ValueError(f"{self.source.name} has no column {chosen[found.index(None)]!r}; it has "
                             f"{', '.join(by_name)}")
        return found

    def stream(self, query, wanted, rows, order=None, skip=0, limit=None):
        if order is None and not skip and limit is None:
            for chunk in self.source.table.chunks(wanted):
                yield from parts(chunk, rows)
            return
        whole = self.source.columns(wanted)
        at = np.arange(len(whole)) if order is None else self.source.positions(order, self.source.table.facts())
        at = at[skip:None if limit is None else skip + limit]
        for start in range(0, len(at), rows):
            yield gathered(whole, at[start:start + rows])

    def count(self, query):
        return self.source.table.keep()

    def null_counts(self, query, names):
        facts = self.source.table.facts()
        nulls = self.source.columns([key_form(name, facts) for name in names]).nulls
        return [0 if which is None else int(which.sum()) for which in nulls]

    def boundaries(self, query, key, step):
        facts = self.describe(query)
        if not key:                               # by their positions
            count = self.source.table.keep()
            starts = range(0, count, step)
            return Boundaries(key, step, count, [starts], [[min(start + step, count) - 1 for start in starts]])
        chunk = self.source.key_columns(key, facts)
        for nulls in chunk.nulls:
            if nulls is not None:
                at = int(nulls.argmax())
                refuse_null_key(key, [None if n is not None and n[at] else v[at:at + 1].tolist()[0]
                                      for v, n in zip(chunk.columns, chunk.nulls)])
        at = self.source.positions(Order(tuple(key)), facts)
        columns = [values[at] for values in chunk.columns]
        same = np.ones(max(len(at) - 1, 0), bool)
        for values in columns:
            same &= values[1:] == values[:-1]
        if same.any():
            refuse_duplicate_key(key, [values[:-1][same][:1].tolist()[0] for values in columns])
        last = np.append(np.arange(step - 1, len(at), step), [len(at) - 1] if len(at) % step else []).astype(np.int64)
        return Boundaries(key, step, len(at), [values[::step].tolist() for values in columns],
                          [values[last].tolist() for values in columns])

    def fetch(self, query, wanted, boundaries, blocks):
        at = self.source.positions(Order(boundaries.key), self.describe(query))
        step = boundaries.step
        return [gathered(self.source.columns(wanted),
                         np.concatenate([at[block * step:(block + 1) * step] for block in blocks]))]

    def snapshot(self):
        return Snapshot()


def selected(query, name):
    """The columns that a query names, None for all of them."""
    found = _SELECT_FROM_DATA.match(without_comments(query.text))
    names = None
    if found and found["columns"].strip() != "*":
        pieces = [_COLUMN.match(piece) for piece in found["columns"].split(",")]
        names = None if None in pieces else [(piece[1] or "").replace('""', '"') or piece[2] for piece in pieces]
    if query.params or not found or (names is None and found["columns"].strip() != "*"):
        raise NotImplementedError(
            f"{name} is no database: it answers SELECT * FROM {TABLE_NAME}, or the names of columns in place of the "
            "star. For other statements filter it first, or give DuckDB's connection as con, where the frame is known "
            f"by a name: con = duckdb.connect(); con.register({TABLE_NAME!r}, frame)")
    return names


def parts(chunk, rows):
    """A Chunk in pieces of at most so many rows."""
    for start in range(0, len(chunk), rows):
        yield chunk.part(start, min(start + rows, len(chunk)))


def gathered(chunk, at):
    return Chunk([values[at] for values in chunk.columns],
                 [None if nulls is None else nulls[at] for nulls in chunk.nulls])


def empty_chunk(wanted):
    return Chunk([np.empty(0, object if each.form == "text" else each.form) for each in wanted], [None] * len(wanted))
