"""GradScaler: scale, unscale, step or not, and how the scale follows."""

import copy
import pickle

import pytest

import flambeau as torch


def setup(values=(1.0, 2.0), lr=0.5, **kwargs):
    weight = torch.tensor(values, requires_grad=True)
    return weight, torch.optim.SGD([weight], lr=lr), torch.amp.GradScaler("cpu", **kwargs)


def test_a_step_is_that_of_the_unscaled_gradients():
    weight, optimizer, scaler = setup(init_scale=2.0**10)
    loss = (weight ** 2).sum()
    scaled = scaler.scale(loss)
    assert scaled.item() == 5 * 2**10
    scaled.backward()
    assert weight.grad.tolist() == [2 * 2**10, 4 * 2**10]
    scaler.step(optimizer)
    scaler.update()
    assert weight.grad.tolist() == [2, 4] and weight.tolist() == [0, 0]
    assert scaler.get_scale() == 2.0**10


@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
def test_a_step_that_is_not_finite_is_left_out(bad):
    weight, optimizer, scaler = setup(init_scale=16.0)
    scaler.scale(weight.sum()).backward()
    weight.grad[1] = bad
    assert scaler.step(optimizer) is None
    scaler.update()
    assert weight.tolist() == [1, 2] and scaler.get_scale() == 8


def test_the_scale_follows_the_rule():
    """Grows by 2 after 2 finite steps in a row, shrinks by a half after a bad one, which also starts the count anew."""
    weight, optimizer, scaler = setup(init_scale=8.0, growth_interval=2)
    seen = []
    for bad in (0, 0, 0, 1, 0, 0, 1, 1):
        optimizer.zero_grad()
        scaler.scale(weight.sum()).backward()
        if bad:
            weight.grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), scaler._get_growth_tracker()))
    assert seen == [(8, 1), (16, 0), (16, 1), (8, 0), (8, 1), (16, 0), (8, 0), (4, 0)]


def test_the_scale_stays_finite():
    weight, optimizer, scaler = setup(init_scale=3e38, growth_interval=1)
    scaler.scale(torch.ones(()))
    weight.grad = torch.ones(2)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == pytest.approx(3e38) and scaler._get_growth_tracker() == 0


def test_unscaling_by_hand_comes_before_the_step():
    weight, optimizer, scaler = setup()
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    assert weight.grad.tolist() == [1, 1]
    torch.nn.utils.clip_grad_norm_([weight], 0.5)
    scaler.step(optimizer)                                     # not unscaled again
    assert weight.tolist() == pytest.approx([1 - 0.25 / 2**0.5, 2 - 0.25 / 2**0.5])
    scaler.update()


def test_optimizers_are_told_apart():
    first, one, scaler = setup(init_scale=4.0)
    second, two, _ = setup()
    scaler.scale(first.sum() + second.sum()).backward()
    first.grad[0] = float("nan")
    scaler.step(one)
    scaler.step(two)
    assert first.tolist() == [1, 2] and second.tolist() == [0.5, 1.5]
    scaler.update()
    assert scaler.get_scale() == 2                             # one of them was bad


def test_scale_takes_nested_outputs():
    _, _, scaler = setup(init_scale=2.0)
    made = scaler.scale([torch.ones(1), (torch.ones(2), torch.ones((), dtype=torch.float64))])
    assert isinstance(made, list) and isinstance(made[1], tuple)
    assert [t.tolist() for t in (made[0], *made[1])] == [[2], [2, 2], 2] and made[1][1].dtype is torch.float64
    assert [t.item() for t in scaler.scale(t for t in (torch.ones(()), torch.ones(())))] == [2, 2]
    for wrong in (3, [3]):
        with pytest.raises(ValueError, match="outputs must be a Tensor or an iterable of Tensors"):
            scaler.scale(wrong)


def test_misuse_is_said():
    weight, optimizer, scaler = setup()
    for name, call in (("unscale_", lambda: scaler.unscale_(optimizer)), ("step", lambda: scaler.step(optimizer)),
                       ("update", scaler.update)):
        with pytest.raises(AssertionError, match=f"Attempted {name} but _scale is None"):
            call()
    scaler.scale(weight.sum())
    with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer"):
        scaler.step(optimizer)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called on this optimizer since the last update"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="being called after step"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, closure=lambda: None)
    with pytest.raises(AssertionError, match="may only be pickled"):
        pickle.dumps(scaler)
    for wrong in ({"growth_factor": 1.0}, {"backoff_factor": 1.0}):
        with pytest.raises(AssertionError, match="factor must be"):
            torch.amp.GradScaler("cpu", **wrong)


def test_float16_gradients_are_refused_and_others_are_not():
    for dtype in (torch.float64, torch.bfloat16):
        weight = torch.ones(2, dtype=dtype, requires_grad=True)
        optimizer, scaler = torch.optim.SGD([weight], lr=0.5), torch.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale(weight.sum()).backward()
        scaler.step(optimizer)
        assert weight.tolist() == [0.5, 0.5] and weight.grad.dtype is dtype
    weight = torch.ones(2, dtype=torch.float16, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight], lr=0.5), torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(weight.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(optimizer)


def test_the_scale_can_be_set():
    _, _, scaler = setup()
    scaler.scale(torch.ones(()))
    scaler.update(3.0)
    assert scaler.get_scale() == 3
    scaler.update(torch.tensor(5.0))
    assert scaler.get_scale() == 5
    for wrong in (torch.ones(2), torch.tensor(1.0, requires_grad=True), "4"):
        with pytest.raises(AssertionError, match="new_scale should be a float"):
            scaler.update(wrong)
    scaler.set_growth_factor(3.0), scaler.set_backoff_factor(0.1), scaler.set_growth_interval(7)
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (3.0, 0.1, 7)


def test_state_goes_on_in_another():
    weight, optimizer, scaler = setup(init_scale=64.0, growth_interval=3)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    state = scaler.state_dict()
    assert state == {"scale": 64.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3,
                     "_growth_tracker": 1}
    used, fresh = torch.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu")
    used.scale(torch.ones(()))
    for other in (used, fresh):
        other.load_state_dict(state)
        assert other.state_dict() == state
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        fresh.load_state_dict({})
    for twin in (pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)):
        assert twin.state_dict() == state


def test_a_disabled_one_passes_everything_through():
    weight, optimizer, scaler = setup(enabled=False)
    loss = weight.sum()
    assert scaler.scale(loss) is loss and not scaler.is_enabled() and scaler.get_scale() == 1
    loss.backward()
    scaler.unscale_(optimizer)
    assert scaler.step(optimizer, closure=lambda: 7) == 7
    scaler.update()
    assert weight.tolist() == [0.5, 1.5] and scaler.state_dict() == {}
    scaler.load_state_dict({})
    with pytest.warns(UserWarning, match="CUDA is not available"):
        assert not torch.amp.GradScaler().is_enabled()
    with pytest.warns(FutureWarning, match=r"torch.amp.GradScaler\('cpu'"):
        assert torch.cpu.amp.GradScaler(init_scale=2.0).get_scale() == 2


def test_an_optimizer_that_unscales_by_itself():
    weight, _, scaler = setup(init_scale=4.0)
    seen = []

    class Fused(torch.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure=None):
            seen.append((self.grad_scale if self.grad_scale is None else self.grad_scale.item(),
                         self.found_inf.item()))
            return "stepped"
    optimizer = Fused([weight], lr=0.1)
    scaler.scale(weight.sum()).backward()
    assert scaler.step(optimizer) == "stepped" and weight.grad.tolist() == [4, 4]
    scaler.update()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    weight.grad[0] = float("inf")
    scaler.update()
    scaler.step(optimizer)
    scaler.update()
    assert seen == [(4.0, 0.0), (None, 0.0), (4.0, 1.0)] and scaler.get_scale() == 2
    assert not hasattr(optimizer, "grad_scale")


def test_float16_training_keeps_small_gradients():
    """A gradient of 1e-9 is zero in float16; scaled, it is not."""
    weight, optimizer, scaler = setup((1.0,), lr=1e9, init_scale=2.0**16)
    for scaled, wanted in ((False, 0.0), (True, 1e-9)):
        weight.grad = None
        with torch.autocast("cpu", dtype=torch.float16):
            out = torch.nn.functional.linear(torch.ones(1), weight[None])
        loss = (out * 1e-9).sum() if not scaled else scaler.scale((out.float() * 1e-9).sum())
        loss.backward()
        if scaled:
            scaler.unscale_(optimizer)
        assert weight.grad.item() == pytest.approx(wanted, rel=1e-2)


def test_an_optimizer_that_takes_the_scaler_itself():
    """The older way to unscale in `step`: an argument `grad_scaler`."""
    seen = []

    class Own(torch.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure=None, *, grad_scaler=None):
            seen.append((grad_scaler, hasattr(self, "grad_scale")))

    weight = torch.ones(2, requires_grad=True)
    optimizer, scaler = Own([weight], lr=0.1), torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(weight.sum()).backward()
    with pytest.warns(FutureWarning, match="going to stop passing itself"):
        scaler.step(optimizer)
    scaler.update()
    assert seen == [(scaler, False)]
