"""Memory that several processes see: what one writes is there for all, whoever was started how, and nothing is left."""
import gc
import glob
import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau import multiprocessing as mp
from tests.patience import PATIENCE
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")
FILES_PER_BLOCK = 1 if sys.version_info >= (3, 13) else 2         # `mmap` held on to one of its own before
METHODS = sample(["fork", "spawn", "forkserver"], 3)


def forked(function, *args):
    """Run `function` in a forked process to its end; False if it raised."""
    process = mp.get_context("fork").Process(target=function, args=args)
    process.start()
    process.join(PATIENCE)
    return process.exitcode == 0


def open_files():
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


# --- one process --------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int64,
                                   torch.bool, torch.complex64])
def test_contents_views_and_versions_stay(dtype):
    x = torch.arange(12).to(dtype).reshape(3, 4)
    row, before = x[1], x.clone()
    x[2] = 1
    version = x._version
    assert x.share_memory_() is x and x.is_shared() and row.is_shared() and x.t().is_shared()
    assert x.untyped_storage().is_shared() and not x.clone().is_shared() and x.detach().is_shared()
    assert torch.equal(x[:2], before[:2]) and x._version == version
    row.zero_()
    assert x[1].tolist() == [0] * 4 and x._version == version + 1 and x.share_memory_() is x


def test_what_has_nothing_to_share():
    assert not torch.empty(0).share_memory_().is_shared() and torch.empty(2, 0).share_memory_().shape == (2, 0)
    assert torch.empty(3, device="meta").share_memory_().device.type == "meta"
    assert torch.tensor(3.0).share_memory_().item() == 3 and torch.tensor(3.0).share_memory_().is_shared()


def test_pending_work_goes_first_and_copies_stay_behind():
    x = torch.zeros(4)
    x += 1
    y = x * 2                                            # recorded, not run
    copy = x.clone()
    x.share_memory_()
    x += 10
    assert (y.tolist(), copy.tolist(), x.tolist()) == ([2.0] * 4, [1.0] * 4, [11.0] * 4)


def test_arrays_before_and_after():
    array = np.zeros(3, np.float32)
    x = torch.from_numpy(array)
    x.share_memory_()
    array[0] = 5                                         # as in PyTorch, the array stays with the memory it had
    assert x.tolist() == [0, 0, 0]
    seen = x.numpy()
    x += 1
    assert seen.tolist() == [1, 1, 1]
    seen[1] = 7
    assert x.tolist() == [1, 7, 1]


WRITES = {
    "add": lambda t: t.add_(1), "mul": lambda t: t.mul_(2), "fill": lambda t: t.fill_(3), "zero": lambda t: t.zero_(),
    "self": lambda t: t.add_(t), "flip": lambda t: t.copy_(t.flip(0)), "cumsum": lambda t: t.copy_(t.cumsum(0)),
    "out": lambda t: torch.mul(t, 3, out=t), "index": lambda t: t.__setitem__(slice(None, None, 2), -1),
    "data": lambda t: t.data.sub_(4), "where": lambda t: t.masked_fill_(t > 5, 0), "exp": lambda t: t.clamp_(-5, 5),
}
VIEWS = {
    "all": lambda x: x, "rows": lambda x: x[1:3], "columns": lambda x: x[:, ::2], "transposed": lambda x: x.t(),
    "flat": lambda x: x.view(-1)[3:9], "one": lambda x: x[2, 3], "diagonal": lambda x: x.diagonal(),
}


@settings(deadline=None, max_examples=40)
@given(program=st.lists(st.tuples(st.sampled_from(sorted(VIEWS)), st.sampled_from(sorted(WRITES))), max_size=8))
def test_programs_mean_the_same_on_shared_memory(program):
    one, other = torch.arange(20.0).reshape(4, 5), torch.arange(20.0).reshape(4, 5).share_memory_()
    sums = [], []
    for view, write in program:
        for x, found in (one, sums[0]), (other, sums[1]):
            part = VIEWS[view](x)
            if part.dim() or write not in ("flip", "cumsum", "index"):
                WRITES[write](part)
            found.append(x.sum() + part.sum())
    assert one.tolist() == other.tolist() and [s.item() for s in sums[0]] == [s.item() for s in sums[1]]
    assert other.is_shared()


def test_training_on_shared_parameters_is_the_same():
    def losses(share):
        torch.manual_seed(0)
        layers = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        model = torch.nn.Sequential(*layers)
        if share:
            assert model.share_memory() is model
            assert all(t.is_shared() for t in (*model.parameters(), *model.buffers()))
        x, y = torch.randn(16, 4), torch.randn(16, 1)
        found = []
        for optimizer in (torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), torch.optim.Adam(model.parameters())):
            for _ in range(3):
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                found.append(loss.item())
        assert not share or all(t.is_shared() for t in (*model.parameters(), *model.buffers()))
        return found, [p.tolist() for p in model.parameters()]
    assert losses(False) == losses(True)


def test_a_model_is_one_piece_of_memory_and_an_uninitialised_one_is_refused_whole():
    before = open_files()
    model = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(50)])
    model[0](torch.ones(2, 3)).sum().backward()
    model.share_memory()
    assert open_files() <= before + FILES_PER_BLOCK and model[0].weight.grad.is_shared()
    lazy = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LazyLinear(3))
    with pytest.raises(RuntimeError, match="uninitialized parameter"):
        lazy.share_memory()
    assert not lazy[0].weight.is_shared()
    optimizer = torch.optim.Adagrad(model.parameters())
    optimizer.share_memory()
    assert all(state["sum"].is_shared() for state in optimizer.state.values())


def test_memory_and_files_are_given_back():
    before = open_files()
    gc.disable()
    try:
        torch.stack([torch.zeros(1000).share_memory_().add_(1).sum() for _ in range(50)])
        assert open_files() <= before + FILES_PER_BLOCK
    finally:
        gc.enable()


def test_ordinary_pickles_are_copies():
    x = torch.zeros(3).share_memory_()
    copy = pickle.loads(pickle.dumps(x))
    assert not copy.is_shared()
    copy += 1
    assert x.tolist() == [0, 0, 0]


# --- several --------------------------------------------------


def test_a_forked_process_and_its_parent_see_each_others_writes():
    x, plain = torch.zeros(3).share_memory_(), torch.zeros(3)
    there, here = mp.get_context("fork").Pipe()

    def child():
        x.add_(1)
        plain.add_(1)
        there.send("written")
        assert there.recv() == "written" and x.tolist() == [1, 5, 1]
        x[2] = 9
    process = mp.get_context("fork").Process(target=child, daemon=True)
    process.start()
    assert here.poll(PATIENCE) and here.recv() == "written"
    total = x.sum()
    assert x.tolist() == [1, 1, 1] and plain.tolist() == [0, 0, 0]
    x[1] = 5
    here.send("written")
    process.join(PATIENCE)
    assert process.exitcode == 0 and x.tolist() == [1, 5, 9] and total.item() == 3


def test_a_compiled_function_reads_the_memory_again():
    x = torch.ones(8).share_memory_()
    double = torch.compile(lambda t: t * 2 + 1)
    for _ in range(4):
        assert double(x).tolist() == [3.0] * 8
    assert forked(lambda: x.fill_(5))
    assert double(x).tolist() == [11.0] * 8

    @torch.compile
    def step(t):
        t += 1
    for _ in range(4):
        step(x)
    assert x.tolist() == [9.0] * 8 and forked(lambda: step(x)) and x.tolist() == [10.0] * 8


def test_backward_goes_on_with_what_another_process_has_written():
    """As in PyTorch, where only this process's own writes are counted."""
    w = torch.ones(3, requires_grad=True)
    w.share_memory_()
    x = torch.ones(3, requires_grad=True)
    out = (w * x).sum()
    with torch.no_grad():
        assert forked(lambda: w.data.fill_(4))
    out.backward()
    assert x.grad.tolist() == [4, 4, 4]


def serve(tasks, answers, argument):
    """What a child does with tensors: writes them, sends them back, and its own."""
    argument.add_(1)
    model, part, whole, back = tasks.get()
    assert part.untyped_storage() == whole.untyped_storage() and isinstance(model.weight, torch.nn.Parameter)
    with torch.no_grad():
        model.weight.fill_(2)
    part.fill_(7)
    answers.put((back, torch.full((2,), 3.0)))
    tasks.get()


@pytest.mark.parametrize("method", METHODS)
def test_queues_and_arguments_share_memory(method):
    context = mp.get_context(method)
    tasks, answers = context.Queue(), context.Queue()
    argument, whole, back = torch.zeros(2).share_memory_(), torch.zeros(2, 3), torch.arange(3)
    model = torch.nn.Linear(2, 2)
    before = threading.active_count(), len(glob.glob("/dev/shm/*"))
    process = context.Process(target=serve, args=(tasks, answers, argument), daemon=True)
    process.start()
    tasks.put((model, whole[1], whole, back))
    again, made = answers.get(timeout=PATIENCE)
    assert argument.tolist() == [1, 1] and whole.tolist() == [[0, 0, 0], [7, 7, 7]] and whole.is_shared()
    assert model.weight.tolist() == [[2, 2], [2, 2]] and model.weight.is_shared() and model.weight.requires_grad
    assert again.untyped_storage() == back.untyped_storage() and again.tolist() == [0, 1, 2]
    assert made.tolist() == [3, 3] and made.is_shared()
    tasks.put(None)
    process.join(PATIENCE)
    assert process.exitcode == 0 and len(glob.glob("/dev/shm/*")) == before[1]
    made += 1                                            # the memory outlives the process it came from
    assert made.tolist() == [4, 4]


def fill(i, models, value):
    with torch.no_grad():
        models[i].weight.fill_(value)
        models[-1].weight[i] = value


def test_spawn_trains_the_parents_models():
    models = [torch.nn.Linear(2, 2) for _ in range(2)] + [torch.nn.Linear(1, 2)]
    for model in models:
        model.share_memory()
    mp.spawn(fill, (models, 6.0), nprocs=2 if THOROUGH else 1)
    if not THOROUGH:
        fill(1, models, 6.0)
    assert all(model.weight.eq(6).all() for model in models)


def test_writes_beside_a_queue_are_not_lost():
    """`Queue.put` pickles in a thread of its own, beside whatever the program does with the tensor meanwhile."""
    queue = mp.get_context("fork").Queue()
    for _ in range(20):
        x = torch.zeros(64)
        queue.put(x)
        for i in range(20):
            x += 1
            if i % 7 == 0:
                x.sum().item()
        received = queue.get(timeout=PATIENCE)
        assert received.untyped_storage() == x.untyped_storage()
        assert x.tolist() == [20.0] * 64 and x.is_shared()
    queue.close()


def test_a_history_stays_at_home():
    here, there = mp.get_context("fork").Pipe()
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        here.send(x * 2)
    here.send([x, (x * 2).detach()])
    leaf, value = there.recv()
    assert leaf.requires_grad and value.tolist() == [2, 2]


def test_what_travels_unshared():
    here, there = mp.get_context("fork").Pipe()
    here.send((torch.empty(0, 3), torch.empty(2, device="meta"), "text"))
    empty, meta, text = there.recv()
    assert empty.shape == (0, 3) and meta.device.type == "meta" and text == "text"


def test_a_sender_that_is_gone_is_said():
    queue = mp.get_context("fork").SimpleQueue()
    process = mp.get_context("fork").Process(target=lambda: queue.put(torch.ones(3)))
    process.start()
    process.join(PATIENCE)
    with pytest.raises(RuntimeError, match="ended before the tensor was received"):
        queue.get()


def test_a_process_that_is_killed_leaves_nothing():
    before = sorted(glob.glob("/dev/shm/*")), open_files()
    x = torch.zeros(1 << 16).share_memory_()
    there, here = mp.get_context("fork").Pipe()

    def child(x):
        y = torch.ones(1 << 16).share_memory_()
        x.copy_(y)
        there.send("written")
        signal.pause()
    process = mp.get_context("fork").Process(target=child, args=(x,), daemon=True)
    process.start()
    assert here.poll(PATIENCE)
    os.kill(process.pid, signal.SIGKILL)
    process.join(PATIENCE)
    assert x.sum().item() == 1 << 16
    del x
    here.close()
    there.close()
    process.close()
    assert (sorted(glob.glob("/dev/shm/*")), open_files()) <= (before[0], before[1] + 2)


def test_pythons_own_module_knows_it_too():
    """As in PyTorch, where importing it is enough; from the first tensor on, and not before there is one."""
    program = """
import multiprocessing, sys, flambeau as torch
context = multiprocessing.get_context("fork")
here, there = context.Pipe()
queue = context.Queue()
for send, receive in (here.send, there.recv), (queue.put, queue.get):
    x = torch.zeros(2)
    send(x)
    receive().add_(1)
    print(x.tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "[1.0, 1.0]\n" * 2, done.stderr
