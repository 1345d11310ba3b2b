"""Reductions down columns that ride along with kernels along rows (planning/carry.py): on a simulated GPU, over shapes,
layouts and dtypes, to the last bit what kernels of their own give.

Two abacuses say what those bits are, in the order of a GPU's reductions: one has kernels of its own for columns, the
other takes every kernel with columns that the planner makes, and does what the kernel says. NumPy in float64 says what
is meant.
"""
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings as tuned, strategies as st

import flambeau as torch
from flambeau.backends import register
from flambeau.backends.cuda import schedule
from flambeau.nn import functional as F
from flambeau.trace.planning import plan

from ..thorough import THOROUGH
from .simulated import compiler, simulating
from .test_kernels import LAYOUTS, OrderedAbacus

pytestmark = [pytest.mark.pinned, pytest.mark.filterwarnings("error:.*mistake in Flambeau"),
              pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")]


class CarryingAbacus(OrderedAbacus):
    """One that takes every kernel."""

    carries_columns = True


register("carrying", CarryingAbacus)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks of few rows, none of them too few to be worth it."""
    for name, value in (("MIN_CARRYING_ELEMENTS", 0), ("USED_OF_ROUNDS", 0), ("CARRYING_ELEMENTS", 4),
                        ("REDUCTIONS", schedule.REDUCTIONS._replace(block_elements=512, max_column_parts=1 << 13,
                                                                   min_columns_by_block=40))):
        assert hasattr(schedule, name)
        monkeypatch.setattr(schedule, name, value)
    plan.forget()
    with simulating(devices=1, races=True), torch.config.using(executor="native"):
        yield
    plan.forget()


# --- programs, and the same in NumPy ----------------------------------------------------------------------------------
# functions of x [rows, columns], g alike, w and b [columns]; the first gives what the second gives

def layer_norm(x, g, w, b):
    y = F.layer_norm(x, x.shape[-1:], w, b)
    return (y, *torch.autograd.grad(y, [x, w, b], g))


def layer_norm_in_two(x, g, w, b):
    y = F.layer_norm(x, x.shape[-1:], w, b)
    y.detach().cpu()                              # the gradients are a trace of their own
    return (y, *torch.autograd.grad(y, [x, w, b], g))


def rms_norm(x, g, w, b):
    y = F.rms_norm(x, x.shape[-1:], w, 1e-5) + b
    return (y, *torch.autograd.grad(y, [x, w, b], g))


def softmax(x, g, w, b):
    y = torch.softmax(x * w + b, -1)
    return (y, *torch.autograd.grad(y, [x, w, b], g))


def extremes(x, g, w, b):
    y = x - x.amax(1, keepdim=True)
    return y, (y * w).amax(0), y.amin(0), (y * 0.01).exp().prod(0), (g + b).sum(0)


def standard(x, eps=1e-5):
    off = x - x.mean(-1, keepdims=True)
    return off, 1 / np.sqrt((off * off).mean(-1, keepdims=True) + eps)


def meant_layer_norm(x, g, w, b):
    off, scale = standard(x)
    hat, h = off * scale, g * w
    dx = scale * (h - h.mean(-1, keepdims=True) - hat * (h * hat).mean(-1, keepdims=True))
    return hat * w + b, dx, (g * hat).sum(0), g.sum(0)


def meant_rms_norm(x, g, w, b):
    scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    hat, h = x * scale, g * w
    return hat * w + b, scale * (h - hat * (h * hat).mean(-1, keepdims=True)), (g * hat).sum(0), g.sum(0)


def meant_softmax(x, g, w, b):
    e = np.exp(x * w + b - (x * w + b).max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    d = y * (g - (g * y).sum(-1, keepdims=True))
    return y, d * w, (d * x).sum(0), d.sum(0)


def meant_extremes(x, g, w, b):
    y = x - x.max(1, keepdims=True)
    return y, (y * w).max(0), y.min(0), np.exp(y * 0.01).prod(0), (g + b).sum(0)


# name → (function, what is meant, whether every bit is the same on an abacus)
PROGRAMS = {"layer norm": (layer_norm, meant_layer_norm, True),
            "layer norm in two": (layer_norm_in_two, meant_layer_norm, True),
            "rms norm": (rms_norm, meant_rms_norm, False), "softmax": (softmax, meant_softmax, False),
            "extremes": (extremes, meant_extremes, False)}
TOLERANCE = {torch.float64: 1e-11, torch.float32: 3e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def operands(rows, columns, dtype):
    draw = np.random.default_rng([rows, columns])
    return [torch.from_numpy(draw.normal(size=shape).astype(np.float32)).to(dtype)
            for shape in ((rows, columns), (rows, columns), (columns,), (columns,))]


def run(function, given, device, lay=lambda x: x):
    x, g, w, b = (one.to(device) for one in given)
    made = function(lay(x).detach().requires_grad_(), lay(g), w.requires_grad_(), b.requires_grad_())
    return [one.detach().cpu() for one in made]


def check(function, meant, exact, given, lay=lambda x: x):
    dtype = given[0].dtype
    ours = run(function, given, "cuda", lay)
    assert all(torch.equal(a, b) for a, b in zip(ours, run(function, given, "cuda", lay), strict=True))
    for device in ("ordered", "carrying"):
        for mine, theirs in zip(ours, run(function, given, device, lay), strict=True):
            assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
            if exact:
                np.testing.assert_array_equal(mine.double().numpy(), theirs.double().numpy())
    for mine, right in zip(ours, meant(*(one.double().numpy() for one in given)), strict=True):
        np.testing.assert_allclose(mine.double().numpy(), right, rtol=TOLERANCE[dtype],
                                   atol=TOLERANCE[dtype] * max(1, np.abs(right).max()))


def carrying_kernels(made):
    """Those of the plan for what waits that carry columns, and how many they carry."""
    return [len(step.launch.kernel.columns) for step in torch.plans.of(made).kernels if step.launch.kernel.columns]


def on_gpu(rows, columns, dtype=torch.float32):
    x, g, w, b = (one.to("cuda") for one in operands(rows, columns, dtype))
    torch.cuda.synchronize()
    return x.requires_grad_(), g, w.requires_grad_(), b.requires_grad_()


# --- the same bits ----------------------------------------------------------------------------------------------------

slowly = tuned(deadline=None, max_examples=24 if THOROUGH else 1, suppress_health_check=list(HealthCheck),
               derandomize=True)


@slowly
@given(st.sampled_from(sorted(PROGRAMS)), st.sampled_from((256, 257, 300, 511, 640)),
       st.sampled_from((1, 2, 31, 32, 33, 64, 100, 129, 520)),
       st.sampled_from((torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)),
       st.sampled_from(sorted(LAYOUTS)))
@example("layer norm", 300, 100, torch.float32, "contiguous")
@example("layer norm", 257, 129, torch.bfloat16, "one further")
def test_the_bits_are_those_of_kernels_of_their_own(name, rows, columns, dtype, layout):
    function, meant, exact = PROGRAMS[name]
    check(function, meant, exact, operands(rows, columns, dtype), LAYOUTS[layout])


# what a step of a program makes of what there is: all elements `f`, others `h`, a number for each row `r`, column `c`
STEPS = {
    "sum of rows": lambda f, h, r, c: (f * h).sum(1, keepdim=True),
    "largest of rows": lambda f, h, r, c: f.amax(1, keepdim=True),
    "sum of columns": lambda f, h, r, c: (f * h).sum(0),
    "largest of columns": lambda f, h, r, c: (f - r).amax(0),
    "columns as they are": lambda f, h, r, c: f.sum(0),
    "columns by weight": lambda f, h, r, c: (f * c).sum(0),
    "by rows": lambda f, h, r, c: f - r,
    "by columns": lambda f, h, r, c: f * 0.5 + c * 0.125,
    "together": lambda f, h, r, c: (f + h) * 0.25,
    "across": lambda f, h, r, c: f.t().contiguous().t() * 0.5 + h,
    "upside down": lambda f, h, r, c: torch.cat([f[1:], f[:1]]),
    "in place": lambda f, h, r, c: (f * 0.5).add_(h),
    "in three dimensions": lambda f, h, r, c: (f.reshape(4, -1, f.shape[1]) * 0.5).flatten(0, 1),
    "narrower": lambda f, h, r, c: f.half().float(),
}


def program(device, steps, drop, size):
    """What a program of `steps` gives, each a name and the numbers of what it takes, without results whose bits `drop`
    has."""
    x, g, w, _ = (one.to(device) for one in operands(*size, torch.float32))
    fulls, rows, columns, made = [x, g], [x[:, :1] * 1], [w], []
    for name, a, b, c, d in steps:
        out = STEPS[name](fulls[a % len(fulls)], fulls[b % len(fulls)], rows[c % len(rows)], columns[d % len(columns)])
        (fulls if out.shape == x.shape else columns if out.ndim == 1 else rows).append(out)
        made.append(out)
    wanted = [out for number, out in enumerate(made) if number == len(made) - 1 or not drop >> number & 1]
    fulls = rows = columns = made = out = None                # nobody holds the others
    carried = sum(map(len, [step.launch.kernel.columns for step in torch.plans.of(*wanted[-1:]).kernels])) \
        if device == "carrying" else 0
    return carried, [one.cpu().numpy() for one in wanted]


def test_programs_give_the_same_bits_whoever_rides_with_whom():
    carried, numbers = 0, st.integers(0, 9)

    @tuned(deadline=None, max_examples=400 if THOROUGH else 12, suppress_health_check=list(HealthCheck),
           derandomize=True)
    @given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), numbers, numbers, numbers, numbers), min_size=2,
                    max_size=9), st.integers(0, 511), st.sampled_from(((260, 64), (256, 256), (300, 40))))
    def run_both(steps, drop, size):
        nonlocal carried
        plan.forget()
        steps = [("sum of rows", 0, 1, 0, 0), *steps]         # there is somebody to ride with
        rode, ours = program("carrying", steps, drop, size)
        _, theirs = program("ordered", steps, drop, size)
        carried += rode
        for mine, right in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine, right)
    run_both()
    assert carried > 5                            # or nothing is shown


def test_positions_of_64_bits(monkeypatch):
    monkeypatch.setattr(schedule, "_wide", lambda launch, dims: True)
    check(*PROGRAMS["layer norm"], operands(256, 64, torch.float32))


@pytest.mark.parametrize("rows, columns", ((300, 100), (700, 40), (3000, 130)))
def test_sums_of_columns_that_lie_block_by_block(rows, columns):
    """What blocks gave is folded by neighbours that have a column each, and in a loop where there are many."""
    x = operands(rows, columns, torch.float32)[0]
    ours = (x.to("cuda") * 2).sum(0)
    words = [str(step.launch).splitlines()[-1] for step in torch.plans.of(ours).kernels]
    assert len(words) == 2 and " abreast by " in words[1]
    np.testing.assert_array_equal(ours.cpu().numpy(), (x.to("ordered") * 2).sum(0).cpu().numpy())
    np.testing.assert_allclose(ours.cpu().numpy(), (x.double() * 2).sum(0).numpy(), rtol=1e-5, atol=1e-4)


def test_rows_abreast_in_a_loop(monkeypatch):
    monkeypatch.setattr(schedule, "MAX_CHUNKS", 0)
    x = operands(700, 100, torch.float32)[0]
    ours, theirs = (x.to(device).sum(0).cpu().numpy() for device in ("cuda", "ordered"))
    np.testing.assert_array_equal(ours, theirs)


# --- who rides with whom ----------------------------------------------------------------------------------------------

def test_the_gradients_of_a_layer_norm_are_one_kernel_and_the_sums_of_its_blocks():
    made = layer_norm(*on_gpu(300, 100))
    assert carrying_kernels(made[-1]) == [2]
    first, *others = torch.plans.of(made[-1]).kernels
    assert len(others) == 2 and first.sizes == (300, 100) and all(step.sizes == (100, 56) for step in others)
    assert "d1 cut by d0" in str(first.loop) and " down d1" in str(first.loop)


def test_a_device_that_does_not_say_so_has_kernels_of_their_own():
    x, g, w, b = (one.to("ordered").requires_grad_() for one in operands(300, 100, torch.float32))
    made = layer_norm(x, g.detach(), w, b)
    assert not carrying_kernels(made[-1]) and len(torch.plans.of(made[-1]).kernels) == 4


def test_what_the_rows_do_not_read_is_read_by_a_kernel_of_its_own():
    x, g, _, _ = on_gpu(300, 100)
    made = torch.softmax(x.detach(), 1), g.sum(0)
    assert carrying_kernels(made[0]) == []


def test_columns_of_what_lies_across_are_added_up_as_they_lie():
    """As many rows as columns, so that only memory tells them apart."""
    x, _, _, _ = on_gpu(256, 256)
    x = x.detach()
    y = torch.softmax(x, 1)
    made = y, x.t().contiguous().sum(0), (y.t() * 2).sum(0), x.sum(0)
    right = x.cpu().double().numpy()
    soft = np.exp(right - right.max(1, keepdims=True))
    soft /= soft.sum(1, keepdims=True)
    for mine, meant in zip(made, (soft, right.sum(1), soft.sum(1) * 2, right.sum(0)), strict=True):
        np.testing.assert_allclose(mine.cpu().numpy(), meant, rtol=1e-5, atol=1e-5)


def test_each_rides_with_the_rows_that_have_it():
    """Reductions over the same positions share a kernel, and leave it one by one."""
    x, g, w, b = on_gpu(300, 100)
    y, z = torch.softmax(x.detach(), 1), torch.softmax(g * 2, 1)
    free = (w.detach() * torch.arange(300.0, device="cuda")[:, None]).sum(0)
    made = y, z, x.detach().sum(0), g.sum(0), free
    assert sorted(carrying_kernels(made[0])) == [1, 1]
    for mine, right in zip(made[2:], (x, g, w * torch.arange(300.0, device="cuda")[:, None]), strict=True):
        np.testing.assert_allclose(mine.cpu().numpy(), right.detach().cpu().double().sum(0).numpy(), rtol=1e-5,
                                   atol=1e-4)


def test_a_chain_of_norms():
    """Each layer's columns ride with its own rows; what they are made of is made before."""
    x, g, w, b = on_gpu(300, 100)
    y = x
    for _ in range(3):
        y = F.layer_norm(y + x, (100,), w, b)
    made = torch.autograd.grad(y, [x, w, b], g)
    assert sum(carrying_kernels(made[0])) >= 3
    with torch.config.using(executor="reference"):
        x, w, b, g = (one.detach().cpu().double().requires_grad_() for one in (x, w, b, g))
        y = x
        for _ in range(3):
            y = F.layer_norm(y + x, (100,), w, b)
        meant = torch.autograd.grad(y, [x, w, b], g.detach())
    for mine, right in zip(made, meant, strict=True):
        np.testing.assert_allclose(mine.cpu().numpy(), right.numpy(), rtol=1e-4, atol=1e-3)


def test_a_result_in_the_memory_of_what_it_was_made_of():
    """The gradient of the input stands where the incoming one stood, which columns are added up of."""
    given = operands(300, 100, torch.float32)
    made = layer_norm(*on_gpu(300, 100))[1:]
    assert " in %" in str(torch.plans.of(made[0])) and carrying_kernels(made[0]) == [2]
    for mine, right in zip(made, meant_layer_norm(*(one.double().numpy() for one in given))[1:], strict=True):
        np.testing.assert_allclose(mine.cpu().numpy(), right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name, value", (("MIN_CARRYING_ELEMENTS", 1 << 20), ("MAX_CARRYING_REGISTERS", 28)))
def test_kernels_that_the_device_would_rather_have_in_two(name, value, monkeypatch):
    monkeypatch.setattr(schedule, name, value)
    made = layer_norm(*on_gpu(300, 100))
    assert carrying_kernels(made[-1]) == [] and len(torch.plans.of(made[-1]).kernels) == 4
