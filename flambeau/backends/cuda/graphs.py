"""Graphs: a program that comes back over the same addresses is captured once, and launched by one call from then on.

A program remembers the last tables of addresses that it ran over. In a steady loop the pool gives out the same memory
again, so a table comes back, alone or in turn with a few others. When it has come often enough, what the program would
hand to its stream is captured on a stream of our own instead, and becomes a graph. Nothing is recaptured for numbers: a
learning rate or the count of steps that is another one is put into the Params of the kernels that read it.

Whether a graph is worth it is decided by counts alone, so that a program does the same in every run: it has several
tasks, or calls a library, and its table has come a few times. A program whose tables do not come back after they were
captured waits longer with the next one. (Putting numbers into a kernel takes less time than to launch it, so they do
not count.)

What the nodes of a graph address is the run's own memory, which is alive while it runs. A graph belongs to the thread
that captured it: between the numbers and the launch comes no other thread.

What a library copies from the CPU on the way (cuDNN the lengths of sequences, for one) is read when the graph is
launched, and by then the memory is another one: such programs are not captured.

While another library captures the current stream (CuPy, say), programs are handed to that as they are.
"""
import contextlib
import threading
from array import array
from collections import deque
from functools import partial

from ...base.locks import new_lock
from .. import library_switches
from ..backend import DeviceFailed

MIN_TASKS = 4                      # launches of a program before a graph is thought of, which costs as much as two do;
                                   # a call of a library takes longer than a graph (a product 27 µs more on an H200)
TABLES_REMEMBERED = 8              # of a program
SIGHTINGS_BEFORE_CAPTURE = 2       # of a table, beyond which it is captured
MOST_SIGHTINGS = 64                # after which it is captured at the latest
LAUNCHES_WORTH_CAPTURE = 16        # of a graph: forgotten after fewer, it was not worth it

refusals: deque = deque(maxlen=8)  # why programs could not be captured, the last ones, to be shown
_streams: dict = {}                # (index of a device, handle of a stream) → (driver, the one on which we capture)
_capturing = new_lock()


class Graphs:
    """What a GPUProgram remembers of its runs, by the thread, the stream and the table of addresses: a Captured, or how
    often that has come."""

    def __init__(self, program):
        self._program, self._seen = program, {}
        self._patience = SIGHTINGS_BEFORE_CAPTURE

    def of(self, table, cells, stream):
        """The graph for a stream over `table`, with the numbers in `cells`; None where there is none, or none yet."""
        exact = not library_switches.cuda.matmul.allow_tf32        # see Note [TF32] in library/products.py
        key, seen = (threading.get_ident(), stream.handle, exact, table.tobytes()), self._seen
        found = seen.pop(key, None)
        if found is None:
            found = 0
            if len(seen) >= TABLES_REMEMBERED:
                self._forget()
        try:
            if found.__class__ is Captured:
                found.update(table, cells)
            elif found < self._patience or stream.is_capturing():
                seen[key] = found + 1
                return None
            else:
                found = captured(self._program, table, cells, stream)
        except DeviceFailed as error:                             # something cannot be captured, or not be changed
            self._program.graphs = None
            refusals.append(str(error))
            return None
        seen[key] = found                                         # the last in line to be forgotten
        return found

    def _forget(self):
        """Forget the table that was not seen for longest."""
        with contextlib.suppress(StopIteration, RuntimeError):    # another thread was quicker
            gone = self._seen.pop(next(iter(self._seen)), None)
            if gone.__class__ is Captured and gone.launches < LAUNCHES_WORTH_CAPTURE:
                self._patience = min(2 * self._patience, MOST_SIGHTINGS)


class Captured:
    """A program over one table, as a graph."""

    __slots__ = ("graph", "launches", "_words", "_native", "_nodes", "_cells")

    def __init__(self, native, words, graph, nodes, cells):
        self.graph, self.launches = graph, 0
        self._words, self._native = words, native                 # the words outlive it, which nodes are found by
        self._nodes, self._cells = nodes, cells.tobytes()         # nodes: (its node, where its words are) of launches

    def update(self, table, cells):
        """Have it run with the numbers in `cells` from now on."""
        values = cells.tobytes()
        if values != self._cells:
            native = self._native
            native.update(native.updater, self.graph.handle, self._nodes.buffer_info()[0], len(self._nodes) // 2,
                          table.buffer_info()[0], self._cells, cells.buffer_info()[0])
            self._cells = values

    def bound(self, stream):
        """A function of no arguments that launches it; one call of C."""
        self.launches += 1
        launch = partial(self._native.run_graph, self.graph.handle, stream.handle)
        launch.graph = self.graph                                 # which must outlive it
        return launch


def captured(program, table, cells, current):
    """`program` over a table as a Captured for the stream `current`; DeviceFailed where it cannot be captured."""
    driver, pieces = program.driver, program.pieces
    with _capturing, driver.on(program.index):
        stream, nodes = _stream(driver, program.index, current), array("q")
        try:
            for prepare in program.prepares:
                prepare(stream.handle)
            driver.begin_capture(stream)
        except RuntimeError as error:
            raise DeviceFailed(str(error)) from error
        try:
            _hand_over(program, pieces, table, cells, stream, nodes)
        except BaseException:
            with contextlib.suppress(RuntimeError):               # it is told that it could not be captured
                driver.end_capture(stream)
            raise
        try:
            graph = driver.end_capture(stream)
        except RuntimeError as error:
            raise DeviceFailed(str(error)) from error
        if graph.copies_from_host():
            raise DeviceFailed("a library copies from memory of the CPU, which holds something else at the next launch")
    return Captured(program.launcher, pieces.words, graph, nodes, cells)


def _hand_over(program, pieces, table, cells, stream, nodes):
    """Hand the Pieces of a program to a stream that is being captured; note the nodes of those that read numbers."""
    driver, native = program.driver, program.launcher
    for piece in pieces.single:
        try:
            if not piece.is_launch:
                piece.run(table, stream.handle)
                continue
            native.run(native.address, piece.start, 1, table.buffer_info()[0], cells.buffer_info()[0], stream.handle)
            if pieces.words.numbers(piece.first):
                nodes.extend((driver.captured_node(stream), piece.start))
        except DeviceFailed:
            raise
        except Exception as error:
            raise DeviceFailed(str(error), piece.task) from error


def _stream(driver, index, current):
    """The stream on which we capture what is for the stream `current`, which may be the default one, that cannot be.

    Each has one of its own, and what libraries need for it (HostCall.prepare): graphs of two streams may run at once.
    """
    known, stream = _streams.get((index, current.handle), (None, None))
    if known is not driver:
        stream = driver.stream(index)
        _streams[index, current.handle] = driver, stream
    return stream
