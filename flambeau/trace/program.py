"""What a plan becomes: code for its kernels, and a program that runs them.

A program is a list of stretches. One of native steps is a program of their device (`Backend.program`), which one call
runs; between two of them stands an operation of the reference executor. All of them find their memory through a table
of addresses.
"""
import re
import struct
from array import array

from ..backends.backend import NotCompiled, Task
from ..base.spec import CPU, spec as make_spec
from ..loops.ir import BYTES
from .buffers import last_to_fail
from .fuse import memory as seen_memory
from .interpret import execute, say_not_compiled
from .lower import HALVES, TYPE, Unfusable, cell
from .steps import KernelStep, LibraryStep, ReferenceStep
from .value import Value


class Failed(Exception):
    """A reference step of a program failed; the reference executor will say how."""


class Kernels:
    """The kernels of a plan's steps, and the code that their device makes of them."""

    def __init__(self, steps, buffers):
        self.steps = [step for step in steps if isinstance(step, KernelStep)]
        for step in self.steps:
            step.tell_fresh(buffers)
        self._made = CPU.backend.compile([step.launch for step in self.steps])

    def prepare(self, nbytes):
        """Have them compiled in the background, where that takes longer than to make `nbytes` of results without."""
        return self._made.prepare(nbytes)

    def are_ready(self):
        """Whether what was prepared is compiled, or nobody is about to."""
        return self._made.is_ready()

    def compile(self):
        """Wait until there is code for all of them; Unfusable where some could not be compiled."""
        try:
            self._made.finish()
        except NotCompiled as error:
            if not error.launches:
                say_not_compiled(error, "running several steps", CPU.backend)
                raise Unfusable("no native runtime") from error
            first = error.launches[0]
            words = dict.fromkeys(re.findall(r" = (\w+)\.", str(first.kernel)))
            say_not_compiled(error, ", ".join(words) or "a copy", CPU.backend)
            step = next(step for step in self.steps if step.launch is first)
            raise Unfusable("a kernel that could not be compiled", group=step.nodes()) from error


class ReferenceCall:
    """Instruction `index` run by the reference executor: `operands` are (buffer, spec, offset), `made` its results.

    `own` says that the first operand may be written over.
    """

    __slots__ = ("index", "operands", "made", "own")

    def __init__(self, index, operands, made, own):
        self.index, self.operands, self.made, self.own = index, operands, made, own


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
        self.stretches, tasks = [], []
        last_reference = last_to_fail(steps)
        for step in steps:
            if isinstance(step, ReferenceStep):
                self._add_stretch(tasks)
                self.stretches.append(_reference_call(step, buffers, last_reference))
                tasks = []
            elif isinstance(step, LibraryStep):
                places = [_place(buffers, a, seen_memory(a)[2] * BYTES[TYPE[a.dtype]]) for a in step.touched()]
                tasks.append(Task(step.call, places))
            else:
                places = [_place(buffers, r.node, r.offset * BYTES[r.type]) for r in step.nest.reads]
                tasks.append(Task(step.launch, places, [self._cell(n) for n in step.nest.numbers]))
        self._add_stretch(tasks)

    def _add_stretch(self, tasks):
        if tasks:
            self.stretches.append(CPU.backend.program(tasks))

    def _cell(self, node):
        """Where a kernel finds a number: those of the instructions come first, then the constants of the program."""
        if node.op == "number":
            return node.attr
        kind = "d" if node.dtype.is_floating_point else "q"
        self.constants.frombytes(struct.pack(kind, cell(node.attr, node.dtype)))
        return len(self.numbers) + len(self.constants) - 1

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, values, code, finish):
        """Run the instructions `code` over ready `values` by slot; then `finish` with (slot, array, address) of what
        was made. See Note [All or nothing] in plan.py."""
        table = [0] * self.table_size
        block = None
        if self.working:
            block = CPU.backend.block(self.working)
            table[0] = block.address
        for slot, index in self.inputs:
            table[index] = values[slot].address()
        made = []
        for slot, spec, index in self.outputs:
            array_, address = spec.device.backend.blank(spec)
            table[index] = address
            made.append((slot, array_, address))
        scalars = self.scalars([code[i][3][n] for i, n, _ in self.numbers])
        last = self.stretches[-1] if self.stretches else None
        if self.has_reference:
            held = {slot: (array_, spec) for (slot, array_, _), (_, spec, _) in zip(made, self.outputs, strict=True)}
            arrays = {}
            if isinstance(last, ReferenceCall):
                last = None
            for stretch in self.stretches if last is None else self.stretches[:-1]:
                if not isinstance(stretch, ReferenceCall):
                    stretch.run(table, scalars)
                else:
                    self._call_reference(stretch, table, values, code, block, held, arrays)
            for slot, index in self.givens:
                made.append((slot, arrays[index], None))
        addresses = array("q", table)
        run = last.bound(addresses, scalars) if last is not None else None
        started = False
        try:
            started = True                        # no interrupt comes between this and the end of the call
            if run is not None:
                run()
            finish(made)
        except BaseException:                     # an interrupt while the results were handed out: once more
            if started:
                finish(made)
            raise

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

    def _call_reference(self, call, table, values, code, block, held, arrays):
        entry, _, _, params, *_ = code[call.index]
        given = []
        for buffer, kind, offset in call.operands:
            if buffer.kind == "input":
                given.append(values[buffer.slot].look(kind, offset))
                continue
            if buffer.kind == "given":
                source = Value.of(arrays[buffer.index], buffer.spec)
            elif buffer.kind == "result":
                source = Value.of(*held[buffer.slot])
            else:
                backend, start = buffer.spec.device.backend, buffer.offset // buffer.spec.dtype.itemsize
                flat = backend.bytes_of(block) if buffer.nbytes else None
                source = Value.of(backend.look(flat, buffer.spec, start), buffer.spec)
            given.append(source.look(kind, offset))
        try:
            outs = execute(entry, given, params, call.own)
        except Exception as error:
            raise Failed from error
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
    own = step.entry.op.overwrites and first.last == step.at and operands[0][1] is first.spec \
        and not operands[0][2] and not any(b is first for b, _, _ in operands[1:])
    if own and first.kind == "input":
        own = first.slot in buffers.free and first.made == step.at == last_reference
    elif own:
        own = first.kind == "given" and first.slot is None
    return ReferenceCall(step.index, operands, step.made, own)
