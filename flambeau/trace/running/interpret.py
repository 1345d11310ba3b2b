"""Run one instruction over arrays, with the bits that the native executor gives.

A trace that is seen for the first time is not worth a plan, and NumPy would do; but a program that repeats an
expression must see one answer. So an operation that has a `body` is run by it here too: the graph that a plan would be
made of is gone through node by node. NumPy and the machine agree on what is rounded correctly (sums, products,
quotients, roots, conversions); reductions follow their own order (see Note [One order] in planning/reduction_order.py);
and what has a rounding of its own (exp and its kin, fused multiply-adds, products of matrices, convolutions) is the
compiled function that a plan calls. Those are few, and compiled once; what would take long, a kernel for every new
expression, is not needed.
"""
from array import array
from functools import partial
from itertools import accumulate
from math import prod

import numpy as np

from ...backends import reference
from ...backends.backend import NoCompiler, NotCompiled, NotPrecompiled, Task
from ...backends.cpu.memory import allocator
from ...backends.devices import execute as by_reference
from ...base import dtypes, settings
from ...base.errors import warn
from ...base.shapes import contiguous_strides
from ...base.spec import CPU, spec as make_spec
from ...loops.ir import Access, Expr, Kernel, Launch, Pass
from ..planning.fuse import Fuser, memory as seen_memory
from ..planning.lower import HALVES, LOOP_TYPE, TraceGraph, Unfusable, cell, layouts
from ..planning.reduction_order import order_of
from ..recording.instructions import Instruction
from .single import body_programs as _programs

MAX_REMEMBERED_ENTRIES = 8192
LARGE_NUMEL = 8192             # elements of an array that is worth letting go of before the end
HASTY_NUMEL = 1 << 16          # fewer elements are sooner done by code that is made quickly
AFTER_ALL_STEPS = 1 << 60      # the last reader of a result
SHARED_ARRAY_KINDS = ("reshape", "expand", "permute", "copy", "output")  # nodes whose array stands in that of another
_functions: dict = {}         # (backend, word, type) → a compiled launch over arrays
NO_CELLS = array("q")         # the numbers of a program that has none
_said: list = []              # the first that could not be compiled, once it was said
_tight: list = []             # whether it was said that there is no room for native code


def execute(entry, arrays, params, own=False):
    """What the reference executor gives, but with the native executor's bits.

    Without room for that (LLVM wants tens of megabytes, a body holds more arrays at once than `ref` may) the reference
    is asked, which may do with less: other last digits, said once, are better than no result. Not so where the same
    digits were asked for, with `use_deterministic_algorithms`.
    """
    tight = None
    if entry.compiles and settings.executor != "reference" and _programs.get(entry, False) is not None:
        try:
            return _run_program(entry, arrays, params)
        except NoProgram:
            pass
        except NoCompiler as error:
            do_without(error)
        except NotCompiled as error:
            say_not_compiled(error, entry.op.__name__, entry.device.backend)
            _programs[entry] = None
        except MemoryError as error:
            if settings.deterministic:
                raise
            tight = str(error)            # not the error: a frame that holds its own keeps all that is in it alive
        except Exception as error:
            say_mistake(error, entry.op.__name__)
            _programs[entry] = None
    out = by_reference(entry, arrays, params, own)
    if tight is not None:
        say_tight(tight)
    return out


def is_prepared(entry):
    """Whether `execute` has all that it needs to run an entry."""
    return entry in _programs or not entry.compiles


class NoProgram(Exception):
    """The operation has no body, or none for these operands."""


def _run_program(entry, arrays, params):
    """The results of `entry` by its program, fitted to their specs; a second time where the first found no room."""
    for once_more in (True, False):
        try:
            program = _programs.get(entry, False)
            if program is False:
                if len(_programs) >= MAX_REMEMBERED_ENTRIES:
                    _programs.clear()
                program = _programs[entry] = _program(entry, params)
            if program is None:
                raise NoProgram
            if program.nbytes > reference.CHECKED_RESULT_BYTES and not allocator.make_room(program.nbytes):
                raise allocator.failure(program.nbytes)
            made = program.run(arrays, params)
            theirs, outs = [*arrays, *program.constants], []         # not to be handed out, or not once more
            for array, spec in zip(made, entry.outs, strict=True):
                outs.append(reference.fit(array, spec, theirs))
                theirs.append(outs[-1])
            return outs
        except MemoryError:
            made = theirs = outs = None
            if not (once_more and allocator.empty_cache()):
                raise


def do_without(error):
    """There is no compiler: say so, and leave everything to the reference executor from now on."""
    if settings.executor == "native":
        raise error
    settings.executor = "reference"
    mend = "unset FLAMBEAU_PRECOMPILED where llvmlite is installed" if settings.precompiled else "reinstall llvmlite"
    warn(f"{error}. Everything runs on the reference executor, which is slower: {mend}, or set "
         "FLAMBEAU_EXECUTOR=reference to say that this is fine.")


def say_not_compiled(error, what, backend):
    """Say it once: the results are right, but slow, and the user should know."""
    if not _said:
        _said.append(what)
        if isinstance(error, NotPrecompiled):
            warn(f"code for {what} was not compiled beforehand, and there is no compiler here. It runs on the "
                 "reference executor, which is slower: have a program that does the same, with these shapes, run by "
                 f"`flambeau precompile`. {error}")
            return
        warn(f"code for {what} could not be compiled for {backend.processor()}. It runs on the "
             "reference executor, which is slower; nothing else is affected. This is a mistake in Flambeau: please "
             f"report it, with what `flambeau info` prints, and what LLVM says: {error}")


def say_mistake(error, what):
    """Say it once: something of ours failed on the way to native code, and the reference has done the work."""
    if not _said:
        import traceback  # with what colours it, more than the rest of the import
        _said.append(what)
        warn(f"{what} could not be made native code: {type(error).__name__}: {error}. It runs instruction by "
             "instruction, which is slower; nothing else is affected. This is a mistake in Flambeau: please report it, "
             "with what `flambeau info` prints, and this traceback:\n" + "".join(traceback.format_exception(error)))


def say_tight(words):
    """Say it once: there was no room for native code, and in which words."""
    if not _tight:
        _tight.append(True)
        said = (words or "there is none left").splitlines()[0].removesuffix(".")
        warn(f"no memory to compile with: {said}. This part runs instruction by instruction, and on the reference "
             "executor what cannot do without the compiler, which is slower and may give other last digits; what was "
             "compiled before still runs natively.")


def forget_programs():
    """Compile everything anew: another processor was chosen."""
    _programs.clear()
    _functions.clear()


class BodyProgram:
    """The nodes of a body in order: what is there from the start, and for each other a function of its arguments."""

    def __init__(self, graph, first, count, backend):
        nodes = Fuser.needed(graph, range(first, first + count))
        index_of = {id(node): i for i, node in enumerate(nodes)}
        self.start, self.inputs, self.numbers, self.steps = [None] * len(nodes), [], [], []
        self.outs = [index_of[id(graph.slots[slot])] for slot in range(first, first + count)]
        made = []                                 # (index, the function, the indices of its arguments)
        for i, node in enumerate(nodes):
            if node.op == "input":
                self.inputs.append((i, node.attr[0]))
            elif node.op == "number":
                _, number, dtype = graph.numbers[node.attr]
                self.numbers.append((i, number, dtype))
            elif node.op == "const":
                self.start[i] = _number(node.attr, node.dtype)
            elif node.op == "index":
                self.start[i] = np.arange(node.numel).reshape(node.shape)
            else:
                made.append((i, _step(node, backend), tuple(index_of[id(a)] for a in _read(node, backend))))
        self.constants = [array for array in self.start if array is not None]
        self._time(nodes, made)

    def _time(self, nodes, made):
        """Let go of every array after its last reader, and count the most bytes that are held at once."""
        source = list(range(len(nodes)))          # whose memory an array stands in
        last = dict.fromkeys(self.outs, AFTER_ALL_STEPS)
        for at, (i, _, args) in enumerate(made):
            if nodes[i].op in SHARED_ARRAY_KINDS:
                source[i] = source[args[0]]
            for a in args:
                last[a] = max(last.get(a, at), at)
        holders: dict = {}                        # index → the last reader of what stands in its memory
        for i, _, _ in made:
            holders[source[i]] = max(holders.get(source[i], -1), last.get(i, -1))
        ends: dict = {}
        self.nbytes = live_bytes = 0
        for at, (i, step, args) in enumerate(made):
            if source[i] == i:
                size = nodes[i].numel * nodes[i].dtype.itemsize if nodes[i].op != "library" else \
                    sum(part.numel * part.dtype.itemsize for part in nodes[i].attr[2])
                live_bytes += size
                ends.setdefault(holders[i], []).append(size)
            self.nbytes = max(self.nbytes, live_bytes)
            live_bytes -= sum(ends.pop(at, ()))
            large = tuple({a for a in args if last[a] == at and nodes[a].numel > LARGE_NUMEL})
            self.steps.append((i, step, args, large))

    def run(self, arrays, params):
        """The arrays of the results."""
        values = self.start.copy()
        for i, slot in self.inputs:
            values[i] = arrays[slot]
        for i, number, dtype in self.numbers:
            values[i] = _number(params[number], dtype)
        for i, step, args, done in self.steps:
            if len(args) == 1:
                values[i] = step(values[args[0]])
            elif len(args) == 2:
                values[i] = step(values[args[0]], values[args[1]])
            else:
                values[i] = step(*[values[a] for a in args])
            for a in done:
                values[a] = None
        return [values[i] for i in self.outs]


def _number(value, dtype):
    """A number as an array without dimensions."""
    return np.array(cell(value, dtype), dtype.compute)


def _program(entry, params):
    n = len(entry.input_specs)
    if entry.outs is None or not hasattr(entry.op, "body") or not entry.device.backend.interprets:
        return None
    code = [Instruction.of(entry, tuple(range(n)), (0,) * n, params, n, None)]
    try:
        graph = TraceGraph(code, [*entry.input_specs, *entry.outs], {0})
        if any(node.op == "result" for node in graph.slots.values()):
            return None
        return BodyProgram(graph, n, len(entry.outs), entry.device.backend)
    except Unfusable:                             # a product of matrices, say, on a layout that no kernel takes
        return None


def _read(node, backend):
    """The nodes whose arrays a step is given; a step of the library finds what it reads in memory."""
    if node.op == "output" or node.op == "library" and node.attr[0] == "recurrence":
        return node.args
    if node.op in ("gemm", "library"):
        return [operand for operand, _, _ in _asked(node, backend)[1]]
    return node.args


def _step(node, backend):
    """The function that makes a node's array of those of its arguments."""
    op, shape, attr = node.op, node.shape, node.attr
    if op == "fma":
        return _fma(node, backend)
    if op == "cast":
        return partial(_cast, source=node.args[0].dtype, target=node.dtype)
    if op == "reduce":
        return _reduction(node.args[0], *attr, node.order, shape, backend)
    if op == "gather":
        return partial(_gather, attr, shape)
    if op == "library":
        return _recurrence(node) if attr[0] == "recurrence" else _library_call(node, backend)
    if op == "gemm":
        return _gemm(node, backend)
    if op == "output":
        return lambda made: made[attr]
    if op == "reshape":
        return lambda x: x.reshape(shape)
    if op == "expand":
        return lambda x: np.broadcast_to(x, shape)
    if op == "permute":
        return lambda x: np.transpose(x, attr)
    if op == "concat":
        return lambda *parts: np.concatenate(parts, attr)
    if op == "from_bits":
        return lambda x, target=node.dtype.np: np.asarray(x).view(target)
    dtype = node.args[0].dtype
    table = BOOL_WORDS if dtype is dtypes.bool else FLOAT_WORDS if dtype.is_floating_point else INT_WORDS
    return table.get(op) or NUMPY_WORDS.get(op) or _compiled(op, LOOP_TYPE[node.dtype], shape, len(node.args), backend)


# --- what NumPy and the machine agree on ------------------------------------------------------------------------------


def _min(a, b):    return np.where(b < a, b, a)
def _max(a, b):    return np.where(a > b, a, b)
def _idiv(a, b):   return (a - np.fmod(a, b)) // b
def _pair(re, im):
    """The complex array with these parts."""
    out = np.empty(np.broadcast_shapes(re.shape, im.shape), dtypes.from_numpy(re.dtype).to_complex().np)
    out.real, out.imag = re, im
    return out


def _bits(x):      return np.asarray(x).view(np.int32 if x.dtype == np.float32 else np.int64)


NUMPY_WORDS = {"copy": lambda x: x, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
               "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil,
               "trunc": np.trunc, "rint": np.rint, "copysign": np.copysign, "lt": np.less, "le": np.less_equal,
               "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.bitwise_and,
               "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "shl": np.left_shift,
               "shr": np.right_shift, "idiv": _idiv, "irem": np.fmod, "where": np.where, "isnan": np.isnan,
               "bits": _bits, "re": np.real, "im": np.imag, "pair": _pair}


# which of two zeros or NaNs is taken: as in emit.py
def _float_min(a, b):
    least = _min(a, b)
    np.copyto(least, b, where=np.isnan(b))
    if CPU.backend.zeros_by_sign:
        np.copyto(least, b, where=(a == b) & np.signbit(b))
        np.copyto(least, a, where=np.isnan(a))
    return least


def _float_max(a, b):
    most = _max(a, b)
    if CPU.backend.zeros_by_sign:
        np.copyto(most, a, where=(a == b) & np.signbit(b))
    np.copyto(most, a, where=np.isnan(a))
    return most


FLOAT_WORDS = {"min": _float_min, "max": _float_max,
               "fmin": lambda a, b: np.where(np.isnan(a), b, _min(a, b)),
               "fmax": lambda a, b: np.where(np.isnan(b), a, _max(a, b))}
INT_WORDS = {"min": _min, "max": _max, "fmin": _min, "fmax": _max}
BOOL_WORDS = {**INT_WORDS, "add": np.bitwise_xor, "sub": np.bitwise_xor, "mul": np.bitwise_and,
              "neg": lambda x: x, "abs": lambda x: x}                           # whole numbers of one bit


def _cast(x, source, target):
    """`x` converted as emit.py does it."""
    if target is dtypes.bool:
        return x != 0
    if target in HALVES and not (target is dtypes.float16 and source is dtypes.float64):
        x = x.astype(np.float32)                              # what is not a float is one first, and bfloat16 rounds it
    if source.is_floating_point and not target.is_floating_point:
        wide = np.int64 if target in (dtypes.int64, dtypes.uint8) else np.int32
        x = dtypes.truncated(x, wide)
    return x.astype(target.np)


def _gather(dim, shape, source, index):
    if index.ndim == len(shape) and index.size == index.shape[dim] == shape[dim] \
            and all(n == m or d == dim for d, (n, m) in enumerate(zip(source.shape, shape, strict=True))):
        return np.take(source, index.reshape(-1), dim)    # whole slices: NumPy copies them as they lie
    index = np.broadcast_to(index, shape)
    wide = tuple(n if d != dim else source.shape[dim] for d, n in enumerate(shape))
    return np.take_along_axis(np.broadcast_to(source, wide), index, dim)


# --- reductions -------------------------------------------------------------------------------------------------------


REDUCTION_STARTS = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "top": -np.inf, "min": np.inf}
REDUCTION_JOINS = {"sum": np.add, "prod": np.multiply, "max": FLOAT_WORDS["max"], "min": FLOAT_WORDS["min"],
                   "top": lambda a, b: np.where(b > a, b, a)}
WHOLE_REDUCTIONS = {"max": np.max, "min": np.min, "top": partial(np.fmax.reduce, initial=-np.inf)}


def _reduction(arg, reduction, dims, order, shape, backend):
    """A function that reduces an array like that of the node `arg`."""
    dtype = arg.dtype
    if reduction in ("any", "all"):
        return partial(getattr(np, reduction), axis=dims, keepdims=True)
    if reduction.startswith("arg"):
        return partial(getattr(np, reduction), axis=dims[0], keepdims=True)
    if dtype is dtypes.bool:
        return partial(np.any if reduction in ("sum", "max", "top") else np.all, axis=dims, keepdims=True)
    if not dtype.is_floating_point:
        if reduction in ("sum", "prod"):
            return partial(getattr(np, reduction), axis=dims, dtype=dtype.np, keepdims=True)
        return partial(np.min if reduction == "min" else np.max, axis=dims, keepdims=True)
    in_order = _in_order(reduction, order, arg.shape, shape, dtype.np, backend)
    if reduction not in WHOLE_REDUCTIONS:
        return in_order

    def quickly(x):                               # no rounding: the order shows in the sign of a zero alone
        out = WHOLE_REDUCTIONS[reduction](x, axis=dims, keepdims=True)
        return out if out.all() else in_order(x)

    return quickly


def _in_order(reduction, order, given, shape, dtype, backend):
    """A function that reduces floats of the shape `given` to `shape` as `order` says."""
    turn = [*(d for d in range(len(given)) if d not in order.dims), *order.dims]
    turn = None if turn == list(range(len(given))) else turn
    sizes = [given[d] for d in order.dims]
    long, first, inner = prod(sizes), prod(sizes[:order.first]), prod(sizes[len(sizes) - order.inner:])
    count, step = prod(given) // long, order.block * (long // first)
    alone = order.first == len(order.dims)        # a block is a part of the only run, or goes through whole ones

    def walked(rows, inner):
        lanes = backend.vector_bytes // dtype.itemsize * order.vectors if order.along_rows else 0
        return _walked(reduction, rows, inner, lanes)

    def whole(x):
        x = x if turn is None else np.transpose(x, turn)
        return walked(x.reshape(count, long), inner).reshape(shape)

    if not order.blocks:
        return whole
    parts = (*shape, order.blocks)
    last = _in_order(reduction, order_of(parts, (len(shape),), contiguous_strides(parts), backend.reductions), parts,
                     shape, dtype, backend)

    def by_blocks(x):
        rows = (x if turn is None else np.transpose(x, turn)).reshape(count, long)
        made = [walked(rows[:, i * step:(i + 1) * step], 0 if alone else inner) for i in range(order.blocks)]
        return last(np.stack(made, 1).reshape(parts))

    return by_blocks


def _walked(reduction, rows, inner, lanes):
    """Every row reduced, in the order of its elements: by lanes along runs of `inner` (0: of all), or singly."""
    count, long = rows.shape
    start = REDUCTION_STARTS[reduction]
    if not long:
        return np.full(count, start, rows.dtype)
    if not lanes:
        return _in_turn(reduction, np.ascontiguousarray(rows.T)[None], start)[0]
    inner = inner or long
    padded = -(-inner // lanes) * lanes
    runs = rows.reshape(count, -1, inner)
    if padded != inner:
        wide = np.full((*runs.shape[:2], padded), start, rows.dtype)
        wide[:, :, :inner] = runs
        runs = wide
    out = _in_turn(reduction, np.ascontiguousarray(runs).reshape(count, -1, lanes), start)
    while out.shape[1] > 1:
        half = out.shape[1] // 2
        out = REDUCTION_JOINS[reduction](out[:, :half], out[:, half:])
    return out[:, 0]


def _in_turn(reduction, steps, start):
    """[row, step, lane], contiguous, reduced over the steps, one after the other."""
    join = REDUCTION_JOINS[reduction]
    if isinstance(join, np.ufunc) and steps.shape[2] > 1:     # NumPy goes along the lanes, which lie side by side
        return join.reduce(steps, 1, initial=start)
    *_, out = accumulate((steps[:, i] for i in range(steps.shape[1])), join, initial=np.full((), start, steps.dtype))
    return out


# --- compiled functions -----------------------------------------------------------------------------------------------


def _compiled(word, type, shape, count, backend):
    """A function of the loop language over `count` arrays, which broadcast to `shape`."""
    program = []

    def function(*args):
        args = [np.asarray(a if a.shape == shape else np.broadcast_to(a, shape), order="C") for a in args]
        out = np.empty(shape, args[0].dtype)
        if not program:
            size = prod(shape)
            launch = (_functions.get((backend, word, type)) or _function(word, type, count, backend, size)).over(size)
            program.append(backend.program([Task(launch, [(i, 0) for i in range(count + 1)])]))
        program[0].run([*map(backend.address, args), backend.address(out)], NO_CELLS)
        return out

    return function


def _function(word, type, count, backend, size):
    """A compiled launch that computes `word` of `count` arrays, element by element; `size` elements for now."""
    kernel, one = Kernel(1, 0), Pass()
    kernel.accesses = [Access(type, [1]) for _ in range(count + 1)]
    one.stores.append((count, Expr(word, type, tuple(Expr("load", type, (), i) for i in range(count)))))
    kernel.passes.append(one)
    launch = Launch(kernel, [LARGE_NUMEL], [[1] for _ in range(count + 1)])      # code that does for any size
    launch.schedule, launch.hasty = backend.schedule(launch), size < HASTY_NUMEL
    backend.compile([launch]).finish()
    _functions[backend, word, type] = launch
    return launch


def _fma(node, backend):
    """`a * b + c`, rounded once: a sum where one factor is one, as in `input + alpha * other`."""
    compiled = _compiled("fma", LOOP_TYPE[node.dtype], node.shape, 3, backend)

    def fused(a, b, c):
        if a.ndim == 0 or b.ndim == 0:
            x, y = (a, b) if a.ndim == 0 else (b, a)
            x = float(x)
            if x == 1:
                return c + y
            if x == -1:
                return c - y
        return compiled(a, b, c)

    return fused


def _lying(arg):
    """(the node, strides, offset) of an operand in memory, as the fuser would have it; whole and in order where it
    would be copied."""
    seen = seen_memory(arg)
    return seen if seen is not None else (arg, contiguous_strides(arg.shape), 0)


def _in_memory(node, node_array):
    """The array of a node as it would stand in working memory; an operand of the instruction stands where it is."""
    return node_array if node.op == "input" else np.asarray(node_array, order="C")


def _gemm(node, backend):
    call = _library_call(node, backend)
    return lambda *arrays: call(*arrays)[0]


def _asked(node, backend):
    """(the steps of a library function, (node, strides, offset) of each operand, specs of the results, whether operands
    are copied)."""
    name, params, parts = ("gemm", (), (node,)) if node.op == "gemm" else node.attr
    lying = [_lying(a) for a in node.args]
    specs = [make_spec(p.dtype, p.shape, p.layout.strides if p.layout is not None else None) for p in parts]
    for copied, moved, args, outs in layouts([(a.shape, at[1]) for a, at in zip(node.args, lying, strict=True)],
                                             [(s.shape, s.strides) for s in specs]):
        steps = backend.library(name, node.dtype, args, outs, params)
        if steps is not None:
            if copied:
                lying = [(a, strides, 0) for a, (_, strides) in zip(node.args, args, strict=True)]
            return steps, lying, [make_spec(p.dtype, p.shape) for p in parts] if moved else specs, copied
    raise Unfusable(f"{name} on this layout")


def _recurrence(node):
    """A step that repeats an operation along a sequence, in Python; see planning/recurrence.py."""
    _, walk, parts = node.attr
    laid = [(a.dtype, a.shape, _lying(a)[1]) for a in node.args]
    entry, sequences = walk.entry(laid), walk.sequences
    whole = [walk.is_state(number) or tuple(strides) == contiguous_strides(shape)
             for number, (_, shape, strides) in enumerate(laid)]
    specs = [make_spec(part.dtype, part.shape) for part in parts]

    def step(*arrays):
        arrays = [np.asarray(x, order="C") if dense else x for x, dense in zip(arrays, whole, strict=True)]
        walked, state, fixed = (arrays[:sequences], arrays[sequences:sequences + walk.states],
                                arrays[sequences + walk.states:])
        rows, made = len(state[0]), [reference.blank(spec) for spec in specs]
        for now, _ in walk.steps():
            at = slice(now * rows, (now + 1) * rows)
            outs = execute(entry, [*[x[at] for x in walked], *state, *fixed], walk.params)
            for number, (out, whole_one) in enumerate(zip(outs, made, strict=True)):
                whole_one[at if walk.is_whole(number) else slice(None)] = out
            state = outs[:walk.states]
        return made

    return step


def _library_call(node, backend):
    """A step that calls a library function on the operands of `node`, and makes what it gives."""
    steps, lying, specs, copied = _asked(node, backend)
    nodes = [node for node, _, _ in lying]
    scratch = max(getattr(step, "scratch", 0) for step in steps)
    rooms = [make_spec(dtypes.uint8, (scratch,))] if scratch else []
    offsets = [offset * node.dtype.itemsize for node, _, offset in lying] + [0] * (len(specs) + len(rooms))
    program = backend.program([Task(step, list(enumerate(offsets))) for step in steps])

    def step(*arrays):
        read = [np.asarray(x, order="C") if copied else _in_memory(node, x)
                for node, x in zip(nodes, arrays, strict=True)]
        made = [reference.blank(spec) for spec in specs]
        working = [reference.blank(room) for room in rooms]
        program.run([backend.address(a) for a in (*read, *made, *working)], NO_CELLS)
        return made

    return step
