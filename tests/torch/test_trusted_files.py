"""Whole objects in files, read with `weights_only=False`: what PyTorch has saved runs here, what we have runs there.

Modules of every class are in test_module_objects.py. Here is what else programs put into checkpoints: optimizers,
schedulers, scalers, averaged and pruned models, hooks, graphs, functions, and objects of the program's own classes.
"""
import io
import pickle
import subprocess
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.utils import prune  # noqa: F401  (torch.nn does not import it)

import flambeau as fb
import flambeau.nn.utils.prune

from ..optim.every import ORDINARY

BOTH_WAYS = pytest.mark.parametrize("source, target", [(torch, fb), (fb, torch)], ids=["theirs", "ours"])
pytestmark = pytest.mark.filterwarnings("ignore")        # that a file holds more than tensors; schedules and steps


def moved(thing, source, target, **options):
    """`thing` through a file that `source` writes and `target` reads."""
    file = io.BytesIO()
    source.save(thing, file, **options)
    file.seek(0)
    return target.load(file, weights_only=False)


def numbers(tensor):
    return tensor.detach().numpy()


def assert_close(a, b):
    np.testing.assert_allclose(numbers(a), numbers(b), rtol=1e-4, atol=1e-6)


def network(lib):
    lib.manual_seed(0)
    return lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 2))


def train(lib, model, optimizer, steps=2):
    for number in range(steps):
        x = lib.ones(5, 3) * 0.3 * (number + 1)

        def closure(x=x):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss
        optimizer.step(closure)


# --- optimizers, schedulers, scalers ---

OPTIMIZERS = [*ORDINARY, "LBFGS"]


@BOTH_WAYS
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, source, target):
    """A model and its optimizer go on training as they would have."""
    if name == "LBFGS" and target is torch:
        pytest.skip("PyTorch does not go on with one of its own files either: the list of parameters is not in them")
    model = network(source)
    optimizer = getattr(source.optim, name)(model.parameters(), lr=0.1, **{"momentum": 0.9} if name == "SGD" else {})
    train(source, model, optimizer)
    model2, optimizer2 = moved((model, optimizer), source, target)
    assert type(optimizer2) is getattr(target.optim, name) and str(optimizer2) == str(optimizer)
    train(source, model, optimizer)
    train(target, model2, optimizer2)
    for a, b in zip(model.parameters(), model2.parameters(), strict=True):
        assert_close(a, b)


class Decay:
    """A factor by epoch; an object, since a lambda cannot be pickled."""

    def __call__(self, epoch):
        return 0.5 + 0.1 * epoch


SCHEDULERS = {
    "StepLR": lambda s, o: s.StepLR(o, 2),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [1, 3]),
    "ConstantLR": lambda s, o: s.ConstantLR(o, total_iters=2),
    "LinearLR": lambda s, o: s.LinearLR(o),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR triangular": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "CyclicLR triangular2": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=2, mode="triangular2"),
    "CyclicLR exp_range": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=3, mode="exp_range", gamma=0.9),
    "CyclicLR own": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=3, scale_fn=Decay()),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.1, 20),
    "ReduceLROnPlateau": lambda s, o: s.ReduceLROnPlateau(o, patience=1),
    "SequentialLR": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.5, 2), s.ExponentialLR(o, 0.9)], [2]),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.5, 2), s.ExponentialLR(o, 0.9)]),
    "LambdaLR": lambda s, o: s.LambdaLR(o, Decay()),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, Decay()),
}


def schedule(optimizer, scheduler):
    """The rates of four epochs."""
    rates = []
    for _ in range(4):
        optimizer.step()
        scheduler.step(*([1.0] if "Plateau" in type(scheduler).__name__ else []))
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@BOTH_WAYS
@pytest.mark.parametrize("name", [*SCHEDULERS, "SWALR cos", "SWALR linear"])
def test_schedulers(name, source, target):
    optimizer = source.optim.SGD([source.nn.Parameter(source.ones(1))], lr=0.1, momentum=0.9)
    if name in SCHEDULERS:
        scheduler = SCHEDULERS[name](source.optim.lr_scheduler, optimizer)
    else:
        scheduler = source.optim.swa_utils.SWALR(optimizer, 0.05, 6, name.split()[1])
    schedule(optimizer, scheduler)
    optimizer2, scheduler2 = moved((optimizer, scheduler), source, target)
    assert vars(scheduler2).keys() == vars(scheduler).keys()
    assert scheduler2.state_dict().keys() == scheduler.state_dict().keys()
    np.testing.assert_allclose(schedule(optimizer2, scheduler2), schedule(optimizer, scheduler))


@BOTH_WAYS
def test_scalers(source, target):
    scaler = source.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(source.ones(1))
    back = moved(scaler, source, target)
    assert type(back) is target.amp.GradScaler and back.state_dict() == scaler.state_dict()
    assert back.scale(target.ones(1)).item() == 8.0
    assert not moved(source.cuda.amp.GradScaler(enabled=False), source, target).is_enabled()


@BOTH_WAYS
def test_averaged_models(source, target):
    model = network(source)
    average = source.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    back, model2 = moved((average, model), source, target)
    for lib, m, a in ((source, model, average), (target, model2, back)):
        with lib.no_grad():
            m[0].weight.mul_(2)
        a.update_parameters(m)
    assert_close(average.module[0].weight, back.module[0].weight)
    assert back.n_averaged.item() == 2


@BOTH_WAYS
def test_generators(source, target):
    generator = source.Generator().manual_seed(3)
    source.rand(3, generator=generator)
    back = moved(generator, source, target)
    assert back.initial_seed() == 3
    assert target.rand(4, generator=back).tolist() == source.rand(4, generator=generator).tolist()


# --- modules with more than parameters ---


def double(module, args, output):
    return output * 2


def add_one(module, args):
    return (args[0] + 1,)


def with_keywords(module, args, kwargs):
    return args, kwargs


def on_gradients(module, *grads):
    module.seen = True


def note(module, state, *rest):
    state["extra"] = 1


def hooked(lib):
    model = network(lib)
    model.register_forward_hook(double)
    model[0].register_forward_pre_hook(add_one)
    model[1].register_forward_pre_hook(with_keywords, with_kwargs=True)
    model[2].register_full_backward_hook(on_gradients)
    model[0].register_full_backward_pre_hook(on_gradients)
    model._register_state_dict_hook(note)
    return model


def with_buffers(lib):
    model = lib.nn.Linear(3, 2)
    model.register_buffer("kept", lib.ones(2))
    model.register_buffer("left_out", lib.ones(3), persistent=False)
    model.register_buffer("nothing", None)
    model.register_parameter("none", None)
    model.note = {"x": [1, lib.float16, lib.device("cpu"), lib.Size([2]), lib.strided]}
    model.weight.tag = "first"
    return model


def with_dtypes(lib):
    model = lib.nn.Linear(3, 2)
    for name in ("bfloat16", "float8_e4m3fn", "int64", "complex64", "uint16", "bool"):
        floats = lib.ones(2)
        setattr(model, f"of_{name}", lib.nn.Parameter(floats.to(getattr(lib, name)), requires_grad=False))
    return model


def tied(lib):
    first, second = lib.nn.Linear(3, 3), lib.nn.Linear(3, 3)
    second.weight = first.weight
    return lib.nn.Sequential(first, second, first)


MODELS = {
    "hooks": hooked, "buffers": with_buffers, "dtypes": with_dtypes, "tied": tied,
    "frozen": lambda lib: network(lib).requires_grad_(False).eval(),
    "weight norm": lambda lib: lib.nn.utils.weight_norm(lib.nn.Linear(3, 2)),
    "spectral norm": lambda lib: lib.nn.utils.spectral_norm(lib.nn.Linear(3, 2)).eval(),
    "pruned": lambda lib: lib.nn.utils.prune.l1_unstructured(lib.nn.Linear(3, 4), "weight", 0.5),
    "pruned twice": lambda lib: lib.nn.utils.prune.random_structured(
        lib.nn.utils.prune.l1_unstructured(lib.nn.Linear(3, 4), "weight", 0.5), "weight", 1, dim=0),
    "activation function": lambda lib: lib.nn.TransformerEncoderLayer(
        3, 1, activation=lib.nn.functional.gelu, dropout=0.0).eval(),
    "data parallel": lambda lib: lib.nn.DataParallel(network(lib)),
    "graph": lambda lib: lib.fx.symbolic_trace(network(lib)),
    "graph of functions": lambda lib: lib.fx.symbolic_trace(graph_of_functions(lib)),
}


def graph_of_functions(lib):
    class Functions(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.scale = lib.nn.Linear(3, 3), lib.nn.Parameter(lib.ones(3))

        def forward(self, x, power=2.0):
            y = lib.nn.functional.relu(self.inner(x)) * self.scale
            y = lib.cat([y, x], 1).clamp(min=float("-inf"))
            y = lib.nn.functional.gelu(y) + lib.zeros(6, dtype=lib.float32, device=lib.device("cpu"))
            return lib.linalg.vector_norm(y, dim=1) + lib.relu(y.view(5, 6))[:, 0] ** power
    return Functions()


@BOTH_WAYS
@pytest.mark.parametrize("name", MODELS)
def test_models(name, source, target):
    """It computes the same, its tree and state have the same names, it trains on, and goes back again."""
    model = MODELS[name](source)
    back = moved(model, source, target)
    x = np.random.default_rng(0).standard_normal((5, 3), np.float32)
    result = back(target.from_numpy(x))
    assert_close(model(source.from_numpy(x)), result)
    for kind in ("parameters", "buffers", "modules"):
        names = [[path for path, _ in getattr(m, f"named_{kind}")()] for m in (model, back)]
        assert names[0] == names[1], kind
    assert list(back.state_dict()) == list(model.state_dict())
    if result.requires_grad:
        result.sum().backward()
    fired = []
    handle = back.register_forward_hook(lambda *seen: fired.append(1))
    back(target.from_numpy(x))
    handle.remove()
    assert fired == [1]
    again = moved(back, target, source)
    assert_close(again(source.from_numpy(x)), back(target.from_numpy(x)))


@BOTH_WAYS
def test_lazy_modules(source, target):
    back = moved(source.nn.LazyLinear(2), source, target)
    assert type(back.weight) is target.nn.UninitializedParameter
    assert back(target.ones(1, 3)).shape == (1, 2) and type(back) is target.nn.Linear


@BOTH_WAYS
def test_attributes_come_back(source, target):
    back = moved(with_buffers(source), source, target)
    assert back.note == {"x": [1, target.float16, target.device("cpu"), target.Size([2]), target.strided]}
    assert back.weight.tag == "first" and back._non_persistent_buffers_set == {"left_out"}
    assert back.nothing is None and back.none is None


def test_attributes_that_old_files_lack():
    """Modules of PyTorch from years ago have no `padding_mode` and the like; its classes add them, and ours do."""
    old = [(lambda nn: nn.Conv2d(1, 1, 2), "padding_mode"), (lambda nn: nn.Softmax(), "dim"),
           (lambda nn: nn.LSTM(2, 2), "proj_size"), (lambda nn: nn.Upsample(scale_factor=2), "recompute_scale_factor"),
           (lambda nn: nn.MultiheadAttention(2, 1), "_qkv_same_embed_dim"), (lambda nn: nn.AvgPool3d(2), "ceil_mode"),
           (lambda nn: nn.Linear(1, 1), "_non_persistent_buffers_set"),
           (lambda nn: nn.Linear(1, 1), "_backward_pre_hooks")]
    for make, name in old:
        module = make(torch.nn)
        del module.__dict__[name]
        ours, theirs = moved(module, torch, fb), moved(module, torch, torch)
        assert getattr(ours, name) == getattr(theirs, name), name


# --- functions and names ---

SPACES = ["", "nn.functional", "nn.init", "linalg", "fft", "special", "Tensor"]


@pytest.mark.parametrize("space", SPACES)
def test_functions(space):
    """A function of PyTorch's in a file is ours of the same name."""
    theirs, ours = torch, fb
    for part in filter(None, space.split(".")):
        theirs, ours = getattr(theirs, part), getattr(ours, part)
    wrong, count = [], 0
    for name in dir(theirs):
        function = getattr(theirs, name)
        if name.startswith(("_", "sym_")) or not callable(function) or isinstance(function, type) \
                or not hasattr(ours, name):
            continue
        try:
            pickle.dumps(function, 2)
        except Exception:
            continue                                     # PyTorch cannot save it either
        count += 1
        found = moved(function, torch, fb)
        if getattr(found, "__name__", None) != getattr(getattr(ours, name), "__name__", ""):
            wrong.append((name, found))
    assert not wrong and count > 10


@BOTH_WAYS
def test_dtypes_and_the_like(source, target):
    thing = lambda lib: [lib.float32, lib.bfloat16, lib.Size([1, 2]), lib.device("cpu"), lib.strided,
                         lib.nn.Linear, lib.optim.lr_scheduler.StepLR, lib.distributions.StackTransform, lib.Tensor]
    assert moved(thing(source), source, target) == thing(target)


# --- a program's own classes ---


class Data:
    """As of a library of graphs: a store of tensors under names."""

    def __init__(self, **stores):
        self.__dict__["_store"] = stores

    def __getattr__(self, name):
        if name not in vars(self).get("_store", ()):
            raise AttributeError(name)
        return self._store[name]


class Outer:
    class Inner:
        x = 1

    @staticmethod
    def function(x):
        return x + 1


@BOTH_WAYS
@pytest.mark.parametrize("older", [False, True])
def test_own_classes(source, target, older):
    if older and source is fb:
        pytest.skip("the older format is only read here")
    x = source.arange(6.0).reshape(2, 3)
    held = {"data": Data(x=x, edge_index=source.tensor([[0, 1]])), "model": network(source).half().float(),
            "inner": Outer.Inner(), "function": Outer.function, "array": np.arange(3.0), "row": x[1], "epoch": 7,
            "types": types.SimpleNamespace(a=1)}
    back = moved(held, source, target, **{"_use_new_zipfile_serialization": False} if older else {})
    assert back["data"].x.tolist() == x.tolist() and type(back["inner"]) is Outer.Inner and back["epoch"] == 7
    assert back["function"] is Outer.function and back["array"].tolist() == [0, 1, 2] and back["types"].a == 1
    back["row"].zero_()
    assert back["data"].x.tolist() == [[0, 1, 2], [0, 0, 0]]                # one storage, as it was
    assert_close(held["model"](source.ones(1, 3)), back["model"](target.ones(1, 3)))


@BOTH_WAYS
def test_classes_inside_classes_by_trust(source, target):
    file = io.BytesIO()
    source.save(Outer.Inner(), file)
    if target is torch:
        trust = [getattr, Outer, Outer.Inner]
    else:
        trust = [Outer.Inner]
    with target.serialization.safe_globals(trust):
        assert type(target.load(io.BytesIO(file.getvalue()))) is Outer.Inner
    with pytest.raises(pickle.UnpicklingError):
        target.load(io.BytesIO(file.getvalue()))


# --- arguments ---


@pytest.mark.parametrize("switches, arguments, trusted", [
    ({}, {}, False), ({}, {"weights_only": False}, True), ({}, {"pickle_module": pickle}, True),
    ({"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}, {"weights_only": False}, False),
    ({"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "yes"}, {}, True),
    ({"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}, {"weights_only": True}, False),
    ({"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}, {}, "both were set"),
    ({"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}, {"pickle_module": pickle}, "explicit pickle_module"),
    ({"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "on"}, {"weights_only": False}, True)])
def test_who_trusts(monkeypatch, switches, arguments, trusted):
    for name, value in switches.items():
        monkeypatch.setenv(name, value)
    file = io.BytesIO()
    torch.save(Outer.Inner(), file)
    for lib in (torch, fb):
        file.seek(0)
        if trusted is True:
            assert type(lib.load(file, **arguments)) is Outer.Inner
        else:
            error, words = (pickle.UnpicklingError, "Weights only load failed") if trusted is False \
                else (RuntimeError, trusted)
            with pytest.raises(error, match=words):
                lib.load(file, **arguments)


def test_the_switch_that_trusts_warns(monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    file = io.BytesIO()
    torch.save(1, file)
    for lib in (torch, fb):
        file.seek(0)
        with pytest.warns(UserWarning, match="TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected"):
            lib.load(file)


class Unpickler(pickle.Unpickler):
    asked: list = []

    def find_class(self, module, name):
        self.asked.append(f"{module}.{name}")
        return super().find_class(module, name)


def lambda_to_text(function):
    return eval, (function.source,)


class Pickler(pickle.Pickler):
    """Writes functions that have a `source`, as dill and cloudpickle write functions that have no name."""

    def reducer_override(self, thing):
        return lambda_to_text(thing) if hasattr(thing, "source") else NotImplemented


class InPython(pickle._Pickler):
    """In Python, as dill's is."""

    def save_function(self, thing):
        if hasattr(thing, "source"):
            self.save_reduce(*lambda_to_text(thing), obj=thing)
        else:
            self.save_global(thing)

    dispatch = {**pickle._Pickler.dispatch, types.FunctionType: save_function}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("pickler", [Pickler, InPython])
def test_pickle_modules(pickler, protocol):
    """The module's classes write and read; PyTorch reads the file, too."""
    module = types.SimpleNamespace(__name__="ours", Pickler=pickler, Unpickler=Unpickler)
    plus = lambda x: x + 1
    plus.source = "lambda x: x + 1"
    w, p = fb.arange(6.0).view(2, 3), fb.nn.Parameter(fb.ones(2))
    p.tag = "x"
    held = {"function": plus, "model": network(fb), "lstm": fb.nn.LSTM(2, 2), "w": w, "row": w[1], "parameter": p,
            "ints": w.view(fb.int32), "dtype": fb.float16, "size": fb.Size([1]), "device": fb.device("cpu"),
            "layout": fb.strided, "meta": fb.ones(2, device="meta"), "bytes": fb.ones(3).untyped_storage(),
            "uint16": fb.ones(2, dtype=fb.uint16), "class": fb.nn.Linear, "data": Data(x=w)}
    file = io.BytesIO()
    fb.save(held, file, pickle_module=module, pickle_protocol=protocol)
    for lib, how in ((fb, {"pickle_module": module}), (torch, {"weights_only": False})):
        Unpickler.asked.clear()
        file.seek(0)
        back = lib.load(file, **how)
        assert back["function"](1) == 2 and back["parameter"].tag == "x"
        assert type(back["parameter"]) is lib.nn.Parameter and back["class"] is lib.nn.Linear
        assert back["dtype"] is lib.float16 and back["size"] == lib.Size([1]) and back["layout"] is lib.strided
        assert back["meta"].is_meta and back["bytes"].nbytes() == 12 and back["uint16"].tolist() == [1, 1]
        assert_close(back["model"](lib.ones(1, 3)), held["model"](fb.ones(1, 3)))
        assert back["ints"].tolist() == held["ints"].tolist()
        assert back["lstm"](lib.ones(1, 1, 2))[0].shape == (1, 1, 2)
        back["row"].zero_()
        assert back["data"].x.tolist() == [[0, 1, 2], [0, 0, 0]]
        if lib is fb:
            assert f"{__name__}.Data" in Unpickler.asked


def test_options_reach_the_unpickler():
    """A string of Python 2 is bytes, if the caller says so."""
    class Python2(pickle.Pickler):
        pass
    file = io.BytesIO()
    torch.save({"name": "caf"}, file, pickle_module=types.SimpleNamespace(__name__="p", Pickler=Python2),
               pickle_protocol=2)
    data = file.getvalue()
    for lib in (torch, fb):
        assert lib.load(io.BytesIO(data), weights_only=False, encoding="latin1") == {"name": "caf"}
        with pytest.raises(TypeError):
            lib.load(io.BytesIO(data), weights_only=False, colour=3)


# --- what is refused all the same ---


@pytest.mark.parametrize("make, words", [
    (lambda: torch.ones(2).to_sparse(), "sparse"), (lambda: torch.ones(2, dtype=torch.complex32), "complex32|Half"),
    (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "QInt8|quantised"),
    (lambda: torch.nested.nested_tensor([torch.ones(2)]), "nested"),
    (lambda: FullyShardedDataParallel, "fully_sharded_data_parallel")])
def test_what_is_not_here(make, words):
    with pytest.raises(fb.serialization.NotSupported, match=words):
        moved({"x": make()}, torch, fb)


def test_a_tensor_beyond_its_storage_is_refused():
    """Trust in the maker is not trust in the disk."""
    from torch._utils import _rebuild_tensor_v2

    class Beyond:
        def __reduce__(self):
            return _rebuild_tensor_v2, (torch.ones(2).storage(), 0, (1 << 20,), (1,), False, {})
    with pytest.raises(RuntimeError, match="out of bounds"):
        moved(Beyond(), torch, fb)


def test_without_any_torch(tmp_path):
    """A file of PyTorch's loads where `import torch` gives nothing, and where it gives Flambeau."""
    model = network(torch)
    torch.save({"model": model, "optimizer": torch.optim.Adam(model.parameters())}, tmp_path / "theirs.pt")
    expected = model(torch.ones(1, 3)).tolist()
    code = (f"held = torch.load({str(tmp_path / 'theirs.pt')!r}, weights_only=False)\n"
            "print(held['model'](torch.ones(1, 3)).tolist(), type(held['optimizer']).__name__)")
    for command in (["-c", f"import sys; sys.modules['torch'] = None\nimport flambeau as torch\n{code}"],
                    ["-m", "flambeau", "run", "-c", f"import torch\n{code}"]):
        done = subprocess.run([sys.executable, *command], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        result, name = done.stdout.rsplit(" ", 1)
        np.testing.assert_allclose(eval(result), expected, rtol=1e-5)
        assert name.strip() == "Adam"
