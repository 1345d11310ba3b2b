"""Nothing that autograd, its hooks or a refused call makes is held by a cycle: memory goes when the last name does."""
import gc

import pytest

import flambeau as torch
from flambeau.trace.recording.record import current


class Square(torch.autograd.Function):
    """Keeps an input and its own result."""

    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        ctx.mark_non_differentiable()
        return y

    @staticmethod
    def backward(ctx, g):
        x, _ = ctx.saved_tensors
        return 2 * x * g


class Write(torch.autograd.Function):
    """Writes to its input and returns it."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


def leaf():
    return torch.ones(4, requires_grad=True)


def custom():
    Square.apply(Square.apply(leaf()))


def custom_after_backward():
    Square.apply(leaf()).sum().backward()


def dirty():
    y = leaf() * 1
    Write.apply(y)
    Write.apply(y[:2])
    y.sum().backward()


def several_hooks():
    x = leaf()
    y = x * 2
    torch.autograd.graph.register_multi_grad_hook([x, y], lambda grads: None)
    y.sum().backward()


def retained():
    y = leaf() * 2
    y.retain_grad()
    y.mul_(2)
    y.sum().backward()


def refused():
    for wrong in (lambda x: x + torch.ones(7), lambda x: x.view(3), lambda x: x.add_(1), lambda x: x[9],
                  lambda x: x.gather(0, torch.tensor([7]))):
        with pytest.raises((RuntimeError, IndexError)):
            wrong(leaf())


@pytest.mark.parametrize("fn", [custom, custom_after_backward, dirty, several_hooks, retained, refused])
def test_no_cycles(fn):
    for _ in range(2):                       # what the first call prepares stays
        fn()
    current().run()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        fn()
        current().run()
        gc.collect()
        held = [o for o in gc.garbage if isinstance(o, torch.Tensor)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not held


def test_backward_frees_what_a_custom_function_saved():
    y = Square.apply(leaf())
    y.sum().backward()
    assert y.grad_fn.to_save == () and y.grad_fn.kept is None
