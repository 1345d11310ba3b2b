"""Doctor, watch, memory, profiler, report and the demo, on NVIDIA's GPU where there is one; otherwise on a simulated
one, and what is a process of its own is skipped."""
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as torch
from flambeau import memory
from flambeau.profiler import ProfilerActivity, profile
from tests.patience import PATIENCE
from tests.reporting.test_report import data_of
from tests.thorough import THOROUGH, sample
from tests.watch.cases import CASES, COPPER, TRAINING, Case
from tests.watch.conftest import marked, nothing_found, run  # noqa: F401  (fixtures)

from .a_gpu import REAL, a_gpu, on_a_real_gpu

pytestmark = pytest.mark.pinned
real_or_thorough = pytest.mark.skipif(not (REAL or THOROUGH), reason="takes ten seconds where the GPU is simulated: "
                                      "FLAMBEAU_TEST_THOROUGH=1 runs it")
ROOT = Path(torch.__file__).parents[1]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def gpu():
    with a_gpu():
        yield


def command(*arguments, **variables):
    """What `python …` does in a process of its own."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, encoding="utf-8",
                          timeout=PATIENCE, env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8",
                                                 **variables})


# --- the doctor -------------------------------------------------------------------------------------------------------


@on_a_real_gpu
def test_the_doctor_finds_the_gpu_and_that_it_computes():
    done = command("-m", "flambeau", "doctor", "--expect", "cuda", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert seen["ok"] and seen["expected"] == {"devices": ["cuda"], "missing": {}} and not seen["cuda"]["broken"]
    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    assert [found["device"] for found in seen["checks"]] == ["cpu", *names]
    assert not any(found["error"] or found["wrong"] for found in seen["checks"])
    assert [found["device"] for found in seen["cuda"]["gpus"]] == names
    first, known = seen["cuda"]["gpus"][0], torch.cuda.get_device_properties(0)
    assert first["name"] == known.name and first["capability"] == f"{known.major}.{known.minor}"
    assert 0 < first["free"] <= first["total"] == torch.cuda.mem_get_info()[1]
    done = command("-m", "flambeau", "doctor", "--expect", "cuda")
    assert done.returncode == 0 and "cuda can be used" in done.stdout and known.name in done.stdout


@on_a_real_gpu
@pytest.mark.parametrize("expected, visible, words", [
    ("cuda:99", None, "cuda:99 is expected"), ("cuda", "", "CUDA_VISIBLE_DEVICES is ''"),
    ("cuda:0,cuda:99", None, "cuda:99 is expected")])
def test_the_doctor_stops_a_job_whose_gpu_is_not_there(expected, visible, words):
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    done = command("-m", "flambeau", "doctor", "--quick", "--expect", expected, **variables)
    assert done.returncode == 1 and words in " ".join(done.stdout.split()), done.stdout + done.stderr
    done = command("-c", "import flambeau; print('went on')", FLAMBEAU_EXPECT_DEVICE=expected, **variables)
    assert done.returncode != 0 and "is expected" in done.stderr and "went on" not in done.stdout


@on_a_real_gpu
def test_a_job_whose_gpu_is_there_goes_on():
    done = command("-c", "import flambeau; print(flambeau.expect('cuda:0'))", FLAMBEAU_EXPECT_DEVICE="cuda")
    assert done.stdout == "cuda:0\n", done.stderr


# --- watch ------------------------------------------------------------------------------------------------------------

# The loss is looked at behind its backward and the write to the parameters, and on a GPU nothing is held until then.
LOOKED_AT_LATE = "by hand, and nobody looks but at the end"


def on_gpu(source):
    """A program of cases.py for the GPU: all that it makes lies there, or what it puts on its second device."""
    if COPPER in source:
        return source.replace(COPPER, "").replace("copper", "cuda")
    return "torch.set_default_device('cuda')\n" + source


def gpu_case(case):
    """A case on the GPU, where the free part does not look at a step: it would wait."""
    return case._replace(mistake=on_gpu(case.mistake), twin=on_gpu(case.twin),
                         full=case.full or case.name == "non-finite")


OF_DEVICES = [gpu_case(case) for case in CASES if COPPER in case.mistake]
OTHERS = [gpu_case(case) for case in CASES if case.on_gpu and COPPER not in case.mistake]
OF_DEVICES.append(Case("synchronisation", on_gpu(TRAINING + """
for i in range(25):
    loss = ((net(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if loss > 1e9:                      # found
        break
"""), on_gpu(TRAINING + """
for i in range(25):
    loss = ((net(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 5 == 4 and loss > 1e9:
        break
"""), full=True))
SHOWN_CASES = [*(OTHERS if REAL else sample(OTHERS, 12)), *OF_DEVICES]


@pytest.fixture(autouse=True)
def default_device():
    yield
    torch.set_default_device(None)


@pytest.mark.parametrize("case", SHOWN_CASES, ids=[f"{case.name}-{n}" for n, case in enumerate(SHOWN_CASES)])
def test_a_mistake_is_found_at_its_line_and_its_twin_is_silent(run, case):  # noqa: F811
    found = run(case.mistake, case.full)
    assert [f.name for f in found] == [case.name], [str(f) for f in found]
    assert found[0].lineno == marked(case.mistake, "found") or LOOKED_AT_LATE in case.mistake, str(found[0])
    torch.set_default_device(None)
    assert [str(f) for f in run(case.twin, full=True)] == []


def test_bytes_of_a_transfer_are_counted_by_line(run):  # noqa: F811
    (found,) = run("""
table = torch.ones(1000, 25)
for i in range(8):
    there = table.to("cuda")
    back = there.cpu()
""", full=True)
    assert (found.name, found.lineno) == ("transfer", 4) and "500,000 bytes so far" in found.cost
    assert "from cpu to cuda:0 5 times" in found.text


# --- memory -----------------------------------------------------------------------------------------------------------


def trained(rounds=3):
    """(a net on the GPU, its optimizer, a function for one step of its training that gives the loss)."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1)).to("cuda")
    optimizer = torch.optim.Adam(net.parameters())
    x, y = torch.randn(32, 64).to("cuda"), torch.randn(32, 1).to("cuda")

    def step():
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    for _ in range(rounds):
        step().item()
    return net, optimizer, step


@real_or_thorough
def test_memory_by_line_role_and_module():
    net, optimizer, step = trained()
    kept = torch.ones(MIB >> 2, device="cuda") * 2
    line = inspect.currentframe().f_lineno - 1
    torch.cuda.synchronize()
    found = memory.snapshot("cuda:0", keepers=100)["cuda:0"]
    assert found.allocated == torch.cuda.memory_allocated()
    assert sum(found.by_role().values()) == found.allocated + found.outside
    parameters = sum(p.nbytes for p in net.parameters())
    used = {role: sum(one.used for one in found.holdings if one.role == role) for role in found.by_role()}
    assert used["parameters"] >= parameters and used["gradients"] >= parameters
    assert used["optimizer state"] >= 2 * parameters
    (here,) = [one for one in found.holdings if one.line == f"test_observing.py:{line}"]
    assert here.kind == "float32[262144]" and here.used == MIB and any("kept" in word for word in here.keepers)
    assert {"net.0", "net.2"} <= {tally.name for tally in found.by_module()}
    text = memory.summary("cuda:0")
    assert f"test_observing.py:{line}" in text and "optimizer state" in text
    assert optimizer.state and kept.numel() and step is not None


@real_or_thorough
def test_the_peak_is_the_allocators():
    net, optimizer, step = trained()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    with memory.record() as seen:
        step().item()
    peak = seen.peaks["cuda:0"]
    assert peak.nbytes == torch.cuda.max_memory_allocated()
    assert sum(peak.roles.values()) == peak.nbytes + peak.outside
    assert any(tally.name.startswith("test_observing.py:") for tally in peak.lines)
    assert net is not None and optimizer is not None


@real_or_thorough
def test_out_of_memory_says_who_holds_it():
    held = torch.ones(MIB >> 2, device="cuda") + 1
    line = inspect.currentframe().f_lineno - 1
    torch.cuda.synchronize()
    total = torch.cuda.get_device_properties(0).total_memory
    with pytest.raises(torch.OutOfMemoryError) as got:
        torch.ones(total // 4, device="cuda").data_ptr()
    text = str(got.value)
    assert text.startswith("CUDA out of memory. Tried to allocate") and "GPU 0 has a total capacity of" in text
    assert "The lines that hold most memory:" in text and f"test_observing.py:{line}" in text
    assert "that tensors hold: parameters" in text and f"test_observing.py:{line + 5}" in text
    del got
    assert held.sum().item() == MIB >> 1


# --- time -------------------------------------------------------------------------------------------------------------


@real_or_thorough
def test_the_profiler_tells_the_gpus_time_from_the_programs(tmp_path):
    net, optimizer, step = trained()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_modules=True) as prof:
        for _ in range(3):
            step().item()
    seen = prof.profile
    assert "cuda:0" in {one.device for one in seen.steps} and all(one.nanoseconds >= 0 for one in seen.steps)
    assert sum(seen.parts.values()) == seen.wall and seen.parts["copying"] > 0
    rows = {row.name: row for row in seen.rows("operation")}
    assert rows["aten::addmm"].count == 6
    averages = {event.key: event for event in prof.key_averages()}
    assert averages["Memcpy DtoH"].count == 3
    assert sum(event.self_device_time_total for event in averages.values()) > 0
    assert any(row.name.startswith("test_observing.py:") for row in seen.rows("line"))
    assert seen.rows("module") and seen.rows("kernel")
    assert "Self CUDA time total" in prof.key_averages().table(sort_by="self_cuda_time_total")
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    kinds = {event.get("cat") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert "kernel" in kinds, kinds
    assert net is not None and optimizer is not None


@on_a_real_gpu
def test_the_profilers_clocks_are_those_of_cudas_events():
    x = torch.randn(4096, 4096, device="cuda")
    (x @ x).sum().item()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    by_events = []
    for _ in range(5):
        start.record()
        y = x @ x
        end.record()
        torch.cuda.synchronize()
        by_events.append(start.elapsed_time(end))
    with profile() as prof:
        for _ in range(5):
            y = x @ x
            torch.cuda.synchronize()
    by_profiler = min(one.nanoseconds for one in prof.profile.steps) / 1e6
    assert 0.3 < by_profiler / min(by_events) < 3 and y.numel(), (by_profiler, by_events)


# --- the report, and the demo -----------------------------------------------------------------------------------------


@real_or_thorough
def test_a_report(tmp_path):
    net, optimizer, step = trained()
    losses = []
    with torch.report(tmp_path / "run.html", warmup=1, steps=2) as report:
        for _ in range(6):
            losses.append(step().item())
    found = data_of(report.path)
    assert found["error"] is None and found["steps"] == 6
    (curve,) = [one["points"] for one in found["curves"] if one["name"] == "loss"]
    assert [point[2] for point in curve] == pytest.approx(losses)
    devices = {one["device"]: one for one in found["placement"]["devices"]}
    assert devices["cuda:0"]["parameters"] >= sum(p.nbytes for p in net.parameters())
    assert devices["cuda:0"]["share"] > 0.5 and found["kernels"] and found["lines"]
    peaks = {one["device"]: one for one in found["memory"]}
    assert peaks["cuda:0"]["peak"] > 0 and "parameters" in peaks["cuda:0"]["roles"] and peaks["cuda:0"]["alive"]
    assert optimizer.state


@on_a_real_gpu
def test_the_demo(tmp_path):
    done = command(ROOT / "examples" / "demo.py", "--device", "cuda", "--rows", 12000, "--epochs", 3, "--out", tmp_path,
                   FLAMBEAU_WATCH="strict")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "parameters on cuda" in done.stdout
    last = done.stdout.splitlines()[-1]
    page = last.partition("The report: ")[2]
    assert page == str((tmp_path / "report.html").resolve())
    devices = {one["device"]: one for one in data_of(page)["placement"]["devices"]}
    assert devices["cuda:0"]["parameters"] > 0 and not data_of(page)["findings"]
