"""Run a trace: what every look at contents goes through.

A part of the compiled core: see Note [One source, two speeds] in base/core.py. What is rare (instructions one by one,
failures, effects) stands in recording/record.py, and what becomes of the instructions in planning/plan.py.

Note [Small looks]: a program that looks after every operation runs traces of an instruction or two, and the lock, the
flags and the key take longer than what they are for. Where the core is compiled, two things are left out. A small trace
that its own thread runs is run like an append, with `busy` up: other threads that come meanwhile wait for that (Note
[Whose turn] in recording/record.py). So that no thread waits long, and none forks in between, the interpreter lock is
kept. And the plan of a single instruction is found by its Entry (single.py).
"""
from itertools import count
from threading import get_ident

from ...backends import reference
from ...backends.backend import DeviceFailed
from ...backends.cpu.memory.allocator import explained, has_room
from ...base import observers, settings
from ...base.core import COMPILED
from ...base.spec import CPU
from ..recording.append import TraceBase
from . import effects, quick
from .effects import Raised, pending
from .key import key_of
from .single import MAX_INLINE_BYTES, body_programs, cached_plan, remember

MAX_INLINE_INSTRUCTIONS = 64      # of a trace that runs without its lock (`run_inline`)
PLANNING_BYTES = 16 << 20         # to load what plans: where there are not so many, Python says ImportError
events, switches = vars(observers), vars(settings)          # the modules' dicts: save one attribute lookup per call
notes: list = []                  # functions of (Failure, what was looked at) that give words to add to an error
numbering = count()               # of autograd's nodes, and between them of when a trace was emptied
_planning = None                  # planning/plan.py, once a trace has run: with it comes what compiles
NO_KEY = ()                       # stands for what `key_of` says where it was not called


class Failure:
    """Why a Value could not be computed: the instruction that failed, for itself or for one that reads its results."""

    __slots__ = ("error", "entry", "site")

    def __init__(self, error, entry, site):
        self.error, self.entry, self.site = error, entry, site

    def explained(self, asked):
        """The error, for who looked at the Value `asked`."""
        if isinstance(self.error, MemoryError):
            self.error.entry, self.error.site = self.entry, self.site
            return explained(self.error, asked)
        for note in notes:
            self.error.add_note(note(self, asked))
        return self.error


class TraceRunner(TraceBase):
    """The part of a Trace (recording/record.py) that runs it."""

    __slots__ = ("lock", "owner", "failures", "aside", "asides", "quiet", "ran", "begun", "unsettled", "backward",
                 "found", "emptied", "weighed", "gone", "trains", "segments")

    def clear(self):
        self.gone += len(self.code)               # instructions that are no longer here
        self.code = []        # instructions
        self.values = []      # slot → Value
        self.last = []        # slot → index of the last instruction that reads it
        self.slots = {}       # ready Value → slot
        self.bytes = 0        # what the results would allocate
        self.trains = False   # whether a backward or an optimizer's step is in it: it will come again
        self.held = 0         # the bytes of the inputs since they were last weighed
        self.weighed = 0      # and before
        self.begun = None     # index of an effect that the run now going on has begun → whether it has happened
        self.segments = ()    # (start, end) of the parts that may run by plans of their own, of a trace without one
        self.unsettled = None # of a run that was ended: (what could not be computed, how many instructions are done)
        self.emptied = next(numbering)            # nodes of autograd's that have a lower number were made before this

    def run(self, asked=None):
        """Run all instructions in order and empty the trace.

        One that fails is kept, here or aside, with those that read its results; the others run. The failure is raised
        to the caller that `asked` for a Value that could not be computed for it, and to no other. But an effect that
        fails ends the run, and its error is raised to any caller; see Note [Effects] in effects.py.
        """
        if COMPILED and run_inline(self):
            return
        if asked is None and not self.code and not self.sealed and not self.busy and not self.asides \
                and self.begun is None and self.unsettled is None and not effects.pending:
            return                                # nothing is recorded, and no thread runs it
        if events["during_runs"] and not observers.gathering():
            with observers.gathered():            # see Note [Told after the run] in observers.py
                TraceRunner.run(self, asked)
            return
        if effects.pending:
            effects.run_before(self)
        failure = raised = None
        with self.lock:
            if self.sealed or self.busy and self.owner == get_ident():        # by this thread, further up
                raise RuntimeError("a tensor was looked at while it is being computed: by a signal handler, or by a "
                                   "finaliser")
            slot = asked.slot if asked is not None and asked.trace is self else None
            self.sealed = True                    # see Note [Whose turn]
            if self.code and (recording := self.backward) is not None and recording.large:
                self.backward = None              # no step was taken with it
            try:
                if self.busy:
                    self._wait()
                if not COMPILED or not run_as_one_call(self, False):
                    self.quiet.run(self._run_sealed)
            except Raised as stop:
                raised = Failure(stop.error, stop.entry, stop.site)
            finally:
                self.sealed = False
                if self.failures:
                    failure, self.failures = self.failures.get(slot), {}
        try:
            if raised is not None:                # perhaps what was asked for does not need it
                raise raised.explained(None if asked is None or asked.trace in (None, self) else asked)
            if failure is not None:
                raise failure.explained(asked)
        finally:
            failure = raised = None               # a frame that holds its own error would keep the tensors in it alive

    def _run_sealed(self):
        if self.asides:
            self.asides = [aside for aside in self.asides if aside._still_wanted()]
        if self.begun or self.unsettled is not None:      # an interrupt came when the last run was about to do it
            self._settle()
        if not self.code:
            return
        self.ran = None
        if switches["executor"] != "reference" and not self.aside:
            try:
                if len(self.code) == 1 and run_by_reference(self) or _by_plan(self):
                    return
            finally:
                if self.begun:
                    self._settle()
            if not self.code:
                return
        # Around a call: Python 3.13 leaves some jumps of a loop out of the `try` that it stands in.
        try:
            self._run_each()
        except BaseException:                         # an interrupt, or an effect that could not happen
            self.slots = {}                           # what has run may have dropped what it read
            self._settle()
            raise


def run_by_reference(trace):
    """Run a small trace of one instruction whose operation has no body, and empty it: a plan of it would be the same
    step. Returns True if it ran; if not, nothing has changed, and the long way says what is wrong."""
    instruction = trace.code[0]
    entry, values = instruction.entry, trace.values
    if body_programs.get(entry, False) is not None or switches["executor"] != "auto" or entry.op.effect \
            or entry.device is not CPU or events["during_runs"] or trace.bytes + trace.held > MAX_INLINE_BYTES:
        return False
    arrays, at = [], 0
    for slot in instruction.slots:
        value = values[slot]
        arrays.append(value.look(entry.input_specs[at], instruction.offsets[at]))
        at += 1
    try:
        outs = reference.execute(entry, arrays, instruction.params)
    except Exception:
        return False
    slot = instruction.first
    for array in outs:
        value = values[slot]
        value.array = array
        value._memory = None
        value.trace = None
        slot += 1
    trace.found = None
    trace.clear()
    return True


def _by_plan(trace):
    """Run `trace` by a plan and empty it; False where it is to be run instruction by instruction."""
    global _planning
    if _planning is None:
        if not has_room(PLANNING_BYTES):
            return False
        from ..planning import plan as _planning  # not before: the reference never needs it
    found = trace.found or key_of(trace)
    trace.found = None
    return _planning.attempt(trace, *found)


def plan_alone(instruction, reads, offsets, specs, often):
    """The plan of a single instruction over inputs of these `specs`: see plan.py."""
    return None if _planning is None else _planning.plan_alone(instruction, reads, offsets, specs, often)


def run_segment(trace, start, end, needed, holders):
    """Run these instructions of a trace that runs by a plan of their own; whether there was one."""
    return _planning.attempt_segment(trace, start, end, needed, holders)


def run_inline(trace):
    """Run a small trace of this thread's own without its lock, if that is a single native call of the CPU's. Returns
    True if it ran. See Note [Small looks]."""
    code = trace.code
    if trace.busy or trace.sealed or trace.own_append or not code or len(code) > MAX_INLINE_INSTRUCTIONS \
            or trace.bytes + trace.held > MAX_INLINE_BYTES or pending or trace is not quick.this_trace():
        return False
    latest = code[-1]
    if latest.entry.device is not CPU or trace.backward is not None and trace.backward.large:
        return False
    trace.busy = True
    try:
        return run_as_one_call(trace, True)
    finally:
        trace.busy = False


def run_as_one_call(trace, keeps_turn):
    """Run `trace` by a plan that is a single native call and empty it, if there is one. Returns True if it ran.
    `keeps_turn`: no other thread is let in meanwhile."""
    trace.found = None                            # an interrupt may have ended the last run before it was used
    if _planning is None or trace.aside or trace.asides or trace.begun is not None or trace.unsettled is not None \
            or not trace.code or events["during_runs"] or switches["executor"] == "reference":
        return False
    is_single = len(trace.code) == 1
    plan = cached_plan(trace) if is_single else None
    if plan is not None:
        trace.found = NO_KEY
    else:
        found = trace.found = key_of(trace)
        plans = _planning._plans
        plan = plans.get(found[0])
        if plan is None or plan is False or not plan.is_native:
            return False
        if is_single:
            remember(trace, plan, found)
    try:
        if not plan.bound.run_trace(trace, False, keeps_turn):
            return False                          # it takes Python, which lets others in
        trace.found, trace.ran = None, plan
        return True
    except DeviceFailed:                          # every look raises it, now and every time
        raise
    except Exception:
        if trace.found is None:                   # it has run, and could not be handed out
            raise
        return False                              # nothing has changed: `_by_plan` meets it again, and says it
