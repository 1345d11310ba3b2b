"""The SQL that PostgreSQL is sent, what its types are, and what its answers say, whichever driver sends it."""
from .keys import KeyColumn
from .source import Boundaries, Dialect, Snapshot, append_key, refuse_duplicate_key, refuse_null_key

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# (kind, bits) of PostgreSQL's numbers of types, which do not change.
KIND_OF_OID = {16: ("bool", 8), 20: ("int", 64), 21: ("int", 16), 23: ("int", 32), 26: ("int", 64), 700: ("float", 32),
               701: ("float", 64), 1700: ("decimal", 64), 25: ("text", 64), 1043: ("text", 64), 1042: ("text", 64),
               18: ("text", 64), 19: ("text", 64), 2950: ("text", 64), 1082: ("date", 32), 1114: ("timestamp", 64),
               1184: ("timestamp", 64), 705: ("unknown", 64)}
# What a form travels as: whole words, so that numbers stay aligned between the lengths of 32 bits before them.
WIRE_TYPE = {"bool": "int4", "int8": "int4", "int16": "int4", "int32": "int4", "int64": "int8", "float32": "float4",
             "float64": "float8", "text": "text"}
BOUNDARIES_AT_A_TIME = 2048                    # as objects of Python's, until they are packed


def kind_of(oid, category):
    """(kind, bits) of a type; of an enumeration, and what else the server counts among texts, text."""
    return KIND_OF_OID.get(oid) or (("text", 64) if category in ("S", "E") else ("other", 64))


def boundaries_in(rows, key, step):
    """The Boundaries in the rows that the dialect's statement gives; NULL and equal keys are refused."""
    first, last = ([KeyColumn() for _ in key] for _ in range(2))
    previous, final = -1, ()
    for n, twice, *row in rows:
        if None in row:
            refuse_null_key(key, row)
        if twice:
            refuse_duplicate_key(key, row)
        previous, final = n, row
        if n % step == 0:
            append_key(first, row)
        if n % step == step - 1:
            append_key(last, row)
    if (previous + 1) % step:
        append_key(last, final)
    return Boundaries(key, step, previous + 1, first, last)


class ExportedSnapshot(Snapshot):
    """The state that a session's transaction reads, by the name under which the server lends it to others."""

    def __init__(self, name):
        self.name = name


class PostgresDialect(Dialect):
    name = "PostgreSQL"

    def cast(self, expression, wanted):
        wire = WIRE_TYPE.get(wanted.form)
        if wire is None:
            raise TypeError(f"column {wanted.name!r}: PostgreSQL has no {wanted.form}")
        if wanted.kind == "date":
            return f"({expression} - DATE '1970-01-01')::{wire}"
        if wanted.kind == "timestamp":
            return f"extract(epoch FROM {expression})::{wire}"
        return f"{expression}::{wire}"

    def hash(self, key, salt):
        return f"hashtextextended(ROW({', '.join(key)})::text, {int(salt)})"

    def stream(self, query, wanted, order, skip=0, limit=None):
        cells = ", ".join(self.cast(f"q.{self.quote(each.name)}", each) for each in wanted)
        text = f"SELECT ROW({cells}) FROM (\n{query.text}\n) AS q{self.order(order)}"
        if limit is not None:
            text += f" LIMIT {int(limit)}"
        return text + (f" OFFSET {int(skip)}" if skip else "")

    def boundaries(self, query, key, step):
        """The keys at which blocks begin and end, and those that are refused."""
        names = [f"q.{self.quote(name)}" for name in key]
        columns = ", ".join(f"{name} AS k{i}" for i, name in enumerate(names))
        twice = " AND ".join(f"lag({name}) OVER w = {name}" for name in names)
        missing = " OR ".join(f"k{i} IS NULL" for i in range(len(key)))
        return f"SELECT n, twice, {', '.join(f'k{i}' for i in range(len(key)))} FROM (SELECT {columns}, " \
               f"row_number() OVER w - 1 AS n, coalesce({twice}, false) AS twice, lead(true) OVER w IS NULL AS final " \
               f"FROM (\n{query.text}\n) AS q WINDOW w AS (ORDER BY {', '.join(names)})) AS s " \
               f"WHERE mod(n, {int(step)}) IN (0, {int(step) - 1}) OR final OR twice OR {missing}"

    def fetch(self, query, wanted, key, ranges, types=None, placeholders=None):
        width = len(key)
        placeholders = iter(placeholders or ["%s"] * (2 * width))
        types = types or ["bigint"] * width
        arrays = ", ".join(f"{next(placeholders)}::{types[i % width]}[]" for i in range(2 * width))
        sides = [[f"{side}{i}" for i in range(width)] for side in ("low", "high")]
        names = [f"q.{self.quote(name)}" for name in key]
        row = lambda terms: terms[0] if width == 1 else f"({', '.join(terms)})"
        low, high = (row([f"b.{name}" for name in side]) for side in sides)
        cells = ", ".join(f"{self.cast(f'q.{self.quote(each.name)}', each)} AS c{i}" for i, each in enumerate(wanted))
        named = ", ".join([*sides[0], *sides[1], "n"])
        return f"SELECT b.n, r.* FROM unnest({arrays}) WITH ORDINALITY AS b({named}) " \
               f"CROSS JOIN LATERAL (SELECT {', '.join(f'array_agg(s.c{i})' for i in range(len(wanted)))} FROM (" \
               f"SELECT {cells} FROM (\n{query.text}\n) AS q WHERE {row(names)} >= {low} AND {row(names)} <= {high} " \
               f"ORDER BY {', '.join(names)} OFFSET 0) AS s) AS r"
