"""Derivatives of functions: `grad`, `vjp`, `jvp`, Jacobians, Hessians.

Note [Inside and outside]: a function is differentiated at *inner* tensors, which stand in for its arguments. What is
given back must not show them: it has a history only if something outside, a tensor that requires grad or an enclosing
transform, takes part. An inner tensor is a leaf of its own, or, where the argument itself has a history outside, a
view of it; since gradients are asked for at the inner tensor only, a function that also reads the argument past it
(from a closure) is differentiated rightly at every level.

A transform differentiates in inference mode too, and at inference tensors: it leaves that mode for as long as it runs.

Inside of `vmap` a leaf is one for each slice: an expanded look, of whose gradients there is one for each slice too.

Forward products are made by differentiating the backward product, which is linear in the incoming gradient.
"""
import functools

from ..autograd.base_node import AccumulateGrad
from ..autograd.edges import edge_of, requires
from ..autograd.engine import grad as backward_grad
from ..autograd.modes import differentiating, enable_grad, modes
from ..base.pytree import tree_flatten, tree_leaves, tree_map, tree_structure, tree_unflatten
from ..tensor.batched import Unbatchable, batched, levels_of, over, plain_of, rebatched
from ..tensor.forms import namespace
from ..tensor.tensor import Tensor
from ..trace.running.effects import standing_in

__all__ = ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp"]
cat, zeros_like, eye = (namespace[""][name] for name in ("cat", "zeros_like", "eye"))


class Inside:
    """Inner tensors in place of a function's arguments; see Note [Inside and outside]."""

    def __init__(self, arguments):
        self.outside = modes.grad         # whether the surrounding code may want a history
        self.leaves = set()               # ids of the inner tensors that are leaves
        self.tree = tree_map(self._inner, arguments)
        self.flat, self.spec = tree_flatten(self.tree)

    def _inner(self, tensor):
        if not isinstance(tensor, Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(tensor)}")
        if self.outside and requires(tensor):
            made = over(tensor, modes.levels)
            return tensor.view_as(tensor) if made is tensor else made
        return self.leaf(tensor)

    def leaf(self, tensor):
        """A leaf of its own over the contents of `tensor`."""
        plain, numbers = plain_of(over(tensor, modes.levels))
        made = (plain.clone() if plain.is_inference() else plain).detach().requires_grad_()
        self.leaves.add(id(made))
        return rebatched(made, numbers)

    def reaches_outside(self, tensors):
        """Whether the history of one of `tensors` goes to a leaf that is not an inner one."""
        if not self.outside:
            return False
        stack = [edge[0] for edge in [edge_of(plain_of(t)[0]) for t in tensors if requires(t)] if edge is not None]
        seen = set(stack)
        while stack:
            node = stack.pop()
            if node.__class__ is AccumulateGrad and id(node.variable) not in self.leaves:
                return True
            for edge in node.edges:
                if edge is not None and edge[0] not in seen:
                    seen.add(edge[0])
                    stack.append(edge[0])
        return False

    def out(self, tree):
        """`tree` as it is given back: without history, unless it reaches outside."""
        return tree_map(self._out, tree)

    def _out(self, tensor):
        if not isinstance(tensor, Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(tensor)}")
        return tensor if not requires(tensor) or self.reaches_outside((tensor,)) else tensor.detach()

    def gradients(self, outs, gs, keep=False, create=None):
        """The gradients of `outs`, weighted with `gs`, for all inner tensors; zeros where there is none."""
        create = self.reaches_outside((*outs, *[g for g in gs if g is not None])) if create is None else create
        return differentiate(outs, self.flat, gs, keep or create, create)


def differentiate(outs, inputs, gs, keep, create):
    """The gradients of those `outs` that have any, for `inputs`; zeros where there is none."""
    live = [(out, g) for out, g in zip(outs, gs, strict=True) if requires(out)]
    if not live:
        return [zeros_like(t) for t in inputs]
    made = backward_grad([out for out, _ in live], inputs, [g for _, g in live], retain_graph=keep, create_graph=create,
                         allow_unused=True)
    return [zeros_like(t) if g is None else g for t, g in zip(inputs, made, strict=True)]


# --- arguments ----------------------------------------------------------------------------------------------------


def chosen(args, argnums):
    """(the arguments at `argnums`, a function that puts others in their place)."""
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if argnums == ():
        raise RuntimeError("argnums must be non-empty")
    positions = []
    for number in argnums if isinstance(argnums, tuple) else (argnums,):
        if not isinstance(number, int):
            raise RuntimeError(f"argnums must be int or Tuple[int, ...], got an element of type: {type(number)}")
        if not -len(args) <= number < len(args):
            raise RuntimeError(f"Got argnum={number}, but only {len(args)} positional inputs")
        positions.append(number % len(args))
    if len(set(positions)) != len(positions):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")

    def replaced(others):
        full = list(args)
        for position, other in zip(positions, others if isinstance(argnums, tuple) else (others,), strict=True):
            full[position] = other
        return full
    picked = tuple(args[position] for position in positions)
    return picked if isinstance(argnums, tuple) else picked[0], replaced


def split_aux(made, has_aux, who):
    """(what the function gave, what it gave beside it or None)."""
    if not has_aux:
        return made, None
    if not (isinstance(made, tuple) and len(made) == 2):
        raise RuntimeError(f"{who}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return made


def only_tensors(made, who):
    """The tensors in what a function gave, which must all be tensors, with the structure around them."""
    flat, spec = tree_flatten(made)
    for out in flat:
        if not isinstance(out, Tensor):
            raise RuntimeError(f"{who}: expected f(*primals) to return only tensors, got unsupported type {type(out)}")
    return flat, spec


def with_aux(made, has_aux, inside, aux):
    """`made`, a tuple, with `aux` behind it if there is one; a single thing by itself."""
    made = (*made, inside.out(aux)) if has_aux else made
    return made[0] if len(made) == 1 else made


# --- gradients ----------------------------------------------------------------------------------------------------


def grad_and_value(func, argnums=0, has_aux=False):
    """A function that gives (the gradients of `func` for the arguments at `argnums`, what `func` gives).

    With `has_aux`, `func` gives (output, aux), and the second part is (output, aux) too.
    """
    who = "grad_and_value(f)(*args)"

    @differentiating()
    @functools.wraps(func)
    def made(*args, **kwargs):
        picked, replaced = chosen(args, argnums)
        inside = Inside(picked)
        with enable_grad():
            out, aux = split_aux(func(*replaced(inside.tree), **kwargs), has_aux, who)
            if not isinstance(out, Tensor):
                raise RuntimeError(f"{who}: Expected f(*args) to return a Tensor, got {type(out)}")
            if out.dim():
                raise RuntimeError(f"{who}: Expected f(*args) to return a scalar Tensor, got tensor with {out.dim()} "
                                   "dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
            grads = inside.gradients((out,), (None,))
        return tree_unflatten(inside.out(grads), inside.spec), with_aux((inside.out(out),), has_aux, inside, aux)
    return made


def grad(func, argnums=0, has_aux=False):
    """A function that gives the gradients of `func`, whose result is a single number, for the arguments at `argnums`.

    >>> torch.func.grad(torch.func.grad(torch.sin))(torch.tensor(0.5)) == -torch.sin(torch.tensor(0.5))
    tensor(True)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def made(*args, **kwargs):
        grads, value = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads
    return made


@differentiating()
def vjp(func, *primals, has_aux=False):
    """(func(*primals), a function that takes gradients of it to a tuple of gradients for `primals`)."""
    who = "vjp(f, *primals)"
    inside = Inside(primals)
    with enable_grad():
        out, aux = split_aux(func(*inside.tree), has_aux, who)
        flat, spec = only_tensors(out, who)

    @differentiating()
    def back(cotangents, retain_graph=True, create_graph=None):
        gs, given = tree_flatten(cotangents)
        if given != spec:
            raise RuntimeError("Expected pytree structure of cotangents to be the same as pytree structure of outputs "
                               f"to the function. cotangents: {given}, primal output: {spec}")
        for i, (g, o) in enumerate(zip(gs, flat, strict=True)):
            if g.shape != o.shape:
                raise RuntimeError(f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has "
                                   f"a shape of {o.shape}.")
        gs = [g.to(o.dtype) for g, o in zip(gs, flat, strict=True)]
        return tree_unflatten(inside.out(inside.gradients(flat, gs, retain_graph, create_graph)), inside.spec)
    made = (inside.out(out), back)
    return (*made, inside.out(aux)) if has_aux else made


# --- forward products ---------------------------------------------------------------------------------------------


class Pushed:
    """A function at a point, ready to take tangents of its arguments to tangents of its result, as often as wanted."""

    def __init__(self, func, arguments, has_aux=False, who="jvp(f, primals, tangents)", call=None):
        self.inside = inside = Inside(arguments)
        with enable_grad():
            self.made, self.aux = split_aux(call(inside.tree) if call else func(*inside.tree), has_aux, who)
            self.outs, self.spec = only_tensors(self.made, who)
            self.live = list(filter(requires, self.outs))
            self.probes = [inside.leaf(zeros_like(out)) for out in self.live]
            with standing_in():
                self.back = inside.gradients(self.live, self.probes, keep=True, create=True)
        self.tracked = inside.reaches_outside(self.live)

    def push(self, tangents):
        """The tangents of the results, for one tangent for each inner tensor."""
        create = self.tracked or self.inside.reaches_outside(tangents)
        with enable_grad():
            made = iter(differentiate(self.back, self.probes, tangents, True, create))
        # A gradient keeps its history outside only if it has one there.
        return [self.inside.out(next(made)) if requires(out) else zeros_like(out) for out in self.outs]


@differentiating()
def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """(func(*primals), the product of its Jacobian with `tangents`)."""
    who = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{who}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    if tree_structure(primals) != tree_structure(tangents):
        raise RuntimeError(f"{who}: Expected primals and tangents to have the same python structure. For example, if "
                           "primals is a tuple of 3 tensors, tangents also must be. Got primals with structure "
                           f"{tree_structure(primals)} and tangents with structure {tree_structure(tangents)}")
    flat = tree_leaves(tangents)
    if not flat:
        raise RuntimeError(f"{who}: Expected primals to contain at least one Tensor.")
    pushed = Pushed(func, primals, has_aux, who)
    _check_tangents(flat, pushed.inside.flat)
    if strict and len(pushed.live) < len(pushed.outs):
        raise RuntimeError("jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This "
                           "is not allowed with strict=True.")
    made = (pushed.inside.out(pushed.made), tree_unflatten(pushed.push(flat), pushed.spec))
    return (*made, pushed.inside.out(pushed.aux)) if has_aux else made


@differentiating()
def linearize(func, *primals):
    """(func(*primals), a function that takes tangents of `primals` to tangents of it without calling `func` again)."""
    pushed = Pushed(func, primals, who="linearize(f, *primals)")

    @differentiating()
    def forward(*tangents):
        if tree_structure(tangents) != pushed.inside.spec:
            raise RuntimeError(f"Expected the tangents {tree_structure(tangents)} to have the same argspec as the "
                               f"primals {pushed.inside.spec}")
        flat = tree_leaves(tangents)
        for i, (t, p) in enumerate(zip(flat, pushed.inside.flat, strict=True)):
            if t.shape != p.shape:
                raise RuntimeError(f"tangent:{i} with shape {t.shape} in flattened pytree doesn't match the shape "
                                   f"{p.shape} of the corresponding primal.")
        return tree_unflatten(pushed.push(flat), pushed.spec)
    return pushed.inside.out(pushed.made), forward


def _check_tangents(tangents, primals):
    for t, p in zip(tangents, primals, strict=True):
        if t.shape != p.shape:
            raise RuntimeError("Trying to set a forward gradient that has a different size than that of the original "
                               f"Tensor, this is not supported. Tensor is of size {list(p.shape)} while the given "
                               f"forward gradient is of size {list(t.shape)}.")


# --- Jacobians ----------------------------------------------------------------------------------------------------


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """A function that gives the Jacobian of `func` for the arguments at `argnums`, by a backward for each output.

    The Jacobian of an output for an input has the shape of the output followed by that of the input; it is nested as
    the outputs are, and inside as the arguments are.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @differentiating()
    @functools.wraps(func)
    def made(*args, **kwargs):
        picked, replaced = chosen(args, argnums)
        inside = Inside(picked)
        with enable_grad():
            out, aux = split_aux(func(*replaced(inside.tree), **kwargs), has_aux, "vjp(f, *primals)")
            outs, spec = only_tensors(out, "vjp(f, *primals)")
            blocks = [_rows(inside, o, chunk_size) for o in outs]
        return with_aux((tree_unflatten(blocks, spec),), has_aux, inside, aux)
    return made


def _rows(inside, out, chunk_size):
    """The Jacobian of one output for all inner tensors, nested as they are: a backward for all of its elements at once,
    or for `chunk_size` of them."""
    create = inside.reaches_outside((out,))
    made = _for_each_unit(out, lambda unit: inside.gradients((out,), (unit,), True, create), chunk_size)
    blocks = [t.new_zeros((0, *t.shape)) for t in inside.flat] if made is None else made
    return tree_unflatten(inside.out([block.reshape(out.shape + t.shape)
                                      for t, block in zip(inside.flat, blocks, strict=True)]), inside.spec)


def _for_each_unit(tensor, function, chunk_size=None):
    """What `function`, which gives a list of tensors, gives for each tensor like `tensor` with a 1 at one of its
    elements and 0 elsewhere: stacked in front. None where there is no element."""
    count = tensor.numel()
    if not count:
        return None
    units = eye(count, dtype=tensor.dtype, device=tensor.device).reshape(count, *tensor.shape)
    try:
        made = []
        for part in units.split(chunk_size or count):
            with levels_of(part.shape[0]) as level:
                outs = function(batched(part, level.number))
                made.append([over(out, (level,))._value for out in outs])
    except Unbatchable:
        made = [[out.unsqueeze(0) for out in function(unit)] for unit in units.unbind(0)]
    return made[0] if len(made) == 1 else [cat(column) for column in zip(*made, strict=True)]


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """A function that gives the Jacobian of `func` for the arguments at `argnums`, by a product for each input element.

    It is laid out and nested as that of `jacrev`.
    """
    @differentiating()
    @functools.wraps(func)
    def made(*args, **kwargs):
        picked, replaced = chosen(args, argnums)
        pushed = Pushed(func, picked, has_aux, call=lambda tree: func(*replaced(tree), **kwargs))
        inside, columns = pushed.inside, []       # for each inner tensor: all tangents, those of its elements in front
        for at, t in enumerate(inside.flat):
            still = [zeros_like(other) for other in inside.flat]
            columns.append(_for_each_unit(t, lambda unit, at=at, still=still: pushed.push([*still[:at], unit,
                                                                                          *still[at + 1:]])))
        blocks = []
        for nr, out in enumerate(pushed.outs):
            block = [out.new_zeros(out.shape + t.shape) if column is None else
                     column[nr].movedim(0, -1).reshape(out.shape + t.shape)
                     for column, t in zip(columns, inside.flat, strict=True)]
            blocks.append(tree_unflatten(block, inside.spec))
        return with_aux((tree_unflatten(blocks, pushed.spec),), has_aux, inside, pushed.aux)
    return made


def hessian(func, argnums=0):
    """A function that gives the Hessian of `func` for the arguments at `argnums`: the Jacobian of its gradient."""
    return jacfwd(jacrev(func, argnums), argnums)
