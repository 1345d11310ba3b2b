"""Record calls as instructions, and run them.

Each thread writes its own trace. An instruction names its inputs by slot; the trace's list of values is the only
thing that holds them, so what nothing else holds is known when the trace runs and need not be computed.
"""
import contextvars
import itertools
import threading
import time
from bisect import bisect_right

import numpy as np

from ...backends.devices import execute as by_reference
from ...base import observers, settings
from ...base.core import COMPILED
from ...base.locks import in_child, new_lock
from ...base.ownership import INPUT, RESULT, counts, only_traced
from ...base.spec import CPU
from ...base.weakbag import WeakBag
from ..running import effects, quick
from ..running.effects import Lost, Raised, perform
from ..running.runner import Failure, TraceRunner, plan_alone, run_segment
from ..running.single import has_plan_now, run_ahead
from ..value import Value
from .append import HELD_INPUT_WEIGHT, TraceBase
from .instructions import Instruction
from .update import infer_update, update, update_entries, with_part

RUNS_ALONE = COMPILED             # interpreted, a plan takes longer to run than a few steps of NumPy's
AFTER_ALL_INSTRUCTIONS = 1 << 60  # the last reader of what an instruction that failed reads
_traces = WeakBag()
_registry = new_lock()


class Trace(TraceRunner):
    """A straight line of Instructions that wait to run.

    Note [Whose turn]: only its own thread appends to a trace, but any thread may run it. A lock at every append would
    cost more than the append, so the two sides show flags instead: the owner raises `busy` and goes on only if `sealed`
    is down; a runner raises `sealed` and waits until `busy` is down. Attribute stores are ordered under the interpreter
    lock, so never both go on. Runners exclude each other with `lock`.
    """

    __slots__ = ("__weakref__",)
    reader = None             # reader(op, names, args): how a check reads data, where it will have to be repeated

    def __init__(self):
        self.lock = new_lock(finish=True)
        self.owner = threading.get_ident()
        self.quiet = _quiet()
        self.busy = self.sealed = False
        self.own_append = type(self).append is not TraceBase.append
        self.failures = {}    # slot → Failure, of the run now going on
        self.aside = False    # whether this is what another has set aside; see `_set_aside`
        self.asides = []      # what this one has
        self.found = None     # what `key_of` has said of it, for the next run
        self.ran = None       # the plan of the last run; None: it had none
        self.site = None      # the line that everything recorded now belongs to, while a backward runs
        self.backward = None  # what the latest backward of this thread ran, as a HeldRecording
        self.tape = None      # what was called, while a tape is being made; see tensor/follow.py
        self.special = False  # whether a mode is on in this thread that recording must ask about; see autograd.modes
        self.code, self.gone = [], 0
        self.clear()
        with _registry:
            _traces.add(self)

    def before_effect(self, op):
        """Run what was recorded before `op`, whose effect happens at the call: theirs come first."""
        if effects.stands_in():
            raise NotImplementedError(f"{op.__name__}() has an effect that happens at the call, and here it is called "
                                      "with zeros that stand for a gradient to come: use reverse mode, without compile")
        if effects.pending:
            self.run()

    def _mend(self):
        """After an interrupt: what stands in one list must stand in the others."""
        del self.values[len(self.last):]
        self.slots = {v: s for v, s in self.slots.items() if s < len(self.values)}

    def read_copy(self, value):
        """Have what was recorded read a copy of a ready Value, as it is now. Returns True where that could be done."""
        if self.busy or self.own_append or value.spec.device is not CPU or not value.spec.dense:
            return False
        copy = Value.of(value.array.copy(order="K"), value.spec)
        try:
            self.busy = True                      # see Note [Whose turn]
            if self.sealed:
                return False
            slot = self.slots.get(value)
            if slot is None:                      # it has run, or an instruction that reads the Value twice came here
                return True
            self.slots[copy] = slot
            self.values[slot] = copy
            del self.slots[value]
        except BaseException:                     # an interrupt: once more, as far as it has not been done
            if self.slots.get(copy) is not None:
                self.values[self.slots[copy]] = copy
                self.slots.pop(value, None)
            raise
        finally:
            self.busy = False
        return True

    def _weigh(self):
        """Count the inputs that only the trace still holds with what the results would allocate."""
        self.weighed += self.held
        self.held = 0
        holders = counts(self.values)
        for value, slot in self.slots.items():
            if holders[slot] <= INPUT:
                self.bytes += HELD_INPUT_WEIGHT * value.spec.weight

    def _append_beside(self, entry, inputs, params, site):
        """Record in another trace: a signal handler or a finaliser came in the middle of a run or an append of ours."""
        beside = Trace()
        beside.special = self.special
        set_current(beside)
        return beside.append(entry, inputs, params, site)

    def _append_later(self, entry, inputs, params, site):
        """Wait until the thread that runs this trace is done, then record."""
        self.busy = False
        if self.lock._is_owned():
            return self._append_beside(entry, inputs, params, site)
        with self.lock:
            pass
        return self.append(entry, inputs, params, site)

    def version(self, storage):
        """How often `storage` was written to, as a number."""
        return storage.version

    def wanted(self):
        """For each instruction, whether the program, or a wanted later one, reads its results."""
        values, live, code = self.values, bytearray(len(self.values)), self.code
        wanted, holders = bytearray(len(code)), counts(values)
        for i in range(len(code) - 1, -1, -1):
            instruction = code[i]
            for slot in instruction.results() if instruction.entry.many else (instruction.first,):
                if live[slot] or holders[slot] > RESULT:
                    wanted[i] = 1
                    for s in instruction.slots:
                        live[s] = 1
                    break
        return wanted

    def _run_each(self):
        """Run the instructions one by one, but for segments that have plans, and note in `unsettled` how far it has
        come. Those that come often have plans of their own: Note [Single instructions] in running/single.py."""
        values, last = self.values, self.last
        wanted, segments, self.segments = self.wanted(), dict(self.segments), ()
        holders = counts(values) if segments else ()
        done, left, observed = 0, [], observers.during_runs and observers.gathering()
        self.unsettled = (left, done)
        plans_singles = RUNS_ALONE and not observed and settings.executor != "reference" and not self.aside
        starts = [*sorted(segments), len(self.code)]
        for index, instruction in enumerate(self.code):
            if index < done:                      # it has run, in a segment or by a plan of its own
                continue
            if index in segments and not left and run_segment(self, index, segments[index], wanted, holders):
                done = segments[index]
                continue
            entry, slots, first = instruction.entry, instruction.slots, instruction.first
            if plans_singles and not left:
                stop = starts[bisect_right(starts, index)]
                done = run_ahead(self, index, stop, wanted, left)
                if done == index and entry.op is not update and not entry.op.effect \
                        and has_plan_now(instruction, values, plan_alone):
                    done = run_ahead(self, index, stop, wanted, left)
                if done > index:
                    continue
            if wanted[done]:
                op = entry.op
                failure = self._failed(slots) if left else None
                start = observers.begin(instruction) if observed and failure is None else 0
                try:
                    if failure is not None:
                        outs = None
                        if op.effect:
                            self._cannot_happen(done, failure)
                    elif op is update:
                        outs = [self._update(instruction, done)]
                    else:
                        arrays, offsets = [], instruction.offsets
                        for slot, spec, offset in zip(slots, entry.input_specs, offsets):
                            value = values[slot]
                            whole = value.spec is spec and not offset
                            arrays.append(value.array if whole else value.look(spec, offset))
                        if op.effect:
                            outs = perform(self, done, arrays)
                        else:
                            own = op.overwrites and entry.input_specs[0] is values[slots[0]].spec and not offsets[0] \
                                and self._free(slots, done)
                            outs = execute(entry, arrays, instruction.params, own)
                        del arrays
                except Exception as error:
                    failure = Failure(error, entry, instruction.site)
                    outs = arrays = None
                except Raised:
                    if start:
                        observers.tell_ran(None, (instruction,), start, failed=True)
                    raise
                if start:
                    observers.tell_ran(None, (instruction,), start, failed=outs is None)
                if outs is None:                  # it stays, and so does what it reads
                    left.append(self.code[done])
                    for slot in instruction.results():
                        last[slot], self.failures[slot] = AFTER_ALL_INSTRUCTIONS, failure
                    for slot in slots:
                        last[slot] = AFTER_ALL_INSTRUCTIONS
                    outs = ()
                failure = None
                array = value = None              # hold nothing: whether a buffer is free is asked by counting
                slot = first
                for array in outs:
                    value = values[slot]
                    value.array = array
                    value._memory = None
                    value.trace = None
                    slot += 1
                del outs, array, value
            # From here on the instruction counts as run, even if an interrupt comes before the next.
            done += 1
            self.unsettled = (left, done)
            for slot in slots:
                if last[slot] == index:
                    values[slot] = None
            for slot in instruction.results() if entry.many else (first,):
                if last[slot] == index:
                    values[slot] = None
        values = None                             # an error keeps its frames, and this one what stands in it
        if not left:
            self.clear()
        elif self.aside or any(isinstance(failure.error, MemoryError) for failure in self.failures.values()):
            self._keep(left)                      # what is too large may be fused into less, and never be made
        else:
            self._set_aside(left)
            self.unsettled = ([], done)               # they are there now
            self.clear()

    def _failed(self, slots):
        """Why one of the `slots` could not be computed in this run; None if they all were."""
        return next((self.failures[slot] for slot in slots if slot in self.failures), None)

    def _cannot_happen(self, index, failure):
        """What the effect at `index` reads could not be computed; see Note [Effects] in running/effects.py."""
        if not isinstance(failure.error, MemoryError):
            effects.lose(self, index, f"it could not be run, since {failure.entry.op.__name__}() raised "
                                      f"{type(failure.error).__name__}: {failure.error}")
            if failure.entry.__class__ is Lost:
                return
        raise Raised(failure.error, failure.entry, failure.site)

    def _settle(self):
        """Leave what a run that was ended has not done, but for effects that have happened, and set aside what is lost
        with an effect that has not. An interrupt may end this too; the next run of the trace does it then."""
        left, start = self.unsettled or ((), 0)
        begun = self.begun or {}
        self._keep([*left, *[one for index, one in enumerate(self.code) if index >= start and not begun.get(index)]])
        lost, failed, rest = set(), [], []
        for index, instruction in enumerate(self.code):
            entry = instruction.entry
            if entry.__class__ is Lost or not lost.isdisjoint(instruction.slots):
                lost.update(instruction.results())
                if entry.op.effect:
                    effects.lose(self, index, "it could not be run, since it reads what another could not give")
                failed.append(self.code[index])
            else:
                rest.append(self.code[index])
        if failed:
            self._set_aside(failed)
            self._keep(rest)

    def _keep(self, code):
        """Leave the instructions `code`, which have not run, in the trace, so that nothing is lost."""
        if not code:
            self.clear()
            return
        made, reads = set(), [-1] * len(self.values)
        for index, instruction in enumerate(code):
            outs = instruction.results()
            made.update(outs)
            for slot in (*instruction.slots, *outs):
                reads[slot] = index
        values = [None if last < 0 else value for value, last in zip(self.values, reads, strict=True)]
        # What ran before is an input now. In the order of the slots, which a plan is found by. (What did not run,
        # since it is not wanted, may be read by others that are not wanted either.)
        inputs = {values[s]: s for s, last in enumerate(reads)
                  if last >= 0 and s not in made and values[s].trace is None}
        weight = sum(instruction.entry.weight for instruction in code)
        # Python looks for signals at calls and loops: an interrupt finds all of this done, or nothing.
        self.code, self.last, self.slots, self.bytes, self.segments, self.begun, self.unsettled, self.values[:] = \
            code, reads, inputs, weight, (), None, None, values

    def _set_aside(self, code):
        """Move the instructions `code`, which have failed or read what has, to a trace of their own.

        Here they would be tried again at every run, and keep the rest from its plan. There they are tried again when
        a result of theirs is looked at, or used in a call.
        """
        aside, new_slot, moved = Trace(), {}, []
        aside.aside = True
        for one in code:
            for slot in one.slots:
                if slot not in new_slot:
                    value = self.values[slot]
                    new_slot[slot] = aside.slots[value] = len(aside.values)
                    aside.values.append(value)
            made = one.results()
            new_slot.update(zip(made, range(len(aside.values), len(aside.values) + len(made)), strict=True))
            moved.extend((self.values[slot], new_slot[slot]) for slot in made)
            reads, first = tuple([new_slot[slot] for slot in one.slots]), len(aside.values)
            aside.code.append(Instruction.of(one.entry, reads, one.offsets, one.params, first, one.site))
            aside.values.extend([self.values[slot] for slot in made])
        aside._keep(aside.code)

        def move():
            for value, slot in moved:
                value.slot, value.trace = slot, aside
            self.asides = [*[other for other in self.asides if other is not aside], aside]

        with aside.lock:                              # a thread that looks at one of them waits until all are there
            try:
                move()
            except BaseException:                     # an interrupt: once more, there is no way back
                move()
                raise
            finally:
                moved.clear()

    def _still_wanted(self):
        """Drop what is no longer wanted of a trace that was set aside; whether anything is left."""
        with self.lock:
            wanted = self.wanted()
            if not all(wanted):
                self._keep(list(itertools.compress(self.code, wanted)))
            return bool(self.code)

    def _wait(self):
        """Wait until the owner is not in the middle of an append."""
        while self.busy:
            time.sleep(0)

    def _free(self, slots, index):
        """Whether nothing but instruction `index` reads its first input, now or later: its buffer may be written."""
        slot = slots[0]
        return self.last[slot] == index and slot not in slots[1:] and only_traced(self.values, self.slots, slot) \
            and self.values[slot].may_be_written()

    def _update(self, instruction, index):
        """Write a source into a view of the old value: in its own buffer when the old one is no longer needed."""
        slots, offsets = instruction.slots, instruction.offsets
        free = self.last[slots[0]] == index and only_traced(self.values, self.slots, slots[0]) \
            and self.values[slots[0]].may_be_written()
        old, source = self.values[slots[0]], self.values[slots[1]]
        view, spec = instruction.entry.input_specs
        incoming = source.look(spec, offsets[1])
        memory, backend = old.memory, view.device.backend
        # An interrupt may make us write a second time, so a source that the write changes must not be written over.
        if not free or (source is old and backend.overlap(backend.look(memory, view, offsets[0]), incoming)):
            memory = backend.copied(memory)
        return with_part(backend, memory, view, offsets[0], incoming)

    def __str__(self):
        """The trace as lines a person can check by eye."""
        lines = []
        for one in self.code:
            reads = [f"%{s}" + (f"+{o}" if o else "") for s, o in zip(one.slots, one.offsets, strict=False)]
            gives = ", ".join(f"%{one.first + i}: {s}" for i, s in enumerate(one.entry.outs))
            lines.append(f"{gives} = {one.entry.op.__name__}({', '.join([*reads, *map(repr, one.params)])})")
        return "\n".join(lines)


def _quiet():
    """A context where NumPy does not warn: entered, not switched, at every run."""
    made = contextvars.Context()
    made.run(np.seterr, all="ignore")
    return made


def execute(entry, arrays, params, own=False):
    """The result arrays of one instruction: with the bits of a plan, or by the reference where that is pinned."""
    global _by_body
    if settings.executor == "reference":
        return by_reference(entry, arrays, params, own)
    if _by_body is None:
        from ..running.interpret import (
            execute as _by_body,  # and with it what compiles, which the reference never needs
        )
    return _by_body(entry, arrays, params, own)


_by_body = None


class _Local(threading.local):
    def __init__(self):
        self.trace = Trace()


_local = _Local()


def current():
    """This thread's trace."""
    return _local.trace


def set_current(trace):
    """Make `trace` this thread's."""
    _local.trace = trace
    quick.forget_trace()


quick.remember_traces(_local)


def instruction_of(value):
    """The instruction that will compute a pending Value; None of one that is there, or None."""
    trace = value.trace if value is not None else None
    if trace is None:
        return None
    return next((one for one in list(trace.code) if value.slot in one.results()), None)


def write_part(tensor, whole, source, site):
    """The Value of `tensor`'s storage (of spec `whole`) after line `site` writes `source` into the view `tensor`."""
    key = (whole, tensor._spec, source._spec)
    return current().append(update_entries.get(key) or infer_update(key), (tensor, source), (), site)


def milestone(least, trains=False):
    """Run the trace if it has `least` instructions: here is a place that a program comes by again and again. `trains`:
    an optimizer's step is in it.

    A bound alone would cut the trace of a loop that is not looked into somewhere else every time, and every piece would
    need a plan of its own.
    """
    trace = current()
    if len(trace.code) >= least:
        trace.trains = trace.trains or trains
        trace.run()


def run_all():
    """Run every thread's trace: before memory is shared with the outside."""
    for trace in _traces.all():                     # a trace that comes now has nothing recorded yet
        trace.run()


@in_child
def _after_fork():
    """Other threads did not come along, and whatever they were about to do is let go."""
    for trace in _traces:
        if not trace.lock._is_owned():              # this thread does not run it, further up
            trace.sealed, trace.quiet = False, _quiet()
        if trace.owner != threading.get_ident():
            trace.busy = False
            trace._mend()
    effects.after_fork()
