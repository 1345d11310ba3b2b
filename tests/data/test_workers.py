"""Workers, for real: processes and threads that make batches, fail, hang, are killed, or lose their loader.

Everything that could hang runs with a hard limit. What ends a whole program runs in a program of its own.
"""
import gc
import glob
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import flambeau as torch
from flambeau.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    get_worker_info,
)
from flambeau.utils.data._utils import processes
from tests.patience import NEVER, PATIENCE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked here")


@pytest.fixture(autouse=True)
def forked():
    """Processes are forked by default, as Python itself does on Linux before 3.14."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


class Apply(Dataset):
    """`function(i)` at i; the function need not be picklable, for workers are forked."""

    def __init__(self, length, function):
        self.length, self.function = length, function

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return self.function(i)


class Shard(IterableDataset):
    """The numbers below `length`, each worker its part."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        info = get_worker_info()
        return iter(range(self.length) if info is None else range(info.id, self.length, info.num_workers))


class Rows(Dataset):
    """For workers that are spawned: what they run has to be found by its name."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.full((3,), float(i)), {"worker": get_worker_info().id}


@pytest.fixture(autouse=True)
def limited():
    """Give up on a test that hangs, and find no worker left after one that does not."""
    def stop(*_):
        raise TimeoutError(f"after {PATIENCE} seconds")
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    if multiprocessing.active_children():
        gc.collect()                                      # an exception that was caught holds the iterator it came from
    assert not multiprocessing.active_children()


def program(source, *, wait=True):
    """Run a program of its own; its process, started or (with `wait`) done, with its output."""
    source = "import flambeau as torch\nfrom flambeau.utils.data import *\nimport multiprocessing, os, signal, sys, " \
             "time\nmultiprocessing.set_start_method('fork')\n" \
             "signal.signal(signal.SIGINT, signal.default_int_handler)\n" + textwrap.dedent(source)  # nohup ignores it
    started = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, start_new_session=True)
    if wait:
        try:
            started.output, started.errors = started.communicate(timeout=PATIENCE)
        finally:
            started.kill()
    return started


@pytest.mark.parametrize("executor", ["auto", "reference"])
def test_what_compiles_is_loaded_once_before_workers_are_forked(executor, monkeypatch):
    """And not by each of them; nor at all where nothing will be compiled."""
    monkeypatch.setenv("FLAMBEAU_EXECUTOR", executor)
    done = program("""
        class Data(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                return "flambeau.backends.cpu.program" in sys.modules

        assert "flambeau.backends.cpu.program" not in sys.modules
        print(sorted({loaded for batch in DataLoader(Data(), 1, num_workers=2) for loaded in batch.tolist()}))
    """)
    assert done.output == f"[{executor != 'reference'}]\n", done.errors


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def soon(condition, seconds=PATIENCE / 4):
    """Whether `condition()` becomes true."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


# --- the same batches --------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("context", [None, "fork", "thread"])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_the_same_batches_with_and_without_workers(workers, context):
    data = Apply(11, lambda i: (torch.full((2,), float(i)), i, str(i), np.float32([i])))
    for options in ({"shuffle": True}, {"drop_last": True}, {"batch_size": None}, {"prefetch_factor": 1}):
        options = {"batch_size": 3, **options}
        torch.manual_seed(0)
        alone = {name: option for name, option in options.items() if name != "prefetch_factor"}
        expected, after = list(DataLoader(data, **alone)), torch.rand(2).tolist()
        torch.manual_seed(0)
        got = list(DataLoader(data, **options, num_workers=workers, multiprocessing_context=context))
        assert str(got) == str(expected) and torch.rand(2).tolist() == after


def test_large_tensors_arrays_and_everything_else_come_over():
    big = torch.arange(300_000.0)
    array = np.arange(100_000)

    def sample(i):
        return {"big": big + i, "view": big[10:13], "turned": big[:6].view(2, 3).t(), "array": array * i,
                "none": torch.zeros(0, 2), "bool": torch.tensor([True]), "half": torch.ones(2, dtype=torch.bfloat16),
                "text": "x" * 200_000, "pair": (i, [big[:2]]), "leaf": torch.ones(1, requires_grad=True)}
    got = list(DataLoader(Apply(3, sample), batch_size=None, num_workers=2))
    for i, found in enumerate(got):
        expected = sample(i)
        for name in ("big", "view", "turned", "none", "bool", "half", "leaf"):
            assert torch.equal(found[name], expected[name]) and found[name].dtype is expected[name].dtype, name
        assert np.array_equal(found["array"].numpy(), expected["array"]) and found["text"] == expected["text"]
        assert found["pair"][0] == i and found["pair"][1][0].tolist() == [0, 1] and found["leaf"].requires_grad
        found["big"].add_(1)                              # it is memory of our own
        assert found["big"][5].item() == 6 + i
    del got, found


def test_only_what_a_view_looks_at_is_sent():
    whole = torch.zeros(4_000_000)
    for row in DataLoader(Apply(2, lambda i: whole[i:i + 3]), batch_size=None, num_workers=1):
        assert row.untyped_storage().nbytes() == 12


def test_nothing_is_left_behind():
    def held():
        return sorted(glob.glob("/dev/shm/*")), len(os.listdir("/proc/self/fd")), \
            sum("flambeau batch" in line for line in open("/proc/self/maps"))
    data = Apply(8, lambda i: torch.full((100_000,), float(i)))
    list(DataLoader(data, 2, num_workers=1))              # what the first use leaves open is not counted
    before = held()
    for x in DataLoader(data, 2, num_workers=2):
        assert x[:, -1].tolist() == x[:, 0].tolist()
    x = next(iter(DataLoader(data, 2, num_workers=2)))    # the others are dropped on the way
    del x
    assert held() == before


class Large(Dataset):
    """Samples large enough to come over in memory, of several sizes, each with its own number in it."""

    def __init__(self, length, grow=0):
        self.length, self.grow = length, grow

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return np.full(100_000 + i * self.grow, i, np.float32)


@pytest.mark.parametrize("grow", [0, 7000, -3000])
@pytest.mark.parametrize("keep", [0, 1, 9])
def test_places_for_batches_are_used_again_when_nobody_looks(keep, grow):
    """However many batches are kept, each holds what it held when it came; one that is written to is the loop's own."""
    kept = []
    for i, batch in enumerate(DataLoader(Large(24, grow), None, num_workers=2, multiprocessing_context="fork")):
        assert batch.numel() == 100_000 + i * grow and batch[0] == batch[-1] == i
        batch += 1000
        kept.append((i, batch))
        kept = kept[len(kept) - keep:]
        assert all(each[0] == each[-1] == number + 1000 for number, each in kept)


def test_few_places_are_made_and_none_is_left():
    files = len(os.listdir("/proc/self/fd"))
    batches = iter(DataLoader(Large(60), None, num_workers=1, multiprocessing_context="fork"))
    for _ in range(50):
        next(batches)
    lender, = batches._crew._lenders
    assert len(lender._blocks) <= 5 and len(os.listdir("/proc/self/fd")) < files + 20
    rest = list(batches)
    assert [int(batch[0]) for batch in rest] == list(range(50, 60))
    del batches, lender, rest
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= files + 2


def test_a_forked_process_keeps_the_batch_it_was_given():
    """The memory of a batch is not written to again if a process may look at it that the loader knows nothing of."""
    batches = iter(DataLoader(Large(30), None, num_workers=1, multiprocessing_context="fork"))
    batch = next(batches)
    here, there = multiprocessing.Pipe()

    def child(batch):
        there.recv()
        there.send((float(batch[0]), float(batch[-1])))
    process = multiprocessing.Process(target=child, args=(batch,))
    process.start()
    del batch
    for _ in range(20):
        next(batches)
    here.send("look")
    assert here.poll(PATIENCE) and here.recv() == (0.0, 0.0)
    process.join()


def test_spawned_workers():
    got = list(DataLoader(Rows(), 2, num_workers=1, multiprocessing_context="spawn"))
    assert [x[:, 0].tolist() for x, _ in got] == [[0, 1], [2, 3]]
    assert [info["worker"].tolist() for _, info in got] == [[0, 0], [0, 0]]


def test_a_dataset_that_cannot_be_sent_to_a_process_that_is_not_forked():
    """Python starts processes so from 3.14 on, so that what always worked needs a word."""
    multiprocessing.set_start_method("forkserver", force=True)
    for context in (None, "spawn"):
        with pytest.warns(UserWarning, match=r"cannot be pickled.*multiprocessing_context='fork'"), \
                pytest.raises((pickle.PicklingError, AttributeError)):
            next(iter(DataLoader(Apply(2, lambda i: i), num_workers=1, multiprocessing_context=context)))
    assert not multiprocessing.active_children()


def test_a_dataset_with_pending_work_is_forked():
    pending = torch.arange(4.0) * 2 + 1
    got = list(DataLoader(Apply(4, lambda i: pending[i] * 10), 2, num_workers=1))
    assert torch.cat(got).tolist() == [10, 30, 50, 70]


# --- who the workers are --------------------------------------------------


def test_what_a_worker_knows_and_its_seeds():
    def look(i):
        info = get_worker_info()
        return (info.id, info.num_workers, info.seed, len(info.dataset), torch.initial_seed(), torch.rand(1).item(),
                random.random(), float(np.random.rand()), torch.get_num_threads(), os.getpid(), info.worker_method)
    assert get_worker_info() is None
    loader = iter(DataLoader(Apply(2, look), batch_size=None, num_workers=2))
    got = [tuple(found) for found in loader]
    assert get_worker_info() is None
    for worker, found in enumerate(got):
        seed = loader._base_seed + worker
        assert found[:5] == (worker, 2, seed, 2, seed) and found[8] == 1 and found[9] != os.getpid()
        assert found[5] == torch.rand(1, generator=torch.Generator().manual_seed(seed)).item()
        assert found[6] == random.Random(seed).random() and found[10] == "multiprocessing"
        words = [worker, loader._base_seed & 0xFFFFFFFF, loader._base_seed >> 32, 0]
        assert found[7] == np.random.RandomState(np.random.SeedSequence(words).generate_state(4)).rand()
    assert got[0][9] != got[1][9]


def test_worker_init_fn_and_an_info_that_cannot_be_changed():
    def start(worker):
        get_worker_info().dataset.length = 100 + worker
    data = Apply(2, lambda i: get_worker_info().dataset.length)
    assert list(DataLoader(data, None, num_workers=2, worker_init_fn=start)) == [100, 101]

    def change(i):
        get_worker_info().id = 5
    with pytest.raises(AttributeError, match="cannot assign to field 'id'"):
        list(DataLoader(Apply(1, change), num_workers=1))


@pytest.mark.parametrize("context", [None, "thread"])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_streams_are_shared_by_the_workers(context):
    options = dict(num_workers=2, multiprocessing_context=context)
    assert [b.tolist() for b in DataLoader(Shard(7), 2, **options)] == [[0, 2], [1, 3], [4, 6], [5]]
    assert [b.tolist() for b in DataLoader(Shard(7), 2, drop_last=True, **options)] == [[0, 2], [1, 3], [4, 6]]
    assert list(DataLoader(Shard(5), None, **options)) == [0, 1, 2, 3, 4]
    assert sorted(DataLoader(Shard(50), None, in_order=False, **options)) == list(range(50))
    assert list(DataLoader(Shard(1), None, num_workers=3, multiprocessing_context=context)) == [0]


@pytest.mark.parametrize("context", [None, "thread"])
def test_persistent_workers_stay(context):
    seen = []

    def who(i):
        return f"{os.getpid()} {threading.get_ident()}"
    loader = DataLoader(Apply(4, who), None, num_workers=2, persistent_workers=True, multiprocessing_context=context)
    for _ in range(3):
        seen.append(set(loader))
    next(iter(loader))                                    # an iteration that is broken off
    seen.append(set(loader))
    assert all(ids == seen[0] for ids in seen) and len(seen[0]) == 2
    stream = DataLoader(Shard(5), None, num_workers=2, persistent_workers=True, multiprocessing_context=context)
    assert list(stream) == list(stream) == [0, 1, 2, 3, 4]


def test_workers_that_are_not_persistent_are_new_each_time():
    loader = DataLoader(Apply(2, lambda i: os.getpid()), None, num_workers=1)
    assert not set(loader) & set(loader)


def test_batches_as_they_come():
    came = multiprocessing.Event()

    def slow(i):
        if i == 0:
            came.wait(PATIENCE)
        return i
    batches = iter(DataLoader(Apply(6, slow), None, num_workers=2, in_order=False))
    got = [next(batches)]
    came.set()
    got.extend(batches)
    assert sorted(got) == list(range(6)) and got[0] != 0
    assert list(DataLoader(Apply(6, slow), None, num_workers=2)) == list(range(6))


def test_no_more_than_was_asked_for_is_made_ahead():
    count = multiprocessing.Value("i", 0)

    def counted(i):
        with count.get_lock():
            count.value += 1
        return i
    batches = iter(DataLoader(Apply(100, counted), None, num_workers=2, prefetch_factor=3))
    assert soon(lambda: count.value == 6) and not soon(lambda: count.value > 6, 0.2)
    next(batches)
    assert soon(lambda: count.value == 7) and not soon(lambda: count.value > 7, 0.2)


# --- threads --------------------------------------------------


class Doubled(TensorDataset):
    def __getitem__(self, i):
        return [2 * part for part in super().__getitem__(i)]


TABLE = TensorDataset(torch.arange(20.0).view(10, 2), torch.arange(10))


@pytest.mark.parametrize("data, options, method", [
    (TABLE, {}, "thread"),
    (Subset(TABLE, [1, 2, 3]), {"shuffle": True}, "thread"),
    (ConcatDataset([TABLE, TABLE]), {}, "thread"),
    (StackDataset(a=TABLE), {}, "thread"),
    (TABLE, {"multiprocessing_context": "fork"}, "multiprocessing"),
    (TABLE, {"worker_init_fn": print}, "multiprocessing"),
    (TABLE, {"collate_fn": lambda samples: default_collate(samples)}, "multiprocessing"),
    (TABLE, {"batch_size": None}, "multiprocessing"),
    (Doubled(*TABLE.tensors), {}, "multiprocessing"),
    (Apply(3, int), {}, "multiprocessing"),
    (Apply(3, int), {"multiprocessing_context": "thread"}, "thread"),
    (TensorDataset(torch.ones(3, requires_grad=True)), {}, "multiprocessing"),
])
def test_who_does_the_work(data, options, method, capfd):
    options = {"batch_size": 2, **options}
    batches = iter(DataLoader(data, num_workers=1, **options))
    assert batches._crew.method == method
    if not (method == "multiprocessing" and isinstance(data, TensorDataset) and data.tensors[0].requires_grad):
        torch.manual_seed(0)
        got = list(DataLoader(data, num_workers=1, **options))
        torch.manual_seed(0)
        options.pop("multiprocessing_context", None), options.pop("worker_init_fn", None)
        assert str(got) == str(list(DataLoader(data, **options)))


def test_threads_have_random_numbers_of_their_own():
    def draw(i):
        info = get_worker_info()
        rng = info.rng
        return (info.id, info.worker_method, info.seed, rng.random_generator.random(),
                torch.rand(1, generator=rng.torch_generator).item(), rng.numpy_generator.random())
    torch.manual_seed(4)
    batches = iter(DataLoader(Apply(2, draw), None, num_workers=2, multiprocessing_context="thread"))
    after = torch.get_rng_state().tolist()
    for worker, found in enumerate(batches):
        seed = batches._base_seed + worker
        assert found == [worker, "thread", seed, random.Random(seed).random(),
                         torch.rand(1, generator=torch.Generator().manual_seed(seed)).item(),
                         np.random.default_rng(seed).random()]
    assert torch.get_rng_state().tolist() == after        # nobody has touched what everybody shares


def test_threads_end_with_the_iteration():
    before = threading.active_count()
    for _ in range(3):
        for _ in DataLoader(TABLE, 2, num_workers=2):
            break
    list(DataLoader(TABLE, 2, num_workers=2))
    assert soon(lambda: threading.active_count() <= before)         # threads of earlier tests may end meanwhile


# --- errors --------------------------------------------------


def fail(error):
    def function(i):
        if i == 2:
            raise error
        return i
    return function


class Picky(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


@pytest.mark.parametrize("context, kind", [("fork", "process"), ("thread", "thread")])
@pytest.mark.parametrize("error, raised", [(ValueError("so bad"), ValueError), (KeyError("a key"), KeyError),
                                           (OSError(2, "no file"), FileNotFoundError),
                                           (Picky("so", "bad"), RuntimeError)])
def test_an_error_comes_over_with_its_traceback(context, kind, error, raised):
    batches = iter(DataLoader(Apply(5, fail(error)), None, num_workers=1, multiprocessing_context=context))
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(raised) as caught:
        next(batches)
    message = str(caught.value)
    assert message.startswith(f"Caught {type(error).__name__} in DataLoader worker {kind} 0.\nOriginal Traceback")
    assert "raise error" in message and "test_workers.py" in message and str(error.args[-1]) in message
    assert list(batches) == [3, 4]                        # the others are not lost


@pytest.mark.parametrize("context", ["fork", "thread"])
def test_workers_end_when_the_error_is_gone(context):
    """Not when the cycle collector comes: no frame of the error holds the error."""
    gc.collect()
    gc.disable()
    try:
        def work():
            with pytest.raises(ValueError, match="so bad"):
                list(DataLoader(Apply(5, fail(ValueError("so bad"))), None, num_workers=2,
                                multiprocessing_context=context))
        before = threading.active_count()
        work()
        assert not multiprocessing.active_children() and soon(lambda: threading.active_count() <= before)
        assert not processes._open
    finally:
        gc.enable()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_an_iterator_in_a_cycle():
    """The collector finalises the pipes before the iterator, or after it: no descriptor is closed twice."""
    for _ in range(5):
        batches = iter(DataLoader(Apply(6, lambda i: i), None, num_workers=2))
        assert next(batches) == 0
        batches.itself = batches
        pipes = [pipe.fileno() for pipe in batches._crew._pipes]
        del batches
        gc.collect()
        ours = os.pipe(), os.pipe()                       # they get the numbers of the pipes that were closed
        gc.collect()
        assert {*ours[0], *ours[1]} & {*pipes}
        for end in (*ours[0], *ours[1]):
            os.close(end)
    assert not multiprocessing.active_children() and not processes._open


def test_an_error_of_a_local_type_comes_over():
    class Local(ValueError):
        pass
    with pytest.raises(RuntimeError, match="Caught RuntimeError|Caught Local"):
        list(DataLoader(Apply(5, fail(Local("far"))), None, num_workers=1))


def test_what_cannot_be_sent_is_said():
    with pytest.raises(Exception, match="(?s)Caught .* in DataLoader worker process 0.*[Pp]ickle"):
        list(DataLoader(Apply(3, lambda i: (lambda: i)), None, num_workers=1))
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor which requires_grad"):
        list(DataLoader(Apply(3, lambda i: weight * 2), None, num_workers=1))


class Stubborn:
    """Can be pickled, but not unpickled."""

    def __reduce__(self):
        return int, ("no number",)


def test_what_cannot_be_unpickled_is_said_on_either_side():
    with pytest.raises(ValueError, match="(?s)while a batch .* was unpickled.*invalid literal"):
        list(DataLoader(Apply(2, lambda i: Stubborn()), None, num_workers=1))
    batches = iter(DataLoader(Apply(2, lambda i: i), None, sampler=[Stubborn(), 7], num_workers=1))
    with pytest.raises(ValueError, match="(?s)in DataLoader worker process 0.*invalid literal"):
        next(batches)
    assert list(batches) == [7]
    with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
        list(DataLoader(Apply(2, lambda i: i), None, sampler=[lambda: 1], num_workers=1))


@pytest.mark.parametrize("context", ["fork", "thread"])
def test_errors_before_the_first_sample(context):
    def start(worker):
        raise ValueError("cannot start")

    class Broken(IterableDataset):
        def __iter__(self):
            raise OSError("no stream")
    with pytest.raises(ValueError, match="cannot start"):
        list(DataLoader(Apply(3, int), num_workers=1, worker_init_fn=start, multiprocessing_context=context))
    with pytest.raises(OSError, match="no stream"):
        list(DataLoader(Broken(), num_workers=1, multiprocessing_context=context))


@pytest.mark.parametrize("context", ["fork", "thread"])
def test_timeout(context):
    release = threading.Event()
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.2 seconds"):
        list(DataLoader(Apply(3, lambda i: release.wait(NEVER)), None, num_workers=1, timeout=0.2,
                        multiprocessing_context=context))
    release.set()                                         # a worker that is late is not waited for


@pytest.mark.parametrize("end, words", [
    (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal: Killed"),
    (lambda: os._exit(3), "exit code 3"),
    (lambda: sys.exit(4), "exit code 4"),
    (lambda: os.kill(os.getpid(), signal.SIGTERM), "killed by signal: Terminated"),
])
def test_a_worker_that_dies_is_noticed_at_once(end, words):
    def function(i):
        if i == 3:
            time.sleep(0.2)
            end()
        if i == 2:
            time.sleep(NEVER)                             # the other worker is busy, and has to go too
        return i
    batches = iter(DataLoader(Apply(5, function), None, num_workers=2))
    assert [next(batches), next(batches)] == [0, 1]
    pids = [process.pid for process in batches._workers]
    with pytest.raises(RuntimeError, match=rf"DataLoader worker \(pid\(s\) {pids[1]}\) exited unexpectedly: {words}"):
        list(batches)
    assert not any(map(alive, pids))
    assert list(batches) == []


def test_a_persistent_worker_that_dies_is_replaced():
    loader = DataLoader(Apply(4, lambda i: os.getpid()), None, num_workers=1, persistent_workers=True)
    first = set(loader)
    os.kill(*first, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(loader)
    second = set(loader)
    assert len(second) == 1 and second != first


def test_a_thread_that_exits_is_noticed():
    with pytest.raises(RuntimeError, match="DataLoader worker thread 0 exited unexpectedly: SystemExit"):
        list(DataLoader(Apply(3, lambda i: sys.exit(1)), num_workers=1, multiprocessing_context="thread"))


# --- the end --------------------------------------------------


def test_breaking_off_ends_the_workers():
    for options in ({}, {"persistent_workers": True}):
        loader = DataLoader(Apply(10**9, lambda i: torch.full((50_000,), 1.0)), 4, num_workers=2, **options)
        for _ in loader:
            break
        del loader
        assert not multiprocessing.active_children()


def test_a_program_that_ends_in_the_middle_ends():
    done = program("""
        class Slow(Dataset):
            def __len__(self): return 100
            def __getitem__(self, i):
                if i: time.sleep(60)
                return i
        batches = iter(DataLoader(Slow(), None, num_workers=2))
        print(next(batches), [process.pid for process in batches._workers])
        threads = iter(DataLoader(Slow(), None, num_workers=2, multiprocessing_context="thread"))
        print(next(threads))
    """)
    assert done.returncode == 0 and done.errors == "", done.errors
    first, second = done.output.splitlines()
    assert first.startswith("0 [") and second == "0"
    assert soon(lambda: not any(map(alive, eval(first[2:]))))


ENDLESS = """
    class Slow(Dataset):
        def __len__(self): return 10**6
        def __getitem__(self, i):
            time.sleep(0.01)
            return torch.zeros(1000)
    batches = iter(DataLoader(Slow(), 8, num_workers=2))
    next(batches)
    print([process.pid for process in batches._workers], flush=True)
    for _ in batches: pass
"""


def test_ctrl_c():
    """The whole group gets the signal, as from a terminal: one KeyboardInterrupt, in the main process, and all ends."""
    started = program(ENDLESS, wait=False)
    try:
        pids = eval(started.stdout.readline())
        os.killpg(started.pid, signal.SIGINT)
        output, errors = started.communicate(timeout=PATIENCE)
        assert errors.rstrip().endswith("KeyboardInterrupt") and errors.count("Traceback") == 1, errors
        assert started.returncode in (-signal.SIGINT, 130) and soon(lambda: not any(map(alive, pids)))
    finally:
        started.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_notice_that_the_loader_is_gone(how):
    started = program(ENDLESS, wait=False)
    try:
        pids = eval(started.stdout.readline())
        os.kill(started.pid, how)
        started.communicate(timeout=PATIENCE)
        assert soon(lambda: not any(map(alive, pids)))
    finally:
        started.kill()


def test_an_interrupt_while_waiting_ends_the_workers():
    """As from a notebook, where the program goes on afterwards."""
    class Slow(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            if i == 2:
                time.sleep(NEVER)
            return i

    def stop(*_):
        raise KeyboardInterrupt
    loader = DataLoader(Slow(), None, num_workers=1, persistent_workers=True)
    batches = iter(loader)
    assert [next(batches), next(batches)] == [0, 1]
    before = signal.signal(signal.SIGUSR1, stop)
    try:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(batches)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert list(batches) == [] and not multiprocessing.active_children()
    assert next(iter(loader)) == 0                        # with new workers
    loader._iterator._grace = 0.0                         # one of them is asleep


def test_a_forked_copy_of_an_iterator_leaves_the_workers_alone():
    batches = iter(DataLoader(Apply(6, lambda i: i), None, num_workers=1))
    next(batches)
    child = os.fork()
    if child == 0:
        try:
            batches.__del__()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert list(batches) == [1, 2, 3, 4, 5]
