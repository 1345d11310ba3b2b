"""The operation that made the first number that is none, after backward() has freed the graph and step() has run."""
import gc
import itertools
import threading
import warnings
import weakref

import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import engine
from flambeau.base import settings
from flambeau.trace.recording.record import current
from tests.thorough import sample

from .conftest import marked

# What a line makes of finite h that is not finite, or whose derivative is not; and the operation that is named.
POISONS = {
    "log": "h = (h - h).log()",
    "divide": "h = h / (h - h)",
    "exp": "h = (h * 0 + 1000).exp()",
    "sqrt": "h = (h - h).square().sum(1, keepdim=True).sqrt() + h",       # its derivative
    "pow": "h = (h - h) ** -1",
}
LOOP = """
torch.manual_seed(0)
first, last = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.{optimizer}([*first.parameters(), *last.parameters()], lr=0.01)
for i in range(6):
    optimizer.zero_grad()
    h = first(torch.ones(8, 3)).tanh()
    if i == {when}:
        {poison}                    # found
    loss = (last(h) - 1).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


@pytest.mark.parametrize("executor", ["native", "reference"])
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("poison", POISONS)
def test_it_is_named_at_its_line(run, monkeypatch, poison, large, executor):
    monkeypatch.setattr(settings, "executor", executor)
    monkeypatch.setattr(engine, "HELD_BYTES", 0 if large else engine.HELD_BYTES)
    source = LOOP.format(poison=POISONS[poison], when=4 if large else 0, optimizer="Adam" if large else "SGD")
    found, = run(source)
    assert (found.name, found.lineno) == ("non-finite", marked(source, "found")), str(found)
    assert poison in found.text and not [one for one in run.warnings if one.category is RuntimeWarning]


@pytest.mark.parametrize("when", [0, 4, 80])
@pytest.mark.parametrize("poison", POISONS)
def test_a_full_watch_names_it_at_its_line(run, poison, when):
    """At the first step by the graph, later by the thread's own recording."""
    source = LOOP.format(poison=POISONS[poison], when=when, optimizer="Adam").replace("range(6)", f"range({when + 2})")
    found = run(source, full=True)[0]
    assert (found.name, found.lineno) == ("non-finite", marked(source, "found")), str(found)
    assert poison in found.text and not [one for one in run.warnings if one.category is RuntimeWarning]


@pytest.mark.parametrize("poison", ["log", "divide"])
def test_a_full_watch_names_it_where_no_step_was_taken(run, poison):
    """Several backwards to a step, and the last of all without one."""
    source = LOOP.format(poison=POISONS[poison], when=5, optimizer="SGD").replace("range(6)", "range({})").replace(
        "    optimizer.step()", "    if i % 2: optimizer.step()").replace("print(loss.item())\n", "")
    for last in (6, 7):
        if last == 7:
            source = source.replace("i == 5", "i == 6")
        looped = source.format(last)
        found = run(looped, full=True)[0]
        assert (found.name, found.lineno) == ("non-finite", marked(looped, "found")), str(found)
        assert poison in found.text


LOOKS = {                     # what looks at h in the middle of the forward
    "indices": "h = h[h.argmax(0)[:3]]",
    "a condition": "if h.isnan().all() and i > 99: break",
    "an array": "h.detach().numpy()",
}


@pytest.mark.parametrize("poison, look, large, executor", sample(itertools.product(
    POISONS, LOOKS, [False, True], ["native", "reference"]), step=7))
def test_it_is_named_where_somebody_looked_before_backward(run, monkeypatch, poison, look, large, executor):
    monkeypatch.setattr(settings, "executor", executor)
    monkeypatch.setattr(engine, "HELD_BYTES", 0 if large else engine.HELD_BYTES)
    source = LOOP.format(poison=POISONS[poison], when=2, optimizer="SGD")
    source = source.replace("    loss = (", f"    {LOOKS[look]}\n    loss = (")
    found, = run(source)
    assert (found.name, found.lineno) == ("non-finite", marked(source, "found")), str(found)
    assert poison in found.text


def test_what_is_masked_again_before_somebody_looks_is_no_origin(run):
    poison = "h = torch.where(h > 5, (h - h).detach().log(), h); h = h / (h - h)"
    source = LOOP.format(poison=poison, when=2, optimizer="SGD").replace(
        "    loss = (", "    h.sum().tolist()\n    loss = (")
    found, = run(source)
    assert found.lineno == marked(source, "found") and "divide made the first" in found.text, str(found)


def test_nothing_older_is_held_where_nobody_looked():
    x = torch.ones(3, requires_grad=True)
    (x * 2).exp().sum().backward()
    assert not current().backward.older
    y = (x * 2).exp()
    y.tolist()
    y.sum().backward()
    assert [node.name() for node, _ in current().backward.older[0]] == ["ExpBackward0"]
    (x * 1).sum().backward(retain_graph=True)
    assert not current().backward.older


def test_a_mask_is_no_origin_but_what_makes_nothing_of_it_is(run):
    source = """
w = torch.ones(2, 3, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for i in range(8):
    optimizer.zero_grad()
    scores = (w * 2).masked_fill(torch.ones(2, 3) == 1, float("-inf"))
    shares = scores.softmax(1)      # found
    loss = (shares * w).sum()
    loss.backward()
    optimizer.step()
    float(loss)
"""
    found, = run(source)
    assert found.lineno == marked(source, "found") and "softmax" in found.text


def test_each_thread_has_its_own(run):
    source = LOOP.format(poison=POISONS["log"], when=3, optimizer="SGD")
    fine = LOOP.format(poison="pass", when=3, optimizer="SGD")
    started = threading.Barrier(2)

    def other():
        started.wait()
        exec(compile(fine, "fine.py", "exec"), {"torch": torch})
    thread = threading.Thread(target=other)
    thread.start()
    started.wait()
    found, = run(source)
    thread.join()
    assert found.lineno == marked(source, "found")


@pytest.mark.parametrize("large", [False, True])
def test_nothing_is_held_after_a_step_that_went_well(monkeypatch, large):
    monkeypatch.setattr(engine, "HELD_BYTES", 0 if large else engine.HELD_BYTES)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        batch = torch.from_numpy(held := np.ones((8, 3), np.float32))
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
    assert current().backward is None
    gone = weakref.ref(held)
    del batch, held
    gc.collect()
    assert gone() is None


def test_without_a_step_a_large_batch_is_let_go_when_something_else_runs(monkeypatch):
    """A gradient of its own, several backwards for a step, a rule by hand: the batch before is not there beside it."""
    monkeypatch.setattr(engine, "HELD_BYTES", 1 << 20)
    monkeypatch.setattr(settings, "executor", "native")
    w, batch = torch.ones(30, 4, requires_grad=True), torch.ones(100_000, 30) * 2
    torch.cpu.synchronize()
    before = torch.cpu.memory_allocated()
    (batch @ w).sum().backward()
    assert current().backward.large
    nbytes = batch.nbytes
    del batch
    (w * 2).sum().item()
    gc.collect()
    assert current().backward is None and torch.cpu.memory_allocated() < before - nbytes // 2


def test_off_is_off(monkeypatch):
    x = torch.ones(2, requires_grad=True)
    with torch.config.using(watch="off"), warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = (x - x).log().sum()
        loss.backward()
        assert current().backward is None
        assert loss.item() == float("-inf")
