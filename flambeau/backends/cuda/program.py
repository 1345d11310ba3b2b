"""Programs of a GPU: launches, calls of the library, and graphs of both.

Launches in a row are one native call (launcher.py); between them stand calls of NVIDIA's libraries, from Python. All of
it is handed to the current stream, and nothing waits. A program that runs again has maps in a row put together
(horizontal.py), and over the same addresses it is launched as one graph (graphs.py).

Note [Interrupts amid a program]: the last program of a trace may write over what it was given, so once it has begun it
must come to its end (Note [All or nothing] in trace/planning/plan.py). One of launches alone, or a graph, is one call
of C. A ProgramWalk, which goes from piece to piece in Python, notes how far it has come, and its caller has it
`resume` when an interrupt came: a call of C counts as done before it is made, since no interrupt comes between the two,
and a HostCall once it is through. One that was interrupted is made again, so it must not read what it writes.
"""
import threading
from array import array
from functools import partial

from ...base import observers
from ...base.errors import warn
from ...loops.ir import Launch
from ..backend import DeviceFailed
from . import graphs, horizontal, launcher
from .calls import HostCall
from .code import kernels_of
from .horizontal import HorizontalLaunch

_thread = threading.local()              # `began`: in this thread, CUDA knows on which device

RUNS_BEFORE_FUSION = 2             # of a program: its maps are put together at the second, before it is captured
NOTHING = HostCall(lambda addresses, stream: None, "nothing")


class HostPiece:
    """A HostCall of a program, and the slots of what it reads and writes; it is task number `task`."""

    __slots__ = ("fn", "prepare", "slots", "task")
    is_launch = False

    def __init__(self, call, slots, task):
        self.fn, self.prepare, self.slots, self.task = call.fn, call.prepare, slots, task

    def run(self, table, stream):
        """Put its work on a stream."""
        self.fn([table[index] + offset for index, offset in self.slots], stream)


class LaunchPiece:
    """Launches in a row: `words` from launch number `first` on; `tasks` has the number of each one's first task."""

    __slots__ = ("words", "first", "tasks", "start")
    is_launch = True

    def __init__(self, words, first, tasks):
        self.words, self.first, self.tasks = words, first, tasks
        self.start = words.address(first)

    @property
    def task(self):
        """The number of its first task."""
        return self.tasks[0]


class Pieces:
    """Tasks, each with its number, as what is handed to a stream: `single` has a piece for each, `joined` the same with
    launches in a row put together."""

    def __init__(self, kernels, tasks):
        self.words = words = launcher.LaunchWords()
        rows: list = []                       # a HostPiece, or the number of a launch, for each task
        for task, number in tasks:
            work = task if isinstance(task, HorizontalLaunch) else task.work
            plan = work.schedule if isinstance(work, Launch) else work
            grid = plan.grid(work) if plan is not work else getattr(work, "grid", ())
            if 0 in grid:                     # over nothing, which CUDA refuses to launch
                rows.append(HostPiece(NOTHING, (), number))
            elif isinstance(work, HostCall):
                rows.append(HostPiece(work, task.slots, number))
            else:
                function = kernels.of_launch(work) if isinstance(work, Launch) else kernels.of_call(work)
                words.add(function, grid, plan.block, plan.shared_bytes, task.slots,
                          plan.ints(work) if plan is not work else work.ints, task.numbers)
                rows.append(words.launches - 1)
        self.single = [row if isinstance(row, HostPiece) else LaunchPiece(words, row, [number])
                       for row, (_, number) in zip(rows, tasks, strict=True)]
        self.joined = _joined(self.single)
        # one call of C, whose launches are the tasks
        self.is_one_call = len(self.joined) == 1 and self.joined[0].is_launch and self.joined[0].tasks == list(
            range(words.launches))


class GPUProgram:
    """Tasks in a row on a device; see `Backend.program`.

    A program that comes again has its maps put together (horizontal.py): `pieces` are other ones from then on.
    """

    lasts = False                             # the current stream, and whether there is a graph, are other ones later

    def __init__(self, backend, tasks):
        self.driver, self.index, self.tasks = backend.driver, backend.index, tasks
        self.launcher, self.kernels = launcher.of(self.driver), kernels_of(backend)
        self.by_task = self.pieces = Pieces(self.kernels, [(task, number) for number, task in enumerate(tasks)])
        self.prepares = {piece.prepare for piece in self.pieces.single if not piece.is_launch} - {None}
        self.only_device = self.driver.device_count() == 1
        worth_it = len(tasks) >= graphs.MIN_TASKS or any(not piece.is_launch for piece in self.pieces.single)
        self.graphs = graphs.Graphs(self) if worth_it else None
        self.runs_before_fusion = RUNS_BEFORE_FUSION

    def run(self, table, cells, times=None):
        """Run over the addresses of `table` and the numbers in `cells`."""
        table = array("q", table)
        self.bound(table, cells, times)()

    def bound(self, table, cells, times=None):
        """What runs once over arrays of words as they are now, which must outlive it."""
        driver = self.driver
        stream = driver.current_stream(self.index)
        if times is not None:
            return ProgramWalk(self, self.by_task.single, table, cells, stream, times)
        if not hasattr(_thread, "began"):
            with driver.on(self.index):       # libcuda wants to be told once in every thread
                _thread.began = True
        if self.runs_before_fusion > 0:
            self._come_again()
        pieces = self.pieces
        if self.only_device or driver.current_device() == self.index:       # else it is made so, for the time of a walk
            graph = self.graphs.of(table, cells, stream) if self.graphs is not None else None
            if graph is not None:
                return graph.bound(stream)
            if pieces.is_one_call:
                return partial(self.launcher.run, self.launcher.address, pieces.words.start, pieces.words.launches,
                               table.buffer_info()[0], cells.buffer_info()[0], stream.handle)
        return ProgramWalk(self, pieces.joined, table, cells, stream)

    def _come_again(self):
        """Count a run, and put kernels together once there were enough of them."""
        self.runs_before_fusion -= 1
        if self.runs_before_fusion:
            return
        found = horizontal.fused(self.tasks, self.kernels.versions)
        fused = [work for work, _ in found if isinstance(work, HorizontalLaunch)]
        if not fused:
            return
        failed = self.kernels.ensure(dict(map(self.kernels.known_call, fused)))       # several at once
        if failed:
            warn("kernels that would have been one launch could not be compiled together. Each is launched by itself, "
                 "which is slower; nothing else is affected. This is a mistake in Flambeau: please report it, with "
                 f"what `flambeau info` prints, and what NVRTC says: {next(iter(failed.values()))}")
            return
        self.pieces = Pieces(self.kernels, found)


class ProgramWalk:
    """One run of a program from piece to piece; see Note [Interrupts amid a program].

    With `times`, each piece is a task, and waited for: a GPU works beside the CPU, so only then does the clock say when
    it was through. It takes longer in all than without.
    """

    __slots__ = ("program", "pieces", "table", "cells", "stream", "times", "at")

    def __init__(self, program, pieces, table, cells, stream, times=None):
        self.program, self.pieces, self.table, self.cells, self.stream = program, pieces, table, cells, stream
        self.times = None if times is not None and stream.is_capturing() else times       # a wait is not allowed
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
                error.task = piece.tasks[error.task or 0] if piece.is_launch else piece.task
                raise
            except Exception as error:        # CUDA's, or of one of NVIDIA's libraries
                self.at = len(pieces)
                raise DeviceFailed(str(error), piece.task) from error
            if self.times is not None:
                self._wait(piece.task)
                self.times[self.at] = observers.clock()

    def _launch(self, piece):
        native = self.program.launcher
        launch = partial(native.run, native.address, piece.start, len(piece.tasks), self.table.buffer_info()[0],
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
            last.tasks += piece.tasks
        elif piece.is_launch:
            pieces.append(LaunchPiece(piece.words, piece.first, [*piece.tasks]))
        else:
            pieces.append(piece)
    return pieces
