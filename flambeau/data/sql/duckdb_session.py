"""Sessions of DuckDB: what is read by one connection, and with how much memory.

A whole result is read by an instance for itself, of several threads; ranges of rows by the one that a source has
(duckdb_instance.py). In a transaction of a connection that was given, sessions take turns.
"""
import contextlib
import importlib.util
import json
import re

import duckdb
import numpy as np

from ...base.locks import new_lock
from .arrow import chunk_of, in_form
from .arrow_c import ArrowError, ArrowStream
from .duckdb_instance import RANGES_OF_INSTANCE, ROWS_OF_INSTANCE
from .duckdb_statements import ROW_NUMBER, gives_rows_of_a_table, kind_of_type, with_numbers
from .ranges import range_values
from .source import BoundaryScan, ColumnFact, ConnectionLost, RowSession, Wanted
from .tables import parts

SUBMITS_STREAMS = duckdb.__version__.startswith("2.0.")   # see arrow_result
DUCKDB_BATCH_ROWS = 131072                        # of a batch of which nothing is said, there
STREAM_THREADS = 4                        # of an instance that gives a whole result, at most;
STREAM_MEMORY_MIB = 16                    # what it may keep,
SORTING_MEMORY_MIB = 1024                 # and what it may take to sort rows, before it writes to disk
SORTING_KEYS_MIB = 40                     # and keys alone, if that will do: it takes a third longer than with all of it
KEYS_AT_ONCE = 65536
FETCHED_AT_ONCE = 4096                     # rows of a group
HASHED_ROWS = 16384                        # rows with their hashes


def rows_in(result):
    """The rows of a result as Python's objects."""
    while rows := result.fetchmany(KEYS_AT_ONCE):
        yield from rows


def arrow_result(con, text, params, rows):
    """The result of a statement, as what gives Arrow's batches of `rows` rows; None: of as many as DuckDB likes.

    DuckDB's public ways plan a statement twice; and the one that can be told how many rows loads pyarrow for its reader
    alone, which takes forty MiB. Where it is known what they call below, this calls it.
    """
    if SUBMITS_STREAMS:
        values = params if isinstance(params, dict) else list(params)
        return con._submit(text, values or None, "stream", rows or DUCKDB_BATCH_ROWS).arrow_capsule()
    relation = con.sql(text, params=params or None)
    if rows is None or importlib.util.find_spec("pyarrow") is None:
        return relation
    give = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader      # the latter until 1.4
    return give(rows)


class ShortOfMemory(Exception):
    """An instance cannot run a statement with what it was given."""


class DuckDBSession(RowSession):
    """One connection: one that was given, or one of its source's instance, which it has from the first statement on
    until it rests; with a `holder`, that session's, in whose transaction it reads."""

    def __init__(self, source, con=None, holder=None):
        super().__init__()
        self.source, self.dialect, self.given, self.holder = source, source.dialect, con, holder
        self.lock = new_lock() if holder is None else holder.lock
        self.shared, self.streamer, self.lent, self.holds = holder is not None, None, None, False
        self.says_short = False                   # ShortOfMemory, where it is
        self.had_mib = getattr(source, "memory_mib", None)        # what the instance kept when it was lent

    @property
    def con(self):
        if self.given is not None:
            return self.given
        if self.lent is None:
            self.had_mib = self.source.memory_mib
            self.lent = self.source.instance.cursor()
        return self.lent[0]

    def apply_settings(self):
        """Those of the source have changed."""
        self.con.execute(";".join(self.source.settings))

    def batches(self, text, params=(), rows=None):
        """The Arrow batches of a statement, (rows, columns). In a shared transaction all at once: another session's
        statement would end a result that is under way."""
        if not self.shared:
            return self.read(text, params, rows)
        with self.lock:
            return iter(list(self.read(text, params, rows)))

    def read(self, text, params, rows):
        with self.losing(), ArrowStream(arrow_result(self.con, text, params, rows)) as stream:
            yield from stream

    def tuples(self, text, params=()):
        """The rows of a statement as Python's objects."""
        with self.lock, self.losing():
            yield from rows_in(self.con.execute(text, params or None))

    @contextlib.contextmanager
    def losing(self):
        """DuckDB's errors, as ConnectionLost where asking again may help: with more memory, for one."""
        try:
            yield
        except (ArrowError, duckdb.Error) as error:
            said = str(error)
            if isinstance(error, duckdb.IOException) or "IO Error" in said[:40]:
                raise ConnectionLost(said) from error
            if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory Error" in said[:60]:
                if self.says_short:
                    raise ShortOfMemory(said) from error
                if self.source.opens_instances and self.source.more_memory(self.had_mib):
                    raise ConnectionLost(said) from error
            raise

    def describe(self, query):
        rows = list(self.tuples(f"DESCRIBE\n{query.text}", query.params))
        return [ColumnFact(name, declared, *kind_of_type(declared)) for name, declared, *_ in rows]

    def stream(self, query, wanted, rows, order=None, skip=0, limit=None):
        if order is not None and order.salt is None and not skip and limit is None and self.lies_in_order(query, order):
            order = None                          # to sort all columns costs many times what it costs to look at one
        texts = [self.dialect.stream(query, wanted, order, skip, limit)]
        if self.in_batches and order is None and not skip and limit is None:
            stretches = self.stretches(query)
            texts = [self.dialect.fetch_numbered(query, wanted, [stretch]) for stretch in stretches] or texts
        for text in texts:
            with self.with_threads(order is not None) as session:
                yield from session.chunks(text, query.params, wanted, rows)

    def stretches(self, query):
        """The numbers of rows, from and to, of as many row groups of a large table as one instance may look at, see
        SharedInstance; none of anything else."""
        if not self.source.stores_rows or not self.has_numbers(query):
            return []
        text = f"SELECT max(q.{ROW_NUMBER}) FROM (\n{with_numbers(query).text}\n) AS q"
        with self.with_threads(sorts=False) as session:
            [[last]] = session.tuples(text, query.params)
        if last is None or last < ROWS_OF_INSTANCE:
            return []
        return [((low,), (low + ROWS_OF_INSTANCE - 1,)) for low in range(0, last + 1, ROWS_OF_INSTANCE)]

    def chunks(self, text, params, wanted, rows):
        for length, columns in self.batches(text, params, rows):
            if length:
                yield from parts(chunk_of(columns, wanted), rows)
            del columns                           # or the next batch would be made while this one is there

    @contextlib.contextmanager
    def with_threads(self, sorts):
        """The session that a whole result is asked of: one with an instance of its own, of several threads where memory
        is not what counts."""
        if not self.source.opens_instances:
            yield self
            return
        memory_mib = SORTING_MEMORY_MIB if sorts else max(STREAM_MEMORY_MIB, self.source.memory_mib)
        threads = 1 if self.in_batches and not sorts else STREAM_THREADS      # each holds some of the result
        with self.with_instance(memory_mib, threads) as session:
            yield session

    @contextlib.contextmanager
    def with_instance(self, memory_mib, threads):
        """A session with an instance of its own."""
        self.streamer = DuckDBSession(self.source, self.source.open(memory_mib, threads))
        try:
            yield self.streamer
        finally:
            self.streamer.close()
            self.streamer = None

    def boundaries(self, query, key, step):
        found = self.find_boundaries(query, key, step)
        self.looked_at(RANGES_OF_INSTANCE + 1, found)             # at every row group
        return found

    def looked_at(self, ranges, boundaries):
        """The instance has looked at so many ranges of the table: of a large one it is given up in time, and has no
        sessions but those that read."""
        if self.lent and self.source.remembers and boundaries.count > ROWS_OF_INSTANCE:
            self.source.instance.fetched(self.lent[1], ranges)
            lent, self.lent = self.lent, None
            self.source.instance.lay_aside(*lent)

    def find_boundaries(self, query, key, step):
        facts = {fact.name: fact for fact in self.describe(query)}
        text = self.dialect.boundaries(query, key, step)
        if len(key) == 1 and key[0] in facts and facts[key[0]].kind == "int":
            # Rows are mostly stored in the order of their key, and then there is no need to sort.
            found = self.numbered_scan(query, key, step) or self.scan(query, key, step, unsorted(text))
            if found is not None:
                scan, *numbers = found
                return scan.done(True, *(number.done(True) for number in numbers))
            return self.with_little_memory(lambda session: session.scan(query, key, step, text)[0].done())

        def scanned(session):
            scan = BoundaryScan(key, step)
            scan.add(session.tuples(text, query.params))
            return scan.done()

        return self.with_little_memory(scanned)

    def with_little_memory(self, ask):
        """What `ask` gives, a function of a session that may sort keys: of one with little memory, and of one with
        twice as much where that was too little."""
        memory_mib = SORTING_KEYS_MIB
        while self.source.opens_instances and memory_mib < SORTING_MEMORY_MIB:
            with contextlib.suppress(ShortOfMemory), self.with_instance(memory_mib, 1) as session:
                session.says_short = True
                return ask(session)
            memory_mib *= 2
        with self.with_threads(sorts=True) as session:
            return ask(session)

    def hash_counts(self, query, order, bits):
        counts = np.zeros(1 << bits, np.int64)
        text = self.dialect.hash_counts(query, order, bits)
        for begins, rows in self.with_little_memory(lambda session: list(session.tuples(text, query.params))):
            counts[begins] = rows
        return counts

    def hashed(self, query, wanted, order, which, take, sorts=False):
        stretches = [] if sorts else self.stretches(query)
        texts = [self.dialect.hashed(query, wanted, order, which, sorts, stretch) for stretch in stretches or [None]]
        memory_mib = max(STREAM_MEMORY_MIB, self.source.memory_mib)
        while True:
            try:
                with contextlib.closing(self.hashed_chunks(texts, query.params, wanted, memory_mib)) as chunks:
                    return take(chunks)
            except ShortOfMemory as error:
                memory_mib *= 2
                if memory_mib > SORTING_MEMORY_MIB:
                    raise error.__cause__ from None

    def hashed_chunks(self, texts, params, wanted, memory_mib):
        for text in texts:
            with self.with_instance(memory_mib, 1) as session:
                session.says_short = True
                for length, columns in session.batches(text, params, HASHED_ROWS):
                    if length:
                        yield chunk_of(columns[:-1], wanted), columns[-1].plain().values
                    del columns

    def lies_in_order(self, query, order):
        """Whether rows come by their key, without being sorted: of one that is whole numbers."""
        facts = {fact.name: fact for fact in self.describe(query)}
        if len(order.key) != 1 or facts[order.key[0]].kind != "int":
            return False
        text = self.dialect.boundaries(query, order.key, KEYS_AT_ONCE)
        try:
            return self.scan(query, order.key, KEYS_AT_ONCE, unsorted(text)) is not None
        except ValueError:                        # NULL, or twice: as it may be in a table that is only read
            return False

    def scan(self, query, columns, step, text):
        """A BoundaryScan for each of these columns of whole numbers, None if one does not come in order."""
        scans = [BoundaryScan([column], step) for column in columns]
        for length, found in self.batches(text, query.params):
            for scan, column in zip(scans, found):
                if length and not scan.add_numbers(*in_form(column, Wanted(*scan.key, "int", "int64"))):
                    return None
        return scans

    def numbered_scan(self, query, key, step):
        """The same of the key and of the numbers of rows; None also where rows have none."""
        if not self.has_numbers(query):
            return None
        numbered, columns = with_numbers(query), (*key, ROW_NUMBER)
        try:
            return self.scan(numbered, columns, step, unsorted(self.dialect.boundaries(numbered, columns, step)))
        except (duckdb.ProgrammingError, ValueError):     # what is wrong with a key is said soon
            return None

    def has_numbers(self, query):
        """Whether the query gives rows of a table, which have numbers."""
        numbered = with_numbers(query)
        if numbered is None:
            return False
        try:
            [tree] = self.tuples("SELECT json_serialize_sql(?)", (query.text,))
            if not gives_rows_of_a_table(json.loads(*tree)):
                return False
            with self.lock:                               # not run: an error would end the transaction
                self.con.sql(f"SELECT q.{ROW_NUMBER} FROM (\n{numbered.text}\n) AS q", params=numbered.params or None)
            return True
        except duckdb.ProgrammingError:                   # a view has none
            return False

    def fetch(self, query, wanted, boundaries, blocks):
        if boundaries.by_number is not None and (np.diff(blocks) > 0).all():
            ranges = boundaries.by_number.ranges(blocks)
            chunks = self.asked(self.dialect.fetch_numbered(query, wanted, ranges), query.params, wanted)
        else:
            ranges = boundaries.ranges(blocks)
            chunks = self.fetch_by_key(query, wanted, boundaries, ranges)
        yield from chunks
        if self.lent:
            self.source.had_enough()
        self.looked_at(len(ranges), boundaries)

    def asked(self, text, params, wanted):
        for length, columns in self.batches(text, params, FETCHED_AT_ONCE if SUBMITS_STREAMS else None):
            if length:
                yield chunk_of(columns, wanted)
            del columns

    def fetch_by_key(self, query, wanted, boundaries, ranges):
        whole = all(column.whole for column in boundaries.first)
        sorts = not boundaries.lies_in_order and (self.source.unordered or not whole)
        looks = not boundaries.lies_in_order and not sorts
        if whole:                                 # numbers may stand in the text, which costs less than to bind them
            params, placeholders = query.params, [str(int(value)) for value in range_values(ranges)]
        else:
            params, placeholders = with_values(query, range_values(ranges))
        data, before = self.rows_asked(query, boundaries, ranges), None
        text = self.dialect.fetch(query, wanted, boundaries.key, len(ranges), sorts, placeholders, looks, data)
        for length, columns in self.batches(text, params, FETCHED_AT_ONCE if SUBMITS_STREAMS else None):
            if not length:
                continue
            if looks:
                *key, number = (column.values for column in columns[len(wanted):])
                if not ascending(before, [number, *key]):
                    self.source.unordered = True
                    raise ConnectionLost("rows do not lie in the order of their key: asked again, they are sorted")
                before = [number[-1:], *(column[-1:] for column in key)]
            yield chunk_of(columns, wanted)

    def rows_asked(self, query, boundaries, ranges):
        """The statement that gives the rows of the files that these keys are in; None: of all."""
        files = self.source.files_with(self, query, boundaries, ranges)
        return None if files is None else self.source.rows_of(files)

    def fetch_text(self, query, wanted, boundaries):
        if boundaries.by_number is None or not boundaries.blocks:
            data = self.rows_asked(query, boundaries, boundaries.ranges([0])) if boundaries.blocks else None
            return self.dialect.fetch(query, wanted, boundaries.key, 1, data=data)
        return self.dialect.fetch_numbered(query, wanted, boundaries.by_number.ranges([0]))

    def plan(self, query, wanted, boundaries):
        if boundaries.by_number is None or not boundaries.blocks:
            nothing = (None,) * len(boundaries.key)
            params, placeholders = with_values(query, range_values([(nothing, nothing)]))
            text = self.dialect.fetch(query, wanted, boundaries.key, 1, True, placeholders)
        else:
            params, text = query.params, self.fetch_text(query, wanted, boundaries)
        return "\n".join(row[-1] for row in self.tuples(f"EXPLAIN {text}", params))

    def snapshot(self):
        return self.source.snapshot_of(self)

    def hold_instance(self):
        """Let it stay until this session is closed."""
        self.source.instance.hold(1)
        self.holds = True

    def hold_transaction(self):
        """Let other sessions of the connection read what this one does."""
        self.con.execute("BEGIN")
        self.con.execute("SELECT 1 FROM duckdb_tables() LIMIT 1").fetchall()
        self.shared = True

    def cancel(self):
        for session in (self, self.streamer):
            if session is not None and (session.given or session.lent):
                session.con.interrupt()

    def rest(self):
        lent, self.lent = self.lent, None
        if lent is not None:
            self.source.instance.leave(*lent)

    def close(self):
        self.rest()
        if self.holds:
            self.source.instance.hold(-1)
            self.holds = False
        con, self.given = self.given, None
        if con is not None and self.holder is None:
            con.close()


def with_values(query, values):
    """(parameters, placeholders in the text) of a query with values of ours behind its own."""
    if isinstance(query.params, dict):
        names = [f"flambeau_{i}" for i in range(len(values))]
        return {**query.params, **dict(zip(names, values))}, [f"${name}" for name in names]
    numbered = re.search(r"\$\d", query.text)     # DuckDB takes one style in a statement
    count = len(query.params)
    placeholders = [f"${count + i + 1}" for i in range(len(values))] if numbered else ["?"] * len(values)
    return (*query.params, *values), placeholders


def unsorted(text):
    """A statement without the ORDER BY at its end."""
    return text.rpartition(" ORDER BY ")[0]


def ascending(before, columns):
    """Whether rows come strictly by these columns, the first of them first; `before` is the row ahead of them."""
    same = None
    for i, values in enumerate(columns):
        values = values if before is None else np.concatenate([before[i], values])
        more, equal = values[1:] > values[:-1], values[1:] == values[:-1]
        right = more if i == len(columns) - 1 else more | equal
        if not (right if same is None else right | ~same).all():
            return False
        same = equal if same is None else same & equal
    return True
