"""Every optimizer of PyTorch's own table: the same steps, states, refusals and files.

`optim_db` holds the optimizers, the options to try and the mistakes to refuse. Both libraries start from the same
numbers and get the same gradients; after every few steps parameters and states are held against each other.
"""
import copy
import re
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
common = pytest.importorskip("torch.testing._internal.common_optimizers")

import flambeau

TABLE = {info.optim_cls.__name__: info for info in common.optim_db}
RUNS = [pytest.param(name, given.kwargs, id=f"{name}-{given.desc}".replace(" ", "_"))
        for name, info in TABLE.items() for given in info.optim_inputs_func(device="cpu")
        if name not in ("LBFGS", "SparseAdam")]
STEPPED = [name for name in TABLE if name not in ("LBFGS", "SparseAdam")]
# relative and absolute distance, by dtype; Muon multiplies matrices of bfloat16, whose last digits depend on the order
CLOSE = {"float32": (1e-5, 1e-6), "float64": (1e-9, 1e-10), "complex64": (1e-5, 1e-6), "bfloat16": (2e-2, 1e-2)}


def ours(x):
    """`x` with Flambeau's tensors in the place of PyTorch's."""
    if isinstance(x, torch.Tensor):
        made = flambeau.tensor(x.detach().numpy(), requires_grad=x.requires_grad)
        return flambeau.nn.Parameter(made) if isinstance(x, torch.nn.Parameter) else made
    if isinstance(x, dict):
        return {key: ours(part) for key, part in x.items()}
    return type(x)(map(ours, x)) if isinstance(x, (list, tuple)) else x


def shapes_of(name):
    return ((4, 3), (2, 5)) if name == "Muon" else ((4, 3), (5,), (), (2, 3, 2))


def numbers(shape, dtype, seed):
    """Random numbers that both libraries start from; some gradients have the other sign in the next step."""
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        drawn = drawn + 1j * rng.standard_normal(shape)
    return drawn.astype(dtype if dtype != "bfloat16" else "float32")


class Run:
    """One optimizer in one library."""

    def __init__(self, lib, name, options, dtype="float32", groups=False):
        self.lib, self.name, self.dtype, self.number = lib, name, dtype, 0
        self.params = [lib.nn.Parameter(lib.tensor(numbers(shape, dtype, i)).to(getattr(lib, dtype)))
                       for i, shape in enumerate(shapes_of(name))]
        params = self.params
        if groups:
            params = [{"params": self.params[:1], "lr": 0.05}, {"params": self.params[1:]}]
        if lib is flambeau:
            options = ours(options)
        self.optimizer = getattr(lib.optim, name)(params, **options)

    def step(self, count=1):
        for _ in range(count):
            self.number += 1
            for i, p in enumerate(self.params):
                g = self.lib.tensor(numbers(tuple(p.shape), self.dtype, 100 * self.number + i)).to(p.dtype)
                p.grad = g * (0 if self.number == 3 and i == 0 else 1)        # zeros divide by epsilon
            self.optimizer.step()
        return self


def flat(x, path=""):
    """(path, plain value) of everything in a state: tensors as (dtype, shape) and their numbers."""
    if isinstance(x, (torch.Tensor, flambeau.Tensor)):
        wide = x.detach().float() if str(x.dtype) == "torch.bfloat16" else x.detach()
        return {path: (str(x.dtype), tuple(x.shape), np.array(wide.tolist()))}
    if isinstance(x, dict):
        return {k: v for key, part in x.items() for k, v in flat(part, f"{path}[{key!r}]").items()}
    if isinstance(x, (list, tuple)):
        return {k: v for i, part in enumerate(x) for k, v in flat(part, f"{path}[{i}]").items()}
    return {path: x}


def held_against(mine, theirs, rtol, atol, loose=()):
    """Both hold the same names, kinds and numbers."""
    mine, theirs = flat(mine), flat(theirs)
    assert list(mine) == list(theirs) or loose and sorted(mine) == sorted(theirs)
    for path, x in theirs.items():
        y = mine[path]
        if isinstance(x, tuple):
            if not any(word in path for word in loose):
                assert y[:2] == x[:2], path
            y, x = y[2] if isinstance(y, tuple) else y, x[2]
        if isinstance(x, (np.ndarray, float)) and not isinstance(x, bool):
            y = y[2] if isinstance(y, tuple) else y
            np.testing.assert_allclose(y, x, rtol, atol, err_msg=path)
        else:
            assert type(y) is type(x) and y == x, (path, y, x)


def compare(mine, theirs, loose=()):
    rtol, atol = CLOSE[mine.dtype] if mine.name != "Muon" else (2e-2, 4e-3)
    for p, q in zip(mine.params, theirs.params):
        held_against([p], [q], rtol, atol)
    held_against(mine.optimizer.state_dict(), theirs.optimizer.state_dict(), rtol, atol, loose)


def both(name, options, dtype="float32", groups=False):
    return Run(flambeau, name, options, dtype, groups), Run(torch, name, options, dtype, groups)


# --- steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, options", RUNS)
def test_steps(name, options):
    mine, theirs = both(name, options, "float64")
    for count in (1, 1, 4):
        compare(mine.step(count), theirs.step(count))


@pytest.mark.parametrize("name", STEPPED)
def test_single_precision(name):
    mine, theirs = both(name, {})
    compare(mine.step(6), theirs.step(6))


@pytest.mark.parametrize("name, options", [p for p in RUNS if TABLE[p.values[0]].supports_complex])
def test_complex_numbers(name, options):
    mine, theirs = both(name, options, "complex64")
    compare(mine.step(5), theirs.step(5))


@pytest.mark.parametrize("name", [name for name in STEPPED if name not in ("Muon", "Adafactor")])
def test_half_the_digits(name):
    mine, theirs = both(name, {}, "bfloat16")
    compare(mine.step(3), theirs.step(3))


@pytest.mark.parametrize("name", STEPPED)
def test_groups(name):
    mine, theirs = both(name, {}, groups=True)
    compare(mine.step(3), theirs.step(3))
    assert repr(mine.optimizer) == repr(theirs.optimizer)


WAYS = [(name, {way: True} | more) for name, info in TABLE.items() for way in info.supported_impls
        if way != "differentiable"                           # has a test of its own
        for more in ({}, {"capturable": True}) if not more or info.has_capturable_arg and way == "foreach"]


@pytest.mark.parametrize("name, way", WAYS, ids=[f"{name}-{'-'.join(way)}" for name, way in WAYS])
def test_ways_to_compute_a_step_give_the_same(name, way):
    """foreach, fused and capturable are accepted; PyTorch's plain step is what they have to give."""
    mine, theirs = Run(flambeau, name, way), Run(torch, name, {})
    mine.step(4), theirs.step(4)
    for p, q in zip(mine.params, theirs.params):
        held_against([p], [q], 1e-5, 1e-6)


OPTIONS = [("SGD", {"lr": torch.tensor([0.1])}), ("SGD", {"weight_decay": 0.1, "momentum": 0.9, "dampening": 0.2}),
           ("Adam", {"lr": torch.tensor(0.01), "betas": (torch.tensor(0.8), torch.tensor(0.99))}),
           ("Adam", {"amsgrad": True, "maximize": True}),
           ("Adam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
           ("AdamW", {"lr": torch.tensor(0.01), "amsgrad": True}), ("NAdam", {"lr": torch.tensor(0.01)}),
           ("RAdam", {"lr": torch.tensor(0.01), "betas": (0.9, 0.5)}), ("Adamax", {"lr": torch.tensor(0.01)}),
           ("Adadelta", {"lr": torch.tensor(0.5)}), ("ASGD", {"t0": 2, "lr": torch.tensor(0.02)}), ("ASGD", {"t0": 1}),
           ("RMSprop", {"lr": torch.tensor(0.01), "momentum": 0.5}), ("Rprop", {"lr": torch.tensor(0.01)}),
           ("Adafactor", {"eps": (1e-5, 1e-2), "d": 1.2}), ("Adafactor", {"lr": torch.tensor(0.3)}),
           ("Muon", {"adjust_lr_fn": "match_rms_adamw", "nesterov": False}), ("Muon", {"adjust_lr_fn": "original"})]


@pytest.mark.parametrize("name, options", OPTIONS, ids=[f"{n}-{'-'.join(o)}" for n, o in OPTIONS])
def test_options(name, options):
    mine, theirs = both(name, options)
    compare(mine.step(6), theirs.step(6), loose=("['eta']",))


def test_parameters_without_gradients_rest():
    """Counts of steps part, and come together in no order."""
    def run(lib):
        params = [lib.nn.Parameter(lib.tensor(numbers((3,), "float32", i))) for i in range(4)]
        optimizer = lib.optim.Adam(params, lr=0.1)
        for turn, live in enumerate(("0123", "01", "0123", "2", "13", "0123", "3", "0123")):
            for i, p in enumerate(params):
                p.grad = lib.tensor(numbers((3,), "float32", 10 * turn + i)) if str(i) in live else None
            optimizer.step()
        return params, optimizer.state_dict()
    held_against(run(flambeau), run(torch), 1e-5, 1e-6)


# --- LBFGS, whose step takes a closure -------------------------------------------------------------------------------


NEWTON = [{}, {"lr": 0.01}, {"lr": torch.tensor(0.001)}, {"tolerance_grad": 1e-6}, {"line_search_fn": "strong_wolfe"},
          {"history_size": 2, "line_search_fn": "strong_wolfe", "lr": 0.5}, {"max_eval": 3}, {"tolerance_change": 0.1},
          *[{"line_search_fn": "strong_wolfe", **few}                # the search has the evaluations that are left
            for few in ({"max_iter": 1}, {"max_iter": 2}, {"max_eval": 1}, {"max_iter": 10, "max_eval": 3})]]


class Newton:
    """LBFGS in Rosenbrock's valley, in one library; `found` is what is held against the other."""

    def __init__(self, lib, options, dtype="float64", start=None):
        self.lib = lib
        places = numbers((3,), dtype, 0), numbers((2,), dtype, 1)
        self.params = [lib.nn.Parameter(lib.tensor(place)) for place in (places if start is None else start)]
        options = {"max_iter": 4} | options
        self.optimizer = lib.optim.LBFGS(self.params, **ours(options) if lib is flambeau else options)
        self.losses = []

    def closure(self):
        self.optimizer.zero_grad()
        x = self.lib.cat(self.params)
        loss = (100 * (x[1:] - x[:-1] ** 2).abs() ** 2 + (1 - x[:-1]).abs() ** 2).sum() / 100
        loss.backward()
        return loss

    def step(self, count=3):
        self.losses += [self.optimizer.step(self.closure).item() for _ in range(count)]
        return self

    def found(self):
        state = {k: v for k, v in self.optimizer.state_dict()["state"][0].items() if k != "t"}
        return self.params, dict(sorted(state.items())), self.losses


@pytest.mark.parametrize("options", NEWTON, ids=lambda options: "-".join(options))
def test_lbfgs(options):
    mine, theirs = Newton(flambeau, options).step(), Newton(torch, options).step()
    held_against(mine.found(), theirs.found(), 1e-5, 1e-7)
    t, u = mine.optimizer.state_dict()["state"][0]["t"], theirs.optimizer.state_dict()["state"][0]["t"]
    assert float(t) == pytest.approx(float(u), rel=1e-5)           # PyTorch's is a tensor after a line search


def test_lbfgs_with_complex_numbers():
    held_against(*(Newton(lib, {}, "complex128").step().found() for lib in (flambeau, torch)), 1e-6, 1e-8)


@pytest.mark.parametrize("giver, taker", [(flambeau, torch), (torch, flambeau)], ids=["over", "back"])
def test_lbfgs_goes_on_in_the_other_library(giver, taker):
    one = Newton(giver, {"line_search_fn": "strong_wolfe"}).step()
    other = Newton(taker, {"line_search_fn": "strong_wolfe"}, start=[p.detach().numpy().copy() for p in one.params])
    other.optimizer.load_state_dict(moved(one.optimizer.state_dict(), taker))
    before, one.losses = len(one.losses), []
    one.step(2), other.step(2)
    pair = (one, other) if giver is flambeau else (other, one)
    assert before == 3
    held_against(*(run.found() for run in pair), 1e-5, 1e-7)


# --- gradients of steps ----------------------------------------------------------------------------------------------


DIFFERENTIABLE = [pytest.param(p.values[0], p.values[1], id=p.id) for p in RUNS
                  if "differentiable" in TABLE[p.values[0]].supported_impls]


@pytest.mark.parametrize("name, options", DIFFERENTIABLE)
def test_differentiable(name, options):
    """The gradient of a step by the parameter, the gradient and the state that went in."""
    def run(lib):
        options_ = ours(options) if lib is flambeau else options
        w, g = (lib.tensor(numbers((3,), "float64", i), requires_grad=True) for i in (0, 1))
        p = w.clone()
        optimizer = getattr(lib.optim, name)([p], differentiable=True, **options_)
        p.grad = g * 0.3                          # a first step makes the state
        optimizer.step()
        for key, held in list(optimizer.state[p].items()):
            if isinstance(held, lib.Tensor):
                optimizer.state[p][key] = held.detach()
        optimizer.param_groups[0]["params"] = [q := p.detach().requires_grad_() * 1]
        optimizer.state[q] = optimizer.state.pop(p)
        q.grad = g * 2
        optimizer.step()
        return lib.autograd.grad((q * q).sum(), [g])
    held_against(run(flambeau), run(torch), 1e-4, 1e-7)       # PyTorch corrects the bias in single precision here


def test_differentiable_by_the_rate():
    def run(lib):
        rate = lib.tensor(0.1, dtype=lib.float64, requires_grad=True)
        p, g = lib.tensor([1.0, -2.0], dtype=lib.float64), lib.tensor([0.5, 3.0], dtype=lib.float64)
        q = p.clone()
        optimizer = lib.optim.SGD([q], lr=rate, differentiable=True)
        q.grad = g
        optimizer.step()
        return lib.autograd.grad((q ** 2).sum(), [rate])
    held_against(run(flambeau), run(torch), 1e-9, 1e-12)


# --- files -----------------------------------------------------------------------------------------------------------


def moved(state_dict, lib):
    """A state_dict of one library as one of the other."""
    if isinstance(state_dict, (torch.Tensor, flambeau.Tensor)):
        return lib.tensor(state_dict.detach().numpy())
    if isinstance(state_dict, dict):
        return {key: moved(part, lib) for key, part in state_dict.items()}
    return type(state_dict)(moved(part, lib) for part in state_dict) if isinstance(state_dict, (list, tuple)) \
        else state_dict


@pytest.mark.parametrize("name, options", RUNS)
def test_states_go_over_and_come_back(name, options):
    """Training goes on in the other library with the same numbers."""
    mine, theirs = both(name, options)
    mine.step(2), theirs.step(2)
    for giver, taker in ((mine, theirs), (theirs, mine)):
        other = Run(taker.lib, name, options)
        other.number = giver.number
        for p, q in zip(giver.params, other.params):
            q.data = taker.lib.tensor(p.detach().numpy().copy())
        other.optimizer.load_state_dict(moved(giver.optimizer.state_dict(), taker.lib))
        taker.step(2), other.step(2)
        compare(*((taker, other) if taker is mine else (other, taker)) if giver is mine else (other, giver.step(2)))


@pytest.mark.parametrize("name", list(TABLE))
def test_old_checkpoints(name):
    """Options that came later get their defaults; counts that were numbers become tensors at the next step."""
    for lib in (torch, flambeau):
        run = Run(lib, name, {})
        if name in STEPPED:
            run.step(2)
        saved = run.optimizer.state_dict()
        kept = ("params", "lr", "momentum", "betas", "eps")
        saved["param_groups"] = [{k: v for k, v in group.items() if k in kept} for group in saved["param_groups"]]
        saved["state"] = {i: part | ({"step": 5} if "step" in part else {}) for i, part in saved["state"].items()}
        run.optimizer.load_state_dict(saved)
        if lib is torch:
            theirs = {k: v for k, v in run.optimizer.param_groups[0].items() if k != "params"}
        else:
            mine = {k: v for k, v in run.optimizer.param_groups[0].items() if k != "params"}
    assert mine == theirs


@pytest.mark.parametrize("name", STEPPED)
def test_copies_and_pickles(name):
    import pickle
    mine = Run(flambeau, name, {}).step(2)
    for other in (copy.deepcopy(mine.optimizer), pickle.loads(pickle.dumps(mine.optimizer))):
        held_against(other.state_dict(), mine.optimizer.state_dict(), 1e-7, 1e-7)
        params = other.param_groups[0]["params"]
        assert all(p is not q for p, q in zip(params, mine.params))
        assert all(p is q for p, q in zip(params, other.state)) and len(other.state) in (0, len(params))


# --- refusals --------------------------------------------------------------------------------------------------------


MISTAKES = [pytest.param(name, i, id=f"{name}-{error.optimizer_error_input.desc}".replace(" ", "_"))
            for name, info in TABLE.items()
            for i, error in enumerate(info.optim_error_inputs_func(device="cpu", dtype=torch.float32))
            if "dense params required" not in error.optimizer_error_input.desc]        # there are no sparse tensors


@pytest.mark.parametrize("name, number", MISTAKES)
def test_refusals(name, number):
    error = TABLE[name].optim_error_inputs_func(device="cpu", dtype=torch.float32)[number]
    given = error.optimizer_error_input
    params = ours(given.params) if given.params is not None else [flambeau.nn.Parameter(flambeau.ones(2, 3))]
    if "duplicate" in given.desc:                          # the same tensor twice has to be so here
        p = flambeau.nn.Parameter(flambeau.ones(2, 3))
        params = [p, p] if "across" not in given.desc else [{"params": [p]}, {"params": [p]}]
    make = getattr(flambeau.optim, name)
    if error.error_on.name == "STEP_ERROR":
        optimizer = make(params, **ours(given.kwargs))
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            p.grad = flambeau.ones_like(p)
        with pytest.raises(error.error_type, match=error.error_regex):
            optimizer.step()
    elif issubclass(error.error_type, Warning):
        with pytest.warns(error.error_type, match=error.error_regex):
            make(params, **ours(given.kwargs))
    else:
        with pytest.raises(error.error_type, match=error.error_regex):
            make(params, **ours(given.kwargs))


BASE = """
O.SGD([])
O.SGD(iter([]))
O.SGD([{'params': {P(2)}}])
O.SGD([1.0])
O.SGD([P(2) * 2])
O.SGD([('a', P(2)), P(2)])
O.SGD([P(2), ('a', P(2))])
O.SGD([{'params': [('a', P(1))]}, {'params': [P(1)]}])
O.SGD([{'params': ('a', P(1))}])
O.SGD([{'x': 1}])
O.SGD([P(1)]).add_param_group([P(1)])
O.SGD([P(1)]).load_state_dict(O.SGD([P(1), P(2)]).state_dict())
O.SGD([P(1)]).load_state_dict(O.SGD([{'params': P(1)}, {'params': P(1)}]).state_dict())
O.SGD([P(1)]).load_state_dict({})
O.SGD([P(1)], lr=-1)
O.SGD([P(1)], lr='x')
O.SGD([P(1)], nesterov=True)
O.SGD([P(1)], nesterov=True, momentum=0.9, dampening=0.1)
O.SGD([P(1)], weight_decay=-1)
O.SGD([P(1)], fused=True, foreach=True)
O.SGD([P(1)], fused=True, differentiable=True)
O.Adam([P(1)], fused=True, foreach=True)
O.Adam([P(1)], fused=True, differentiable=True)
O.Adam([P(1)], eps=-1.0)
O.Adam([P(1)], betas=(0.5, 1.0))
O.Adam([P(1)], lr=torch.tensor(-1.0))
O.Adagrad([P(1)], fused=True, foreach=True)
O.Adagrad([P(1)], initial_accumulator_value=-1)
O.RMSprop([P(1)], alpha=-1)
O.Adafactor([P(1)], lr=-1)
O.Adafactor([P(1)], eps=(1, -1))
O.Adafactor([P(1)], weight_decay=-1)
O.Muon([P(1, 1)], lr=-1)
O.Muon([P(1, 1)], momentum=-1)
O.Muon([P(1, 1)], weight_decay=-1)
O.SparseAdam([P(1)], eps=0)
O.LBFGS([{'params': P(1)}, {'params': P(1)}])
O.LBFGS([P(1)]).step()
O.Optimizer([P(1)], {}).step()
O.Optimizer([P(1)], {'lr': required})
stepped(O.SparseAdam([P(1)]))
hooked(O.SGD([P(1)]), lambda o, args, kwargs: 5)
"""


@pytest.mark.parametrize("line", BASE.strip().split("\n"))
def test_the_same_is_refused_with_the_same_words(line):
    def refusal(lib):
        from importlib import import_module
        base = import_module(f"{lib.__name__}.optim.optimizer")

        def stepped(optimizer):
            for p in optimizer.param_groups[0]["params"]:
                p.grad = lib.ones_like(p)
            optimizer.step()

        def hooked(optimizer, hook):
            optimizer.register_step_pre_hook(hook)
            optimizer.step()
        names = {"O": lib.optim, "torch": lib, "P": lambda *shape: lib.nn.Parameter(lib.ones(*shape)),
                 "required": base.required, "stepped": stepped, "hooked": hooked}
        with pytest.raises(Exception) as caught:
            eval(line, names)
        return type(caught.value).__name__, str(caught.value)
    (mine, said), (theirs, words) = refusal(flambeau), refusal(torch)
    assert mine == theirs
    shown = re.sub(r"(, but got|but is|:|\().*", "", words.replace("\n", " "), flags=re.DOTALL).strip(" .")
    if not line.startswith(("O.LBFGS([P(1)]).step", "O.SGD([P(1)], lr='x')", "hooked")):    # Python's own words
        assert shown in said, (said, words)


# --- the base class --------------------------------------------------------------------------------------------------


def test_hooks_are_called_alike():
    def run(lib):
        from importlib import import_module
        base, seen = import_module(f"{lib.__name__}.optim.optimizer"), []
        p = lib.nn.Parameter(lib.ones(2))
        optimizer = lib.optim.SGD([p], lr=0.1)

        def note(word, result=None):
            def hook(*args):
                seen.append((word, [type(a).__name__ for a in args], [len(a) for a in args[1:]]))
                return result
            return hook
        handles = [base.register_optimizer_step_pre_hook(note("all before")),
                   base.register_optimizer_step_post_hook(note("all after")),
                   optimizer.register_step_pre_hook(note("before")), optimizer.register_step_post_hook(note("after")),
                   optimizer.register_state_dict_pre_hook(note("saving")),
                   optimizer.register_state_dict_post_hook(note("second")),
                   optimizer.register_state_dict_post_hook(note("first"), prepend=True),
                   optimizer.register_load_state_dict_pre_hook(note("loading")),
                   optimizer.register_load_state_dict_post_hook(note("loaded"))]
        seen.append(optimizer.step(lambda: 3))
        seen.append(optimizer.step(closure=lambda: 4))
        optimizer.load_state_dict(optimizer.state_dict())
        for handle in handles:
            handle.remove()
        optimizer.step()
        replaced = optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: 7), {}))
        seen.append(optimizer.step())
        replaced.remove()
        optimizer.register_state_dict_post_hook(lambda o, found: {"other": 1})
        seen.append(optimizer.state_dict())
        return seen
    assert run(flambeau) == run(torch)


def test_an_optimizer_of_the_users_own():
    def run(lib):
        class Mine(lib.optim.Optimizer):
            def __init__(self, params, lr=0.1):
                super().__init__(params, {"lr": lr})

            @lib.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        state["count"] = state.get("count", 0) + 1
                        p.add_(p.grad, alpha=-group["lr"] / state["count"])

        p, calls = lib.nn.Parameter(lib.ones(3)), []
        optimizer = Mine([{"params": [p], "lr": 0.5}])
        optimizer.register_step_post_hook(lambda *args: calls.append(1))
        for _ in range(3):
            optimizer.zero_grad()
            (p ** 2).sum().backward()
            optimizer.step()
        return p, optimizer.state_dict(), len(calls), repr(optimizer)
    held_against(run(flambeau), run(torch), 1e-6, 1e-7)


def test_zero_grad():
    def run(lib):
        p, q = (lib.nn.Parameter(lib.ones(2)) for _ in range(2))
        optimizer, out = lib.optim.SGD([p, q]), []
        (p * 3).sum().backward()
        optimizer.zero_grad(set_to_none=False)
        out.append((p.grad, q.grad is None))
        w = lib.ones(2, requires_grad=True)
        p.grad = w * 2
        optimizer.zero_grad(set_to_none=False)
        out.append((p.grad, p.grad.requires_grad))
        optimizer.zero_grad()
        return out + [p.grad is None]
    held_against(run(flambeau), run(torch), 0, 0)


def test_names_of_parameters():
    def run(lib):
        p, q = (lib.nn.Parameter(lib.ones(2)) for _ in range(2))
        named, plain = lib.optim.SGD([("w", p), ("b", q)], lr=0.1), lib.optim.SGD([p, q], lr=0.2)
        out = [named.state_dict(), [list(g) for g in named.param_groups], repr(named)]
        plain.load_state_dict(named.state_dict())
        out.append([{k: v for k, v in g.items() if k != "params"} for g in plain.param_groups])
        named.load_state_dict(lib.optim.SGD([p, q], lr=0.3).state_dict())
        return out + [[{k: v for k, v in g.items() if k != "params"} for g in named.param_groups]]
    assert run(flambeau) == run(torch)


def test_states_of_other_things_are_loaded_as_pytorch_does():
    def run(lib):
        p, q = lib.nn.Parameter(lib.ones(2)), lib.nn.Parameter(lib.ones(2, dtype=lib.float64))
        one, two = lib.optim.SGD([p]), lib.optim.SGD([q])
        one.state["all"] = {"a": 1}
        one.state[p]["nest"] = [lib.ones(2), {"z": lib.ones(1)}, (1, lib.ones(3, dtype=lib.int32)), None]
        two.load_state_dict(one.state_dict())
        return two.state_dict()
    held_against(run(flambeau), run(torch), 0, 0)


def test_defaults_and_signatures():
    """The options, their order and their defaults."""
    import inspect
    for name in TABLE:
        theirs, mine = (inspect.signature(getattr(lib.optim, name)) for lib in (torch, flambeau))
        assert [(p.name, p.kind, p.default) for p in mine.parameters.values()] == \
            [(p.name, p.kind, p.default) for p in theirs.parameters.values()], name
        module = TABLE[name].optim_cls.__module__.removeprefix("torch.optim").strip(".") or f"_{name.lower()}"
        theirs, mine = (__import__(f"{lib}.optim.{module}", fromlist=["x"]) for lib in ("torch", "flambeau"))
        if hasattr(theirs, name.lower()):
            theirs, mine = (inspect.signature(getattr(m, name.lower())) for m in (theirs, mine))
            assert [(p.name, p.kind, p.default) for p in mine.parameters.values()] == \
                [(p.name, p.kind, p.default) for p in theirs.parameters.values()], name
    assert set(torch.optim.__all__) == set(flambeau.optim.__all__)


def test_functions_over_lists():
    """`torch.optim.adam.adam` and the others: one step, on lists."""
    def lists(lib, *names):
        return {name: [lib.tensor(np.abs(numbers((3,), "float64", i + 7 * k)) if "sq" in name or "sum" in name
                                  else numbers((3,), "float64", i + 7 * k)) for i in range(2)]
                for k, name in enumerate(names)}

    def run(lib):
        from importlib import import_module

        def find(module, name):
            return getattr(import_module(f"{lib.__name__}.optim.{module}"), name)
        out = []
        for name, states, options in (
                ("adam", ("exp_avgs", "exp_avg_sqs"), {"max_exp_avg_sqs": [], "amsgrad": False, "beta1": 0.9,
                                                       "beta2": 0.99, "eps": 1e-8, "maximize": False}),
                ("adamax", ("exp_avgs", "exp_infs_sq"), {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8}),
                ("adagrad", ("state_sums",), {"lr_decay": 0.1, "eps": 1e-8, "maximize": True}),
                ("adadelta", ("square_avgs_sq", "acc_deltas_sq"), {"rho": 0.9, "eps": 1e-8, "maximize": False}),
                ("radam", ("exp_avgs", "exp_avg_sqs"), {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8})):
            held = lists(lib, "params", "grads", *states)
            steps = [lib.tensor(3.0), lib.tensor(9.0)]
            find(name, name)(**{key.removesuffix("_sq"): part for key, part in held.items()}, state_steps=steps,
                             lr=0.1, weight_decay=0.01, **options)
            out.append((held, steps))
        held, buffers = lists(lib, "params", "d_p_list"), [None, None]
        for _ in range(2):
            find("sgd", "sgd")(**held, momentum_buffer_list=buffers, weight_decay=0.1, momentum=0.9, lr=0.1,
                               dampening=0, nesterov=False, maximize=False)
        return out + [held, buffers]
    held_against(run(flambeau), run(torch), 1e-9, 1e-12)


def test_an_optimizer_lent_to_other_parameters():
    def run(lib):
        p, q = lib.nn.Parameter(lib.ones(2)), lib.nn.Parameter(lib.full((2,), 5.0))
        optimizer = lib.optim.Adam([p], lr=0.1)
        p.grad, q.grad = lib.ones(2), lib.ones(2) * 3
        optimizer.step()
        saved = copy.deepcopy(optimizer.state_dict())
        saved["param_groups"][0]["lr"] = 1.0
        with lib.optim.swap_in_optimizer_params_and_state(optimizer, {"w": q}, saved):
            optimizer.step()
        return p, q, saved, optimizer.state_dict()
    held_against(run(flambeau), run(torch), 1e-6, 1e-7)


def test_no_warning_without_a_reason():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Run(flambeau, "Adam", {}).step(2)
        Newton(flambeau, {}).step(1)
