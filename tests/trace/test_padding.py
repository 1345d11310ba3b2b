"""Rows that a plan alone sees are padded for devices that multiply such ones faster, and nothing else changes."""
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.base.spec import CPU
from flambeau.trace.planning import padding, plan

from ..thorough import THOROUGH

pytestmark = pytest.mark.pinned
ROW_BYTES = 16


@pytest.fixture
def padded(monkeypatch):
    """Runs a function with padding asked for, however small the matrices; gives its results and its plans' buffers."""
    def run(function):
        made = []
        with monkeypatch.context() as patch:
            patch.setattr(CPU.backend, "product_row_bytes", ROW_BYTES, raising=False)
            patch.setattr(padding, "MIN_PADDED_BYTES", 0)
            before = plan.Buffers
            patch.setattr(plan, "Buffers", lambda *given: made.append(before(*given)) or made[-1])
            plan.forget()
            found = settled(function)
        plan.forget()
        return found, [buffer for buffers in made for buffer in buffers.all]
    yield run
    plan.forget()


def settled(function):
    """What a function of no arguments gives when its recording runs as one plan, which it does not at first sight."""
    for _ in range(4):
        found = function()
        torch.cpu.synchronize()
    return found


def uneven(buffer):
    return not buffer.spec.contiguous


def strides_of(buffers):
    return {buffer.spec.strides for buffer in buffers if uneven(buffer)}


def test_what_nobody_sees_is_padded_and_results_are_not(padded):
    x, w, v = (torch.linspace(-1, 1, n * m).reshape(n, m) for n, m in ((6, 9), (9, 13), (13, 5)))
    work = lambda: (torch.relu(x @ w) @ v, x @ w.mul(2))
    expected = [t.clone() for t in settled(work)]
    made, buffers = padded(work)
    assert strides_of(buffers) == {(16, 1)}                       # 13 elements of 4 bytes: rows of 64
    for one, other in zip(made, expected, strict=True):
        assert one.is_contiguous()
        assert torch.equal(one, other)
    for buffer in buffers:
        if uneven(buffer):
            assert buffer.nbytes == ((buffer.spec.shape[0] - 1) * 16 + 13) * 4


def test_shapes_that_put_rows_together_keep_them_as_they_are(padded):
    x, w = torch.linspace(-1, 1, 54).reshape(6, 9), torch.linspace(0, 1, 117).reshape(9, 13)
    work = lambda: (x @ w).reshape(13, 6).exp() @ x
    expected = settled(work).clone()
    made, buffers = padded(work)
    assert (13 + 3, 1) not in strides_of(buffers)
    assert torch.equal(made, expected)


SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
STEPS = st.lists(st.sampled_from(("relu", "transposed", "sum", "softmax", "flat", "view", "again", "product")),
                 max_size=6)


@given(SHAPES, STEPS, st.booleans(), st.sampled_from((torch.float32, torch.bfloat16)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40 if THOROUGH else 6)
def test_programs_give_the_same_padded_or_not(padded, shape, steps, keeps, dtype):
    batch, n, m, k = shape

    def work():
        torch.manual_seed(0)
        x, w = torch.randn(batch, n, k).to(dtype).requires_grad_(), torch.randn(k, m).to(dtype).requires_grad_()
        h, kept = x @ w, []
        for step in steps:
            if keeps:
                kept.append(h)
            h = {"relu": torch.relu, "transposed": lambda h: h.transpose(-1, -2), "sum": lambda h: h - h.sum(-1, True),
                 "softmax": lambda h: torch.softmax(h, -1), "flat": lambda h: h.flatten(0, 1).unsqueeze(0),
                 "view": lambda h: h[..., :, 1:] if h.shape[-1] > 1 else h, "again": lambda h: h + h,
                 "product": lambda h: h @ torch.ones(h.shape[-1], 5, dtype=dtype)}[step](h)
        grads = torch.autograd.grad(h.float().square().sum(), [x, w])
        return [h, *grads, *kept]

    expected = [(t.stride(), t.detach().clone()) for t in settled(work)]
    made, _ = padded(work)
    for one, (strides, other) in zip(made, expected, strict=True):
        assert one.stride() == strides
        assert torch.equal(one.detach(), other)
