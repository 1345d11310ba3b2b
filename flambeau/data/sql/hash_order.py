"""The rows of shuffle="global" where the database gives hashes of keys, and is not asked to sort.

DuckDB sorts two million rows of twenty columns with 64 MiB, and not twenty million: it needs ever more. So here rows
are read as they lie, each with its hash, and dealt out to bins by the first bits of that, in a temporary file: hashes
are spread evenly, and a bin is small enough to be sorted here. Memory is that of one bin, however many there are; the
table is read once, and its keys once before, to know how many rows each bin will have.

The order is that of `ORDER BY hash, key`, to the row. Two keys of the same hash are one in a hundred thousand tables of
twenty million rows; the database is asked which of them comes first.
"""
import numpy as np

from .reading import StreamMaker, untouched
from .source import ConnectionLost, Order, TableChanged
from .waiting_rows import flat_bytes, read_at, temporary_file, warn_of_memory, write_at

HASH_BITS = 64
BIN_BYTES = 12 << 20                  # of a bin, at most;
MOST_BIN_BITS = 12                    # in more than 4096 bins rows would be written one at a time: they get larger
DEALT_BYTES = 4 << 20                 # of rows that are dealt out at a time


class HashOrderMaker(StreamMaker):
    """The same parts of the same stream, from RowsByHash."""

    def begun(self, session, at):
        session.in_batches = True
        return RowsByHash(session, self.link.reading, self.layout, self.order, self.rows, at, self.end)


class RowsByHash:
    """The rows `begin` to `end` of a query that gives `rows`, in an Order with a salt; as RowStream gives them."""

    def __init__(self, session, reading, layout, order: Order, rows, begin, end):
        self.session, self.reading, self.layout, self.order = session, reading, layout, order
        self.record = record_of(layout)
        self.bits = bits_of_bin(rows * self.record.itemsize)
        self.store = None
        counts = session.hash_counts(reading.query, order, self.bits)
        if counts.sum() != rows:
            raise rows_changed(reading, rows, counts.sum())
        ends = np.cumsum(counts)
        self.bin, last = (int(np.searchsorted(ends, row, "right")) for row in (begin, end - 1))
        self.first_bin, self.starts = self.bin, np.concatenate([[0], np.cumsum(counts[self.bin:last + 1])])
        self.skip = begin - int(ends[self.bin] - counts[self.bin])     # of the first bin, as delivered before
        self.records, self.sorted, self.used = None, np.empty(0, np.int64), 0
        self.store = row_store(self.record, self.starts)
        try:
            session.hashed(reading.query, layout.wanted, order, self.hashes_of(self.first_bin, last), self.deal)
        except BaseException:                     # no caller has this object yet that would close it
            self.close()
            raise

    def hashes_of(self, first, last):
        """The least and the greatest hash of these bins; None of all."""
        if first == 0 and last == (1 << self.bits) - 1:
            return None
        shift = HASH_BITS - self.bits
        return first << shift, ((last + 1) << shift) - 1

    # --- dealing out ----------------------------------------------------------------------------------------------

    def deal(self, chunks):
        """Put all rows where they belong; from the beginning, however often it is called."""
        size = max(DEALT_BYTES // self.record.itemsize, 1)
        staged, dealt = (untouched((size,), self.record) for _ in range(2))
        parts = parts_in(staged)
        filled, at = self.starts[:-1].copy(), 0
        for chunk, hashes in chunks:
            if self.reading.stopped.is_set():
                raise ConnectionLost("the epoch was ended")
            used = 0
            while used < len(chunk):
                some = min(size - at, len(chunk) - used)
                self.layout.fill(parts, at, chunk.part(used, used + some))
                staged["hash"][at:at + some] = hashes[used:used + some]
                at, used = at + some, used + some
                if at == size:
                    self.put(staged, dealt, filled)
                    at = 0
        self.put(staged[:at], dealt[:at], filled)
        if (filled != self.starts[1:]).any():
            raise rows_changed(self.reading, self.starts[-1], (filled - self.starts[:-1]).sum())

    def put(self, staged, dealt, filled):
        bins = self.bins_of(staged["hash"])
        counts = np.bincount(bins, minlength=len(filled))
        if len(counts) > len(filled) or (filled + counts > self.starts[1:]).any():
            raise rows_changed(self.reading, self.starts[-1], "more")
        # A stable sort of numbers of 16 bits is by counting, in one pass.
        np.take(staged, np.argsort(bins, kind="stable"), 0, dealt, "clip")
        begin = 0
        for bin_index in np.flatnonzero(counts).tolist():
            end = begin + int(counts[bin_index])
            self.store.write(int(filled[bin_index]), dealt[begin:end])
            begin = end
        filled += counts

    def bins_of(self, hashes):
        """Which bin each is of, counted from the first that is wanted."""
        if not self.bits:
            return np.zeros(len(hashes), np.uint16)
        return ((hashes >> np.uint64(HASH_BITS - self.bits)) - np.uint64(self.first_bin)).astype(np.uint16)

    # --- delivering -----------------------------------------------------------------------------------------------

    def fill(self, layout, arrays, rows):
        """Write the next `rows` rows into the arrays; gives how many there were."""
        at = 0
        while at < rows:
            if self.used == len(self.sorted):
                if self.bin - self.first_bin == len(self.starts) - 1:
                    break
                self.next_bin()
                continue
            some = min(rows - at, len(self.sorted) - self.used)
            taken = np.take(self.records, self.sorted[self.used:self.used + some], 0, mode="clip")
            for target, part in zip(arrays, parts_in(taken)):
                target[at:at + some] = part
            at, self.used = at + some, self.used + some
        return at

    def next_bin(self):
        bin_index = self.bin - self.first_bin
        self.records = None                       # a bin's memory is that of the one before
        self.records = self.store.read(int(self.starts[bin_index]), int(self.starts[bin_index + 1]))
        hashes = np.ascontiguousarray(self.records["hash"])
        self.sorted = sorted_positions(hashes, self.bits)
        in_order = hashes[self.sorted]
        if (twice := in_order[1:] == in_order[:-1]).any():
            self.sort_equals(np.unique(in_order[1:][twice]))
        self.used, self.skip, self.bin = self.skip, 0, self.bin + 1

    def sort_equals(self, equal):
        """Let the database put the rows into order whose hashes are these, each of more than one row."""
        def took(chunks):
            found = np.empty(0, self.record)
            for chunk, hashes in chunks:
                some = np.empty(len(chunk), self.record)
                some["hash"] = hashes
                self.layout.fill(parts_in(some), 0, chunk)
                found = np.concatenate([found, some])
            return found

        found = self.session.hashed(self.reading.query, self.layout.wanted, self.order, equal.tolist(), took, True)
        positions = self.sorted[np.isin(self.records["hash"][self.sorted], equal)]
        if len(found) != len(positions):
            raise rows_changed(self.reading, len(positions), len(found))
        self.records[positions] = found

    def close(self):
        store, self.store, self.records = self.store, None, None
        if store is not None:
            store.close()


def record_of(layout):
    """A row of a layout and its hash, side by side, as a NumPy type."""
    return np.dtype([("hash", np.uint64), *((f"part{i}", part.dtype.np, part.shape(1)[1:])
                                            for i, part in enumerate(layout.parts))], align=True)


def parts_in(records):
    """The arrays of a RowLayout, as views of records."""
    return [records[name] for name in records.dtype.names[1:]]


def bits_of_bin(size):
    """How many bits of a hash tell the bins of so many bytes in all."""
    return min(max(-(-size // BIN_BYTES) - 1, 0).bit_length(), MOST_BIN_BITS)


def sorted_positions(hashes, known_bits):
    """Where in an array the hashes are in their order. `known_bits` are the same of all of them.

    With its position in the low bits a number can be sorted by itself, several times as fast as positions by numbers;
    that what fell out for it made no difference is looked at.
    """
    bits = max(len(hashes) - 1, 0).bit_length()
    words = (hashes << np.uint64(known_bits)) >> np.uint64(bits) << np.uint64(bits)
    words |= np.arange(len(hashes), dtype=np.uint64)
    words.sort()
    words &= np.uint64((1 << bits) - 1)
    positions = words.astype(np.int64)
    in_order = hashes[positions]
    return positions if (in_order[1:] > in_order[:-1]).all() else np.argsort(hashes, kind="stable")


def rows_changed(reading, rows, found):
    return TableChanged(f"{reading.source.name} gave {found} rows where it had counted {rows}: the table was written "
                        "to. Begin a new epoch")


# --- where rows wait ------------------------------------------------------------------------------------------------


def row_store(record, starts):
    """Where the rows of all bins are until it is their turn: in memory if that is one bin, otherwise in a file."""
    rows = int(starts[-1])
    if rows * record.itemsize <= BIN_BYTES:
        return RowsInMemory(record, rows)
    try:
        return RowsInFile(record, rows, int(np.diff(starts).max()))
    except OSError as error:
        warn_of_memory(rows * record.itemsize, "that are sorted", error)
        return RowsInMemory(record, rows)


class RowsInMemory:
    """Rows and their hashes, each in its place."""

    def __init__(self, record, rows):
        self.records = untouched((rows,), record)

    def write(self, at, records):
        self.records[at:at + len(records)] = records

    def read(self, begin, end):
        return self.records[begin:end]

    def close(self):
        self.records = None


class RowsInFile:
    """The same in a temporary file without a name. It is read and written, not mapped, which would be memory again."""

    def __init__(self, record, rows, most_rows):
        self.record, self.buffer, self.most_rows = record, None, most_rows
        self.file = temporary_file(rows * record.itemsize)

    def write(self, at, records):
        write_at(self.file, [flat_bytes(records)], at * self.record.itemsize)

    def read(self, begin, end):
        """Rows `begin` to `end`, which are there until others are read."""
        if self.buffer is None:
            self.buffer = untouched((self.most_rows,), self.record)
        found = self.buffer[:end - begin]
        read_at(self.file, [flat_bytes(found)], begin * self.record.itemsize)
        return found

    def close(self):
        self.buffer = None
        self.file.close()
