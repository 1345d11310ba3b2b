"""What a plan becomes on the CPU: machine code for its kernels, and a program of words and addresses that runs them.

A program is a list of stretches. One of native steps is an array of words for the native runner (backends/threads.py),
which one call runs; between two of them stands an operation of the reference executor. All of them find their memory
through a table of addresses.
"""
import re
import struct
from array import array

import numpy as np

from ..backends import cpu, memory, threads
from ..backends.backend import NotCompiled
from ..base import observers
from ..base.spec import CPU, spec as make_spec
from ..loops.ir import BYTES, verify
from .buffers import last_to_fail
from .fuse import memory as seen_memory
from .interpret import execute, say_not_compiled
from .lower import HALVES, TYPE, Unfusable, cell
from .steps import CallbackStep, KernelStep, LibraryStep, ReferenceStep, rendered
from .value import Value

STREAM_BYTES = 1 << 23        # of a result that is written past the cache
PIECE_NANOSECONDS = 12_000    # of work that are worth handing to another thread
_kernels: dict = {}           # text of a kernel → address; None where it could not be compiled


class Failed(Exception):
    """A reference step of a program failed; the reference executor will say how."""


def forget_kernels():
    """Compile everything anew."""
    _kernels.clear()


class Kernels:
    """The kernels of a plan's steps: `missing` is {name: LLVM text} of those that have no machine code yet."""

    def __init__(self, steps, buffers):
        self.steps = [step for step in steps if isinstance(step, KernelStep)]
        self.missing, self._names = {}, {}
        for step in self.steps:
            step.kernel.streams = _may_stream(step.nest, buffers)
            step.text = text = str(step.kernel)
            if text not in _kernels and text not in self._names:
                verify(step.kernel)
                self._names[text], code = rendered(step.kernel)
                self.missing[self._names[text]] = code

    def prepare(self, characters):
        """Have more than so many characters compiled in the background; False where there are not so many."""
        if sum(map(len, self.missing.values())) <= characters:
            return False
        left = cpu.not_found(self.missing)
        if sum(map(len, left.values())) <= characters:
            return False
        cpu.prepare(left)
        return True

    def compile(self):
        """Have machine code for all of them, made in one go; Unfusable where one could not be compiled."""
        try:
            threads.start()                                  # not in the middle of a run
        except NotCompiled as error:
            say_not_compiled(error, "running several steps", CPU.backend)
            raise Unfusable("no native runtime") from error
        if self.missing:
            try:
                made = cpu.functions(self.missing)
            except NotCompiled as error:
                first = next(text for text, name in self._names.items() if name in error.failed)
                say_not_compiled(error, ", ".join(dict.fromkeys(re.findall(r" = (\w+)\.", first))) or "a copy",
                                 CPU.backend)
                made = cpu.functions({name: text for name, text in self.missing.items() if name not in error.failed})
            for text, name in self._names.items():
                _kernels[text] = made.get(name)
        for step in self.steps:
            if _kernels[step.text] is None:
                raise Unfusable("a kernel that could not be compiled", group=step.nodes())


def _may_stream(nest, buffers):
    """Whether the results are so large that they would only push other things out of the cache."""
    walked = {"kept": nest.kept, "reduced": nest.reduced, "none": [None]}[nest.lanes][-1]
    stores = [nest.reads[n] for one in nest.passes for n, _ in one.stores if nest.reads[n].node is not None]
    return bool(stores) and not nest.finals_by_lane() and all(
        r.offset == 0 and buffers.of(r.node).taken is None and buffers.of(r.node).nbytes >= STREAM_BYTES
        and all(s == 1 if d == walked else s * BYTES[r.type] % 64 == 0 for d, s in r.strides.items())
        for r in stores)


class NativeStretch:
    """The `steps` that one call of the native runner runs: `words` says to it what they are."""

    __slots__ = ("words", "steps")

    def __init__(self):
        self.words, self.steps = array("q"), []

    def add(self, step, address, tiles, grain, places, numbers, ints):
        """One step more: `places` are (index of the table, bytes behind it), `numbers` cells of the numbers."""
        self.words.extend((address, tiles, grain, len(places), len(numbers), len(ints)))
        for index, offset in places:
            self.words.extend((index, offset))
        self.words.extend(numbers)
        self.words.extend(ints)
        self.steps.append(step)

    def run(self, addresses, scalars, observed):
        """Run over the table at `addresses` and the numbers at `scalars`; gives the times of steps if `observed`."""
        times = self.times() if observed else None
        run = threads.clocked(times) if observed else threads.run
        run(self.words.buffer_info()[0], len(self.steps), addresses, scalars)
        return times

    def times(self):
        """Room for the time of its beginning and those at the ends of its steps."""
        return array("q", bytes(8 * (len(self.steps) + 1)))

    def tell(self, times, code):
        """Tell observers that the steps were run, for instructions of `code`."""
        for step, start, end in zip(self.steps, times, times[1:], strict=False):
            observers.tell_ran(step, tuple([code[i] for i in step.instructions]), start, end)


class ReferenceCall:
    """Instruction `index` run by the reference executor: `operands` are (buffer, spec, offset), `made` its results.

    `own` says that the first operand may be written over; `step` is the plan's.
    """

    __slots__ = ("index", "operands", "made", "own", "step")

    def __init__(self, step, operands, made, own):
        self.step, self.index, self.operands, self.made, self.own = step, step.index, operands, made, own


class Program:
    """A plan's steps, ready to run.

    `inputs` are (slot, index of the table), `outputs` (slot, spec, index) of what it allocates, `takes` (slot, spec,
    slot of the input whose memory it takes over), `givens` (slot, index) of what reference steps gave, and `numbers`
    (instruction, parameter, dtype) of the numbers that come from the instructions. `working` bytes are needed while it
    runs.
    """

    def __init__(self, steps, buffers, numbers):
        self.numbers = numbers
        self.cells = "".join("d" if d.is_floating_point else "q" for _, _, d in numbers)
        self.plain = not any(d in HALVES for _, _, d in numbers)      # whether no number is rounded on the way
        self.constants = array("q")
        self.working, self.table_size = buffers.working, buffers.table_size
        self._places(buffers)
        self._stretches(steps, buffers)
        self.has_reference = any(isinstance(s, ReferenceCall) for s in self.stretches)
        self.has_effects = any(isinstance(step, CallbackStep) for step in steps)

    def _places(self, buffers):
        self.inputs, self.outputs, self.takes, self.givens = [], [], [], []
        for b in buffers.all:
            if b.kind == "input":
                if b.spec.device is CPU:          # what stands elsewhere is read by the reference alone
                    self.inputs.append((b.slot, b.index))
            elif b.kind == "result":
                if b.taken is None:
                    self.outputs.append((b.slot, b.spec, b.index))
                else:
                    self.takes.append((b.slot, b.spec, b.owner.slot))
            elif b.kind == "given" and b.slot is not None:
                self.givens.append((b.slot, b.index))

    def _stretches(self, steps, buffers):
        self.stretches, native = [], None
        last_reference = last_to_fail(steps)
        for step in steps:
            if isinstance(step, ReferenceStep):
                self.stretches.append(_reference_call(step, buffers, last_reference))
                native = None
                continue
            if native is None:
                native = NativeStretch()
                self.stretches.append(native)
            if isinstance(step, LibraryStep):
                address, tiles, grain, ints = step.call
                places = [_place(buffers, a, seen_memory(a)[2] * BYTES[TYPE[a.dtype]]) for a in step.touched()]
                native.add(step, address, tiles, grain, places, (), ints)
            else:
                nest = step.nest
                places = [_place(buffers, r.node, r.offset * BYTES[r.type]) for r in nest.buffers()]
                native.add(step, _kernels[step.text], nest.tiles, _grain(nest.tiles, nest.cost), places,
                           [self._cell(n) for n in nest.numbers], nest.ints)

    def _cell(self, node):
        """Where a kernel finds a number: those of the instructions come first, then the constants of the program."""
        if node.op == "number":
            return node.attr
        kind = "d" if node.dtype.is_floating_point else "q"
        self.constants.frombytes(struct.pack(kind, cell(node.attr, node.dtype)))
        return len(self.numbers) + len(self.constants) - 1

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, values, code, finish, perform):
        """Run the instructions `code` over ready `values` by slot; then `finish` with (slot, array, address) of what
        was made. See Note [All or nothing] in plan.py. `perform(index, arrays)` has an effect happen."""
        table = [0] * self.table_size
        block, sites = None, self.sites(code) if observers.during_runs and observers.gathering() else None
        if self.working:
            if sites is not None:
                observers.begin(*sites[None])
            block = memory.block(self.working)
            table[0] = block.address
        for slot, index in self.inputs:
            table[index] = values[slot].address()
        made = []
        for slot, spec, index in self.outputs:
            if sites is not None:
                observers.begin(sites[slot])
            array_, address = memory.blank(spec)
            table[index] = address
            made.append((slot, array_, address))
        scalars = self.scalars([code[i][3][n] for i, n, _ in self.numbers])
        where = scalars.buffer_info()[0]
        last = self.stretches[-1] if self.stretches else None
        if self.has_reference:
            held = {slot: (array_, spec) for (slot, array_, _), (_, spec, _) in zip(made, self.outputs, strict=True)}
            arrays = {}
            if isinstance(last, ReferenceCall):
                last = None
            for stretch in self.stretches if last is None else self.stretches[:-1]:
                if isinstance(stretch, NativeStretch):
                    addresses = array("q", table)
                    times = stretch.run(addresses.buffer_info()[0], where, sites is not None)
                    if sites is not None:
                        stretch.tell(times, code)
                else:
                    self._call_reference(stretch, table, values, code, block, held, arrays, perform)
            for slot, index in self.givens:
                made.append((slot, arrays[index], None))
        addresses = array("q", table)
        at = addresses.buffer_info()[0]
        program, steps = (last.words.buffer_info()[0], len(last.steps)) if last is not None else (0, 0)
        times = last.times() if steps and sites is not None else None
        run = threads.run if times is None else threads.clocked(times)
        started = False
        try:
            started = True                        # no interrupt comes between this and the end of the call
            if steps:
                run(program, steps, at, where)
            finish(made)
        except BaseException:                     # an interrupt while the results were handed out: once more
            if started:
                finish(made)
            raise
        if times is not None:
            last.tell(times, code)

    def sites(self, code):
        """For observers: the site of each slot that instructions of `code` make, and under None all those whose steps
        share the working memory."""
        found = {slot: site for entry, _, _, _, first, site in code for slot in range(first, first + len(entry.outs))}
        steps = [step for stretch in self.stretches
                 for step in (stretch.steps if isinstance(stretch, NativeStretch) else (stretch.step,))]
        found[None] = tuple(dict.fromkeys(code[i][5] for step in steps if step.keeps for i in step.instructions))
        return found

    def scalars(self, numbers):
        """The cells that kernels read numbers from: those of the instructions first, then the program's constants."""
        scalars = array("q")
        if self.cells:
            try:
                packed = struct.pack(self.cells, *numbers) if self.plain else None
            except struct.error:                  # a float for an integer, or an integer out of range
                packed = None
            if packed is None:
                packed = struct.pack(self.cells, *[cell(n, d) for n, (_, _, d)
                                                   in zip(numbers, self.numbers, strict=True)])
            scalars.frombytes(packed)
        scalars.extend(self.constants)
        return scalars

    def _call_reference(self, call, table, values, code, block, held, arrays, perform):
        instruction = entry, _, _, params, _, site = code[call.index]
        given = []
        for buffer, kind, offset in call.operands:
            if buffer.kind == "input":
                given.append(values[buffer.slot].look(kind, offset))
                continue
            if buffer.kind == "given":
                source = Value.of(arrays[buffer.index], buffer.spec)
            elif buffer.kind == "result":
                source = Value.of(*held[buffer.slot])
            elif not buffer.nbytes:
                source = Value.of(np.empty(buffer.spec.shape, buffer.spec.dtype.np), buffer.spec)
            else:
                flat = np.frombuffer(block, np.uint8)
                laid = np.ndarray(buffer.spec.shape, buffer.spec.dtype.np, flat, buffer.offset, buffer.spec.np_strides)
                source = Value.of(laid, buffer.spec)
            given.append(source.look(kind, offset))
        start, outs = observers.begin(site) if observers.during_runs and observers.gathering() else 0, None
        try:
            outs = perform(call.index, given) if isinstance(call.step, CallbackStep) else \
                execute(entry, given, params, call.own)
        except Exception as error:
            raise Failed from error
        finally:
            if start:
                observers.tell_ran(call.step, (instruction,), start, failed=outs is None)
        for number, buffer in call.made:
            arrays[buffer.index] = outs[number]
            device = buffer.spec.device
            if device is CPU:                                # native steps read there
                table[buffer.index] = device.backend.address(outs[number])


def _place(buffers, node, offset):
    buffer = buffers.of(node)
    return buffer.index, buffer.offset + offset


def _reference_call(step, buffers, last_reference):
    operands = []
    for arg in step.touched():
        node, strides, offset = seen_memory(arg)
        operands.append((buffers.of(node), make_spec(arg.dtype, arg.shape, tuple(strides)), offset))
    # see Note [All or nothing] in plan.py: only the last that may fail writes over what it was given, and only what
    # nobody read before it, so that after an interrupt everything can be done once more
    first = operands[0][0] if operands else None
    own = step.entry.op.overwrites and not isinstance(step, CallbackStep) and first.last == step.at \
        and operands[0][1] is first.spec and not operands[0][2] and not any(b is first for b, _, _ in operands[1:])
    if own and first.kind == "input":
        own = first.slot in buffers.free and first.made == step.at == last_reference
    elif own:
        own = first.kind == "given" and first.slot is None
    return ReferenceCall(step, operands, step.made, own)


def _grain(tiles, cost):
    """How many tiles a thread takes at a time; all of them where the work is little."""
    if tiles * cost < 2 * PIECE_NANOSECONDS:
        return tiles
    return max(1, int(PIECE_NANOSECONDS // cost), -(-tiles // 64))
