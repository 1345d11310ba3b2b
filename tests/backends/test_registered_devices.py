"""Public calls that ask about devices, with devices registered that are none of PyTorch's: a plain one, and one that
compiles. Where PyTorch has a rule for a device that another package adds, it is PyTorch's."""
import io
import sys
import types

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.backends import Backend, devices, register
from flambeau.profiler import ProfilerActivity, supported_activities

from .toy import ToyBackend, abacus

pytestmark = [pytest.mark.pinned, pytest.mark.usefixtures("no_registered_accelerator")]
REGISTERED = abacus.AbacusBackend, ToyBackend


@pytest.fixture(params=["toy", "abacus"])
def kind(request, monkeypatch):
    """The type of the accelerator."""
    monkeypatch.setattr(devices, "accelerators", [request.param, "cuda"])
    yield request.param
    devices.types[request.param].choose(0)


@pytest.fixture
def device(kind):
    return torch.device(kind, 0)


# --- torch.accelerator ----------------------------------------------------------------------------------------------


def test_which_accelerator(kind, device):
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 2
    assert torch.accelerator.current_accelerator() == torch.device(kind)
    assert torch._C._get_accelerator() == torch.device(kind) and torch._C._get_privateuse1_backend_name() == kind
    assert torch.device(1) == torch.device(kind, 1) and torch.ones(2).to(1).device == torch.device(kind, 1)


def test_the_current_device(kind):
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(1)
    assert torch.accelerator.current_device_index() == 1 and torch.ones(2, device=kind).device.index == 1
    with torch.accelerator.device_index(0):
        assert torch.ones(2, device=kind).device.index == 0
    torch.accelerator.set_device_index(f"{kind}:0")
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(-3)
    with pytest.raises(ValueError, match=f"cpu doesn't match the current accelerator {kind}"):
        torch.accelerator.set_device_index("cpu")
    with pytest.raises(RuntimeError, match="no toy:2"):              # the device's own words
        torch.accelerator.set_device_index(2)


def test_synchronize_runs_what_is_recorded(kind, device, monkeypatch):
    torch.ones(1, device=device)
    waited = []
    monkeypatch.setattr(device.backend, "synchronize", lambda: waited.append(device), raising=False)
    torch.accelerator.synchronize()
    torch.accelerator.synchronize(device)
    torch.accelerator.synchronize(0)
    assert waited == [device] * 3
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]


def test_memory_of_an_accelerator(kind, device, monkeypatch):
    """One that says nothing has nothing; one that says something is heard."""
    accelerator = torch.accelerator
    torch.ones(1, device=device)
    assert accelerator.memory_allocated() == accelerator.max_memory_reserved(device) == 0
    assert accelerator.memory_stats() == {}
    accelerator.reset_peak_memory_stats()
    accelerator.empty_cache()
    with pytest.raises(RuntimeError, match=f"{kind}:0 does not say how much memory it has"):
        accelerator.get_memory_info()
    monkeypatch.setattr(type(device.backend), "statistics", lambda self: {"allocated_bytes.all.current": 40})
    monkeypatch.setattr(type(device.backend), "memory_info", lambda self: (60, 100))
    assert accelerator.memory_allocated() == 40 and accelerator.get_memory_info(0) == (60, 100)


def test_the_last_that_was_registered_goes_first(monkeypatch):
    assert torch.accelerator.current_accelerator() is None
    monkeypatch.setattr(devices, "types", dict(devices.types))
    there = [False]
    register("box", ToyBackend, absence=lambda: None if there[0] else RuntimeError("the box is shut"))
    try:
        assert not torch.accelerator.is_available()
        with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is available"):
            torch.accelerator.synchronize()
        there[0] = True
        assert torch.accelerator.current_accelerator() == torch.device("box")
        register("crate", ToyBackend)
        assert torch.accelerator.current_accelerator() == torch.device("crate")
        register("box", ToyBackend)
        assert torch.accelerator.current_accelerator() == torch.device("box")
    finally:
        for kind in ("box", "crate"):
            torch.base.spec.openers.pop(kind, None)


# --- streams --------------------------------------------------------------------------------------------------------


def test_streams_of_a_device_that_works_in_order(kind, device):
    """As on the CPU: one stream, which is the current one, and no events."""
    stream = torch.Stream(device)
    assert stream == torch.accelerator.current_stream() == torch.Stream()
    assert (stream.device, stream.device_index, stream.device_type, stream.stream_id) == (device, 0, 20, 0)
    assert torch.Stream(stream_id=0, device_index=0, device_type=20) == stream and hash(stream) == hash(torch.Stream())
    with torch.Stream(f"{kind}:1"):
        assert torch.accelerator.current_device_index() == 1
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_stream(stream)
    stream.synchronize()
    assert stream.query()
    event = torch.Event(device)
    assert event.device == device and event.query() and repr(event).startswith(f"torch.Event device_type={kind}")
    event.synchronize()
    for refused in (stream.record_event, event.record, lambda: stream.wait_stream(stream)):
        with pytest.raises(RuntimeError, match=f"{kind} backend doesn't support events"):
            refused()
    x = torch.ones(2, device=device)
    x.record_stream(stream)


class Marked:
    """A stream or event that notes what is done with it."""

    def __init__(self, log, handle):
        self.log, self.handle = log, handle

    def __getattr__(self, name):
        return lambda *args: self.log.append((name, *(a.handle for a in args))) or (1.5 if name == "elapsed" else True)


class StreamsBackend(ToyBackend):
    """One that has streams."""

    streams = True

    def __init__(self, index):
        super().__init__(index)
        self.told: list = []
        self.default = self.used = Marked(self.told, 0)

    def new_stream(self, priority=0):
        return Marked(self.told, 5 + priority)

    def current_stream(self):
        return self.used

    def default_stream(self):
        return self.default

    def use_stream(self, stream):
        self.used = stream

    def event(self, timed=False, blocking=False):
        return Marked(self.told, 9)


def test_streams_of_a_device_that_has_them(monkeypatch):
    monkeypatch.setattr(devices, "types", dict(devices.types))
    register("river", StreamsBackend)
    stream = torch.Stream("river", priority=1)
    backend = stream.device.backend
    assert stream.stream_id == 6 and torch.Stream(stream_id=6, device_index=0, device_type=20) == stream
    with stream:
        assert torch.accelerator.current_stream() == stream
        start, end = torch.Event(enable_timing=True), torch.Event("river", enable_timing=True)
        start.record()
        end.record(stream)
    assert torch.accelerator.current_stream().stream_id == 0 and backend.told == [("record", 6), ("record", 6)]
    assert start.elapsed_time(end) == 1.5 and start.event_id == 9
    torch.accelerator.current_stream().wait_event(end)
    stream.synchronize()
    assert backend.told[-2:] == [("wait", 9), ("synchronize",)]


# --- autocast and its scaler ----------------------------------------------------------------------------------------


def test_autocast(kind, device):
    a = torch.ones(2, 3, device=device)
    assert torch.amp.is_autocast_available(kind) and torch.get_autocast_dtype(kind) is torch.float16
    with torch.autocast(kind):
        assert torch.is_autocast_enabled(kind) and not torch.is_autocast_enabled("cpu")
        assert (a @ a.t()).dtype is torch.float16 and a.sum().dtype is a.exp().dtype is torch.float32
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32          # the CPU is not meant
    with torch.autocast(device_type=kind, dtype=torch.bfloat16):
        out = nn.Linear(3, 2).to(device)(a)
        assert out.dtype is torch.bfloat16
        with torch.autocast(kind, enabled=False):
            assert (a @ a.t()).dtype is torch.float32
    with pytest.warns(UserWarning, match=f"In {kind} autocast, but the target dtype is not supported"):
        assert not torch.autocast(kind, dtype=torch.float64)._enabled
    assert (a @ a.t()).dtype is torch.float32


def test_grad_scaler(kind, device):
    scaler = torch.amp.GradScaler(kind, init_scale=4.0)
    weight = nn.Parameter(torch.ones(2, device=device))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler.scale(weight.sum()).backward()
    assert scaler.is_enabled() and weight.grad.tolist() == [4, 4]
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.5, 0.5]


# --- random numbers -------------------------------------------------------------------------------------------------


def test_generators(kind, device):
    made = torch.Generator(device=kind).manual_seed(3)
    assert made.device == device and made.clone_state().device == device
    drawn = torch.rand(3, device=device, generator=made)
    assert drawn.device == device and drawn.tolist() == torch.rand(3, generator=torch.manual_seed(3)).tolist()
    with pytest.raises(RuntimeError, match=f"Expected a 'cpu' device type for generator but found '{kind}'"):
        torch.rand(3, generator=made)


def test_fork_rng(kind, device):
    with torch.random.fork_rng(devices=[0], device_type=kind):
        first = torch.rand(2, device=device).tolist()
    assert torch.rand(2, device=device).tolist() == first
    with pytest.raises(RuntimeError, match="device type at start of device string: bogus"), \
            torch.random.fork_rng(device_type="bogus"):
        pass


# --- memory ---------------------------------------------------------------------------------------------------------


def test_pinned_memory_is_for_devices_that_copy_by_themselves(kind, device):
    for refused in (torch.ones(3).pin_memory, lambda: torch.ones(3).pin_memory(device),
                    lambda: torch.ones(3, pin_memory=True)):
        with pytest.raises(RuntimeError, match=f"pinned memory speeds up copies to a device, and {kind}:0 has none"):
            refused()
    with pytest.warns(UserWarning, match=f"not supported on {kind.upper()} now"):      # as PyTorch says it of MPS
        batches = list(torch.utils.data.DataLoader(torch.ones(4), batch_size=2, pin_memory=True))
    assert [batch.is_pinned() for batch in batches] == [False, False]


def test_memory_reports(kind, device):
    from flambeau import memory
    held = torch.ones(300, device=device) + 1
    held.tolist()
    found = {one.device: one for one in memory.snapshot().devices}
    assert {"cpu", str(device)} <= found.keys()
    assert any(one.used == 1200 for one in found[str(device)].holdings)
    assert str(device) in memory.summary() and memory.summary(device).startswith(f"{device}: ")
    guess = memory.estimate(lambda n: torch.ones(n, 10, device=device).sum().item())
    assert guess.device == str(device)


# --- looking on -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"profile_memory": True, "record_shapes": True, "with_modules": True}])
def test_profiler(kind, device, more):
    assert supported_activities() == {ProfilerActivity.CPU, ProfilerActivity.PrivateUse1}
    with torch.profiler.profile(**more) as seen:
        (torch.ones(300, device=device) * 2).exp().sum().tolist()
    assert seen.use_device == kind and any(step.device == str(device) for step in seen.profile.steps)
    averages = seen.key_averages()
    assert sum(one.device_time_total for one in averages) > 0
    assert {one.device_type.name for one in seen.events()} == {"CPU", "PrivateUse1"}
    assert f"Self {kind.upper()} time total" in averages.table() and "exp" in str(seen.profile)
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as seen:
        pass
    assert seen.use_device is None
    assert torch.autograd.profiler.profile(use_device=kind).use_device == kind


def test_benchmark_timer_waits(kind, device, monkeypatch):
    x = torch.ones(3, device=device)
    waited = []
    monkeypatch.setattr(device.backend, "synchronize", lambda: waited.append(device), raising=False)
    assert torch.utils.benchmark.Timer("x + 1", globals={"x": x}).timeit(2).median > 0
    assert waited


def test_watch_sees_that_it_idles(kind):
    model = nn.Linear(400, 400)
    torch.watch.clear()
    said = f"(?s)there is a {kind.upper()} device.*model.to\\('{kind}'\\)"
    with torch.watch(), pytest.warns(UserWarning, match=said):
        torch.optim.SGD(model.parameters(), lr=0.1).step()


def test_expect(kind):
    assert torch.expect(kind) == torch.device(kind) and torch.expect(f"cpu,{kind}:1") == torch.device("cpu")
    with pytest.raises(RuntimeError, match=f"the 2 devices are {kind}:0 to {kind}:1"):
        torch.expect(f"{kind}:7")
    with pytest.raises(ValueError, match="expect"):
        torch.expect("nothing")


def test_doctor_and_info(kind, device):
    from flambeau.cli.info import report
    seen = torch.doctor(kind)
    assert {one["device"]: one["correct"] for one in seen.checks} == {
        "cpu": True, f"{kind}:0": True, f"{kind}:1": True}
    assert [one["device"] for one in seen.devices] == [f"{kind}:0", f"{kind}:1"] and f"{kind}:1" in repr(seen)
    assert seen.as_dict()["devices"] == {kind: 2} and seen.ok
    assert f"2 {kind}" in report()


# --- moving and keeping ---------------------------------------------------------------------------------------------


def test_moving(kind, device):
    assert torch.ones(2).to(kind).device == torch.empty(0, device=kind).device == device
    assert nn.Linear(2, 2).to(kind).weight.device == device and torch.ones(2, device=device).cpu().tolist() == [1, 1]
    assert torch.ones(2).type(f"torch.{kind}.DoubleTensor").device == device
    x = torch.ones(2, device=device)
    assert x.type() == f"torch.{kind}.FloatTensor" and not x.is_cuda and not x.is_cpu and x.get_device() == 0
    assert f"({device})" in repr(nn.ParameterList([x]))                # as PyTorch prints it
    torch.set_default_device(kind)
    try:
        assert torch.get_default_device().type == kind and torch.ones(2).device == device
    finally:
        torch.set_default_device(None)


def test_files(kind, device, tmp_path):
    from flambeau.safetensors import load_file, save_file
    file = io.BytesIO()
    x = torch.arange(3.0, device=device)
    torch.save(x, file)
    for where, expected in ((None, device), ("cpu", torch.device("cpu")), (f"{kind}:1", torch.device(kind, 1)),
                            (torch.device(kind), device), ({str(device): "cpu"}, torch.device("cpu"))):
        file.seek(0)
        found = torch.load(file, map_location=where)
        assert found.device == expected and found.tolist() == [0, 1, 2]
    assert torch.serialization.location_tag(x.untyped_storage()) == str(device)
    save_file({"x": x}, tmp_path / "x.safetensors")
    assert load_file(tmp_path / "x.safetensors", device=kind)["x"].device == device


def test_the_module_of_a_device(kind, monkeypatch):
    """As in PyTorch, there is one once it is registered."""
    with pytest.raises(RuntimeError, match=f"does not have a corresponding module registered as 'torch.{kind}'"):
        torch.get_device_module(kind)
    module = types.ModuleType(kind)
    torch._register_device_module(kind, module)
    try:
        assert torch.get_device_module(kind) is torch.get_device_module() is getattr(torch, kind) is module
        with pytest.raises(RuntimeError, match="has already been registered"):
            torch._register_device_module(kind, module)
    finally:
        delattr(torch, kind)
        sys.modules.pop(f"{torch.__name__}.{kind}")


def test_what_a_backend_says_unless_it_says_otherwise():
    backend = Backend()
    assert not backend.streams and not backend.copies_ahead and backend.autocast_dtypes[0] is torch.float16
    assert backend.statistics() == {} and backend.memory_info() is backend.capability is None
    for refused in (backend.new_stream, backend.current_stream, backend.default_stream, backend.event):
        with pytest.raises(NotImplementedError, match=r"Backend has no (streams|events)"):
            refused()
