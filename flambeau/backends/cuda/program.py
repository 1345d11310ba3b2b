"""Programs of a GPU: launches, calls of the library, and graphs of both.

Launches in a row are one native call (launcher.py); between them stand calls of NVIDIA's libraries, from Python. All of
it is handed to the current stream, and nothing waits. A program that runs again over the same addresses is launched as
one graph (graphs.py).

Note [Interrupts amid a program]: the last program of a trace may write over what it was given, so once it has begun it
must come to its end (Note [All or nothing] in trace/plan.py). One of launches alone, or a graph, is one call of C. A
ProgramWalk, which goes from piece to piece in Python, notes how far it has come, and whoever called it has it `resume`
when an interrupt came: a call of C counts as done before it is made, since no interrupt comes between the two, and a
HostCall once it is through. One that was interrupted is made again, so it must not read what it writes.
"""
import threading
from array import array
from functools import partial

from ...base import observers
from ...loops.ir import Launch
from ..backend import DeviceFailed
from . import graphs, launcher
from .calls import HostCall, LaunchCall
from .code import kernels_of

_thread = threading.local()              # `began`: in this thread, CUDA knows on which device


NOTHING = HostCall(lambda addresses, stream: None, "nothing")


class HostPiece:
    """A HostCall of a program, and the places of what it reads and writes."""

    __slots__ = ("fn", "prepare", "places", "task")
    is_launch = False

    def __init__(self, call, places, task):
        self.fn, self.prepare, self.places, self.task = call.fn, call.prepare, places, task

    def run(self, table, stream):
        """Put its work on a stream."""
        self.fn([table[index] + offset for index, offset in self.places], stream)


class LaunchPiece:
    """Launches in a row: `words` from launch number `first` on, `count` of them; the first is task number `task`."""

    __slots__ = ("words", "first", "count", "task", "start")
    is_launch = True

    def __init__(self, words, first, count, task):
        self.words, self.first, self.count, self.task = words, first, count, task
        self.start = words.address(first)


class GPUProgram:
    """Tasks in a row on a device; see `Backend.program`."""

    lasts = False                             # the current stream, and whether there is a graph, are other ones later

    def __init__(self, backend, tasks):
        self.driver, self.index, self.tasks = backend.driver, backend.index, len(tasks)
        self.launcher, kernels = launcher.of(self.driver), kernels_of(backend)
        self.words = launcher.LaunchWords()
        rows: list = []                       # a HostPiece, or the number of a launch, for each task
        for number, (work, places, numbers) in enumerate(tasks):
            plan = work.schedule if isinstance(work, Launch) else work
            grid = plan.grid(work) if plan is not work else getattr(work, "grid", ())
            if 0 in grid:                     # over nothing, which CUDA refuses to launch
                rows.append(HostPiece(NOTHING, (), number))
            elif isinstance(work, Launch):
                self.words.add(kernels.of_launch(work), grid, plan.block, plan.shared_bytes, places, plan.ints(work),
                               numbers)
                rows.append(self.words.launches - 1)
            elif isinstance(work, LaunchCall):
                self.words.add(kernels.of_call(work), grid, work.block, work.shared_bytes, places, work.ints, numbers)
                rows.append(self.words.launches - 1)
            else:
                rows.append(HostPiece(work, places, number))
        self.single = [row if isinstance(row, HostPiece) else LaunchPiece(self.words, row, 1, number)
                       for number, row in enumerate(rows)]
        self.pieces = _joined(self.single)
        self.prepares = {piece.prepare for piece in self.single if not piece.is_launch} - {None}
        self.only_launches = len(self.pieces) == 1 and self.pieces[0].is_launch
        self.only_device = self.driver.device_count() == 1
        worth_it = self.tasks >= graphs.MIN_TASKS or any(not piece.is_launch for piece in self.single)
        self.graphs = graphs.Graphs(self) if worth_it else None

    def run(self, table, cells, times=None):
        """Run over the addresses of `table` and the numbers in `cells`."""
        table = array("q", table)
        self.bound(table, cells, times)()

    def bound(self, table, cells, times=None):
        """What runs once over arrays of words as they are now, which must outlive it."""
        driver = self.driver
        stream = driver.current_stream(self.index)
        if times is not None:
            return ProgramWalk(self, self.single, table, cells, stream, times)
        if not hasattr(_thread, "began"):
            with driver.on(self.index):       # libcuda wants to be told once in every thread
                _thread.began = True
        if self.only_device or driver.current_device() == self.index:       # else it is made so, for the time of a walk
            graph = self.graphs.of(table, cells, stream) if self.graphs is not None else None
            if graph is not None:
                return graph.bound(stream)
            if self.only_launches:
                return partial(self.launcher.run, self.launcher.address, self.words.start, self.words.launches,
                               table.buffer_info()[0], cells.buffer_info()[0], stream.handle)
        return ProgramWalk(self, self.pieces, table, cells, stream)


class ProgramWalk:
    """One run of a program from piece to piece; see Note [Interrupts amid a program].

    With `times`, each piece is a task, and waited for: a GPU works beside the CPU, so only then does the clock say when
    it was through. It takes longer in all than without.
    """

    __slots__ = ("program", "pieces", "table", "cells", "stream", "times", "at")

    def __init__(self, program, pieces, table, cells, stream, times=None):
        self.program, self.pieces, self.table, self.cells, self.stream = program, pieces, table, cells, stream
        self.times = None if times is not None and stream.is_capturing() else times       # nobody may wait for it
        self.at = 0                           # how many pieces are done

    def __call__(self):
        program = self.program
        with program.driver.on(program.index):
            if self.times is not None and not self.at:
                self._wait(None)
                self.times[0] = observers.clock()
            self._go()

    resume = __call__

    def _go(self):
        pieces = self.pieces
        while self.at < len(pieces):
            piece = pieces[self.at]
            try:
                if piece.is_launch:
                    self._launch(piece)
                else:
                    piece.run(self.table, self.stream.handle)
                    self.at += 1
            except DeviceFailed as error:
                self.at = len(pieces)         # there is no rest
                error.task = piece.task + (error.task or 0)
                raise
            except Exception as error:        # CUDA's, or of one of NVIDIA's libraries
                self.at = len(pieces)
                raise DeviceFailed(str(error), piece.task) from error
            if self.times is not None:
                self._wait(piece.task)
                self.times[self.at] = observers.clock()

    def _launch(self, piece):
        native = self.program.launcher
        launch = partial(native.run, native.address, piece.start, piece.count, self.table.buffer_info()[0],
                         self.cells.buffer_info()[0], self.stream.handle)
        self.at += 1                          # no interrupt comes between this and the end of the call
        launch()

    def _wait(self, task):
        try:
            self.stream.synchronize()
        except DeviceFailed as error:
            self.at = len(self.pieces)
            error.task = task
            raise


def _joined(single):
    """Pieces of one task each, with launches in a row put together."""
    pieces: list = []
    for piece in single:
        last = pieces[-1] if pieces else None
        if piece.is_launch and last is not None and last.is_launch:
            last.count += 1
        elif piece.is_launch:
            pieces.append(LaunchPiece(piece.words, piece.first, 1, piece.task))
        else:
            pieces.append(piece)
    return pieces
