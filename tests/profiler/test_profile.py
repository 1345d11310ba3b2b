"""Profiles: where time went, whose it was, and that nothing else changes while somebody looks."""
import gzip
import json
import os
import threading
import time

import pytest

import flambeau as torch
from flambeau.base import observers, settings
from flambeau.overrides import TorchFunctionMode
from flambeau.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule
from flambeau.profiler.chrome import as_trace
from flambeau.profiler.model import PARTS
from flambeau.tensor import overrides
from flambeau.trace.planning import plan

from ..cuda.a_gpu import a_gpu
from ..patience import PATIENCE

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True)
def nobody_is_left():
    """Nobody observes afterwards, and calls go the short way again."""
    yield
    assert not observers._observers and not overrides.modes_active and not overrides.calls_observed
    assert not torch.autograd._profiler_enabled()


@pytest.fixture
def native(monkeypatch):
    monkeypatch.setattr(settings, "executor", "native")
    plan._plans.clear()


def small_net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4))


def names(prof):
    return [event.name for event in prof.events()]


# --- time -----------------------------------------------------------------------------------------------------------


def test_parts_are_all_of_the_time(native):
    x = torch.ones(300, 300)
    start = time.perf_counter_ns()
    with profile() as prof:
        inside = time.perf_counter_ns()
        for _ in range(5):
            (x @ x).exp().sum().item()
        time.sleep(0.05)
        inside = time.perf_counter_ns() - inside
    around = time.perf_counter_ns() - start
    seen = prof.profile
    assert inside <= seen.wall <= around
    assert seen.parts.keys() == PARTS.keys() and sum(seen.parts.values()) == seen.wall
    assert all(time_ >= 0 for time_ in seen.parts.values())
    assert seen.parts["python"] >= 50e6                      # asleep: nobody of ours was at work
    assert seen.parts["running"] == sum(step.nanoseconds for step in seen.steps) > 0


def test_rows_are_all_of_the_time_but_the_programs_own(native):
    x = torch.ones(200, 200, requires_grad=True)
    with profile(with_modules=True) as prof:
        net = torch.nn.Linear(200, 50)
        net(x).relu().sum().backward()
    seen = prof.profile
    ours = seen.wall - seen.parts["python"] - seen.parts["observing"] + sum(seen.background.values())
    for by in ("line", "operation", "module"):
        found = sum(row.total for row in seen.rows(by))
        assert abs(found - ours) <= len(seen.steps) * 20, by          # shares are rounded to nanoseconds
    assert abs(sum(row.running for row in seen.rows("kernel")) - seen.parts["running"]) == 0


def test_lines_operations_and_kernels(native):
    x = torch.ones(120, 120)
    torch.cpu.synchronize()
    with profile() as prof:
        y = x @ x
        z = (y * 2).exp()
        z.sum().item()
    seen = prof.profile
    first = test_lines_operations_and_kernels.__code__.co_firstlineno + 4
    rows = {row.name: row for row in seen.rows("line")}
    lines = [f"test_profile.py:{first + i}" for i in range(3)]
    assert set(lines) <= rows.keys() and all(rows[line].running > 0 for line in lines)
    product = next(step for step in seen.steps if step.kind == "library")
    assert product.lines == [lines[0]] and product.flops == 2 * 120 ** 3 and product.nbytes == 2 * 4 * 120 ** 2
    operations = {row.name: row for row in seen.rows("operation")}
    assert [operations[f"aten::{name}"].count for name in ("mm", "mul", "exp", "sum", "item")] == [1] * 5
    assert operations["aten::mm"].running == product.nanoseconds
    text = seen.table("kernel")
    assert "library: gemm" in text and "GB/s" in text.splitlines()[0]


def test_recording_and_running_are_told_apart(native):
    x = torch.ones(400, 400)
    torch.cpu.synchronize()
    with profile() as prof:
        y = x @ x                                            # recorded here
        recorded = observers.clock()
        time.sleep(0.01)
        y.sum().item()                                       # computed here
    call = next(span for span in prof.profile.spans if span.name == "aten::mm")
    steps = [step for step in prof.profile.steps if step.kind == "library"]      # several, where threads share it
    assert call.end <= recorded < steps[0].start and call.running == sum(step.nanoseconds for step in steps)


def test_planning_and_compiling(native):
    x = torch.ones(37, 53)
    torch.cpu.synchronize()
    number = time.perf_counter()                             # code that nobody has compiled before
    with profile() as prof:
        ((x * number).exp() + number).cos().sum(0).tolist()
    kinds = {span.kind for span in prof.profile.spans}
    assert "planning" in kinds and prof.profile.parts["planning"] > 0
    with profile() as prof:
        ((x * number).exp() + number).cos().sum(0).tolist()
    assert prof.profile.parts["planning"] == prof.profile.parts["compiling"] == 0


def test_a_backward_belongs_to_the_lines_and_modules_of_its_forward(native):
    net, x = small_net(), torch.ones(8, 20)
    with profile(with_modules=True) as prof:
        loss = net(x).square().sum()
        loss.backward()
    first = test_a_backward_belongs_to_the_lines_and_modules_of_its_forward.__code__.co_firstlineno + 3
    rows = {row.name: row for row in prof.profile.rows("line")}
    assert rows[f"test_profile.py:{first} (backward)"].running > 0
    modules = {row.name: row for row in prof.profile.rows("module")}
    assert {"Sequential.0", "Sequential.1", "Sequential.2"} <= modules.keys()
    spans = prof.profile.spans
    found = {(span.module, span.backward) for span in spans if span.name == "aten::mm"}
    assert ("Sequential.0", True) in found and ("Sequential.2", True) in found


def test_sums_of_self_times(native):
    net, x = small_net(), torch.ones(8, 20)
    with profile() as prof:
        net(x).sum().backward()
    seen, events = prof.profile, prof.events()
    ours = seen.wall - seen.parts["python"] - seen.parts["observing"]
    assert events.self_cpu_time_total == pytest.approx(ours / 1000, rel=1e-3)
    for event in events:
        inside = sum(child.cpu_time_total for child in event.cpu_children)
        assert event.cpu_time_total == pytest.approx(event.self_cpu_time_total + inside)


# --- what the program says of itself --------------------------------------------------------------------------------


def test_record_function():
    @record_function("twice")
    def twice(n):
        return torch.ones(3) * n if n < 2 else twice(n - 1)

    with profile() as prof:
        with record_function("outer"):
            with record_function("inner"):
                torch.ones(2).sum().item()
        twice(2)
        with pytest.raises(ZeroDivisionError), record_function("fails"):
            1 / 0                                            # noqa: B018
    found = {event.name: event for event in prof.events() if event.is_user_annotation}
    assert found.keys() == {"outer", "inner", "twice", "fails"} and names(prof).count("twice") == 2
    assert found["inner"].cpu_parent is found["outer"]
    assert "aten::sum" in [child.name for child in found["inner"].cpu_children]
    with record_function("nobody looks"):
        pass
    with pytest.raises(TypeError, match="takes a name"):
        record_function(3)


def test_optimizers_and_loaders():
    net = small_net()
    optimizer = torch.optim.Adam(net.parameters())
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 20)), batch_size=4)
    with profile() as prof:
        for x, in data:
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
    assert names(prof).count("Optimizer.step#Adam.step") == 2 and names(prof).count("flambeau::wait for a loader") == 2
    assert prof.profile.parts["waiting"] > 0


def test_schedules():
    seen = []
    plan_ = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=plan_, on_trace_ready=lambda p: seen.append((p.step_num, names(p)))) as prof:
        for step in range(12):
            with record_function(f"mine {step}"):
                torch.ones(3).sum().item()
            prof.step()
    assert [at for at, _ in seen] == [5, 9]
    for (at, found), own in zip(seen, ((3, 4), (7, 8)), strict=True):
        assert [n for n in found if n.startswith("mine")] == [f"mine {i}" for i in own], at
        assert [n for n in found if n.startswith("ProfilerStep")] == [f"ProfilerStep#{i}" for i in own]
    assert prof.current_action is ProfilerAction.NONE


def test_without_a_schedule_steps_are_not_told():
    with profile() as prof:
        for _ in range(3):
            torch.ones(3).sum().item()
            prof.step()
    assert names(prof).count("aten::sum") == 3 and not any("ProfilerStep" in name for name in names(prof))


def test_looking_away():
    with profile() as prof:
        torch.ones(3).sum().item()
        prof.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
        torch.ones(3).prod().item()
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        torch.ones(3).exp().tolist()
    assert {"aten::sum", "aten::exp"} <= set(names(prof)) and "aten::prod" not in names(prof)


# --- tables and files -----------------------------------------------------------------------------------------------


def test_averages_by_shape_and_stack():
    with profile(record_shapes=True, with_stack=True) as prof:
        for n in (2, 2, 5):
            torch.ones(n, 3).exp()
    by_name = {event.key: event for event in prof.key_averages()}
    assert by_name["aten::exp"].count == 3 and by_name["aten::exp"].input_shapes == ""
    by_shape = [event for event in prof.key_averages(group_by_input_shape=True) if event.key == "aten::exp"]
    assert sorted((event.count, str(event.input_shapes)) for event in by_shape) == [(1, "[[5, 3]]"), (2, "[[2, 3]]")]
    by_stack = [event for event in prof.key_averages(group_by_stack_n=1) if event.key == "aten::exp"]
    assert len(by_stack) == 1 and "test_averages_by_shape_and_stack" in by_stack[0].stack[0]
    assert prof.key_averages().total_average().key == "Total"


def test_tables():
    with profile(with_flops=True, profile_memory=True, record_shapes=True) as prof:
        x = torch.ones(64, 64)
        (x @ x).sum().item()
    averages = prof.key_averages()
    text = averages.table(sort_by="self_cpu_time_total", row_limit=3, header="mine", time_unit="ms")
    lines = text.splitlines()
    assert lines[1] == "mine" and lines[3].split("  ")[-2].strip().startswith("Total") and text.count("\n-") == 3
    assert len(lines) == 5 + 3 + 2 and all(line.count("ms") >= 3 for line in lines[5:8])
    mm = next(event for event in averages if event.key == "aten::mm")
    assert mm.flops == 2 * 64 ** 3
    assert len(averages.table(row_limit=-1).splitlines()) == len(averages) + 5
    with pytest.raises(AttributeError, match="no column 'speed'"):
        averages.table(sort_by="speed")
    with pytest.raises(ValueError, match="time_unit is 'h'"):
        averages.table(time_unit="h")
    with pytest.raises(ValueError, match='no table by "colour"|no table by \'colour\''):
        prof.profile.table("colour")


def test_stacks_for_flame_graphs(tmp_path):
    with profile(with_stack=True) as prof:
        (torch.ones(300, 300) @ torch.ones(300, 300)).sum().item()
    prof.export_stacks(tmp_path / "stacks.txt")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert lines and all(line.rsplit(" ", 1)[1].isdigit() and "test_stacks_for_flame_graphs" in line for line in lines)
    with pytest.raises(ValueError, match="metric should be one of"):
        prof.export_stacks(tmp_path / "stacks.txt", "length")


FIELDS = {"X": {"cat", "dur", "args"}, "M": {"args"}, "C": {"args"}, "i": {"s", "cat", "args"}, "s": {"cat", "id"},
          "f": {"cat", "id", "bp"}}                          # of each phase, besides those that all events have
METADATA = {"process_name": "name", "process_labels": "labels", "thread_name": "name"}


def nanoseconds(us):
    """As Perfetto's importer reads a time: cut off to nanoseconds."""
    return int(us * 1000.0)


def check_trace_events(events):
    """The rules of the Trace Event Format, field by field, and of Perfetto's importer, which drops what breaks them."""
    threads, flows = {}, {}
    for event in events:
        phase, where = event["ph"], (event["pid"], event["tid"])
        assert set(event) == {"ph", "name", "pid", "tid", "ts"} | FIELDS[phase]
        assert isinstance(event["name"], str) and event["name"] and isinstance(event.get("cat", ""), str)
        assert all(isinstance(number, int) and 0 <= number < 1 << 32 for number in where)
        assert isinstance(event["ts"], (int, float)) and event["ts"] >= 0
        assert isinstance(event.get("args", {}), dict)
        if phase == "X":
            start = nanoseconds(event["ts"])
            assert event["dur"] >= 0
            threads.setdefault(where, []).append((start, -nanoseconds(event["dur"]), event["name"]))
        elif phase == "M":
            assert isinstance(event["args"][METADATA[event["name"]]], str)
        elif phase == "C":
            assert event["args"] and all(isinstance(n, (int, float)) for n in event["args"].values())
        elif phase == "i":
            assert event["s"] == "t"
        else:
            flows.setdefault((event["cat"], event["id"]), []).append(event)
    for spans in threads.values():                           # complete events of a thread lie in each other, or apart
        stack = []
        for start, length, name in sorted(spans):
            end = start - length
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1], name
            stack.append(end)
    for start, end in flows.values():
        assert (start["ph"], end["ph"], end["bp"]) == ("s", "f", "e") and start["ts"] <= end["ts"]
        for one in (start, end):                             # an arrow stands on a complete event of its thread
            time = nanoseconds(one["ts"])
            assert any(begin <= time <= begin - length for begin, length, _ in threads[one["pid"], one["tid"]])


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_chrome_trace(tmp_path, name, native):
    net, x = small_net(), torch.ones(8, 20)
    with profile(record_shapes=True, profile_memory=True, with_modules=True, with_stack=True) as prof:
        prof.add_metadata("who", 'me "and" you')
        prof.add_metadata_json("numbers", "[1, 2]")
        with record_function("forward"):
            loss = net(x).sum()
        loss.backward()
        loss.item()
        other = threading.Thread(target=lambda: torch.ones(50).exp().sum().item())
        other.start()
        other.join()
    prof.export_chrome_trace(tmp_path / name)
    with (gzip.open if name.endswith("gz") else open)(tmp_path / name, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    assert (trace["who"], trace["numbers"]) == ('me "and" you', [1, 2])
    check_trace_events(trace["traceEvents"])
    titles = {event["name"] for event in trace["traceEvents"]}
    assert {"forward", "aten::addmm", "AddmmBackward0", "flambeau::run", "nn.Module: Linear_0"} <= titles
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    assert kernels and all(event["args"]["lines"] for event in kernels)


@pytest.mark.parametrize("name", ["../me", "/me", "a/../../me"])
def test_a_trace_stays_in_its_folder(tmp_path, name):
    with pytest.raises(ValueError, match="worker_name=.* is not in .*log"):
        torch.profiler.tensorboard_trace_handler(str(tmp_path / "log"), name)


def test_a_trace_handler_writes_files(tmp_path):
    with profile(on_trace_ready=torch.profiler.tensorboard_trace_handler(str(tmp_path / "log"), "me")) as prof:
        torch.ones(3).sum().item()
    found, = (tmp_path / "log").iterdir()
    assert found.name.startswith("me.") and found.name.endswith(".pt.trace.json")
    assert prof.get_trace_id() is None


def test_memory_of_calls_and_its_timeline(tmp_path, native):
    x = torch.ones(256, 256)
    torch.cpu.synchronize()
    before = torch.cpu.memory_allocated()
    with profile(profile_memory=True) as prof:
        y = x @ x
        z = y.exp()
        torch.cpu.synchronize()
        del y
    changes = prof.profile.memory
    assert sum(one.nbytes for one in changes) == torch.cpu.memory_allocated() - before
    assert [one.time for one in changes] == sorted(one.time for one in changes)
    events = {event.key: event for event in prof.key_averages()}
    assert events["aten::exp"].self_cpu_memory_usage == 256 * 256 * 4
    for name in ("t.json", "t.json.gz", "t.raw.json.gz", "t.html"):
        prof.export_memory_timeline(str(tmp_path / name))
    times, sizes = json.loads((tmp_path / "t.json").read_text())
    assert len(times) == len(sizes) and times == sorted(times) and all(len(row) == 9 for row in sizes)
    assert "<svg" in (tmp_path / "t.html").read_text()
    del z
    with profile() as prof:
        torch.ones(2).sum().item()
    with pytest.raises(ValueError, match="profile_memory=True"):
        prof.export_memory_timeline(str(tmp_path / "no.json"))


def test_everything_is_plain_data(native):
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        small_net()(torch.ones(2, 20)).sum().backward()
    found = json.loads(json.dumps(prof.profile.to_dict()))
    assert found["wall"] == prof.profile.wall == sum(found["parts"].values())
    assert {"spans", "steps", "memory", "line", "operation", "kernel", "module", "limits"} <= found.keys()
    assert found["line"][0]["name"] == prof.profile.rows("line")[0].name
    assert "in all" in str(prof.profile)


# --- what may not change --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"with_modules": True, "record_shapes": True, "profile_memory": True}])
def test_a_compiled_step_stays_compiled(options):
    net = small_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    @torch.compile
    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = torch.ones(4, 20)
    losses = [step(x).item() for _ in range(4)]
    before = len(step.recordings)
    with profile(**options) as prof:
        losses += [step(x).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert len(step.recordings) <= before + (1 if options else 0)
    assert prof.profile.steps and not any("observ" in reason for reason in step.reasons)
    compiled = [step_ for step_ in prof.profile.steps if any(share.span is None for share in step_.shares)]
    assert compiled and all(step_.lines for step_ in compiled)


def test_other_threads_are_seen(native):
    meet = threading.Barrier(2)                              # a thread that is gone leaves its number to the next

    def work():
        meet.wait(PATIENCE)
        torch.ones(100, 100).exp().sum().item()
        meet.wait(PATIENCE)

    with profile() as prof:
        others = [threading.Thread(target=work) for _ in range(2)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
    found = {span.thread for span in prof.profile.spans if span.name == "aten::exp"}
    assert len(found) == 2 and prof.profile.thread not in found
    assert prof.profile.background["running"] > 0 and prof.profile.parts["running"] == 0
    assert sum(prof.profile.parts.values()) == prof.profile.wall


def test_profiles_inside_of_each_other():
    with profile() as outer:
        torch.ones(3).sum().item()
        with profile() as inner:
            torch.ones(3).prod().item()
    assert "aten::sum" in names(outer) and "aten::prod" in names(outer)
    assert "aten::sum" not in names(inner) and "aten::prod" in names(inner)


class Names(TorchFunctionMode):
    """Notes the functions that are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def test_modes_and_profiles_beside_each_other():
    """Calls that were remembered while somebody observed are asked about when a mode comes, whoever goes first."""
    def work():
        x = torch.ones(5)
        x.add_(1)
        return (x * 2).exp()

    plain = work().tolist()
    first, mode = profile(), Names()
    first.start()
    work()
    with mode:
        work()
        first.stop()
        before, mode.names = mode.names, []
        assert work().tolist() == plain
    assert [name for name in before if name in ("add_", "mul", "exp")] == ["add_", "mul", "exp"]
    assert [name for name in mode.names if name in ("add_", "mul", "exp")] == ["add_", "mul", "exp"]
    assert [names(first).count(f"aten::{name}") for name in ("add_", "mul", "exp")] == [2, 2, 2]
    with Names() as mode, profile() as second:
        work()
    assert "exp" in mode.names and names(second).count("aten::exp") == 1
    assert work().tolist() == plain


def test_an_error_ends_a_profile_and_stays_what_it_is():
    with pytest.raises(RuntimeError, match="cannot be multiplied"), profile() as prof:
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert "aten::matmul" in names(prof)


def test_what_is_asked_of_a_profile_at_the_wrong_time_or_in_other_words():
    prof = profile()
    for question in (prof.events, prof.key_averages, lambda: prof.export_chrome_trace("never.json")):
        with pytest.raises(AssertionError, match="must be initialized before"):
            question()
    with pytest.raises(AssertionError, match="not running"):
        prof.stop_trace()
    with pytest.raises(TypeError, match="activities holds 'cpu'"):
        profile(activities=["cpu"])
    with pytest.raises(NotImplementedError, match="export_chrome_trace"):
        torch.profiler.ExecutionTraceObserver()
    with pytest.raises(NotImplementedError, match="nsys"):
        torch.autograd.profiler.load_nvprof("file")
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            assert profile(activities=[ProfilerActivity.CUDA]).activities == {ProfilerActivity.CPU}


def test_the_older_interface():
    with torch.autograd.profiler.profile(enabled=False) as prof:
        assert prof is None
    with torch.autograd.profiler.profile(record_shapes=True) as prof:
        assert str(prof) == "<unfinished torch.autograd.profile>" and torch.autograd._profiler_enabled()
        torch.ones(2, 3).sum().item()
    assert "aten::sum" in str(prof) and prof.total_average().count == len(prof.function_events)
    with pytest.raises(RuntimeError, match="not reentrant"):
        prof.__enter__()


class FakeTool:
    """Stands for the modules nvtx and itt: notes what is begun and ended."""

    def __init__(self):
        self.open, self.seen = [], []

    def range_push(self, name):
        self.open.append(name)
        self.seen.append(name)

    def range_pop(self):
        self.open.pop()


@pytest.mark.parametrize("context", ["emit_nvtx", "emit_itt"])
def test_ranges_for_other_tools(monkeypatch, context):
    tool = FakeTool()
    kind = getattr(torch.autograd.profiler, context)
    monkeypatch.setattr(kind, "_tool", lambda self: (tool.range_push, tool.range_pop))
    x = torch.ones(2, 3, requires_grad=True)
    with kind(record_shapes=True):
        (x @ x.T).sum().backward()
        with pytest.raises(RuntimeError):
            x @ x
    assert not tool.open and "flambeau::backward" in tool.seen
    assert any(name.startswith("aten::matmul, sizes = [[2, 3]") for name in tool.seen)


# --- the machine's limits -------------------------------------------------------------------------------------------


def test_limits_are_measured_once_and_kept(tmp_path, monkeypatch):
    from flambeau.profiler import machine
    monkeypatch.setattr(settings, "object_dir", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "_known", {})
    monkeypatch.setattr(machine, "COPIED_BYTES", 1 << 20)
    monkeypatch.setattr(machine, "MATRIX_SIZE", 64)
    assert machine.limit_of("cpu", measure=False) is None
    found = machine.limit_of("cpu")
    assert found.bytes_per_second > 1e6 and found.flops_per_second > 1e6
    monkeypatch.setattr(machine, "_known", {})
    monkeypatch.setattr(machine, "_measured", lambda device: pytest.fail("it is kept"))
    assert machine.limit_of("cpu") == found
    monkeypatch.setattr(machine, "_known", {})
    (tmp_path / "cache" / "machine_limits.json").write_text("{")           # another process was stopped meanwhile
    assert machine.limit_of("cpu", measure=False) is None
    with profile() as prof:
        x = torch.ones(64, 64)
        (x @ x).sum().item()
    prof.profile.limits["cpu"] = found
    row = next(row for row in prof.profile.rows("operation") if row.name == "aten::mm")
    assert row.limit_share > 0 and "of limit" in prof.profile.table("operation")


# --- other processes, other devices ---------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_child_is_no_part_of_a_profile():
    with profile(profile_memory=True) as prof:
        torch.ones(3).sum().item()
        child = os.fork()
        if not child:
            fine = observers.called is None and not overrides.calls_observed and torch.ones(3).sum().item() == 3
            os._exit(0 if fine else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        torch.ones(3).exp().tolist()
    assert {"aten::sum", "aten::exp"} <= set(names(prof))


def test_on_a_gpu():
    with a_gpu():
        assert torch.profiler.supported_activities() == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
        x = torch.ones(64, 64, device="cuda")
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        with profile(profile_memory=True) as prof:
            y = x @ x
            y.exp().sum().item()
            torch.cuda.synchronize()
        seen = prof.profile
        assert {step.device for step in seen.steps} == {"cuda:0"}
        assert sum(seen.parts.values()) == seen.wall and seen.parts["copying"] > 0 and seen.parts["waiting"] > 0
        averages = {event.key: event for event in prof.key_averages()}
        assert averages["aten::mm"].self_device_time_total > 0 and averages["Memcpy DtoH"].count == 1
        kernels = sum(event.self_device_time_total for event in prof.events() if event.device_type.name == "CUDA")
        assert kernels == pytest.approx(sum(step.nanoseconds for step in seen.steps) / 1000)
        text = prof.key_averages().table(sort_by="self_cuda_time_total")
        assert "Self CUDA %" in text and "Self CUDA time total" in text and "CUDA Mem" in text
        change = sum(one.nbytes for one in seen.memory if one.device == "cuda:0")
        assert change == torch.cuda.memory_allocated() - before
        check_trace_events(as_trace(seen)["traceEvents"])
