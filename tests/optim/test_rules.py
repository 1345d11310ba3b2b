"""Every optimizer does what its paper says: steps against the formulas in NumPy, and what follows from them."""
import inspect

import numpy as np
import pytest

import flambeau as torch
from flambeau.trace.recording.record import current
from tests.optim import papers
from tests.optim.every import ORDINARY

CASES = [("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("Adam", {"lr": 0.1}),
         ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
         ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
         ("Adam", {"lr": 0.1, "betas": (0.5, 0.7), "eps": 0.1}), ("Adam", {"lr": 0.1, "amsgrad": True}),
         ("AdamW", {"lr": 0.1}), ("AdamW", {"lr": 0.1, "weight_decay": 0.5}), ("Adamax", {"lr": 0.1}),
         ("NAdam", {"lr": 0.1}), ("RAdam", {"lr": 0.1}), ("RAdam", {"lr": 0.1, "betas": (0.9, 0.5)}),
         ("Adadelta", {"lr": 1.0}),
         ("Adagrad", {"lr": 0.1}), ("Adagrad", {"lr": 0.1, "lr_decay": 0.3, "initial_accumulator_value": 0.5}),
         ("ASGD", {"lr": 0.1}), ("ASGD", {"lr": 0.1, "lambd": 0.1, "t0": 2}), ("RMSprop", {"lr": 0.1}),
         ("RMSprop", {"lr": 0.1, "momentum": 0.9, "centered": True}), ("Rprop", {"lr": 0.1}),
         ("Rprop", {"lr": 0.1, "etas": (0.2, 1.7), "step_sizes": (0.05, 0.3)}),
         ("Adafactor", {"lr": 0.1, "eps": (1e-7, 1e-3)}), ("Adafactor", {"lr": 0.3, "eps": (1e-7, 1e-3), "d": 1.5}),
         ("Adafactor", {"lr": 0.1, "eps": (1e-7, 1e-3), "weight_decay": 0.5})]
IDS = ["-".join([name, *options]) for name, options in CASES]
NAMES = sorted({name for name, _ in CASES})
SHAPES = ((3, 4), (5,), ())


def takes(made, option):
    """Whether an optimizer, by its name, or a formula has an option."""
    made = getattr(torch.optim, made) if isinstance(made, str) else made
    return option in inspect.signature(made).parameters


def draws(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


def train(name, options, dtype=torch.float64, steps=8, shapes=SHAPES, gradient=None):
    """The parameters after some steps, by the optimizer and by the paper, from the same gradients."""
    params = [torch.tensor(draws(shape, i), dtype=dtype, requires_grad=True) for i, shape in enumerate(shapes)]
    arrays, memories = [draws(shape, i) for i, shape in enumerate(shapes)], [{} for _ in shapes]
    optimizer, rule = getattr(torch.optim, name)(params, **options), getattr(papers, name.lower())
    for t in range(1, steps + 1):
        for i, p in enumerate(params):
            g = draws(tuple(p.shape), 100 * t + i)
            p.grad = torch.tensor(g, dtype=dtype)
            arrays[i] = rule(arrays[i], g, memories[i], t, **options)
        optimizer.step()
    return optimizer, params, arrays, memories


def test_every_optimizer_is_held_against_its_paper():
    missing = set(ORDINARY) - {name for name, _ in CASES}
    assert not missing, f"CASES, above, has no row for {', '.join(sorted(missing))}; the formula goes into papers.py"


@pytest.mark.parametrize("name, options", CASES, ids=IDS)
def test_as_the_paper_says(name, options):
    optimizer, params, arrays, memories = train(name, options)
    rtol = 1e-6 if name in ("ASGD", "NAdam") else 1e-9       # they keep numbers in single precision, as in PyTorch
    for p, array in zip(params, arrays):
        np.testing.assert_allclose(p.detach().numpy(), array, rtol, 1e-9)
    if name == "ASGD":
        np.testing.assert_allclose(optimizer.state[params[0]]["ax"].numpy(), memories[0]["average"], rtol)


def test_single_precision():
    for name, options in (("Adam", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}),
                          ("Adafactor", {"lr": 0.1, "eps": (1e-7, 1e-3)})):
        _, params, arrays, _ = train(name, options, torch.float32)
        for p, array in zip(params, arrays):
            assert p.dtype is torch.float32
            np.testing.assert_allclose(p.detach().numpy(), array, 1e-4, 1e-5)


def test_muon_makes_steps_orthogonal():
    """Against the formula, to the digits of bfloat16; and all directions of a step are about equally long."""
    _, params, arrays, _ = train("Muon", {"lr": 0.1}, torch.float32, 3, ((4, 3), (3, 6)))
    for p, array in zip(params, arrays):
        np.testing.assert_allclose(p.detach().numpy(), array, 0.05, 0.02)
    w = torch.zeros(6, 4, requires_grad=True)
    w.grad = torch.tensor(draws((6, 4), 0) * np.array([100.0, 1, 1, 0.3]), dtype=torch.float32)
    torch.optim.Muon([w], lr=1.0, momentum=0.0).step()
    lengths = np.linalg.svd(w.detach().numpy())[1] / np.sqrt(6 / 4)
    assert 0.5 < lengths.min() and lengths.max() < 1.25


@pytest.mark.parametrize("name, options", CASES, ids=IDS)
def test_parameters_with_gaps_between_their_elements(name, options):
    """A parameter may be a view that skips elements: it steps as its copy does, and what lies between stays."""
    around = torch.tensor(draws((4, 3, 2), 1))
    gapped = around[..., 0].requires_grad_()
    dense = gapped.detach().clone().requires_grad_()
    optimizers = [getattr(torch.optim, name)([p], **options) for p in (gapped, dense)]
    for t in range(4):
        for p, optimizer in zip((gapped, dense), optimizers):
            p.grad = torch.tensor(draws((4, 3), 10 + t))
            optimizer.step()
    np.testing.assert_allclose(gapped.detach().numpy(), dense.detach().numpy(), 1e-12)
    assert gapped.stride() == (6, 2)
    np.testing.assert_array_equal(around[..., 1].numpy(), draws((4, 3, 2), 1)[..., 1])


@pytest.mark.parametrize("name, options", CASES, ids=IDS)
def test_a_step_looks_at_nothing(name, options):
    """All of a step is recorded: nothing has run when it is over."""
    optimizer, params, _, _ = train(name, options, steps=2)
    for p in params:
        p.grad = p.detach() * 2
    torch.cpu.synchronize()
    optimizer.step()
    assert len(current().code) >= len(params)


def test_how_many_operations_a_step_records():
    """A parameter costs Adam one, and counting steps, which are known, none."""
    for name, options, each in (("SGD", {}, 1), ("SGD", {"momentum": 0.9}, 1), ("Adam", {}, 1),
                                ("AdamW", {"amsgrad": True}, 1), ("RMSprop", {}, 5)):
        optimizer, params, _, _ = train(name, options | {"lr": 0.1}, steps=2, shapes=((3,),) * 5)
        torch.cpu.synchronize()
        optimizer.step()
        assert len(current().code) == 5 * each, name


def test_a_step_that_nobody_looks_at_runs_when_it_ends(monkeypatch):
    """Else the trace of a loop would be cut anywhere, and every piece would need a plan of its own."""
    monkeypatch.setattr("flambeau.optim.optimizer.INSTRUCTIONS_WORTH_A_RUN", 8)
    optimizer, params, _, _ = train("Adam", {"lr": 0.1}, steps=2, shapes=((3,),) * 9)
    torch.cpu.synchronize()
    optimizer.step()
    assert not current().code and params[0]._storage.value.trace is None


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_maximize_goes_the_other_way(name):
    up, down = (torch.tensor(draws((3, 2), 0), requires_grad=True) for _ in range(2))
    one, two = (getattr(torch.optim, name)([w], maximize=way) for w, way in ((up, True), (down, False)))
    for t in range(4):
        up.grad, down.grad = torch.tensor(draws((3, 2), t + 1)), torch.tensor(-draws((3, 2), t + 1))
        one.step(), two.step()
    np.testing.assert_allclose(up.detach().numpy(), down.detach().numpy(), 1e-12)


# What has it beside the gradient, of the parameter, has it in its formula.
@pytest.mark.parametrize("name", [name for name in NAMES if takes(name, "weight_decay") and
                                  not takes(getattr(papers, name.lower()), "weight_decay")])
def test_weight_decay_is_a_part_of_the_gradient(name):
    one, two = (torch.tensor(draws((4,), 0), requires_grad=True) for _ in range(2))
    decayed, plain = getattr(torch.optim, name)([one], weight_decay=0.3), getattr(torch.optim, name)([two])
    for t in range(4):
        g = torch.tensor(draws((4,), t + 1))
        one.grad, two.grad = g, g + 0.3 * two.detach()
        decayed.step(), plain.step()
    np.testing.assert_allclose(one.detach().numpy(), two.detach().numpy(), 1e-9)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "RAdam"])
def test_decoupled_weight_decay_is_not(name):
    w = torch.tensor([2.0, -4.0], requires_grad=True)
    w.grad = torch.zeros(2)
    getattr(torch.optim, name)([w], lr=0.1, weight_decay=0.5, decoupled_weight_decay=True).step()
    np.testing.assert_allclose(w.detach().numpy(), [1.9, -3.8], 1e-6)


@pytest.mark.parametrize("name, options", [c for c in CASES if c[0] != "Adafactor"],
                         ids=[i for i in IDS if not i.startswith("Adafactor")])
def test_complex_numbers_are_pairs(name, options):
    """A complex parameter moves as its real and imaginary parts would."""
    z = torch.tensor(draws((3,), 0) + 1j * draws((3,), 1), requires_grad=True)
    pair = torch.tensor(np.stack([draws((3,), 0), draws((3,), 1)], -1), requires_grad=True)
    one, two = getattr(torch.optim, name)([z], **options), getattr(torch.optim, name)([pair], **options)
    for t in range(4):
        real, imaginary = draws((3,), 10 * t), draws((3,), 10 * t + 5)
        z.grad, pair.grad = torch.tensor(real + 1j * imaginary), torch.tensor(np.stack([real, imaginary], -1))
        one.step(), two.step()
    np.testing.assert_allclose(torch.view_as_real(z.detach()).numpy(), pair.detach().numpy(), 1e-9)


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_a_tensor_as_learning_rate(name):
    """Whoever holds the tensor sets the rate, and nobody looks at it."""
    rate = torch.tensor(0.05, dtype=torch.float64)
    one, two = (torch.tensor(draws((3, 2), 0), requires_grad=True) for _ in range(2))
    by_tensor, by_number = getattr(torch.optim, name)([one], lr=rate), getattr(torch.optim, name)([two], lr=0.05)
    for t in range(4):
        one.grad, two.grad = torch.tensor(draws((3, 2), t + 1)), torch.tensor(draws((3, 2), t + 1))
        by_tensor.step(), by_number.step()
        rate.mul_(0.5)
        by_number.param_groups[0]["lr"] *= 0.5
    np.testing.assert_allclose(one.detach().numpy(), two.detach().numpy(), 1e-7)


FLOWING = [c for c in CASES if c[0] != "Rprop" and takes(c[0], "differentiable")]


@pytest.mark.parametrize("name, options", FLOWING, ids=["-".join([name, *options]) for name, options in FLOWING])
def test_gradients_flow_through_two_steps(name, options):
    """The slope of what two steps give, by the parameter they started from, against differences."""
    def after(w):
        p = w.clone()
        optimizer = getattr(torch.optim, name)([p], differentiable=True, **options)
        for t in (1, 2):
            p.grad = (p ** 3).detach() + p * t                       # depends on the parameter: a graph of its own
            optimizer.step()
        return (p ** 2).sum()
    start = np.array([0.7, -1.3])
    w = torch.tensor(start, requires_grad=True)
    slope, = torch.autograd.grad(after(w), w)

    def value(x, cubes):
        """The same with the detached part held fixed."""
        p = torch.tensor(x)
        optimizer = getattr(torch.optim, name)([p], **options)
        for t in (1, 2):
            if len(cubes) < t:
                cubes.append((p ** 3).numpy().copy())
            p.grad = torch.tensor(cubes[t - 1]) + p * t
            optimizer.step()
        return (p ** 2).sum().item()
    cubes = []
    value(start, cubes)
    for i in range(2):
        h = np.zeros(2)
        h[i] = 1e-5
        difference = (value(start + h, cubes) - value(start - h, cubes)) / 2e-5
        assert slope[i].item() == pytest.approx(difference, rel=1e-4, abs=1e-7)


def test_the_slope_by_the_learning_rate():
    """One step of plain descent: d/d(lr) of f(p - lr g) is -g · f'."""
    rate = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    p, g = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    q = torch.tensor(p).clone()
    optimizer = torch.optim.SGD([q], lr=rate, differentiable=True)
    q.grad = torch.tensor(g)
    optimizer.step()
    slope, = torch.autograd.grad((q ** 2).sum(), rate)
    assert slope.item() == pytest.approx(-(g * 2 * (p - 0.1 * g)).sum(), rel=1e-12)


SLOPES = [(name, option) for name in NAMES for option in ("lr", "weight_decay")
          if takes(name, option) and takes(name, "differentiable")
          and (name, option) != ("ASGD", "lr")]                      # its state begins with the number alone


@pytest.mark.parametrize("name, option", SLOPES)
def test_the_slope_by_an_option_and_by_the_state(name, option):
    """Two steps, by a tensor as an option, by gradients and by a state that is the caller's, against differences."""
    def after(number, g, *state):
        p = torch.tensor([0.7, -1.3], dtype=torch.float64)
        optimizer = getattr(torch.optim, name)([p], differentiable=True, **{option: number})
        p.grad = torch.tensor([1.0, -2.0], dtype=torch.float64)
        optimizer.step()
        own = optimizer.state[p]
        for key, held in zip([key for key, held in own.items() if held.shape == p.shape], state):
            own[key] = held.clone()
        p.grad = g * 0.5
        optimizer.step()
        return p

    number = torch.tensor(0.05, dtype=torch.float64, requires_grad=True)
    g, *state = (torch.tensor(values, dtype=torch.float64, requires_grad=True)
                 for values in ([1.5, -0.5], [0.6, 0.9], [0.8, 1.1]))
    assert torch.autograd.gradcheck(after, (number, g, *state), eps=1e-5, atol=1e-4)


# --- LBFGS -----------------------------------------------------------------------------------------------------------


def minimize(optimizer, loss, steps):
    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value
    for _ in range(steps):
        optimizer.step(closure)
    return closure()


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_solves_a_quadratic_problem(search):
    """Where the gradient of x·Ax/2 - b·x vanishes: A⁻¹b."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((5, 5))
    a, b = a @ a.T + np.eye(5), rng.standard_normal(5)
    x, y = (torch.zeros(n, dtype=torch.float64, requires_grad=True) for n in (2, 3))
    A, B = torch.tensor(a), torch.tensor(b)
    optimizer = torch.optim.LBFGS([x, y], lr=0.5 if search is None else 1, line_search_fn=search)

    def loss():
        z = torch.cat([x, y])
        return z @ A @ z / 2 - B @ z
    minimize(optimizer, loss, 6)
    np.testing.assert_allclose([*x.tolist(), *y.tolist()], np.linalg.solve(a, b), 1e-4, 1e-5)


def test_lbfgs_finds_the_end_of_rosenbrocks_valley():
    x = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], max_iter=60, max_eval=100, line_search_fn="strong_wolfe")
    minimize(optimizer, lambda: 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2, 1)
    np.testing.assert_allclose(x.tolist(), [1, 1], 1e-4)
    state = optimizer.state[x]
    assert state["n_iter"] < 60 and state["n_iter"] < state["func_evals"] <= 100


def test_lbfgs_keeps_to_its_limits():
    x = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], max_iter=20, max_eval=7, history_size=3)
    minimize(optimizer, lambda: (x ** 4).sum(), 1)
    state = optimizer.state[x]
    assert state["func_evals"] == 7 and len(state["old_dirs"]) == 3
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        minimize(torch.optim.LBFGS([x], line_search_fn="golden"), lambda: (x ** 2).sum(), 1)


@pytest.mark.parametrize("loss, slope", [(lambda t: (t - 3) ** 2, lambda t: 2 * (t - 3)),
                                         (lambda t: -t / (t * t + 2), lambda t: (t * t - 2) / (t * t + 2) ** 2),
                                         (lambda t: 1 - t * np.exp(-t / 9), lambda t: (t / 9 - 1) * np.exp(-t / 9))])
@pytest.mark.parametrize("first", [1e-3, 0.1, 1.0, 100.0])
def test_the_line_search_keeps_the_strong_wolfe_conditions(loss, slope, first):
    from flambeau.optim.lbfgs import Point, strong_wolfe
    start = Point(0.0, loss(0.0), None, slope(0.0))
    found = strong_wolfe(lambda t: Point(t, loss(t), None, slope(t)), first, start, 1.0)
    assert found.loss <= start.loss + 1e-4 * found.at * start.slope       # enough is gained
    assert abs(found.slope) <= -0.9 * start.slope                         # and the slope is flat enough
