"""What is joined to a product on a GPU: a bias, and behind small products a relu."""
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau.trace.planning import plan

from .simulated import simulating

pytestmark = pytest.mark.pinned

SMALL, LARGE = (5, 8, 6), (300, 700, 160)


@pytest.fixture(scope="module", autouse=True)
def gpu():
    with simulating() as driver, torch.config.using(executor="native"):
        yield driver


def operands(sizes, dtype):
    m, k, n = sizes
    torch.manual_seed(0)
    shapes = (m, k), (n, k), (n,)
    return [torch.randint(-3, 4, shape).to(dtype) for shape in shapes]


def on_gpu(fn, given):
    return fn(*[x.cuda() for x in given]).cpu()


@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fn", [
    F.linear, lambda *given: F.relu(F.linear(*given)), lambda *given: F.linear(*given).relu_(),
    lambda *given: (lambda y: y + F.relu(y))(F.linear(*given)),
    lambda *given: torch.maximum(F.linear(*given), given[2]),
    lambda x, w, b: F.linear(x.view(1, *x.shape), w, b).relu().view(x.shape[0], -1),
    lambda x, w, b: F.linear(x, w, b[:1].expand(b.shape)), lambda x, w, b: F.relu(F.linear(x, w, b).t()).t(),
    lambda x, w, b: F.linear(x, w, b + 1), lambda x, w, b: F.linear(x[:1], w, b).relu()])
def test_linear_and_what_follows(sizes, dtype, fn):
    given = operands(sizes, dtype)
    torch.testing.assert_close(on_gpu(fn, given).double(), fn(*[x.double() for x in given]).to(dtype).double(), rtol=0,
                               atol=0)                        # whole numbers, which every order of a sum gives


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["small", "large"])
def test_a_nan_stays_one(dtype, sizes):
    x, w, b = operands(sizes, dtype)
    x[0, 0] = torch.nan
    made = on_gpu(lambda *given: F.relu(F.linear(*given)), [x, w, b])
    assert made[0].isnan().all() and not made[1:].isnan().any() and (made[1:] >= 0).all()


def steps_of(fn, given):
    """The words of the steps that a function of tensors takes on a GPU."""
    found, real = [], plan.Plan.finish

    def finish(self):
        real(self)
        found.extend(step.words for step in self.steps)

    given = [x.cuda() for x in given]
    [x.sum().item() for x in given]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan.Plan, "finish", finish)
        plan.forget()
        made = fn(*given)
        [x.data_ptr() for x in (made if isinstance(made, tuple) else (made,))]
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_relu_is_joined_to_a_small_product(dtype):
    given = operands(SMALL, dtype)
    assert steps_of(lambda *given: F.relu(F.linear(*given)), given) == [("affine",)]
    assert len(steps_of(lambda *given: (lambda y: (y, F.relu(y)))(F.linear(*given)), given)) == 2     # both are wanted


def test_a_bias_is_joined_to_a_large_product():
    given = operands(LARGE, torch.bfloat16)
    assert steps_of(F.linear, given) == [("affine",)]
    words = steps_of(lambda *given: F.relu(F.linear(*given)), given)
    assert words[0] == ("affine",) and len(words) == 2
    assert steps_of(F.linear, operands(LARGE, torch.float64))[0] == ("gemm",)


def test_a_small_mlp_learns_as_on_the_cpu():
    def losses(device):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        x, y = torch.randn(10, 6), torch.arange(10) % 3
        net, x, y = net.to(device), x.to(device), y.to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.5)
        found = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found
    assert losses("cuda") == pytest.approx(losses("cpu"), rel=1e-5)
