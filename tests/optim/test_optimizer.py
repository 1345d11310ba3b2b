"""What all optimizers share: groups, states, the count of steps, hooks, saving, copies."""
import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import flambeau as torch
from flambeau.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    required,
)
from flambeau.trace.recording.record import current

from .every import ORDINARY


def param(*values):
    return torch.nn.Parameter(torch.tensor(values))


def step(optimizer, value=1.0, only=None):
    """One step with gradients of `value`, for all parameters or for those of `only`."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.full_like(p, value) if only is None or any(p is q for q in only) else None
    optimizer.step()


# --- groups ----------------------------------------------------------------------------------------------------------


def test_groups_have_options_of_their_own():
    a, b = param(1.0), param(1.0)
    optimizer = torch.optim.SGD([{"params": a, "lr": 0.5}, {"params": [b]}], lr=0.1)
    step(optimizer)
    assert a.item() == 0.5 and b.item() == pytest.approx(0.9)
    optimizer.param_groups[1]["lr"] = 0.3
    step(optimizer)
    assert b.item() == pytest.approx(0.6)


def test_a_group_is_the_dictionary_that_was_given():
    group = {"params": iter([param(1.0)]), "color": "red"}
    optimizer = torch.optim.SGD([group])
    assert optimizer.param_groups[0] is group and isinstance(group["params"], list) and group["color"] == "red"


@pytest.mark.parametrize("make, kind, words", [
    (lambda: torch.optim.SGD(param(1.0)), TypeError, "iterable of Tensors or dicts, but got torch.FloatTensor"),
    (lambda: torch.optim.SGD([]), ValueError, "empty parameter list"),
    (lambda: torch.optim.SGD([1.0]), TypeError, "one of the params is float"),
    (lambda: torch.optim.SGD([{"params": {param(1.0)}}]), TypeError, "Please use a list instead"),
    (lambda: torch.optim.SGD([param(1.0) * 2]), ValueError, "can't optimize a non-leaf Tensor"),
    (lambda: torch.optim.SGD([("a", param(1.0)), param(1.0)]), ValueError, "Some param names are missing: 1 of 2"),
    (lambda: torch.optim.SGD([param(1.0)]).add_param_group([1]), TypeError, "param_group must be a dict"),
    (lambda: Optimizer([param(1.0)], {"rate": required}), ValueError, "required optimization parameter rate"),
    (lambda: Optimizer([param(1.0)], {}).step(), NotImplementedError, r"defines no step\(\)"),
    (lambda: torch.optim.Adam([param(1.0)], betas=(0.9, 1.0)), ValueError, "index 1: 1.0; it is at least 0 and less"),
    (lambda: torch.optim.Adam([param(1.0)], lr=torch.ones(2)), ValueError, "Tensor lr must be 1-element, .* has 2"),
])
def test_refusals(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


def test_one_parameter_cannot_be_in_two_groups():
    p = param(1.0)
    with pytest.raises(ValueError, match="parameter 1 of group 1 is in an earlier one"):
        torch.optim.SGD([{"params": [p]}, {"params": [param(2.0), p]}])
    with pytest.warns(UserWarning, match="duplicate parameters"):
        torch.optim.SGD([p, p])


# --- the count of steps ----------------------------------------------------------------------------------------------


def test_counts_are_tensors_that_anybody_can_read():
    a, b = param(1.0), param(2.0)
    optimizer = torch.optim.Adam([a, b])
    for _ in range(3):
        step(optimizer)
    counts = [optimizer.state[p]["step"] for p in (a, b)]
    assert [t.item() for t in counts] == [3.0, 3.0]
    assert all(t.dtype is torch.float32 and t.shape == () and t.is_leaf for t in counts)
    assert list(optimizer.state[a]) == ["step", "exp_avg", "exp_avg_sq"]


@pytest.mark.parametrize("disturb", ["write", "replace", "load", "number"])
def test_counts_that_somebody_changed_are_looked_at_again(disturb):
    """At step 1001 the bias of the averages is almost gone; the size of the step shows which count was used."""
    p = param(0.0)
    optimizer = torch.optim.Adam([p], lr=1.0, betas=(0.5, 0.999), eps=0.0)
    step(optimizer)
    state = optimizer.state[p]
    if disturb == "write":
        state["step"].fill_(1000.0)
    elif disturb == "replace":
        state["step"] = torch.tensor(1000.0)
    elif disturb == "number":
        state["step"] = 1000
    else:
        saved = copy.deepcopy(optimizer.state_dict())
        saved["state"][0]["step"] = torch.tensor(1000.0)
        optimizer.load_state_dict(saved)
    before = p.item()
    step(optimizer)
    m, v = 0.75, 1 - 0.999 ** 2
    assert before - p.item() == pytest.approx(m / (1 - 0.5 ** 1001) / np.sqrt(v / (1 - 0.999 ** 1001)), rel=1e-4)
    assert optimizer.state[p]["step"].item() == 1001


def test_each_parameter_counts_the_steps_that_it_took():
    params = [param(0.0) for _ in range(4)]
    optimizer, expected = torch.optim.Adam(params), np.zeros(4)
    rng = np.random.default_rng(0)
    for _ in range(12):
        live = rng.random(4) < 0.6
        expected += live
        step(optimizer, only=[p for p, on in zip(params, live) if on])
    assert [optimizer.state[p]["step"].item() for p in params] == expected.tolist()


def test_after_a_rest_no_value_is_looked_at():
    params = [param(0.0) for _ in range(4)]
    optimizer = torch.optim.Adam(params)
    for only in (None, params[:2], None, params[:2], None):
        step(optimizer, only=only)
    torch.cpu.synchronize()
    for only in (params[:2], None, params[1:2], params[2:], None):
        step(optimizer, only=only)
    assert len(current().code) > 5 * 4
    assert [optimizer.state[p]["step"].item() for p in params] == [8, 9, 6, 6]


def test_counts_of_many_parameters_are_one_operation_where_somebody_looks_at_their_memory():
    params = [param(float(i)) for i in range(9)]
    optimizer = torch.optim.Adam(params)
    step(optimizer)
    step(optimizer)
    torch.cpu.synchronize()
    optimizer.step()
    assert sum(one.entry.outs[0].shape == (9,) for one in current().code) == 0
    assert [optimizer.state[p]["step"].item() for p in params] == [3] * 9
    seen = optimizer.state[params[4]]["step"].numpy()
    optimizer.step()
    assert optimizer.state[params[0]]["step"].item() == 4 and seen == 4


def test_what_was_computed_from_a_count_stays_as_it_was():
    p = param(1.0)
    optimizer = torch.optim.Adam([p])
    step(optimizer)
    count = optimizer.state[p]["step"]
    doubled, version = count * 2, count._version
    step(optimizer)
    assert doubled.item() == 2 and count.item() == 2 and count._version == version + 1


def test_a_count_stays_where_one_more_is_the_same_number():
    p = param(1.0)
    optimizer = torch.optim.Adam([p])
    step(optimizer)
    optimizer.state[p]["step"].fill_(2.0 ** 24 - 1)
    for _ in range(3):
        step(optimizer)
    assert optimizer.state[p]["step"].item() == 2.0 ** 24


# --- hooks -----------------------------------------------------------------------------------------------------------


def test_hooks_of_steps():
    seen = []
    optimizer = torch.optim.SGD([param(1.0)], lr=0.1)
    with register_optimizer_step_pre_hook(lambda o, args, kwargs: seen.append("all before")), \
            register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append("all after")):
        first = optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
        second = optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))
        step(optimizer)
        assert seen == ["all before", "before", "after", "all after"]
        first.remove(), second.remove()
    step(optimizer)
    assert len(seen) == 4


def test_a_hook_may_give_other_arguments():
    optimizer = torch.optim.SGD([param(1.0)])
    handle = optimizer.register_step_pre_hook(lambda o, args, kwargs: (args, {"closure": lambda: 7}))
    assert optimizer.step() == 7
    handle.remove()
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 5)
    with pytest.raises(RuntimeError, match=r"None or a tuple of \(new_args, new_kwargs\), but got 5"):
        optimizer.step()


def test_the_closure_runs_with_gradients():
    p = param(3.0)
    optimizer = torch.optim.SGD([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (p ** 2).sum()
        loss.backward()
        return loss
    with torch.no_grad():
        assert optimizer.step(closure).item() == 9.0
    assert p.item() == pytest.approx(2.4) and torch.is_grad_enabled()


# --- saving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ORDINARY)
@pytest.mark.parametrize("way", ["state_dict", "pickle", "deepcopy", "file"])
def test_training_goes_on_from_what_was_saved(name, way, tmp_path):
    options = {"momentum": 0.9} if name == "SGD" else {}
    p = param(1.0, -2.0, 3.0)
    optimizer = getattr(torch.optim, name)([p], **options)
    for value in (1.0, -0.5):
        step(optimizer, value)
    if way in ("state_dict", "file"):
        saved = copy.deepcopy(optimizer.state_dict())
        if way == "file":
            torch.save(saved, tmp_path / "state.pt")
            saved = torch.load(tmp_path / "state.pt")
        q = torch.nn.Parameter(p.detach().clone())
        other = getattr(torch.optim, name)([q], **options | {"lr": 77.0})
        other.load_state_dict(saved)
    else:
        other = pickle.loads(pickle.dumps(optimizer)) if way == "pickle" else copy.deepcopy(optimizer)
        q = other.param_groups[0]["params"][0]
        assert q is not p
    for value in (2.0, 2.0):
        step(optimizer, value), step(other, value)
    np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), 1e-6)


def test_a_loaded_state_takes_the_dtype_of_its_parameter():
    one, two = param(1.0), torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    first, second = torch.optim.Adam([one]), torch.optim.Adam([two])
    step(first)
    second.load_state_dict(first.state_dict())
    state = second.state[two]
    assert state["exp_avg"].dtype is torch.float64 and state["step"].dtype is torch.float32


def test_what_does_not_fit_is_not_loaded():
    optimizer = torch.optim.SGD([param(1.0), param(2.0)])
    with pytest.raises(ValueError, match="group 0 has 1 parameters there, and 2 here"):
        optimizer.load_state_dict(torch.optim.SGD([param(1.0)]).state_dict())
    with pytest.raises(ValueError, match="different number of parameter groups: 2, and the optimizer has 1"):
        optimizer.load_state_dict(torch.optim.SGD([{"params": param(1.0)}, {"params": param(1.0)}]).state_dict())


def test_text():
    assert str(torch.optim.SGD([param(1.0)], lr=0.5)) == """\
SGD (
Parameter Group 0
    dampening: 0
    differentiable: False
    foreach: None
    fused: None
    lr: 0.5
    maximize: False
    momentum: 0
    nesterov: False
    weight_decay: 0
)"""


# --- the rest --------------------------------------------------------------------------------------------------------


def test_zero_grad():
    p, q = param(1.0), param(1.0)
    optimizer = torch.optim.SGD([p, q])
    p.grad = torch.ones(1)
    kept = p.grad
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is kept and kept.item() == 0 and q.grad is None
    optimizer.zero_grad()
    assert p.grad is None


def test_an_optimizer_of_the_users_own():
    class Halving(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"by": 2.0})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.div_(group["by"])

    calls, p = [], param(8.0)
    optimizer = Halving([p])
    optimizer.register_step_post_hook(lambda *args: calls.append(1))
    optimizer.step(), optimizer.step()
    assert p.item() == 2.0 and calls == [1, 1]


def test_sparse_gradients_are_refused_by_name():
    optimizer = torch.optim.SparseAdam([param(1.0)])
    with pytest.raises(RuntimeError, match="does not support dense gradients, please consider Adam instead"):
        step(optimizer)


def test_inference_mode():
    p = param(1.0)
    optimizer = torch.optim.Adam([p], lr=0.1)
    with torch.inference_mode():
        for _ in range(3):
            step(optimizer)
    assert optimizer.state[p]["step"].item() == 3 and p.item() == pytest.approx(0.7, rel=1e-5)


def test_a_scheduler_does_not_keep_its_optimizer_alive():
    optimizer = torch.optim.Adam([param(1.0)])
    torch.optim.lr_scheduler.StepLR(optimizer, 2)
    step(optimizer)
    gone = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert gone() is None                             # no cycle has to be found first
    finally:
        gc.enable()
