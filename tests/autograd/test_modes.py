"""no_grad, enable_grad, set_grad_enabled, inference_mode: as contexts, as decorators, as calls."""
import pytest

import flambeau as torch


@pytest.fixture
def x():
    return torch.tensor([1.0, 2.0], requires_grad=True)


def test_contexts_nest_and_end(x):
    with torch.no_grad():
        assert not (x * 2).requires_grad and not torch.is_grad_enabled()
        with torch.enable_grad():
            assert (x * 2).requires_grad
        with torch.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad
    with pytest.raises(ZeroDivisionError), torch.no_grad():
        raise ZeroDivisionError
    assert torch.is_grad_enabled()


def test_as_a_call():
    torch.set_grad_enabled(False)
    try:
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("decorator", [
    lambda: torch.no_grad(), lambda: torch.no_grad, lambda: torch.set_grad_enabled(False),
    lambda: torch.inference_mode(), lambda: torch.inference_mode],
    ids="no_grad() no_grad set inference() inference".split())
def test_as_a_decorator(x, decorator):
    @decorator()
    def double(t):
        """Twice t."""
        return t * 2
    assert torch.is_grad_enabled()
    assert not double(x).requires_grad and double.__name__ == "double" and double.__doc__ == "Twice t."
    assert torch.is_grad_enabled() and (x * 2).requires_grad


def test_a_decorated_generator_runs_its_steps_inside(x):
    @torch.no_grad()
    def steps(t):
        got = yield t * 2
        yield t * got
        return "done"
    gen = steps(x)
    assert not next(gen).requires_grad
    assert torch.is_grad_enabled()                         # between the steps
    assert gen.send(5).tolist() == [5, 10]
    with pytest.raises(StopIteration) as end:
        next(gen)
    assert end.value.value == "done"


def test_a_leaf_made_under_no_grad_may_require_grad():
    with torch.no_grad():
        w = torch.ones(2, requires_grad=True)
    assert w.requires_grad and (w * 2).requires_grad


# --- inference mode -------------------------------------------------------------------------------------------------


def test_inference_tensors_stay_inference_tensors(x):
    with torch.inference_mode():
        y = x * 2
        view = y[0:1]
        y.add_(1)                                          # inside, everything goes
        assert torch.is_inference_mode_enabled() and y.is_inference() and view.is_inference()
        with torch.inference_mode(False):
            assert not torch.is_inference_mode_enabled() and not torch.ones(1).is_inference()
    assert not y.requires_grad and y.tolist() == [3, 5] and not x.is_inference()
    assert (y + 1).is_inference() is False and (y + 1).tolist() == [4, 6]          # reading is fine outside


def test_inference_tensors_cannot_enter_a_graph(x):
    with torch.inference_mode():
        y = torch.ones(2)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        x * y
    assert (x + y).requires_grad                           # nothing is saved for a sum
    assert (x * y.clone()).requires_grad
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        y.add_(1)
    with pytest.raises(RuntimeError, match="inference tensor"):
        y.requires_grad_()


def test_views_of_normal_tensors_made_in_inference_mode_are_normal(x):
    with torch.inference_mode():
        view = x[0:1]
        assert not view.is_inference()
        x.mul_(2)
    assert x.tolist() == [2, 4]
