"""What a replay may write over: memory that somebody else sees, by whatever they hold, is left alone."""
import pytest

import flambeau as torch
from flambeau.compiler.rebuild import recycled
from flambeau.trace.exclusive import are_sole, is_sole_grad, owns_memory


def leaf():
    """A tensor whose gradient is computed, and seen by nobody else."""
    x = torch.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    x.grad.tolist()
    return x


def test_a_gradient_that_nobody_else_sees_is_recycled():
    x = leaf()
    assert is_sole_grad(x)
    assert recycled(x) is x.grad._storage.value


@pytest.mark.parametrize("held", ["_grad", "_grad._storage", "_grad._storage.value", "_grad._storage.value.array"])
def test_one_that_somebody_holds_is_not(held):
    x = leaf()
    keeps = x
    for name in held.split("."):
        keeps = getattr(keeps, name)
    assert not is_sole_grad(x) and recycled(x) is None
    del keeps
    assert is_sole_grad(x)


def test_a_view_or_numpy_holds_it_too():
    for look in (lambda grad: grad[1:], lambda grad: grad.numpy(), lambda grad: grad.detach()):
        x = leaf()
        kept = look(x.grad)
        assert recycled(x) is None
        del kept


def test_donated_values():
    x = torch.ones(3) + 1
    x.tolist()
    assert are_sole((x._storage.value,), [0])
    other = torch.zeros(2) + 1
    other.tolist()
    kept = other._storage.value
    assert not are_sole((x._storage.value, other._storage.value), [0, 1])
    assert are_sole((x._storage.value, other._storage.value), [0])
    kept = kept.array
    assert not are_sole((other._storage.value,), [0])
    assert kept is other._storage.value.array


def test_gradients_that_are_kept_from_step_to_step_keep_their_numbers():
    layer = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(0)

    @torch.compile
    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    kept, numbers = [], []
    for turn in range(8):
        step(torch.randn(5, 4, generator=draw))
        if turn % 2:
            kept.append(layer.weight.grad)
            numbers.append(layer.weight.grad.tolist())
    assert step.recordings[0].hits > 3
    assert [grad.tolist() for grad in kept] == numbers
    assert len({str(one) for one in numbers}) == len(numbers)


def test_memory_that_a_value_has_to_itself():
    x = torch.ones(300, 300) + 1
    x.tolist()
    value = x._storage.value
    assert owns_memory(value)
    held = value.array
    assert not owns_memory(value)
    del held
    assert owns_memory(value)
    held = value.memory                            # the bytes behind it
    assert not owns_memory(value)
    del held
    assert owns_memory(value)
    value.array.flags.writeable = False
    assert not owns_memory(value)
