"""Native execution: which kernels a trace becomes, in whose memory they work, and what may not change their results."""
import gc
import itertools
import math
import os
import random
import re
import signal
import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.backends.cpu import machine_code, program, schedule, threads
from flambeau.backends.cpu.memory import allocator
from flambeau.backends.kernel_store.store import KernelStore
from flambeau.base import locks, settings
from flambeau.base.spec import CPU
from flambeau.trace.planning import plan as planning
from flambeau.trace.recording import record
from flambeau.trace.recording.record import current
from tests.patience import PATIENCE

pytestmark = pytest.mark.pinned

F = torch.nn.functional


@pytest.fixture(autouse=True)
def native_executor():
    current().run()
    before = threads.get_num_threads()
    with torch.config.using(executor="native"):
        yield
        current().clear()
    threads.set_num_threads(before)


def ready(*shape, dtype="float32", seed=0):
    """A tensor of ordinary numbers that is there already."""
    return torch.tensor(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def ran():
    """The lines of the plan that ran last."""
    current().run()
    return str(torch.plans.last()).splitlines()


def full(lines, *sizes):
    """Those of the lines that walk all of these sizes."""
    return [line for line in lines if f"[{' × '.join(map(str, sizes))}]" in line]


def address(tensor):
    return tensor._storage.value.ready().memory.ctypes.data + tensor._offset * tensor.element_size()


# --- how many kernels -------------------------------------------------------------------------------------------------


def test_a_chain_is_one_kernel():
    x, y = ready(40, 30), ready(30)
    z = ((x * y + 1).relu() * 0.5 - x).tanh()
    assert len(ran()) == 1 and z.shape == (40, 30)


@pytest.mark.parametrize("name, kernels", {
    "softmax": 1, "log_softmax": 1, "logsumexp": 1, "var": 1, "layer_norm": 1, "rms_norm": 1, "batch_norm": 1,
    "producers": 1, "columns": 1, "cat": 4}.items())
def test_rows_with_several_reductions_are_one_kernel(name, kernels):
    x, w = ready(40, 30), ready(30, seed=1)
    made = {"softmax": lambda: x.softmax(1), "log_softmax": lambda: x.log_softmax(1),
            "logsumexp": lambda: x.logsumexp(1), "var": lambda: x.var(1),
            "layer_norm": lambda: F.layer_norm(x, (30,), w, w), "rms_norm": lambda: F.rms_norm(x, (30,), w),
            "batch_norm": lambda: F.batch_norm(x, None, None, training=True),
            "producers": lambda: (x * 2 + 1).exp().sum(1).sqrt() + 1, "columns": lambda: (x * w).sum(0) * 3,
            "cat": lambda: torch.cat([x + 1, x * 2])}[name]()
    assert len(ran()) <= kernels and made.numel()


def test_forward_and_backward_are_one_or_two_kernels():
    x, w, labels = ready(40, 30), ready(30, seed=1), torch.arange(40) % 30
    weights = ready(40, 30, seed=2)
    for forward in (lambda x: (x.softmax(1) * weights).sum(), lambda x: (F.layer_norm(x, (30,), w) * weights).sum(),
                    lambda x: F.cross_entropy(x, labels)):
        leaf = x.clone().requires_grad_()
        leaf.tolist(), labels.tolist()
        forward(leaf).backward()
        assert 1 <= len(full(ran(), 40, 30)) <= 2, torch.plans.last()
        assert leaf.grad.shape == (40, 30)


def test_an_update_is_one_kernel_for_each_parameter():
    sizes = (50, 70)
    parameters = [torch.nn.Parameter(ready(n)) if hasattr(torch.nn, "Parameter") else ready(n) for n in sizes]
    states = [[ready(n), ready(n, seed=1), ready(n, seed=2).abs()] for n in sizes]
    with torch.no_grad():
        for p, (g, m, v) in zip(parameters, states):
            m.lerp_(g, 0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            p.addcdiv_(m / 0.1, (v / 0.001).sqrt() + 1e-8, value=-0.01)
    lines = ran()
    assert len(lines) == 2 and all(line.count(" in %") >= 3 for line in lines)          # p, m and v where they stood


# --- in whose memory --------------------------------------------------------------------------------------------------


def test_in_place_is_in_place():
    x, y = ready(1000), ready(1000, seed=1)
    at, expected = address(x), (x.numpy().copy() * 2 + y.numpy()).tolist()
    x._storage.still_exported()
    x.mul_(2).add_(y)
    assert address(x) == at and x.tolist() == pytest.approx(expected)
    x[10:20].fill_(3.0)
    x.view(10, 100)[2].mul_(5)
    assert address(x) == at


def test_a_result_takes_over_an_operand_that_nobody_holds():
    x = ready(1000)
    at = address(x)
    x = x * 2 + 1
    assert address(x) == at
    held = x
    x = x * 2
    assert address(x) != at and address(held) == at


def test_a_write_into_what_was_copied_to_be_seen_in_another_shape():
    x = torch.arange(12)
    for first in range(3):                                   # the copy that a reshape makes is the memory written to
        y = x.reshape(2, 6).t().reshape(12)
        y[0] = first - 5
        y[3:5].add_(1)
        assert y.tolist() == [first - 5, 6, 1, 8, 3, 8, 3, 9, 4, 10, 5, 11] and x.tolist() == list(range(12))


def test_what_somebody_holds_is_not_written_over():
    x = ready(1000)
    before, view, outside = x.tolist(), x[1:5], x.numpy()
    x = x * 0
    x.tolist()
    assert view.tolist() == before[1:5] and outside.tolist() == before
    y = ready(100)
    first = y.tolist()
    other = y.detach()
    y = y + 1
    y.tolist()
    assert other.tolist() == first


def test_working_memory_is_used_again():
    x = ready(64, 64)
    y = x
    for _ in range(20):
        y = (y @ x).tanh()
    ran()
    assert torch.plans.last().working <= 3 * 64 * 64 * 4 and y.shape == (64, 64)


def test_nothing_is_left_allocated():
    def step():
        x = ready(100, 100)
        y = ((x * 2).exp().sum(0) + x).tanh() @ x
        y[3:5] = 1
        return y.sum().item()
    step()
    before = allocator.allocated()
    for _ in range(5):
        step()
    assert allocator.allocated() == before


# --- the number of threads changes nothing ----------------------------------------------------------------------------


def on(n, work):
    threads.set_num_threads(n)
    made = work()
    return [t.detach().numpy().tobytes() for t in (made if isinstance(made, (tuple, list)) else [made])]


WORK = {
    "sum": lambda x: x.sum(), "mean": lambda x: x.mean(), "prod": lambda x: (1 + x / 1e5).prod(),
    "norm": lambda x: x.norm(),
    "rows": lambda x: x.sum(-1), "columns": lambda x: x.sum(0), "max": lambda x: (x.amax(), x.argmax(), x.amax(0)),
    "softmax": lambda x: x.softmax(-1), "softmax down": lambda x: x.softmax(0), "var": lambda x: (x.var(), x.var(0)),
    "chain": lambda x: ((x * 2 + 1).tanh() * x.sigmoid()).exp(), "turned": lambda x: x.transpose(0, -1) + 1,
    "fused": lambda x: ((x - x.mean()) ** 2).sum() + (x * 3).sum(0).exp().sum(),
    "product": lambda x: x.reshape(-1, x.shape[-1]).t() @ x.reshape(-1, x.shape[-1]),
    "half": lambda x: (x.half().sum(), x.bfloat16().sum(-1)),
}


@pytest.mark.parametrize("shape", [(5,), (70_001,), (140_000,), (400_001,), (3, 90_000), (90_000, 3), (700, 311),
                                   (64, 33, 70)], ids=str)
def test_results_do_not_depend_on_the_number_of_threads(shape):
    x = ready(*shape)
    for name, work in WORK.items():
        if name == "product" and len(shape) == 1 or name == "product" and shape[-1] > 5000:
            continue
        one, two, three = (on(n, lambda work=work: work(x)) for n in (1, 2, 3))
        assert one == two == three, name


def test_sums_are_right_however_they_are_cut(monkeypatch):
    """Blocks, tails and empty blocks: every size from nothing to some blocks of a reduction cut very small."""
    for module, name, value in ((schedule, "MAP_TILE_ELEMENTS", 64), (schedule, "TILE_LANES", 32),
                                (CPU.backend, "reductions", CPU.backend.reductions._replace(block_elements=128)),
                                (program, "PIECE_NANOSECONDS", 1)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(planning, "_plans", {})
    for n in (*range(40), 127, 128, 255, 256, 257, 300, 511, 512, 640, 1000, 1025, 5000):
        x = torch.arange(float(n))
        y = (x * 2).sum()
        assert y.item() == n * (n - 1) and x.sum().item() == n * (n - 1) / 2, n


# --- odd numbers, odd shapes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows, columns, many", [(2100, 1024, True), (4000, 601, True), (300, 8100, True),
                                                 (50, 1024, False), (100, 30_000, False), (20_000, 100, False)])
def test_rows_that_come_from_memory_are_asked_for(monkeypatch, rows, columns, many):
    """Where several passes go over each, and they are neither short nor long; the same bits come out, to the end."""
    x, weight = ready(rows, columns), ready(columns, seed=1)
    for work in (lambda: torch.softmax(x, 1), lambda: F.layer_norm(x, (columns,), weight), lambda: torch.var(x, 1),
                 lambda: torch.log_softmax(x * weight, 1), lambda: normed_and_its_gradient(x, weight)):
        y = work()
        steps = torch.plans.of(y).steps
        assert any("asks for the next row" in str(step.loop) for step in steps) == many
        assert any("llvm.prefetch" in step.llvm for step in steps) == many
        asked = y.numpy().copy()
        with torch.config.using(executor="reference"):
            np.testing.assert_allclose(asked, work().numpy(), rtol=1e-5, atol=1e-6)
        with monkeypatch.context() as without:
            without.setattr(schedule, "_may_ask", lambda launch: False)
            planning.forget()
            np.testing.assert_array_equal(asked, work().numpy())
        planning.forget()
    assert not any("asks" in str(step.loop) for step in torch.plans.of(x.sum(1)).steps)


def normed_and_its_gradient(x, weight):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(F.layer_norm(x, weight.shape, weight), x, weight.expand_as(x) * 2.0)[0]


@pytest.mark.parametrize("asks, rows, columns, many", [(True, 300, 700, True), (True, 40, 70, False),
                                                       (True, 3000, 50, False), (False, 300, 700, False)])
def test_columns_are_asked_for_by_processors_that_do_not_see_them_coming(monkeypatch, asks, rows, columns, many):
    x, target = ready(rows, columns), machine_code.target()._replace(asks_for_lanes=asks)
    for work in (lambda: x.sum(0), lambda: x.var(0), lambda: x.amax(0), lambda: x.argmax(0),
                 lambda: (x * x + 1).mean(0)):
        with monkeypatch.context() as there:
            there.setattr(machine_code, "target", lambda: target)
            y = work()
            assert any("asks for the next lanes" in str(step.loop) for step in torch.plans.of(y).steps) == many
            asked = y.numpy().copy()
            planning.forget()
            there.setattr(schedule, "_may_ask_beside", lambda launch: False)
            np.testing.assert_array_equal(asked, work().numpy())
        planning.forget()


LONG_ROW = 20_003                                # longer than a row that is kept on the stack


@pytest.mark.parametrize("work, kept", [
    (lambda x: torch.softmax(x, 1), True),
    (lambda x: torch.softmax(x, 1) * x, True),                              # which needs the input once more
    (lambda x: torch.softmax(x.double(), 1), True),
    (lambda x: torch.softmax(x, 1).bfloat16(), False),                      # whose row is too narrow for what is kept
    (lambda x: x.copy_(torch.softmax(x, 1)), False),                        # the result's row is still to be read
    (lambda x: x.mul_(torch.softmax(x, 1)), False),
    (lambda x: torch.softmax(x, 1, dtype=torch.float64).float() + torch.softmax(x, 1), False)])
def test_what_is_kept_of_a_long_row_lies_in_the_results(monkeypatch, work, kept):
    """Until the last pass fills it: exponentials are computed once, and the same bits come out."""
    values = ready(5, LONG_ROW).numpy()
    x = torch.tensor(values)
    torch.cpu.synchronize()
    y = work(x)
    assert any(re.search(r"of pass 1 in p\d", str(step.loop)) for step in torch.plans.of(y).steps) == kept
    got, near = y.double().numpy(), 1e-2 if y.dtype == torch.bfloat16 else 1e-5
    with torch.config.using(executor="reference"):
        np.testing.assert_allclose(got, work(torch.tensor(values)).double().numpy(), rtol=near, atol=1e-9)
    with monkeypatch.context() as without:
        without.setattr(schedule, "_row_to_fill", lambda launch: None)
        planning.forget()
        np.testing.assert_array_equal(got, work(torch.tensor(values)).double().numpy())
    planning.forget()


def test_nothing_and_a_single_number():
    for shape in ((0,), (0, 3), (3, 0), (2, 0, 4)):
        x = torch.zeros(shape)
        assert (x * 2 + 1).exp().shape == shape and x.sum().item() == 0 and x.prod().item() == 1
        assert x.sum(-1).tolist() == torch.zeros(shape[:-1]).tolist()
        assert torch.cat([x, x], -1).numel() == 0 and x.softmax(-1).shape == shape
        with pytest.raises((RuntimeError, IndexError)):
            x.amax()
    one = torch.tensor(3.0)
    assert ((one * 2 + 1).sqrt() + one.sum() + one.amax()).item() == pytest.approx(math.sqrt(7) + 6)
    assert one.expand(2, 3).sum().item() == 18 and one.softmax(0).item() == 1


def test_hard_numbers_keep_their_meaning():
    nan, inf = math.nan, math.inf
    x = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1e-45, 3e38] * 5)
    y = x.tolist()[:7]
    for made, expected in ((x + 1, [nan, inf, -inf, 1, 1, 1, y[6]]), (x * 0, [nan, nan, nan, 0, -0.0, 0, 0]),
                           (-x, [nan, -inf, inf, -0.0, 0.0, -y[5], -y[6]]),
                           (x.abs(), [nan, inf, inf, 0, 0, y[5], y[6]]),
                           (1 / x, [nan, 0, -0.0, inf, -inf, inf, np.float32(1 / y[6])]),
                           (x.sqrt(), [nan, inf, nan, 0, -0.0, np.sqrt(np.float32(1e-45)), np.sqrt(np.float32(3e38))]),
                           (x.exp(), [nan, inf, 0, 1, 1, 1, inf]), (x.relu(), [nan, inf, 0, 0, 0, y[5], y[6]]),
                           (x.clamp(-1, 1), [nan, 1, -1, 0, -0.0, y[5], 1]), (x * x, [nan, inf, inf, 0, 0, 0, inf])):
        got = made.numpy()[:7]
        np.testing.assert_array_equal(got, np.array(expected, np.float32))
        zero = got == 0
        assert (np.signbit(got) == np.signbit(np.array(expected, np.float32)))[zero].all()
    assert math.isnan(x.sum().item()) and math.isnan(x.amax().item()) and math.isnan(x.amin().item())
    assert x.argmax().item() == 0 and x[1:].argmax().item() == 6 and x[1:7].argmax().item() == 0
    assert math.copysign(1, torch.tensor([-0.0] * 40).sum().item()) in (1, -1)
    assert x.isnan().sum().item() == 5 and (x == x).sum().item() == 30 and (x != x).any().item()


def test_which_of_two_zeros_is_taken_does_not_depend_on_who_computes_it():
    """Where the processor says it by an instruction, the negative one is the lesser, as in PyTorch there."""
    kinds = np.array([0.0, -0.0, math.nan, -math.nan, 1.0, -1.0], np.float32)
    a, b = (torch.from_numpy(x.copy()) for x in np.array([*itertools.product(kinds, kinds)]).T)
    rows = torch.stack([a, b], 1)
    for work in (lambda: torch.maximum(a, b), lambda: torch.minimum(a, b), lambda: a.clamp(min=b),
                 lambda: a.clamp(-0.0, 0.0), lambda: torch.relu(a), lambda: rows.amax(1), lambda: rows.amin(1)):
        found = []
        for executor in ("native", "auto"):               # which goes through the body as long as there is no plan
            planning.forget()
            with torch.config.using(executor=executor):
                found.append(work().numpy().copy())
        assert found[0].tobytes() == found[1].tobytes()
    if CPU.backend.zeros_by_sign:
        both = torch.tensor([0.0, -0.0]), torch.tensor([-0.0, 0.0])
        with torch.config.using(executor="native"):
            assert not np.signbit(torch.maximum(*both).numpy()).any() and np.signbit(torch.minimum(*both).numpy()).all()


@pytest.mark.parametrize("columns", [8, 15, 16, 17, 31, 32, 33, 48])
def test_short_rows_that_fill_vectors_go_along_them(columns):
    x = ready(200, columns)
    plans = torch.plans.of(x.sum(1))
    assert ("along rows" in str(plans.kernels[-1].loop)) == (columns > 32 or columns % 16 == 0)
    assert "along rows" not in str(torch.plans.of(x.argmax(1)).kernels[-1].loop) or columns > 32
    values = x.numpy()
    for made, wanted in ((x.sum(1), values.sum(1)), (x.argmax(1), values.argmax(1)), (x.amin(1), values.min(1))):
        np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_whole_numbers_wrap_around():
    for kind in ("int8", "uint8", "int16", "int32", "int64"):
        info = np.iinfo(kind)
        a = np.array([info.max, info.min, info.max - 1, 5] * 20, kind)
        x = torch.tensor(a)
        with np.errstate(all="ignore"):
            for made, expected in ((x + 1, a + a.dtype.type(1)), (x * 3, a * a.dtype.type(3)), (-x, -a), (x * x, a * a),
                                   (x - 100, a - a.dtype.type(100)), (x.abs(), np.abs(a))):
                np.testing.assert_array_equal(made.numpy(), expected, err_msg=kind)
            assert x.sum().item() == a.sum(dtype=np.int64) and x.prod().item() == a.prod(dtype=np.int64)


def test_divisors_in_the_lanes_that_are_left_over():
    """A guard against zero that was computed in another kernel does not cover the lanes behind the last element."""
    for kind in (torch.uint8, torch.int8, torch.int32, torch.int64):
        a, b = torch.tensor([[3, 2, 6], [5, 5, 3]], dtype=kind), torch.tensor([1, 2, 3], dtype=kind)
        a.tolist(), b.tolist()
        assert (a // b).tolist() == [[3, 1, 2], [5, 2, 1]] and (a % b).tolist() == [[0, 0, 0], [0, 1, 0]]


def test_what_has_no_kernel_is_left_to_the_reference():
    z = torch.tensor([1 + 2j, 3 + 4j])
    z.tolist()
    z.real[0] = 5.0
    z.imag.mul_(2)
    assert z.tolist() == [5 + 4j, 3 + 8j] and (z * z).real.tolist() == [9, -55]


def test_places_of_pooled_halves_in_another_order_of_memory():
    """Halves are widened in working memory, whose order is not that of the places."""
    x = ready(1, 6, 6, 2)
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        pooled = []
        for executor in ("reference", "native"):
            with torch.config.using(executor=executor):
                y = x.to(kind).permute(0, 3, 1, 2)
                pooled.append([t.tolist() for t in F.max_pool2d(y, 3, (2, 1), 1, return_indices=True)])
        assert pooled[0] == pooled[1], kind


# --- new sizes --------------------------------------------------------------------------------------------------------


def mlp(n):
    w, v = ready(20, 30, seed=1).requires_grad_(), ready(30, 7, seed=2).requires_grad_()
    loss = F.cross_entropy((ready(n, 20) @ w).relu() @ v, torch.arange(n) % 7)
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        v -= 0.1 * v.grad
    return w, v, loss


@pytest.mark.parametrize("work", [
    mlp, lambda n: ready(n, 40).softmax(1), lambda n: F.layer_norm(ready(n, 40), (40,)),
    lambda n: F.cross_entropy(ready(n, 40), torch.arange(n) % 40), lambda n: ready(n, 40).mean(0),
    lambda n: (ready(n, 40) * 2 + 1).mean(), lambda n: (ready(n, 40).t() + 1).contiguous()],
    ids="mlp softmax layer_norm cross_entropy mean mean_all transpose".split())
def test_a_new_batch_size_compiles_nothing(work):
    def run(n):
        made = work(n)
        for t in made if isinstance(made, tuple) else (made,):
            t.detach().tolist()
    run(64)
    run(96)
    before = machine_code.compiled + machine_code.loaded
    for n in (80, 128, 112) if work is mlp else (80, 65, 128, 200):     # a product's code depends on what is left over
        run(n)
    assert machine_code.compiled + machine_code.loaded == before


# --- long and wide ----------------------------------------------------------------------------------------------------


def test_a_long_chain():
    x = torch.zeros(3)
    for _ in range(5000):
        x = x + 1
    assert x.tolist() == [5000] * 3
    s = torch.tensor(0.0)
    for _ in range(3000):                                # single numbers, made of numbers
        s = s * 1.0 + 1.0
    assert (s + torch.zeros(2)).tolist() == [3000, 3000]


def test_a_wide_trace():
    x = ready(50)
    made = [x * float(i) for i in range(1500)]
    assert made[1499].tolist() == pytest.approx((x * 1499).tolist()) and made[7].tolist() == (x * 7).tolist()
    total = sum(x * float(i) for i in range(900))
    assert total.tolist() == pytest.approx((x * (900 * 899 / 2)).tolist(), rel=1e-4)


# --- several Python threads -------------------------------------------------------------------------------------------


def together(*jobs):
    failures = []

    def guarded(job):
        try:
            job()
        except BaseException as error:
            failures.append(error)
    workers = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)
    assert not any(worker.is_alive() for worker in workers), "a thread hangs"
    if failures:
        raise failures[0]


def test_threads_record_run_and_exchange_tensors():
    import queue
    threads.set_num_threads(2)
    n, until = 4, time.monotonic() + 2
    boxes = [queue.Queue() for _ in range(n)]
    base = np.random.default_rng(0).normal(size=(200, 300)).astype(np.float32)
    before = sys.getswitchinterval()

    def work(me):
        draw, rounds = random.Random(me), 0
        while time.monotonic() < until or rounds < 3:
            k, rounds = draw.randrange(1, 9), rounds + 1
            x = torch.tensor(base) * k
            boxes[(me + 1) % n].put((k, x, x.sum(1), x[k:] @ x[k:].t()))                # pending
            k, x, rows, product = boxes[me].get(timeout=PATIENCE)
            if rounds % 2:
                x.mul_(2)                                                               # ours now
                np.testing.assert_allclose(x.numpy(), base * k * 2, rtol=1e-6)
            np.testing.assert_allclose(rows.numpy(), (base * k).sum(1), rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(product.numpy(), (base[k:] * k) @ (base[k:] * k).T, rtol=1e-3, atol=0.1)
            assert (torch.ones(k) + k).tolist() == [k + 1.0] * k
        boxes[(me + 1) % n].put((1, torch.tensor(base), torch.tensor(base).sum(1), torch.tensor(base)[1:] @
                                 torch.tensor(base)[1:].t()))                           # so that nobody waits in vain

    sys.setswitchinterval(1e-5)
    try:
        together(*[lambda me=me: work(me) for me in range(n)])
    finally:
        sys.setswitchinterval(before)


def test_threads_compile_at_once():
    def work(me):
        for i in range(6):
            x = torch.arange(10.0) + me
            for _ in range(i + 1):
                x = (x * 1.5 - me).tanh() if me % 2 else (x.abs() + i).sqrt()
            x.tolist()
    together(*[lambda me=me: work(me) for me in range(6)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_works(capfd):
    threads.set_num_threads(2)
    x = ready(1000, 300)
    expected = (x.tanh() * 2).sum().item()                  # the pool has worked
    pending = x + 1
    child = os.fork()
    if not child:
        code = 1
        try:
            right = (x.tanh() * 2).sum().item() == expected                             # a plan that is there
            right &= bool(((pending - x - 1).abs() < 1e-6).all())
            right &= (x.cos() + x.sin() * 3).sum(0).shape == (300,)                     # one that is compiled here
            right &= bool(((x @ x.t())[0, 0] - (x[0] * x[0]).sum()).abs().item() < 1e-2)
            code = 0 if right else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert (x.tanh() * 2).sum().item() == expected and pending.shape == (1000, 300)


# --- interrupts and failures ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals")
def test_an_interrupt_during_a_long_run():
    x = ready(1200, 1200)
    y = x
    for _ in range(12):
        y = (y @ x / 40).tanh()
    total = x.sum()
    x2 = x * 1.0
    x2.mul_(3)

    def handler(number, frame):
        raise KeyboardInterrupt
    old = signal.signal(signal.SIGALRM, handler)
    gc.disable()                                     # hypothesis counts collections, and an interrupt would end in that
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            y.tolist()
            time.sleep(5)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        gc.enable()
    z = x.numpy()
    for _ in range(12):
        z = np.tanh(z @ x.numpy() / 40)
    np.testing.assert_allclose(y.numpy(), z, rtol=1e-2, atol=1e-3)
    assert total.item() == pytest.approx(float(x.numpy().sum(dtype=np.float64)), abs=0.5)
    np.testing.assert_allclose(x2.numpy(), x.numpy() * 3, rtol=1e-6)


class Stop(BaseException):
    pass


def new_program(number, monkeypatch):
    """A program of which nothing is compiled yet: its result and its input, and what they are to be."""
    monkeypatch.setattr(planning, "_plans", {})
    monkeypatch.setattr(machine_code.host(), "store", KernelStore(machine_code.host()))
    draw = random.Random(number)
    x = torch.arange(6.0)
    y, expected = x * 1, np.arange(6.0)
    for _ in range(draw.randrange(2, 7)):
        kind = draw.randrange(4)
        y = (y + number, y * 0.5, y.abs(), y.sum() - y)[kind]
        expected = (expected + number, expected * 0.5, np.abs(expected), expected.sum() - expected)[kind]
    x[1:3] = 7.0
    return y, x, expected


def check_program(y, x, expected):
    assert not current().busy and not current().sealed
    assert y.tolist() == pytest.approx(expected.tolist(), rel=1e-5) and x.tolist() == [0, 7, 7, 3, 4, 5]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_while_a_program_is_planned(monkeypatch):
    """At places all over the work that a new program makes, from its look-up to its result: at the n-th call."""
    monkeypatch.setattr(settings, "executor", "native")
    calls, at = [0], [0]

    def count(frame, event, argument):
        if event == "call":
            calls[0] += 1
            if calls[0] == at[0]:
                raise Stop

    def run(number, stop_at):
        program = new_program(number, monkeypatch)
        calls[0], at[0] = 0, stop_at
        sys.setprofile(count)
        try:
            program[0].tolist()
        except Stop:
            return True
        finally:
            sys.setprofile(None)
            check_program(*program)
        return False

    assert not run(0, 0) and not run(1, 0)
    whole, stopped = calls[0], 0
    for number in range(2, 42):
        stopped += run(number, whole * (number - 1) // 42)
    assert whole > 400 and stopped > 20                       # some programs are shorter


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals")
def test_an_interrupt_while_kernels_are_compiled(monkeypatch):
    """The interrupt comes while LLVM compiles, places or looks up: the work is finished, and found by the next."""
    host = machine_code.host()
    monkeypatch.setattr(settings, "executor", "native")
    main, when, seen = threading.get_ident(), [None], []

    def handler(number, frame):
        raise Stop

    def interrupting(name, before):
        real = getattr(host, name)

        def work(*args):
            mine, when[0] = when[0] == (name, before), None if when[0] == (name, before) else when[0]
            if mine and before:
                signal.pthread_kill(main, signal.SIGALRM)
            made = real(*args)
            if mine and not before:
                signal.pthread_kill(main, signal.SIGALRM)
            seen.append(name)
            return made
        return work

    old = signal.signal(signal.SIGALRM, handler)
    try:
        for number, (name, before) in enumerate(((name, before) for name in ("compile", "load", "address")
                                                 for before in (True, False)), 100):
            with monkeypatch.context() as patch:
                patch.setattr(host, name, interrupting(name, before))
                program, when[0] = new_program(number, patch), (name, before)
                with pytest.raises(Stop):
                    program[0].tolist()
                    time.sleep(5)                             # it may come a moment after the result
                check_program(*program)
                assert name in seen and threading.main_thread().ident == main
    finally:
        signal.signal(signal.SIGALRM, old)


def test_no_memory_for_a_plan_leaves_everything_as_it_was(monkeypatch):
    """Refuse the n-th allocation, for every n: the failure is said, and afterwards all values are right."""
    backend, real_execute, failed = CPU.backend, record.execute, 0

    def program():
        x = ready(50, 40)
        y = (x * 2).softmax(1)
        x[3:5] = 1.5
        z = (y @ x.t()).mode(1)[0]           # which no kernel does
        x.mul_(2)
        return x, y, z, z.sum()

    expected = [t.tolist() for t in program()]
    for n in range(1, 12):
        left = [n]

        def refuse(real, left=left):
            def allocate(what, *args):
                left[0] -= 1
                if left[0] <= 0:
                    raise allocator.failure(what if isinstance(what, int) else what.nbytes)
                return real(what, *args)
            return allocate
        tensors = program()
        allocator.empty_cache()                              # no spare arrays
        monkeypatch.setattr(backend, "block", refuse(allocator.block), raising=False)
        monkeypatch.setattr(backend, "blank", refuse(allocator.blank), raising=False)
        monkeypatch.setattr(record, "execute", refuse_all)
        try:
            for t in tensors[::-1]:
                t.tolist()
        except MemoryError as error:
            assert "The lines that hold most memory:" in str(error) and "test_native.py:" in str(error)
            lines = str(error).split("The lines that hold most memory:\n")[1].splitlines()
            assert 1 <= len(lines) <= 5 and all(" in " in line and "buffer" in line for line in lines)
            failed += 1
        monkeypatch.setattr(backend, "block", allocator.block)
        monkeypatch.setattr(backend, "blank", allocator.blank)
        monkeypatch.setattr(record, "execute", real_execute)
        assert [t.tolist() for t in tensors] == expected, n
    assert failed >= 3


def refuse_all(entry, *args, **kwargs):
    raise allocator.failure(entry.nbytes)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_computes(monkeypatch):
    """The child must not wait for locks that threads of the parent held."""
    monkeypatch.setattr(locks, "SECONDS_FOR_ALL_LOCKS", 0.5)
    held, done = threading.Event(), threading.Event()
    shared = {}

    def hold():
        shared["pending"] = torch.ones(3) * 2
        trace = record.current()
        with trace.lock, torch.default_generator._stream._lock:
            held.set()
            done.wait(60)
    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        right = shared["pending"].tolist() == [2.0] * 3 and torch.randn(4).shape == (4,)
        os._exit(0 if right else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_what_does_not_fit_is_kept_apart(monkeypatch):
    """A value that a group would meet in two ways is kept in memory; the rest of the trace runs as ever."""
    monkeypatch.setattr(settings, "executor", "native")
    found, avoid = [], planning._avoid
    monkeypatch.setattr(planning, "_avoid", lambda *args: found.append(str(args[0])) or avoid(*args))
    planning._plans.clear()
    x, y = torch.randn(32, 10), torch.randint(0, 10, (32,))

    def gradient():
        w = x.clone().requires_grad_()
        torch.nn.functional.cross_entropy(w * 2, y, label_smoothing=0.1).backward()
        return w.grad
    mine = gradient()
    mine.tolist()
    assert found == ["a value that is met in two ways"] and current().ran is not None
    monkeypatch.setattr(settings, "executor", "reference")
    assert torch.allclose(mine, gradient(), 1e-5, 1e-7)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2,)])
def test_a_single_number_seen_as_another_dtype(shape):
    x = torch.full(shape, 1.5)
    x.tolist()
    with torch.config.using(executor="native"):
        y = (x * 2).reshape(-1).view(torch.int32) + 1
        z = torch.view_as_real(torch.complex(x, x) * 2).sum(-1)
        assert y.tolist() == (np.full(shape, 3.0, np.float32).reshape(-1).view(np.int32) + 1).tolist()
        assert z.tolist() == np.full(shape, 6.0).tolist()
