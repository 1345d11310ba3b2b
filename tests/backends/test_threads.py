"""Programs of native steps give the same on any number of threads, from any thread, and in any child."""
import itertools
import os
import runpy
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.backends.cpu import machine_code, runtime, threads
from flambeau.base import settings
from tests.patience import PATIENCE

# For each tile t: x[t] = x[t] * ints[0] + scalars[0], then some time is spent, and who did it is noted in y[t].
STEP = """
declare ptr @pthread_self()
define void @axpb(ptr %buffers, ptr %ints, ptr %scalars, i64 %begin, i64 %end) {
entry:
  %x = load ptr, ptr %buffers
  %y.p = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y.p
  %a = load i64, ptr %ints
  %spin.p = getelementptr i64, ptr %ints, i64 1
  %spin = load i64, ptr %spin.p
  %b = load i64, ptr %scalars
  %me = call ptr @pthread_self()
  br label %next
next:
  %t = phi i64 [%begin, %entry], [%t.next, %spent]
  %more = icmp slt i64 %t, %end
  br i1 %more, label %tile, label %done
tile:
  %x.t = getelementptr i64, ptr %x, i64 %t
  %old = load i64, ptr %x.t
  %scaled = mul i64 %old, %a
  %new = add i64 %scaled, %b
  store i64 %new, ptr %x.t
  %y.t = getelementptr ptr, ptr %y, i64 %t
  store ptr %me, ptr %y.t
  br label %spend
spend:
  %s = phi i64 [0, %tile], [%s.next, %spend]
  %s.next = add i64 %s, 1
  fence seq_cst
  %again = icmp slt i64 %s.next, %spin
  br i1 %again, label %spend, label %spent
spent:
  %t.next = add i64 %t, 1
  br label %next
done:
  ret void
}
"""


class Program:
    """Steps x = x * a + b over `tiles` tiles, each as (grain, a, b), and what they must give."""

    def __init__(self, tiles, steps, spin=1):
        self.x, self.who, self.want = np.arange(tiles), np.zeros(tiles, np.int64), np.arange(tiles)
        self.scalars = np.array([0, *(b for _, _, b in steps)])
        # x is reached through an offset, the numbers by their index
        self.table = np.array([0, self.x.ctypes.data - 8, self.who.ctypes.data])
        fn, words = machine_code.function("axpb", STEP), []
        for index, (grain, a, b) in enumerate(steps, 1):
            words += [fn, tiles, grain, 2, 1, 2, 1, 8, 2, 0, index, a, spin]
            self.want = self.want * a + b
        self.words, self.steps = np.array(words, np.int64), len(steps)

    def run(self):
        threads.run(self.words.ctypes.data, self.steps, self.table.ctypes.data, self.scalars.ctypes.data)
        return self

    def right(self):
        return (self.x == self.want).all()


@pytest.fixture(autouse=True)
def number_of_threads(monkeypatch):
    """As many as a test asks for, whatever this machine's quota, and then the number from before."""
    monkeypatch.setattr(threads, "quota", lambda: 1 << 20)
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


@pytest.mark.parametrize("number", [1, 2, 7, runtime.MAX_STEP_SHARES + 6])
def test_results_are_the_same_on_any_number_of_threads(number):
    threads.set_num_threads(number)
    for tiles in (0, 1, 2, 3, 64, 1000):
        grains = (1, 2, 7, 64, tiles, tiles + 1)
        assert Program(tiles, [(grain, 3, n) for n, grain in enumerate(grains)] * 3).run().right()


@pytest.mark.parametrize("number", [1, 5])
def test_a_step_that_is_done_only_if_it_is_wanted(number):
    """Its grain is negative, and the first word of its last buffer says so: one that an earlier step may have set."""
    threads.set_num_threads(number)
    for tiles, grain in itertools.product((1, 2, 100), (-1, -3, -100)):
        for word in (0, 1, -1):
            asked = Program(tiles, [(grain, 3, 5)])
            asked.who[0] = word
            assert (asked.run().x == (asked.want if word else np.arange(tiles))).all()
        unset = Program(tiles, [(1, 3, 0), (grain, 2, 1)])            # the first writes who did it
        assert unset.run().right()


def test_a_program_without_steps_or_arguments():
    threads.run(0, 0, 0, 0)
    nothing = machine_code.function("nothing", "define void @nothing(ptr, ptr, ptr, i64, i64) {\n  ret void\n}")
    words = np.array([nothing, 5, 1, 0, 0, 0] * 2 + [nothing, 0, 0, 0, 0, 0], np.int64)
    threads.run(words.ctypes.data, 3, 0, 0)


def test_more_buffers_and_numbers_than_anybody_has():
    sums = machine_code.function("sums", """
define void @sums(ptr %buffers, ptr %ints, ptr %scalars, i64 %begin, i64 %end) {
entry:
  %n = load i64, ptr %ints
  br label %next
next:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %buffer.p = getelementptr ptr, ptr %buffers, i64 %i
  %buffer = load ptr, ptr %buffer.p
  %number.p = getelementptr i64, ptr %scalars, i64 %i
  %number = load i64, ptr %number.p
  store i64 %number, ptr %buffer
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %next, label %end.
end.:
  ret void
}
""")
    n = 5000
    x, numbers = np.zeros(n, np.int64), np.arange(n)[::-1].copy()
    pairs = [word for i in range(n) for word in (0, 8 * i)]
    words = np.array([sums, 1, 1, n, n, 1, *pairs, *range(n), n], np.int64)
    table = np.array([x.ctypes.data])
    threads.run(words.ctypes.data, 1, table.ctypes.data, numbers.ctypes.data)
    assert (x == numbers).all()


def test_workers_take_part():
    threads.set_num_threads(3)
    for _ in range(100):                              # on a busy machine the caller may be done before a worker wakes
        program = Program(64, [(1, 1, 1)], spin=20_000).run()
        if len(np.unique(program.who)) > 1:
            break
    assert program.right() and 1 < len(np.unique(program.who)) <= 3


# Each tile notes in x[t] who did it; the first of either half then waits until the first of the other has begun.
MEETING = """
declare ptr @pthread_self()
define void @meeting(ptr %buffers, ptr %ints, ptr %scalars, i64 %begin, i64 %end) {
entry:
  %x = load ptr, ptr %buffers
  %half = load i64, ptr %ints
  %patience = load i64, ptr %scalars
  %me = call ptr @pthread_self()
  %place = getelementptr ptr, ptr %x, i64 %begin
  store atomic ptr %me, ptr %place seq_cst, align 8
  %within = urem i64 %begin, %half
  %first = icmp eq i64 %within, 0
  br i1 %first, label %wait, label %done
wait:
  %time = phi i64 [%patience, %entry], [%time.next, %wait]
  %other = xor i64 %begin, %half
  %other.p = getelementptr ptr, ptr %x, i64 %other
  %who = load atomic i64, ptr %other.p seq_cst, align 8
  %time.next = sub i64 %time, 1
  %met = icmp ne i64 %who, 0
  %late = icmp eq i64 %time.next, 0
  %over = or i1 %met, %late
  br i1 %over, label %done, label %wait
done:
  ret void
}
"""


def test_each_thread_has_a_share_of_its_own():
    """Pieces side by side, and the same ones in the next step: what one step wrote is in the cache of who reads it."""
    threads.set_num_threads(2)
    half, who, patience = 32, np.zeros(64, np.int64), np.array([20_000_000_000])
    words = np.array([machine_code.function("meeting", MEETING), 2 * half, 1, 1, 1, 1, 0, 0, 0, half], np.int64)
    table, found = np.array([who.ctypes.data]), []
    for _ in range(50):
        who[:] = 0
        threads.run(words.ctypes.data, 1, table.ctypes.data, patience.ctypes.data)
        assert who.all() and len(np.unique(who)) == 2
        found.append(who[0] == threading.get_ident() != who[half])
    assert sum(found) >= 40                           # a thread that was held up may find its share taken


def test_what_a_sleeping_worker_would_have_done_is_done_by_others():
    threads.set_num_threads(4)
    for _ in range(20):
        Program(64, [(1, 1, 1)], spin=1000).run()
        time.sleep(0.002)                             # all are asleep by then
        assert Program(4, [(1, 3, 1)] * 3, spin=1).run().right()


def test_the_woken_wake_the_others():
    """The caller wakes two, so that more than three at work are those that they have woken."""
    threads.set_num_threads(8)
    for _ in range(100):
        Program(64, [(1, 1, 1)], spin=1000).run()
        time.sleep(0.01)                              # all are asleep by then
        program = Program(64, [(1, 1, 1)], spin=200_000).run()
        assert program.right()
        if len(np.unique(program.who)) > 3:
            break
    assert 3 < len(np.unique(program.who)) <= 8


def test_small_steps_run_on_the_callers_thread():
    threads.set_num_threads(3)
    assert set(Program(64, [(64, 1, 1)], spin=1000).run().who) == {threading.get_ident()}


def test_one_thread_makes_no_workers():
    threads.set_num_threads(1)
    assert set(Program(64, [(1, 1, 1)], spin=1000).run().who) == {threading.get_ident()}


def test_several_python_threads_at_once():
    threads.set_num_threads(3)
    wrong = []

    def work(seed):
        choose = np.random.RandomState(seed)
        for _ in range(40):
            program = Program(50, [(int(choose.randint(1, 60)), 3, seed) for _ in range(10)], spin=20).run()
            if not program.right():
                wrong.append(seed)
    others = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in others: thread.start()
    for number in (1, 2, 5, 3) * 5:                   # also while their number changes
        threads.set_num_threads(number)
        time.sleep(0.001)
    for thread in others: thread.join()
    assert not wrong


def tasks():
    return set(os.listdir("/proc/self/task"))


def blocks(task, number):
    """Whether a thread has the signal `number` blocked."""
    with open(f"/proc/self/task/{task}/status") as file:
        blocked = int(next(line.split()[1] for line in file if line.startswith("SigBlk")), 16)
    return bool(blocked >> number - 1 & 1)


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the list of threads in /proc")


@linux
def test_workers_leave_signals_to_python_and_go_when_they_are_not_wanted():
    Program(64, [(64, 1, 1)]).run()                   # compiled, by a thread that then ends
    threads.set_num_threads(4)                        # a new pool: those of the old one may still be on their way out
    before = tasks()
    Program(64, [(64, 1, 1)]).run()
    assert not tasks() - before                       # made when they are needed
    Program(64, [(1, 1, 1)]).run()
    workers = tasks() - before
    assert len(workers) == 3
    for task in workers:
        wait_until(lambda: not blocks(task, signal.SIGSEGV))       # faulthandler tells where; a new thread blocks all
        assert all(blocks(task, number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD,
                                                       signal.SIGUSR1))
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    threads.set_num_threads(1)
    wait_until(lambda: not workers & tasks())


def wait_until(holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_idle_pool_uses_no_processor():
    threads.set_num_threads(4)
    assert Program(64, [(1, 1, 1)] * 10).run().right()
    began = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - began < 0.05


# --- children, and the end ---

def script(body, **env):
    """Run `body` in a new interpreter that knows Program; its standard output."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(body)], capture_output=True, text=True,
                          timeout=PATIENCE, cwd=Path(__file__).parents[2], env={**os.environ, **env})
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert not done.stderr, done.stderr
    return done.stdout


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@needs_fork
def test_a_forked_child_has_its_own_workers():
    assert script("""
        import os, threading, time
        from tests.backends.test_threads import Program, machine_code, np, threads
        threads.quota = lambda: 99
        threads.set_num_threads(3)
        steps = [(1, 3, 1)] * 5

        def child(times=3):
            pid = os.fork()
            if pid == 0:
                fine = Program(200, steps, spin=50).run().right()
                if times:                              # children of children, and a kernel that is new
                    fine = fine and child(times - 1)
                    machine_code.function("k", f"define i64 @k() {{ ret i64 {os.getpid()} }}")
                os._exit(0 if fine else 1)
            return os.waitpid(pid, 0)[1] == 0

        print(child(0))                                # before there is a pool
        print(Program(200, steps).run().right(), child(), Program(200, steps).run().right())
        stop = False
        def busy():
            while not stop:
                assert Program(50, steps, spin=500).run().right()
        def compiling():
            n = 0
            while not stop:
                machine_code.function(f"f{n}", f"define i64 @f{n}() {{ ret i64 {n} }}")
                n += 1
        others = [threading.Thread(target=work) for work in (busy, busy, compiling)]
        for thread in others: thread.start()
        print([child(1) for _ in range(10)] == [True] * 10)       # while other threads run programs and compile
        stop = True
        for thread in others: thread.join()
        print(Program(200, steps).run().right())
    """, FLAMBEAU_CACHE_DIR="").split() == ["True"] * 6


def test_the_interpreter_ends_with_workers_at_work():
    assert script("""
        import threading, time
        from tests.backends.test_threads import Program, threads
        threads.quota = lambda: 99
        threads.set_num_threads(4)
        long = Program(100, [(1, 1, 1)] * 1000, spin=100_000)
        threading.Thread(target=long.run, daemon=True).start()
        while not long.who.any(): time.sleep(0.001)
        print(Program(200, [(1, 3, 1)]).run().right())
    """).split() == ["True"]


def test_the_interpreter_ends_right_after_a_step():
    assert script("""
        from tests.backends.test_threads import Program, threads
        threads.quota = lambda: 99
        threads.set_num_threads(4)
        print(Program(200, [(1, 3, 1)] * 3).run().right())
    """).split() == ["True"]


# --- how many ---

def test_the_public_functions(monkeypatch):
    torch.set_num_threads(3)
    assert torch.get_num_threads() == 3
    monkeypatch.setattr(threads, "quota", lambda: 2)
    torch.set_num_threads(np.int64(64))
    assert torch.get_num_threads() == 2               # never more than the quota
    for wrong, words in ((0, "a positive integer"), (-1, "a positive integer"), (2.0, "an int, but got float"),
                         ("2", "an int, but got str"), (True, "an int, but got bool"), (None, "got NoneType")):
        with pytest.raises(RuntimeError, match=f"set_num_threads expects .*{words}"):
            torch.set_num_threads(wrong)
        with pytest.raises(RuntimeError, match=f"set_num_interop_threads expects .*{words}"):
            torch.set_num_interop_threads(wrong)
    assert torch.get_num_threads() == 2


def test_interop_threads_are_accepted_once(monkeypatch):
    monkeypatch.setattr(threads, "_interop", None)
    assert torch.get_num_interop_threads() >= 1
    torch.set_num_interop_threads(5)
    assert torch.get_num_interop_threads() == 5
    with pytest.raises(RuntimeError, match="cannot set number of interop threads"):
        torch.set_num_interop_threads(5)


@pytest.mark.parametrize("said, number", [
    ({}, 0), ({"OMP_NUM_THREADS": "3"}, 3), ({"OMP_NUM_THREADS": "4,2"}, 4), ({"OMP_NUM_THREADS": "many"}, 0),
    ({"FLAMBEAU_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"}, 2), ({"FLAMBEAU_NUM_THREADS": ""}, 0),
    ({"FLAMBEAU_NUM_THREADS": "0"}, None), ({"FLAMBEAU_NUM_THREADS": "two"}, None),
])
def test_the_environment(monkeypatch, said, number):
    for name in ("FLAMBEAU_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    if number is None:
        with pytest.raises(ValueError, match="FLAMBEAU_NUM_THREADS=.*positive integer"):
            runpy.run_path(settings.__file__)
    else:
        assert runpy.run_path(settings.__file__)["num_threads"] == number
        monkeypatch.setattr(settings, "num_threads", number)
        monkeypatch.setattr(threads, "_threads", None)
        monkeypatch.setattr(threads, "processors", lambda: 8)
        assert threads.get_num_threads() == (number or 8)


NO_LIMIT = 1 << 20


@pytest.mark.parametrize("groups, files, number", [
    ("", {}, NO_LIMIT),
    ("0::/", {"cpu.max": "max 100000"}, NO_LIMIT),
    ("0::/", {"cpu.max": "150000 100000"}, 2),
    ("0::/a/b", {"a/cpu.max": "100000 100000", "a/b/cpu.max": "400000 100000"}, 1),
    ("0::/a/b", {"a/b/cpu.max": "50000 100000"}, 1),
    ("0::/not/seen", {"cpu.max": "300000 100000"}, 3),
    ("0::/../out", {"cpu.max": "300000 100000"}, 3),
    ("3:cpu,cpuacct:/a", {"cpu,cpuacct/a/cpu.cfs_quota_us": "250000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, 3),
    ("3:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, NO_LIMIT),
    ("4:memory:/\n3:cpu:/\n0::/", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
])
def test_the_quota_of_control_groups(tmp_path, monkeypatch, groups, files, number):
    monkeypatch.undo()                                # the real function, not the fixture's
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert threads.quota(f"{tmp_path}/") == number


def test_the_text_is_the_same_in_every_process():
    assert runtime.text() == runtime.text() and "$" not in runtime.text()
