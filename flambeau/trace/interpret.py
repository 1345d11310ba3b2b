"""Run one instruction over arrays, with the bits that the native executor gives.

A trace that is seen for the first time is not worth a plan, and NumPy would do; but a program that repeats an expression
must see one answer. So an operation that has a `body` is run by it here too: the graph that a plan would be made of is
gone through node by node. NumPy and the machine agree on what rounds correctly (sums, products, quotients, roots,
conversions); reductions follow their own order (see Note [One order] in order.py); and what has a rounding of its own
(exp and its kin, fused multiply-adds, products of matrices, convolutions) is the compiled function that a plan calls.
Those are few, and compiled once; what would take long, a kernel for every new expression, is not needed.
"""
from array import array
from functools import partial
from itertools import accumulate

import numpy as np

from ..backends import backend, cpu, library, threads
from ..base import dtypes, settings
from ..base.errors import warn
from ..base.shapes import contiguous_strides
from ..base.spec import spec as make_spec
from ..loops.ir import FUNCTIONS, Access, Expr, Kernel, Pass
from ..loops.llvm import render
from .fuse import Fuser, Unfusable, memory
from .look import name_of
from .lower import HALVES, TYPE, Graph, cell
from .order import order_of

KNOWN = 8192                  # how many entries are remembered
TILE = 8192                   # elements that a compiled function does at a time
_programs: dict = {}          # entry → its steps; None where it has no body
_functions: dict = {}         # (word, type) → address of a compiled function over arrays


def execute(entry, arrays, params, own=False):
    """What `backends.backend.execute` gives, but with the native executor's bits."""
    try:
        program = _programs[entry]
    except KeyError:
        if len(_programs) >= KNOWN:
            _programs.clear()
        program = _programs[entry] = _program(entry, params)
    if program is None or settings.executor == "reference":
        return backend.execute(entry, arrays, params, own)
    held = []
    try:
        for step, args in program.steps:
            held.append(step(params, arrays, *[held[a] for a in args]))
    except cpu.NoCompiler as error:
        do_without(error)
        return backend.execute(entry, arrays, params, own)
    return [backend.fit(held[n], spec, arrays) for n, spec in zip(program.outs, entry.outs, strict=True)]


def do_without(error):
    """There is no compiler: say so, and leave everything to the reference executor from now on."""
    if settings.executor == "native":
        raise error
    settings.executor = "reference"
    warn(f"{error}. Everything runs on the reference executor, which is slower: reinstall llvmlite, or set "
         "FLAMBEAU_EXECUTOR=reference to say that this is fine.")


class Program:
    """The nodes of a body: each a function of the parameters, the operands, and the arrays of its arguments."""

    def __init__(self, graph, first, count):
        nodes = Fuser.needed(graph, range(first, first + count))
        place = {id(node): i for i, node in enumerate(nodes)}
        self.steps = [(_step(node, graph), tuple(place[id(a)] for a in _read(node))) for node in nodes]
        self.outs = [place[id(graph.slots[slot])] for slot in range(first, first + count)]


def _program(entry, params):
    n = len(entry.kinds)
    if entry.outs is None or not hasattr(entry.op, "body"):
        return None
    code = [(entry, tuple(range(n)), (0,) * n, params, n)]
    try:
        graph = Graph(code, [*entry.kinds, *entry.outs], [True])
        return None if any(node.op == "result" for node in graph.slots.values()) else Program(graph, n, len(entry.outs))
    except Unfusable:                             # a product of matrices, say, on a layout that no kernel takes
        return None


def _read(node):
    """The nodes whose arrays a step is given; a step of the library finds what it reads in memory."""
    if node.op == "output":
        return node.args
    if node.op in ("gemm", "library"):
        return [_lying(a)[0] for a in node.args]
    return node.args


def _step(node, graph):
    """The function that makes a node's array."""
    op = node.op
    kind = None if node.dtype is None else node.dtype.np
    if op == "input":
        return lambda params, arrays, slot=node.attr[0]: arrays[slot]
    if op == "number":
        _, number, dtype = graph.numbers[node.attr]
        return lambda params, arrays: np.asarray(cell(params[number], dtype)).astype(kind)
    if op == "const":
        constant = np.asarray(cell(node.attr, node.dtype)).astype(kind)
        return lambda params, arrays: constant
    if op == "index":
        place = np.arange(node.numel).reshape(node.shape)
        return lambda params, arrays: place
    if op == "library":
        return _library(node)
    if op == "output":
        return lambda params, arrays, made, number=node.attr: made[number]
    if op == "gemm":
        return _gemm(node)
    if op in FUNCTIONS:
        return _over(partial(_compiled, op, TYPE[node.dtype]))
    if op == "fma":
        return _over(partial(_fma, TYPE[node.dtype]))
    if op == "cast":
        return _over(partial(_cast, source=node.args[0].dtype, target=node.dtype))
    if op == "reduce":
        return _over(partial(_reduce, node.attr[0], node.attr[1], node.order, node.shape))
    if op == "gather":
        return _over(partial(_gather, node.attr, node.shape))
    if op == "reshape":
        return lambda params, arrays, x, shape=node.shape: x.reshape(shape)
    if op == "expand":
        return lambda params, arrays, x, shape=node.shape: np.broadcast_to(x, shape)
    if op == "permute":
        return lambda params, arrays, x, dims=node.attr: np.transpose(x, dims)
    if op == "concat":
        return lambda params, arrays, *parts, dim=node.attr: np.concatenate(parts, dim)
    if op == "from_bits":
        return lambda params, arrays, x: np.asarray(x).view(kind)
    table = TRUTHS if node.args[0].dtype is dtypes.bool else FLOATS if node.args[0].dtype.is_floating_point else INTS
    return _over(table.get(op) or WORDS[op])


def _over(function):
    return lambda params, arrays, *args: function(*args)


# --- what NumPy and the machine agree on ------------------------------------------------------------------------------


def _min(a, b):    return np.where(b < a, b, a)
def _max(a, b):    return np.where(a > b, a, b)
def _idiv(a, b):   return (a - np.fmod(a, b)) // b
def _bits(x):      return np.asarray(x).view(np.int32 if x.dtype == np.float32 else np.int64)


WORDS = {"copy": lambda x: x, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
         "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
         "rint": np.rint, "copysign": np.copysign, "lt": np.less, "le": np.less_equal, "gt": np.greater,
         "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.bitwise_and, "or": np.bitwise_or,
         "xor": np.bitwise_xor, "not": np.invert, "shl": np.left_shift, "shr": np.right_shift, "idiv": _idiv,
         "irem": np.fmod, "where": np.where, "isnan": np.isnan, "bits": _bits}
# which of two zeros is taken: as in emit.py
FLOATS = {"min": lambda a, b: np.where(np.isnan(b), b, _min(a, b)),
          "max": lambda a, b: np.where(np.isnan(a), a, _max(a, b)),
          "fmin": lambda a, b: np.where(np.isnan(a), b, _min(a, b)),
          "fmax": lambda a, b: np.where(np.isnan(b), a, _max(a, b))}
INTS = {"min": _min, "max": _max, "fmin": _min, "fmax": _max}
TRUTHS = {**INTS, "add": np.bitwise_xor, "sub": np.bitwise_xor, "mul": np.bitwise_and,
          "neg": lambda x: x, "abs": lambda x: x}                               # whole numbers of one bit


def _cast(x, source, target):
    """`x` converted as emit.py does it."""
    if target is dtypes.bool:
        return x != 0
    if target in HALVES and not (target is dtypes.float16 and source is dtypes.float64):
        x = x.astype(np.float32)                              # what is not a float is one first, and bfloat16 rounds it
    if source.is_floating_point and not target.is_floating_point:
        wide = np.int64 if target in (dtypes.int64, dtypes.uint8) else np.int32
        x = x.astype(np.float32) if source in HALVES else x
        bound = -float(np.iinfo(wide).min)
        fits = (x >= -bound) & (x < bound)
        x = np.where(fits, np.where(fits, x, 0).astype(wide), np.iinfo(wide).min)
    return x.astype(target.np)


def _gather(dim, shape, source, index):
    index = np.broadcast_to(index, shape)
    wide = tuple(n if d != dim else source.shape[dim] for d, n in enumerate(shape))
    return np.take_along_axis(np.broadcast_to(source, wide), index, dim)


# --- reductions -------------------------------------------------------------------------------------------------------


STARTS = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "top": -np.inf, "min": np.inf}
JOINS = {"sum": np.add, "prod": np.multiply, "max": FLOATS["max"], "min": FLOATS["min"],
         "top": lambda a, b: np.where(b > a, b, a)}
QUICK = {"max": np.max, "min": np.min, "top": partial(np.fmax.reduce, initial=-np.inf)}


def _reduce(kind, dims, order, shape, x):
    if kind in ("any", "all"):
        return getattr(np, kind)(x, dims, keepdims=True)
    if kind.startswith("arg"):
        return getattr(np, kind)(x, dims[0], keepdims=True)
    if x.dtype == bool:
        return (np.any if kind in ("sum", "max", "top") else np.all)(x, dims, keepdims=True)
    if x.dtype.kind != "f":
        if kind in ("sum", "prod"):
            return getattr(np, kind)(x, dims, x.dtype, keepdims=True)
        return (np.min if kind == "min" else np.max)(x, dims, keepdims=True)
    if kind in QUICK:                             # no rounding: the order shows in the sign of a zero alone
        out = QUICK[kind](x, dims, keepdims=True)
        if out.all():
            return out
    kept = [d for d in range(x.ndim) if d not in order.dims]
    rows = np.transpose(x, [*kept, *order.dims])
    sizes = rows.shape[len(kept):]
    first, inner = (int(np.prod(part)) for part in (sizes[:order.first], sizes[len(sizes) - order.inner:]))
    lanes = cpu.vector_bytes() // x.itemsize * order.vectors if order.along_rows else 0
    rows = rows.reshape(-1, int(np.prod(sizes)))
    if not order.blocks:
        return _walked(kind, rows, inner, lanes).reshape(shape)
    alone = order.first == len(order.dims)        # a block is a part of the only run, or goes through whole ones
    step = order.block * (rows.shape[1] // first)
    parts = [rows[:, i * step:(i + 1) * step] for i in range(order.blocks)]
    parts = np.stack([_walked(kind, p, p.shape[1] if alone else inner, lanes) for p in parts], 1)
    parts = parts.reshape(*shape, order.blocks)
    last = order_of(parts.shape, (len(shape),), contiguous_strides(parts.shape))
    return _reduce(kind, (len(shape),), last, (*shape, 1), parts).reshape(shape)


def _walked(kind, rows, inner, lanes):
    """Every row reduced, in the order of its elements: by lanes along runs of `inner` of them, or, without, singly."""
    count, start = len(rows), np.full((), STARTS[kind], rows.dtype)
    if not rows.size:
        return np.full(count, start)
    if not lanes:
        return _in_turn(kind, rows[:, :, None], start)[:, 0]
    runs = rows.reshape(count, -1, inner)
    surplus = -inner % lanes
    if surplus:
        runs = np.concatenate([runs, np.full((*runs.shape[:2], surplus), start)], 2)
    out = _in_turn(kind, runs.reshape(count, -1, lanes), start)
    while out.shape[1] > 1:
        half = out.shape[1] // 2
        out = JOINS[kind](out[:, :half], out[:, half:])
    return out[:, 0]


def _in_turn(kind, steps, start):
    """[row, step, lane] reduced over the steps, one after the other."""
    join = JOINS[kind]
    if isinstance(join, np.ufunc):
        return join.accumulate(np.concatenate([np.broadcast_to(start, steps[:, :1].shape), steps], 1), 1)[:, -1]
    *_, out = accumulate((steps[:, i] for i in range(steps.shape[1])), join, initial=start)
    return out


# --- compiled functions -----------------------------------------------------------------------------------------------


def _compiled(word, type, *args):
    """A function of the loop language over arrays."""
    args = [np.ascontiguousarray(a) for a in (args if len(args) == 1 else np.broadcast_arrays(*args))]
    out = np.empty(args[0].shape, args[0].dtype)
    if out.size:
        address = _functions.get((word, type)) or _function(word, type, len(args))
        tiles = -(-out.size // TILE)
        _run([(address, tiles, tiles, (out.size, tiles, TILE))], [*args, out], [0] * (len(args) + 1))
    return out


def _function(word, type, count):
    """The address of a step that computes `word` of `count` arrays, element by element."""
    kernel = Kernel(1, 0, "kept", (0,))
    kernel.accesses = [Access(type, [1]) for _ in range(count + 1)]
    one = Pass()
    one.stores.append((count, Expr(word, type, tuple(Expr("load", type, (), i) for i in range(count)))))
    kernel.passes.append(one)
    name = name_of(str(kernel))
    found = _functions[word, type] = cpu.function(name, render(kernel, name, cpu.vector_bytes()))
    return found


def _fma(type, a, b, c):
    """`a * b + c`, rounded once: a sum where one factor is one, as in `input + alpha * other`."""
    for x, y in ((a, b), (b, a)):
        if x.ndim == 0 and abs(x) == 1:
            return c + y if x == 1 else c - y
    return _compiled("fma", type, a, b, c)


def _run(steps, buffers, offsets):
    """Run steps of (address, tiles, grain, ints) over arrays; `offsets` in bytes."""
    words = array("q")
    for address, tiles, grain, ints in steps:
        words.extend([address, tiles, grain, len(buffers), 0, len(ints)])
        for i, offset in enumerate(offsets):
            words.extend([i, offset])
        words.extend(ints)
    table = array("q", [b.__array_interface__["data"][0] for b in buffers])
    threads.run(words.buffer_info()[0], len(steps), table.buffer_info()[0], 0)


def _lying(arg):
    """(the node, strides, offset) of an operand in memory, as the fuser would have it; whole and in order where it
    would be copied."""
    seen = memory(arg)
    return seen if seen is not None else (arg, contiguous_strides(arg.shape), 0)


def _in_memory(node, held):
    """The array of a node as it would stand in working memory; an operand of the instruction stands where it is."""
    return held if node.op == "input" else np.ascontiguousarray(held)


def _gemm(node):
    spec = make_spec(node.dtype, node.shape, node.layout.strides if node.layout is not None else None)
    lying = [_lying(a) for a in node.args]
    found = library.product(node.dtype, *[(a.shape, at[1]) for a, at in zip(node.args, lying, strict=True)],
                            (spec.shape, spec.strides))
    if found is None:
        raise Unfusable("a matrix product that the library does not take")
    return _called([found], lying, [spec], lambda made: made[0])


def _library(node):
    name, params, parts = node.attr
    lying = [_lying(a) for a in node.args]
    specs = [make_spec(p.dtype, p.shape, p.layout.strides if p.layout is not None else None) for p in parts]
    steps = library.ask(name, node.dtype, [(a.shape, at[1]) for a, at in zip(node.args, lying, strict=True)],
                        [(s.shape, s.strides) for s in specs], params)
    if steps is None:
        raise Unfusable(f"{name} on this layout")
    return _called(steps, lying, specs, lambda made: made)


def _called(steps, lying, specs, given):
    """A step that calls library functions on what `lying` says, and makes results as `specs` say."""
    nodes = [node for node, _, _ in lying]
    offsets = [offset * node.dtype.itemsize for node, _, offset in lying] + [0] * len(specs)

    def step(params, arrays, *held):
        read = [_in_memory(node, x) for node, x in zip(nodes, held, strict=True)]
        made = [backend.blank(spec) for spec in specs]
        _run(steps, [*read, *made], offsets)
        return given(made)

    return step
