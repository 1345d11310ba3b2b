"""Operations with effects: what runs exactly once for each call of it, whether or not its results are read.

Note [Effects]: whatever else is recorded may be dropped, fused, moved and done again, since the results are the same.
Not so with an operation that does something besides computing its results: it sends to other processes, calls a
function of the user's, prints. An operation that says `effect` is kept to this:

- It is never dropped. Its results stand in `pending` until it has happened, so they are always held; that makes
  it wanted by the rule that holds for every instruction, in traces and in plans.
- The effects of one thread happen in the order of its calls. They do when the trace runs: at the latest at a bound, a
  synchronisation, before this thread forks, or when Python ends. With `eager` it is at the call, after those that were
  recorded before. Between threads there is no order. A call that raises has not taken place.
- In a plan it is a step of its own, and its results are handed out as soon as it has happened, when all other Values
  are still as they were (see Note [All or nothing] in planning/plan.py). What the plan has made by then may be lost and
  made once more; the effect has left the trace.
- It is never run twice. Before it begins, a Lost takes its place in the trace; so if it raises, or an interrupt comes,
  a caller that needs its results is told why there are none, every time.
- If it raises, the run ends there, and the error goes to the caller that runs the trace, since there may be none that
  reads the results. What was recorded after it has not run, and goes on with the next run. An effect that reads what
  could not be computed fails in the same way; if it was memory that ran out, it stays, and is tried again. One that
  reads the results of a lost effect is lost with it, and no caller is told twice.
"""
import atexit
import contextlib
import os
import sys
import threading

from ...backends.devices import execute
from ...base import settings
from ...base.entry import Entry
from ...base.locks import long_before_fork
from ..recording.instructions import Instruction

_told = 0                     # the process whose `multiprocessing` knows what to do at its end
_thread = threading.local()   # `stands_in`: see standing_in
pending: dict = {}            # results of effects that have not happened, in the order of the calls; held for that


class Raised(BaseException):
    """An effect could not happen. It ends a run as an interrupt does; `run` raises the error itself."""

    def __init__(self, error, entry, site):
        super().__init__(error)
        self.error, self.entry, self.site = error, entry, site


class Lost(Entry):
    """The entry of an effect that has begun, or never will, and so has no results: running it says why."""

    __slots__ = ()

    def __init__(self, entry, why):
        super().__init__()
        self.op, self.outs, self.many, self.device = _NotAgain(entry.op.__name__, why), entry.outs, entry.many, \
            entry.device
        self.input_specs = self.zeros = self.template = self.param_at = ()
        self.casts = self.rounded = self.wrap = self.compute = None
        self.simple, self.compiles, self.nbytes, self.weight = True, False, 0, 0


class _NotAgain:
    """Stands for the operation of a Lost."""

    overwrites = effect = False
    direct = None

    def __init__(self, name, why):
        self.__name__, self.why = name, why

    def ref(self, xp):
        raise RuntimeError(f"{self.__name__}() has an effect and is not run a second time: {self.why}")


def append(trace, entry, inputs, params, site):
    """Record an operation with an effect; the pending Value of its result, or several."""
    if not entry.outs:
        raise TypeError(f"{entry.op.__name__}() has an effect and no result: give one, the input say, by which it can "
                        "be kept and waited for")
    if len(trace.code) >= settings.trace_instructions or trace.bytes + entry.weight >= settings.trace_bytes \
            or any(tensor._storage.exported for tensor in inputs):
        trace.run()                               # now, and not behind it: then what another raises ends no call of it
    made = trace.append(entry, inputs, params, site)
    _run_at_the_end_of_a_worker()
    if not stands_in():
        for value in made if entry.many else (made,):
            pending[value] = None
            if value.trace is None:               # it has happened meanwhile: at a bound, or in another thread
                pending.pop(value, None)
    return made


@contextlib.contextmanager
def standing_in():
    """Inside, a backward is recorded over zeros that stand for gradients to come: its effects do not happen."""
    before, _thread.stands_in = stands_in(), True
    try:
        yield
    finally:
        _thread.stands_in = before


def stands_in():
    """Whether this thread records over such zeros."""
    return getattr(_thread, "stands_in", False)


def forget(trace):
    """Let the effects in a trace not happen: the call that they belong to has raised."""
    for instruction in trace.code:
        if instruction.entry.op.effect:
            for slot in instruction.results():
                pending.pop(trace.values[slot], None)


def lose(trace, index, why):
    """Put a Lost in the place of instruction `index`, an effect; gives the Lost's operation."""
    instruction = trace.code[index]
    lost, values = Lost(instruction.entry, why), [trace.values[slot] for slot in instruction.results()]
    # No call in between, where an interrupt could come: what it left in `pending` would never happen.
    trace.code[index] = Instruction.of(lost, (), (), (), instruction.first, instruction.site)
    for value in values:
        pending.pop(value, None)
    return lost.op


def perform(trace, index, arrays):
    """Have the effect happen that instruction `index` of a running trace is, and hand out its results."""
    instruction = trace.code[index]
    slots = instruction.results()
    if trace.begun is None:
        trace.begun = {}
    trace.begun[index] = False
    lost = lose(trace, index, "it was interrupted")
    try:
        made = call(instruction, arrays)
    except Raised as stop:
        lost.why = f"it raised {type(stop.error).__name__}: {stop.error}"
        raise

    def hand_out():
        for slot, array in zip(slots, made, strict=True):
            value = trace.values[slot]
            value.array, value._memory, value.trace = array, None, None
            pending.pop(value, None)              # again: its own thread may only now have come to put it there
        trace.begun[index] = True

    try:
        hand_out()
    except BaseException:                         # an interrupt: once more, there is no way back
        hand_out()
        raise
    return made


def call(instruction, arrays):
    """The arrays that an instruction with an effect gives; whatever it raises is Raised."""
    try:
        return execute(instruction.entry, arrays, instruction.params)
    except Exception as error:
        raise Raised(error, instruction.entry, instruction.site) from None


def run_before(trace):
    """Run what the thread of `trace` has recorded with effects in other traces, earlier."""
    for value in list(pending):
        other = value.trace
        if other is trace:
            return
        if other is not None and other.owner == trace.owner and not other.busy and not other.lock._is_owned():
            other.run()


def _run_at_the_end_of_a_worker():
    """A forked process of `multiprocessing` ends without telling `atexit`, before Python 3.14; it has a list of its
    own."""
    global _told
    finalize = getattr(sys.modules.get("multiprocessing.util"), "Finalize", None)      # not while it is half imported
    if finalize is not None and _told != os.getpid():
        finalize(None, _run_the_last, exitpriority=0)
        _told = os.getpid()


@long_before_fork
def run_pending():
    """Run what this thread has recorded with effects. Before a fork: once, and not in the child as well."""
    for value in list(pending):
        trace = value.trace
        if trace is not None and trace.owner == threading.get_ident() and not trace.lock._is_owned():
            trace.run()


@atexit.register
def _run_the_last():
    """Python ends: what is still pending happens now. One that raises is reported as errors are at that time.

    Other threads have ended, but for daemons, and one that runs its trace just now ends with Python as daemons do.
    """
    for value in list(pending):
        trace = value.trace
        if trace is not None and trace.lock.acquire(blocking=False):
            try:
                trace.run()
            except Exception:
                sys.excepthook(*sys.exc_info())
            finally:
                trace.lock.release()


def after_fork():
    """In a forked child: effects that were recorded before, by other threads, belong to the parent."""
    for value in list(pending):
        trace = value.trace
        if trace is not None and not trace.lock._is_owned():
            for index, instruction in enumerate(trace.code):
                if instruction.entry.op.effect:
                    lose(trace, index, "it was recorded before this process was forked, and happens in the parent")
