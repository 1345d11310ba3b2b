"""What is said to SQLite, and what it says: statements, declared types, errors."""
import sqlite3
import struct

from ...utils.data import sample_random
from . import sqlite_rows
from .source import ConnectionLost, Dialect


def lost(error):
    """What to raise for a driver's error: ConnectionLost where asking again may help, the error itself otherwise."""
    if isinstance(error, sqlite_rows.SQLiteError):
        code, error = error.code, sqlite3.OperationalError(str(error))
    else:
        code = getattr(error, "sqlite_errorcode", 0)
    return ConnectionLost(str(error)) if code & 0xFF in MAY_PASS else error


# what a second attempt may not meet again: BUSY, LOCKED, IOERR, CANTOPEN, PROTOCOL
MAY_PASS = (5, 6, 10, 14, 15)


class SQLiteDialect(Dialect):
    name = "SQLite"

    def cast(self, expression, wanted):
        if wanted.kind == "date":           # text in ISO's form, or whole days
            return f"CASE typeof({expression}) WHEN 'text' THEN strftime('%s', {expression}, 'start of day') / 86400 " \
                   f"ELSE {expression} END"
        if wanted.kind == "timestamp":      # text in ISO's form (strftime knows milliseconds), or seconds
            return f"CASE typeof({expression}) WHEN 'text' THEN strftime('%s', {expression}) + " \
                   f"(strftime('%f', {expression}) - strftime('%S', {expression})) ELSE {expression} END"
        return expression

    def hash(self, key, salt):
        return f"{sqlite_rows.HASH_NAME}({int(salt)}, {', '.join(key)})"

    def columns(self, wanted, table="q"):
        """Cells go by position, so columns need no names."""
        return ", ".join(self.cast(f"{table}.{self.quote(w.name)}", w) for w in wanted)

    def key_terms(self, key, table="q"):
        """Keys are compared byte by byte, whatever collation a column has: two keys that it takes for equal are two."""
        return [f"{table}.{self.quote(name)} COLLATE BINARY" for name in key]

    def order(self, order, table="q"):
        if order is None:
            return ""
        hashed = [] if order.salt is None else [self.hash([f"{table}.{self.quote(n)}" for n in order.key], order.salt)]
        return f" ORDER BY {', '.join([*hashed, *self.key_terms(order.key, table)])}"

    def stream(self, query, wanted, order, skip=0, limit=None):
        if skip and limit is None:
            limit = -1                      # SQLite has no OFFSET without a LIMIT
        return super().stream(query, wanted, order, skip, limit)

    def boundaries(self, query, key, step):
        names = ", ".join(f"q.{self.quote(name)}" for name in key)
        return f"SELECT {names} FROM (\n{query.text}\n) AS q ORDER BY {', '.join(self.key_terms(key))}"

    def fetch(self, query, wanted, key, ranges, ordered=True, names=()):
        """The ranges are the outer loop, since CROSS JOIN keeps the order in which it is written.

        Not `ordered`: nothing is sorted, where an index of the key is walked inside that loop.
        """
        placeholders = iter(names) if names else iter(lambda: "?", None)
        width = len(key)
        bounds = [", ".join(f"{side}{i}" for i in range(width)) for side in ("low", "high")]
        values = ", ".join(f"({n}, {', '.join(next(placeholders) for _ in range(2 * width))})" for n in range(ranges))
        terms = self.key_terms(key)
        if width == 1:
            condition = f"{terms[0]} BETWEEN b.low0 AND b.high0"
        else:
            low, high = (", ".join(f"b.{side}{i}" for i in range(width)) for side in ("low", "high"))
            condition = f"({', '.join(terms)}) BETWEEN ({low}) AND ({high})"
        text = f"WITH q AS (\n{query.text}\n), b(n, {', '.join(bounds)}) AS (VALUES {values}) " \
               f"SELECT {self.columns(wanted)} FROM b CROSS JOIN q ON {condition}"
        return text + (f" ORDER BY b.n, {', '.join(terms)}" if ordered else "")


def hash_of_values(*values):
    """A number of 63 bits: what the native function of data/sql/sqlite_rows.py gives, for Python's own connections."""
    made = 0
    for value in values:
        for word in words_of(value):
            made = sample_random.mixed_number(made + sample_random.GOLDEN_STEP * (word + 1))
    return made >> 1


def words_of(value):
    """A whole number, the bits of a real one; of text and bytes eight for each, and the length."""
    if value.__class__ is int:
        return (value,)
    if value.__class__ is float:
        return struct.unpack("<q", struct.pack("<d", value))
    if value is None:
        return (0,)
    content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
    return *struct.unpack(f"<{-(-len(content) // 8)}Q", content + bytes(-len(content) % 8)), len(content)


# --- kinds ----------------------------------------------------------------------------------------------------------

# By the first of these that the declared type contains, in capital letters: SQLite's own rule of affinity, with dates
# and truth values, which have none, before it.
KIND_OF_DECLARED = [("BOOL", "bool"), ("TIMESTAMP", "timestamp"), ("DATETIME", "timestamp"), ("DATE", "date"),
                    ("INT", "int"), ("CHAR", "text"), ("CLOB", "text"), ("TEXT", "text"), ("BLOB", "other"),
                    ("REAL", "float"), ("FLOA", "float"), ("DOUB", "float"), ("DEC", "decimal"), ("NUM", "decimal")]


def kind_of(declared):
    return next((kind for word, kind in KIND_OF_DECLARED if word in declared.upper()), "unknown")
