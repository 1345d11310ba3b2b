"""flambeau.memory: bytes are the allocators' own, each has a line, a role and a name, and estimates come true."""
import gc
import json
import pickle

import pytest
from hypothesis import given, settings as tuned, strategies as st

import flambeau as torch
from flambeau import memory
from flambeau.base import observers, settings, spec as specs
from flambeau.base.op import known
from flambeau.tensor import infer
from flambeau.trace.planning import plan
from flambeau.trace.recording import update
from flambeau.trace.running import interpret

from .cuda.a_gpu import a_gpu
from .thorough import THOROUGH

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True)
def nobody_is_left():
    yield
    assert not observers._observers


@pytest.fixture
def native(monkeypatch):
    monkeypatch.setattr(settings, "executor", "native")
    plan._plans.clear()
    gc.collect()


@pytest.fixture(params=["cpu", "cuda"])
def device(request, native):
    """The CPU, and a GPU."""
    if request.param == "cpu":
        yield "cpu"
    else:
        with a_gpu():
            yield "cuda:0"


def allocated(device):
    return (torch.cpu if device == "cpu" else torch.cuda).memory_allocated()


def most_allocated(device):
    return (torch.cpu if device == "cpu" else torch.cuda).max_memory_allocated()


def reset_peak(device):
    (torch.cpu if device == "cpu" else torch.cuda).reset_peak_memory_stats()


def trained(device, width=64):
    """(a model whose memory is the allocator's, a training step on `n` samples)."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.Tanh(), torch.nn.Linear(2 * width, 3))
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())

    def step(n):
        optimizer.zero_grad()
        loss = model(torch.ones(n, width, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()
    for _ in range(2):
        step(8)
    return model, optimizer, step


def test_a_snapshot_is_all_that_the_allocator_gave(device):
    model, optimizer, step = trained(device)
    found = memory.snapshot(device)[device]
    assert found.allocated == allocated(device)
    inside = [one for one in found.holdings if not one.outside]
    assert sum(one.nbytes for one in inside) <= found.allocated
    assert sum(found.by_role().values()) == found.allocated + found.outside
    assert found.by_role()["no tensor"] >= 0 and all(one.used <= one.nbytes for one in found.holdings)
    addresses = [one.address for one in inside]
    assert len(set(addresses)) == len(addresses) and all(addresses)
    assert model is not None and optimizer is not None and step is not None


def used_by_role(device):
    here = memory.snapshot(device)[device]
    return {role: sum(one.used for one in here.holdings if one.role == role) for role in here.by_role()}


def test_roles(device):
    before = used_by_role(device)                            # what other tests have left
    model, optimizer, step = trained(device)
    parameters = sum(p.nbytes for p in model.parameters())
    kept = model(torch.ones(5, 64, device=device)).sum()
    kept.item()
    used = {role: nbytes - before[role] for role, nbytes in used_by_role(device).items()}
    assert used["parameters"] == used["gradients"] == parameters
    assert 2 * parameters <= used["optimizer state"] <= 2 * parameters + 256        # and its clocks
    assert used["graph"] >= 5 * 128 * 4                      # what tanh waits with
    assert kept.requires_grad and optimizer.state


def test_names_lines_and_keepers(native):
    gc.freeze()                   # what other tests have left is not gone through for every tensor that is asked about
    model, optimizer, _ = trained("cpu")
    history = [torch.ones(1000) * n for n in range(3)]
    line = test_names_lines_and_keepers.__code__.co_firstlineno + 3
    waits = (torch.ones(777, requires_grad=True) * 2).exp()
    torch.cpu.synchronize()
    found = memory.snapshot("cpu", keepers=100)["cpu"]
    held = [one for one in found.holdings if one.line == f"test_memory.py:{line}"]
    assert [one.kind for one in held] == ["float32[1000]"] * 3
    words = {word.split(" in ")[0] for one in held for word in one.keepers}
    assert {"history[0]", "history[1]", "history[2]"} <= words
    names = {one.name: one for one in found.holdings}
    assert names["model.0.weight"].module == "model.0" and names["model.0.weight"].role == "parameters"
    grads = [word for one in found.holdings if one.role == "gradients" for word in one.keepers]
    assert "model.2.weight.grad" in grads
    states = [word for one in found.holdings if one.role == "optimizer state" for word in one.keepers]
    assert any(word.startswith("optimizer.state[model.0.weight].exp_avg") for word in states)
    assert any("MulBackward0" in word or "ExpBackward0" in word for word in memory.why_alive(waits))
    assert {tally.name for tally in found.by_module()} >= {"model.0", "model.2"}
    text = memory.summary("cpu")
    assert "parameters" in text and "model.0" in text and f"test_memory.py:{line}" in text
    assert history and optimizer


def test_the_largest_tensors_come_first(native):
    kept = [torch.ones(n) * 2 for n in (10, 100_000, 5_000)]
    torch.cpu.synchronize()
    found = memory.tensors("cpu", limit=2)
    assert [one.nbytes for one in found] == sorted((one.nbytes for one in found), reverse=True)
    assert found[0].kind == "float32[100000]" and "kept[1]" in found[0].keepers[0]
    assert len(kept) == 3


# --- recording ------------------------------------------------------------------------------------------------------


def test_a_peak_is_the_allocators_peak(device):
    model, _, step = trained(device)
    for n in (16, 64):
        step(n)
        reset_peak(device)
        with memory.record() as seen:
            step(n)
        peak = seen.peaks[device]
        assert peak.nbytes == most_allocated(device), n
        assert sum(peak.roles.values()) == peak.nbytes + peak.outside
        assert sum(tally.nbytes for tally in peak.lines) + peak.roles["no tensor"] == peak.nbytes + peak.outside
    assert "at most" in str(seen) and model is not None


def test_events_add_up_to_what_is_allocated(device):
    _, _, step = trained(device)
    before = allocated(device)
    with memory.record() as seen:
        step(32)
        kept = torch.ones(1000, device=device) * 3
    here = [one for one in seen.events if one.device == device]
    assert sum(one.nbytes for one in here) == allocated(device) - before
    assert [one.time for one in here] == sorted(one.time for one in here)
    assert any(one.nbytes > 0 for one in here) and any(one.nbytes < 0 for one in here)
    assert json.loads(json.dumps(seen.to_dict()))["peaks"][device]["nbytes"] == seen.peaks[device].nbytes
    assert kept.numel()


def test_what_was_there_before_is_missed_when_it_goes(device):
    held = torch.ones(50_000, device=device) * 2
    (torch.cpu if device == "cpu" else torch.cuda).synchronize()
    before = allocated(device)
    with memory.record() as seen:
        del held
        torch.ones(10, device=device).sum().item()
    gone = [one for one in seen.events if one.device == device and one.nbytes < 0]
    assert min(one.nbytes for one in gone) <= -200_000
    assert sum(one.nbytes for one in seen.events if one.device == device) == allocated(device) - before


def test_what_came_and_went_between_two_recordings_is_no_trouble(native):
    """Of a class of sizes, the first recording saw four blocks come back; before the second, three are taken."""
    with memory.record():
        many = [torch.ones(50_000) * n for n in range(4)]
        torch.cpu.synchronize()
        del many
    held = [torch.ones(50_000) * n for n in range(3)]
    torch.cpu.synchronize()
    with memory.record() as seen:
        del held[-1]
        torch.ones(10).sum().item()
    assert min(one.nbytes for one in seen.events) <= -200_000


def test_modules_that_ask_for_memory(native):
    model, _, _ = trained("cpu")
    with memory.record() as seen:
        with torch.no_grad():
            hidden = [layer(x) for layer in model[:1] for x in (torch.ones(100, 64),)]
        torch.cpu.synchronize()
    assert any(tally.name == "Linear" or tally.name.endswith(".0") for tally in seen.peaks["cpu"].modules)
    assert hidden


def test_only_so_many_events_are_kept(native):
    with memory.record(max_events=5) as seen:
        for _ in range(10):
            torch.ones(100).exp().sum().item()
    assert len(seen.events) <= 5 and seen.result.dropped > 0 and seen.peaks["cpu"].nbytes > 0
    for wrong in (-1, 2.5, None):
        with pytest.raises(ValueError, match="max_events is"):
            memory.record(max_events=wrong)


@tuned(max_examples=8 if not THOROUGH else 60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["make", "drop", "write", "product"]), st.integers(1, 300)), max_size=12))
def test_any_program_is_accounted_for(program):
    """Whatever a program makes, writes and drops: the peak is the allocator's, and events lead to what is left."""
    with torch.config.using(executor="native"):
        torch.cpu.synchronize()
        gc.collect()
        before = torch.cpu.memory_allocated()
        torch.cpu.reset_peak_memory_stats()
        with memory.record() as seen:
            kept = []
            for what, n in program:
                if what == "make":
                    kept.append(torch.ones(n, 7) * n)
                elif what == "drop" and kept:
                    kept.pop(n % len(kept))
                elif what == "write" and kept:
                    kept[n % len(kept)].add_(1)
                elif what == "product" and kept:
                    kept.append(kept[n % len(kept)].T @ kept[n % len(kept)])
                if n % 3 == 0:
                    torch.cpu.synchronize()
        assert sum(one.nbytes for one in seen.events) == torch.cpu.memory_allocated() - before
        assert seen.peaks["cpu"].nbytes == torch.cpu.max_memory_allocated()


# --- what more samples need -----------------------------------------------------------------------------------------


def test_an_estimate_comes_true(native):
    _, _, step = trained("cpu")
    found = memory.estimate(step, (32, 64), device="cpu")
    assert found.per_sample > 0 and set(found.measured) == {32, 64}
    for n in (128, 512):
        step(n)
        reset_peak("cpu")
        step(n)
        torch.cpu.synchronize()
        # blocks are rounded up to their class, an eighth at most
        assert found.needed(n) == pytest.approx(most_allocated("cpu"), rel=0.13), n
    assert found.needed(found.largest()) <= found.limit < found.needed(found.largest() + 2)
    assert "for each sample" in str(found) and found.to_dict()["device"] == "cpu"


def test_estimates_that_cannot_be_made():
    for samples in ((8,), (8, 8), (0, 4), (2, 3.5)):
        with pytest.raises(ValueError, match="give two different numbers"):
            memory.estimate(lambda n: None, samples)


# --- PyTorch's names ------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(native):
    with a_gpu():
        yield torch.cuda.memory
        torch.cuda.memory._record_memory_history(None)


def test_snapshots_in_pytorchs_form(gpu, tmp_path):
    _, _, step = trained("cuda:0")
    before = torch.cuda.memory_allocated()
    gpu._record_memory_history(max_entries=10_000)
    step(16)
    kept = torch.ones(1000, device="cuda") * 2
    torch.cuda.synchronize()
    found = gpu._snapshot()
    blocks = [block for segment in found["segments"] for block in segment["blocks"]]
    active = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
    assert active == torch.cuda.memory_allocated() == memory.snapshot("cuda:0")["cuda:0"].allocated
    assert sum(segment["total_size"] for segment in found["segments"]) == torch.cuda.memory_reserved()
    change = 0
    for entry in found["device_traces"][0]:
        assert all({"filename", "line", "name"} == frame.keys() for frame in entry["frames"])
        assert entry["frames"] or entry["action"] != "alloc"
        change += {"alloc": entry["size"], "free_completed": -entry["size"]}.get(entry["action"], 0)
    assert change == torch.cuda.memory_allocated() - before
    gpu._record_memory_history(None)
    gpu._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    with open(tmp_path / "snapshot.pickle", "rb") as file:
        assert pickle.load(file).keys() == found.keys()
    assert torch.cuda.memory_snapshot() == gpu._snapshot()["segments"] and kept.numel()
    for wrong in ("some", 3):
        with pytest.raises(RuntimeError, match="expected state to be"):
            gpu._record_memory_history(wrong)


def test_tables_are_bounded_over_ever_new_shapes(monkeypatch):
    """What is remembered of calls, views and specs: thousands of shapes come by, and the numbers stay right."""
    monkeypatch.setattr(infer, "MAX_REMEMBERED_CALLS", 400)
    monkeypatch.setattr(specs, "MAX_SPECS", 400)
    monkeypatch.setattr(specs, "_limit", 0)
    monkeypatch.setattr(update, "MAX_UPDATES", 100)
    monkeypatch.setattr(plan, "MAX_REMEMBERED_TRACES", 100)
    monkeypatch.setattr(interpret, "MAX_REMEMBERED_ENTRIES", 100)
    for table in update.update_entries, interpret._programs, plan._plans, plan._sightings:
        table.clear()                                   # what other tests have left
    specs.make_room()
    monkeypatch.setattr(specs, "_limit", 0)
    held, base, most = len(specs._interned), torch.arange(5000.0), {}

    def count():
        counted = {"entries": sum(len(facts.entries) for facts in known.values()),
                   "given": sum(len(facts.given) for facts in known.values()), "updates": len(update.update_entries),
                   "specs": len(specs._interned) - held, "programs": len(interpret._programs),
                   "plans": len(plan._plans) + len(plan._sightings),
                   "tables": max(len(table) for table in infer.tables)}
        for name, n in counted.items():
            most[name] = max(most.get(name, 0), n)

    for n in range(2, 800):
        part = base[:n]                                                 # views alone
        torch.empty(n, 3)                                               # made and dropped
        if n % 3 == 0:
            made = part * 2
            made[n // 2:] = 1.0
            assert made.sum().item() == (n // 2) * (n // 2 - 1) + n - n // 2
        count()
    # Each spec stands under two keys, and those that the other tables hold stay until these are emptied, too.
    for name, bound in {"entries": 402, "given": 402, "updates": 102, "specs": max(2000, held), "programs": 101,
                        "plans": 101, "tables": 500}.items():
        assert most[name] <= bound, most
    assert most["specs"] > 100 and most["entries"] > 100


def test_traces_are_bounded_by_their_instructions(monkeypatch):
    """Long traces that never come again are forgotten before there are many; one that comes again is planned anew."""
    monkeypatch.setattr(plan, "MAX_REMEMBERED_INSTRUCTIONS", 500)
    monkeypatch.setattr(plan, "_remembered_instructions", 0)
    for table in plan._plans, plan._sightings:
        table.clear()
    most = 0
    with torch.config.using(executor="auto"):
        for n in list(range(2, 60)) + [2, 3, 2, 3]:
            x = torch.arange(float(n))
            torch.cpu.synchronize()
            for _ in range(50):
                x = x + 1
            assert x.tolist() == [i + 50.0 for i in range(n)]
            most = max(most, len(plan._plans) + len(plan._sightings))
    assert 2 <= most <= 25                              # beside those of 50 there are the short ones of arange
