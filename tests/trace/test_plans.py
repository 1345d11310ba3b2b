"""Looking at plans: the text of what is recorded, the steps it becomes, and their code. Looking changes nothing."""
import threading

import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.backends.cpu.backend import CPUBackend
from flambeau.trace.planning import plan as planning
from flambeau.trace.recording.record import current

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True)
def native():
    with torch.config.using(executor="native"):
        yield


def ready(*shape):
    """A tensor that is there already."""
    made = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    made.tolist()
    return made


# --- what is recorded -------------------------------------------------------------------------------------------------


def test_recorded():
    x = ready(2, 3)
    assert torch.plans.recorded() == ""
    y = x.exp().sum(1)
    text = torch.plans.recorded()
    assert text == "%1: float32[2, 3] = exp(%0)\n%2: float32[2] = _sum_dim(%1, 1, False, None)"
    assert repr(text) == str(text)
    y.tolist()
    assert torch.plans.recorded() == ""


# --- a plan -----------------------------------------------------------------------------------------------------------


def test_steps():
    x, w = ready(4, 8), ready(8, 3)
    y = torch.softmax(x * 2, 1) @ w
    z, places = torch.mode(y, 1)
    plan = torch.plans.of(y)
    assert [step.kind for step in plan.steps] == ["kernel", "library", "reference"]
    kernel, library, reference = plan.steps
    assert kernel.sizes == (4, 8) and kernel.words[0] == "mul" and {"exp", "sum"} < set(kernel.words)
    assert (kernel.reads, kernel.gives) == (("%0",), ()) and len(kernel.keeps) == 1
    assert library.words == ("gemm",) and library.sizes == (4, 3, 8)
    assert library.reads == (*kernel.keeps, "%3") and library.gives == ("%4",)
    assert str(reference) == "reference 2  mode  reads %4  gives %5, %6" and reference.loop is None
    assert plan.kernels == [kernel]
    assert str(plan) == repr(plan) == "\n".join(map(str, plan.steps))


def test_work_of_steps():
    x, w, v = ready(4, 8), ready(8, 3), ready(3)
    y = (x * 2) @ w                                                    # instructions 0 and 1
    z = torch.mode(y + v, 1)[0]                                        # 2 and 3
    first, product, second, third = torch.plans.of(z).steps
    assert first.instructions == (0,) and product.instructions == (1,)
    assert second.instructions == (2,) and third.instructions == (3,)
    assert first.flops == 4 * 8 and first.nbytes == 2 * 4 * 8 * 4      # one product each; read once, written once
    assert product.flops == 2 * 4 * 8 * 3 and product.nbytes == (4 * 8 + 8 * 3 + 4 * 3) * 4
    assert second.flops == 4 * 3 and second.nbytes == (4 * 3 + 3 + 4 * 3) * 4
    assert third.nbytes == (4 * 3 + 4) * 4


def test_work_of_a_reduction_and_of_a_gather():
    x, rows = ready(50, 8), torch.tensor([1, 1, 7])
    rows.tolist()
    step, = torch.plans.of((x * x).sum(1)).steps
    assert step.instructions == (0, 1) and step.flops == 2 * 50 * 8 and step.nbytes == (50 * 8 + 50) * 4
    torch.cpu.synchronize()
    step = torch.plans.of(x[rows] * 2).steps[-1]
    assert step.nbytes == (3 * 8 * 4) * 2 + 3 * 8                      # three rows of fifty, and their numbers


def test_work_of_a_convolution():
    x, w = ready(2, 3, 8, 8), ready(5, 3, 3, 3)
    step, = [s for s in torch.plans.of(torch.nn.functional.conv2d(x, w)).steps if s.kind == "library"]
    assert step.flops == 2 * (2 * 5 * 6 * 6) * (3 * 3 * 3)


def test_the_words_of_a_plan():
    x = ready(4, 1000)
    y = (x * 2 - 1).exp().sum(1)
    assert str(torch.plans.of(y)) == "kernel 0  over [4 × 1000]  mul, fma, exp, sum  reads %0  gives %4"
    assert y.shape == (4,)


def test_memory_that_is_taken_over():
    x = ready(1000)
    x.mul_(2)
    assert str(torch.plans.of(x)).endswith("reads %0  gives %1 in %0")


def test_rows_shorter_than_a_vector_are_not_written_over_themselves(monkeypatch):
    """Where such a row ends in a masked store, loads of the next one would wait for it."""
    x, w, b, v = (ready(*shape) for shape in ((32, 64), (64, 10), (10,), (10, 64)))
    for vector_bytes, takes_over in ((0, True), (32, True), (64, False)):
        monkeypatch.setattr(CPUBackend, "masked_row_bytes", vector_bytes)
        y = (x @ w + b).softmax(1) @ v
        kept = str(torch.plans.of(y).kernels[0]).partition("keeps ")[2]
        assert (" in " in kept) == takes_over, (vector_bytes, kept)


def test_a_long_step_is_cut_short():
    x = ready(100)
    y = x
    for _ in range(40):
        y = y * 2
    step, = torch.plans.of(y).steps
    assert len(step.words) == 40 and str(step).count("mul") == 16 and "mul and 24 more  reads" in str(step)


def test_code_of_a_step():
    y = ready(4, 100).exp()
    kernel, = torch.plans.of(y).kernels
    assert str(kernel.loop).splitlines()[0] == "kernel over d0"
    assert str(kernel.loop).splitlines()[-1] == "  schedule lanes along d0 by 4, blocks of d0"
    assert "exp.f32 p0" in kernel.loop and repr(kernel.loop) == str(kernel.launch)
    assert kernel.llvm.startswith("define void @k") and "fmul" in kernel.llvm
    assert kernel.llvm.split("@")[1].split("(")[0] in kernel.assembly


def test_code_of_the_library():
    y = ready(40, 50) @ ready(50, 60)
    step, = torch.plans.of(y).steps
    assert step.kind == "library" and step.loop is None
    assert "@gemm_product_f32(" in step.llvm and "@micro_" in step.llvm
    assert "gemm_product_f32:" in step.assembly and "micro_" in step.assembly


def test_a_step_without_a_kernel_has_no_loop():
    y = torch.mode(ready(5), 0)[0]
    step, = torch.plans.of(y).steps
    assert (step.kind, step.words, step.sizes) == ("reference", ("mode",), ())
    assert step.loop is step.llvm is step.assembly is None


# --- looking changes nothing ------------------------------------------------------------------------------------------


def test_looking_does_not_run():
    x = ready(10)
    y = x + 1
    torch.plans.of(y), torch.plans.of(), torch.plans.recorded()
    assert len(current().code) == 1 and y._storage.value.trace is not None
    assert y.tolist() == [float(i + 1) for i in range(10)]


def test_looking_does_not_decide_who_runs(monkeypatch):
    monkeypatch.setattr(planning, "_plans", {})
    x = ready(17)
    with torch.config.using(executor="auto"):
        y = x * 3 - 2
        torch.plans.of(y)
        assert y.tolist()[:2] == [-2, 1] and torch.plans.last() is None       # little, and seen for the first time
        z = x * 3 - 2
        assert z.tolist()[:2] == [-2, 1] and torch.plans.last() is not None


def test_what_trains_is_planned_when_it_is_first_seen(monkeypatch):
    w, x = ready(64, 1024), ready(64, 1024)                # 256 KiB: little for one look, enough for what comes again
    w.requires_grad_()
    monkeypatch.setattr(planning, "_plans", {})
    monkeypatch.setattr(planning, "_sightings", planning.Sightings())
    with torch.config.using(executor="auto"):
        for trains in (False, True):
            y = x
            for _ in range(12):
                y = y * w + x
            if trains:
                y.sum().backward()
            torch.cpu.synchronize()
            # it may wait for its kernels; some of the calls have plans of their own
            assert any(len(parts) > 1 for parts, *_ in planning._plans) is trains


def test_the_plan_that_runs_is_the_plan_that_was_shown(monkeypatch):
    monkeypatch.setattr(planning, "_plans", {})
    x = ready(23)
    for _ in range(2):
        y = x * 3 - 2
        shown = torch.plans.of(y)
        y.tolist()
        assert str(torch.plans.last()) == str(shown)
    assert torch.plans.last() is shown                     # the second time it was there


# --- the last plan ----------------------------------------------------------------------------------------------------


def test_last():
    y = ready(9) + 1
    y.tolist()
    plan = torch.plans.last()
    assert len(plan.kernels) == 1
    torch.cpu.synchronize()                                # there is nothing to run
    assert torch.plans.last() is plan
    with torch.config.using(executor="reference"):
        (y * 2).tolist()
        assert torch.plans.last() is None


def test_last_is_of_this_thread():
    (ready(9) + 1).tolist()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.plans.last()))
    thread.start()
    thread.join()
    assert seen == [None] and torch.plans.last() is not None


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_nothing_recorded():
    ready(1)
    with pytest.raises(ValueError, match="nothing waits to run in this thread"):
        torch.plans.of()


def test_a_tensor_that_is_there():
    x = ready(3)
    y = x + 1
    with pytest.raises(ValueError, match=r"does not wait to be computed in this thread.*float32\[3\]"):
        torch.plans.of(y, x)


def test_what_no_plan_can_be_made_for(monkeypatch):
    def refuse(*_):
        raise planning.Unfusable("no strides can say it")
    monkeypatch.setattr(planning, "Plan", refuse)
    y = ready(31) + 4
    with pytest.raises(ValueError, match="left to the reference executor as a whole: no strides can say it"):
        torch.plans.of(y)
