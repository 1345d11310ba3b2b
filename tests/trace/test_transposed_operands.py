"""Reductions over pairs of rows of two small tables: an operand that lies across the vectors is turned first."""
import itertools
import re

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.backends.cpu import machine_code
from flambeau.trace.planning import plan

pytestmark = pytest.mark.pinned


@pytest.fixture(params=[16, 64], ids=lambda width: f"{width} bytes")
def wide(request, monkeypatch):
    """What is decided for vectors of so many bytes; the code is this machine's."""
    plan.forget()
    monkeypatch.setattr(machine_code, "vector_bytes", lambda: request.param)
    with torch.config.using(executor="native"):
        yield request.param
    plan.forget()


def tables(n, m, k, dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(n, k, generator=generator), torch.randn(m, k, generator=generator)
    if dtype is torch.bool:
        return a > 0, b > 0
    return (a * 4).to(dtype), (b * 4).to(dtype)


def agree(function, *tensors):
    """Both executors give the same, up to rounding; the plan of it."""
    torch.cpu.synchronize()
    given = function(*tensors)
    plans = torch.plans.of(given)
    got = given.numpy() if given.dtype is not torch.bfloat16 else given.float().numpy()
    with torch.config.using(executor="reference"):
        want = function(*tensors)
        want = want.numpy() if want.dtype is not torch.bfloat16 else want.float().numpy()
    most = np.abs(want).max()                 # a sum that nearly cancels has the rounding of what was added
    np.testing.assert_allclose(got, want, rtol=1e-2 if want.dtype.itemsize == 2 else 2e-6, atol=max(2e-4, 2e-6 * most))
    return plans


def distance(a, b):
    return ((a[:, None] - b[None]) ** 2).sum(-1).sqrt()


def test_the_plan_of_distances(wide):
    a, b = tables(150, 140, 12)
    assert str(agree(distance, a, b)) == """\
kernel 0  over [12 × 140]  copy  reads %1  keeps w0
kernel 1  over [150 × 140 × 12]  fma, mul, sum, sqrt  reads w0, %0  gives %5"""


def test_no_kernel_fetches_lane_by_lane(wide):
    """Short rows are walked along the results, longer ones and those that fill vectors along themselves, however wide
    vectors are."""
    for k in (3, 15, 16, 31, 32, 33, 200):
        a, b = tables(150, 140, k)
        plans = agree(distance, a, b)
        assert "gather" not in plans.kernels[-1].llvm, k
        across = k <= 32 and k % 16 != 0      # the order of a sum does not follow from the machine
        assert ("lanes along d" in str(plans.kernels[-1].loop)) == across and len(plans.kernels) == 1 + across


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8])
def test_types(wide, dtype):
    agree(lambda a, b: (a[:, None] * b[None]).sum(-1), *tables(90, 70, 20, dtype))
    agree(lambda a, b: (a[:, None] - b[None]).amax(-1), *tables(90, 70, 20, dtype))


def test_truths_and_places(wide):
    a, b = tables(90, 70, 20, torch.bool)
    agree(lambda a, b: (a[:, None] & b[None]).any(-1), a, b)
    agree(lambda a, b: (a[:, None] == b[None]).all(-1), a, b)
    a, b = tables(90, 70, 20)
    agree(lambda a, b: (a[:, None] + b[None]).argmax(-1), a, b)


def test_several_passes(wide):
    a, b = tables(90, 70, 24)
    agree(lambda a, b: torch.softmax(a[:, None] * b[None], -1).amax(-1), a, b)
    agree(lambda a, b: (a[:, None] - b[None]).var(-1), a, b)


def test_both_directions_and_three_tables(wide):
    a, b = tables(90, 70, 20)
    agree(lambda a, b: (a[:, None] * b[None]).sum(0), a, b)
    agree(lambda a, b: (a[:, None] * b[None]).sum((0, 2)), a, b)
    agree(lambda a, b: (a[:, None] * b[None] * (a[:1] + 1)[None]).sum(-1), a, b)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_layouts(wide, order):
    """Tables that are slices, transposed, reversed or spread out, in the middle of others' memory."""
    back = sorted(range(3), key=order.__getitem__)
    whole = torch.arange(40.0 * 41 * 42).reshape(40, 41, 42).sin()
    seen = whole.permute(order).contiguous().permute(back)
    a, b = seen[3:33, 5, 2:38], seen[7, 1:37, ::1].T[:36].T
    for one, other in ((a, b), (b, a), (a[::2], b[1:]), (a.T[:, :30], b.T[:, :30]), (a.flip(0), b),
                       (a[:, ::3], b[:, 1::3])):
        agree(distance, one, other)


def test_an_operand_that_is_made_on_the_way(wide):
    a, b = tables(90, 70, 20)
    agree(lambda a, b: distance(a @ torch.eye(20), b.cumsum(0)), a, b)
    agree(lambda a, b: distance(a, b) + distance(b[:70], a[:70]).sum(), a, b)


def test_gradients(wide):
    a, b = (t.requires_grad_() for t in tables(60, 50, 12))
    got = torch.autograd.grad(distance(a, b).sum(), (a, b))
    with torch.config.using(executor="reference"):
        want = torch.autograd.grad(distance(a, b).sum(), (a, b))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_large_or_rarely_read_operands_stay(wide):
    x = torch.arange(200_000.0).reshape(20_000, 10)
    plans = agree(lambda x: (x * 2).sum(-1), x)                   # read once: to turn it would read it twice
    assert len(plans.kernels) == 1
    assert not re.search("copy", str(plans))
