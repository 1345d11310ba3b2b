"""Every spatial layer and every loss beside PyTorch's, over a table: one line for a constructor and its inputs.

The table is layers.txt. A line is a call of a class in `torch.nn` and, after two blanks or more, the arguments that the
module is then called with. They are made of x (numbers), p (between 0 and 1), sign (1 or -1), i(n, …) (integers below
n), labels(n, …) (rows of different ones, ended by -1) and pooled(n, …) (indices of pooling by 2), of the given shapes.

What has to agree: the initial state from a seed, the text, plain attributes, results, gradients for inputs and
parameters, buffers after two calls in training, and results in evaluation.
"""
import re
from pathlib import Path

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

TABLE = Path(__file__).with_name("layers.txt").read_text(encoding="utf-8")


def lines(*headings):
    """The lines below `headings` of the table, each in its two parts."""
    found = []
    for section in TABLE.split("\n# "):
        heading, *body = section.splitlines()
        if heading.partition(":")[0] in headings:
            found += [(re.split(r"  +", line.strip(), maxsplit=1) + [""])[:2] for line in body if line]
    return found


def short(text):
    """An id for pytest."""
    return text.replace(" ", "")[:60]


class Inputs:
    """The words of the tables for one library; two libraries with the same seed make the same numbers."""

    def __init__(self, lib, dtype, seed=1):
        self.lib, self.dtype, self.random = lib, dtype, np.random.default_rng(seed)
        self.leaves = []

    def number(self, array):
        leaf = self.lib.tensor(array, dtype=getattr(self.lib, self.dtype), requires_grad=True)
        self.leaves.append(leaf)
        return leaf

    def x(self, *shape): return self.number(self.random.normal(size=shape))
    def p(self, *shape): return self.number(self.random.uniform(0.1, 0.9, size=shape))
    def i(self, n, *shape): return self.lib.tensor(self.random.integers(0, n, size=shape))

    def sign(self, *shape):
        made = self.random.integers(0, 2, size=shape) * 2 - 1
        return self.lib.tensor(made, dtype=getattr(self.lib, self.dtype))

    def pooled(self, n, *shape):
        """The first place of each window in an image twice as large in its last `n` dimensions."""
        size = shape[-n:]
        flat = np.ravel_multi_index(2 * np.indices(size), [2 * m for m in size])
        return self.lib.tensor(np.broadcast_to(flat, shape).copy())

    def labels(self, n, *shape):
        """Rows of different classes, ended by -1."""
        made = np.full(shape, -1)
        for row in made.reshape(-1, shape[-1]):
            count = self.random.integers(0, shape[-1])
            row[:count] = self.random.permutation(n)[:count]
        return self.lib.tensor(made)

    def read(self, text):
        words = {name: getattr(self, name) for name in ("x", "p", "i", "sign", "pooled", "labels")}
        return eval(f"(lambda *args, **kwargs: (args, kwargs))({text})", {"torch": self.lib, **words})


def flat(value):
    """The tensors of a result, in order."""
    if isinstance(value, (tuple, list)):
        return [t for part in value for t in flat(part)]
    return [value]


def same(got, want, tolerance=1e-9, what=""):
    """Tensors of both libraries hold the same: dtype, shape and numbers."""
    assert str(got.dtype) == str(want.dtype), what
    assert tuple(got.shape) == tuple(want.shape), what
    got, want = got.detach().numpy(), want.detach().numpy()
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=what)


def attributes(module):
    """The plain attributes of a module and of those in it."""
    return [(name, key, held) for name, part in module.named_modules() for key, held in sorted(vars(part).items())
            if not key.startswith("_") and isinstance(held, (bool, int, float, str, tuple, list, type(None)))]


class Beside:
    """The module that `call` makes, in both libraries, from one seed."""

    def __init__(self, call):
        self.made = []
        for lib in (flambeau, torch):
            lib.manual_seed(7)
            self.made.append(eval(call, {"torch": lib, **vars(lib.nn)}))
        self.mine, self.theirs = self.made
        assert flambeau.rand(1).item() == torch.rand(1).item()          # as many random numbers were drawn
        assert repr(self.mine) == repr(self.theirs)
        assert attributes(self.mine) == attributes(self.theirs)

    def state(self, tolerance):
        mine, theirs = self.mine.state_dict(), self.theirs.state_dict()
        assert list(mine) == list(theirs)
        for name, want in theirs.items():
            if "Uninitialized" not in type(want).__name__:
                same(mine[name], want, tolerance, name)

    def run(self, text, dtype, tolerance):
        """Call both with the inputs of `text`; compare results and gradients."""
        results = []
        for module, lib in zip(self.made, (flambeau, torch), strict=True):
            inputs = Inputs(lib, dtype)
            args, kwargs = inputs.read(text)
            lib.manual_seed(3)
            module.zero_grad()
            results.append((lib, inputs, flat(module(*args, **kwargs)), dict(module.named_parameters())))
        (_, _, mine, _), (_, _, theirs, _) = results
        assert len(mine) == len(theirs)
        for got, want in zip(mine, theirs, strict=True):
            same(got, want, tolerance, "result")
            assert got.requires_grad == want.requires_grad
        for lib, _, made, _ in results:
            seeds = np.random.default_rng(5)
            total = sum((t * lib.tensor(seeds.normal(size=tuple(t.shape)), dtype=t.dtype)).sum()
                        for t in made if t.requires_grad)
            if isinstance(total, lib.Tensor):
                total.backward()
        (_, mine, _, my_params), (_, theirs, _, their_params) = results
        pairs = [*zip(mine.leaves, theirs.leaves, strict=True), *[(my_params[n], p) for n, p in their_params.items()]]
        for got, want in pairs:
            assert (got.grad is None) == (want.grad is None)
            if want.grad is not None:
                same(got.grad, want.grad, tolerance, "gradient")


@pytest.mark.parametrize("call, inputs", lines("layers", "losses"), ids=short)
@pytest.mark.filterwarnings("ignore")
def test_layer(call, inputs):
    both = Beside(call)
    both.state(0)
    if "Lazy" not in call and "dtype" not in call:
        both.run(inputs, "float32", 2e-5)
        both = Beside(call)
    for module in both.made:
        module.double()
    both.run(inputs, "float64", 1e-9)
    if "Norm" in call:                            # the others do not know training from evaluation
        both.run(inputs, "float64", 1e-9)
        for module in both.made:
            module.eval()
        both.run(inputs, "float64", 1e-9)
    both.state(1e-9)
    assert repr(both.mine) == repr(both.theirs)   # a lazy one has become another


# A line is an expression that both libraries refuse, and words that both messages have.


@pytest.mark.parametrize("call, words", lines("refused"), ids=short)
@pytest.mark.filterwarnings("ignore")
def test_refusal(call, words):
    raised = []
    for lib in (torch, flambeau):
        inputs = Inputs(lib, "float32")
        names = {name: getattr(inputs, name) for name in ("x", "p", "i", "sign", "pooled")}
        with pytest.raises(Exception) as found:
            eval(call, {"torch": lib, **vars(lib.nn), **names})
        raised.append(found.type)
        assert words in " ".join(str(found.value).split()), lib.__name__
    assert raised[0] is raised[1]


@pytest.mark.parametrize("call, words", lines("warned"), ids=short)
def test_warning(call, words):
    kinds = []
    for lib in (torch, flambeau):
        inputs = Inputs(lib, "float32")
        with pytest.warns(Warning) as caught:
            eval(call, {"torch": lib, **vars(lib.nn), "x": inputs.x, "p": inputs.p, "i": inputs.i})
        kinds.append([w.category for w in caught if words in str(w.message)])
    assert kinds[0] and kinds[0] == kinds[1]


@pytest.mark.parametrize("size", range(1, 8))
def test_cross_map_normalisation(size):
    """Results only: PyTorch's gradient is not the derivative of what it computes."""
    images = np.random.default_rng(0).normal(size=(2, 6, 3, 4))
    want, got = [lib.nn.CrossMapLRN2d(size, alpha=0.3, beta=0.6, k=2)(lib.tensor(images)) for lib in (torch, flambeau)]
    same(got, want)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("shape", [(5, 3), (2, 1), (4, 4)])
def test_distances_of_pairs(p, shape):
    made = []
    for lib in (flambeau, torch):
        inputs = Inputs(lib, "float64")
        rows = inputs.x(*shape)
        out = lib.nn.functional.pdist(rows, p)
        (out * lib.arange(float(out.numel()), dtype=lib.float64)).sum().backward()
        made.append((out, rows.grad))
    same(made[0][0], made[1][0])
    same(made[0][1], made[1][1])
    assert made[0][0].grad_fn.name() == made[1][0].grad_fn.name()


@pytest.mark.parametrize("shape", [(1, 3), (0, 3), (3, 0)])
def test_distances_of_no_pairs(shape):
    """Without gradients: PyTorch does not survive asking for them here."""
    same(flambeau.pdist(flambeau.zeros(shape)), torch.pdist(torch.zeros(shape)))


@pytest.mark.parametrize("head_bias", [False, True])
def test_adaptive_softmax_of_all_classes(head_bias):
    call = f"AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2, head_bias={head_bias})"
    both = Beside(call)
    rows = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32) * 3
    for name in ("log_prob", "predict"):
        mine, theirs = (getattr(m, name)(lib.tensor(rows)) for m, lib in zip(both.made, (flambeau, torch)))
        same(mine, theirs, 1e-5, name)
    for module, lib in zip(both.made, (flambeau, torch)):
        lib.manual_seed(11)
        module.reset_parameters()
    both.state(0)


def loaded(lib, call, change):
    """What loading a changed state into a fresh module says, and the state after it."""
    module = eval(call, {**vars(lib.nn)})
    module(lib.ones(3, 2, 2) if "Instance" in call else lib.ones(3, 2))
    state = module.state_dict()
    change(state)
    fresh = eval(call, {**vars(lib.nn)})
    try:
        said = str(fresh.load_state_dict(state))
    except RuntimeError as error:
        said = [line.split(".")[0] for line in str(error).splitlines()]
    return said, {name: held.tolist() for name, held in fresh.state_dict().items()}


def no_version(state):
    state._metadata[""].pop("version", None)


def without(*names):
    def change(state):
        for name in names:
            state.pop(name)
    return change


def old(state):
    no_version(state)
    del state["num_batches_tracked"]


def named_before(state):
    no_version(state)
    state["running_mean"] = state["running_var"] = state["weight"] * 2


@pytest.mark.parametrize("call, change", [
    ("BatchNorm1d(2)", no_version), ("BatchNorm1d(2)", old), ("BatchNorm1d(2)", without("num_batches_tracked")),
    ("BatchNorm1d(2)", without("bias", "running_var")), ("BatchNorm1d(2, track_running_stats=False)", no_version),
    ("InstanceNorm1d(2, affine=True)", named_before), ("InstanceNorm1d(2, affine=True, track_running_stats=True)", old),
], ids=lambda given: given if isinstance(given, str) else given.__name__)
def test_versions_of_state(call, change):
    (mine, my_state), (theirs, their_state) = loaded(flambeau, call, change), loaded(torch, call, change)
    assert mine == theirs
    assert list(my_state) == list(their_state)
    for name, want in their_state.items():
        np.testing.assert_allclose(my_state[name], want, rtol=1e-5, err_msg=name)


def test_conversion_to_sync_batch_norm():
    texts = []
    for lib in (flambeau, torch):
        nn = lib.nn
        net = nn.Sequential(nn.BatchNorm2d(3, affine=False, momentum=None, eps=0.1),
                            nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False, bias=False), nn.ReLU()),
                            nn.InstanceNorm1d(4)).eval()
        made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        assert made[0].running_mean is net[0].running_mean or made is net
        texts.append((repr(made), made[0].training, made[1][0].weight.tolist(), list(made.state_dict())))
    assert texts[0] == texts[1]
