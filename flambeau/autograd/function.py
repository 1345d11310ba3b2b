"""Operations of the user's own: `Function` with a forward and a backward written by hand.

The context that forward and backward share is the autograd node itself, so what forward puts on it can be looked at
through `grad_fn`, as in PyTorch.
"""
import functools

from ..base.errors import here, line_of
from ..base.op import door
from ..trace.running.runner import numbering
from .base_node import Node
from .edges import edge_of, requires
from .forward_ad import set_tangents, tangents_of
from .modes import modes
from .node import keep, second_error
from .slices import rebase

__all__ = ["Function", "FunctionCtx", "FunctionMeta", "InplaceFunction", "once_differentiable"]


class FunctionCtx(Node):
    """What `forward` leaves for `backward`."""

    takes_none = True             # backward runs even where no gradient came, with zeros in its place
    materialize = True
    _materialize_non_diff_grads = True
    plain_at: tuple = ()          # the results that are marked non-differentiable, by number
    to_save: tuple = ()
    to_save_forward: tuple = ()
    dirty: tuple = ()
    non_differentiable: tuple = ()
    needs_input_grad: tuple = ()
    kept = ()
    function = None               # the Function subclass
    had_kept = False

    def __init__(self):
        pass

    def save_for_backward(self, *tensors):
        """Keep tensors for backward; in-place writes to them are noticed there."""
        self.to_save = tensors

    def save_for_forward(self, *tensors):
        """Keep tensors for `jvp`."""
        self.to_save_forward = tensors

    def mark_dirty(self, *args):
        """Say which inputs forward wrote in place."""
        self.dirty = args

    def mark_non_differentiable(self, *args):
        """Say which results carry no gradient."""
        self.non_differentiable = args

    def set_materialize_grads(self, value):
        """Whether backward sees zeros (the default) or None for results that got no gradient."""
        self.materialize = value

    @property
    def saved_tensors(self):
        if self.kept is None:
            raise second_error(self)
        if not self.kept and (self.to_save or self.to_save_forward):      # still inside forward or jvp
            return tuple(self.to_save or self.to_save_forward)
        return tuple(k if k is None else k.unpack(self) for k in self.kept)

    saved_variables = saved_tensors

    def name(self):
        return self.function.__name__ + "Backward"

    def __repr__(self):
        return f"<torch.autograd.function.{self.name()} object at {hex(id(self))}>"

    def differentiable_out(self, nr):
        return True

    def release(self, site):
        if self.had_kept:
            self.kept = None
            self.released = site

    def backward(self, grads):
        if self.kept is None and self.had_kept:
            raise second_error(self)
        if self.materialize:
            left = () if self._materialize_non_diff_grads else self.plain_at
            grads = tuple(g if g is not None or spec is None or nr in left
                          else door.operations["_full"](spec.shape, 0, spec.dtype, spec.device)
                          for nr, (g, spec) in enumerate(zip(grads, self.outs, strict=True)))
        rule, other = self.function.backward, self.function.vjp
        if rule is Function.backward:
            rule = other
        elif other is not Function.vjp:
            raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You "
                               "should only implement one of them.")
        made = rule(self, list(grads)) if self.function.boxed_grads_call else rule(self, *grads)
        made = made if isinstance(made, tuple) else tuple(made) if isinstance(made, list) else (made,)
        wanted = len(self.is_tensor)
        if len(made) > wanted and all(g is None for g in made[wanted:]):
            made = made[:wanted]
        if len(made) != wanted:
            raise RuntimeError(f"function {self.name()} returned an incorrect number of gradients (expected {wanted}, "
                               f"got {len(made)})\n  {self.name()} was made at {line_of(self.site)}: its backward must "
                               "return one gradient (or None) for each argument of forward.")
        out = []
        for i, (g, tensor) in enumerate(zip(made, self.is_tensor, strict=True)):
            if tensor:
                if g is not None and not isinstance(g, door.tensor):
                    raise TypeError(f"expected Variable or None (got {type(g).__name__})")
                out.append(g)
            elif g is not None:
                raise RuntimeError(f"function {self.name()} returned a gradient different from None at position "
                                   f"{i + 1}, but the corresponding forward input was not a Variable")
        return tuple(out)


class FunctionMeta(type):
    """Gives each Function a node class of its own, named as PyTorch names it."""

    def __init__(cls, name, bases, attrs):
        super().__init__(name, bases, attrs)
        cls._node_class = type(name + "Backward", (FunctionCtx,), {"function": cls})


class Function(metaclass=FunctionMeta):
    """Subclass it, write `forward` and `backward` as static methods, and call `apply`."""

    boxed_grads_call = False      # whether backward takes its gradients in one list, which it may empty
    own_backward = True           # it is the program's own code, and may do more than compute with its arguments

    def __init__(self, *args, **kwargs):
        raise RuntimeError(f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so "
                           "you should invoke them on the class itself. Instantiating an autograd function will raise "
                           "an error in a future version of PyTorch.")

    def __call__(self, *args, **kwargs):
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated. Please use "
                           "new-style autograd function with static forward method.")

    @staticmethod
    def forward(*args, **kwargs):
        """The operation: `forward(ctx, *args)`, or `forward(*args)` together with `setup_context`."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Fill the context after a `forward` that does not take one."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        """One gradient (or None) for each argument of forward."""
        raise NotImplementedError("You must implement either the backward or vjp method for your custom "
                                  "autograd.Function to use it with backward mode AD.")

    vjp = backward

    @staticmethod
    def jvp(ctx, *grad_inputs):
        """The tangents of the results, from those of the arguments."""
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with "
                                  "forward mode AD.")

    @classmethod
    def _in_order(cls, args, kwargs, defaults):
        """The arguments in `forward`'s order, so that a tensor given by name has its gradient; (args, keyword-only).

        With `defaults` those are filled in, since `setup_context` sees all of its inputs.
        """
        from inspect import signature
        given = signature(cls.forward).bind(*args, **kwargs) if defaults else \
            signature(cls.forward).bind(None, *args, **kwargs)                # None stands for ctx
        if defaults:
            given.apply_defaults()
        return given.args if defaults else given.args[1:], given.kwargs

    @classmethod
    def apply(cls, *args, **kwargs):
        """Run the operation on `args` and record it."""
        if modes.levels and (made := door.batching.function(cls, args, kwargs)) is not None:
            return made
        Tensor = door.tensor
        separate = cls.setup_context is not Function.setup_context
        if kwargs or separate:
            args, kwargs = cls._in_order(args, kwargs, separate)
        ctx = cls._node_class()
        tensors = [a for a in args if isinstance(a, Tensor)]
        ctx.is_tensor = tuple(isinstance(a, Tensor) for a in args)
        tracked = modes.grad and any(requires(t) for t in tensors)
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and modes.grad and requires(a) for a in args)
        edges = tuple(edge_of(t) if requires(t) else None for t in tensors) if tracked else ()
        ctx.seq = next(numbering)      # after the nodes that the edges may have made
        tangents = tangents_of(args) if modes.level >= 0 else None
        before, modes.grad = modes.grad, False
        level, modes.level = modes.level, -1
        try:
            if separate:
                out = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, out)
            else:
                out = cls.forward(ctx, *args, **kwargs)
        finally:
            modes.grad, modes.level = before, level
        many = isinstance(out, tuple)
        outs = list(out) if many else [out]
        ctx.site = here()
        ctx.outs = tuple(o._spec if isinstance(o, Tensor) else None for o in outs)
        ctx.n_outputs = len(outs)
        ctx.input_specs = tuple(t._spec for t in tensors)
        ctx.edges = edges
        ctx.plain_at = tuple(nr for nr, o in enumerate(outs) if any(o is t for t in ctx.non_differentiable))
        _check_dirty(cls, ctx, outs, tensors)
        given = list(outs)
        for nr, o in enumerate(given):
            if isinstance(o, Tensor):
                first = next(i for i, other in enumerate(given) if other is o)
                if first == nr:
                    outs[nr] = _result(ctx, o, nr, tensors, tracked)
                else:                     # the same result twice is one tensor, whose gradient is the last one's
                    outs[nr] = outs[first]
                    if outs[nr]._node is ctx:
                        outs[nr]._nr = nr
        try:
            if tracked:
                _keep_all(ctx, out, outs)
                ctx._tell_made()
            if tangents is not None:
                if ctx.materialize:
                    tangents = [door.operations["zeros_like"](a).detach() if t is None and isinstance(a, Tensor) and
                                a._spec.dtype.category >= 2 else t for a, t in zip(args, tangents, strict=True)]
                set_tangents(outs, cls.jvp(ctx, *tangents))
        finally:
            # a result among these would hold itself
            ctx.to_save = ctx.to_save_forward = ctx.dirty = ctx.non_differentiable = ()
        return tuple(outs) if many else outs[0]


class InplaceFunction(Function):
    """PyTorch's older base for operations that may write their input; `Function` with `mark_dirty` is the same."""

    def __init__(self, inplace=False):
        super().__init__(inplace)


def _check_dirty(cls, ctx, outs, inputs):
    for t in ctx.dirty:
        if t._base is not None and not any(t is given for given in inputs):
            raise RuntimeError("mark_dirty received a tensor that was not an input. It is a view of a tensor that "
                               f"{cls.__name__}.forward made; only inputs that were modified in place are dirty.")
        door.before_write(t, cls.__name__, bytes=False)
        if not any(o is t for o in outs):
            raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output. "
                               "The inputs that are modified inplace must all be outputs of the Function.")


def _result(ctx, out, nr, inputs, tracked):
    """One result with its history: an input handed back becomes a view of itself, unless it was written."""
    dirty = any(out is t for t in ctx.dirty)
    plain = any(out is t for t in ctx.non_differentiable) or out._spec.dtype.category < 2
    if not dirty:
        base = out._base
        source = next((t for t in inputs if out is t or base is not None and (base is t or base is t._base)), None)
        if any(out is t for t in inputs) or out._node is not None or out._requires_grad:
            look = door.wrap(out._storage, out._spec, out._offset)
            look._site = ctx.site
            out = look
            if source is not None and not plain:
                out._base = source._base if source._base is not None else source
        if (source is not None or out._base is not None) and not plain:
            out._view_of = "custom"
            out._seen = out._storage.version
    if plain or not tracked:
        if tracked:
            out._cut = (f"{ctx.name()}, which marked it non-differentiable", ctx.site)
        return out
    if dirty and out._base is not None:
        written = door.wrap(out._storage, out._spec, out._offset)
        written._node, written._nr = ctx, nr
        rebase(out, written, edge_of(out._base) if requires(out._base) else None)
    else:
        out._node, out._nr, out._requires_grad = ctx, nr, False
    return out


def _keep_all(ctx, out, outs):
    """Keep what the forward asked to save. By itself: Python 3.14 writes `any` as a loop, and see "Loops and
    interrupts" in CONTRIBUTING.md."""
    ctx.kept = tuple(_keep(ctx, t, out, outs) for t in ctx.to_save)
    ctx.had_kept = any(k is not None for k in ctx.kept)


def _keep(ctx, tensor, out, outs):
    if tensor is None:
        return None
    if not isinstance(tensor, door.tensor):
        raise TypeError(f"save_for_backward can only save variables, but argument is of type {type(tensor).__name__}")
    before = out if isinstance(out, tuple) else (out,)
    for nr, (o, wrapped) in enumerate(zip(before, outs, strict=True)):
        if o is tensor or wrapped is tensor:
            if isinstance(wrapped, door.tensor) and wrapped._node is ctx:
                return keep(wrapped, True, nr)
    return keep(tensor)


def once_differentiable(fn):
    """Mark a `backward` that cannot itself be differentiated: trying to is an error, not a wrong result."""

    @functools.wraps(fn)
    def once(ctx, *grads):
        before, modes.grad = modes.grad, False
        try:
            made = fn(ctx, *grads)
        finally:
            modes.grad = before
        if not before or not any(isinstance(g, door.tensor) and requires(g) for g in grads):
            return made
        outs = made if isinstance(made, tuple) else (made,)
        refusal = RefusingNode(tuple(edge_of(g) for g in grads if isinstance(g, door.tensor) and requires(g)),
                               "torch::autograd::Error", "trying to differentiate twice a function that was marked "
                               "with @once_differentiable")
        for o in outs:
            if isinstance(o, door.tensor):
                o._node, o._nr = refusal, 0
        return made
    return once


class RefusingNode(Node):
    """Stands where no gradient can go on, and says so if it is walked."""

    takes_none = True

    def __init__(self, edges, name, words):
        super().__init__()
        self.edges, self.said, self.words = edges, name, words
        self.site = here()
        self._tell_made()

    def name(self):
        return self.said

    def backward(self, grads):
        raise RuntimeError(f"{self.words}\n  It ran at {line_of(self.site)}.")
