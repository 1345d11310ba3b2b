"""Kernels in a row as one launch: which are put together, that they compute the same bits, and how they fail."""
import pytest
from hypothesis import HealthCheck, given, settings as tuned, strategies as st

import flambeau as torch
from flambeau.backends.backend import DeviceFailed
from flambeau.backends.cuda import code, horizontal, nvrtc, program, schedule
from flambeau.nn import functional as F
from flambeau.trace.planning import plan

from ..thorough import THOROUGH, sample
from .a_gpu import REAL, a_gpu
from .simulated import SimulatedDriver, compiler, simulating

pytestmark = [pytest.mark.pinned, pytest.mark.filterwarnings("error:.*mistake in Flambeau")]
simulated = pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")
SHAPES = [(5, 7), (7,), (300,), (1,), (), (33, 65), (0, 3), (4, 4), (1030,), (2, 3, 4)]


@pytest.fixture
def cuda():
    with a_gpu(), torch.config.using(executor="native"):
        yield torch.device("cuda", 0)


@pytest.fixture
def launches(monkeypatch):
    """The HorizontalLaunches that are made."""
    made, build = [], horizontal.HorizontalLaunch.__init__
    monkeypatch.setattr(horizontal.HorizontalLaunch, "__init__",
                        lambda self, tasks: (build(self, tasks), made.append((self, tasks)))[0])
    plan.forget()
    yield made
    plan.forget()


def bits(tensors):
    return [t.detach().cpu().contiguous().view(torch.uint8).tolist() if t.dim() and t.numel() else t.tolist()
            for t in tensors]


def stepped(kind, device, dtype, steps=5):
    """The parameters, and what an optimizer keeps of them, after some steps with gradients that are given."""
    torch.manual_seed(0)
    params = [torch.randn(shape).to(dtype).to(device).requires_grad_() for shape in SHAPES]
    params.append(torch.randn(6, 9).to(dtype).to(device).t().detach().requires_grad_())
    optimizer = kind(params)
    for number in range(steps):
        for p in params:
            p.grad = torch.full_like(p, 0.25 + number) * p.detach().sign()
        optimizer.step()
        torch.cuda.synchronize()
    state = [t for p in params for t in optimizer.state[p].values() if isinstance(t, torch.Tensor)]
    return bits([*params, *state])


OPTIMIZERS = {"SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
              "AdamW": lambda params: torch.optim.AdamW(params, lr=0.01), "RMSprop": torch.optim.RMSprop,
              "Adagrad": torch.optim.Adagrad}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizers_step_is_one_launch(cuda, launches, monkeypatch, name, dtype):
    if not REAL and not THOROUGH and (name, dtype) not in {("AdamW", torch.bfloat16), ("SGD", torch.float32)}:
        pytest.skip("takes a second where the GPU is simulated: FLAMBEAU_TEST_THOROUGH=1 runs it")
    fused = stepped(OPTIMIZERS[name], cuda, dtype)
    # all of them and a transposed one, of which one has nothing to do; a half of one element is rounded in two kernels
    assert max(len(tasks) for _, tasks in launches) >= (7 if dtype is torch.bfloat16 else len(SHAPES))
    monkeypatch.setattr(horizontal, "MIN_PARTS", 1 << 30)
    plan.forget()
    count = len(launches)
    assert stepped(OPTIMIZERS[name], cuda, dtype) == fused
    assert len(launches) == count


def trained(device, rows, steps=6, compiled=False, clip=False):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(12, 40), torch.nn.LayerNorm(40), torch.nn.GELU(), torch.nn.Linear(40, 24),
                              torch.nn.ReLU(), torch.nn.Linear(24, 5)).to(device)
    x, y = torch.randn(rows, 12).to(device), torch.randint(0, 5, (rows,)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    step = torch.compile(step) if compiled else step
    return [step().item() for _ in range(steps)], [p.detach().cpu() for p in net.parameters()]


@pytest.mark.parametrize("rows, how", sample([(8, "plain"), (300, "compiled"), (300, "clipped"), (300, "plain"),
                                              (8, "compiled"), (8, "clipped")], 1 if REAL else 2))
def test_a_training_step_is_what_it_was(cuda, launches, monkeypatch, rows, how):
    """With many rows the last stages of reductions, whose threads wait for each other, are among the parts."""
    monkeypatch.setattr(schedule, "REDUCTIONS", schedule.REDUCTIONS._replace(min_row_elements=64, block_elements=512,
                                                                             max_column_parts=2048))
    how = {} if how == "plain" else {"compiled" if how == "compiled" else "clip": True}
    losses, fused = trained(cuda, rows, **how)
    # all parameters of the net, in one launch or two: a norm's bias is read by the kernel of its weight
    assert sum(len(tasks) for _, tasks in launches) >= 8
    if rows > 8 and not how.get("clip"):                        # which reads all gradients before anything is updated
        assert any(task.work.schedule.way == "rows" for _, tasks in launches for task in tasks)
    monkeypatch.setattr(horizontal, "MIN_PARTS", 1 << 30)
    plan.forget()
    single = trained(cuda, rows, **how)
    assert losses == single[0] and bits(fused) == bits(single[1])
    with torch.config.using(executor="reference"):
        torch.testing.assert_close(fused, trained("cpu", rows, **how)[1], rtol=2e-3, atol=2e-4)


def test_what_depends_on_another_comes_after_it(cuda, launches):
    """In-place chains, views that overlap, and one result read by several."""
    for run in range(3):
        a, b, c = (torch.arange(10.0).to(cuda) + k for k in range(3))
        base = torch.zeros(20).to(cuda)
        torch.cuda.synchronize()
        front, back = base[:12], base[8:]
        front += 1
        back *= 3
        front -= a[:2].sum()
        d = a.cumsum(0)
        a *= 2
        e = d * b
        b += 1
        f = c * e
        made = [a, b, c, d, e, f, base]
        assert [t.tolist() for t in made] == [
            [2.0 * i for i in range(10)], [i + 2.0 for i in range(10)], [i + 2.0 for i in range(10)],
            [i * (i + 1) / 2 for i in range(10)], [i * (i + 1) / 2 * (i + 1) for i in range(10)],
            [i * (i + 1) / 2 * (i + 1) * (i + 2) for i in range(10)],
            [0.0] * 8 + [2.0] * 4 + [0.0] * 8], run


@simulated
@pytest.mark.parametrize("races", [True, False])
def test_parts_of_many_kinds_at_once(launches, races):
    """Maps, gathers, rows and columns of all dtypes, side by side, forwards and backwards."""
    with simulating(devices=1, races=races), torch.config.using(executor="native"):
        for _ in range(3):
            found, expected = [], []
            for device, into in (("cuda", found), ("cpu", expected)):
                torch.manual_seed(1)
                x, y = torch.randn(70, 33).to(device), torch.randn(40, 40).double().to(device)
                z, i = torch.randint(0, 9, (50,)).to(device), torch.randint(0, 70, (6,)).to(device)
                torch.cuda.synchronize()
                into += [x * 2, y.t() + 1, z * 3, x[i], x.sum(0), y.sum(1), z.sum(), x.half() + 1, y.amax(0),
                         x[::2, ::3] - 1, (z > 4), x.softmax(1)]
                torch.cuda.synchronize()
            torch.testing.assert_close([t.cpu() for t in found], expected)
    kinds = {task.work.schedule.way for _, tasks in launches for task in tasks}
    assert kinds == {"positions", "rows"} and max(len(tasks) for _, tasks in launches) >= 4


@simulated
@tuned(max_examples=200 if THOROUGH else 20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(("map", "into", "rows", "columns", "part")), st.integers(0, 4),
                          st.integers(0, 4)), min_size=3, max_size=14))
def test_any_tasks_in_a_row(steps):
    """Whatever is read and written, what is put together gives what one after the other does."""
    def run(device):
        held = [(torch.arange(12.0).reshape(3, 4) + k).to(device) for k in range(5)]
        torch.cuda.synchronize()
        for kind, source, target in steps:
            if kind == "map":
                held[target] = held[source] * 0.5 + target
            elif kind == "into":
                held[target].copy_(held[source] + 1)
            elif kind == "rows":
                held[target] = held[target] + held[source].sum(1, keepdim=True)
            elif kind == "columns":
                held[target] = held[target] - held[source].sum(0)
            else:
                held[target][1:, :2] *= held[source][:2, 1:3]
        torch.cuda.synchronize()
        return [t.cpu().tolist() for t in held]

    patch = pytest.MonkeyPatch()
    patch.setattr(program, "RUNS_BEFORE_FUSION", 1)
    patch.setattr(horizontal, "MIN_PARTS", 2)
    try:
        with simulating(devices=1, races=True), torch.config.using(executor="native"):
            assert run("cuda") == run("cpu")
    finally:
        patch.undo()


@simulated
def test_arguments_are_as_many_as_the_version_takes(launches, monkeypatch):
    versions = SimulatedDriver.versions
    monkeypatch.setattr(SimulatedDriver, "versions", lambda self: {**versions(self), "driver": "12.0"})
    with simulating(devices=1), torch.config.using(executor="native"):
        params = [torch.zeros(3).cuda().requires_grad_() for _ in range(70)]
        optimizer = torch.optim.AdamW(params, lr=0.5)
        for _ in range(3):
            for p in params:
                p.grad = torch.ones_like(p)
            optimizer.step()
            torch.cuda.synchronize()
        assert all(p.tolist() == params[0].tolist() for p in params) and params[0].tolist() != [0.0] * 3
    given = [len(launch.slots) + len(launch.ints) + len(launch.numbers) for launch, _ in launches]
    assert len(given) > 1 and max(given) <= 512


@simulated
def test_the_line_of_a_launch_that_fails_is_told(launches, monkeypatch):
    build = horizontal.HorizontalLaunch.__init__

    def too_many(self, tasks):
        build(self, tasks)
        self.block = (4096, 1, 1)

    with simulating(devices=1), torch.config.using(executor="native"):
        parts = [torch.ones(4 + k).cuda() for k in range(3)]
        torch.cuda.synchronize()
        monkeypatch.setattr(horizontal.HorizontalLaunch, "__init__", too_many)
        made = [part * 2 for part in parts]
        torch.cuda.synchronize()
        with pytest.raises(DeviceFailed) as caught:
            made = [part * 2 for part in parts]
            torch.cuda.synchronize()
        assert any("test_horizontal.py" in note for note in caught.value.__notes__)
        del made


@simulated
def test_what_cannot_be_compiled_together_runs_one_by_one(launches, monkeypatch):
    text = horizontal._text
    monkeypatch.setattr(horizontal, "_text", lambda *given: text(*given).replace("int part = 0", "int part = nothing"))
    with simulating(devices=1), torch.config.using(executor="native"):
        parts = [torch.ones(4 + k).cuda() for k in range(3)]
        for run in range(4):
            torch.cuda.synchronize()
            made = [part * 2 for part in parts]
            if run == 1:
                with pytest.warns(UserWarning, match="could not be compiled together") as said:
                    torch.cuda.synchronize()
                assert "nothing" in str(said[0].message)
            assert [t.tolist() for t in made] == [[2.0] * (4 + k) for k in range(3)]


@pytest.mark.skipif(not nvrtc.is_there(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("architecture", ("sm_80", "sm_90"))
@simulated
def test_they_compile_for_gpus(launches, architecture, monkeypatch):
    monkeypatch.setattr(schedule, "LARGE_MAP", 64)
    with simulating(devices=1), torch.config.using(executor="native"):
        trained("cuda", 300, steps=3)
        trained("cuda", 8, steps=3, clip=True)
        stepped(OPTIMIZERS["AdamW"], "cuda", torch.bfloat16, 3)
    sources = list({launch.source for launch, _ in launches})
    assert len(sources) >= 4
    for source in sources:
        nvrtc.compile(code.named(source, horizontal.FUSED_NAME)[1], architecture, code.NVRTC_OPTIONS)
