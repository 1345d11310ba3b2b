"""Calls over batched tensors: the rule that a call goes by, the loop where there is none, and nodes of several parts.

Note [Rules]: a rule is given a Sliced, the call of one level, and gives the result over all slices, with their
dimension first. What it calls may be batched again, over the levels around. Most operations say by what they declare
which rule is theirs: a Pointwise one aligns its operands, a composite is run and comes to others. The tables of
rules.py, index_rules.py and layer_rules.py name the rest. An operation with no rule is called for each slice, and
`watch` is told so.
"""
from collections.abc import Callable
from typing import NamedTuple

from ..autograd.edges import requires
from ..autograd.function import Function
from ..autograd.modes import modes
from ..base.op import Pointwise, door, known
from ..tensor.batched import Batched, Unbatchable, batched, over, plain_of, rebatched
from ..tensor.call import call, call_primitive
from ..tensor.composite import tensors_in
from ..tensor.forms import declared, namespace
from ..tensor.infer import infer_entry, prepared, ruled_entry
from ..tensor.results import named
from ..tensor.tensor import Tensor
from ..trace.recording.record import current
from ..trace.running.quick import here

stack = namespace[""]["stack"]
rules: dict = {}              # operation → its rule
by_values: set = set()        # those where the strides of a slice do not say what can be done
DIMS = ("dim", "dims", "dim0", "dim1", "dim2", "dimension")
DYNAMIC = ("vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over aten::{}. "
           "Please use operations whose result's shape does not depend on data.")


def invoke(op, args):
    """Call an operation with its arguments in order, which may be batched at the levels around."""
    if op not in known:
        prepared(op)
    if modes.autocast is None:
        return call_primitive(op, op.bind(tuple(args), {}) if len(args) < len(op.defaults) else tuple(args))
    n = op.n_positional
    return call(op, tuple(args[:n]), dict(zip(op.kwonly, args[n:], strict=True)))


class Sliced:
    """A call over slices: `args` with values in the place of what is batched at this level, and what each slice gives.

    `has` says of each argument whether it was batched, of a list of tensors a tuple of that.
    """

    __slots__ = ("args", "entry", "has", "level", "op", "shapes", "size")

    def __init__(self, op, args, entry, level):
        self.op, self.entry, self.level, self.size = op, entry, level, 0
        self.shapes = [a._spec.shape if isinstance(a, Tensor) else None for a in args]     # of the slices
        values, has = [], []
        for a in args:
            if a.__class__ is tuple or a.__class__ is list:
                pairs = [self.peeled(b) for b in a]
                values.append(tuple([value for value, _ in pairs]))
                has.append(tuple([own for _, own in pairs]))
            else:
                value, own = self.peeled(a)
                values.append(value)
                has.append(own)
        self.args, self.has = values, has

    def peeled(self, a):
        """(the value of a batched tensor of this level, True), or (the argument itself, False)."""
        if a.__class__ is Batched and a._level == self.level:
            self.size = a._value._spec.shape[0]
            return a._value, True
        return a, False

    def whole(self, at):
        """Argument `at` over all slices, expanded where it is the same in each; None stays None."""
        return self.expanded(self.args[at], self.has[at])

    def expanded(self, value, own):
        """A tensor over all slices, be it the `own` one of each or the same in each."""
        return value if own or value is None else value.unsqueeze(0).expand(self.size, *value._spec.shape)

    def wide(self, at, ndim):
        """Argument `at` with sizes of one before its own, so that it stands beside slices of `ndim` dimensions."""
        value, shape = self.args[at], self.shapes[at]
        if not self.has[at] or len(shape) >= ndim:
            return value
        return view(value, (self.size, *(1,) * (ndim - len(shape)), *shape))

    def run(self, args):
        """The operation itself, over other arguments."""
        return invoke(self.op, args)

    def shape(self, nth=0):
        """The shape of a result over all slices."""
        return (self.size, *self.entry.outs[nth].shape)


def view(value, shape):
    """`value` seen with another shape; a copy where that is no view."""
    return value if value._spec.shape == shape else value.reshape(shape)


# --- a call -----------------------------------------------------------------------------------------------------------


def batched_call(op, args, key, entry):
    """A call of a primitive, one of whose tensors at least is batched. `args` are all its arguments in order."""
    level = 0
    for t in tensors_in(args):
        if t.__class__ is Batched and t._level > level:
            level = t._level
    rule = rules.get(op) or rules.setdefault(op, rule_of(op))
    if entry is None and op not in by_values:
        entry = infer_entry(op, args, key)                # refuses what no slice could do, in its own words
    if entry is not None and entry.outs is None:
        raise Unbatchable(DYNAMIC.format(op.__name__))
    sliced = Sliced(op, args, entry, level)
    trace = current()
    site = trace.site
    trace.site = site or here()
    try:
        made = rule(sliced)
    finally:
        trace.site = site
    if made.__class__ in (tuple, list):
        outs = [checked(sliced, value, nth, level) for nth, value in enumerate(made)]
        return outs if op.is_view else named(op, outs)
    return checked(sliced, made, 0, level)


def checked(sliced, value, nth, level):
    """What a rule gave, as a Batched: a result of another shape than the slices' would be a mistake of ours."""
    entry = sliced.entry
    if entry is not None and value._spec.shape[1:] != entry.outs[nth].shape:
        raise AssertionError(f"vmap of {sliced.op.__name__}: a slice gives {list(entry.outs[nth].shape)}, and the rule "
                             f"gave {list(value.shape[1:])}")
    return batched(value, level)


def rule_of(op):
    """The rule of an operation that the tables do not name, by what it declares."""
    return aligned if isinstance(op, Pointwise) else slice_by_slice


def aligned(sliced):
    """Element by element: dimensions are counted from the last one, so sizes of one go in between."""
    entry, args = sliced.entry, sliced.args
    ndim = entry.outs[0].ndim
    common = entry.compute
    made = []
    for at, a in enumerate(args):
        if sliced.has[at]:
            a = sliced.wide(at, ndim)
            if not sliced.shapes[at] and common is not None and a._spec.dtype is not common \
                    and sliced.op.operand_at[at]:
                a = a.to(common)                          # without dimensions it would not have had a say
        made.append(a)
    return sliced.run(made)


# --- slice by slice ---------------------------------------------------------------------------------------------------


def slice_by_slice(sliced):
    """The operation called for each slice, where no other rule is known."""
    door.noticed("vmap_without_rule", sliced.op, sliced.size)
    columns = []
    for a, own in zip(sliced.args, sliced.has, strict=True):
        if own.__class__ is tuple:
            parts = [b.unbind(0) if has else (b,) * sliced.size for b, has in zip(a, own, strict=True)]
            columns.append(list(zip(*parts, strict=True)) if parts else [()] * sliced.size)
        else:
            columns.append(a.unbind(0) if own else (a,) * sliced.size)
    made = [sliced.run(row) for row in zip(*columns, strict=True)]
    if made[0].__class__ is Tensor or isinstance(made[0], Tensor):
        return stack(made)
    return [stack(column) for column in zip(*made, strict=True)]


# --- composites with derivative rules, and functions of the user's ----------------------------------------------------


class Whole(Function):
    """What computes with batched tensors as one node over the plain ones, which hold all slices."""

    @staticmethod
    def forward(ctx, work, *plains):
        ctx.work = work
        ctx.set_materialize_grads(False)
        outs = work.forward([rebatched(t, numbers) for t, numbers in zip(plains, work.numbers, strict=True)])
        made = tuple([plain_of(over(out, work.levels))[0] for out in outs])
        made = tuple([out.clone() if any(out is t for t in plains) else out for out in made])
        ctx.save_for_backward(*plains, *made)
        ctx.mark_non_differentiable(*[out for nr, out in enumerate(made) if nr in work.without_gradient])
        return made

    @staticmethod
    def backward(ctx, *gs):
        work, count = ctx.work, len(ctx.work.numbers)
        saved = ctx.saved_tensors
        tensors = [rebatched(t, numbers) for t, numbers in zip(saved[:count], work.numbers, strict=True)]
        every = work.every
        outs = [rebatched(t, every) for t in saved[count:]]
        grads = work.backward([None if g is None else rebatched(g, every) for g in gs], tensors, outs,
                              ctx.needs_input_grad[1:])
        return None, *[None if g is None else summed(g, work.levels, t, numbers)
                       for g, t, numbers in zip(grads, saved[:count], work.numbers, strict=True)]


def summed(g, levels, plain, numbers):
    """The gradient `g` of a slice for all of them; added up over the levels that the input was the same in."""
    whole, have = plain_of(over(g, levels))
    lead = len(have)
    gone = tuple([at for at, number in enumerate(have) if number not in numbers])
    own = plain._spec.shape[len(numbers):]
    slices = whole._spec.shape[lead:]
    if slices != own:
        extra = len(slices) - len(own)
        gone += tuple([lead + d for d, n in enumerate(slices) if d < extra or own[d - extra] != n])
    if gone:
        whole = whole.sum(gone)
    return whole.reshape(plain._spec.shape).to(plain._spec.dtype)


class NodeWork:
    """What a Whole does: `forward` and `backward` over batched tensors."""

    without_gradient = ()

    def __init__(self, tensors):
        pairs = [plain_of(t) for t in tensors]
        self.plains = [plain for plain, _ in pairs]
        self.numbers = [numbers for _, numbers in pairs]
        self.every = tuple(sorted({number for numbers in self.numbers for number in numbers}))
        sizes = {number: plain._spec.shape[at] for plain, numbers in pairs for at, number in enumerate(numbers)}
        self.levels = [Slices(number, sizes[number]) for number in self.every]

    def run(self):
        """The results, batched."""
        made = Whole.apply(self, *self.plains)
        return [rebatched(out, self.every) for out in made]


class Slices:
    """A level as `over` asks for it."""

    __slots__ = ("number", "size")

    def __init__(self, number, size):
        self.number, self.size = number, size


class RuledWork(NodeWork):
    """A composite with derivative rules."""

    def __init__(self, op, args):
        self.entry, tensors = ruled_entry(op, args)
        self.op, self.args, self.many = op, args, None
        super().__init__(tensors)

    def with_tensors(self, tensors):
        """All arguments, with these in the place of the tensors."""
        return [a if slot is None else tensors[slot] if slot.__class__ is int else tuple(
            [None if one is None else tensors[one] for one in slot])
            for a, slot in zip(self.args, self.entry.template, strict=True)]

    def forward(self, tensors):
        op, args = self.op, self.with_tensors(tensors)
        n = op.n_positional
        made = op.of(*args[:n], **dict(zip(op.kwonly, args[n:], strict=True)))
        self.many = made.__class__ in (tuple, list)
        outs = list(made) if self.many else [made]
        self.without_gradient = op.nondiff
        return outs

    def backward(self, gs, tensors, outs, needs):
        op, args = self.op, self.with_tensors(tensors)
        g = gs if self.many else gs[0]
        made = [None] * len(tensors)

        def wanted(name):
            if name in op.arg_names:
                return args[op.arg_names.index(name)]
            if name == "out":
                return tuple(outs) if self.many else outs[0]
            if name.startswith("out") and name[3:].isdigit():
                return outs[int(name[3:])]
            given = args[op.arg_names.index(name.removesuffix("_spec"))]
            return None if given is None else given._spec
        if op.joint is not None:
            rule, names = op.joint
            parts = rule(g, tuple(needs), *map(wanted, names))
            return list(parts) if isinstance(parts, (tuple, list)) else [parts]
        for at, slot in enumerate(self.entry.template):
            if slot.__class__ is int and needs[slot] and at in op.rules:
                rule, names = op.rules[at]
                made[slot] = rule(g, *map(wanted, names))
        return made


def batched_node(op, args):
    """A composite with derivative rules over batched tensors: one node over all slices."""
    if op in (declared["_copy"], declared["_fill"], declared["_fill_"], declared["_fill_tensor"],
              declared["_fill_tensor_"], declared["_zero"]):
        return op.of(args[0].detach(), *args[1:])         # nothing of the gradient is the first argument's
    if not modes.grad or not any(map(requires, tensors_in(args))):
        n = op.n_positional
        made = op.of(*args[:n], **dict(zip(op.kwonly, args[n:], strict=True)))
        return named(op, list(made)) if made.__class__ in (tuple, list) else made
    work = RuledWork(op, args)
    outs = work.run()
    return named(op, outs) if work.many else outs[0]


class FunctionWork(NodeWork):
    """A Function of the user's."""

    def __init__(self, function, args):
        self.function, self.given, self.many = function, args, False
        self.at = [at for at, a in enumerate(args) if isinstance(a, Tensor)]
        super().__init__([args[at] for at in self.at])

    def forward(self, tensors):
        args = list(self.given)
        for at, t in zip(self.at, tensors, strict=True):
            args[at] = t.detach()
        self.ctx = ctx = Context([requires(plain) for plain in self.plains], self.at, len(args))
        if self.function.setup_context is not Function.setup_context:
            made = self.function.forward(*args)
            self.function.setup_context(ctx, tuple(args), made)
        else:
            made = self.function.forward(ctx, *args)
        self.many = isinstance(made, tuple)
        outs = list(made) if self.many else [made]
        if ctx.dirty or not all(isinstance(out, Tensor) for out in outs):
            raise Unbatchable("vmap: a Function that writes in place, or gives what is no tensor")
        self.without_gradient = [nr for nr, out in enumerate(outs) if any(out is t for t in ctx.non_differentiable)]
        self.places = [place_of(t, [args[at] for at in self.at], outs) for t in ctx.to_save]
        return outs

    def backward(self, gs, tensors, outs, needs):
        ctx, every = self.ctx, (*tensors, *outs)
        ctx.saved_tensors = tuple([t if place is None else every[place] for t, place in zip(ctx.to_save, self.places,
                                                                                            strict=True)])
        if ctx.materialize:
            gs = [out.new_zeros(out.shape) if g is None else g for g, out in zip(gs, outs, strict=True)]
        made = self.function.backward(ctx, *gs)
        made = made if isinstance(made, tuple) else (made,)
        return [made[at] if needs[nr] else None for nr, at in enumerate(self.at)]


def place_of(tensor, inputs, outs):
    """Which of the inputs and results a saved tensor is; None where it is neither."""
    return next((nr for nr, t in enumerate((*inputs, *outs)) if t is tensor), None)


class Context:
    """What a Function's forward leaves for its backward, over batched tensors."""

    materialize = True
    dirty: tuple = ()
    non_differentiable: tuple = ()
    to_save: tuple = ()
    saved_tensors: tuple = ()

    def __init__(self, wanted, at, count):
        needs = [False] * count
        for place, want in zip(at, wanted, strict=True):
            needs[place] = want
        self.needs_input_grad = tuple(needs)

    def save_for_backward(self, *tensors):
        self.to_save = self.saved_tensors = tensors

    def save_for_forward(self, *tensors):
        pass

    def mark_dirty(self, *args):
        self.dirty = args

    def mark_non_differentiable(self, *args):
        self.non_differentiable = args

    def set_materialize_grads(self, value):
        self.materialize = value


def batched_function(function, args, kwargs):
    """A Function of the user's over batched tensors; None where it is given none."""
    if not any(a.__class__ is Batched for a in (*args, *kwargs.values())):
        return None
    if kwargs:
        args, _ = function._in_order(args, kwargs, True)
    work = FunctionWork(function, args)
    outs = work.run()
    return tuple(outs) if work.many else outs[0]


class Batching(NamedTuple):
    """What a call does that is given batched tensors; lower layers find it at the door."""
    call: Callable            # (op, args, key, entry): of an operation
    node: Callable            # (op, args): of a composite with derivative rules
    function: Callable        # (function, args, kwargs): of a Function of the user's
    grad: Callable            # (outputs, inputs, …): of `autograd.grad`
