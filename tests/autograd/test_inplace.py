"""Writing in place under autograd: whose history becomes what, what backward notices, what the call refuses."""
import numpy as np
import pytest

import flambeau as torch


def leaf(*data):
    return torch.tensor(data, dtype=torch.float64, requires_grad=True)


# --- versions -------------------------------------------------------------------------------------------------------


def kept_and_written(write):
    """x → y, kept for the gradient of y², then written by `write`."""
    x = leaf(1.0, 2.0, 3.0, 4.0)
    y = x * 1
    loss = (y * y).sum()
    write(y)
    return loss


WRITES = {
    "add_": lambda y: y.add_(1),
    "operator": lambda y: y.__imul__(2),
    "item": lambda y: y.__setitem__(0, 5.0),
    "mask": lambda y: y.__setitem__(y > 2, 0.0),
    "view": lambda y: y.view(2, 2)[0].zero_(),
    "detached": lambda y: y.detach().mul_(2),
    "data": lambda y: y.data.fill_(0),
    "no_grad": lambda y: torch.no_grad()(lambda: y.sub_(1))(),
    "copy_": lambda y: y.copy_(torch.zeros(4)),
    "out": lambda y: torch.neg(torch.zeros(4, dtype=torch.float64), out=y.detach()),
    "zero_": lambda y: y.zero_(),
    "index_add_": lambda y: y.index_add_(0, torch.tensor([1]), torch.ones(1, dtype=torch.float64)),
    "transposed": lambda y: y.view(2, 2).t().add_(1),
    "numpy": lambda y: y.detach().numpy().__setitem__(0, 7.0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_to_what_is_kept_is_noticed_at_backward(write):
    loss = kept_and_written(write)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("harmless", [
    lambda y: y.clone().add_(1), lambda y: (y + 0).zero_(), lambda y: y.detach().clone().mul_(2),
    lambda y: y.detach().numpy().sum(), lambda y: torch.zeros(4).copy_(y.detach()).add_(1),
    lambda y: torch.sum(y.detach())], ids="clone result detached-clone read copy reduce".split())
def test_other_memory_may_be_written(harmless):
    kept_and_written(harmless).backward()


def test_a_write_to_what_is_not_kept_is_fine():
    x = leaf(1.0, 2.0)
    y = x * 3                             # keeps 3
    z = y + 1                             # keeps nothing
    y.mul_(100)
    (z * 2).sum().backward()
    assert x.grad.tolist() == [6, 6]


def test_versions_are_shared_by_views_and_not_by_copies():
    x = torch.zeros(4)
    view, detached, copy = x[1:], x.detach(), x.clone()
    view.add_(1)
    detached.add_(1)
    assert (x._version, view._version, detached._version, copy._version) == (2, 2, 2, 0)


def test_a_refused_write_changes_nothing():
    x = leaf(1.0, 2.0)
    for write in (lambda: x.add_(1), lambda: x.__setitem__(0, 5), lambda: x.view(2).zero_(), lambda: x[0].mul_(2)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            write()
    assert x.tolist() == [1, 2] and x._version == 0
    count = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="can't be cast"):
        count.add_(0.5)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        count.add_(torch.zeros(3, 2, dtype=torch.int64))
    assert count.tolist() == [0, 0] and count._version == 0


# --- history --------------------------------------------------------------------------------------------------------


def test_an_in_place_chain_has_the_gradient_of_the_chain():
    x = leaf(0.5, 1.5)
    y = x * 1
    y.mul_(2).add_(1).sin_()              # sin(2x + 1)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.cos(2 * np.array([0.5, 1.5]) + 1), rtol=1e-14)


def test_a_form_that_keeps_its_result_keeps_it_where_it_now_lives():
    x = leaf(0.5, 1.5)
    y = x * 1
    y.exp_()                              # its derivative is the result
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([0.5, 1.5]), rtol=1e-14)
    y = leaf(0.5) * 1
    y.exp_()
    y.add_(1)
    with pytest.raises(RuntimeError, match="output 0 of ExpBackward0"):
        y.sum().backward()


def test_a_form_that_keeps_its_operand_keeps_it_as_it_was():
    """mul_ overwrites the operand that the other one's gradient needs; PyTorch refuses at backward only if it must."""
    x, w = leaf(2.0, 3.0), leaf(5.0, 7.0)
    y = x * 1
    y.mul_(w)
    y.sum().backward()
    assert x.grad.tolist() == [5, 7] and w.grad.tolist() == [2, 3]


def test_plain_memory_gains_history_by_a_write():
    x, buffer = leaf(1.0, 2.0), torch.zeros(3, 2, dtype=torch.float64)
    buffer[1] = x * 3
    assert buffer.requires_grad and buffer.grad_fn.name() == "torch::autograd::CopySlices" and not buffer.is_leaf
    (buffer * torch.arange(6.0).view(3, 2)).sum().backward()
    assert x.grad.tolist() == [6, 9]


def test_copy_of_a_leaf():
    x, y = leaf(1.0, 2.0), torch.zeros(2, 2, dtype=torch.float64)
    y.copy_(x)
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_overwritten_values_get_no_gradient():
    x, v = leaf(1.0, 2.0, 3.0), leaf(10.0)
    y = x * 2
    y[1] = v[0] * 5
    y[2] = 0.0
    (y * y).sum().backward()
    assert x.grad.tolist() == [8, 0, 0] and v.grad.tolist() == [500]
    z = x * 2
    z.zero_()
    x.grad = None
    z.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


# --- views ----------------------------------------------------------------------------------------------------------


def test_a_write_through_a_view_reaches_the_base_and_all_its_views():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    base = (x * 1).view(2, 2)
    row, column = base[0], base[:, 0]
    row.mul_(10)
    assert base.tolist() == [[10, 20], [3, 4]] and column.tolist() == [10, 3]
    (column ** 2).sum().backward()        # (10 x₀)² + x₂²
    assert x.grad.tolist() == [200, 0, 6, 0]


def test_a_write_to_the_base_reaches_its_views():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    view = y[1:]
    y.mul_(3)
    view.sum().backward()
    assert view.tolist() == [6, 9] and x.grad.tolist() == [0, 3, 3]


def test_writes_through_overlapping_views_in_turn():
    """Each write sees the one before: y₀ = x₀ + 5, then column y₀² and so on."""
    x = leaf(1.0, 2.0, 3.0, 4.0)
    y = (x * 1).view(2, 2)
    top, left = y[0], y[:, 0]
    top += 5                              # [[6, 7], [3, 4]]
    left *= left.clone()                  # [[36, 7], [9, 4]]
    top.neg_()                            # [[-36, -7], [9, 4]]
    assert y.tolist() == [[-36, -7], [9, 4]]
    y.sum().backward()
    assert x.grad.tolist() == [-12, -1, 6, 1]


def test_a_view_of_a_view_of_a_view():
    x = torch.arange(24.0, dtype=torch.float64).requires_grad_()
    y = (x * 1).view(2, 3, 4)
    part = y[1].t()[1:3]                  # 2 x 3
    part.mul_(2)
    y.sum().backward()
    expected = np.ones((2, 3, 4))
    expected[1, :, 1:3] = 2
    np.testing.assert_array_equal(x.grad.numpy(), expected.reshape(-1))


def test_views_of_plain_memory_gain_history_together():
    buffer = torch.zeros(4, dtype=torch.float64)
    left, right = buffer[:2], buffer[2:]
    x = leaf(3.0, 4.0)
    left.copy_(x)
    assert buffer.requires_grad and left.requires_grad and right.requires_grad
    (buffer.sum() + (left * left).sum()).backward()
    assert x.grad.tolist() == [7, 9]


def test_views_know_their_base():
    x = torch.zeros(2, 3)
    view = x.t()[1:]
    assert view._is_view() and view._base is x and view[0]._base is x and not x._is_view() and x._base is None
    assert not x.clone()._is_view() and not x.detach()._is_view() or x.detach()._base is None


@pytest.mark.parametrize("several", [
    lambda y: y.split(2)[0], lambda y: y.chunk(2)[0], lambda y: y.unbind()[0], lambda y: y.view(2, 2).unbind(1)[0]],
    ids="split chunk unbind unbind1".split())
def test_one_of_several_views_must_not_be_written(several):
    y = leaf(1.0, 2.0, 3.0, 4.0) * 1
    view = several(y)
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        view.mul_(2)
    assert y.tolist() == [1, 2, 3, 4]
    with torch.no_grad():
        view.mul_(2)                      # nobody records: allowed
    assert y[0].item() == 2


def test_a_view_made_under_no_grad_must_not_be_written_with_grad():
    y = leaf(1.0, 2.0) * 1
    with torch.no_grad():
        view = y[:1]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        view.mul_(2)


def test_expanded_memory_must_not_be_written():
    y = torch.zeros(1, 3).expand(2, 3)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        y.add_(1)
    y.fill_(3)                            # the same everywhere: no contradiction
    assert y.tolist() == [[3, 3, 3], [3, 3, 3]]


# --- updates under no_grad ------------------------------------------------------------------------------------------


def test_parameters_are_updated_in_place_under_no_grad():
    w = leaf(1.0, 2.0)
    alias = w.detach()
    for _ in range(3):
        (w * w).sum().backward()
        with torch.no_grad():
            w -= 0.25 * w.grad            # w/2 each time
            w.grad = None
    assert w.tolist() == [0.125, 0.25] == alias.tolist() and w.is_leaf and w.requires_grad and w._version == 3


def test_detach_in_place():
    x = leaf(1.0)
    y = x * 2
    y.detach_()
    assert not y.requires_grad and y.is_leaf and y.grad_fn is None
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        (x * 2)[0].detach_()
