"""Plans: what a trace becomes.

    instructions → graph → groups → steps over buffers → program
                   lower.py  fuse.py  steps.py  buffers.py  running/program.py

A plan is a list of steps in order, kernels and library functions that run natively and operations left to the
reference executor, and the program that runs them. Plans are cached under the trace's own instructions.

Note [Compiled beforehand]: LLVM takes longer over a long trace than the trace takes to run instruction by instruction,
by the same bodies and with the same bits (running/interpret.py). So its kernels are compiled in the background;
meanwhile it is run like that, and the plan waits until they are there. That is for `auto`: a pinned executor, and
a thread that asks for a plan waits for the compiler.

Note [All or nothing]: until a plan is through, no Value changes, so a failure half-way loses nothing: the trace is
still there. Memory of dead inputs is written over only by the last stretch of native steps, which cannot fail. What an
effect gave is the exception: it is handed out as soon as it has happened; see Note [Effects] in running/effects.py.
"""
import gc
from bisect import bisect_right
from functools import partial
from heapq import heappop, heappush
from math import ceil
from typing import NamedTuple

from ...backends.backend import DeviceFailed, NoCompiler, NotCompiled
from ...base import dtypes, observers, settings
from ...base.locks import new_lock
from ...base.shapes import contiguous_strides
from ...base.spec import CPU, spec as make_spec
from ..recording.instructions import Instruction, needed_for
from ..recording.update import update
from ..running.effects import perform
from ..running.interpret import do_without, forget_programs, say_mistake, say_not_compiled, say_tight
from ..running.key import key_of
from ..running.program import Failed, Kernels, Program
from ..running.single import forget_single_runs
from .buffers import Buffers
from .carry import carried
from .epilogues import join_relus
from .families import forget_families, planned_by_family
from .fuse import Fuser, Group, memory as seen_memory, root
from .lower import LOOP_TYPE, TraceGraph, TraceNode, Unfusable, layouts
from .moving import with_moving_offsets
from .nest import Nest
from .padding import pad_rows
from .recurrence import Repeated
from .segments import Segment, segments_of
from .steps import CallbackStep, CopyStep, KernelStep, LibraryStep, RecurrenceStep, ReferenceStep, TransferStep
from .tiers import Sightings, has_a_choice, time_to_compile, worth_a_plan

MAX_REMEMBERED_TRACES = 4096
MAX_REMEMBERED_INSTRUCTIONS = 100_000    # of those traces together: a key holds some two KiB for each, with its specs
_plans: dict = {}                # key of a trace → Plan, or False where it is left to the reference
_sightings = Sightings()         # of traces without a plan
_remembered_instructions = 0     # of the traces in both
_finishing = new_lock()


def attempt(trace, key, wanted, free, whole=True):
    """Run `trace`, of which `key_of` gave these, by a plan and empty it; False where it is to be run instruction by
    instruction, but for its `segments`. `whole`: it is no Segment of another.

    Whether a trace is planned is decided in tiers.py, by its sizes and how often it was seen, never by time. The bits
    are the same: see running/interpret.py.
    """
    plan = _plans.get(key)
    seen = _sightings.get(key) if plan is None else None
    if whole:
        _sightings.count(trace, seen, plan is not None)
    if plan is None:
        if seen is None:
            _make_room(len(trace.code))
        if settings.executor != "native" and not worth_a_plan(trace, seen, _sightings):
            times = _sightings.note(key)
            if whole:
                trace.segments = segments_of(trace, times)
            return False
        _sightings.pop(key, None)
        _sightings.bets += whole and trace.trains and (seen is None or seen.times == 1)
        spare = time_to_compile(trace, seen) if settings.executor != "native" and has_a_choice(trace) else None
        plan = _planned(trace.code, [v and v.spec for v in trace.values], key, wanted, free, spare)
        if plan is None:                                     # next time there may be more memory
            return False
        _plans[key] = plan
    if plan is False or plan.waiting is not None and not _finished(key, plan):
        return False
    code = trace.code
    try:
        if whole:
            plan.bound.run_trace(trace, observers.during_runs, False,
                                 partial(perform, trace) if plan.program.has_effects else None)
        else:                                                # no effect is in a segment
            plan.bound.run_segment(trace, observers.during_runs)
    except (Failed, MemoryError):
        return False
    except DeviceFailed:                                     # every look raises it, now and every time
        raise
    except Exception as error:
        say_mistake(error, f"a trace of {len(code)} instructions, from {code[0].entry.op.__name__} on,")
        _plans[key] = False
        return False
    trace.ran = plan
    return True


def attempt_segment(trace, start, end, needed, holders):
    """Run these instructions of a trace that runs by a plan of their own; False where they are to be run one by one.
    `needed`, `holders`: see Segment."""
    segment = Segment(trace, start, end, needed, holders)
    if not segment.code:                                     # none of it is needed
        segment.clear()
        return True
    return attempt(segment, *segment.found, whole=False)


def plan_alone(instruction, reads, offsets, specs, often):
    """The plan of an instruction that `reads` these slots, inputs of these `specs` that it may not write over; its
    `offsets` are those of a key. None where there is none yet: its kernels are compiled, or neither has it run `often`
    without a plan nor have those of its family. False where it has none that is one native call. See Note [Single
    instructions] in running/single.py."""
    plan = planned_by_family(instruction, reads, offsets, _plan_alone)
    if plan is False:
        return _plan_alone(instruction, reads, offsets, specs) if often else None
    return plan


def _plan_alone(instruction, reads, offsets, specs):
    entry, first = instruction.entry, len(specs)
    wanted = tuple(range(first, first + len(entry.outs)))
    key = ((entry, reads, offsets),), specs, wanted, ()
    plan = _plans.get(key)
    if plan is None:
        _make_room(1)
        _sightings.pop(key, None)
        code = [Instruction.of(entry, reads, instruction.offsets, instruction.params, first, instruction.site)]
        plan = _planned(code, [*specs, *entry.outs], key, wanted, (), None if settings.executor == "native" else 0)
        if plan is None:
            return None
        _plans[key] = plan
    if plan is False:
        return False
    if plan.waiting is not None and not _finished(key, plan):
        return None
    return plan if plan.bound.direct else False


def _make_room(instructions):
    """Forget everything before a new trace of so many instructions where too much is remembered."""
    global _remembered_instructions
    _remembered_instructions += instructions
    if len(_plans) + len(_sightings) >= MAX_REMEMBERED_TRACES \
            or _remembered_instructions >= MAX_REMEMBERED_INSTRUCTIONS:
        _plans.clear()
        _sightings.clear()
        _remembered_instructions = instructions


def made_for(trace):
    """The plan by which `trace` would run natively now: made where there is none, and not kept."""
    with trace.lock:                                         # no thread runs it meanwhile
        key, wanted, free = key_of(trace)
        plan = _plans.get(key)
        if not plan or plan.waiting is not None:
            plan = new_plan(trace.code, [v and v.spec for v in trace.values], wanted, free, parts=key[0])
        return plan


def new_plan(code, specs, wanted, free, spare=None, parts=()):
    """A new Plan, of which observers are told."""
    if observers.planned is None:
        return Plan(code, specs, wanted, free, spare, parts)
    start = observers.clock()
    plan = Plan(code, specs, wanted, free, spare, parts)
    if (tell := observers.planned) is not None:
        tell(observers.Planning(plan, tuple(code), start, observers.clock()))
    return plan


def _finished(key, plan):
    """Whether a plan whose kernels are compiled in the background can run now."""
    with _finishing:                                         # another thread may have the same trace
        waiting = plan.waiting
        if waiting is None:
            return True
        if settings.executor != "native" and not waiting[1].are_ready():
            return False
        try:
            plan.finish()
            return True
        except BaseException as error:                       # it is made anew, by a thread that waits
            _plans.pop(key, None)
            if not isinstance(error, (Unfusable, MemoryError)):
                raise
            return False


def _planned(code, specs, key, wanted, free, spare):
    """A new plan; False where there is none, None for want of memory."""
    collects = gc.isenabled()
    try:
        gc.disable()                                         # a graph is no garbage: to look through it took a fifth
        return new_plan(code, specs, wanted, free, spare, key[0])
    except Unfusable:
        return False
    except MemoryError as error:
        say_tight(str(error))
        return None
    except NoCompiler as error:
        do_without(error)
        return False
    except NotCompiled as error:                             # a step of the library, which a body asked for
        say_not_compiled(error, code[0].entry.op.__name__, code[0].entry.device.backend)
        return False
    except DeviceFailed:
        raise
    except Exception as error:
        say_mistake(error, f"a trace of {len(code)} instructions, from {code[0].entry.op.__name__} on,")
        return False
    finally:
        if collects:
            gc.enable()


def _asked(backend, name, dtype, args, outs, params):
    """(the calls of a library function over nodes, whether over copies of the operands, and of the results); None where
    there are none, or they could not be compiled."""
    laid, made = ([(a.shape, seen_memory(a)[1]) for a in nodes] for nodes in (args, outs))
    try:
        for copied, moved, *both in layouts(laid, made):
            calls = backend.library(name, dtype, *both, params)
            if calls is not None:
                return calls, copied, moved
    except NotCompiled as error:
        say_not_compiled(error, name, backend)
    return None


def forget():
    """Plan and compile everything anew: another processor was chosen."""
    _plans.clear()
    forget_single_runs()
    forget_families()
    CPU.backend.forget()
    forget_programs()


def _avoid(why, graph, code, materialised, left):
    """Note what the next try does otherwise: a node put into memory, or else an instruction left to the reference."""
    if why.group is not None:
        more = {bisect_right(graph.begins, node.number) - 1 for node in why.group if node.number < graph.end} - left
        left |= more
        return bool(more) and all(code[index].entry.op is not update for index in more)
    if why.node is None:
        return False
    number = ceil(why.node.number)                # what was made for a node has a number shortly before its own
    if why.materialise and number - graph.start not in materialised and len(materialised) < 8:
        materialised.add(number - graph.start)
        return True
    index = bisect_right(graph.begins, number) - 1
    if index < 0 or index in left or len(left) >= 8 or code[index].entry.op is update:
        return False
    left.add(index)
    return True


class Draft(NamedTuple):
    """The parts of a plan that is not ready to run."""

    steps: list
    buffers: Buffers
    graph: TraceGraph


def drafted(graph, wanted, free, materialised=()):
    """The Draft of a plan that gives the slots `wanted`, and may write over the inputs `free`."""
    nodes = join_relus(Fuser.needed(graph, wanted), wanted, graph)
    pad_rows(nodes, {id(graph.slots.get(slot)) for slot in wanted}, graph.device_of)
    steps = gathered(Cutter(graph, wanted, nodes, materialised).steps)
    buffers = Buffers(graph, wanted, free)
    buffers.follow(steps, graph)
    steps = buffers.share(steps)
    buffers.lay_out()
    return Draft(steps, buffers, graph)


class Plan:
    """How one trace runs. Built from its instructions, the specs of its slots, and what is wanted and what is free.

    `spare`: so many nanoseconds it may take. Where its kernels take longer to compile, it is left `waiting`: they are
    compiled in the background, and `finish` makes it ready. None: they are waited for. See Note [Compiled beforehand].
    `parts`, of its key, say which offsets move from run to run.
    """

    bound = None                  # the BoundProgram that runs traces by it; None while it is `waiting`
    is_native = False             # whether all of it is native, without effects

    def __init__(self, code, specs, wanted, free, spare=None, parts=()):
        code = with_moving_offsets(code, parts)
        needed, materialised, left = set(needed_for(wanted, code)[0]), set(), set()
        while True:
            graph = TraceGraph(code, specs, needed, left)
            try:
                draft = drafted(graph, wanted, free, materialised)
                self.waiting = draft, Kernels(draft.steps, draft.buffers)
                if spare is not None and self.waiting[1].prepare(spare):
                    return
                self.finish()
                return
            except Unfusable as why:
                if not _avoid(why, graph, code, materialised, left):
                    raise

    def finish(self):
        """Make a plan that is `waiting` ready to run; Unfusable where a kernel could not be compiled."""
        (steps, buffers, graph), kernels = self.waiting
        kernels.compile()
        self.program = Program(steps, buffers, graph.numbers)
        self.bound = self.program.bind()
        self.is_native = self.bound.is_native
        named = buffers.names(graph)
        for number, step in enumerate(steps):
            step.settle(number, graph, buffers, named)
        self.steps, self.waiting = steps, None

    @property
    def kernels(self):
        """The steps that are generated code."""
        return [step for step in self.steps if step.kind == "kernel"]

    @property
    def working(self):
        """Bytes of working memory that a run needs."""
        return sum(nbytes for _, nbytes, _ in self.program.blocks)

    def __str__(self):
        return "\n".join(map(str, self.steps))

    __repr__ = __str__


class Cutter:
    """Cuts a graph into groups, and the `steps` that they are."""

    def __init__(self, graph, wanted, nodes, materialised):
        self.steps = []
        for group in carried(Fuser(graph, wanted, nodes, materialised).groups):
            self._cut(group)

    def _add(self, step):
        step.at = len(self.steps)
        self.steps.append(step)

    def _cut(self, group):
        node = group.opaque
        if node is None:
            nest = Nest(group)
            if 0 not in nest.sizes_of_walk() and any(read.store for read in nest.reads):   # or it is made elsewhere
                for copy, source in nest.turned:
                    self._add(KernelStep(group, _copy(source, copy, None, 0, group.device)))
                self._add(KernelStep(group, nest))
        elif node.op in ("gemm", "library"):
            self._library(group, node)
        elif node.op == "update":
            self._update(group, node)
        elif node.op == "concat":
            laid, start = node.layout or make_spec(node.dtype, node.shape), 0
            for part in node.args:
                view = make_spec(node.dtype, part.shape, laid.strides)
                self._add(KernelStep(group, _copy(part, node, view, start * laid.strides[node.attr],
                                                    group.device)))
                start += part.shape[node.attr]
        elif node.op == "transfer":
            self._add(TransferStep(group))
        else:
            self._add((CallbackStep if node.attr[1].op.effect else ReferenceStep)(group))

    def _recurrence(self, group, node):
        """An operation repeated along a sequence: one step of it is planned here."""
        _, walk, parts = node.attr
        args, operands = list(node.args), []
        for number, a in enumerate(args):
            _, strides, _ = seen_memory(a)
            if walk.is_state(number) and tuple(strides) != contiguous_strides(a.shape):
                args[number] = copy = TraceNode("copy", a.dtype, a.shape, (a,))
                copy.group = group
                self._add(KernelStep(group, _copy(a, copy, None, 0, group.device)))
            operands.append((a.dtype, a.shape, strides))
        entry, first = walk.entry(operands), len(operands)
        specs, results = [*entry.input_specs, *entry.outs], tuple(range(first, first + len(entry.outs)))
        code = [Instruction.of(entry, tuple(range(first)), entry.zeros, walk.params, first, None)]
        try:
            draft = drafted(TraceGraph(code, specs, {0}), results, ())
        except Unfusable as why:
            raise Unfusable(f"a step of {walk.step.__name__}: {why}", node) from why
        if not all(step.native for step in draft.steps):
            raise Unfusable(f"a step of {walk.step.__name__} that is left to the reference", node)
        repeated = Repeated(walk, draft, entry, operands)
        room = TraceNode("copy", dtypes.uint8, (max(repeated.room_bytes, 1),), ())
        room.group = group
        self._add(RecurrenceStep(group, repeated, draft, args, [*parts, room]))

    def _library(self, group, node):
        if node.op == "library" and node.attr[0] == "recurrence":
            self._recurrence(group, node)
            return
        name, params, parts = ("gemm", (), (node,)) if node.op == "gemm" else node.attr
        asked = _asked(group.device.backend, name, node.dtype, node.args, parts, params)
        if asked is None:
            raise Unfusable(f"{name} on this layout", node)
        calls, copied, moved = asked
        args, made = node.args, parts
        if copied:
            args = [TraceNode("copy", a.dtype, a.shape, (a,)) for a in args]
            for copy, source in zip(args, node.args, strict=True):
                copy.group = group
                self._add(KernelStep(group, _copy(source, copy, None, 0, group.device)))
        if moved:
            made = [TraceNode("copy", p.dtype, p.shape, ()) for p in parts]
            for copy in made:
                copy.group = group
        scratch = max(getattr(call, "scratch", 0) for call in calls)
        if scratch:                               # working memory for all of them, behind the results
            room = TraceNode("copy", dtypes.uint8, (scratch,), ())
            room.group = group
        for call in calls:
            self._add(LibraryStep(group, call, args, [*made, room] if scratch else made))
        for copy, part in zip(made if moved else (), parts, strict=moved):
            self._add(KernelStep(group, _copy(copy, part, part.layout, 0, group.device)))

    def _update(self, group, node):
        """An in-place write into part of a storage: the source goes over the old contents, or over a copy of them."""
        old, source = node.args
        view, offset = node.attr
        if view.dtype not in LOOP_TYPE or source.dtype is not view.dtype or old.dtype not in LOOP_TYPE:
            raise Unfusable(f"a write of {source.dtype} into {view.dtype} in memory of {old.dtype}")
        self._add(CopyStep(group, _copy(_flat(old), node, None, 0, group.device), old, source))
        if view.numel:
            self._add(KernelStep(group, _copy(source, node, view, offset, group.device)))


def gathered(steps):
    """The steps in an order in which those of one device stand together, as far as they do not wait for others.

    Steps of a device in a row are one program, which costs little to run, and on a GPU may become one graph; the last
    one may write over what is no longer needed. So it is made from the end, with the device of the last step, on as
    long as it goes. (An optimizer counts its steps on the CPU, say, amid those of a GPU.)
    """
    targets = {(step.native, step.device) for step in steps}
    if len(targets) < 2 or not any(native and device is not CPU for native, device in targets):
        return steps
    units, waits = units_of(steps)
    readers = [0] * len(units)                    # how many of those that wait for a unit have no place yet
    for some in waits:
        for number in some:
            readers[number] += 1
    ready: dict = {}                              # (native, device) → the units that nothing waits for any more
    placed: list = []

    def put_off(number):
        step = units[number][0]
        heappush(ready.setdefault((step.native, step.device), []), -number)

    for number, count in enumerate(readers):
        if not count:
            put_off(number)
    chosen = None
    while len(placed) < len(units):
        if not ready.get(chosen):
            chosen = min((heap[0], at) for at, heap in enumerate(ready.values()) if heap)[1]
            chosen = list(ready)[chosen]
        number = -heappop(ready[chosen])
        placed.append(number)
        for other in waits[number]:
            readers[other] -= 1
            if not readers[other]:
                put_off(other)
    steps = [step for number in reversed(placed) for step in units[number]]
    for at, step in enumerate(steps):
        step.at = at
    return steps


def units_of(steps):
    """(lists of steps that stay together: those of a group; for each, the numbers of those that it waits for)"""
    units, of_group = [], {}
    for step in steps:
        if id(step.group) not in of_group:
            of_group[id(step.group)] = len(units)
            units.append([])
        units[of_group[id(step.group)]].append(step)
    waits, first, effect = [set() for _ in units], {}, None
    for number, unit in enumerate(units):
        for step in unit:
            for node in map(_in_memory, step.touched()):
                if node.op != "input":            # what comes in is there
                    made = of_group[id(node.group)] if node.op == "result" else first.setdefault(id(node), number)
                    waits[number].add(made)
        if isinstance(unit[0], CallbackStep):
            waits[number].add(number if effect is None else effect)
            effect = number
        waits[number].discard(number)
    return units, waits


def _in_memory(node):
    """The node in whose memory a node stands."""
    node = root(node)
    return root(node.args[0]) if node.op == "view" else node


def _copy(source, target, view, offset, device):
    """A kernel that copies `source` to `target`: to all of it, or to a view of it."""
    group = Group(0, device)
    shape = source.shape if view is None else view.shape
    copy = TraceNode("copy", source.dtype, shape, (source,))
    copy.axes = [(group.new_dim(n),) if n != 1 else () for n in shape]
    copy.group, copy.stored, copy.layout = group, True, view
    group.nodes.append(copy)
    nest = Nest(group)
    for read in nest.reads:
        if read.store:
            read.node, read.offset = target, offset
    return nest


def _flat(old):
    """All the memory of a node, one element after the other."""
    if old.op == "input":
        slot, spec, _ = old.attr
        flat = make_spec(spec.dtype, (spec.numel,))
        return TraceNode("input", spec.dtype, flat.shape, (), (slot, flat, 0))
    spec = old.layout or make_spec(old.dtype, old.shape)
    flat = make_spec(spec.dtype, (spec.numel,))
    return TraceNode("view", spec.dtype, flat.shape, (old,), (flat, 0))
