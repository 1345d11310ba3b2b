"""Observers: who is told what happens, in recording, planning, running, memory and autograd.

    class Slowest(Observer):
        def ran(self, run):
            print(run.nanoseconds, *run.lines)

    with observing(Slowest()):
        train()

An observer is told of the kinds of events that it has a method for. For each kind there is one name in this module:
`None` while there is no observer, else a function that tells all of them, in the order in which they came. So the place
where something happens tests one name, and that is all it costs without observers:

    if (tell := observers.looked) is not None:
        tell(value)

All threads are observed, unless `observing` is told otherwise. An observer is called in the thread where the thing
happened, so one that observes all of them may be called by several at once.

Note [Told after the run]: while a trace runs its lock is held, Values are half made, and whether memory may be written
over is asked by counting who holds it. An observer may do anything: use tensors, keep them, raise. So what happens
during a run waits, with its times, and is told when the run is over (`gathered`). Where an observer raises, every one
is told the rest all the same, and then the first error goes to the user, whose tensors are as they would be without.

What an observer keeps of what it is told stays alive: a Value that an observer holds has to be computed.
"""
import contextlib
import os
import sys
import threading
import time
from functools import partial

from .errors import PACKAGE, here, line_of
from .locks import new_lock

# The clock of native code (backends/cpu/runtime.py), so that all times can be compared; nanoseconds that only go
# forward.
clock = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC) if hasattr(time, "clock_gettime_ns") \
    else time.perf_counter_ns


class Observer:
    """One who is told what happens: a subclass has methods for the events that it asks for; see `observing`.

    An `instruction` is an Instruction of the trace (trace/recording/instructions.py).
    """

    # --- recording --------------------------------------------------------------------------------------------------

    def calling(self, name, args, kwargs):
        """A function or method of torch's that computes is about to be called, by a program or by another one. To be
        told of calls has all of them go the long way (Note [Asking for modes] in tensor/function_modes.py)."""

    def called(self, name, args, kwargs, made, start, end):
        """It was called: `made` is what it gave, None also where it raised. Those that it has called were told
        before."""

    def recorded(self, instruction):
        """A call was recorded; nothing has been computed."""

    def looked(self, value):
        """The contents of a Value are wanted, which runs what is pending."""

    def wrote(self, storage):
        """The contents of a Storage are about to be replaced."""

    def made(self, value):
        """Contents were made without an instruction: from an array or from numbers."""

    def drew(self, draw, spec, value):
        """A Value holds random numbers of spec `spec`, from `draw(count)`."""

    def shared(self, storage):
        """A Storage was made over the memory of an outside array."""

    def moved(self, tensor, device):
        """A copy of a tensor on another device was asked for."""

    # --- planning and running ---------------------------------------------------------------------------------------

    def planned(self, planning):
        """A plan was made (a Planning). Later runs of equal instructions find it, and nothing is planned."""

    def ran(self, run):
        """A step of a plan, or an instruction without a plan, was run (a StepRun)."""

    def run_ended(self, start, end):
        """A run is over, from its first question to its results; what happened in it was told before."""

    def compiled(self, start, end):
        """A compiler has worked: in this thread, or while it waited; or ahead, in the compiler's own."""

    def copied(self, origin, target, nbytes, start, end):
        """Contents were copied from one device to another beside any step: the CPU looked at them. That waits for all
        that the device was handed before."""

    def waited(self, what, start, end):
        """This thread waited, for a device or for a loader's workers."""

    # --- memory -----------------------------------------------------------------------------------------------------

    def allocated(self, allocation):
        """A device's allocator gave out memory (an Allocation). What NumPy allocates for itself is not told."""

    def freed(self, allocation):
        """An Allocation, the same object, came back. It is noticed at the latest when a run is over."""

    # --- autograd ---------------------------------------------------------------------------------------------------

    def backward_called(self, tensors):
        """`backward` was called on these tensors, and has done nothing yet."""

    def node_made(self, node):
        """A node was made beside a call."""

    def gradient_read(self, tensor):
        """`tensor.grad` is read."""

    def backward_began(self, backward_pass):
        """A backward is about to go through its nodes, `backward_pass.reached`."""

    def node_ran(self, node, start, end):
        """A backward has called a node. What that recorded may run much later."""

    def backward_ended(self, backward_pass):
        """A backward is over, with an error or without."""

    def module_began(self, module):
        """A module's forward is about to be called. To be told of these has all modules go the way of those with hooks
        (nn/modules/hooks.py); what `compile` has recorded is recorded once more for it, and holds again afterwards."""

    def module_ended(self, module):
        """A module's forward is over, with an error or without."""

    # --- training ---------------------------------------------------------------------------------------------------

    def step_began(self, optimizer):
        """An optimizer is about to take a step."""

    def step_ended(self, optimizer):
        """An optimizer has taken a step."""


KINDS = tuple(name for name in vars(Observer) if not name.startswith("_"))
DURING_RUNS = frozenset(("planned", "ran", "run_ended", "compiled", "copied", "waited",
                         "allocated", "freed"))                        # see Note [Told after the run]

calling = called = recorded = looked = wrote = None                    # kind → a function that tells its observers
made = drew = shared = moved = None
planned = ran = run_ended = compiled = copied = waited = None
allocated = freed = None
backward_called = node_made = backward_began = node_ran = backward_ended = None
gradient_read = module_began = module_ended = step_began = step_ended = None
during_runs = False           # whether any of those that happen during runs is asked for

TELLING_FILES = (__file__, os.path.join(PACKAGE, "trace", "value.py"))


def who_looked():
    """The frame of the code that wants contents; for the `looked` of an observer, which asks at once."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename in TELLING_FILES:
        frame = frame.f_back
    return frame


on_change: list = []          # functions to call when another observer has come, or gone
catch_up: list = []           # functions that tell what has happened and could not be told at that moment
_observers: list = []         # (observer, the only thread that it observes or None), in the order in which they came
_lock = new_lock()


class _Thread(threading.local):
    waiting = None            # (methods, event) of what waits for the end of a run
    instructions = None       # those for which memory is allocated now


_thread = _Thread()


@contextlib.contextmanager
def observing(observer, only_this_thread=False):
    """Inside, `observer` is told what happens in all threads, or in this one."""
    entry = (observer, threading.get_ident() if only_this_thread else None)
    amid_run = gathering()                # a function that an operation calls
    try:
        _change(_observers.append, entry)
        yield observer
    finally:
        try:
            if not amid_run:
                _finish()                 # and if an interrupt ended a run, what waits since then is told now
        finally:
            try:
                _change(_remove, entry)
            except BaseException:         # an interrupt: once more, there is no way back
                _change(_remove, entry)
                raise


def _remove(entry):
    for at, other in enumerate(_observers):
        if other is entry:
            del _observers[at]
            return


def _change(change, entry):
    with _lock:
        change(entry)
        _publish()


def _publish():
    """Set the name of each kind of event to what tells those who ask for it."""
    global during_runs
    for event in KINDS:
        asked = [partial(_only_in, thread, getattr(observer, event)) if thread is not None else
                 getattr(observer, event) for observer, thread in _observers
                 if getattr(type(observer), event) is not getattr(Observer, event)]
        globals()[event] = None if not asked else partial(_tell_later, tuple(asked)) if event in DURING_RUNS else \
            asked[0] if len(asked) == 1 else partial(_tell, tuple(asked))
    during_runs = any(globals()[event] is not None for event in DURING_RUNS)
    for function in on_change:
        function()


def _only_in(thread, method, *event):
    if threading.get_ident() == thread:
        method(*event)


def _tell(methods, *event):
    """Tell all observers; then the first error that one of them has raised."""
    if len(methods) == 1:
        methods[0](*event)
    else:
        _tell_all([(methods, event)])


def _tell_later(methods, *event):
    """Tell all observers, when the run that this thread is in is over."""
    if _thread.waiting is not None:
        _thread.waiting.append((methods, event))
    else:
        _tell(methods, *event)


def _tell_all(told):
    first = None
    for methods, event in told:
        for method in methods:
            try:
                method(*event)
            except Exception as error:
                first = first or error
    if first is not None:
        try:
            raise first
        finally:
            del first                 # a frame that holds its own error would keep the tensors in it alive


class gathered:
    """Around a run: what happens inside is told at its end. Inside of another, at the end of that one."""

    def __init__(self, is_run=True):
        self.is_run, self.start = is_run, 0

    def __enter__(self):
        self.outermost = _thread.waiting is None
        if self.outermost:
            _thread.waiting = []
            self.start = clock() if self.is_run and run_ended is not None else 0

    def __exit__(self, *exc):
        if self.outermost:
            _finish(self.start)


def _finish(start=0):
    """Tell what waits, and what could not be told before; and that a run is over which began at `start`."""
    if _thread.waiting is None:
        _thread.waiting = []
    end = clock() if start else 0
    try:
        for told in catch_up:
            told()
        if start and (tell := run_ended) is not None:
            tell(start, end)
    finally:
        waiting, _thread.waiting, _thread.instructions = _thread.waiting, None, None
    _tell_all(waiting)


def settle():
    """Tell what has happened and was not told yet, as memory that came back since the last run."""
    if not gathering():
        _finish()


def gathering():
    """Whether this thread gathers, where something is asked for `during_runs`: an observer may come amid a run."""
    return _thread.waiting is not None


def begin(*instructions):
    """What this thread allocates from here on, until its run is over, is for these instructions. Gives the time."""
    _thread.instructions = instructions
    return clock()


class timed:
    """Around work that observers are told of as `kind`, with what else there is to say of it, and its times."""

    __slots__ = ("kind", "event", "start")

    def __init__(self, kind, *event):
        self.kind, self.event = kind, event

    def __enter__(self):
        self.start = clock()

    def __exit__(self, *exc):
        if (tell := globals()[self.kind]) is not None:
            tell(*self.event, self.start, clock())


def tell_ran(step, instructions, start, end=None, failed=False):
    """Tell its observers that a step was run; until now, if `end` is not given."""
    if (tell := ran) is not None:
        tell(StepRun(step, instructions, start, clock() if end is None else end, failed))


def tell_module_began(module, args):
    """A hook for all modules (nn/modules/hooks.py), in a file that `compile` does not follow calls into."""
    if (tell := module_began) is not None:
        tell(module)


def tell_module_ended(module, args, output):
    """The same, for after the call."""
    if (tell := module_ended) is not None:
        tell(module)


def tell_freed(allocation):
    """Tell its observers that memory came back."""
    if (tell := freed) is not None:
        allocation.end = clock()
        tell(allocation)


def _lines(sites):
    return tuple(dict.fromkeys(map(line_of, sites)))


class StepRun:
    """A step that was run: from `start` to `end`, on `clock`, for `instructions`.

    `step` is the plan's, None where an instruction was run by itself. `failed`: it raised, and gave nothing.
    """

    __slots__ = ("step", "instructions", "start", "end", "failed")

    def __init__(self, step, instructions, start, end, failed=False):
        self.step, self.instructions, self.start, self.end, self.failed = step, instructions, start, end, failed

    @property
    def nanoseconds(self):
        """How long it took."""
        return self.end - self.start

    @property
    def sites(self):
        """The sites that recorded its instructions, in their order."""
        return tuple(dict.fromkeys(instruction.site for instruction in self.instructions))

    @property
    def lines(self):
        """The user's lines that it computes, in the order of its instructions: `("train.py:41", "train.py:42")`."""
        return _lines(self.sites)

    def __repr__(self):
        what = self.step if self.step is not None else \
            ", ".join(instruction.entry.op.__name__ for instruction in self.instructions)
        return f"{', '.join(self.lines)}: {what}, {self.nanoseconds:,} ns{', failed' if self.failed else ''}"


class Planning:
    """A `plan` that was made for `instructions`, from `start` to `end`. Its kernels may still be `plan.waiting`."""

    __slots__ = ("plan", "instructions", "start", "end")

    def __init__(self, plan, instructions, start, end):
        self.plan, self.instructions, self.start, self.end = plan, instructions, start, end


class Allocation:
    """Memory that was given out: `nbytes` of `device` from `address` on, at `time` on `clock`, for `instructions`.

    There are none where it was not for a run; then `site` is the line that asked. `end` is when it was noticed that it
    had come back.
    """

    __slots__ = ("nbytes", "device", "address", "instructions", "site", "time", "end")

    def __init__(self, nbytes, device, address=0):
        self.nbytes, self.device, self.address = nbytes, device, address
        self.instructions, self.time, self.end = _thread.instructions or (), clock(), 0
        self.site = here() if not self.instructions else None

    @property
    def sites(self):
        """The sites that it was for, in the order of their instructions."""
        return tuple(dict.fromkeys(one.site for one in self.instructions)) or (self.site,)

    @property
    def lines(self):
        """The user's lines that it was for; several where steps share working memory."""
        return _lines(self.sites)
