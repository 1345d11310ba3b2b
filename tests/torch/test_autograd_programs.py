"""Gradients that nobody shares, hooks, custom functions, writes, forward mode: programs that mean the same in PyTorch.

A program takes the module as `torch` and returns plain Python values; it runs once with each, and both must return the
same.
"""
import warnings

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
pytest.importorskip("torch.autograd.forward_ad")

PROGRAMS = []


def program(fn):
    PROGRAMS.append(fn)
    return fn


def refused(fn):
    try:
        fn()
    except Exception as error:
        return type(error).__name__
    return "no error"


def close(a, b):
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-4 * max(1, abs(a))
    return a == b


# --- gradients that nobody else holds --------------------------------------------------------------------------------


@program
def a_gradient_is_apart_from_what_the_caller_gave(torch):
    x, g = torch.zeros(3, requires_grad=True), torch.ones(3)
    x.clone().backward(g)
    x.grad.add_(5)
    y = torch.zeros(3, requires_grad=True)
    y.backward(g)
    y.grad.add_(1)
    return x.grad.tolist(), y.grad.tolist(), g.tolist()


@program
def two_leaves_do_not_share_a_gradient(torch):
    a, b = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    (a + b).backward(torch.ones(3))
    a.grad.zero_()
    return a.grad.tolist(), b.grad.tolist()


@program
def retained_gradients_are_apart(torch):
    x, g = torch.zeros(3, requires_grad=True), torch.ones(3)
    y = x * 2
    y.retain_grad()
    z = y.clone()
    z.retain_grad()
    z.backward(g)
    y.grad.add_(7)
    return x.grad.tolist(), y.grad.tolist(), z.grad.tolist(), g.tolist()


@program
def a_hook_may_keep_its_gradient(torch):
    kept = []
    x = torch.zeros(3, requires_grad=True)
    x.register_hook(kept.append)
    (x.clone() * 2).backward(torch.ones(3))
    x.grad.add_(3)
    before = kept[0].tolist()
    kept[0].add_(1)
    return before, x.grad.tolist()


@program
def gradients_are_laid_out_like_their_leaves(torch):
    said = []
    for leaf in (torch.zeros(2, 3).t(), torch.zeros(4, 6)[:, ::2], torch.zeros(3).expand(2, 3),
                 torch.zeros(2, 3, 4).permute(2, 0, 1)):
        leaf = leaf.requires_grad_()
        for f in (lambda t: t.clone(), lambda t: t * 2, lambda t: t.sum(), lambda t: t.transpose(0, 1)):
            for create_graph in (False, True):
                leaf.grad = None
                y = f(leaf)
                y.backward(torch.ones(y.shape), create_graph=create_graph)
                said.append((leaf.grad.stride(), leaf.grad.storage_offset()))
    return said


@program
def a_leaf_that_no_longer_asks_gets_nothing(torch):
    x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    y = (x * w).sum()
    x.requires_grad_(False)
    y.backward()
    return x.grad, w.grad.tolist()


@program
def a_given_gradient_is_brought_to_the_dtype(torch):
    seen = []
    x = torch.ones(3, requires_grad=True)
    x.backward(torch.ones(3, dtype=torch.float64))
    y = x * 2
    y.register_hook(lambda g: seen.append(str(g.dtype)))
    y.backward(torch.ones(3, dtype=torch.float64))
    return str(x.grad.dtype), seen


# --- hooks, captured gradients, inputs= ------------------------------------------------------------------------------


@program
def retain_grad_moves_with_a_write(torch):
    said = []
    for write in (lambda y: y.mul_(3), lambda y: y.__setitem__(0, 7.0), lambda y: y[:2].mul_(3), lambda y: y.zero_()):
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        y.retain_grad()
        write(y)
        (y * 2).sum().backward()
        said.append((y.grad.tolist(), y.retains_grad, x.grad.tolist()))
    return said


@program
def a_write_without_history_keeps_a_view_retained(torch):
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g

    y = Same.apply(torch.ones(3, requires_grad=True) * 1)
    y.retain_grad()
    with torch.no_grad():
        y.add_(1)
    return y.tolist()


@program
def backward_into_what_is_no_leaf(torch):
    x, g = torch.ones(3, requires_grad=True), torch.ones(3)
    y = x * x
    y.clone().backward(g, inputs=[y])
    y.grad.add_(4)
    return y.grad.tolist(), y.retains_grad, g.tolist(), x.grad, refused(lambda: y.sum().backward())


@program
def hooks_of_branches_that_are_not_walked(torch):
    said = []
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    a, b = x * 2, w * 2
    a.register_hook(lambda g: said.append("a"))
    b.register_hook(lambda g: said.append("b"))
    x.register_hook(lambda g: said.append("x"))
    torch.autograd.grad((a * b).sum(), [w], retain_graph=True)
    (a * b).sum().backward(inputs=[b])
    return said, a.requires_grad, b.grad.tolist()


@program
def hooks_in_captured_gradients(torch):
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.grad_fn.register_prehook(lambda gs: (gs[0] * 100,))
    z = (y * 3).sum()
    return [[t.tolist() for t in torch.autograd.grad(z, wanted, retain_graph=True)] for wanted in ([y], [y, x], [x])]


@program
def the_order_of_hooks(torch):
    said = []
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: said.append(("tensor", y.grad is None)))
    y.retain_grad()
    y.grad_fn.register_prehook(lambda g: said.append(("pre", y.grad is None)))
    y.grad_fn.register_hook(lambda into, out: said.append(("post", y.grad is None)))
    end = y.grad_fn.next_functions[0][0]
    end.register_prehook(lambda g: said.append(("leaf pre", x.grad is None)))
    end.register_hook(lambda into, out: said.append(("leaf post", len(into), x.grad is None)))
    x.register_post_accumulate_grad_hook(lambda t: said.append(("accumulated", x.grad is None)))
    y.sum().backward()
    return said


@program
def what_hooks_may_return(torch):
    def outcome(how, hook):
        x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        y = x * w
        (y.grad_fn if how != "register_hook_of_tensor" else y).__getattribute__(how.removesuffix("_of_tensor"))(hook)
        try:
            y.sum().backward()
        except Exception as error:
            return type(error).__name__, str(error).split("'")[0]
        return [None if t.grad is None else t.grad.tolist() for t in (x, w)]

    return [outcome("register_hook", lambda into, out: (into[0],)),
            outcome("register_hook", lambda into, out: into[0]),
            outcome("register_hook", lambda into, out: (None, into[1] * 2)),
            outcome("register_hook", lambda into, out: (3, 4)),
            outcome("register_hook", lambda into, out: (torch.ones(5), torch.ones(5))),
            outcome("register_prehook", lambda out: (out[0], out[0])),
            outcome("register_prehook", lambda out: out[0] * 2),
            outcome("register_prehook", lambda out: (None,)),
            outcome("register_hook_of_tensor", lambda g: 3),
            outcome("register_hook_of_tensor", lambda g: g.double()),
            outcome("register_hook_of_tensor", lambda g: torch.ones(3))]


@program
def hooks_over_several_tensors_count_what_a_backward_reaches(torch):
    said = []
    x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    hook = torch.autograd.graph.register_multi_grad_hook
    handle = hook([x, w], lambda gs: said.append([None if g is None else g.tolist() for g in gs]))
    (x * w).sum().backward()
    (x * 2).sum().backward()
    (w * 2).sum().backward()
    handle.remove()
    (x * w).sum().backward()
    y, z = x * 2, x * 3
    hook([y, z], lambda g: said.append(("any", g.tolist())), mode="any")
    (y + z).sum().backward(retain_graph=True)
    (y * z).sum().backward()
    return said


@program
def a_view_made_without_history_as_an_input(torch):
    x = torch.ones(4, requires_grad=True)
    with torch.no_grad():
        v = x.view(2, 2)
    g, = torch.autograd.grad((x * x).sum(), v, allow_unused=True)
    v.requires_grad_()
    (v * 3).sum().backward()
    return g, v.grad.tolist(), x.grad


# --- custom functions ------------------------------------------------------------------------------------------------


@program
def a_custom_function_of_a_view_whose_base_was_written(torch):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = torch.ones(4, requires_grad=True)
    y = x * 1
    v = y[:2]
    y.mul_(3)
    return torch.autograd.grad(Twice.apply(v).sum(), x)[0].tolist()


@program
def a_custom_function_that_returns_a_view_of_a_view(torch):
    class Flat(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view(-1)

        @staticmethod
        def backward(ctx, g):
            return g.view(2, 2)

    x = torch.ones(3, 2, 2, requires_grad=True)
    y = Flat.apply((x * 1)[1])
    (y * torch.arange(4.0)).sum().backward()
    return x.grad.tolist(), y._is_view()


@program
def marking_a_view_of_a_leaf_dirty(torch):
    class Write(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = torch.ones(4, requires_grad=True)
    return refused(lambda: Write.apply(x)), refused(lambda: Write.apply(x[:2])), Write.apply((x * 1)[:2]).tolist()


# --- writes ----------------------------------------------------------------------------------------------------------


@program
def a_write_into_memory_with_gaps(torch):
    said = []
    c = torch.arange(12.0).reshape(4, 3)
    for make in (lambda: torch.zeros(4, 6)[:, ::2].detach(), lambda: torch.zeros(5, 3)[1:].detach(),
                 lambda: torch.from_numpy(np.zeros((4, 6), np.float32)[:, ::2]),
                 lambda: torch.zeros(6, 4)[::2].t().detach()):
        w = torch.arange(3.0).requires_grad_()
        b = make()
        b[1] = w * 2
        b[2] = b[1].clone() * w
        (b * c).sum().backward()
        said.append(w.grad.tolist())
    return said


@program
def a_write_of_another_dtype_has_the_node_of_its_operation(torch):
    x, w = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
    y = x * 1
    y.mul_(w)
    name = y.grad_fn.name()
    y.tanh_()
    y.sum().backward()
    return name, y.grad_fn.name(), x.grad.tolist(), w.grad.tolist(), str(x.grad.dtype), str(w.grad.dtype)


@program
def items_of_expanded_tensors_are_not_assigned(torch):
    x = torch.zeros(3, 1).expand(3, 4)
    x.fill_(2.0)
    tensor = torch.tensor(1.0)
    return refused(lambda: x.__setitem__(0, 1.0)), refused(lambda: x.__setitem__(slice(None), tensor)), x.tolist()


@program
def an_expanded_tensor_that_numpy_sees(torch):
    base = torch.zeros(3)
    array = base.numpy()
    base.expand(2, 3).fill_(4.0)
    return base.tolist(), array.tolist()


@program
def data_set_after_the_forward_pass(torch):
    said = []
    for make in (lambda: torch.ones(3, requires_grad=True), lambda: torch.nn.Parameter(torch.ones(3))):
        w = make()
        y = (w * w).sum()
        w.data = torch.full((3,), 4.0)
        y.backward()
        said.append(w.grad.tolist())
    return said


# --- forward mode ----------------------------------------------------------------------------------------------------


def tangents(torch, f, *duals):
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        made = forward.unpack_dual(f(*[forward.make_dual(torch.tensor(x), torch.tensor(t)) for x, t in duals]))
        return made.primal.tolist(), None if made.tangent is None else made.tangent.tolist()


POINT = ([1.0, 2.0, 0.3], [0.1, 0.2, 0.3])


@program
def tangents_of_views_follow_their_base(torch):
    def view_written(x):
        v = x * 1
        v[:2].mul_(3)
        return v

    def base_written(x):
        v = x * 1
        a = v[0]
        v.mul_(2)
        return a * v[1]

    def into_plain_memory(x):
        v = torch.zeros(4)
        v[1:] = x
        v[0] = x[2] * 2
        return v * v

    def number(x):
        v = x * 2
        v[0] = 5.0
        return v

    def zeroed(x):
        return (x * 2).zero_()

    return [tangents(torch, f, POINT) for f in (view_written, base_written, into_plain_memory, number, zeroed)]


@program
def a_dual_tensor_of_another_layout(torch):
    forward = torch.autograd.forward_ad
    said = []
    with forward.dual_level():
        for x in (torch.arange(6.0).reshape(2, 3).t(), torch.arange(12.0).reshape(2, 6)[:, ::2]):
            d = forward.make_dual(x, torch.arange(6.0).reshape(x.shape))
            said.append([forward.unpack_dual(y).tangent.tolist() for y in (d, d[1:], d.t()[0] * 2, (d * d).t()[1:])])
    return said


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_same_values_as_pytorch(fn):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = fn(torch), fn(flambeau)
    assert close(ours, theirs), f"\nPyTorch:  {theirs}\nFlambeau: {ours}"
