"""What PyTorch refuses is refused, and what it takes has its shape and strides: windows and padding beyond the size of
an image, hooks that return something, derivatives that nobody wrote, the layout of positions."""
import itertools

import pytest

torch = pytest.importorskip("torch")

import flambeau as fb

PADS = {1: [(3, 1), (4, 4), (-4, 0), (-2, -1), (-2, -2), (2, -5), (-1, -2)],
        2: [(1, 1, 4, 1), (3, 0, 0, 0), (-1, -2, 0, 0)],
        3: [(1, 1, 1, 1, 3, 3), (1, 1, 1, 1, 4, 4), (0, 0, -1, -2, 0, 0), (0, 0, 2, -5, 0, 0)]}
WINDOWS = [(4, {}), (3, {}), ("4 along one", {}), (4, {"ceil_mode": True}), (4, {"padding": 1}), (5, {"padding": 2}),
           (4, {"stride": 1, "ceil_mode": True})]


def outcome(m, call):
    """The shape and strides of what a call gives, or the kind of its error."""
    try:
        made = call(m)
    except Exception as error:
        return "refused", isinstance(error, TypeError)
    return [(tuple(t.shape), t.numel() and tuple(t.stride()), t.requires_grad)
            for t in (made if isinstance(made, tuple) else (made,))]


def same(call):
    assert outcome(fb, call) == outcome(torch, call)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("n, pad", [(n, pad) for n in PADS for pad in PADS[n]], ids=str)
def test_padding(n, pad, mode):
    same(lambda m: m.nn.functional.pad(m.ones(1, 2, *[3] * n), pad, mode=mode))


@pytest.mark.parametrize("name, n", list(itertools.product(["avg_pool", "max_pool", "lp_pool"], [1, 2, 3])))
@pytest.mark.parametrize("window, more", WINDOWS, ids=str)
def test_windows(name, n, window, more):
    if name == "lp_pool" and "padding" in more:
        pytest.skip("it takes none")
    size = (4, *[1] * (n - 1)) if window == "4 along one" else window
    norm = (2.0,) if name == "lp_pool" else ()
    same(lambda m: getattr(m.nn.functional, f"{name}{n}d")(m.ones(1, 1, *[3] * n), *norm, size, **more))


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), ()], ids=str)
def test_positions(shape):
    same(lambda m: m.ones(shape).nonzero())
    same(lambda m: m.argwhere(m.ones(shape)))
    same(lambda m: tuple(m.ones(shape).nonzero(as_tuple=True)))


@pytest.mark.parametrize("given", ["None", "t.grad", "5", "()"])
def test_hooks_after_a_gradient_was_added(given):
    def call(m):
        x = m.ones(2, requires_grad=True)
        x.register_post_accumulate_grad_hook(lambda t: eval(given))
        (x * 2).sum().backward()
        return x.grad
    same(call)


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("given", [{}, {"weight": True}])
def test_a_histogram_has_no_derivative(given, part):
    def made(m):
        x = m.linspace(0, 1, 5, requires_grad=not given)
        return m.histogram(x, 3, **{name: m.ones(5, requires_grad=True) for name in given})
    same(lambda m: tuple(made(m)))
    for m in (torch, fb):
        with pytest.raises(RuntimeError, match="derivative for aten::histogram is not implemented"):
            made(m)[part].sum().backward()
