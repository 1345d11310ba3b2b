"""The profiler, the benchmark timer and flop counts beside PyTorch's: names, counts, shapes, and the text of tables."""
import random
from collections import Counter

import pytest
import torch as theirs
import torch.utils.benchmark as their_benchmark

import flambeau as ours
from flambeau.profiler.profiler import schedule as our_schedule

pytestmark = [pytest.mark.pinned, pytest.mark.filterwarnings("ignore")]

# Operations that PyTorch calls inside of others, to make room for results and to look at them in other ways, where
# Flambeau records one instruction; see docs/profiling.md.
INNER = {f"aten::{name}" for name in """empty empty_like empty_strided as_strided as_strided_ copy_ resize_ resolve_conj
    resolve_neg fill_ zero_ _to_copy to lift_fresh detach detach_ _unsafe_view _reshape_alias is_nonzero clone
    _local_scalar_dense contiguous transpose narrow view expand t reshape permute select slice ones_like _convolution
    convolution mkldnn_convolution thnn_conv2d _slow_conv2d_forward result_type clamp_min _softmax _log_softmax nll_loss
    nll_loss_nd nll_loss_forward log_softmax dropout bernoulli_ div_ native_dropout native_layer_norm native_batch_norm
    native_group_norm _batch_norm_impl_index max_pool2d_with_indices normal_ uniform_ random_ add_ mul_ addcmul_
    addcdiv_ lerp_ sqrt _foreach_add_ linear_backward nonzero item zeros full scalar_tensor where sum div mul add
    _softmax_backward_data _log_softmax_backward_data cross_entropy_loss _index_put_impl_""".split()}


def profiled(torch, program):
    """{name: how often} of the operations that a program calls, as torch's profiler lists them."""
    arguments = program(torch)
    arguments()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        arguments()
    return prof


def outermost(prof):
    """The operations that the program itself has called, in order, with the shapes of their tensors."""
    def of_program(event):
        parent = event.cpu_parent
        while parent is not None:
            if parent.name.startswith("aten::") or "Backward" in parent.name or parent.name.startswith("Optimizer"):
                return False
            parent = parent.cpu_parent
        return event.name.startswith("aten::")
    events = sorted((e for e in prof.events() if of_program(e)), key=lambda e: e.time_range.start)
    return [(e.name, [s for s in e.input_shapes if s]) for e in events]


def pointwise(torch):
    x, y = torch.ones(4, 5), torch.ones(5)

    def run():
        return ((x + y) * 2 - x / 3).exp().log().tanh().sigmoid().relu().abs().sqrt()
    return run


def reductions(torch):
    x = torch.ones(4, 5)

    def run():
        return [x.sum(), x.sum(0), x.mean(), x.mean(1), x.max(), x.argmax(), x.prod(), x.cumsum(0), x.std(),
                x.amax(0), x.all(), torch.softmax(x, -1), torch.logsumexp(x, 0)]
    return run


def products(torch):
    x, y = torch.ones(4, 5), torch.ones(3, 4, 5)

    def run():
        return [x @ x.t(), torch.mm(x.t(), x), torch.bmm(y, y.transpose(1, 2)), torch.addmm(x, torch.ones(4, 4), x),
                torch.dot(x[0], x[1])]
    return run


def views(torch):
    x = torch.ones(4, 6)

    def run():
        return [x.view(24), x.reshape(3, 8), x.t(), x.transpose(0, 1), x.unsqueeze(0), x.expand(2, 4, 6), x[0], x[1:3],
                x.permute(1, 0), x.flatten(), torch.cat([x, x]), torch.stack([x, x]), x.chunk(2), x.split(2),
                x.repeat(2, 2)]
    return run


def indexing(torch):
    x, at = torch.ones(4, 6), torch.tensor([0, 2])

    def run():
        return [x[at], x.gather(0, at.view(2, 1)), x.index_select(0, at), torch.where(x > 0, x, x),
                x.masked_fill(x > 0, 1), x.sort(), x.topk(2)]
    return run


def in_place(torch):
    def run():
        x = torch.zeros(4, 5)
        x.add_(1)
        x.mul_(2)
        x.fill_(3)
        x.zero_()
        x.clamp_(0, 1)
        return x
    return run


def factories(torch):
    def run():
        return [torch.zeros(2), torch.ones(2), torch.full((2,), 3.0), torch.arange(4), torch.randn(2), torch.rand(2),
                torch.eye(3), torch.linspace(0, 1, 3)]
    return run


def layers(torch):
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
                              torch.nn.Linear(18, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
    x, target = torch.ones(2, 1, 8, 8), torch.tensor([0, 1])

    def run():
        return torch.nn.functional.cross_entropy(net(x), target)
    return run


LISTS = ("aten::cat", "aten::stack", "aten::index")           # PyTorch lists no shapes of what stands in a list
PROGRAMS = [pointwise, reductions, products, views, indexing, in_place, factories, layers]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_the_operations_that_a_program_calls(program):
    """The same names, as often, with the same shapes, in the same order."""
    mine, other = (outermost(profiled(torch, program)) for torch in (ours, theirs))
    skipped = {"aten::lift_fresh", "aten::detach_", "aten::detach", "aten::resolve_conj", "aten::contiguous"}
    mine, other = ([(name, shapes) for name, shapes in found if name not in skipped] for found in (mine, other))
    assert [name for name, _ in mine] == [name for name, _ in other]
    for (name, my_shapes), (_, their_shapes) in zip(mine, other, strict=True):
        assert my_shapes == their_shapes or not their_shapes or name in LISTS, name


def test_a_training_step():
    """Nodes of a backward and steps of an optimizer have PyTorch's names; operations do as far as they correspond."""
    def program(torch):
        net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        x, target = torch.ones(4, 6), torch.tensor([0, 1, 2, 0])

        def run():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), target).backward()
            optimizer.step()
        return run
    mine, other = (Counter(event.key for event in profiled(torch, program).events()) for torch in (ours, theirs))
    for name in other:
        if "Backward" in name and "LogSoftmax" not in name or "AccumulateGrad" in name or "Optimizer.step" in name:
            assert mine[name] == other[name], name
    for name in ("aten::linear", "aten::addmm", "aten::relu", "aten::mm", "aten::threshold_backward",
                 "aten::cross_entropy_loss"):
        assert mine[name] == other[name], name
    assert {name for name in other if name.startswith("aten::")} - mine.keys() <= INNER | {
        "aten::nll_loss_backward", "aten::_foreach_add_"}


def test_flops_of_calls():
    def program(torch):
        x, w, image, filters = (torch.ones(*shape) for shape in ((4, 5), (5, 3), (2, 3, 9, 9), (6, 3, 3, 3)))

        def run():
            torch.mm(x, w)
            torch.addmm(torch.ones(3), x, w)
            torch.bmm(torch.ones(2, 4, 5), torch.ones(2, 5, 3))
            torch.nn.functional.conv2d(image, filters)
            return x + x, x * x
        return run

    found = []
    for torch in (ours, theirs):
        run = program(torch)
        with torch.profiler.profile(with_flops=True, record_shapes=True) as prof:
            run()
        found.append({e.key: e.flops for e in prof.key_averages() if e.flops and e.key in (
            "aten::mm", "aten::addmm", "aten::bmm", "aten::add", "aten::mul", "aten::conv2d")})
    assert found[0] == found[1]


def test_the_head_of_a_table():
    def program(torch):
        x = torch.ones(4, 5)
        return lambda: (x + 1).exp()
    for options in ({}, {"record_shapes": True}, {"profile_memory": True}, {"with_flops": True, "record_shapes": True}):
        heads = []
        for torch in (ours, theirs):
            run = program(torch)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as prof:
                run()
            text = prof.key_averages(group_by_input_shape="record_shapes" in options).table(sort_by="cpu_time_total")
            head = next(line for line in text.splitlines() if line.strip().startswith("Name"))
            heads.append([part.strip() for part in head.split("  ") if part.strip()])
            assert text.splitlines()[-1].startswith("Self CPU time total: ") or not text.splitlines()[-1]
        assert heads[0] == heads[1], options


@pytest.mark.parametrize("plan", [dict(wait=1, warmup=1, active=2), dict(wait=0, warmup=1, active=1, repeat=2),
                                  dict(wait=2, warmup=0, active=3, skip_first=2), dict(wait=0, warmup=0, active=1)])
def test_what_a_schedule_makes_ready(plan):
    found = []
    for torch, make in ((ours, our_schedule), (theirs, theirs.profiler.schedule)):
        ready = []
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=make(**plan),
                                    on_trace_ready=lambda p, ready=ready: ready.append(p.step_num)) as prof:
            for _ in range(10):
                torch.ones(3).sum()
                prof.step()
        found.append((ready, prof.step_num, prof.current_action.name))
    assert found[0] == found[1]


# --- torch.utils.benchmark ------------------------------------------------------------------------------------------


def measurements(benchmark, seed, envs):
    """Times that were drawn, the same for both."""
    draw, made = random.Random(seed), []
    for label in ("product", None):
        for sub_label in ("1x1", "22x22", None):
            for description in ("one", "two"):
                for threads in (1, 4):
                    for env in envs:
                        if draw.random() < 0.15:
                            continue
                        base, spread = 10 ** draw.uniform(-8, 0), draw.choice([1.01, 1.2, 2])
                        times = [base * draw.uniform(1, spread) for _ in range(draw.randint(1, 12))]
                        made.append(benchmark.Measurement(10, times, benchmark.TaskSpec(
                            "stmt", draw.choice(["pass", "x = 1", "x = 1\ny = 2"]), label=label, sub_label=sub_label,
                            description=description, env=env, num_threads=threads)))
    return made


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("envs", [(None,), ("a", "longer")], ids=["no env", "envs"])
def test_measurements_and_their_comparison(seed, envs):
    mine, other = (measurements(b, seed, envs) for b in (ours.utils.benchmark, their_benchmark))
    for a, b in zip(mine, other, strict=True):
        assert repr(a).splitlines()[1:] == repr(b).splitlines()[1:]
        assert a.significant_figures == b.significant_figures and a.has_warnings == b.has_warnings
        assert (a.median, a.mean, a.iqr) == pytest.approx((b.median, b.mean, b.iqr))
    tables = [b.Compare(found) for b, found in ((ours.utils.benchmark, mine), (their_benchmark, other))]
    for change in (lambda t: None, lambda t: t.trim_significant_figures(), lambda t: t.highlight_warnings(),
                   lambda t: t.colorize(), lambda t: t.colorize(rowwise=True)):
        for one in tables:
            change(one)
        assert str(tables[0]) == str(tables[1])
