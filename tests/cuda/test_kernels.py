"""Rendered kernels compute what kernels say: on a simulated GPU, over shapes, layouts and dtypes, to the last bit.

The abacus (tests/backends/toy) reads the same kernels, with the order of a GPU's reductions, and does what they say with
NumPy. What is rounded correctly has to be the same there to the bit; functions such as exp come from another library
here, and are close. And the reference executor says what is meant. Tiles and blocks are made small, so that little data
goes every way through a kernel.
"""
from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings as tuned, strategies as st

import flambeau as torch
from flambeau.backends import register
from flambeau.backends.cuda import schedule
from flambeau.nn import functional as F
from flambeau.trace import plan

from ..backends.toy.abacus import AbacusBackend
from .simulated import compiler, simulating

pytestmark = [pytest.mark.pinned, pytest.mark.filterwarnings("error:.*mistake in Flambeau"),
              pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")]


class OrderedAbacus(AbacusBackend):
    """An abacus that takes the kernels that a GPU takes, in the order of its reductions."""

    interprets = False
    vector_bytes = schedule.LANE_BYTES

    @property
    def reductions(self):
        return schedule.REDUCTIONS

    def library(self, name, dtype, args, outs, params):
        return None


register("ordered", OrderedAbacus)


@pytest.fixture(scope="module", autouse=True)
def small_tiles():
    patch = pytest.MonkeyPatch()
    for name, value in (("MAP_THREADS", 32), ("COLUMN_THREADS", 32), ("LARGE_MAP", 64), ("MIN_COLUMN_THREADS", 4),
                        ("REDUCTIONS", schedule.REDUCTIONS._replace(block_elements=2048, max_column_parts=2048))):
        assert hasattr(schedule, name)
        patch.setattr(schedule, name, value)
    plan.forget()
    with simulating(devices=1, races=True), torch.config.using(executor="native"):
        yield
    patch.undo()
    plan.forget()


def softmax_gradient(x):
    y = x.detach().requires_grad_()
    (torch.softmax(y, -1) * x).sum().backward()
    return y.grad


def layer_norm_gradient(x):
    y = x.detach().requires_grad_()
    w = torch.ones_like(x[0]).requires_grad_()
    (F.layer_norm(y, y.shape[-1:], w, w) * x).sum().backward()
    return y.grad, w.grad


def gathered(x):
    at = torch.arange(7, device=x.device) * 5 % x.shape[0]
    return x[at], x[:, torch.arange(9, device=x.device) * 3 % x.shape[1]]


def positions(x):
    return torch.where(torch.arange(x.shape[1], device=x.device) % 3 == 0, x, -x)


# name → (a function of a matrix, whether every bit is the same)
FLOATS = {
    "map": (lambda x: torch.relu(x * x + 1) * 0.5 + x, True),
    "quotients": (lambda x: x / (x.abs() + 1) - (x * 3).floor() % 2, True),
    "functions": (lambda x: torch.tanh(x.exp() * torch.sigmoid(x) + torch.erf(x)) + torch.log1p(x.abs()), False),
    "powers": (lambda x: x.abs().pow(1.5) + x.abs().rsqrt() + torch.atan2(x, x + 1), False),
    "digamma": (lambda x: torch.digamma(x * 5) + torch.lgamma(x), False),
    "turned": (lambda x: x.t() + 1, True),
    "squares": (lambda x: (x.t() + 1).contiguous(), True),
    "squares of two": (lambda x: (x.t()[None] * x.t()[None]).contiguous() - 1, True),
    "rows and columns": (lambda x: x - x[0] + x[:, :1], True),
    "positions": (positions, True),
    "gathered": (gathered, True),
    "sum": (lambda x: x.sum(), True),
    "sums of rows": (lambda x: x.sum(1), True),
    "sums of columns": (lambda x: (x * 2).sum(0), True),
    "products of rows": (lambda x: (x * 0.01 + 1).prod(1), True),
    "extremes": (lambda x: (x.amax(1), x.amin(0), x.max(), x.argmax(1), x.argmin(0)), True),
    "truths": (lambda x: ((x > 2).any(1), (x < 2).all(0), (x > 0).sum(1)), True),
    "softmax": (lambda x: torch.softmax(x, 1), False),
    "softmax of columns": (lambda x: torch.log_softmax(x, 0), False),
    "softmax gradient": (softmax_gradient, False),
    "variance": (lambda x: (x.var(1), x.std(0)), True),
    "layer norm": (lambda x: F.layer_norm(x, x.shape[-1:]), True),
    "layer norm gradient": (layer_norm_gradient, True),
    "means of parts": (lambda x: x.reshape(x.shape[0], 1, -1).mean((0, 2)), True),
    "halves": (lambda x: (x.half() + x.bfloat16()).to(x.dtype), True),
    "bits": (lambda x: torch.nextafter(x, x + 1), True),
    "to whole numbers": (lambda x: ((x * 1e10).long(), (x * 100).int(), (x.abs() * 10).to(torch.uint8), x.bool()), True),
}
INTEGERS = {
    "arithmetic": (lambda x: (x * 7 - 3, x // 3, x % 5, -x, x.abs())),
    "bits": (lambda x: (x & 6, x | 1, ~x, x << 1, x >> 1)),
    "reductions": (lambda x: (x.sum(0), x.sum(), x.amax(1), x.prod(1), x.argmax(1), x.any(0))),
    "squares": (lambda x: (x.t() + 1).contiguous()),
    "as floats": (lambda x: (x.float() * 0.5, x.double().sum(1), x.half())),
}
LAYOUTS = {
    "contiguous": lambda x: x,
    "turned": lambda x: x.t().contiguous().t(),
    "one further": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].reshape(x.shape),
    "part of rows": lambda x: torch.cat([x, x[:, :3]], 1)[:, :-3],
    "every other": lambda x: torch.stack([x, x], 2).flatten(1)[:, ::2],
}
SIZES = (1, 2, 3, 4, 8, 31, 32, 33, 64, 100, 129)
LONG = (256, 1000, 1024, 1028, 2049, 3000, 4096, 5000, 9000)
seeds = count()


def matrix(rows, columns, dtype):
    draw = np.random.default_rng([rows, columns])
    if dtype.is_floating_point:
        made = torch.from_numpy(draw.normal(size=(rows, columns)).astype(np.float32)).to(dtype)
        return made
    return torch.from_numpy(draw.integers(0, 100, (rows, columns))).to(dtype)


def compare(function, x, lay, exact):
    """A function of `x`, laid out by `lay`, on the simulated GPU, on the abacus and by the reference on the CPU."""
    ours, theirs = ([y.cpu() for y in made if y is not None] for made in
                    (listed(function(lay(x.to(device)))) for device in ("cuda", "ordered")))
    with torch.config.using(executor="reference"):
        meant = [y + 0 if y.dtype != torch.bool else y.clone() for y in listed(function(lay(x)))]
    for a, b, c in zip(ours, theirs, meant, strict=True):
        assert a.dtype == b.dtype == c.dtype and a.shape == b.shape == c.shape
        a, b, c = (t.detach().double().numpy() if t.is_floating_point() else t.numpy() for t in (a, b, c))
        if exact:
            np.testing.assert_array_equal(a, b)
        tol = {torch.float64: 1e-9, torch.float32: 2e-3}.get(x.dtype, 5e-2)
        np.testing.assert_allclose(a, b if x.dtype == torch.float16 else c, rtol=tol, atol=tol * max(1, np.abs(c).max(initial=1)))


def listed(made):
    return list(made) if isinstance(made, tuple) else [made]


slowly = tuned(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck), derandomize=True)


@slowly
@given(st.sampled_from(sorted(FLOATS)), st.sampled_from(SIZES), st.sampled_from(SIZES + LONG),
       st.sampled_from((torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)),
       st.sampled_from(sorted(LAYOUTS)))
@example("softmax", 5, 4096, torch.float32, "contiguous")
@example("sum", 64, 4096, torch.float32, "contiguous")
@example("layer norm gradient", 300, 64, torch.float32, "contiguous")
def test_floats(name, rows, columns, dtype, layout):
    function, exact = FLOATS[name]
    compare(function, matrix(rows, columns, dtype), LAYOUTS[layout], exact)


@slowly
@given(st.sampled_from(sorted(INTEGERS)), st.sampled_from(SIZES), st.sampled_from(SIZES),
       st.sampled_from((torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)), st.sampled_from(sorted(LAYOUTS)))
def test_integers(name, rows, columns, dtype, layout):
    compare(INTEGERS[name], matrix(rows, columns, dtype), LAYOUTS[layout], True)
