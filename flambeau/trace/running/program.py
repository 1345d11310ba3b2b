"""What a plan becomes: code for its kernels, and a program that runs them.

A program is a list of stretches. One of native steps is a program of their device (`Backend.program`), which one call
runs; between two of them stands an operation of the reference executor, or a copy from one device to another. All of
them find their memory through a table of addresses.
"""
import re
from array import array
from collections import deque
from itertools import groupby

from ...backends.backend import DeviceFailed, NotCompiled, Task, on_late_failure
from ...base import observers
from ...base.errors import line_of
from ...base.spec import spec as make_spec
from ...loops.ir import BYTES_OF_TYPE
from ..planning.buffers import last_to_fail
from ..planning.fuse import memory as seen_memory
from ..planning.lower import LOOP_TYPE, Unfusable
from ..planning.moving import MovingOffset
from ..planning.steps import CallbackStep, KernelStep, LibraryStep, RecurrenceStep, TransferStep
from ..value import Value
from .bound import BoundProgram, MovingPlace, bits_of
from .interpret import execute, say_not_compiled

handed: deque = deque(maxlen=3)       # (stretch, instructions) of the last programs that devices may still be running
LINES_SHOWN = 12


def lines_handed():
    """The lines of what devices were handed last, in words, for an error that one of them tells late."""
    sites = [code[i].site for stretch, code in handed for step in stretch.steps for i in step.instructions]
    lines = list(dict.fromkeys(map(line_of, sites)))
    return f"The device was handed last the kernels of {', '.join(lines[-LINES_SHOWN:]) or 'no line of yours'}."


on_late_failure.append(lines_handed)


class Failed(Exception):
    """A reference step of a program failed; the reference executor will say how."""


class Kernels:
    """The kernels of a plan's steps, and the code that their devices make of them."""

    def __init__(self, steps, buffers):
        self.steps, wanted = [], {}
        for step in steps:
            for part in step.draft.steps if isinstance(step, RecurrenceStep) else (step,):
                if not part.native:
                    continue
                # a device that has calls of its library alone is told as well
                launches, calls = wanted.setdefault(part.device.backend, ([], []))
                if isinstance(part, KernelStep):
                    if part is step:
                        part.tell_fresh(buffers)
                    self.steps.append(part)
                    launches.append(part.launch)
                elif isinstance(part, LibraryStep):
                    calls.append(part.call)
        self._made = {backend: backend.compile(*both) for backend, both in wanted.items()}

    def prepare(self, spare):
        """Have them compiled in the background, where that takes longer than `spare` nanoseconds; whether it does."""
        waits = [made.prepare(spare) for made in self._made.values()]       # each of them begins
        return any(waits)

    def are_ready(self):
        """Whether what was prepared is compiled, or no thread is about to."""
        return all(made.is_ready() for made in self._made.values())

    def compile(self):
        """Wait until there is code for all of them; Unfusable where some could not be compiled."""
        for backend, made in self._made.items():
            try:
                made.finish()
            except NotCompiled as error:
                if not error.launches:
                    say_not_compiled(error, "running several steps", backend)
                    raise Unfusable("no native runtime") from error
                first = error.launches[0]
                words = dict.fromkeys(re.findall(r" = (\w+)\.", str(first.kernel)))
                say_not_compiled(error, ", ".join(words) or "a copy", backend)
                step = next(step for step in self.steps if step.launch is first)
                raise Unfusable("a kernel that could not be compiled", group=step.nodes()) from error


class NativeStretch:
    """What one call runs, as a `program` of its device, whose `bound` and `lasts` are here too.

    `steps` has, for each of its tasks, the step of the plan that it belongs to.
    """

    __slots__ = ("steps", "program", "bound", "lasts", "runs_ahead")

    def __init__(self, steps, program):
        self.steps, self.program, self.bound, self.lasts = steps, program, program.bound, program.lasts
        self.runs_ahead = steps[0].device.backend.runs_ahead

    def explain(self, error, code):
        """Say in a DeviceFailed which of the steps it was, for instructions of `code`."""
        if error.task is None:
            return
        step = self.steps[error.task]
        lines = dict.fromkeys(map(line_of, (code[i].site for i in step.instructions)))
        error.add_note(f"in {', '.join(step.words)}, of {', '.join(lines) or 'no line of yours'}")

    def times(self):
        """Room for the time of its beginning and those at the ends of its tasks."""
        return array("q", bytes(8 * (len(self.steps) + 1)))

    def has_run(self, times, code):
        """Note that it was run for instructions of `code`, and tell observers, if there are `times` of its steps."""
        if self.runs_ahead:
            handed.append((self, code))
        for step, start, end in zip(self.steps, times or (), (times or ())[1:], strict=False):
            observers.tell_ran(step, tuple([code[i] for i in step.instructions]), start, end)


class ReferenceCall:
    """Instruction `index` run by the reference executor: `operands` are (buffer, spec, offset), `made` its results.

    `own` says that the first operand may be written over; `step` is the plan's.
    """

    __slots__ = ("index", "operands", "made", "own", "step")

    def __init__(self, step, operands, made, own):
        self.step, self.index, self.operands, self.made, self.own = step, step.index, operands, made, own


class TransferCall:
    """A copy of `operand`, (buffer, spec, offset), to the device of the buffer `made`; `step` is the plan's."""

    __slots__ = ("operand", "made", "step")

    def __init__(self, step, operand, made):
        self.step, self.operand, self.made = step, operand, made


class Program:
    """A plan's steps, ready to run.

    `inputs` are (slot, index of the table), `outputs` (slot, spec, index) of what it allocates, `takes` (slot, spec,
    slot of the input whose memory it takes over), `givens` (slot, spec, index) of what reference steps and copies
    between devices gave, and `numbers` (instruction, parameter, dtype) of those that come from the instructions.
    `moving` are places that begin elsewhere at every run. `blocks` (device, bytes, index) are needed while it runs.
    `last` is the stretch at the end if that is a device's program, `before` are the others; `native`: all of them are
    devices' programs. It is run by bound.py.
    """

    def __init__(self, steps, buffers, numbers):
        self.numbers = numbers
        self.constants = array("q")
        self.blocks, self.table_size = buffers.blocks, buffers.table_size
        self._moving = {}             # (index, bytes, MovingOffset) → the MovingPlace
        self._places(buffers)
        self._stretches(steps, buffers)
        *self.before, self.last = self.stretches or (None,)
        if not isinstance(self.last, NativeStretch):
            self.before, self.last = self.stretches, None
        self.native = self.last is not None and all(isinstance(stretch, NativeStretch) for stretch in self.before)
        self.has_effects = any(isinstance(step, CallbackStep) for step in steps)
        given = {b.index for b in buffers.all if b.kind == "given"}              # whose memory is known amid the run
        self.moving = [place for place in self._moving.values() if place.base not in given]
        self.moving_amid = [place for place in self._moving.values() if place.base in given]

    def _places(self, buffers):
        self.inputs, self.outputs, self.takes, self.givens = [], [], [], []
        for b in buffers.all:
            if b.kind == "input":
                if b.spec.device.backend.compiles:          # others have no steps that want its address
                    self.inputs.append((b.slot, b.index))
            elif b.kind == "result":
                if b.taken is None:
                    self.outputs.append((b.slot, b.spec, b.index))
                else:
                    self.takes.append((b.slot, b.spec, b.owner.slot))
            elif b.kind == "given" and b.slot is not None:
                self.givens.append((b.slot, buffers.specs[b.slot], b.index))

    def _stretches(self, steps, buffers):
        self.stretches, last_reference = [], last_to_fail(steps)
        for (native, device), some in groupby(steps, lambda step: (step.native, step.device)):
            if native:
                some = list(some)
                tasks = [(task, step) for step in some for task in self._tasks(step, buffers)]
                program = device.backend.program([task for task, _ in tasks])
                self.stretches.append(NativeStretch([step for _, step in tasks], program))
                continue
            for step in some:
                self.stretches.append(_transfer_call(step, buffers) if isinstance(step, TransferStep) else
                                      _reference_call(step, buffers, last_reference))

    def _tasks(self, step, buffers):
        """What a device does for a step of the plan: one thing, or those of one step of a sequence after the other."""
        if not isinstance(step, RecurrenceStep):
            return [self._task(step, buffers)]
        *bases, room = [self._place(buffers, a, seen_memory(a)[2], LOOP_TYPE[a.dtype]) for a in step.touched()]
        parts = [self._task(part, step.draft.buffers) for part in step.draft.steps]
        return [Task(part.work, step.repeated.addresses(part.slots, bases, room, turn, now, before), part.numbers)
                for turn, (now, before) in enumerate(step.repeated.walk.steps()) for part in parts]

    def _task(self, step, buffers):
        if isinstance(step, LibraryStep):
            operands = [self._place(buffers, a, seen_memory(a)[2], LOOP_TYPE[a.dtype]) for a in step.touched()]
            return Task(step.call, operands)
        operands = [self._place(buffers, r.node, r.offset, r.type) for r in step.nest.reads]
        return Task(step.launch, operands, [self._cell(n) for n in step.nest.numbers])

    def _place(self, buffers, node, offset, type):
        """(index of the table, bytes behind that address) of a node in memory, from element `offset` of `type` on."""
        buffer = buffers.of(node)
        if offset.__class__ is not MovingOffset:
            return buffer.index, buffer.offset + offset * BYTES_OF_TYPE[type]
        key = buffer.index, buffer.offset, offset
        if key not in self._moving:
            self._moving[key] = MovingPlace(self.table_size, buffer.index, buffer.offset, offset, BYTES_OF_TYPE[type])
            self.table_size += 1
        return self._moving[key].index, 0

    def _cell(self, node):
        """Where a kernel finds a number: those of the instructions come first, then the constants of the program."""
        if node.op == "number":
            return node.attr
        self.constants.append(bits_of(node.attr, node.dtype))
        return len(self.numbers) + len(self.constants) - 1

    # --- running ----------------------------------------------------------------------------------------------------

    def bind(self, positions=None, results=None, numbers=None, code=None, moved=None):
        """The program bound to where its inputs come from and its results go; see BoundProgram."""
        return BoundProgram(self, positions, results, numbers, code, moved)

    def run_before_last(self, table, values, code, blocks, made, perform, observed):
        """Run all but a native stretch at the end. Gives the arrays that other steps made, by their index in the table.
        `made`: (array, address) of each output."""
        results = None if self.native else {slot: (array_, spec) for (slot, spec, _), (array_, _)
                                            in zip(self.outputs, made, strict=True)}
        arrays: dict = {}
        for stretch in self.before:
            if isinstance(stretch, NativeStretch):
                self.run_stretch(stretch, table.addresses, table.numbers, code, observed)
            elif isinstance(stretch, TransferCall):
                self._transfer(stretch, table.addresses, values, code, blocks, results, arrays)
            else:
                self._call_reference(stretch, table.addresses, values, code, blocks, results, arrays, perform)
        return arrays

    def working_memory(self, table, makers=None):
        """The blocks that are needed while it runs, by their place in `table`. `makers`: what observers are told."""
        blocks = {}
        for device, nbytes, index in self.blocks:
            if makers is not None:
                observers.begin(*makers[None])
            blocks[index] = block = device.backend.block(nbytes)
            table[index] = block.address
        return blocks

    @staticmethod
    def run_stretch(stretch, table, scalars, code, observed):
        """Run a stretch that is not the last."""
        times = stretch.times() if observed else None
        try:
            stretch.program.run(table, scalars, times)
        except DeviceFailed as error:
            stretch.explain(error, code)
            raise
        stretch.has_run(times, code)

    def makers(self, code, slots):
        """For observers: the instruction of `code` that makes each slot, and under None all those whose steps share the
        working memory. `slots`: the same instructions with the slots of the plan, where `code` has those of a longer
        trace."""
        found = {slot: instruction for one, instruction in zip(slots, code, strict=True) for slot in one.results()}
        steps = [step for stretch in self.stretches
                 for step in (stretch.steps if isinstance(stretch, NativeStretch) else (stretch.step,))]
        found[None] = tuple([code[i] for i in dict.fromkeys(i for step in steps if step.keeps
                                                            for i in step.instructions)])
        return found

    def _call_reference(self, call, table, values, code, blocks, results, arrays, perform):
        instruction = code[call.index]
        entry, params = instruction.entry, instruction.params
        given = [_seen(operand, values, code, blocks, results, arrays) for operand in call.operands]
        start, outs = observers.begin(instruction) if observers.during_runs and observers.gathering() else 0, None
        try:
            if isinstance(call.step, CallbackStep):
                outs = perform(call.index, given)
            elif entry.compiles:
                outs = execute(entry, given, params, call.own)
            else:                                            # what stands elsewhere was brought before
                outs = entry.device.backend.execute(entry, given, params, call.own)
        except DeviceFailed:                      # which the reference would not mend
            raise
        except Exception as error:
            raise Failed from error
        finally:
            if start:
                observers.tell_ran(call.step, (instruction,), start, failed=outs is None)
        for number, buffer in call.made:
            self._gave(outs[number], buffer, table, code, arrays)

    def _transfer(self, call, table, values, code, blocks, results, arrays):
        origin, target = call.operand[0].spec.device.backend, call.made.spec
        seen = _seen(call.operand, values, code, blocks, results, arrays)
        instructions, made = [code[i] for i in call.step.instructions], None
        start = observers.begin(*instructions) \
            if observers.during_runs and observers.gathering() else 0
        try:
            made = target.device.backend.copy_from(origin, seen, target)
        except DeviceFailed:                      # which the reference would not mend
            raise
        except Exception as error:
            raise Failed from error
        finally:
            if start:
                observers.tell_ran(call.step, tuple(instructions), start, failed=made is None)
        self._gave(made, call.made, table, code, arrays)

    def _gave(self, made, buffer, table, code, arrays):
        """Note an array that a step made by itself, and tell native steps that may read it where it is."""
        arrays[buffer.index], backend = made, buffer.spec.device.backend
        if backend.compiles:
            table[buffer.index] = backend.address(made)
            for place in self.moving_amid:
                if place.base == buffer.index:
                    table[place.index] = place.begins_at(table, code)


def _seen(operand, values, code, blocks, results, arrays):
    """The array of an operand, (buffer, spec, offset)."""
    buffer, wanted, offset = operand
    if offset.__class__ is MovingOffset:
        offset = offset.now(code)
    if buffer.kind == "input":
        return values[buffer.slot].look(wanted, offset)
    if buffer.kind == "given":
        source = Value.of(arrays[buffer.index], buffer.spec)
    elif buffer.kind == "result":
        source = Value.of(*results[buffer.slot])
    else:
        spec = buffer.spec
        flat = spec.device.backend.bytes_of(blocks[buffer.index]) if buffer.nbytes else None
        source = Value.of(spec.device.backend.look(flat, spec, buffer.offset // spec.dtype.itemsize), spec)
    return source.look(wanted, offset)


def _operand(arg, buffers):
    """(buffer, spec, offset) of a node in memory."""
    node, strides, offset = seen_memory(arg)
    buffer = buffers.of(node)
    return buffer, make_spec(arg.dtype, arg.shape, tuple(strides), buffer.spec.device), offset


def _transfer_call(step, buffers):
    return TransferCall(step, _operand(step.source, buffers), buffers.of(step.made))


def _reference_call(step, buffers, last_reference):
    operands = [_operand(arg, buffers) for arg in step.touched()]
    # see Note [All or nothing] in planning/plan.py: only the last that may fail writes over what it was given, and only
    # what was not read before it, so that after an interrupt everything can be done once more
    first = operands[0][0] if operands else None
    own = step.entry.op.overwrites and first.last == step.at and operands[0][1] is first.spec \
        and not operands[0][2] and not any(b is first for b, _, _ in operands[1:])
    if own and first.kind == "input":
        own = first.slot in buffers.free and first.made == step.at == last_reference
    elif own:
        own = first.kind == "given" and first.slot is None
    return ReferenceCall(step, operands, step.made, own)
