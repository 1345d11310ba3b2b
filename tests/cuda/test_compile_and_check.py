"""What looks at data on the way: checks at the call and under `compile`, and gradcheck; on a simulated GPU."""
import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.autograd import gradcheck, gradgradcheck

from .simulated import compiler, simulating

pytestmark = [pytest.mark.pinned, pytest.mark.filterwarnings("error:.*mistake in Flambeau"),
              pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")]


@pytest.fixture(params=[False, True], ids=["", "delayed"])
def cuda(request):
    with simulating(delayed=request.param):
        yield torch.device("cuda", 0)


def test_checks_of_data(cuda):
    """An index out of range is refused at the call, compiled or not, with the words of the CPU."""
    def of(x, at):
        return nn.functional.cross_entropy(x, at) + x[at].sum() + nn.functional.embedding(at, x).sum()

    compiled = torch.compile(of)
    x, at = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 2, 1, 1])
    for _ in range(3):
        np.testing.assert_allclose(compiled(x.to(cuda), at.to(cuda)).item(), of(x, at).item(), rtol=1e-5)
    wrong = torch.tensor([0, 3, 1, 1])
    with pytest.raises(IndexError) as theirs:
        of(x, wrong)
    for function in (of, compiled):
        with pytest.raises(IndexError) as ours:
            function(x.to(cuda), wrong.to(cuda))
        assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]
    assert compiled(x.to(cuda), at.to(cuda)).device == cuda


def test_gradcheck(cuda):
    x = torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(2, 3).to(cuda).requires_grad_()
    w = torch.linspace(1, 2, 3, dtype=torch.float64).to(cuda).requires_grad_()
    of = lambda x, w: ((x * w).tanh().sum(1), (x @ w).exp())
    assert gradcheck(of, (x, w), check_forward_ad=True) and gradgradcheck(of, (x, w))
    z = torch.complex(x.detach(), x.detach() + 1).requires_grad_()
    assert gradcheck(lambda z: (z * z).abs(), (z,))
    assert x.device == cuda and x.grad is None


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,), (2, 0, 3)])
@pytest.mark.parametrize("work", [
    lambda t: t[..., :1].mul_(2), lambda t: t.__setitem__(slice(None, None, 2), t[::2] * 2), lambda t: t.sum(-1),
    lambda t: (t.transpose(0, -1) + 1).contiguous(), lambda t: torch.cat([t, t]).cumsum(0), lambda t: t.sort()[0],
    lambda t: t[torch.zeros(0, dtype=torch.int64)], lambda t: t.sum().exp()])
def test_tensors_without_elements(shape, work, cuda):
    """A launch over nothing, which CUDA refuses, is not made."""
    with torch.config.using(executor="native"):
        found = []
        for device in (torch.device("cpu"), cuda):
            with device:
                t = torch.zeros(shape)
                made = work(t)
                found.append((t.tolist(), None if made is None else made.tolist()))
        assert found[0] == found[1]
