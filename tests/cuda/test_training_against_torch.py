"""On the GPU, beside PyTorch on the same GPU: modules, optimizers, scalers, loss curves, compiled steps, programs.

The tables are PyTorch's own (`module_db`, `optim_db`), the models those of bench/models.py, the programs those of
tests/trace/programs.py. What draws random numbers in a forward is switched off here; tests of its own hold the streams.
"""
import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings as tuned

from . import peer
from .peer import OURS, THEIRS, flambeau, home, on_devices, seed, there, torch

peer.prepare()
pytest.importorskip("expecttest", reason="PyTorch's own tables of samples need the package expecttest")
modules = pytest.importorskip("tests.torch.test_modules")
optimizers = pytest.importorskip("tests.torch.test_optim")
amp = pytest.importorskip("tests.torch.test_amp")

from ..thorough import THOROUGH
from ..torch import checks
from ..torch.harness import Mismatch, assert_same, tensors
from ..trace.programs import differ, leaves as drawn_leaves, run as run_program, scale_of, steps as drawn_steps
from ..trace.test_native_programs import UNITS

GAPS = checks.read_gaps(Path(__file__).parent / "gaps.txt")


def marked(test, names):
    """Parameters by name, expected to fail where gaps.txt says so."""
    return [pytest.param(name, marks=[pytest.mark.xfail(reason=GAPS[test, name], strict=True)]
                         if (test, name) in GAPS else []) for name in names]


# --- modules ----------------------------------------------------------------------------------------------------------

MODULES = {info.name: info for info in modules.module_db}
SAMPLES = 40 if THOROUGH else 6


def without_chance(net):
    """Nothing in the module draws numbers any more."""
    for part in net.modules():
        if "Dropout" in type(part).__name__:
            part.p = 0.0
        elif "RReLU" in type(part).__name__ or "Fractional" in type(part).__name__:
            part.eval()
        elif isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.0
    return net


def moved(lib, net, sample, training):
    net.to(modules.dtype_of(lib, sample)).train(training)
    return without_chance(net).to(THEIRS if lib is torch else OURS)


def same_module(info, sample, training):
    mine, theirs = modules.built(info.module_cls, sample.constructor_input)
    mine, theirs = moved(flambeau, mine, sample, training), moved(torch, theirs, sample, training)
    args = modules.leaf_copy(sample.forward_input.args), modules.leaf_copy(sample.forward_input.kwargs)
    memo = {}
    fb_args = [modules.carried(part, memo) for part in args]
    memo, fb_memo = {}, {}
    args, fb_args = [there(part, memo) for part in args], [there(part, fb_memo) for part in fb_args]
    looser = 4 * modules.LOOSER.get(info.name, 1)
    seed(3)                                                   # a lazy module draws its parameters now
    try:
        with on_devices():
            want = theirs(*args[0], **args[1])
    except (RuntimeError, NotImplementedError):               # PyTorch has no such module on its device
        return
    with on_devices():
        got = mine(*fb_args[0], **fb_args[1])
    assert_same(home(modules.flat(got)), home(modules.flat(want)), looser=looser)
    for kind in ("named_parameters", "named_buffers"):
        for (name, a), (_, b) in zip(getattr(mine, kind)(), getattr(theirs, kind)(), strict=True):
            assert_same(a.detach().cpu(), b.detach().cpu(), where=f"{name}: ", looser=looser)
            if a.device.type != OURS:
                raise Mismatch(f"{name} is on {a.device}")
    try:
        backward(torch, tensors(modules.flat(want)), 3)
    except RuntimeError as error:
        if "cudnn RNN backward" in str(error):                # which PyTorch has in training alone, and we always
            return
        raise
    backward(flambeau, tensors(modules.flat(got)), 3)
    pairs = [(f"argument {k}", a, b) for k, (a, b) in enumerate(zip(modules.leaves(*fb_args), modules.leaves(*args),
                                                                    strict=True))]
    pairs += [(name, a, b) for (name, a), b in zip(mine.named_parameters(), theirs.parameters(), strict=True)]
    for name, a, b in pairs:
        if (a.grad is None) != (b.grad is None):
            raise Mismatch(f"gradient of {name} is {'missing' if a.grad is None else 'there'}")
        if b.grad is not None:
            assert_same(a.grad.cpu(), b.grad.cpu(), where=f"gradient of {name}: ", looser=10 * looser)


def backward(lib, results, seed):
    """Gradients of a fixed combination of all results."""
    rng, total = np.random.RandomState(seed), None
    for result in results:
        weight = lib.from_numpy(rng.uniform(0.5, 1.5, tuple(result.shape)).astype(np.float32))
        if result.requires_grad:
            part = (result * weight.to(result.device).to(result.dtype)).sum()
            total = part if total is None else total + part
    if total is not None:
        total.backward()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", marked("test_modules", MODULES))
def test_modules(name, training):
    info = MODULES[name]
    samples = [s for s in info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True,
                                                  training=training) if s.forward_input is not None]
    failures = []
    samples = checks.spread(samples, SAMPLES)
    for sample in samples:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                same_module(info, sample, training)
        except Exception as error:
            failures.append(f"{name}{modules.described(sample)}: {type(error).__name__}: "
                            f"{' '.join(str(error).split())[:300]}")
    assert not failures, f"{len(failures)} of {len(samples)}: " + "\n".join(failures[:4])


# --- optimizers -------------------------------------------------------------------------------------------------------

def both_optimizers(name, options, dtype):
    with on_devices():
        return optimizers.both(name, options, dtype)


@pytest.mark.parametrize("name, options", optimizers.RUNS)
def test_optimizers(name, options):
    mine, theirs = both_optimizers(name, options, "float32")
    with on_devices():
        mine.step(5), theirs.step(5)
    assert all(p.device.type == OURS for p in mine.params)
    for p, q in zip(mine.params, theirs.params):
        optimizers.held_against([p], [q], *((2e-2, 4e-3) if name == "Muon" else (1e-4, 1e-5)))


@pytest.mark.parametrize("name", [name for name in optimizers.STEPPED if name not in ("Muon", "Adafactor")])
def test_optimizers_of_bfloat16(name):
    mine, theirs = both_optimizers(name, {}, "bfloat16")
    with on_devices():
        mine.step(3), theirs.step(3)
    for p, q in zip(mine.params, theirs.params):
        optimizers.held_against([p], [q], 2e-2, 1e-2)


@pytest.mark.parametrize("way", ["foreach", "fused"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_ways_to_compute_a_step(name, way):
    with on_devices():
        mine, theirs = optimizers.Run(flambeau, name, {way: True}), optimizers.Run(torch, name, {})
        mine.step(4), theirs.step(4)
    for p, q in zip(mine.params, theirs.params):
        optimizers.held_against([p], [q], 1e-4, 1e-5)


# --- scalers ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("text", amp.LIVES)
def test_scaler(text):
    def life(lib, device):
        with on_devices():
            return amp.life(lib, text.replace("'cpu'", repr(device)), device)
    assert life(flambeau, OURS) == life(torch, THEIRS)


@pytest.mark.skipif(THEIRS != OURS, reason="PyTorch's rules of autocast for its CPU are others")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", amp.NETS)
def test_autocast_modules(name, dtype):
    text, shape = amp.NETS[name]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    made = []
    for lib, device in ((torch, THEIRS), (flambeau, OURS)):
        lib.manual_seed(0)
        net = eval(text, {"nn": lib.nn}).to(device)
        with lib.autocast(device, dtype=getattr(lib, dtype)):
            out = net(lib.from_numpy(x).to(device))
            loss = (out ** 2).mean()
        loss.backward()
        made.append(home((out, loss, [p.grad for p in net.parameters()])))
    want, got = made
    assert amp.kinds(got) == amp.kinds(want)
    amp.assert_near(got, want)


# --- loss curves, plain and compiled ----------------------------------------------------------------------------------

def bench_models():
    path = Path(__file__).parents[2] / "bench" / "models.py"
    spec = importlib.util.spec_from_file_location("bench_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


models = bench_models()
CURVES = {"mlp": lambda: models.mlp(), "cnn": lambda: models.cnn(8, 16, (8, 16)),
          "gpt": lambda: models.gpt(2, 64, 4, 32, 4, 100)}
STEPS = 50
# How far the losses of 50 steps may part beside the first of them: rounding grows in training.
APART = {None: 2e-3, "bfloat16": 4e-2, "float16": 2e-2}


def losses(lib, device, model, compile=None, autocast=None):
    step = models.training_step(lib, model, compile=compile, device=device, autocast=autocast)
    batch = [lib.tensor(array).to(device) for array in model.batch]
    return np.array([step(*batch).item() for _ in range(STEPS)])


@pytest.mark.parametrize("autocast", APART)
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", CURVES)
def test_losses(name, compiled, autocast):
    model = CURVES[name]()
    theirs = losses(torch, THEIRS, model, autocast=autocast)
    mine = losses(flambeau, OURS, model, flambeau.compile if compiled else None, autocast)
    np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-5 if autocast is None else 1e-2)
    assert np.abs(mine - theirs).max() <= APART[autocast] * theirs[0], (mine[::7], theirs[::7])
    assert theirs[-3:].mean() < 0.9 * theirs[:3].mean()           # something was learned, so the curve is not flat


COMPILED = {
    "map": lambda m, x: m.relu(x * 2 + 1) * 0.5 + x,
    "rows": lambda m, x: m.softmax(x, -1) * m.nn.functional.layer_norm(x, x.shape[-1:]),
    "sums": lambda m, x: (x.sum(0), x.mean(1), x.amax(), (x * x).sum()),
    "product": lambda m, x: m.nn.functional.gelu(x @ x.t() + 1) / 30,
    "written": lambda m, x: x.clone().mul_(3)[:, ::2].add_(1),
    "gathered": lambda m, x: x[m.arange(x.shape[0], device=x.device).flip(0)].float().cumsum(1).to(x.dtype).sort(1)[0],
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name, dtype):
    """A compiled function replays on other numbers what it recorded on the first."""
    work = flambeau.compile(lambda x: COMPILED[name](flambeau, x))
    for number in range(4):
        array = np.random.default_rng(number).standard_normal((33, 40)).astype(np.float32)
        mine = home(work(flambeau.from_numpy(array).to(OURS).to(getattr(flambeau, dtype))))
        theirs = home(COMPILED[name](torch, torch.from_numpy(array).to(THEIRS).to(getattr(torch, dtype))))
        assert_same(mine, theirs, dtype=getattr(torch, dtype), looser=10 if dtype == "float32" else 4)


# --- random programs --------------------------------------------------------------------------------------------------

ASIDE = {"= shift_rows"}       # PyTorch refuses a source that overlaps its target, or writes it in whatever order


@tuned(max_examples=300 if THOROUGH else 100, deadline=None, derandomize=True,
       suppress_health_check=list(HealthCheck))
@given(drawn_leaves, drawn_steps)
def programs_agree(leaf_args, program):
    program = [step for step in program if step[0] not in ASIDE]
    with warnings.catch_warnings(), on_devices():
        warnings.simplefilter("ignore")
        theirs = run_program(torch, leaf_args, program)
        mine = run_program(flambeau, leaf_args, program)
    assert mine[0] == theirs[0]
    scale = scale_of(theirs[1])
    for number, (a, b) in enumerate(zip(mine[1], theirs[1], strict=True)):
        wrong = differ(a, b, scale, UNITS)
        assert wrong is None, f"tensor {number}, ours and PyTorch's: {wrong}\n{theirs[0]}"


def test_random_programs():
    programs_agree()
