"""Recording and running under pressure: memory that only the trace holds, finalisers, interrupts, many shapes."""
import gc
import random
import signal
import sys
import threading
import time

import numpy as np
import pytest

import flambeau as torch
from flambeau.base import settings, spec as specs
from flambeau.base.spec import forget_unused, spec
from flambeau.tensor import infer
from flambeau.trace.recording.record import current
from tests.thorough import THOROUGH

alarms = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals")


def test_inputs_that_only_the_trace_holds_are_weighed(monkeypatch):
    """A loop over fresh batches, summed without looking: the trace must not keep all the batches."""
    monkeypatch.setattr(settings, "trace_bytes", 1 << 20)
    current().run()
    total, most = torch.zeros(()), 0
    for _ in range(100):
        total = total + torch.tensor(np.ones(25_000, np.float32)).sum()
        most = max(most, sum(v.spec.nbytes for v in current().slots))
    assert total.item() == 2_500_000
    assert most <= 3 << 20


def test_inputs_that_somebody_holds_do_not_end_a_trace(monkeypatch):
    monkeypatch.setattr(settings, "trace_bytes", 1 << 20)
    current().run()
    weights = [torch.tensor(np.ones(100_000, np.float32)) for _ in range(20)]
    sums = [w.sum() for w in weights]
    assert len(current().code) == 20
    assert current().held + current().weighed == sum(w.nbytes for w in weights) and current().weighed
    assert sums[19].item() == 100_000


class Talkative:
    """A cycle whose finaliser computes with tensors, wherever the collector finds it."""

    seen = refused = 0

    def __init__(self):
        self.me, self.t = self, torch.ones(3) * 2

    def __del__(self):
        try:
            Talkative.seen += (self.t + 1).sum().item() == 9
        except RuntimeError:
            Talkative.refused += 1


def test_finalisers_that_compute(monkeypatch):
    monkeypatch.setattr(settings, "trace_instructions", 50)
    before = gc.get_threshold()
    gc.set_threshold(7, 3, 3)
    try:
        y = torch.ones(3)
        for i in range(600):
            Talkative()
            y = y * 1.0 + 1.0 - 1.0
            if i % 37 == 0:
                assert y.tolist() == [1, 1, 1]
    finally:
        gc.set_threshold(*before)
        gc.collect()                               # those left compute now, and not in the middle of another test
    assert y.tolist() == [1, 1, 1] and Talkative.seen > 50


@alarms
def test_signal_handlers_that_compute():
    seen = []

    def handler(number, frame):
        seen.append((torch.ones(3) * 3 + 1).tolist() == [4, 4, 4])

    handler(None, None)                        # what it needs is compiled: the next alarm would come before it is done
    handler(None, None)
    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
    try:
        end, y, n = time.time() + 0.5, torch.ones(3), 0
        while time.time() < end:
            y, n = y * 1.0 + 1.0 - 1.0, n + 1
            if n % 37 == 0:
                assert y.tolist() == [1, 1, 1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert seen and all(seen)


class Stop(BaseException):
    """Stands for KeyboardInterrupt."""


def everything(held):
    x, w = torch.arange(6.0), torch.ones(6, requires_grad=True)
    y = x * 2
    y[1:3].mul_(3)
    a = x.clone()
    held += [x, w, y, a]
    a[2:] = 7.0
    loss = (w * y).tanh().sum() + (w * w)[:3].sum()
    loss.backward()
    values, order = a.sort(descending=True)
    a.index_add_(0, torch.tensor([0, 1]), torch.tensor([1.0, 2.0]))
    held += [loss, values, order, torch.cat([a, values])]
    x[0] = 5.0
    return [t.tolist() for t in (*held, w.grad)]


@alarms
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")       # an interrupt inside a finaliser
def test_interrupted_anywhere_everything_goes_on(monkeypatch):
    """An exception out of nowhere leaves the trace whole, the modes as they were, and every tensor readable."""
    right = everything([])

    def handler(number, frame):
        raise Stop

    old = signal.signal(signal.SIGALRM, handler)
    try:
        end, draw = time.time() + (3 if THOROUGH else 1), random.Random(1)
        while time.time() < end:
            monkeypatch.setattr(settings, "trace_instructions", draw.choice([2000, 3, 8]))
            held = []
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.00005, 0.003))
                everything(held)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                pass
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                pass
            assert torch.is_grad_enabled()
            for tensor in held:
                tensor.tolist()
            assert not current().busy and not current().sealed and current().site is None
            assert everything([]) == right
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_specs_that_nobody_holds_are_forgotten():
    kept = spec(torch.float64, (7, 9))
    turned = spec(torch.float64, (7, 9), (1, 7))
    x = torch.ones(2, 3)
    spec(torch.float64, (12345, 3))
    n = len(specs._interned)
    infer.forget()
    forget_unused()
    assert len(specs._interned) < n
    assert spec(torch.float64, (7, 9)) is kept and spec(torch.float64, (7, 9), (9, 1)) is kept
    assert spec(torch.float64, (7, 9), (1, 7)) is turned and spec(torch.float32, (2, 3)) is x._spec


def test_memory_is_shared_while_threads_come_and_go():
    """`numpy()` runs every thread's trace, and must not stumble over one that is being added."""
    stop, failures = threading.Event(), []

    def come_and_go():
        while not stop.is_set():
            threads = [threading.Thread(target=lambda: torch.ones(2) + 1) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        end = time.time() + 1
        while time.time() < end:
            try:
                assert (torch.ones(2) * 2).numpy().tolist() == [2, 2]
            except RuntimeError as error:
                failures.append(error)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
    assert not failures


EQUAL_PARAMETERS = {                              # calls whose parameters are equal to Python, and mean other things
    "sum": lambda x, n: x.sum((n,)), "amax": lambda x, n: x.amax((n,)), "flip": lambda x, n: x.flip((n,)),
    "permute": lambda x, n: x.permute((n, 0)), "movedim": lambda x, n: x.movedim((n,), (0,)),
    "reshape": lambda x, n: x.reshape((n, 6)), "expand": lambda x, n: x[:1].expand((n, 3)),
    "repeat": lambda x, n: x.repeat((n, 1)), "roll": lambda x, n: x.roll((n,), (0,)),
}


@pytest.mark.parametrize("name", EQUAL_PARAMETERS)
def test_equal_parameters_of_other_types_are_refused_at_the_call(name):
    """(1,) equals (1.0,): a call that was seen before must not lend its answer, and nothing may fail later."""
    x = torch.arange(6.0).reshape(2, 3)
    call = EQUAL_PARAMETERS[name]
    expected = call(x, 1).tolist()
    for _ in range(2):
        with pytest.raises((TypeError, RuntimeError)):
            call(x, 1.0)
        assert call(x, 1).tolist() == expected
    assert (x + 1).tolist() == [[1, 2, 3], [4, 5, 6]]                # and the trace is in order
