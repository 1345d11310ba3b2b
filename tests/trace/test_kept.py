"""What a plan keeps in memory from one kernel to the next, and what kernels compute once."""
import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.loops.ir import Expr
from flambeau.nn import functional as F
from flambeau.trace.planning import plan

pytestmark = pytest.mark.pinned


def planned(function):
    """(what a function of no arguments gives, the steps of the plan that it ran as, the buffers of that)."""
    made, before = [], plan.Buffers
    plan.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "Buffers", lambda *given: made.append(before(*given)) or made[-1])
        for _ in range(4):
            found = function()
            torch.cpu.synchronize()
    plans = [one for one in plan._plans.values() if one]
    for one in plans:
        if not hasattr(one, "steps"):                 # its kernels are being compiled in the background
            one.finish()
    steps = [step for one in plans for step in one.steps]
    return found, steps, [buffer for buffers in made for buffer in buffers.all]


def expressions(steps, op):
    """How many different expressions of a kind the kernels of some steps have."""
    found = set()
    for step in steps:
        if step.kind == "kernel":
            todo = [e for one in step.launch.kernel.passes for _, e in (*one.accs, *one.stores)]
            todo += [e for _, e in step.launch.kernel.finals]
            seen = set()
            while todo:
                e = todo.pop()
                assert isinstance(e, Expr)
                if e not in seen:
                    seen.add(e)
                    todo.extend(e.args)
            found |= {(step.number, e) for e in seen if e.op == op}
    return len(found)


def test_what_was_widened_is_kept_in_its_own_type():
    x = torch.linspace(-1, 1, 64 * 64).reshape(64, 64)

    def work():
        y = torch.erfinv(torch.erf(torch.sin(x).exp().sigmoid()).lgamma().tanh()).to(torch.bfloat16).float()
        return y / y.sum(0), y - y.sum(1, keepdim=True)
    _, _, buffers = planned(work)
    full = [buffer for buffer in buffers if buffer.kind == "working" and buffer.spec.numel == 64 * 64]
    assert [buffer.spec.dtype for buffer in full] == [torch.bfloat16]


def test_a_function_of_the_same_is_computed_once():
    half = torch.linspace(-1.5, 1.5, 5000)

    def work():
        x = (half + half).requires_grad_()
        y = F.gelu(x)
        return x, y, torch.autograd.grad(y, x, torch.ones_like(y))[0]
    (x, y, g), steps, _ = planned(work)
    assert expressions(steps, "erf") == 1
    exact = 0.5 * (1 + torch.erf(x.double() / 2 ** 0.5))
    assert torch.allclose(y.double(), x.double() * exact, atol=1e-6)
    slope = exact + x.double() * torch.exp(-x.double() ** 2 / 2) / (2 * torch.pi) ** 0.5
    assert torch.allclose(g.double(), slope, atol=1e-6)
