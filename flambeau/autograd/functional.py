"""Whole derivatives of functions: vector products, Jacobians, Hessians.

Each takes a function of tensors and its inputs, and differentiates a copy of the graph: the inputs given are left as
they were, and the result is detached unless `create_graph` asks for its history.
"""
from ..base.op import door
from .engine import grad
from .forward_ad import dual_level, make_dual, unpack_dual
from .modes import enable_grad, no_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), the product of `v` with the Jacobian)."""
    with enable_grad():
        single, inputs = _tensors(inputs, "inputs", "vjp")
        inputs = _watched(inputs, create_graph)
        single_out, outs = _tensors(func(*inputs), "outputs of the user-provided function", "vjp")
        _strict(outs, "outputs", strict)
        v = _vector(v, outs, "v", "output")
    with enable_grad() if create_graph else no_grad():
        got = _fill(_grad(outs, inputs, v, create_graph, strict), inputs, strict)
    return _given(outs, single_out, create_graph), _given(got, single, create_graph)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), the product of the Jacobian with `v`), by the double-backward trick."""
    with enable_grad():
        single, inputs = _tensors(inputs, "inputs", "jvp")
        inputs = _watched(inputs, create_graph)
        v = _vector(v, inputs, "v", "input")
        single_out, outs = _tensors(func(*inputs), "outputs of the user-provided function", "jvp")
        _strict(outs, "outputs", strict)
        probes = tuple(door.operations["zeros_like"](o).requires_grad_() for o in outs)
        back = _fill(_grad(outs, inputs, probes, True, strict), inputs, strict)
    with enable_grad() if create_graph else no_grad():
        got = _fill(_grad(back, probes, v, create_graph, strict), outs, strict)
    return _given(outs, single_out, create_graph), _given(got, single_out, create_graph)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The Jacobian of `func` at `inputs`: out.shape + in.shape, nested as the outputs and inputs are."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function '
                             'has more outputs than inputs, "forward-mode" tends to be more performant. Otherwise, '
                             f'prefer to use "reverse-mode". Got {strategy!r}.')
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError("torch.autograd.functional.jacobian: `create_graph=True` and "
                                      "`strategy=\"forward-mode\"` are not supported together (yet). Please either set "
                                      "`create_graph=False` or `strategy=\"reverse-mode\"`.")
        return _jacobian_forward(func, inputs)
    with enable_grad():
        single, inputs = _tensors(inputs, "inputs", "jacobian")
        inputs = _watched(inputs, create_graph)
        single_out, outs = _tensors(func(*inputs), "outputs of the user-provided function", "jacobian")
        _strict(outs, "outputs", strict)
        rows = []
        for out in outs:
            flat = out.reshape(-1)
            columns = [[] for _ in inputs]
            for j in range(out.numel()):
                got = _fill(_grad((flat[j],), inputs, None, create_graph, strict), inputs, strict)
                for column, g in zip(columns, got, strict=True):
                    column.append(g)
            rows.append(tuple(
                door.operations["stack"](c).view(out.shape + i.shape) if c else out.new_zeros(out.shape + i.shape)
                for c, i in zip(columns, inputs, strict=True)))
    rows = tuple(_given(row, False, create_graph) for row in rows)
    return _nest(rows, single_out, single)


def _jacobian_forward(func, inputs):
    """Column by column, with tangents."""
    single, inputs = _tensors(inputs, "inputs", "jacobian")
    inputs = tuple(i.detach() for i in inputs)
    columns, single_out, shapes = [], False, None
    for at, i in enumerate(inputs):
        each = []
        for j in range(i.numel()):
            with dual_level():
                unit = door.operations["zeros_like"](i).reshape(-1)
                unit[j] = 1
                args = [make_dual(t, unit.view(t.shape)) if k == at else t for k, t in enumerate(inputs)]
                single_out, outs = _tensors(func(*args), "outputs of the user-provided function", "jacobian")
                both = [unpack_dual(o) for o in outs]
                each.append([door.operations["zeros_like"](p) if t is None else t for p, t in both])
                shapes = [o.shape for o in outs]
        columns.append([door.operations["stack"]([e[k] for e in each], -1).view(shape + i.shape)
                        for k, shape in enumerate(shapes)])
    rows = tuple(tuple(column[k] for column in columns) for k in range(len(shapes)))
    return _nest(rows, single_out, single)


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The Hessian of a function with a single scalar result."""
    single, inputs = _tensors(inputs, "inputs", "hessian")

    def slope(*args):
        out = _scalar(func(*args), "hessian")
        return jacobian(lambda *a: _scalar(func(*a), "hessian"), args, create_graph=True) if out is not None else None

    made = jacobian(slope, inputs, create_graph=create_graph, strict=strict)
    return made[0][0] if single else made


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), the product of `v` with the Hessian)."""
    with enable_grad():
        single, inputs = _tensors(inputs, "inputs", "vhp")
        inputs = _watched(inputs, create_graph)
        v = _vector(v, inputs, "v", "input")
        out = _scalar(func(*inputs), "vhp")
        slope = _fill(_grad((out,), inputs, None, True, strict), inputs, strict)
    with enable_grad() if create_graph else no_grad():
        got = _fill(_grad(slope, inputs, v, create_graph, strict), inputs, strict)
    return _given((out,), True, create_graph), _given(got, single, create_graph)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), the product of the Hessian with `v`), by the double-backward trick."""
    with enable_grad():
        single, inputs = _tensors(inputs, "inputs", "hvp")
        inputs = _watched(inputs, create_graph)
        v = _vector(v, inputs, "v", "input")
        out = _scalar(func(*inputs), "hvp")
        slope = _fill(_grad((out,), inputs, None, True, strict), inputs, strict)
        probes = tuple(door.operations["zeros_like"](g).requires_grad_() for g in slope)
        twice = _fill(_grad(slope, inputs, probes, True, strict), inputs, strict)
    with enable_grad() if create_graph else no_grad():
        got = _fill(_grad(twice, probes, v, create_graph, strict), inputs, strict)
    return _given((out,), True, create_graph), _given(got, single, create_graph)


# --- parts ----------------------------------------------------------------------------------------------------------


def _tensors(tensors, what, who):
    """(whether it was a single tensor, a tuple of tensors)."""
    single = not isinstance(tensors, tuple)
    made = (tensors,) if single else tensors
    for i, t in enumerate(made):
        if not isinstance(t, door.tensor):
            raise TypeError(f"The {what} given to {who} must be either a Tensor or a tuple of Tensors but the value at "
                            f"index {i} has type {type(t)}.")
    return single, made


def _watched(inputs, create_graph):
    """Fresh inputs that require grad, still connected to the given ones where the result's history is wanted."""
    return tuple(i.view_as(i) if create_graph and i.requires_grad else i.detach().requires_grad_() for i in inputs)


def _vector(v, like, name, role):
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector {name} can only be None if the user-provided function has a single {role} "
                               f"with a single element: give {name} with the {role}'s shape.")
        return (door.operations["ones_like"](like[0]),)
    _, v = _tensors(v, name, "the product")
    if len(v) != len(like):
        raise RuntimeError(f"{name} is a tuple of invalid length: should be {len(like)} but got {len(v)}.")
    for i, (a, b) in enumerate(zip(v, like, strict=True)):
        if a.shape != b.shape:
            raise RuntimeError(f"{name} has invalid size: should be {b.shape} but got {a.shape} (entry {i}).")
    return tuple(a.detach() if not a.requires_grad else a for a in v)


def _scalar(out, who):
    single, outs = _tensors(out, "outputs of the user-provided function", who)
    if len(outs) != 1 or not single and not isinstance(outs[0], door.tensor):
        raise RuntimeError(f"The function given to {who} should return a single Tensor, it returned {len(outs)}.")
    if outs[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {who} should contain a single element, it "
                           f"has shape {list(outs[0].shape)}.")
    return outs[0].reshape(()) if outs[0].dim() else outs[0]


def _strict(outs, what, strict):
    if strict:
        for i, o in enumerate(outs):
            if not o.requires_grad:
                raise RuntimeError(f"Output {i} of the user-provided function does not require gradient. The {what} "
                                   "must be computed in a differentiable manner from the input when running in strict "
                                   "mode.")


def _grad(outs, inputs, v, create_graph, strict):
    """Gradients of those outputs that have any; None for inputs that take no part."""
    v = (None,) * len(outs) if v is None else v
    live = [(o, g) for o, g in zip(outs, v, strict=True) if o.requires_grad]
    if not live:
        return (None,) * len(inputs)
    return grad([o for o, _ in live], inputs, [g for _, g in live], retain_graph=True, create_graph=create_graph,
                allow_unused=True)


def _fill(grads, like, strict):
    """Zeros where no gradient came; in strict mode that is refused."""
    if strict and any(g is None for g in grads):
        at = next(i for i, g in enumerate(grads) if g is None)
        raise RuntimeError(f"The output of the user-provided function is independent of input {at}. This is not "
                           "allowed in strict mode.")
    return tuple(door.operations["zeros_like"](t) if g is None else g for g, t in zip(grads, like, strict=True))


def _given(made, single, create_graph):
    made = tuple(made) if create_graph else tuple(m.detach() for m in made)
    return made[0] if single else made


def _nest(rows, single_out, single_in):
    if single_out:
        return rows[0][0] if single_in else rows[0]
    return tuple(row[0] for row in rows) if single_in else rows
