"""Turn a trace into a graph of expressions: every operation's `body`, written out.

A node is an expression over all positions of a shape. Leaves read memory, numbers or positions; the others compute one
element from the elements of their arguments at the same place (broadcast as NumPy does), reduce over dimensions, or
see another node in another shape. An operation without a body becomes an opaque node that reads and writes memory.
"""
from bisect import bisect_right
from itertools import count

from ...base import dtypes
from ...base.arguments import as_scalar
from ...base.op import NUMBER_CLASSES, wrapped
from ...base.shapes import contiguous_strides, view_strides
from ...base.spec import CPU
from ...loops.ir import FUNCTION_WORDS, TWO_ARGUMENT_WORDS
from ..recording.update import update
from .complex_words import NotComplex, of_parts
from .recurrence import Recurrence, shape_of_result
from .reduction_order import dense, order_of

LOOP_TYPE = {dtypes.bool: "b1", dtypes.uint8: "u8", dtypes.int8: "i8", dtypes.int16: "i16", dtypes.int32: "i32",
             dtypes.int64: "i64", dtypes.float16: "f16", dtypes.bfloat16: "bf16", dtypes.float32: "f32",
             dtypes.float64: "f64", dtypes.complex64: "c64", dtypes.complex128: "c128"}
NO_MEMORY_OF_ITS_OWN = ("input", "result", "update", "view", "const", "number", "index", "expand", "reshape", "permute")
HALVES = (dtypes.float16, dtypes.bfloat16)
COMPLEX_FUNCTIONS = ("fft",)             # of the library, which take complex operands
WIDE_PRODUCT = "gemm", ("float",)      # of 16-bit operands, in float32: what a body makes of it is rounded once


_numbers = count()


class Unfusable(Exception):
    """A node that cannot be computed as planned: in memory of its own (`materialise`), or by the reference.

    Or all nodes of a `group`: their instructions are left to the reference.
    """

    def __init__(self, words, node=None, materialise=False, group=None):
        super().__init__(words)
        self.node, self.materialise, self.group = node, materialise, group


class TraceNode:
    """One expression of the graph. `attr` says what `op` alone does not."""

    __slots__ = ("op", "dtype", "shape", "ndim", "args", "attr", "numel", "number", "group", "axes", "stored", "layout",
                 "inline", "lies", "order")

    def __init__(self, op, dtype, shape, args=(), attr=None):
        self.op, self.dtype, self.shape, self.args, self.attr = op, dtype, shape, args, attr
        self.ndim, self.number = len(shape), next(_numbers)      # arguments come before what is made of them
        n = 1
        for size in shape:
            n *= size
        self.numel = n
        self.group = self.axes = self.layout = None
        self.stored = None        # None: not a slot's; False: a slot's; True: kept in memory
        self.inline = 0           # how many operations it takes to compute this number again; 0: it is not
        self.lies = None          # strides that an array of it would have by rule; see `lies` below
        self.order = None         # of a reduction: see Note [One order] in reduction_order.py

    def __add__(self, other):      return binary("add", self, other)
    def __radd__(self, other):     return binary("add", other, self)
    def __sub__(self, other):      return binary("sub", self, other)
    def __rsub__(self, other):     return binary("sub", other, self)
    def __mul__(self, other):      return binary("mul", self, other)
    def __rmul__(self, other):     return binary("mul", other, self)
    def __truediv__(self, other):  return binary("div", self, other)
    def __rtruediv__(self, other): return binary("div", other, self)
    def __neg__(self):             return unary("neg", self)
    def __lt__(self, other):       return binary("lt", self, other, dtypes.bool)
    def __le__(self, other):       return binary("le", self, other, dtypes.bool)
    def __gt__(self, other):       return binary("gt", self, other, dtypes.bool)
    def __ge__(self, other):       return binary("ge", self, other, dtypes.bool)
    def __eq__(self, other):       return binary("eq", self, other, dtypes.bool)
    def __ne__(self, other):       return binary("ne", self, other, dtypes.bool)
    def __and__(self, other):      return binary("and", self, other)
    def __rand__(self, other):     return binary("and", other, self)
    def __or__(self, other):       return binary("or", self, other)
    def __ror__(self, other):      return binary("or", other, self)
    def __xor__(self, other):      return binary("xor", self, other)
    def __rxor__(self, other):     return binary("xor", other, self)
    def __lshift__(self, other):   return binary("shl", self, other)
    def __rshift__(self, other):   return binary("shr", self, other)
    def __invert__(self):          return unary("not", self)
    __hash__ = object.__hash__


def const(value, dtype):
    if dtype.is_complex:
        value, part = complex(value), dtype.to_real()
        return joined(const(value.real, part), const(value.imag, part))
    return TraceNode("const", dtype, (), (), value)


def transfer(x, source, target):
    """`x`, which is on the device `source`, on the device `target`."""
    return TraceNode("transfer", x.dtype, x.shape, (x,), (source, target))


def joined(re, im):
    """The complex expression with these parts."""
    return TraceNode("pair", re.dtype.to_complex(), broadcast(re.shape, im.shape), (re, im))


def parts(x):
    """(the real, the imaginary part) of a complex expression. Those of a slot's are seen through it, so that what
    needs them later finds them in its memory."""
    if x.op == "pair" and x.stored is None:
        return x.args
    part = x.dtype.to_real()
    return TraceNode("re", part, x.shape, (x,)), TraceNode("im", part, x.shape, (x,))


def of_complex(op, *args):
    """A word on complex expressions, in those of their parts: see complex_words.py."""
    made = of_parts(op, k, [parts(x) for x in args])
    return joined(*made) if made.__class__ is tuple else made


def unary(op, x):
    if x.dtype.is_complex:
        return of_complex(op, x)
    return TraceNode(op, x.dtype, x.shape, (x,))


def binary(op, a, b, dtype=None):
    """Two operands of one dtype; a Python number takes the other's."""
    if not isinstance(a, TraceNode):
        a = const(a, b.dtype)
    elif not isinstance(b, TraceNode):
        b = const(b, a.dtype)
    if a.dtype is not b.dtype:
        raise TypeError(f"{op} of {a.dtype} and {b.dtype} in a body: cast one of them")
    if a.dtype.is_complex:
        return of_complex(op, a, b)
    return TraceNode(op, dtype or a.dtype, broadcast(a.shape, b.shape), (a, b))


def lies(node):
    """The strides of `node`, were it in memory: those of its Spec, or of the first operand of its own shape.

    They follow from the operation that the node belongs to alone, since what an operation is given has a Spec.
    """
    chain = []
    while node.lies is None:
        chain.append(node)
        source = next((a for a in node.args if a.shape == node.shape or node.op in ("permute", "reshape")), None)
        if node.op == "expand" or source is None:
            node.lies = contiguous_strides(node.shape)
        else:
            node = source
    for reader in reversed(chain):
        if reader.lies is None:
            if reader.op == "permute":
                reader.lies = tuple(node.lies[d] for d in reader.attr)
            elif reader.op == "reshape":
                reader.lies = view_strides(node.shape, node.lies, reader.shape) or contiguous_strides(reader.shape)
            else:
                reader.lies = dense(reader.shape, node.lies)
        node = reader
    return node.lies


def broadcast(*shapes):
    """The shape that operands of these shapes make together."""
    first = shapes[0]
    if shapes.count(first) == len(shapes):
        return first
    rank = max(map(len, shapes))
    out = [1] * rank
    for shape in shapes:
        for d, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                out[d] = size
    return tuple(out)


def _number_last(a, b):
    """The operands of a minimum or maximum, where the order shows in the sign of a zero alone; see emit.py."""
    return (a, b) if isinstance(a, TraceNode) else (b, a)


class Words:
    """`k`: the words that a body is written in; see docs/native.md. `_backend` is that of the device it is for.

    `half` is the 16-bit dtype that the operation's results are rounded to, or None.
    """

    __slots__ = ("_backend", "half")

    def __init__(self, backend, half=None):
        self._backend, self.half = backend, half

    const = staticmethod(const)

    @staticmethod
    def cast(x, dtype):
        if x.dtype is dtype:
            return x
        if x.dtype.is_complex or dtype.is_complex:
            return _cast_complex(x, dtype)
        if x.op == "cast" and dtype in HALVES and x.args[0].dtype is dtype and x.args[0].op in ("gemm", "output"):
            return x.args[0]                   # what a library gave in 16 bits, widened and narrowed: see `_halves`
        if x.op == "output" and x.args[0].attr[:2] == WIDE_PRODUCT and x.args[0].args[0].dtype is dtype \
                and x.stored is None:
            return TraceNode("gemm", dtype, x.shape, x.args[0].args)             # rounded by the step that made it
        return TraceNode("cast", dtype, x.shape, (x,))

    @staticmethod
    def where(c, a, b):
        if not isinstance(a, TraceNode):
            a = const(a, b.dtype)
        elif not isinstance(b, TraceNode):
            b = const(b, a.dtype)
        if a.dtype.is_complex:
            return joined(*[Words.where(c, x, y) for x, y in zip(parts(a), parts(b), strict=True)])
        return TraceNode("where", a.dtype, broadcast(c.shape, a.shape, b.shape), (c, a, b))

    @staticmethod
    def fma(a, b, c, op="fma"):
        like = next(t for t in (a, b, c) if isinstance(t, TraceNode))
        args = tuple(t if isinstance(t, TraceNode) else const(t, like.dtype) for t in (a, b, c))
        if like.dtype.is_complex:
            return _fma_complex(op, *args)
        return TraceNode(op, like.dtype, broadcast(*[t.shape for t in args]), args)

    @staticmethod
    def fma_exact(a, b, c):
        return Words.fma(a, b, c, "fma_exact")

    @staticmethod
    def isnan(x):
        if x.dtype.is_complex:
            return of_complex("isnan", x)
        return TraceNode("isnan", dtypes.bool, x.shape, (x,)) if x.dtype.is_floating_point else const(False,
                                                                                                      dtypes.bool)

    @staticmethod
    def real(x):       return parts(x)[0]

    @staticmethod
    def imag(x):       return parts(x)[1]

    @staticmethod
    def complex(re, im): return joined(re, im)

    @staticmethod
    def bits(x):
        return TraceNode("bits", dtypes.int32 if x.dtype is dtypes.float32 else dtypes.int64, x.shape, (x,))

    @staticmethod
    def from_bits(x, dtype):
        return TraceNode("from_bits", dtype, x.shape, (x,))

    def minimum(self, a, b): return binary("min", *_number_last(a, b))
    def maximum(self, a, b): return binary("max", *_number_last(a, b))
    def fmin(self, a, b):    return binary("fmin", *_number_last(a, b))
    def fmax(self, a, b):    return binary("fmax", *_number_last(a, b))
    def idiv(self, a, b):    return binary("idiv", a, b)
    def irem(self, a, b):    return binary("irem", a, b)
    def copysign(self, a, b): return binary("copysign", a, b)

    @staticmethod
    def abs(x):
        return x if not x.dtype.is_signed else unary("abs", x)

    @staticmethod
    def _round(op, x):
        return x if x.dtype.category < 2 else unary(op, x)

    def floor(self, x): return self._round("floor", x)
    def ceil(self, x):  return self._round("ceil", x)
    def trunc(self, x): return self._round("trunc", x)
    def rint(self, x):  return self._round("rint", x)
    def sqrt(self, x):  return unary("sqrt", x)

    @staticmethod
    def index(dim, shape):
        shape = tuple(n if d == dim % len(shape) else 1 for d, n in enumerate(shape))
        return TraceNode("index", dtypes.int64, shape, (), dim % len(shape))

    def _reduce(self, reduction, x, dims, keepdim=True, dtype=None):
        if not isinstance(dims, (tuple, list)):
            dims = (dims,)
        if x.dtype.is_complex:
            if reduction != "sum":
                raise NotComplex(reduction)
            return joined(*[self._reduce(reduction, part, dims, keepdim) for part in parts(x)])
        dims = tuple(sorted({d % x.ndim for d in dims})) if x.ndim else ()
        shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
        if shape == x.shape:                   # nothing to reduce
            out = Words.expand(const(0, dtype), shape) if reduction.startswith("arg") else x
            return out if keepdim else Words.reshape(out, tuple(n for d, n in enumerate(shape) if d not in dims))
        out = TraceNode("reduce", dtype or x.dtype, shape, (x,), (reduction, dims))
        out.order = order_of(x.shape, dims, lies(x), self._backend.reductions, reduction.startswith("arg"))
        if not keepdim:
            out = Words.reshape(out, tuple(n for d, n in enumerate(shape) if d not in dims))
        return out

    def sum(self, x, dims, keepdim=True):  return self._reduce("sum", x, dims, keepdim)
    def prod(self, x, dims, keepdim=True): return self._reduce("prod", x, dims, keepdim)
    def max(self, x, dims, keepdim=True):  return self._reduce("max", x, dims, keepdim)
    def min(self, x, dims, keepdim=True):  return self._reduce("min", x, dims, keepdim)
    def top(self, x, dims, keepdim=True):  return self._reduce("top", x, dims, keepdim)      # as max; NaN may get lost
    def any(self, x, dims, keepdim=True):  return self._reduce("any", x, dims, keepdim)
    def all(self, x, dims, keepdim=True):  return self._reduce("all", x, dims, keepdim)
    def argmax(self, x, dim):              return self._reduce("argmax", x, dim, True, dtypes.int64)
    def argmin(self, x, dim):              return self._reduce("argmin", x, dim, True, dtypes.int64)

    @staticmethod
    def reshape(x, shape):
        shape = tuple(shape)
        return x if x.shape == shape else TraceNode("reshape", x.dtype, shape, (x,))

    @staticmethod
    def expand(x, shape):
        shape = tuple(shape)
        return x if x.shape == shape else TraceNode("expand", x.dtype, shape, (x,))

    @staticmethod
    def permute(x, dims):
        return TraceNode("permute", x.dtype, tuple(x.shape[d] for d in dims), (x,), tuple(dims))

    @staticmethod
    def gather(x, dim, index):
        dim = dim % x.ndim
        if x.op == "cast":                     # the elements are converted after they were fetched
            return Words.cast(Words.gather(x.args[0], dim, index), x.dtype)
        shape = broadcast(tuple(1 if d == dim else n for d, n in enumerate(x.shape)), index.shape)
        return TraceNode("gather", x.dtype, shape, (x, index), dim)

    @staticmethod
    def concat(parts, dim):
        """`parts` one after the other along `dim`."""
        shape = list(parts[0].shape)
        shape[dim] = sum(x.shape[dim] for x in parts)
        return TraceNode("concat", parts[0].dtype, tuple(shape), tuple(parts), dim)

    def library(self, name, args, outs, params, single=()):
        """What one of the library's functions makes of `args`: a node for each (dtype, shape) of `outs`, or None.

        Arguments and results stand in memory; see `Backend.library`. Where others are in 16 bits there, those whose
        number, arguments first, is in `single` are in float32 all the same.
        """
        if name not in COMPLEX_FUNCTIONS and any(x.dtype.is_complex for x in args):
            return None
        halves = self.half and _halves(args, self.half, single)
        if halves:
            narrow = [(self.half if dtype is dtypes.float32 and number not in single else dtype, shape)
                      for number, (dtype, shape) in enumerate(outs, len(args))]
            made = self._call(name, halves, narrow, params)
            if made is not None:
                return tuple([self.cast(node, dtype) for node, (dtype, _) in zip(made, outs, strict=True)])
        return self._call(name, args, outs, params)

    def _call(self, name, args, outs, params):
        made = [(tuple(shape), contiguous_strides(shape)) for _, shape in outs]
        if not self._backend.has(name, args[0].dtype, _contiguous(args), made, params):
            return None
        whole = TraceNode("library", args[0].dtype, (), tuple(args), (name, params))
        parts = tuple(TraceNode("output", dtype, tuple(shape), (whole,), i) for i, (dtype, shape) in enumerate(outs))
        whole.attr = (name, params, parts)
        return parts

    def recur(self, step, sequences, states, fixed, params=(), reverse=False, keeps=True):
        """What the operation `step` gives when it is repeated along `sequences`, which have as many rows for each step
        as the `states` that it starts with: the new states, and what else it gives, for all steps one after the other.
        Unless the backend `recurs`, NotImplemented. Any sequence or fixed operand may be None. See recurrence.py, also
        for `keeps`.
        """
        if not self._backend.recurs or self.half:
            return NotImplemented
        given = [*sequences, *states, *fixed]
        args = tuple([x for x in given if x is not None])
        if any(x.dtype.is_complex for x in args):
            return NotImplemented
        positions = iter(range(len(args)))
        template = tuple([None if x is None else next(positions) for x in given])
        walked = sum(x is not None for x in sequences)
        count = args[0].shape[0] // states[0].shape[0]
        walk = Recurrence(step, template, walked, len(states), params, count, reverse, keeps)
        outs = walk.entry([(x.dtype, x.shape, contiguous_strides(x.shape)) for x in args]).outs
        whole = TraceNode("library", args[0].dtype, (), args, ("recurrence", walk))
        parts = tuple(TraceNode("output", spec.dtype, shape_of_result(walk, number, spec), (whole,), number)
                      for number, spec in enumerate(outs))
        whole.attr = ("recurrence", walk, parts)
        return parts if len(parts) > 1 else parts[0]

    def matmul(self, a, b):
        """Products of matrices, with any number of equal leading dimensions; a library's work."""
        if a.dtype.is_complex:
            (a, b), (c, d) = parts(a), parts(b)
            return joined(self.matmul(a, c) - self.matmul(b, d), self.matmul(a, d) + self.matmul(b, c))
        if a.dtype not in (dtypes.float32, dtypes.float64):
            raise TypeError(f"matmul of {a.dtype} in a body: cast it, or return NotImplemented")
        shape = (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        halves = _halves((a, b), self.half or _dtype_before(a))
        if halves and self._backend.rounds_late:
            made = self._call(WIDE_PRODUCT[0], halves, [(dtypes.float32, shape)], WIDE_PRODUCT[1])
            if made is not None:
                return made[0]
        if halves and self.half and self._backend.has("gemm", halves[0].dtype, _contiguous(halves),
                                                       [(shape, contiguous_strides(shape))], ()):
            return self.cast(TraceNode("gemm", halves[0].dtype, shape, halves), a.dtype)
        return TraceNode("gemm", a.dtype, shape, (a, b))

    def affine(self, a, b, bias):
        """The product of two matrices, to each row of which `bias` is added; by the library too, where it has that."""
        shape = a.shape[0], b.shape[1]
        if bias.shape == shape[1:]:
            made = self.library("affine", (a, b, bias), [(a.dtype, shape)], ("bias",))
            if made is not None:
                return made[0]
        return self.matmul(a, b) + bias


def _cast_complex(x, dtype):
    """A complex expression in another dtype, or any in a complex one."""
    if not x.dtype.is_complex:
        part = dtype.to_real()
        return joined(Words.cast(x, part), const(0.0, part))
    if dtype.is_complex:
        return joined(*[Words.cast(part, dtype.to_real()) for part in parts(x)])
    if dtype is dtypes.bool:
        return of_complex("ne", x, const(0, x.dtype))
    raise NotComplex(f"a cast to {dtype}")             # what becomes of the imaginary part is the body's to say


def _fma_complex(op, a, b, c):
    """`a * b + c`, where a number `a` without an imaginary part, or less that, multiplies both parts of `b`."""
    im = parts(a)[1]
    im = im.args[0] if im.op == "neg" else im
    if im.op != "const" or im.attr:
        return of_complex("add", of_complex("mul", a, b), c)
    return joined(*[Words.fma(parts(a)[0], x, y, op) for x, y in zip(parts(b), parts(c), strict=True)])


def _contiguous(nodes):
    """(shape, strides) of nodes, as if they lay one element after the other."""
    return [(tuple(x.shape), contiguous_strides(x.shape)) for x in nodes]


def _halves(args, half, single=()):
    """What a library function is given, with floats of the dtype `half` as they stand in memory; None where others are
    among them, or none.

    Bodies are given such operands widened. A library that takes them as they are, adds up in float32 and rounds its
    result saves the copies; its result is widened again for what the body makes of it.
    """
    found = [_narrow(x) if x.dtype is dtypes.float32 and number not in single else x for number, x in enumerate(args)]
    if any(x is None or x.dtype in HALVES and x.dtype is not half for x in found) \
            or all(x is wide for x, wide in zip(found, args, strict=True)):
        return None
    return tuple(found)


def _dtype_before(x):
    """The 16-bit dtype of an operand of the body before it was widened; None for other nodes."""
    found = _narrow(x)
    return found and found.dtype


def _narrow(x):
    """An operand of the body, seen in whatever shape, before it was widened from 16 bits; None for other nodes."""
    chain = []
    while x.op in ("reshape", "expand", "permute"):
        chain.append(x)
        x = x.args[0]
    if x.op != "cast" or x.args[0].dtype not in HALVES or x.stored is not None:     # or float32 is what was asked for
        return None
    x = x.args[0]
    for one in reversed(chain):
        x = TraceNode(one.op, x.dtype, one.shape, (x,), one.attr)
    return x


for _name in FUNCTION_WORDS - TWO_ARGUMENT_WORDS:
    setattr(Words, _name, staticmethod(lambda x, _name=_name: unary(_name, x)))
for _name in TWO_ARGUMENT_WORDS:
    setattr(Words, _name, staticmethod(lambda a, b, _name=_name: binary(_name, a, b)))
k = Words(CPU.backend)        # what is written here, and in tests of single bodies


def layouts(args, outs):
    """What a library's function is asked to take, over operands and results as (shape, strides), one after the other:
    all as they lie, operands copied so that they are contiguous, results too. (copies of operands, of results, what
    they are then) each.

    A step that copies what lies badly is far quicker than the reference executor. The caller that runs an instruction
    asks in this order, since a sum's order may depend on the answer.
    """
    def dense(laid):
        return [(tuple(shape), contiguous_strides(shape)) for shape, _ in laid]
    yield False, False, args, outs
    yield True, False, dense(args), outs
    yield True, True, dense(args), dense(outs)


class TraceGraph:
    """The nodes of a trace: which node each slot is, the leaves that read memory, and the numbers they read.

    `needed` are the indices of the instructions that are. Those in `left` are left to the reference, whether they have
    a body or not. `device` is that of all instructions, or None where they have several.
    """

    def __init__(self, code, specs, needed, left=()):
        self.specs, self.left = specs, left
        self._devices = devices = [one.entry.device for one in code]
        self.device = devices[0] if all(device is devices[0] for device in devices) else None
        self.given = []            # nodes of what operations that are left to the reference give
        self.start, self.begins = next(_numbers), []      # the number of the first node, and where instructions begin
        self.slots = {}            # slot → node of what an instruction made
        self.inputs = {}           # (slot, spec, offset) → leaf
        self.numbers = []          # (instruction, parameter, dtype to bring it to) of each runtime number
        for index, instruction in enumerate(code):
            self.begins.append(next(_numbers))
            if index in needed:
                self._lower(index, instruction)
        self.end = next(_numbers)                         # what comes later is no instruction of this trace

    def device_of(self, node):
        """Where a node is computed: on the device of the instruction that it belongs to."""
        return self.device or self._devices[bisect_right(self.begins, node.number) - 1]

    def _lower(self, index, instruction):
        entry, slots, offsets = instruction.entry, instruction.slots, instruction.offsets
        params, first, op = instruction.params, instruction.first, entry.op
        operands = [self.operand(s, spec, o) for s, spec, o in zip(slots, entry.input_specs, offsets, strict=False)]
        if op is update:
            if not entry.compiles:
                raise Unfusable(f"a write into memory of {entry.input_specs[0].device}")
            made = TraceNode("update", entry.outs[0].dtype, entry.outs[0].shape,
                             (self.whole(slots[0]), operands[1]), (entry.input_specs[0], offsets[0]))
            self._give(first, made)
            return
        if not entry.compiles and any(spec.device is not entry.device for spec in (*entry.input_specs, *entry.outs)):
            if op.effect:                         # its results are handed out when it has happened, not copied later
                raise Unfusable(f"{op.__name__}, an effect across devices")
            self._lower_across(index, entry, operands, params, first)
            return
        made = self._body(index, entry, operands, params) if entry.compiles and index not in self.left \
            and not op.effect else NotImplemented
        if made is NotImplemented:
            for i, node in enumerate(self._opaque(index, entry, operands)):
                self._give(first + i, node)
            return
        for i, (node, spec) in enumerate(zip(made if entry.many else (made,), entry.outs, strict=True)):
            node = k.cast(node, spec.dtype)
            if node.shape != spec.shape:
                node = k.reshape(node, spec.shape) if node.numel == spec.numel else k.expand(node, spec.shape)
            if node.stored is not None or node.op in NO_MEMORY_OF_ITS_OWN:
                node = TraceNode("copy", node.dtype, node.shape, (node,))     # every slot is a node of its own
            self._give(first + i, node)

    def _opaque(self, index, entry, operands):
        """The results of an operation that is left to the reference."""
        node = TraceNode("opaque", None, (), tuple(operands), (index, entry))
        made = [TraceNode("result", spec.dtype, spec.shape, (node,), i) for i, spec in enumerate(entry.outs)]
        self.given += made
        return made

    def _lower_across(self, index, entry, operands, params, first):
        """An operation some of whose operands or results are on other devices than it: with copies between them."""
        here = entry.device
        operands = [x if spec.device is here else transfer(x, spec.device, here)
                    for x, spec in zip(operands, entry.input_specs, strict=True)]
        made = self._body(index, entry, operands, params) if index not in self.left else NotImplemented
        made = made if entry.many or made is NotImplemented else (made,)
        # where it computes nothing, as in x.to(device), the device need not compile
        if made is not NotImplemented and not here.backend.compiles \
                and any(all(node is not x for x in operands) for node in made):
            made = NotImplemented
        if made is NotImplemented:
            made = self._opaque(index, entry, operands)
            for node, spec in zip(made, entry.outs, strict=True):
                node.layout, node.lies = spec.on(here), spec.strides
        for i, (node, spec) in enumerate(zip(made, entry.outs, strict=True)):
            if node.shape != spec.shape:
                node = k.reshape(node, spec.shape) if node.numel == spec.numel else k.expand(node, spec.shape)
            if spec.device is not here:
                node = transfer(k.cast(node, spec.dtype), here, spec.device)
            elif node.op != "result":
                node = TraceNode("copy", spec.dtype, node.shape, (k.cast(node, spec.dtype),))
            self._give(first + i, node)

    def _give(self, slot, node):
        node.stored = False
        node.layout = self.specs[slot]
        node.lies = node.layout.strides
        self.slots[slot] = node

    def _body(self, index, entry, operands, params):
        """What the operation's body gives for these operands, or NotImplemented."""
        op = entry.op
        body = getattr(op, "body", None)
        if body is None or not entry.input_specs and entry.wrap is None and params and entry.op.pointwise:
            return NotImplemented
        if any(spec.dtype not in LOOP_TYPE or spec.numel == 0 for spec in (*entry.input_specs, *entry.outs)):
            return NotImplemented
        casts = entry.casts
        if entry.rounded is not None:             # see Note [A number enters a dtype] in base/arguments.py
            operands = [k.cast(x, entry.rounded[0]) if slot in entry.rounded[1] else x
                        for slot, x in enumerate(operands)]
        given = operands
        if casts is not None:
            given = [x if x.dtype.np is c else k.cast(x, dtypes.from_numpy(c))
                     for x, c in zip(operands, casts, strict=True)]
        argv = list(entry.template)
        for number, at in enumerate(entry.param_at):
            value = params[number]
            if (op.pointwise or op.scalar_at[at]) and value.__class__ in NUMBER_CLASSES:
                value = self._number(index, number, at, entry, given, value.__class__)
                if value is NotImplemented:
                    return NotImplemented
            elif value.__class__ is complex:
                return NotImplemented
            argv[at] = value
        for at, slot in enumerate(entry.template):
            if slot.__class__ is int:
                argv[at] = given[slot]
            elif slot.__class__ is tuple:
                argv[at] = [None if s is None else given[s] for s in slot]
        half = entry.outs[0].dtype if entry.outs[0].dtype in HALVES else None
        n = op.n_positional
        try:
            return body(Words(entry.device.backend, half), *argv[:n], **dict(zip(op.kwonly, argv[n:], strict=True)))
        except NotComplex:
            return NotImplemented

    def _number(self, index, number, at, entry, given, given_class):
        """A runtime number as a leaf, in the dtype that the operation computes in."""
        if entry.compute is not None:
            dtype = entry.compute
        elif given:
            dtype = given[0].dtype
        else:
            dtype = entry.outs[0].dtype
        if dtype in HALVES:
            dtype = dtypes.float32
        if dtype not in LOOP_TYPE or given_class is complex and not dtype.is_complex:
            return NotImplemented
        if dtype.is_complex:
            part = dtype.to_real()
            if given_class is not complex:
                return joined(self._leaf(index, number, part, part), const(0.0, part))
            return joined(*[self._leaf(index, number, part, NumberPart(part, which)) for which in ("real", "imag")])
        halved = entry.rounded is not None and at in entry.rounded[2]
        return self._leaf(index, number, dtype, entry.rounded[0] if halved else dtype)

    def _leaf(self, index, number, dtype, brought_to):
        self.numbers.append((index, number, brought_to))
        return TraceNode("number", dtype, (), (), len(self.numbers) - 1)

    # --- operands ---------------------------------------------------------------------------------------------------

    def whole(self, slot):
        """All of a slot's memory, as it lies."""
        spec = self.specs[slot]
        return self.operand(slot, spec, 0)

    def operand(self, slot, spec, offset):
        """The node of what an instruction reads: slot `slot`, seen as `spec` from `offset` on."""
        node = self.slots.get(slot)
        if node is None:
            key = (slot, spec, offset)
            leaf = self.inputs.get(key)
            if leaf is None:
                leaf = self.inputs[key] = TraceNode("input", spec.dtype, spec.shape, (), key)
                leaf.lies = spec.strides
            return leaf
        base = self.specs[slot]
        if spec is base and not offset:
            return node
        if spec.dtype is not base.dtype and base.dtype.is_complex and offset in (0, 1) \
                and spec.dtype is base.dtype.to_real() and spec.shape == base.shape \
                and spec.strides == tuple([2 * s for s in base.strides]):
            seen = parts(node)[offset]
            seen.lies = spec.strides
            return seen
        if not offset and spec.dtype is base.dtype:
            seen = seen_as(node, base, spec)
            if seen is not None:
                if seen is not node:
                    seen.lies = spec.strides
                return seen
        seen = TraceNode("view", spec.dtype, spec.shape, (node,), (spec, offset))
        seen.lies = spec.strides
        return seen


def seen_as(node, base, spec):
    """`node`, which lies in memory as `base`, seen as `spec`: reshaped, permuted and expanded; None if it cannot."""
    if not base.dense or not base.numel:
        return None
    moving = [d for d, (n, s) in enumerate(zip(spec.shape, spec.strides, strict=True)) if n != 1 and s != 0]
    order = sorted(moving, key=lambda d: -spec.strides[d])
    step = 1
    for d in reversed(order):
        if spec.strides[d] != step:
            return None
        step *= spec.shape[d]
    if step != base.numel:
        return None
    laid = sorted(range(base.ndim), key=lambda d: (-base.strides[d], d))
    flat = node
    if laid != list(range(base.ndim)):
        flat = k.permute(node, laid)
    flat = k.reshape(flat, tuple(spec.shape[d] for d in order))
    if order != moving:
        flat = k.permute(flat, [order.index(d) for d in moving])
    flat = k.reshape(flat, tuple(n if d in moving else 1 for d, n in enumerate(spec.shape)))
    return k.expand(flat, spec.shape)


class NumberPart:
    """What a complex number is brought to that is given at run time: its "real" or its "imag" part, in a dtype."""

    __slots__ = ("dtype", "which")
    is_floating_point = True

    def __init__(self, dtype, which):
        self.dtype, self.which = dtype, which

    @property
    def compute(self):
        return self.dtype.compute


def cell(value, dtype):
    """A runtime number as it stands in the eight bytes that a kernel reads."""
    if dtype.__class__ is NumberPart:
        return float(getattr(value, dtype.which))
    if dtype in HALVES:
        return float(as_scalar(value, dtype))
    if dtype.is_floating_point:
        return float(value)
    if dtype is dtypes.bool:
        return int(bool(value))
    return int(wrapped(int(value), dtype.np))
