"""Checkpointing: the stretch runs again at backward, with the same random numbers, and keeps nothing in between."""
import gc
import weakref

import numpy as np
import pytest

import flambeau as torch
from flambeau.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

BOTH = pytest.mark.parametrize("reentrant", [False, True], ids=["hooks", "reentrant"])


def leaf(*data):
    return torch.tensor(data, dtype=torch.float64, requires_grad=True)


@BOTH
def test_gradients_are_those_of_the_plain_call_and_the_stretch_runs_twice(reentrant):
    x, w, runs = leaf(0.1, 0.2), leaf(3.0, 4.0), []

    def stretch(a):
        runs.append(1)
        return ((a * w).exp() * a).sum()
    checkpoint(stretch, x, use_reentrant=reentrant).backward()
    a, b = np.array([0.1, 0.2]), np.array([3.0, 4.0])
    np.testing.assert_allclose(x.grad.numpy(), np.exp(a * b) * (1 + a * b))
    np.testing.assert_allclose(w.grad.numpy(), np.exp(a * b) * a * a)
    assert len(runs) == 2


@BOTH
def test_the_second_run_draws_the_same_random_numbers(reentrant):
    x, masks = torch.ones(50, dtype=torch.float64, requires_grad=True), []

    def stretch(a):
        masks.append((torch.rand(50) > 0.5).double())
        return a * a * masks[-1]
    torch.manual_seed(7)
    y = checkpoint(stretch, x, use_reentrant=reentrant)
    between = torch.rand(3).tolist()
    y.sum().backward()
    after = torch.rand(3).tolist()
    assert torch.equal(masks[0], masks[1]) and x.grad.tolist() == (2 * masks[0]).tolist()
    torch.manual_seed(7)                                       # the second run leaves the stream where it was
    torch.rand(50)
    assert [torch.rand(3).tolist(), torch.rand(3).tolist()] == [between, after]


def test_nothing_of_the_stretch_is_kept_in_between():
    kept = []

    def stretch(a):
        b = a.exp()
        kept.append(weakref.ref(b._storage))
        return b.sin()
    x = torch.ones(100, requires_grad=True)
    plain = stretch(x)
    assert kept[0]() is not None and plain.requires_grad
    y = checkpoint(stretch, x, use_reentrant=False)
    assert kept[1]() is None
    y.sum().backward()
    assert x.grad is not None


def test_keyword_arguments_and_several_results():
    x = leaf(2.0)
    a, b = checkpoint(lambda t, *, k: (t * k, t * t), x, k=5.0, use_reentrant=False)
    (a + b).sum().backward()
    assert x.grad.item() == 9


def test_nested_and_in_sequence():
    x = leaf(0.5)
    inner = lambda t: checkpoint(torch.sin, t, use_reentrant=False)
    checkpoint(lambda t: inner(t).exp(), x, use_reentrant=False).sum().backward()
    assert x.grad.item() == pytest.approx(np.exp(np.sin(0.5)) * np.cos(0.5))
    x.grad = None
    checkpoint_sequential([torch.sin, torch.exp, torch.tanh], 2, x, use_reentrant=False).sum().backward()
    y = np.exp(np.sin(0.5))
    assert x.grad.item() == pytest.approx((1 - np.tanh(y) ** 2) * y * np.cos(0.5))


def test_a_stretch_that_does_something_else_the_second_time_is_refused():
    x, times = leaf(1.0), []

    def fickle(a):
        times.append(1)
        return a.exp().exp() if len(times) == 1 else a.exp()
    y = checkpoint(fickle, x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="A different number of tensors was saved"):
        y.sum().backward()


def test_without_gradients_it_runs_once():
    runs = []
    with torch.no_grad():
        checkpoint(lambda t: runs.append(1) or t * 2, leaf(1.0), use_reentrant=False)
    assert runs == [1]


def test_use_reentrant_should_be_given():
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(torch.exp, leaf(1.0))


def test_an_argument_that_was_written_is_refused():
    """The second run would start from the written numbers: a wrong gradient otherwise."""
    w = leaf(1.0, 1.0)

    def writes(a):
        return (a.mul_(2) * w).sum()
    for given in (w * 3, leaf(3.0, 3.0).detach()):
        y = checkpoint(writes, given, use_reentrant=False)
        with pytest.raises(RuntimeError, match="modified by an inplace operation.* at version 1; expected version 0"):
            y.backward()
    given = w * 3
    y = checkpoint(lambda a: (a * a * w).sum(), given, use_reentrant=False)
    given.add_(1)
    with pytest.raises(RuntimeError, match="argument 0 of the checkpoint made at .*test_checkpoint.py"):
        y.backward()


@BOTH
def test_without_preserving_the_second_run_draws_on(reentrant):
    x = torch.ones(4, requires_grad=True)
    torch.manual_seed(3)
    checkpoint(lambda a: (a * a * torch.rand(4)).sum(), x, use_reentrant=reentrant, preserve_rng_state=False).backward()
    after = torch.rand(1).item()
    torch.manual_seed(3)
    torch.rand(4), torch.rand(4)
    assert torch.rand(1).item() == after


@pytest.mark.parametrize("rest", [[], [torch.nn.ReLU()]], ids=["alone", "with a layer behind it"])
def test_the_second_run_moves_running_statistics_too(rest):
    """As in PyTorch, where the hook that ends the run comes after the operation."""
    norm = torch.nn.BatchNorm1d(2)
    x = torch.tensor([[1.0, 2.0], [3.0, 6.0]], requires_grad=True)
    checkpoint(torch.nn.Sequential(norm, *rest), x, use_reentrant=False).sum().backward()
    assert norm.num_batches_tracked.item() == 2
    torch.testing.assert_close(norm.running_mean, torch.tensor([2.0, 4.0]) * (1 - 0.9 ** 2))
    torch.testing.assert_close(norm.running_var, 0.9 ** 2 + torch.tensor([2.0, 8.0]) * (1 - 0.9 ** 2))


def sines(a):
    return a.sin().exp().sin()


def slope(fn):
    def made(a):
        with torch.enable_grad():
            return torch.autograd.grad(fn(a).sum(), a, create_graph=True)[0]
    return made


def again(fn):
    return lambda a: checkpoint(fn, a, use_reentrant=False)


WRAPPED = {                                   # the same function, with checkpoints put in at every place
    "first": (slope(sines), [slope(again(sines)), slope(again(again(sines))), again(slope(sines)),
                             again(slope(again(sines)))]),
    "second": (slope(slope(sines)), [slope(again(slope(sines))), again(slope(slope(again(sines)))),
                                     slope(again(slope(again(sines))))]),
    "third": (slope(slope(slope(sines))), [slope(again(slope(slope(again(sines))))),
                                           slope(again(slope(again(slope(again(sines))))))]),
}


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("order", WRAPPED)
def test_backwards_inside_of_stretches(order, early_stop):
    """A backward may start before the stretch that it goes through is over; then that runs again from its beginning."""
    plain, others = WRAPPED[order]
    x = leaf(0.3, -0.7)
    with torch.utils.checkpoint.set_checkpoint_early_stop(early_stop):
        for other in others:
            np.testing.assert_allclose(other(x).detach().numpy(), plain(x).detach().numpy(), 1e-12)


def test_every_backward_runs_the_stretch_once_and_keeps_nothing():
    x, runs, kept = leaf(0.5, 0.6), [], []

    def stretch(a):
        runs.append(1)
        b = a.exp()
        kept.append(weakref.ref(b._storage))
        return b.sin() * b.cos()
    y = checkpoint(stretch, x, use_reentrant=False).sum()
    for count in (2, 3):
        y.backward(retain_graph=True)
        assert len(runs) == count
    assert [ref() for ref in kept] == [None] * 3
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(x.detach().numpy()) * np.cos(2 * np.exp(x.detach().numpy())))


def test_the_arguments_of_an_inner_stretch_are_not_kept_either():
    kept = []

    def outer(a):
        b = a.exp()
        kept.append(weakref.ref(b._storage))
        return checkpoint(torch.sin, b, use_reentrant=False)
    x = leaf(0.5)
    y = checkpoint(outer, x, use_reentrant=False)
    assert kept[0]() is None
    y.sum().backward()
    assert x.grad.item() == pytest.approx(np.cos(np.exp(0.5)) * np.exp(0.5))


def test_a_result_that_its_own_function_keeps_dies_with_the_second_run():
    refs = []

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            b = a.clone()
            ctx.save_for_backward(b)
            refs.append(weakref.ref(b))
            return b

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]
    x = leaf(2.0)
    gc.disable()
    try:
        checkpoint(Copy.apply, x, use_reentrant=False).sum().backward()
        assert x.grad.item() == 2 and [ref() for ref in refs] == [None, None]
    finally:
        gc.enable()


def test_a_second_run_that_keeps_more_is_refused():
    x, times = leaf(1.0), []

    def fickle(a):
        times.append(1)
        return a.exp() if len(times) == 1 else a.exp().exp()
    y = checkpoint(fickle, x, use_reentrant=False, early_stop=False)
    with pytest.raises(CheckpointError, match="trying to save more tensors during recomputation"):
        y.sum().backward()


def test_the_older_way_is_refused_where_only_some_gradients_are_asked_for():
    """It adds to `.grad` of all that the function reads."""
    x, w = leaf(1.0), leaf(2.0)
    y = checkpoint(lambda a: (a * w).sum(), x, use_reentrant=True)
    with pytest.raises(RuntimeError, match="incompatible with .grad"):
        torch.autograd.grad(y, x)
    with pytest.raises(RuntimeError, match="incompatible with .grad"):
        checkpoint(lambda a: (a * w).sum(), x, use_reentrant=True).backward(inputs=[x])
    assert w.grad is None


def test_a_context_may_not_swallow_an_exception():
    class Swallow:
        def __enter__(self): pass
        def __exit__(self, *error): return True

    def fails(a):
        raise ValueError("no")
    with pytest.raises(RuntimeError, match="suppressed the exception"):
        checkpoint(fails, leaf(1.0), use_reentrant=False, context_fn=lambda: (Swallow(), Swallow()))
