"""Threads that use the package for the first time, all at once in a fresh interpreter: each finds whole what it wants.

`python -m tests.first_uses --starts 300` starts so many interpreters and prints what went wrong;
`tests/test_threads.py` starts a few. What the threads of a start do follows from its seed: `python -m tests.first_uses
--seed 7` does it again.
"""
import argparse
import faulthandler
import io
import os
import random
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path

from tests.patience import PATIENCE

THREADS = 16
USES_PER_THREAD = 3
SWITCH_SECONDS = 1e-6              # how long a thread runs before Python hands over to another
USES = []


def use(function):
    USES.append(function)
    return function


def torch():
    """The package, imported by whoever comes first."""
    import flambeau
    return flambeau


# --- tensors and operations -----------------------------------------------------------------------------------------


@use
def operators():
    x = torch().tensor([1.0, 2.0, 3.0])
    assert ((x * 2 + 1 - x / 2) ** 2).tolist() == [6.25, 16.0, 30.25]
    assert (5 - x).tolist() == [4, 3, 2] and (x > 1.5).tolist() == [False, True, True] and (-x).sum().item() == -6


@use
def mul_of_numbers():
    x = torch().arange(4)
    assert (x * x).tolist() == [0, 1, 4, 9] and torch().mul(x, 3).tolist() == [0, 3, 6, 9]


@use
def methods():
    x = torch().arange(6.0).reshape(2, 3)
    assert x.t().contiguous().view(-1).tolist() == [0, 3, 1, 4, 2, 5]
    assert x.softmax(1).sum(1).round().tolist() == [1, 1] and x.amax().item() == 5 and x.std(0).shape == (3,)


@use
def in_place():
    x = torch().zeros(3)
    x.add_(2).mul_(3)
    x[1] = 7
    x[2:] += 1
    assert x.tolist() == [6, 7, 7]


@use
def out():
    made = torch().empty(2)
    torch().add(torch().ones(2), 1, out=made)
    assert made.tolist() == [2, 2]


@use
def views_and_indices():
    x = torch().arange(24).reshape(2, 3, 4)
    assert x[1, :, 2].tolist() == [14, 18, 22] and x[..., ::2].shape == (2, 3, 2)
    assert x[x % 5 == 0].tolist() == [0, 5, 10, 15, 20] and x[0, torch().tensor([2, 0]), 1].tolist() == [9, 1]
    assert x.unfold(2, 2, 1).shape == (2, 3, 3, 2) and x.permute(2, 0, 1).stride() == (1, 12, 4)


@use
def promotion():
    t = torch()
    assert (t.ones(2, dtype=t.int32) + 1.5).dtype is t.float32 and t.result_type(t.ones(1), 1j) is t.complex64
    assert (t.ones(2, dtype=t.bfloat16) + t.ones(2, dtype=t.float16)).dtype is t.float32


@use
def matrices():
    a = torch().arange(6.0).reshape(2, 3)
    assert (a @ a.t()).tolist() == [[5, 14], [14, 50]] and torch().einsum("ij,ij->i", a, a).tolist() == [5, 50]
    assert torch().linalg.det(torch().eye(3) * 2).item() == 8
    assert torch().linalg.svdvals(torch().eye(2)).tolist() == [1, 1]
    assert torch().linalg.solve(torch().eye(2) * 4, torch().ones(2)).tolist() == [0.25, 0.25]


@use
def fourier():
    assert torch().fft.ifft(torch().fft.fft(torch().tensor([1.0, 2.0, 4.0]))).real.round().tolist() == [1, 2, 4]
    assert torch().fft.fftfreq(4).tolist() == [0, 0.25, -0.5, -0.25]


@use
def special():
    assert torch().special.expit(torch().zeros(2)).tolist() == [0.5, 0.5]
    assert abs(torch().special.gammaln(torch().tensor(4.0)).item() - 1.791759) < 1e-5


@use
def sorting():
    values, indices = torch().tensor([3, 1, 2]).sort()
    assert values.tolist() == [1, 2, 3] and indices.tolist() == [1, 2, 0]
    assert torch().tensor([3, 1, 3]).unique().tolist() == [1, 3]
    assert torch().topk(torch().arange(5), 2).values.tolist() == [4, 3]


@use
def printing():
    assert str(torch().tensor([[1.5, 2.0]])) == "tensor([[1.5000, 2.0000]])"
    assert repr(torch().float32) == "torch.float32" and "2" in repr(torch().nn.Linear(2, 3))


@use
def random_numbers():
    t = torch()
    t.manual_seed(0)
    assert t.randn(5).shape == (5,) and 0 <= t.rand(()).item() < 1 and sorted(t.randperm(4).tolist()) == [0, 1, 2, 3]
    generator = t.Generator().manual_seed(3)
    assert t.equal(t.rand(9, generator=generator), t.rand(9, generator=t.Generator().manual_seed(3)))


@use
def numpy():
    import numpy as np
    assert torch().from_numpy(np.arange(3)).mul(2).numpy().tolist() == [0, 2, 4]
    assert np.add(torch().ones(2), 1).tolist() == [2, 2]
    assert torch().utils.dlpack.from_dlpack(np.ones(2)).sum().item() == 2


@use
def refusals():
    for call, kind in ((lambda t: t.ones(2) + t.ones(3), RuntimeError), (lambda t: t.ones(2) @ t.ones(3), RuntimeError),
                       (lambda t: t.no_such_function, AttributeError), (lambda t: t.ones(2).item(), RuntimeError),
                       (lambda t: t.zeros(2)[4], IndexError), (lambda t: t.nn.Linear(2, 3)(t.ones(4)), RuntimeError)):
        try:
            call(torch())
        except kind as error:
            assert "partially" not in str(error), error
        else:
            raise AssertionError("was not refused")


@use
def overriding():
    class Own(torch().Tensor):
        pass
    assert type(torch().ones(2).as_subclass(Own) + 1) is Own
    assert torch().overrides.is_tensor_like(torch().ones(1))
    assert torch().add in torch().overrides.get_overridable_functions()[torch()]


@use
def sparse_and_foreach():
    assert [x.tolist() for x in torch()._foreach_add([torch().ones(1), torch().zeros(1)], 1)] == [[2], [1]]
    assert torch().sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,)).to_dense().tolist() == [1, 0, 2]


@use
def operators_by_name():
    assert torch().ops.aten.add.Tensor(torch().ones(1), 2).tolist() == [3]


@use
def own_operator():
    name = f"first_uses::twice_{threading.get_ident()}"
    twice = torch().library.custom_op(name, mutates_args=(), schema="(Tensor x) -> Tensor")(lambda x: x * 2)
    assert twice(torch().ones(2)).tolist() == [2, 2]


# --- gradients ------------------------------------------------------------------------------------------------------


@use
def backward():
    x = torch().tensor([1.0, 2.0], requires_grad=True)
    (x * x * 3).sum().backward()
    assert x.grad.tolist() == [6, 12]
    assert "Mul" in repr((x * 2).grad_fn)


@use
def second_derivative():
    x = torch().tensor(2.0, requires_grad=True)
    g, = torch().autograd.grad(x ** 3, x, create_graph=True)
    assert torch().autograd.grad(g, x)[0].item() == 12


@use
def own_function():
    class Cube(torch().autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x ** 3

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return 3 * x ** 2 * g
    x = torch().tensor(2.0, requires_grad=True)
    Cube.apply(x).backward()
    assert x.grad.item() == 12


@use
def derivatives_of_functions():
    t = torch()
    assert t.autograd.functional.jacobian(lambda x: x * 2, t.ones(2)).tolist() == [[2, 0], [0, 2]]
    assert t.autograd.gradcheck(lambda x: x.sin(), t.ones(2, dtype=t.float64, requires_grad=True))


@use
def transforms():
    t = torch()
    assert t.func.grad(lambda x: (x ** 2).sum())(t.ones(2)).tolist() == [2, 2]
    assert t.vmap(lambda x: x.sum(), randomness="different")(t.ones(3, 2)).tolist() == [2, 2, 2]
    assert t.func.jvp(lambda x: x * 3, (t.ones(2),), (t.ones(2),))[1].tolist() == [3, 3]


@use
def forward_mode():
    t = torch()
    with t.autograd.forward_ad.dual_level():
        dual = t.autograd.forward_ad.make_dual(t.tensor(2.0), t.tensor(1.0))
        assert t.autograd.forward_ad.unpack_dual(dual * dual).tangent.item() == 4


@use
def checkpoints():
    from flambeau.utils.checkpoint import checkpoint
    x = torch().ones(2, requires_grad=True)
    checkpoint(lambda x: x.exp().sin(), x, use_reentrant=False).sum().backward()
    assert x.grad.shape == (2,)


@use
def complex_numbers():
    x = torch().tensor([1 + 2j], requires_grad=True)
    x.abs().sum().backward()
    assert x.grad.shape == (1,) and x.conj().resolve_conj().tolist() == [1 - 2j]


# --- modules, optimizers, data --------------------------------------------------------------------------------------


@use
def training():
    t = torch()
    net = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.ReLU(), t.nn.BatchNorm1d(4), t.nn.Dropout(0.1), t.nn.Linear(4, 1))
    step = t.optim.Adam(net.parameters())
    for _ in range(2):
        step.zero_grad()
        loss = t.nn.functional.mse_loss(net(t.ones(2, 3)), t.zeros(2, 1))
        loss.backward()
        step.step()
    assert loss.item() >= 0


@use
def convolutions():
    t = torch()
    net = t.nn.Sequential(t.nn.Conv2d(1, 2, 3, padding=1), t.nn.MaxPool2d(2), t.nn.Flatten(), t.nn.LogSoftmax(1))
    out = net(t.ones(1, 1, 4, 4))
    t.nn.functional.nll_loss(out, t.tensor([1])).backward()
    assert out.shape == (1, 8) and net[0].weight.grad.shape == (2, 1, 3, 3)


@use
def recurrences():
    out, (h, c) = torch().nn.LSTM(2, 3)(torch().ones(4, 1, 2))
    assert out.shape == (4, 1, 3) and h.shape == c.shape == (1, 1, 3)


@use
def attention():
    from flambeau.nn import functional as F
    x = torch().ones(1, 1, 2, 4)
    assert F.scaled_dot_product_attention(x, x, x).tolist() == x.tolist()
    assert torch().nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)(torch().ones(1, 3, 4)).shape == (1, 3, 4)


@use
def parts_of_nn():
    from flambeau.nn import utils
    from flambeau.nn.utils import clip_grad_norm_, parameters_to_vector
    pad_sequence = utils.rnn.pad_sequence
    assert pad_sequence([torch().ones(2), torch().ones(1)]).tolist() == [[1, 1], [1, 0]]
    p = torch().nn.Parameter(torch().ones(2))
    p.grad = torch().full((2,), 3.0)
    clip_grad_norm_([p], 1.0)
    assert p.grad.norm().item() < 1.001 and parameters_to_vector([p]).tolist() == [1, 1]
    net = torch().nn.utils.parametrizations.weight_norm(torch().nn.Linear(2, 2))
    assert net(torch().ones(2)).shape == (2,)


@use
def optimizers():
    t = torch()
    p = t.nn.Parameter(t.ones(2))
    for kind in (t.optim.SGD, t.optim.AdamW, t.optim.RMSprop):
        p.grad = None
        step = kind([p], lr=0.1)
        scheduler = t.optim.lr_scheduler.StepLR(step, 1)
        p.sum().backward()
        step.step()
        scheduler.step()
    assert p.shape == (2,) and t.optim.swa_utils.AveragedModel(t.nn.Linear(1, 1)) is not None


@use
def loading():
    from flambeau.utils.data import DataLoader, TensorDataset
    found = [x.tolist() for x, in DataLoader(TensorDataset(torch().arange(4)), batch_size=2)]
    assert found == [[0, 1], [2, 3]]
    shuffled = DataLoader(range(6), batch_size=3, shuffle=True)
    assert sorted(i for batch in shuffled for i in batch.tolist()) == list(range(6))


@use
def saving():
    file = io.BytesIO()
    torch().save({"x": torch().arange(3), "net": torch().nn.Linear(1, 1).state_dict()}, file)
    file.seek(0)
    assert torch().load(file)["x"].tolist() == [0, 1, 2]


@use
def safetensors():
    with tempfile.TemporaryDirectory() as folder:
        torch().safetensors.save_file({"x": torch().ones(2)}, f"{folder}/x.safetensors")
        assert torch().safetensors.load_file(f"{folder}/x.safetensors")["x"].tolist() == [1, 1]


@use
def copies():
    import copy
    import pickle
    net = copy.deepcopy(torch().nn.Linear(1, 2))
    assert pickle.loads(pickle.dumps(net.weight)).shape == (2, 1)
    assert pickle.loads(pickle.dumps(torch().float16)) is torch().float16


@use
def distributions():
    d = torch().distributions
    assert abs(d.Normal(0.0, 1.0).log_prob(torch().tensor(0.0)).item() + 0.9189385) < 1e-5
    assert d.Categorical(torch().ones(3)).sample().item() in (0, 1, 2)
    assert d.kl_divergence(d.Bernoulli(0.5), d.Bernoulli(0.5)).item() == 0
    assert d.TransformedDistribution(d.Normal(0.0, 1.0), d.transforms.ExpTransform()).sample().item() > 0


@use
def one_distribution():
    from flambeau.distributions.multivariate_normal import MultivariateNormal
    assert MultivariateNormal(torch().zeros(2), torch().eye(2)).sample().shape == (2,)


@use
def autocast():
    t = torch()
    with t.autocast("cpu"):
        assert (t.ones(2, 2) @ t.ones(2, 2)).dtype is t.bfloat16
    assert not t.is_autocast_enabled()
    assert t.amp.GradScaler("cpu", enabled=False).scale(t.ones(1)).item() == 1


@use
def quantities_of_tensors():
    from flambeau.data.transforms import Compose, Normalize
    assert Compose([Normalize([0.5], [0.5])])(torch().ones(1, 2, 2)).sum().item() == 4


# --- compile, observers, tools --------------------------------------------------------------------------------------


@use
def compiling():
    twice = torch().compile(lambda x: (x * 2 + 1).sin())
    for _ in range(3):
        assert abs(twice(torch().zeros(2)).sum().item() - 1.682942) < 1e-5


@use
def compiling_a_net():
    t = torch()
    net = t.nn.Linear(2, 2)
    step = t.compile(lambda x: net(x).square().mean())
    for _ in range(2):
        step(t.ones(1, 2)).backward()
    assert net.weight.grad.shape == (2, 2)


@use
def watching():
    t = torch()
    with t.watch.allow("broadcast"):
        assert (t.ones(2, 1) + t.ones(3)).shape == (2, 3)
    assert t.watch.findings() is not None and callable(t.watch)


@use
def profiling():
    t = torch()
    assert t.profiler.ProfilerActivity.CPU is not None
    assert t.autograd.profiler.record_function is not None
    with t.profiler.record_function("mine"):
        t.ones(2).sum().item()


@use
def counting():
    from flambeau.utils.flop_counter import FlopCounterMode
    assert FlopCounterMode(display=False) is not None
    assert torch().memory.__doc__ and torch().lens.__doc__


@use
def graphs_of_nets():
    assert torch().fx.Graph().placeholder("x").name == "x" and torch().fx.Tracer is not None
    assert torch().lens is not None and torch().memory is not None


@use
def assertions():
    torch().testing.assert_close(torch().ones(2), torch().ones(2))
    assert torch().testing.make_tensor((2,), dtype=torch().float32, device="cpu").shape == (2,)


@use
def settings():
    t = torch()
    with t.config.using(executor="reference"):
        assert t.ones(3).sum().item() == 3
    assert t.get_num_threads() > 0 and t.backends.mkldnn is not None and t.backends.cuda is not None


@use
def other_devices():
    t = torch()
    assert t.empty(3, device="meta").shape == (3,) and not t.backends.mps.is_available()
    assert t.cuda.device_count() >= 0 and t.cuda.is_available() in (True, False)


@use
def native_code():
    t = torch()
    with t.config.using(executor="native"):
        x = t.arange(70_000.0)
        assert ((x * 2 + 1) / 2).sum().item() > 0 and (x - x.mean()).abs().max().item() > 0


@use
def large_arrays():
    x = torch().ones(300, 300)
    assert (x @ x).sum().item() == 300 ** 3 and x.softmax(0).sum().round().item() == 300


@use
def names_of_all_kinds():
    t = torch()
    for name in ("jit", "futures", "signal", "quasirandom", "hub", "types", "version", "multiprocessing", "xpu", "mps",
                 "accelerator", "onnx" if "onnx" in dir(t) else "fft", "torch_version", "storage"):
        assert getattr(t, name) is not None
    assert t.signal.windows.hann(3).shape == (3,) and t.quasirandom.SobolEngine is not None
    assert dir(t) and t.return_types.sort is not None and t.sum.__doc__


# --- threads --------------------------------------------------------------------------------------------------------


def program(seed, threads=THREADS):
    """What each thread does, by the seed; and whether the threads are the first to import the package."""
    draw = random.Random(seed)
    alike = draw.random() < 0.25                       # all of them the same, as the workers of a server
    one = draw.sample(USES, USES_PER_THREAD)
    return [one if alike else draw.sample(USES, USES_PER_THREAD) for _ in range(threads)], draw.random() < 0.5


def start(seed, threads=THREADS):
    """Do in this interpreter, which has not used the package, what the seed says; what went wrong, in words."""
    uses, imported = program(seed, threads)
    if imported:
        torch()
    wrong, ready = [], threading.Barrier(threads)

    def work(uses):
        ready.wait()
        torch()                                       # the package itself before a part of it: see Note [First use]
        for use in uses:
            try:
                use()
            except BaseException:
                wrong.append(f"{use.__name__}: {traceback.format_exc()}")
    sys.setswitchinterval(SWITCH_SECONDS)
    running = [threading.Thread(target=work, args=(part,)) for part in uses]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return wrong


def fresh(seed, threads=THREADS, patience=PATIENCE):
    """The same in a fresh interpreter: "" or what went wrong."""
    done = subprocess.run([sys.executable, "-m", "tests.first_uses", "--seed", str(seed), "--threads", str(threads),
                           "--patience", str(patience)], capture_output=True, text=True, check=False,
                          cwd=Path(__file__).parents[1])
    return "" if done.returncode == 0 else f"seed {seed}, exit status {done.returncode}\n{done.stdout}{done.stderr}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--patience", type=float, default=PATIENCE)
    given = parser.parse_args()
    if given.seed is not None:
        faulthandler.dump_traceback_later(given.patience, exit=True)
        wrong = start(given.seed, given.threads)
        print("\n".join(wrong))
        sys.stdout.flush()
        os._exit(1) if wrong else sys.exit(0)
    failed = 0
    for seed in range(given.first, given.first + given.starts):
        words = fresh(seed, given.threads, given.patience)
        if words:
            failed += 1
            print(words, flush=True)
    print(f"{given.starts} starts, {failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
