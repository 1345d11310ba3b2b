"""Every module of PyTorch's own table (`module_db`), built and called in both libraries from the same seed.

For each sample of constructor and forward arguments, in training and in evaluation: the same initial parameters and
buffers, the same place in the stream of random numbers, text, state dict keys, result, gradients of the arguments and
parameters, and state after the call. What PyTorch refuses is refused with the same type and words. After the table come
modules that it does not hold, and the signatures of everything in `torch.nn`.
"""
import copy
import dataclasses
import inspect
import re
import types
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.testing._internal.common_modules import FunctionInput, ModuleErrorEnum, ModuleInput, module_db

from tests.torch import harness
from tests.torch.harness import Mismatch, assert_close, assert_same, by_path, describe, fb, tensors, to_fb, to_torch

# All of the table is walked, but of one module only some samples, and why.
SAMPLES = {
    "nn.LinearCrossEntropyLoss": slice(None, None, 12),       # 857 that differ in little
}
# Long sums and many layers, whose rounding adds up.
LOOSER = {"nn.TransformerEncoder": 4, "nn.TransformerDecoderLayer": 4, "nn.Transformer": 10, "nn.CTCLoss": 10,
          "nn.CrossEntropyLoss": 4}


def ours(cls):
    return by_path(f"{cls.__module__}.{cls.__name__}")


def twin(module):
    """A module of PyTorch's as one of ours: the same attributes in an object of the class of the same name."""
    made = object.__new__(ours(type(module)))
    for name, held in vars(module).items():
        vars(made)[name] = carried(copy.copy(held)) if callable(held) else copy.copy(held)
    vars(made).update(_parameters={name: parameter(p) for name, p in module._parameters.items()},
                      _buffers=to_fb(dict(module._buffers)),
                      _modules={name: None if m is None else twin(m) for name, m in module._modules.items()})
    return made


def parameter(p):
    return None if p is None else fb.nn.Parameter(to_fb(p.detach()), p.requires_grad)


def carried(x, memo=None):
    """Arguments of PyTorch's for ours; modules and packed sequences too. One tensor met twice stays one tensor."""
    memo = {} if memo is None else memo
    if isinstance(x, torch.nn.Module):
        return twin(x)
    if isinstance(x, torch.nn.utils.rnn.PackedSequence):
        return fb.nn.utils.rnn.PackedSequence(*(carried(part, memo) for part in x))
    if type(x) in (list, tuple):
        return type(x)([carried(part, memo) for part in x])
    if type(x) is dict:
        return {key: carried(part, memo) for key, part in x.items()}
    if isinstance(x, types.BuiltinFunctionType):
        return getattr(fb.nn.functional, x.__name__)
    if dataclasses.is_dataclass(x):
        return ours(type(x))(**{field.name: getattr(x, field.name) for field in dataclasses.fields(x) if field.init})
    return to_fb(x, memo)


def built(cls, given):
    torch.manual_seed(7)
    fb.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = cls(*copy.deepcopy(given.args), **copy.deepcopy(given.kwargs))
        mine = ours(cls)(*carried(given.args), **carried(given.kwargs))
    return mine, theirs


def same_state(mine, theirs, exact, looser=1):
    """Parameters and buffers by name; `exact`: as they were drawn, so that only the last digit may differ."""
    for kind in ("named_parameters", "named_buffers"):
        got, want = dict(getattr(mine, kind)()), dict(getattr(theirs, kind)())
        if list(got) != list(want):
            raise Mismatch(f"{kind} are {list(got)}, want {list(want)}")
        for name in want:
            if torch.nn.parameter.is_lazy(want[name]) or fb.nn.parameter.is_lazy(got[name]):
                if repr(got[name]) != repr(want[name]):
                    raise Mismatch(f"{name} is {got[name]!r:.60}, want {want[name]!r:.60}")
            elif exact and want[name].is_floating_point():
                assert_same(got[name], want[name], where=f"{name}: ",
                            values=lambda got, want, *_: assert_close(got, want, 1e-6, 1e-8))
            else:
                assert_same(got[name], want[name], where=f"{name}: ", looser=looser)
            if got[name].requires_grad != want[name].requires_grad:
                raise Mismatch(f"{name}: requires_grad is {got[name].requires_grad}")
    got, want = mine.state_dict(), theirs.state_dict()
    if list(got) != list(want) or got._metadata != want._metadata:
        raise Mismatch(f"state_dict has {list(got)} {got._metadata}, want {list(want)} {want._metadata}")


def same_text(mine, theirs):
    if repr(mine) != re.sub(r"0x[0-9a-f]+", "0x", repr(theirs)):
        raise Mismatch(f"prints as {mine!r}, want {theirs!r}")


def same_stream():
    if abs(fb.rand(1).item() - torch.rand(1).item()) > 1e-7:
        raise Mismatch("the random numbers are at another place in their stream")


def backward(lib, results, seed):
    """Gradients of a fixed combination of all results."""
    rng, total = np.random.RandomState(seed), None
    for result in results:
        weight = rng.uniform(0.5, 1.5, tuple(result.shape)).astype(np.float32)
        if result.requires_grad:
            part = (result * lib.from_numpy(weight).to(result.dtype)).sum()
            total = part if total is None else total + part
    if total is not None:
        total.backward()


def compared(cls, sample, training, looser):
    """One sample in both libraries; a Mismatch says where they part."""
    mine, theirs = built(cls, sample.constructor_input)
    same_state(mine, theirs, exact=True)
    same_text(mine, theirs)
    same_stream()
    if sample.forward_input is None:
        return
    mine.to(dtype_of(fb, sample)).train(training)
    theirs.to(dtype_of(torch, sample)).train(training)
    args, kwargs = leaf_copy(sample.forward_input.args), leaf_copy(sample.forward_input.kwargs)
    memo = {}
    fb_args, fb_kwargs = carried(args, memo), carried(kwargs, memo)
    torch.manual_seed(11)
    fb.manual_seed(11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = theirs(*args, **kwargs)
        got = mine(*fb_args, **fb_kwargs)
    assert_same(flat(got), flat(want), looser=looser)
    for got_one, want_one in zip(tensors(flat(got)), tensors(flat(want)), strict=True):
        if got_one.requires_grad != want_one.requires_grad:
            raise Mismatch(f"the result's requires_grad is {got_one.requires_grad}")
    same_stream()
    same_text(mine, theirs)
    same_state(mine, theirs, exact=False)
    backward(torch, tensors(flat(want)), 3)
    backward(fb, tensors(flat(got)), 3)
    pairs = [(f"argument {k}", a, b) for k, (a, b) in enumerate(zip(leaves(fb_args, fb_kwargs), leaves(args, kwargs),
                                                                    strict=True))]
    pairs += [(name, a, b) for (name, a), b in zip(mine.named_parameters(), theirs.parameters(), strict=True)]
    for name, a, b in pairs:
        if (a.grad is None) != (b.grad is None):
            raise Mismatch(f"gradient of {name} is {'missing' if a.grad is None else 'there'}")
        if b.grad is not None:
            assert_same(a.grad, b.grad, where=f"gradient of {name}: ", looser=4 * looser)


def flat(x):
    """Nested results as a list; those of a packed sequence by their fields."""
    if isinstance(x, (tuple, list)):
        return [part for inner in x for part in flat(inner)]
    return [x]


def leaf_copy(x, memo=None):
    """Arguments with tensors of their own and without a history; one tensor met twice stays one."""
    memo = {} if memo is None else memo
    if isinstance(x, torch.nn.utils.rnn.PackedSequence):
        return type(x)(*(leaf_copy(part, memo) for part in x))
    if type(x) in (list, tuple):
        return type(x)([leaf_copy(part, memo) for part in x])
    return {k: leaf_copy(v, memo) for k, v in x.items()} if type(x) is dict else harness.copy(x, memo)


def dtype_of(lib, sample):
    """What the samples ask for: a random part of the constructor's arguments is in double precision for no reason."""
    found = [t for t in tensors(*map(flat, sample.forward_input.args)) if t.is_floating_point()]
    return lib.float64 if found and found[0].dtype is torch.float64 else lib.float32


def leaves(*given):
    return [t for t in tensors(*given) if t.is_leaf and t.requires_grad]


def described(sample):
    def words(given):
        parts = [*map(short, given.args), *(f"{k}={short(v)}" for k, v in given.kwargs.items())]
        return f"({', '.join(parts)})"
    forward = "" if sample.forward_input is None else words(sample.forward_input)
    return f"{words(sample.constructor_input)}{forward}{f' [{sample.desc}]' if sample.desc else ''}"


def short(x):
    return type(x).__name__ if isinstance(x, torch.nn.Module) else describe(x)


def run_all(name, cls, samples, training):
    """Every sample; the failures of all of them in one message."""
    failures = []
    for k, sample in enumerate(samples):
        words = described(sample)
        try:
            compared(cls, sample, training, LOOSER.get(name, 1))
        except Exception as error:
            failures.append(f"{name} sample {k} {words}\n    {type(error).__name__}: {str(error)[:500]}")
    assert not failures, f"{len(failures)} of {len(samples)} samples\n" + "\n".join(failures[:6])


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name)
def test_module_db(info, training):
    samples = list(info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True,
                                           training=training))
    run_all(info.name, info.module_cls, samples[SAMPLES.get(info.name, slice(None))], training)


@pytest.mark.parametrize("info", [m for m in module_db if m.module_error_inputs_func], ids=lambda info: info.name)
@pytest.mark.filterwarnings("ignore:Possible nested set")                     # in a pattern of PyTorch's
def test_refusals(info):
    failures = []
    for case in info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False,
                                              training=False):
        given = case.module_error_input
        try:
            made = given.constructor_input
            mine = ours(info.module_cls)(*carried(made.args), **carried(made.kwargs))
            if case.error_on is ModuleErrorEnum.FORWARD_ERROR:
                mine(*carried(given.forward_input.args), **carried(given.forward_input.kwargs))
        except Exception as error:
            fits = isinstance(error, case.error_type) and re.search(case.error_regex, str(error))
            said = None if fits else f"{type(error).__name__}: {error}"
        else:
            said = "nothing is raised"
        if said is not None:
            failures.append(f"{info.name}{described(given)}: {said}\n    want {case.error_type.__name__}: "
                            f"{case.error_regex}")
    assert not failures, "\n".join(failures)


# --- what the table does not hold ------------------------------------------------------------------------------------


def made(*shape, low=-2.0, high=2.0):
    return torch.testing.make_tensor(shape, device="cpu", dtype=torch.float32, low=low, high=high, requires_grad=True)


def sample(args=(), kwargs=None, forward=(), forward_kwargs=None):
    return ModuleInput(FunctionInput(*args, **(kwargs or {})), FunctionInput(*forward, **(forward_kwargs or {})))


def bag_samples():
    index, offsets = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 4])
    for mode in ("sum", "mean", "max"):
        yield sample((10, 3), {"mode": mode}, (index, offsets))
        yield sample((10, 3), {"mode": mode, "padding_idx": 4}, (index.view(2, 4),))
        yield sample((10, 3), {"mode": mode, "include_last_offset": True, "padding_idx": -1},
                     (index, torch.tensor([0, 4, 8])))
    yield sample((10, 3), {"mode": "sum"}, (index, offsets), {"per_sample_weights": made(8)})
    yield sample((10, 3), {"max_norm": 0.9, "norm_type": 1.5}, (index, offsets))
    # Where indices are used more or less often, PyTorch's CPU divides by the count of another index: each once then.
    yield sample((10, 3), {"scale_grad_by_freq": True}, (torch.arange(8), offsets))


def embedding_samples():
    index = torch.tensor([[1, 2, 4], [4, 3, 9]])
    yield sample((10, 3), {"padding_idx": 2}, (index,))
    yield sample((10, 3), {"padding_idx": -1, "max_norm": 0.9, "norm_type": 1.5}, (index,))
    yield sample((10, 3), {"scale_grad_by_freq": True, "dtype": torch.float64}, (index,))
    yield sample((3000, 40), {"_freeze": True}, (index,))
    yield sample((0, 3), {}, (torch.zeros(0, dtype=torch.long),))


def drop_samples(*shapes):
    for shape in shapes:
        for p in (0.0, 0.3, 1.0):
            yield sample((p,), {}, (made(*shape),))
    yield sample((), {"inplace": True}, (made(*shapes[0]).detach(),))


EXTRA = {
    "Identity": [sample((3,), {"unused": 1}, (made(2, 3),))],
    "Linear": [sample((300, 200), {}, (made(2, 300),)), sample((3, 0), {"bias": False}, (made(2, 3),)),
               sample((0, 3), {}, (made(2, 0),)),
               sample((3, 4), {"dtype": torch.float64}, (made(2, 3).detach().double(),))],
    "LazyLinear": [sample((4,), {}, (made(2, 3),)), sample((4, False), {"dtype": torch.float64},
                                                           (made(5).detach().double(),))],
    "Bilinear": [sample((3, 4, 5), {}, (made(2, 6, 3), made(2, 6, 4)))],
    "RReLU": [sample((), {}, (made(3, 40),)), sample((0.1, 0.2), {"inplace": True}, (made(3, 4).detach(),))],
    "Hardsigmoid": [sample((), {}, (made(3, 4, low=-5, high=5),)), sample((True,), {}, (made(3, 4).detach(),))],
    "Hardtanh": [sample((), {"min_value": -0.5, "max_value": 0.2}, (made(3, 4),))],
    "Softmax": [sample((), {}, (made(3, 4),)), sample((), {}, (made(2, 3, 4),)), sample((), {}, (made(3),))],
    "Dropout": [*drop_samples((4, 3), (40, 50))],
    "Dropout1d": [*drop_samples((4, 3, 5), (3, 5))],
    "Dropout2d": [*drop_samples((4, 3, 2, 2), (3, 2, 2))],
    "Dropout3d": [*drop_samples((4, 3, 2, 2, 2), (3, 2, 2, 2))],
    "AlphaDropout": [*drop_samples((4, 3), (40, 50))],
    "FeatureAlphaDropout": [*drop_samples((4, 3, 5), (4, 3, 2, 2))],
    "Flatten": [sample((), {}, (made(2, 3, 4),)), sample((0, 1), {}, (made(2, 3, 4),))],
    "Unflatten": [sample((1, (3, 4)), {}, (made(2, 12),)), sample((-1, [2, -1]), {}, (made(2, 12),))],
    "Embedding": [*embedding_samples()],
    "EmbeddingBag": [*bag_samples()],
}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", EXTRA)
def test_more_modules(name, training):
    run_all(f"nn.{name}", getattr(torch.nn, name), copy.deepcopy(EXTRA[name]), training)


CONTAINERS = [
    "nn.Sequential()", "nn.Sequential(nn.Linear(2, 3), nn.ReLU(inplace=True), nn.Sequential(nn.Tanh()))",
    "nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.Flatten()))[1:]", "nn.Sequential(nn.ReLU(), nn.Tanh())[-1]",
    "nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Tanh())", "nn.Sequential(nn.ReLU(), nn.Tanh()) * 2",
    "3 * nn.Sequential(nn.ReLU())", "nn.Sequential(nn.ReLU()).append(nn.Tanh()).insert(0, nn.GELU())",
    "nn.Sequential(nn.ReLU(), nn.Tanh()).extend([nn.ELU(0.5, True)])", "nn.ModuleList()",
    "nn.ModuleList([nn.Linear(2, 3), nn.Linear(2, 3), nn.ReLU(), nn.Linear(2, 3)])",
    "nn.ModuleList([nn.Sequential(nn.Linear(2, 3), nn.ReLU())] * 3 + [nn.ModuleList([nn.ReLU()] * 2)])",
    "nn.ModuleList([nn.ReLU(), nn.Tanh()])[:1] + nn.ModuleList([nn.SiLU()])",
    "nn.ModuleDict({'one': nn.Conv2d(1, 2, 3), 'two': nn.ModuleList([nn.ReLU()])})", "nn.ModuleDict()",
    "nn.ParameterList()", "nn.ParameterList([torch.ones(2, 3), 5, torch.ones(())])",
    "nn.ParameterList([torch.ones(2)])",
    "nn.ParameterDict({'b': torch.ones(2, 3), 'a': torch.ones(1)})", "nn.ParameterDict({'a': None, 'b': 'x'})",
    "nn.ParameterDict([('b', torch.ones(2)), ('a', torch.ones(1))]) | nn.ParameterDict({'c': torch.ones(1)})",
]


@pytest.mark.parametrize("line", CONTAINERS)
def test_containers(line):
    from collections import OrderedDict
    mine, theirs = (eval(line, {"torch": lib, "nn": lib.nn, "OrderedDict": OrderedDict}) for lib in (fb, torch))
    same_text(mine, theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert [name for name, _ in mine.named_modules()] == [name for name, _ in theirs.named_modules()]


# --- signatures ------------------------------------------------------------------------------------------------------

ABSENT = {"DataParallel", "SyncBatchNorm",                                   # several devices
          "conv_tbc", "grouped_mm", "scaled_grouped_mm", "scaled_mm"}        # low precision, and kernels for one model


def arguments(thing):
    """Names and defaults, in order; a keyword-only argument after the star."""
    thing, out = thing.__init__ if isinstance(thing, type) else thing, []       # some classes are wrapped to warn
    for p in inspect.signature(thing).parameters.values():
        default = "" if p.default is p.empty else getattr(p.default, "__name__", repr(p.default))
        out.append(f"{'*' if p.kind is p.KEYWORD_ONLY else ''}{p.name}" + (f"={default}" if default else ""))
    return out


def classes():
    return [name for name in dir(torch.nn) if isinstance(getattr(torch.nn, name), type) and name not in ABSENT
            and issubclass(getattr(torch.nn, name), torch.nn.Module)]


@pytest.mark.parametrize("name", classes())
def test_arguments_of_classes(name):
    for mine, theirs in ((getattr(lib.nn, name) for lib in (fb, torch)),
                         (getattr(lib.nn, name).forward for lib in (fb, torch))):
        said = arguments(theirs)
        if said != ["self", "args", "kwargs"] and theirs is not torch.nn.Module.forward:
            assert arguments(mine) == said


def functions():
    """The functions of nn.functional that say what they take."""
    F = torch.nn.functional
    return [name for name, held in vars(F).items() if callable(held) and not name.startswith("_")
            and getattr(held, "__module__", None) in (F.__name__, "torch._C._nn") and name not in ABSENT
            and not isinstance(held, type) and name not in ("boolean_dispatch", "assert_int_or_pair")]


@pytest.mark.parametrize("name", functions())
def test_arguments_of_functions(name):
    try:
        want = [p.name for p in inspect.signature(getattr(torch.nn.functional, name)).parameters.values()]
    except ValueError:
        want = None
    op = getattr(fb.nn.functional, name)
    if want is None or want == ["args", "kwargs"]:
        return                                    # it does not say: that there is one of the name has to do
    op.prepare()
    assert list(op.arg_names)[:len(want)] == want


def test_arguments_of_module():
    """The methods of Module that are public, and those that programs override."""
    extra = ["_apply", "_call_impl", "_load_from_state_dict", "_register_load_state_dict_pre_hook", "_named_members",
             "_register_state_dict_hook", "_save_to_state_dict", "_get_name"]
    names = [name for name in dir(torch.nn.Module) if not name.startswith("_")] + extra
    no_methods = ("T_destination", "call_super_init", "dump_patches")
    names = [name for name in names if name not in ("ipu", "mtia", "xpu", *no_methods)]
    wrong = {}
    for name in names:
        want = arguments(getattr(torch.nn.Module, name))
        got = arguments(getattr(fb.nn.Module, name)) if hasattr(fb.nn.Module, name) else None
        if got != want:
            wrong[name] = (got, want)
    assert not wrong


def test_arguments_of_init():
    for name in torch.nn.init.__all__:
        if name.endswith("_") or name == "calculate_gain":
            assert arguments(getattr(fb.nn.init, name)) == arguments(getattr(torch.nn.init, name)), name


# --- weights ----------------------------------------------------------------------------------------------------------

INIT = ["uniform_(w)", "uniform_(w, -3, 2)", "normal_(w)", "normal_(w, 1, 0.1)", "constant_(w, 0.3)", "ones_(w)",
        "zeros_(w)", "trunc_normal_(w)", "trunc_normal_(w, std=0.02)", "trunc_normal_(w, 0.5, 0.1, 0.5, 0.9)",
        "trunc_normal_(w, 0, 1, 1.5, 2)", "trunc_normal_(w, 0, 1, 3, 3.1)", "xavier_uniform_(w)",
        "xavier_uniform_(w, 2.5)", "xavier_normal_(w, 0.5)", "kaiming_uniform_(w)",
        "kaiming_uniform_(w, 2, 'fan_out', 'leaky_relu')",
        "kaiming_uniform_(w, mode='fan_out', nonlinearity='relu')", "kaiming_normal_(w, nonlinearity='tanh')",
        "orthogonal_(w)", "orthogonal_(w, 1.7)", "eye_(w)", "sparse_(w, 0.3)", "sparse_(w, 0.05, 2.0)",
        "sparse_(w, 0.0)", "dirac_(w)", "dirac_(w, 2)"]
DRAWN = [line for line in INIT if line.split("(")[0] not in ("constant_", "ones_", "zeros_", "eye_", "dirac_")]
SHAPES = [(2, 3), (40, 30), (30, 40), (4, 3, 2), (8, 4, 3, 3), (6, 2, 1, 2, 3), (700, 300)]


def filled(lib, line, shape):
    """(the weights, the next random number) after the line, or what it refuses with."""
    lib.manual_seed(5)
    w = lib.nn.Parameter(lib.empty(shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = eval(f"nn.init.{line}", {"nn": lib.nn, "w": w, "g": lib.Generator().manual_seed(3)})
        except ValueError as error:
            return str(error)
    assert found is w and w.requires_grad
    return w.detach(), lib.rand(1).item()


def same_weights(line, shape):
    mine, theirs = filled(fb, line, shape), filled(torch, line, shape)
    if isinstance(theirs, str):
        assert theirs.split(",")[0] in mine
        return
    assert mine[1] == pytest.approx(theirs[1], abs=1e-7)
    rtol, atol = (1e-4, 1e-5) if "orthogonal" in line else (3e-6, 1e-7)
    assert_close(to_torch(mine[0]), theirs[0], rtol, atol)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("line", INIT)
def test_init(line, shape):
    same_weights(line, shape)


@pytest.mark.parametrize("line", DRAWN)
def test_init_with_a_generator(line):
    same_weights(f"{line[:-1]}, generator=g)", (40, 30))
