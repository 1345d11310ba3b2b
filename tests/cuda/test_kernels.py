"""Rendered kernels compute what kernels say: on a simulated GPU, over shapes, layouts and dtypes, to the last bit.

The abacus (tests/backends/toy) reads the same kernels, with the order of a GPU's reductions, and does what they say
with NumPy. What is rounded correctly has to be the same there to the bit; functions such as exp come from another
library here, and are close. And the reference executor says what is meant. Tiles and blocks are made small, so that
little data goes every way through a kernel.
"""
from array import array

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings as tuned, strategies as st

import flambeau as torch
from flambeau.backends import register
from flambeau.backends.backend import Task
from flambeau.backends.cuda import schedule
from flambeau.base import dtypes
from flambeau.base.spec import CPU, spec
from flambeau.loops.ir import (
    COMPARISON_WORDS,
    FUNCTION_WORDS,
    SCALAR_TYPES,
    TWO_ARGUMENT_WORDS,
    Access,
    Expr,
    Kernel,
    Launch,
    Pass,
    verify,
)
from flambeau.nn import functional as F
from flambeau.trace.planning import plan

from ..backends.toy.abacus import AbacusBackend
from ..thorough import THOROUGH
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
                        ("REDUCTIONS", schedule.REDUCTIONS._replace(block_elements=2048, max_column_parts=2048,
                                                                   min_columns_by_block=40))):
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


def complex_parts(function, x):
    """The parts of what becomes of complex numbers that stand in memory."""
    x = x.float() if x.dtype.itemsize == 2 else x
    z = torch.complex(x, 1 - x)
    z.data_ptr()
    return torch.view_as_real(function(z).contiguous())


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
    "complex": (lambda x: complex_parts(lambda z: z * (z.conj() + 1) - 2j / (z + 3), x), True),
    "complex turned": (lambda x: complex_parts(lambda z: z.t() * z.t()[:, :1] + z.real.t(), x), True),
    "complex sums": (lambda x: complex_parts(lambda z: (z * z).sum(1) + z.sum(0).sum(), x), True),
    "complex moves": (lambda x: complex_parts(lambda z: torch.cat([z[1:], z[:, 1:2].expand_as(z)]), x), True),
    "complex functions": (lambda x: complex_parts(lambda z: torch.complex(z.abs(), z.angle()) + z.exp(), x), False),
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
    "to whole numbers": (lambda x: ((x * 1e10).long(), (x * 99).int(), (x.abs() * 9).to(torch.uint8), x.bool()), True),
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
    "part of rows": lambda x: torch.cat([x, x[:, :1]], 1)[:, :-1],
    "every other": lambda x: torch.stack([x, x], 2).flatten(1)[:, ::2],
}
SIZES = (1, 2, 3, 4, 8, 31, 32, 33, 64, 100, 129)
LONG = (256, 1000, 1024, 1028, 2049, 3000, 4096, 5000, 9000)


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
        np.testing.assert_allclose(a, b if x.dtype == torch.float16 else c, rtol=tol,
                                   atol=tol * max(1, np.abs(c).max(initial=1)))


def listed(made):
    return list(made) if isinstance(made, tuple) else [made]


slowly = tuned(deadline=None, max_examples=40 if THOROUGH else 12,
               suppress_health_check=list(HealthCheck), derandomize=True)


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
       st.sampled_from((torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)),
       st.sampled_from(sorted(LAYOUTS)))
def test_integers(name, rows, columns, dtype, layout):
    compare(INTEGERS[name], matrix(rows, columns, dtype), LAYOUTS[layout], True)


@pytest.mark.parametrize("name", ("map", "rows and columns", "squares", "gathered", "sum", "sums of columns",
                                  "layer norm"))
def test_positions_of_64_bits(name, monkeypatch):
    """As if there were more positions than 32 bits can count."""
    asked = []
    monkeypatch.setattr(schedule, "_wide", lambda launch, dims: asked.append(launch) or True)
    plan.forget()
    function, exact = FLOATS[name]
    compare(function, matrix(33, 100, torch.float32), LAYOUTS["contiguous"], exact)
    assert asked and all(launch.schedule.wide for launch in asked)
    plan.forget()


@pytest.mark.parametrize("name", ("softmax", "softmax gradient", "layer norm", "layer norm gradient", "sums of rows"))
@pytest.mark.parametrize("columns", (100, 2049, 4096, 5000))
def test_rows_in_loops(name, columns, monkeypatch):
    """As if no row were short enough to be kept at hand."""
    monkeypatch.setattr(schedule, "MAX_CHUNKS", 0)
    plan.forget()
    function, exact = FLOATS[name]
    compare(function, matrix(5, columns, torch.float32), LAYOUTS["contiguous"], exact)
    plan.forget()


# --- every word, at the ends of its types --------------------------------------------------------------------------

FLOAT_ENDS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, 1e-3, 7.25, -7.75, 100.0, 2.0**23 + 1, 2.0**31,
              -2.0**31, 2.0**63, 1e30, -1e30, 1e-42, np.inf, -np.inf, np.nan]
WORDS = {"f32": ("add sub mul div neg fma fma_exact abs min max fmin fmax sqrt floor ceil trunc rint copysign lt le gt "
                 "ge eq ne isnan bits").split() + sorted(FUNCTION_WORDS),
         "int": "add sub mul neg abs min max lt le gt ge eq ne and or xor not shl shr idiv irem".split(),
         "b1": "and or xor not eq ne add mul min max".split()}
ARGUMENTS = {**dict.fromkeys("neg abs not isnan bits sqrt floor ceil trunc rint".split(), 1), "fma": 3, "fma_exact": 3,
             **dict.fromkeys(FUNCTION_WORDS - TWO_ARGUMENT_WORDS, 1)}
NUMPY_TYPE = {"f32": np.float32, "f64": np.float64, "f16": np.uint16, "bf16": np.uint16, "i8": np.int8, "u8": np.uint8,
              "i16": np.int16, "i32": np.int32, "i64": np.int64, "b1": np.bool_}


def ends_of(type):
    """Pairs of numbers of a type that words are tried on, every one with every other."""
    if type in ("f32", "f64"):
        some = np.array(FLOAT_ENDS).astype(NUMPY_TYPE[type])
    elif type in ("f16", "bf16"):
        some = np.array([0, 0x8000, 1, 0x3c00, 0x3f80, 0x4248, 0xc248, 0x7bff, 0x7f7f, 0x7c00, 0xfc00, 0x7f80],
                        np.uint16)
    elif type == "b1":
        some = np.array([False, True])
    else:
        kind = np.iinfo(NUMPY_TYPE[type])
        some = np.array([0, 1, 2, 3, 7, kind.max, kind.max - 1, kind.min, kind.min + 1, kind.max // 3], kind.dtype)
    a, b = np.meshgrid(some, some)
    return np.ascontiguousarray(a.ravel()), np.ascontiguousarray(b.ravel())


def made_by(backend, launch, given, results):
    """The arrays that a launch makes of `given` on a device of its own kind."""
    launch.schedule = backend.schedule(launch)
    backend.compile([launch]).finish()
    program = backend.program([Task(launch, [(i, 0) for i in range(len(given) + len(results))])])
    specs = [spec(dtypes.from_numpy(a.dtype), a.shape, None, backend.device) for a in (*given, *results)]
    arrays = [backend.from_host(a, s) for a, s in zip((*given, *results), specs, strict=True)]
    program.run([backend.address(a) for a in arrays], array("q"))
    backend.synchronize()
    return [np.array(backend.to_host(a)) for a in arrays[len(given):]]


def both(expressions, given, types):
    """What a kernel over `expressions` of the arrays `given` makes on the CPU and on a simulated GPU."""
    kernel, one = Kernel(1, 0), Pass()
    kernel.accesses = [Access(type, [1]) for type in types] + [Access(e.type, [1]) for e in expressions]
    one.stores = [(len(given) + i, e) for i, e in enumerate(expressions)]
    kernel.passes.append(one)
    verify(kernel)
    n, results = given[0].size, [np.zeros(given[0].size, NUMPY_TYPE[e.type]) for e in expressions]
    out = []
    for device in (CPU, torch.device("cuda", 0)):
        torch.zeros(1, device=device)
        launch = Launch(kernel, [n], [[1] for _ in kernel.accesses])
        out.append(made_by(device.backend, launch, given, results))
    return out


@pytest.mark.parametrize("type", ("f32", "f64", "i8", "u8", "i16", "i32", "i64", "b1"))
def test_words(type):
    """Every word of every type gives what it gives on the CPU: to the bit where it is rounded correctly there."""
    a, b = ends_of(type)
    words = WORDS["f32" if type in ("f32", "f64") else type if type == "b1" else "int"]
    loads = [Expr("load", type, (), i) for i in range(2)]
    bound = Expr("const", type, (), 3)
    expressions = []
    for word in words:
        args = (*loads, loads[0])[:ARGUMENTS.get(word, 2)]
        if word in ("shl", "shr", "idiv", "irem"):            # by zero, or further than the type is wide: nobody asks
            args = loads[0], bound
        result = "b1" if word in COMPARISON_WORDS or word == "isnan" else {"f32": "i32", "f64": "i64"}[type] \
            if word == "bits" else type
        expressions.append(Expr(word, result, args))
    ours, theirs = both(expressions, [a, b], [type, type])[::-1]
    for e, mine, other in zip(expressions, ours, theirs, strict=True):
        if e.op in FUNCTION_WORDS:
            usual = np.abs(other) > np.finfo(other.dtype).tiny * 2**24     # a sigmoid may lose what is denormal
            np.testing.assert_allclose(mine[usual], other[usual], rtol=1e-5 if type == "f32" else 1e-10, err_msg=e.op)
        else:
            np.testing.assert_array_equal(mine, other, err_msg=e.op)
            if mine.dtype.kind == "f":
                some = ~np.isnan(mine)
                if e.op in ("min", "max") and CPU.backend.zeros_by_sign:      # where GPUs take one of two by its place
                    some &= mine != 0
                np.testing.assert_array_equal(np.signbit(mine[some]), np.signbit(other[some]), err_msg=e.op)


@pytest.mark.parametrize("type", SCALAR_TYPES)
def test_casts(type):
    """Every conversion, of what does not fit too."""
    a, _ = ends_of(type)
    load = Expr("load", type, (), 0)
    expressions = [Expr("cast", other, (load,)) for other in SCALAR_TYPES if other != type]
    ours, theirs = both(expressions, [a], [type])[::-1]
    for e, mine, other in zip(expressions, ours, theirs, strict=True):
        if e.type in ("f16", "bf16"):                         # one NaN is as good as another
            nan = {"f16": 0x7c00, "bf16": 0x7f80}[e.type]
            mine, other = (np.where((x & 0x7fff) > nan, 0x7fff, x) for x in (mine, other))
        np.testing.assert_array_equal(mine, other, err_msg=f"{type} to {e.type}")
