"""Plans: what a trace becomes, and how it runs.

A plan is a list of steps in order: stretches of native steps, each run by one call, and operations left to the
reference executor between them. It says which buffers it reads, which it allocates for results that somebody still
wants, and where in one block of working memory everything else stands. Plans are cached under the trace's own
instructions.

Note [Compiled beforehand]: LLVM takes longer over a long trace than the trace takes to run instruction by instruction,
by the same bodies and with the same bits (interpret.py). So its kernels are compiled in the background; meanwhile it is
run like that, and the plan waits until they are there. That is for `auto`: a pinned executor, and whoever asks for a
plan, waits for the compiler.

Note [All or nothing]: until a plan is through, no Value changes, so a failure half-way loses nothing: the trace is
still there. Memory of dead inputs is written over only by the last stretch, which cannot fail.
"""
import gc
import re
import struct
from array import array
from bisect import bisect_right
from math import ceil

import numpy as np

from ..backends import cpu, library, memory, threads
from ..base import settings
from ..base.errors import warn
from ..base.locks import new_lock
from ..base.ownership import INPUT, RESULT, counts, owns_memory
from ..base.spec import spec as make_spec
from ..loops.ir import BYTES, verify
from .fuse import REDUCING, Fuser, Group, Unfusable, memory as seen_memory, root
from .interpret import do_without, execute, forget_programs, say_not_compiled
from .look import Step, rendered
from .lower import TYPE, Graph, Node, cell
from .nest import Nest
from .record import update
from .value import Value

SEEN = 4096                   # how many traces are remembered
LITTLE = 1 << 20              # bytes of results below which a trace has to be seen a few times before it is planned:
WORTH = 64                    # once, and once more for so many instructions, since long ones take long to compile
FEW = 1 << 20                 # bytes for each instruction below which it has to be seen once
LONG_TEXT = 1 << 15           # characters of LLVM text that nobody should wait for: some 60 to 180 milliseconds
BYTES_PER_CHARACTER = 2048    # of results that NumPy makes while LLVM compiles one
STREAM = 1 << 23              # bytes of a result that is written past the cache
PIECE = 12_000                # nanoseconds of work that are worth handing to another thread
_kernels: dict = {}           # text of a kernel → address; None where it could not be compiled
_plans: dict = {}             # key of a trace → Plan, or False where it is left to the reference
_sightings: dict = {}         # key of a trace with little data → how often it was run without a plan
_finishing = new_lock()
_tight: list = []             # whether it was said that there is no memory to compile with


class Failed(Exception):
    """A reference step of a plan failed; the reference executor will say how."""


def attempt(trace):
    """Run `trace` by a plan and empty it; False where it is to be run instruction by instruction.

    Whether a trace is planned depends on how much data it has and how often it was seen, never on time. The bits are
    the same: see interpret.py.
    """
    key, wanted, free = _key(trace)
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) + len(_sightings) >= SEEN:
            _plans.clear()
            _sightings.clear()
        if settings.executor != "native":
            times = _sightings.get(key, 0)
            if times < _patience(trace):
                _sightings[key] = times + 1
                return False
            _sightings.pop(key, None)
        plan = _planned(trace, wanted, free)
        if plan is None:                                     # next time there may be more memory
            return False
        _plans[key] = plan
    if plan is False or plan.waiting and not _finished(key, plan):
        return False
    code, values = trace.code, trace.values

    def finish(made):
        give(values, made, plan.takes)
        trace.clear()

    try:
        plan.run(values, code, [code[i][3][n] for i, n, _ in plan.numbers], finish)
    except (Failed, MemoryError):
        return False
    trace.ran = plan
    return True


def _patience(trace):
    """How often a trace is run without a plan before it gets one, which takes about a millisecond for each
    instruction: sentences of ever new lengths, say, would never earn it."""
    if trace.bytes < LITTLE:
        return 1 + len(trace.code) // WORTH
    return int(trace.bytes < FEW * len(trace.code))


def made_for(trace):
    """The plan by which `trace` would run natively now: made where there is none, and not kept."""
    with trace.lock:                                         # nobody runs it meanwhile
        key, wanted, free = _key(trace)
        plan = _plans.get(key)
        if not plan or plan.waiting:
            plan = Plan(trace.code, [v and v.spec for v in trace.values], wanted, free)
        return plan


def _finished(key, plan):
    """Whether a plan whose kernels are compiled in the background can run now."""
    with _finishing:                                         # another thread may have the same trace
        if not plan.waiting:
            return True
        if settings.executor != "native" and not cpu.are_ready(plan.missing):
            return False
        try:
            plan.finish()
            return True
        except BaseException as error:                       # it is made anew, by somebody who waits
            _plans.pop(key, None)
            if not isinstance(error, (Unfusable, MemoryError)):
                raise
            return False


def _planned(trace, wanted, free):
    spare = None if settings.executor == "native" else trace.bytes // BYTES_PER_CHARACTER
    collects = gc.isenabled()
    try:
        gc.disable()                                         # a graph is no garbage: to look through it took a fifth
        return Plan(trace.code, [v and v.spec for v in trace.values], wanted, free, spare)
    except Unfusable:
        return False
    except MemoryError as error:
        if not _tight:
            _tight.append(True)
            warn(f"no memory to compile with: {error}. This part runs on the reference executor, which is slower and "
                 "needs little; what was compiled before still runs natively.")
        return None
    except cpu.NoCompiler as error:
        do_without(error)
        return False
    finally:
        if collects:
            gc.enable()


def _asked(node, function, *args):
    """What the library gives for `node`; None where its code could not be compiled."""
    try:
        return function(*args)
    except cpu.NotCompiled as error:
        say_not_compiled(error, node.op if node.op == "gemm" else node.attr[0])
        return None


def forget():
    """Plan and compile everything anew: another processor was chosen."""
    _plans.clear()
    _kernels.clear()
    library.forget()
    forget_programs()


def _key(trace):
    """(the key, slots that somebody outside still holds, inputs that nobody else holds)."""
    code, values = trace.code, trace.values
    wanted, parts, held = [], [], counts(values)
    for entry, slots, offsets, _, first in code:
        parts.append((entry, slots, offsets))
        for slot in range(first, first + len(entry.outs)) if entry.many else (first,):
            if held[slot] > RESULT:
                wanted.append(slot)
    free, kinds = [], []
    for value, slot in trace.slots.items():
        kinds.append(value.spec)
        if held[slot] <= INPUT and owns_memory(value):
            free.append(slot)
    wanted, free = tuple(wanted), tuple(free)
    return (tuple(parts), tuple(kinds), wanted, free), wanted, free


class Buffer:
    """Memory of a plan: an input, a result, working memory at an offset, or what a reference step gave."""

    __slots__ = ("kind", "slot", "spec", "nbytes", "index", "offset", "made", "last", "taken")

    def __init__(self, kind, nbytes, slot=None, spec=None):
        self.kind, self.nbytes, self.slot, self.spec = kind, nbytes, slot, spec
        self.index = self.offset = 0
        self.made = self.last = -1
        self.taken = None         # the buffer whose memory this one takes over


def _avoid(why, graph, code, apart, left):
    """Note what the next try does in another way: a node kept apart, or else an instruction left to the reference."""
    if why.group is not None:
        more = {bisect_right(graph.begins, node.number) - 1 for node in why.group if node.number < graph.end} - left
        left |= more
        return bool(more) and all(code[index][0].op is not update for index in more)
    if why.node is None:
        return False
    number = ceil(why.node.number)                # what was made for a node has a number shortly before its own
    if why.apart and number - graph.start not in apart and len(apart) < 8:
        apart.add(number - graph.start)
        return True
    index = bisect_right(graph.begins, number) - 1
    if index < 0 or index in left or len(left) >= 8 or code[index][0].op is update:
        return False
    left.add(index)
    return True


class Plan:
    """How one trace runs. Built from its instructions, the specs of its slots, and what is wanted and what is free.

    `spare`: so many characters of kernels are compiled while somebody waits, at least; with more than that the plan is
    left `waiting`, its kernels are compiled in the background, and `finish` makes it ready. None: all are waited for.
    See Note [Compiled beforehand].
    """

    waiting = False

    def __init__(self, code, specs, wanted, free, spare=None):
        needed, apart, left = _needed(code, wanted), set(), set()
        self.wanted, self.free, self.specs = wanted, set(free), specs
        while True:
            self.graph = Graph(code, specs, needed, left)
            try:
                self._cut(apart)
                self._live()
                self._share()
                self._lay_out()
                self._name_kernels()
                if spare is not None and self._is_long(max(spare, LONG_TEXT)):
                    self.waiting = True
                    return
                self._compile()
                break
            except Unfusable as why:
                if not _avoid(why, self.graph, code, apart, left):
                    raise
        self._programs()
        self._tidy()

    def finish(self):
        """Make a plan that was `waiting` ready to run; Unfusable where a kernel could not be compiled."""
        self._compile()
        self._programs()
        self._tidy()
        self.waiting = False

    # --- steps ------------------------------------------------------------------------------------------------------

    def _cut(self, apart):
        """Groups, and the steps that they are."""
        self.buffers, self.of = [], {}
        self.groups = Fuser(self.graph, self.wanted, apart).groups
        live = set(self.wanted)
        self.slot_of = {id(node): slot for slot, node in self.graph.slots.items() if slot in live}
        self.steps = []           # (kind, group, what the kind needs); None for a copy that turned out needless
        for group in self.groups:
            self._step(group)

    def _step(self, group):
        node = group.opaque
        if node is None:
            nest = Nest(group)
            if nest.tiles and any(read.store for read in nest.reads):        # all that it made may be made elsewhere
                for copy, source in nest.turned:
                    self.steps.append(("native", group, self._copy(source, copy, None, 0)))
                self.steps.append(("native", group, nest))
        elif node.op == "gemm":
            self._gemm(group, node)
        elif node.op == "library":
            self._library(group, node)
        elif node.op == "update":
            self._update(group, node)
        elif node.op == "concat":
            laid, start = node.layout or make_spec(node.dtype, node.shape), 0
            for part in node.args:
                view = make_spec(node.dtype, part.shape, laid.strides)
                self.steps.append(("native", group, self._copy(part, node, view, start * laid.strides[node.attr])))
                start += part.shape[node.attr]
        else:
            self.steps.append(("reference", group))

    def _gemm(self, group, node):
        touched = (*node.args, node)
        found = _asked(node, library.product, node.dtype, *[(x.shape, seen_memory(x)[1]) for x in touched])
        if found is None:
            raise Unfusable("a matrix product that the library does not take", node)
        self.steps.append(("library", group, found, touched))

    def _library(self, group, node):
        name, params, parts = node.attr
        laid = [(a.shape, seen_memory(a)[1]) for a in node.args]
        made = [(p.shape, seen_memory(p)[1]) for p in parts]
        steps = _asked(node, library.ask, name, node.dtype, laid, made, params)
        if steps is None:
            raise Unfusable(f"{name} on this layout", node)
        for step in steps:
            self.steps.append(("library", group, step, (*node.args, *parts)))

    def _update(self, group, node):
        """An in-place write into part of a storage: the source goes over the old contents, or over a copy of them."""
        old, source = node.args
        view, offset = node.attr
        if view.dtype not in TYPE or source.dtype is not view.dtype or old.dtype not in TYPE:
            raise Unfusable(f"a write of {source.dtype} into {view.dtype} in memory of {old.dtype}")
        self.steps.append(("copy", group, self._copy(_flat(old), node, None, 0), (old, source)))
        if view.numel:
            self.steps.append(("native", group, self._copy(source, node, view, offset)))

    @staticmethod
    def _copy(source, target, view, offset):
        """A kernel that copies `source` to `target`: to all of it, or to a view of it."""
        group = Group(0)
        shape = source.shape if view is None else view.shape
        copy = Node("copy", source.dtype, shape, (source,))
        copy.axes = [(group.new_dim(n),) if n != 1 else () for n in shape]
        copy.group, copy.stored, copy.layout = group, True, view
        group.nodes.append(copy)
        nest = Nest(group)
        for read in nest.reads:
            if read.store:
                read.node, read.offset = target, offset
        return nest

    # --- buffers ----------------------------------------------------------------------------------------------------

    def _buffer(self, node):
        """The buffer that a node in memory stands in."""
        node = root(node)
        if node.op == "view":
            node = root(node.args[0])             # a copy into another shape may have become that shape of a copy
        key = node.attr[0] if node.op == "input" else id(node)
        found = self.of.get(key)
        if found is None:
            if node.op == "input":
                found = Buffer("input", 0, node.attr[0], self.specs[node.attr[0]])
            else:
                slot = self.slot_of.get(id(node))
                spec = node.layout or make_spec(node.dtype, node.shape)
                kind = "given" if node.op == "result" else "result" if slot is not None else "working"
                found = Buffer(kind, spec.nbytes, slot, spec)
            self.of[key] = found
            self.buffers.append(found)
        return found

    def _live(self):
        """When each buffer is first written and last read."""
        self.results, begun = {}, {}
        for at, step in enumerate(self.steps):
            kind, group = step[0], step[1]
            begun.setdefault(id(group), at)
            if kind in ("native", "copy"):
                touched = [self._buffer(read.node) for read in step[2].buffers()]
                if kind == "copy":
                    touched += [self._buffer(a) for a in step[3]]
            elif kind == "library":
                touched = [self._buffer(a) for a in step[3]]
            else:
                touched = [self._buffer(a) for a in group.opaque.args]
                self.results[at] = []
            for buffer in touched:
                if buffer.made < 0:
                    buffer.made = at
                buffer.last = at
        for node in self.graph.slots.values():
            if node.op == "result" and node.group is not None:
                at = begun[id(node.group)]
                if id(node) in self.of or id(node) in self.slot_of:
                    buffer = self._buffer(node)
                    buffer.made = at
                    buffer.last = max(buffer.last, at)
                    self.results[at].append((node.attr, buffer))

    def _share(self):
        """Let results take over memory that nobody reads any more; drop the copies that this makes needless."""
        last_reference = max((i for i, s in enumerate(self.steps) if s[0] == "reference"), default=-1)
        kept, self.gone = [], set()
        for at, step in enumerate(self.steps):
            if step[0] == "native":
                self._share_in(at, step[2], last_reference)
            elif step[0] == "copy":
                old, source = step[3]
                held, made = self._buffer(old), self._buffer(step[1].opaque)
                apart = self._buffer(source) is not held or _apart(source, *step[1].opaque.attr)
                if apart and held.last <= at + 1 and self._may_take(held, made, at, last_reference):
                    made.taken = held
                    self.gone.add(id(held))
                    kept.append(None)
                    continue
            kept.append(step)
        self.steps = kept

    def _may_take(self, held, made, at, last_reference):
        """Whether `made` may stand in the memory of `held`, which is read for the last time now."""
        if held is made or made.taken is not None or made.made < at or id(held) in self.gone:
            return False
        if held.kind not in ("working", "input") or held.spec.nbytes != made.nbytes:
            return False
        owner = _owner(held)
        if owner.kind == "input":
            return owner.slot in self.free and at > last_reference
        return made.kind == "working"

    def _share_in(self, at, nest, last_reference):
        last = len(nest.passes) - 1
        ends = [n for n, _ in nest.passes[last].stores] + [n for n, _ in nest.finals]
        for number in ends:
            store = nest.reads[number]
            made = self._buffer(store.node)
            for read in nest.buffers():
                if read.store or read.at is not None or read.strides != store.strides or read.offset != store.offset \
                        or BYTES[read.type] != BYTES[store.type]:
                    continue
                held = self._buffer(read.node)
                if held.last != at or not self._may_take(held, made, at, last_reference):
                    continue
                if any(r is not read and self._buffer(r.node) is held and
                       (r.strides != store.strides or r.offset != store.offset or r.at is not None)
                       for r in nest.buffers()):
                    continue
                made.taken = held
                self.gone.add(id(held))
                break

    def _lay_out(self):
        """Give every buffer its place: an index of the table, and for working memory an offset in the block."""
        self.inputs, self.outputs, self.takes, self.givens = [], [], [], []
        index = 1                                            # index 0 is the block of working memory
        free, top = [], 0
        events = sorted((b for b in self.buffers if b.kind == "working" and b.taken is None), key=lambda b: b.made)
        last = {}
        for b in self.buffers:                               # memory taken over lives as long as the last who took it
            owner = _owner(b)
            last[id(owner)] = max(last.get(id(owner), -1), b.last)
        ending = []
        for b in events:
            for other in [o for o in ending if last[id(o)] < b.made]:
                ending.remove(other)
                _give(free, other.offset, _aligned(other.nbytes))
            size = _aligned(b.nbytes)
            b.offset = _take(free, size)
            if b.offset is None:
                b.offset, top = top, top + size
            ending.append(b)
        self.working = top
        for b in self.buffers:
            if b.taken is None and b.kind != "working":
                b.index = index
                index += 1
        for b in self.buffers:
            owner = _owner(b)
            b.index, b.offset = owner.index, owner.offset
            if b.kind == "input":
                self.inputs.append((b.slot, b.index))
            elif b.kind == "result":
                if b.taken is None:
                    self.outputs.append((b.slot, b.spec, b.index))
                else:
                    self.takes.append((b.slot, b.spec, owner.slot))
            elif b.kind == "given" and b.slot is not None:
                self.givens.append((b.slot, b.index))
        self.table_size = index

    # --- code -------------------------------------------------------------------------------------------------------

    def _name_kernels(self):
        """The text of every kernel, and {name: LLVM text} of those that have no machine code yet."""
        self.texts, self.named, self.missing = {}, {}, {}
        for at, step in enumerate(self.steps):
            if step is not None and step[0] in ("native", "copy"):
                step[2].kernel.streams = self._may_stream(step[2])
                text = self.texts[at] = str(step[2].kernel)
                if text not in _kernels and text not in self.named:
                    verify(step[2].kernel)
                    name, code = rendered(step[2].kernel)
                    self.named[text] = name
                    self.missing[name] = code

    def _is_long(self, characters):
        """Whether more than so many characters have to be compiled; then the background is given them."""
        if sum(map(len, self.missing.values())) <= characters:
            return False
        left = cpu.not_found(self.missing)
        if sum(map(len, left.values())) <= characters:
            return False
        cpu.prepare(left)
        return True

    def _compile(self):
        """Machine code for every kernel that has none yet; all of them in one go."""
        try:
            threads.start()                                  # not in the middle of a run
        except cpu.NotCompiled as error:
            say_not_compiled(error, "running several steps")
            raise Unfusable("no native runtime") from error
        if self.missing:
            try:
                made = cpu.functions(self.missing)
            except cpu.NotCompiled as error:
                first = next(text for text, name in self.named.items() if name in error.failed)
                say_not_compiled(error, ", ".join(dict.fromkeys(re.findall(r" = (\w+)\.", first))) or "a copy")
                made = cpu.functions({name: text for name, text in self.missing.items() if name not in error.failed})
            for text, name in self.named.items():
                _kernels[text] = made.get(name)
        for at, text in self.texts.items():
            if _kernels[text] is None:
                group = self.steps[at][1]
                raise Unfusable("a kernel that could not be compiled", group=group.nodes or [group.opaque])

    def _may_stream(self, nest):
        """Whether the results are so large that they would only push other things out of the cache."""
        walked = {"kept": nest.kept, "reduced": nest.reduced, "none": [None]}[nest.lanes][-1]
        stores = [nest.reads[n] for one in nest.passes for n, _ in one.stores if nest.reads[n].node is not None]
        return bool(stores) and not nest.finals_by_lane() and all(
            r.offset == 0 and self._buffer(r.node).taken is None and self._buffer(r.node).nbytes >= STREAM
            and all(s == 1 if d == walked else s * BYTES[r.type] % 64 == 0 for d, s in r.strides.items())
            for r in stores)

    def _programs(self):
        """The stretches: flat words for the native runner, or a reference step."""
        self.stretches, words, steps = [], [], 0
        self.fixed = array("q")
        last_reference = max((i for i, s in enumerate(self.steps) if s and s[0] == "reference"), default=-1)
        self.numbers = self.graph.numbers
        for at, step in enumerate(self.steps):
            if step is None:
                continue
            if step[0] == "reference":
                if steps:
                    self.stretches.append((_words(words), steps))
                    words, steps = [], 0
                index, entry = step[1].opaque.attr
                operands = []
                for arg in step[1].opaque.args:
                    node, strides, offset = seen_memory(arg)
                    operands.append((self._buffer(node), make_spec(arg.dtype, arg.shape, tuple(strides)), offset))
                # see Note [All or nothing]: only the last that may fail writes over what it was given, and only what
                # nobody read before it, so that after an interrupt everything can be done once more
                first = operands[0][0] if operands else None
                own = entry.op.overwrites and first.last == at and operands[0][1] is first.spec \
                    and not operands[0][2] and not any(b is first for b, _, _ in operands[1:])
                if own and first.kind == "input":
                    own = first.slot in self.free and first.made == at == last_reference
                elif own:
                    own = first.kind == "given" and first.slot is None
                self.stretches.append((index, operands, self.results.get(at, []), own))
                continue
            if step[0] == "library":
                address, tiles, grain, ints = step[2]
                reads = [(self._buffer(a), seen_memory(a)[2] * BYTES[TYPE[a.dtype]]) for a in step[3]]
                numbers = []
            else:
                nest = step[2]
                address, tiles, ints = _kernels[self.texts[at]], nest.tiles, nest.ints
                grain = _grain(tiles, nest.cost)
                reads = [(self._buffer(r.node), r.offset * BYTES[r.type]) for r in nest.buffers()]
                numbers = [self._cell(n) for n in nest.numbers]
            words += [address, tiles, grain, len(reads), len(numbers), len(ints)]
            for buffer, offset in reads:
                words += [buffer.index, buffer.offset + offset]
            words += numbers
            words += ints
            steps += 1
        if steps:
            self.stretches.append((_words(words), steps))
        self.cells = "".join("d" if d.is_floating_point else "q" for _, _, d in self.numbers)

    def _cell(self, node):
        """Where a kernel finds a number: those of the instructions come first, then the constants of the plan."""
        if node.op == "number":
            return node.attr
        kind = "d" if node.dtype.is_floating_point else "q"
        self.fixed.frombytes(struct.pack(kind, cell(node.attr, node.dtype)))
        return len(self.graph.numbers) + len(self.fixed) - 1

    def _tidy(self):
        """Forget what was only needed to build; keep the printed form."""
        self.steps = self._described()
        self.touched = any(len(s) == 4 for s in self.stretches)
        del self.graph, self.groups, self.of, self.specs, self.texts, self.results, self.slot_of
        del self.named, self.missing
        if not self.touched:
            del self.buffers

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, values, code, numbers, finish):
        """Run over ready `values` by slot; then `finish` with (slot, array, address) of what was made.

        `numbers` are those that `self.numbers` names. See Note [All or nothing].
        """
        table = [0] * self.table_size
        block = None
        if self.working:
            block = memory.block(self.working)
            table[0] = block.address
        for slot, index in self.inputs:
            table[index] = values[slot].address()
        made = []
        for slot, spec, index in self.outputs:
            array_, address = memory.blank(spec)
            table[index] = address
            made.append((slot, array_, address))
        scalars = self.scalars(numbers)
        where = scalars.buffer_info()[0]
        if self.touched:
            held = {slot: (array_, spec) for (slot, array_, _), (_, spec, _) in zip(made, self.outputs, strict=True)}
            arrays = {}
            for stretch in self.stretches[:-1]:
                self._stretch(stretch, table, where, values, code, block, held, arrays)
            if len(self.stretches[-1]) == 4:
                self._stretch(self.stretches[-1], table, where, values, code, block, held, arrays)
                last = None
            else:
                last = self.stretches[-1]
            for slot, index in self.givens:
                made.append((slot, arrays[index], None))
        else:
            last = self.stretches[-1] if self.stretches else None
        addresses = array("q", table)
        at = addresses.buffer_info()[0]
        run = threads.run
        program, steps = (last[0].buffer_info()[0], last[1]) if last is not None else (0, 0)
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

    def scalars(self, numbers):
        """The cells that kernels read numbers from: those of the instructions first, then the plan's constants."""
        scalars = array("q")
        if self.cells:
            try:
                packed = struct.pack(self.cells, *numbers)
            except struct.error:                  # a float for an integer, or an integer out of range
                packed = struct.pack(self.cells, *[cell(n, d) for n, (_, _, d)
                                                   in zip(numbers, self.numbers, strict=True)])
            scalars.frombytes(packed)
        scalars.extend(self.fixed)
        return scalars

    def _stretch(self, stretch, table, where, values, code, block, held, arrays):
        if len(stretch) == 2:
            addresses = array("q", table)
            threads.run(stretch[0].buffer_info()[0], stretch[1], addresses.buffer_info()[0], where)
            return
        index, operands, results, own = stretch
        entry, _, _, params, _ = code[index]
        given = []
        for buffer, kind, offset in operands:
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
        try:
            outs = execute(entry, given, params, own)
        except Exception as error:
            raise Failed from error
        for number, buffer in results:
            arrays[buffer.index] = outs[number]
            table[buffer.index] = outs[number].__array_interface__["data"][0]

    # --- the printed form -------------------------------------------------------------------------------------------

    def _described(self):
        """The steps as people see them."""
        names = {id(self.of[id(node)]): f"%{slot}" for slot, node in self.graph.slots.items() if id(node) in self.of}
        names.update({id(b): f"%{b.slot}" for b in self.buffers if b.kind == "input"})
        names.update({id(b): f"w{i}" for i, b in enumerate(b for b in self.buffers if id(b) not in names)})

        def named(buffers):
            return [names[id(b)] + (f" in {names[id(_owner(b))]}" if b.taken is not None else "") for b in buffers]

        steps = []
        for at, step in enumerate(self.steps):
            if step is None:
                continue
            if step[0] == "reference":
                node = step[1].opaque
                kind, words, sizes, code = "reference", (node.attr[1].op.__name__,), (), None
                reads, writes = map(self._buffer, node.args), [b for _, b in self.results[at]]
            elif step[0] == "library":
                node, touched = step[1].opaque, step[3]
                made = (node,) if node.op == "gemm" else node.attr[2]
                name = node.op if node.op == "gemm" else node.attr[0]
                sizes = (*node.shape, touched[0].shape[-1]) if node.op == "gemm" else made[0].shape
                kind, words, code = "library", (name,), step[2].fn
                reads, writes = map(self._buffer, touched[:len(node.args)]), [self._buffer(m) for m in made]
            else:
                nest, touched = step[2], step[2].buffers()
                nodes = sorted(nest.group.nodes, key=lambda n: n.number)
                words = tuple(n.attr[0] if n.op in REDUCING else n.op for n in nodes if n.op not in ("cast", "copy"))
                kind, sizes, code = "kernel", tuple(nest.sizes_of_walk()) or (1,), nest.kernel
                reads, writes = ([self._buffer(r.node) for r in touched if r.store is way] for way in (False, True))
            keeps = [b for b in writes if b.kind == "working" or b.slot is None]
            gives = [b for b in writes if b not in keeps]
            steps.append(Step(len(steps), kind, words or ("copy",), sizes, code, *map(named, (reads, keeps, gives))))
        return steps

    @property
    def kernels(self):
        """The steps that are generated code."""
        return [step for step in self.steps if step.kind == "kernel"]

    def __str__(self):
        return "\n".join(map(str, self.steps))

    __repr__ = __str__


def give(values, made, takes):
    """Hand out what a plan has made, and what stands in memory that it took over."""
    for slot, array_, address in made:
        value = values[slot]
        value.array, value._memory = array_, None
        if address is not None:
            value._address = address
        value.trace = None
    for slot, spec, source in takes:
        value, old = values[slot], values[source]
        if value.trace is not None:
            value.array = old.look(spec, 0) if old.spec is not spec else old.array
            value._memory = None
            value.trace = None


def _needed(code, wanted):
    """For each instruction, whether a wanted slot needs it."""
    live, needed = set(wanted), [False] * len(code)
    for i in range(len(code) - 1, -1, -1):
        entry, slots, _, _, first = code[i]
        if any(s in live for s in range(first, first + len(entry.outs))):
            needed[i] = True
            live.update(slots)
    return needed


def _flat(old):
    """All the memory of a node, one element after the other."""
    if old.op == "input":
        slot, spec, _ = old.attr
        flat = make_spec(spec.dtype, (spec.numel,))
        return Node("input", spec.dtype, flat.shape, (), (slot, flat, 0))
    spec = old.layout or make_spec(old.dtype, old.shape)
    flat = make_spec(spec.dtype, (spec.numel,))
    return Node("view", spec.dtype, flat.shape, (old,), (flat, 0))


def _apart(source, view, offset):
    """Whether a source lies wholly before or behind the `view` at `offset` of the same memory."""
    _, strides, start = seen_memory(source)
    if source.dtype is not view.dtype:
        return False
    end = start + sum(s * (n - 1) for s, n in zip(strides, source.shape, strict=True))
    stop = offset + sum(s * (n - 1) for s, n in zip(view.strides, view.shape, strict=True))
    return end < offset or stop < start


def _owner(buffer):
    while buffer.taken is not None:
        buffer = buffer.taken
    return buffer


def _aligned(nbytes):
    return nbytes + 63 & ~63


def _take(free, size):
    """An offset of `size` free bytes, the smallest hole that will do; None if there is none."""
    best = min((hole for hole in free if hole[1] >= size), key=lambda hole: hole[1], default=None)
    if best is None:
        return None
    free.remove(best)
    if best[1] > size:
        free.append((best[0] + size, best[1] - size))
    return best[0]


def _give(free, offset, size):
    """Put a hole back, melted with its neighbours."""
    for hole in list(free):
        if hole[0] + hole[1] == offset:
            free.remove(hole)
            offset, size = hole[0], size + hole[1]
        elif offset + size == hole[0]:
            free.remove(hole)
            size += hole[1]
    free.append((offset, size))


def _grain(tiles, cost):
    """How many tiles a thread takes at a time; all of them where the work is little."""
    if tiles * cost < 2 * PIECE:
        return tiles
    return max(1, int(PIECE // cost), -(-tiles // 64))


def _words(words):
    return array("q", words)
