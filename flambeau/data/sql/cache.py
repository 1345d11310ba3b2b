"""A packed copy of a query's rows in a local file: the first epoch is teed into it, later ones gather from it.

The file is a line of JSON that says what it is a copy of, and then the rows in the order of the key, each as the bytes
of its tensors side by side. It is written under another name and renamed when every row is in it, so that there is
never a part of one. A writer holds a lock on the file, which ends with the process, however that does: a file
that is not locked was left by a process that was killed, and the next writer deletes it. Rows are read with `pread`,
not mapped: memory stays bounded, and threads share the file.
"""
import errno
import glob
import itertools
import json
import os

import numpy as np

from ...base.locks import new_lock
from .blocks import EpochOrder
from .permute import shuffled_positions
from .reading import FetchedGroup, Piece
from .source import Boundaries

CACHE_FORMAT = 1
HEADER_ALIGNMENT = 4096
GROUP_ROWS = 65_536                 # rows of a piece that is gathered from all over the file
_numbers = itertools.count()        # so that two writers in a process have two files


def about(dataset, mark):
    """What a cache has to be a copy of: words that are compared one by one, and said where they differ."""
    columns = [[column.fact.name, column.wanted.form, column.dtype.name, repr(column.nulls), repr(column.codes)]
               for column in dataset.layout.columns]
    return {"format": CACHE_FORMAT, "database": str(dataset.source.identity()), "query": dataset.query.text,
            "params": repr(dataset.query.params), "key": list(dataset.key),
            "columns": [columns, [[part.name, part.width] for part in dataset.layout.parts]],
            "state of the tables": mark}


def checked_path(path):
    """The path of a cache as text, if a file can be there."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"cache={path!r}: give the path of a file, as text or as a pathlib.Path")
    path = os.fspath(path)
    if not path or os.path.isdir(path) or not os.path.isdir(os.path.dirname(path) or "."):
        why = "it is a folder" if os.path.isdir(path) else "there is no such folder" if path else "it is empty"
        raise ValueError(f"cache={path!r} cannot be the path of a file: {why}")
    return path


def open_cache(path, dataset, reading):
    """The cache at `path`, if there is one, which has to be of this very query; None if there is no file."""
    if not hasattr(os, "pread"):
        raise NotImplementedError("cache= needs os.pread and os.pwrite, which this system does not have; leave it out")
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return None
    try:
        return CachedRows(file, path, dataset, reading)
    except BaseException:
        os.close(file)
        raise


class CachedRows:
    """A cache that is complete, and of this query."""

    def __init__(self, file, path, dataset, reading):
        self.file, self.path = file, path
        size = os.fstat(file).st_size
        try:
            line = os.pread(file, min(size, 1 << 20), 0).split(b"\n", 1)[0]
            header = json.loads(line)
            self.rows, self.record, self.begin = header["rows"], header["record_bytes"], header["begin"]
            found = header["of"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"cache={path!r} is no cache of rows; choose another path") from error
        expected = json.loads(json.dumps(about(dataset, reading.snapshot.mark)))
        for word, value in expected.items():
            if found.get(word) != value:
                raise ValueError(f"cache={path!r} is of another {word}: {shown(found.get(word))}, where this is "
                                 f"{shown(value)}. Delete the file, or choose another path")
        if size != self.begin + self.rows * self.record:
            raise ValueError(f"cache={path!r} has {size} bytes, and should have "
                             f"{self.begin + self.rows * self.record}; delete it")
        if not reading.snapshot.mark and reading.ask(lambda session: session.count(dataset.query)) != self.rows:
            raise ValueError(f"cache={path!r} has {self.rows} rows, and the query gives another number now: delete it")
        self.layout = dataset.layout
        self.boundaries = Boundaries((), dataset.source.dialect.rows_in_block, self.rows, [], [])

    def permute(self, seed, epoch):
        """Ask for the rows of the whole file in an exact permutation; gives the rows at which its pieces begin."""
        self.seed, self.epoch = seed, epoch
        return np.append(np.arange(0, self.rows, GROUP_ROWS), self.rows)

    def permuted(self, number):
        """Piece `number` of that permutation."""
        begin, end = number * GROUP_ROWS, min((number + 1) * GROUP_ROWS, self.rows)
        rows = shuffled_positions(np.arange(begin, end), self.rows, self.seed, self.epoch)
        found = np.sort(rows)
        records = self.read((row, 1) for row in found.tolist())(end - begin)
        return Piece(self.unpacked(records), np.searchsorted(found, rows))

    def group(self, number, order: EpochOrder):
        """Group `number` of an epoch."""
        group = order.group(number)
        step, counts = self.boundaries.step, self.boundaries.rows_of(group.blocks)
        records = self.read(zip((group.blocks * step).tolist(), counts.tolist()))(group.rows)
        return FetchedGroup(self.unpacked(records), group.dealt, group.delivered)

    def read(self, runs):
        """Reads runs of rows (first, how many) into one array of records."""
        def into(rows):
            records = np.empty((rows, self.record), np.uint8)
            memory, at = memoryview(records).cast("B") if records.size else memoryview(b""), 0
            for first, count in runs:
                wanted = memory[at:at + count * self.record]
                if read_into(self.file, wanted, self.begin + first * self.record) != len(wanted):
                    raise OSError(errno.EIO, f"the cache ends before row {first + count}", self.path)
                at += len(wanted)
            return records
        return into

    def unpacked(self, records):
        arrays, at = self.layout.empty(len(records)), 0
        for array in arrays:
            flat = array.reshape(len(array), -1).view(np.uint8)
            flat[...] = records[:, at:at + flat.shape[1]]
            at += flat.shape[1]
        return arrays

    def close(self):
        file, self.file = self.file, None
        if file is not None:
            os.close(file)


class CacheMaker:
    """Part n of an epoch, from a cache: what `read(n, …)` gives. All makers of an epoch share its file."""

    def __init__(self, read, *about):
        self.read, self.about = read, about

    def make(self, number):
        return self.read(number, *self.about)

    def cancel(self):
        pass

    def close(self):
        pass


class CacheWriter:
    """A cache that is being filled, by several threads, in any order of blocks."""

    def __init__(self, path, dataset, reading):
        self.path, self.layout, self.boundaries = path, dataset.layout, dataset._planned(reading)
        self.record = self.layout.record_bytes
        self.missing = np.ones(self.boundaries.blocks, bool)
        self.lock = new_lock()
        header = {"of": about(dataset, reading.snapshot.mark), "rows": self.boundaries.count,
                  "record_bytes": self.record}
        line = json.dumps({**header, "begin": 0})
        self.begin = -(-(len(line) + 32) // HEADER_ALIGNMENT) * HEADER_ALIGNMENT
        line = json.dumps({**header, "begin": self.begin}) + "\n"
        self.partial, self.file = new_partial(path)
        try:
            delete_abandoned(path)
            self._reserve(self.begin + self.boundaries.count * self.record)
            self._write(line.encode(), 0)
        except BaseException:
            self.abandon()
            raise

    def _reserve(self, size):
        """Ask for all of the space before the epoch begins, rather than find the disk full at its end."""
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.file, 0, size)
            else:                               # macOS: at least not more than the disk can hold of a file
                os.ftruncate(self.file, size)
        except OSError as error:
            raise self._named(error) from error

    def _write(self, data, at):
        view = memoryview(data)
        try:
            while view:
                written = os.pwrite(self.file, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            raise self._named(error) from error

    def _named(self, error):
        needed = self.begin + self.boundaries.count * self.record
        return OSError(error.errno, f"{os.strerror(error.errno)}: the cache needs {needed / 2 ** 20:.1f} MiB; the rows "
                       "are there without cache=", self.path)

    def write(self, blocks, arrays):
        """Write the rows of these blocks, which the arrays hold one block after the other."""
        flats = [array.reshape(len(array), -1).view(np.uint8) for array in arrays]
        records = np.concatenate(flats, 1) if len(arrays[0]) else np.empty((0, self.record), np.uint8)
        step, at = self.boundaries.step, 0
        for block, rows in zip(blocks.tolist(), self.boundaries.rows_of(blocks).tolist()):
            self._write(records[at:at + rows].reshape(-1), self.begin + block * step * self.record)
            at += rows
        with self.lock:
            self.missing[blocks] = False

    def complete(self, maker):
        """Fetch what has not come by, and give the file its name."""
        left = np.flatnonzero(self.missing)
        size = max(1, GROUP_ROWS // self.boundaries.step)
        for begin in range(0, len(left), size):
            blocks = left[begin:begin + size]
            self.write(blocks, maker.rows_of(blocks, int(self.boundaries.rows_of(blocks).sum())))
        os.fsync(self.file)
        os.close(self.file)
        self.file = None
        os.replace(self.partial, self.path)
        self.partial = None

    def abandon(self):
        """Forget what was written, unless it is complete."""
        with self.lock:
            file, partial, self.file, self.partial = self.file, self.partial, None, None
        if file is not None:
            os.close(file)
        if partial is not None:
            os.unlink(partial)


def new_partial(path):
    """(name, file) of a file to write a cache to, which this process has locked."""
    while True:
        name = f"{path}.{os.getpid()}-{next(_numbers)}.partial"
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
        if lock_file(file) and os.fstat(file).st_nlink:  # no other process took it for abandoned before it was locked
            return name, file
        os.close(file)


def delete_abandoned(path):
    """Delete what processes that were killed have written of this cache."""
    for name in glob.glob(f"{glob.escape(path)}.*.partial"):
        try:
            file = os.open(name, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        except OSError:                                 # complete by now, or not ours to delete
            continue
        try:
            if lock_file(file):
                os.unlink(name)
        except FileNotFoundError:
            pass
        finally:
            os.close(file)


def lock_file(file):
    """Lock a file, until it is closed or the process ends; False if another process has it."""
    import fcntl  # not there on Windows, where there are no caches
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_into(file, memory, at):
    """Read from `at` on into `memory`; gives how many bytes there were."""
    if hasattr(os, "preadv"):
        return os.preadv(file, [memory], at)
    found = os.pread(file, len(memory), at)
    memory[:len(found)] = found
    return len(found)


def shown(value):
    text = value if isinstance(value, str) else json.dumps(value)
    text = " ".join(text.split())
    return repr(text if len(text) <= 80 else text[:79] + "…")
