"""The caching allocator: what comes back, when, and what it says; and what is said when there is no room."""
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.cpu.memory import allocator, limits
from flambeau.backends.cpu.memory.allocator import Block, blank, block, class_size
from flambeau.backends.reference import execute
from flambeau.base import dtypes, settings
from flambeau.base.spec import spec
from flambeau.tensor import out_of_memory
from tests.patience import PATIENCE

F32 = dtypes.float32
MIB = 1 << 20

# Where the kernel promises memory that it does not have, a process that takes it is ended instead of told.
OVERCOMMITS = os.path.exists("/proc/sys/vm/overcommit_memory") and \
    open("/proc/sys/vm/overcommit_memory", encoding="ascii").read().strip() == "1"
NEEDS_A_LIMIT = pytest.mark.skipif(OVERCOMMITS, reason="this machine promises any amount of memory")


OTHERS = []                     # tables of tests that are over: blocks that they left may still be in use


@pytest.fixture(scope="module", autouse=True)
def nothing_else():
    """What other tests left in cycles would come back in the middle of ours."""
    gc.collect()


@pytest.fixture(autouse=True)
def clean():
    """Each test starts with tables of its own, an empty cache and peaks of now: tensors of other tests may be alive."""
    tables = pytest.MonkeyPatch()                             # not the tests' own, which they may undo half-way
    for name in ("_size_classes", "_fast_paths", "_slabs", "_regions"):
        tables.setattr(allocator, name, {})
        OTHERS.append(getattr(allocator, name))
    allocator.reset_peaks()
    yield
    allocator.empty_cache()
    tables.undo()
    allocator.reset_peaks()


def over(nbytes):
    """An array over a new block, and the block's address."""
    made = block(nbytes)
    return np.ndarray(nbytes, np.uint8, made), made.address


class Growth:
    """How much the numbers have changed since it was made."""

    def __init__(self):
        self.before = allocator.stats()

    def __getitem__(self, name):
        return allocator.stats()[name] - self.before[name]


# --- blocks ---


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1024, 1025, 4097, 65_537, 256 << 10, (256 << 10) + 1, MIB + 5,
                                    2 * MIB, 3 * MIB + 1, 9 * MIB])
def test_a_block_is_aligned_and_large_enough(nbytes):
    made = block(nbytes)
    assert isinstance(made, Block) and made.nbytes >= nbytes and memoryview(made).nbytes == made.nbytes
    assert made.address % 64 == 0
    if nbytes > allocator.MAX_SMALL_BYTES:
        assert made.address % mmap.PAGESIZE == 0
    if nbytes >= allocator.HUGE_PAGE_BYTES:
        assert made.address % allocator.HUGE_PAGE_BYTES == 0
    array = np.ndarray(made.nbytes, np.uint8, made)
    array[...] = 255
    assert array.ctypes.data == made.address and array.min() == 255


def test_mappings_begin_where_huge_pages_lie_on_kernels_that_do_not_see_to_it(monkeypatch):
    real = allocator._map                            # Linux before 6.7 lays 2 MiB anywhere: here by a page more
    monkeypatch.setattr(allocator, "_map", lambda size: real(size + allocator.PAGE_BYTES))
    kept = [allocator._map_aligned(pages * allocator.HUGE_PAGE_BYTES) for pages in (1, 1, 3, 1, 2)]
    assert [start % allocator.HUGE_PAGE_BYTES for _, start in kept] == [0] * 5


def test_size_classes_waste_little():
    for n in [*range(1, 5000), *(2**k + d for k in range(12, 45) for d in (-1, 0, 1, 2**(k - 1)))]:
        size = class_size(n)
        assert n <= size <= max(n * 9 // 8, n + 63) and size % 64 == 0 and class_size(size) == size


@pytest.mark.parametrize("nbytes", [100, 5000, 300_000, 5 * MIB])
def test_memory_comes_back_last_in_first_out(nbytes):
    a, b = block(nbytes), block(nbytes)
    first, second = a.address, b.address
    assert first != second
    del a
    del b
    c, d = block(nbytes), block(nbytes)
    assert (c.address, d.address) == (second, first)


@pytest.mark.parametrize("nbytes", [100, 300_000])
def test_a_view_keeps_the_memory_after_the_first_array_is_gone(nbytes):
    array, address = over(nbytes)
    array[...] = 3
    views = [array[10:20].view(np.uint16)[::2], array.reshape(-1, 10).T, memoryview(array),
             np.frombuffer(array, np.uint8), np.lib.stride_tricks.as_strided(array[3:], (2, 2), (1, 1))]
    del array
    while views:
        assert block(nbytes).address != address
        assert np.asarray(views[-1]).tobytes()[:2] == b"\3\3"
        views.pop()
    assert block(nbytes).address == address


def test_an_attribute_of_the_array_keeps_the_memory():
    array, address = over(640)
    base = array.base
    del array
    assert block(640).address != address
    del base
    assert block(640).address == address


@pytest.mark.parametrize("shape, strides", [((2, 3), None), ((2, 3), (1, 2)), ((), None), ((0, 3), None),
                                            ((2, 3, 2), (2, 4, 1)), ((300, 400), (1, 300))])
def test_blank_is_laid_out_as_its_spec(shape, strides):
    for _ in range(2):                                        # fresh, then from the cache
        kind = spec(F32, shape, strides)
        array, address = blank(kind)
        assert type(array) is np.ndarray and array.shape == shape and array.dtype == np.float32
        assert array.ctypes.data == address and array.flags.writeable
        assert kind.numel == 0 or array.strides == kind.np_strides
        array[...] = 1
        del array


def test_a_somewhat_larger_idle_block_is_taken():
    held = block(5 * MIB)
    address = held.address
    del held
    near = block(4 * MIB + MIB // 2)                          # two classes below
    assert near.address == address and near.nbytes == 5 * MIB
    del near
    assert block(3 * MIB).address != address                  # more than a quarter would be wasted
    assert block(5 * MIB).address == address


# --- numbers ---


def test_the_numbers_are_exact():
    grown = Growth()
    a, b, c = block(100), block(100), block(5 * MIB)
    assert grown["allocated_bytes.all.current"] == 256 + 5 * MIB
    assert grown["allocated_bytes.small_pool.current"] == 256
    assert grown["allocation.all.current"] == grown["allocation.all.allocated"] == 3
    assert grown["segment.large_pool.current"] == 1 and grown["reserved_bytes.large_pool.current"] == 5 * MIB
    assert grown["num_cache_hits"] == 1                       # the second of the slab
    base = torch.cpu.memory_allocated() - 256 - 5 * MIB
    assert torch.cpu.max_memory_allocated() == torch.cpu.memory_allocated()
    del b, c
    assert grown["allocated_bytes.all.current"] == 128 and grown["allocation.all.freed"] == 2
    assert torch.cpu.memory_allocated() == base + 128
    assert torch.cpu.max_memory_allocated() == base + 256 + 5 * MIB
    assert torch.cpu.memory_reserved() >= 5 * MIB             # idle, not given back
    torch.cpu.reset_peak_memory_stats()
    assert torch.cpu.max_memory_allocated() == base + 128
    c = block(5 * MIB)
    assert grown["num_cache_hits"] == 2 and torch.cpu.max_memory_allocated() == base + 128 + 5 * MIB
    del a, c
    assert grown["allocated_bytes.all.current"] == 0
    assert grown["allocated_bytes.all.allocated"] == grown["allocated_bytes.all.freed"] == 256 + 10 * MIB


def test_empty_cache_gives_back_what_is_idle_and_nothing_else():
    grown = Growth()
    small = [block(70_000) for _ in range(40)]
    large, idle = block(MIB), block(MIB)
    kept, kept_array = small[20].address, np.ndarray(70_000, np.uint8, small[20])
    kept_array[...] = 5
    reserved = grown["reserved_bytes.all.current"]
    del small, idle
    assert grown["reserved_bytes.all.current"] == reserved
    torch.cpu.empty_cache()
    assert grown["segment.small_pool.current"] == 1 and grown["segment.large_pool.current"] == 1
    assert grown["reserved_bytes.all.current"] == MIB + 16 * class_size(70_000)      # a slab of sixteen is left
    assert kept_array.min() == 5 and kept_array.ctypes.data == kept
    del kept_array, large
    torch.cpu.empty_cache()
    assert grown["reserved_bytes.all.current"] == 0


def test_a_slab_that_stays_goes_on_being_used():
    held = [block(1000) for _ in range(10)]
    addresses = {b.address for b in held}
    del held[1:]
    allocator.empty_cache()
    again = [block(1000) for _ in range(9)]
    slab = range(min(addresses), min(addresses) + allocator.MIN_SLAB_BYTES)
    assert {b.address for b in again} <= addresses | set(slab)
    assert held[0].address not in {b.address for b in again}


def test_idle_memory_has_a_bound_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr(settings, "cache_bytes", 4 * MIB)
    grown = Growth()
    blocks = [block(n * MIB) for n in (1, 2, 3)]
    addresses = [b.address for b in blocks]
    assert grown["reserved_bytes.all.current"] == 6 * MIB
    del blocks[0]
    del blocks[0]
    assert grown["reserved_bytes.all.current"] == 6 * MIB     # three of them idle
    del blocks[0]
    assert grown["reserved_bytes.all.current"] == 3 * MIB     # the first two went
    assert block(3 * MIB).address == addresses[2]
    monkeypatch.setattr(settings, "cache_bytes", 0)
    del addresses
    held = block(3 * MIB)
    del held
    assert grown["reserved_bytes.all.current"] == 0


def test_the_snapshot_adds_up():
    held = [block(100), block(3000), block(MIB)]
    found = torch.cpu.memory_snapshot()
    assert sum(s["total_size"] for s in found) == torch.cpu.memory_reserved()
    assert sum(s["allocated_size"] for s in found) == torch.cpu.memory_allocated()
    states = {b["address"]: b["state"] for s in found for b in s["blocks"]}
    assert all(states[b.address] == "active_allocated" for b in held)
    assert "inactive" in states.values()


def test_the_summary_says_it_in_words():
    held = torch.ones(1000, 500)                              # more than what other tests left
    held.sum().item()
    text = torch.cpu.memory_summary()
    assert "allocated" in text and "large pool" in text and "test_memory.py:" in text
    assert "large pool" not in torch.cpu.memory_summary(abbreviated=True)
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_the_device_answers_as_in_torch():
    cpu = torch.cpu
    assert cpu.is_available() and cpu.is_initialized() and cpu.device_count() == 1 and cpu.current_device() == "cpu"
    for device in (None, "cpu", torch.device("cpu"), "cpu:0"):
        assert cpu.memory_allocated(device) >= 0
    with pytest.raises((AssertionError, ValueError)):
        cpu.memory_allocated("cuda")
    free, total = cpu.mem_get_info()
    assert 0 < free <= total
    pending = torch.ones(3) + 1
    cpu.synchronize()
    assert pending._storage.value.trace is None


# --- at any moment, from any thread ---


def test_threads_do_not_get_the_same_memory():
    wrong, sizes = [], (64, 300, 5000, 70_000, 300_000, MIB)
    grown = Growth()

    def work(mark):
        rng, held = np.random.default_rng(mark), []
        for turn in range(400):
            array, _ = over(sizes[rng.integers(len(sizes))])
            array[:64] = mark
            held.append(array)
            if len(held) > 8:
                gone = held.pop(rng.integers(len(held)))
                if (gone[:64] != mark).any():
                    wrong.append(mark)
            if turn % 100 == mark:
                allocator.empty_cache()
        del gone

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert grown["allocated_bytes.all.current"] == 0 and grown["allocation.all.current"] == 0
    allocator.reset_peaks()
    assert allocator._counts.allocated == torch.cpu.memory_allocated()
    assert grown["allocation.all.allocated"] == grown["allocation.all.freed"] == 6 * 400


def test_a_block_made_in_one_thread_may_go_in_another():
    array, address = over(700)
    box = [array]
    del array
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert block(700).address == address


def test_a_collection_may_come_in_the_middle_of_an_allocation(monkeypatch):
    """Finalisers that allocate and free, run wherever memory is asked from the system and given back."""
    class Cycle:
        def __init__(self):
            self.me, self.array = self, over(700)[0]

        def __del__(self):
            inner = [block(n) for n in (700, 5000, 300_000)]
            del inner

    fresh, trim, deep = allocator._map_fresh, allocator._trim, []

    def mess():
        if not deep:
            deep.append(1)
            Cycle()
            gc.collect(0)
            deep.pop()

    def messy(function):
        def call(*args, **named):
            mess()
            made = function(*args, **named)
            mess()
            return made
        return call

    grown = Growth()
    monkeypatch.setattr(allocator, "_map_fresh", messy(fresh))
    monkeypatch.setattr(allocator, "_trim", messy(trim))
    held = []
    for n in range(30):
        held += [over(n)[0] for n in (700, 5000, 300_000 + 50_000 * n)]
        if n % 7 == 3:
            allocator.empty_cache()
    starts = sorted((a.ctypes.data, a.nbytes) for a in held)
    assert all(one + size <= other for (one, size), (other, _) in zip(starts, starts[1:], strict=False))
    del held
    gc.collect()
    monkeypatch.undo()
    allocator.empty_cache()
    # none of ours is left, the smallest of which has 704 bytes; what tests before this one left behind comes and goes
    assert grown["allocated_bytes.all.current"] < 704


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_can_allocate():
    array, _ = over(300_000)
    array[...] = 1
    held, done = threading.Event(), threading.Event()

    def hold():
        with allocator._lock:
            held.set()
            done.wait(60)
    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        made, _ = over(400_000)
        made[...] = 2
        array[...] = 2
        os._exit(0 if made.max() == 2 else 1)
    done.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0 and array.max() == 1


def test_the_end_of_the_interpreter_is_quiet():
    code = ("import numpy as np, flambeau; from flambeau.backends.cpu.memory.allocator import block\n"
            "x = np.ndarray(100, 'u1', block(100)); y = np.ndarray(1 << 20, 'u1', block(1 << 20))\n"
            "z = [x]; z.append(z); flambeau.keep = y[3:]")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- no room ---


def failing(monkeypatch, times):
    """Let the system refuse the next `times` mappings."""
    real, left = allocator._map, [times]

    def refuse(size):
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(12, "Cannot allocate memory")
        return real(size)
    monkeypatch.setattr(allocator, "_map", refuse)


def test_a_refused_mapping_empties_the_cache_and_tries_again(monkeypatch):
    idle = block(5 * MIB)
    del idle
    grown = Growth()
    failing(monkeypatch, 1)
    made = block(7 * MIB)
    assert grown["num_alloc_retries"] == 1 and grown["num_ooms"] == 0
    assert grown["reserved_bytes.all.current"] == 2 * MIB and made.nbytes == 7 * MIB


@pytest.mark.parametrize("nbytes", [100, 7 * MIB - 3])
def test_a_refusal_changes_nothing_and_says_the_numbers(monkeypatch, nbytes):
    held = block(MIB)
    allocator.empty_cache()
    before = allocator.stats()
    failing(monkeypatch, 2)
    words = allocator.bytes_in_words
    numbers = f"{words(allocator.allocated())} are allocated and {words(allocator.reserved())} reserved"
    with pytest.raises(MemoryError, match=rf"you tried to allocate {nbytes} bytes .*{numbers}") as got:
        block(nbytes)
    assert isinstance(got.value, RuntimeError) and isinstance(got.value, torch.OutOfMemoryError)
    after = allocator.stats()
    assert {k for k in after if after[k] != before[k]} == {"num_ooms", "num_alloc_retries"}
    assert block(nbytes).nbytes >= nbytes and held.nbytes == MIB


def test_more_than_there_could_ever_be_is_refused_before_the_system_is_asked(monkeypatch):
    monkeypatch.setattr(allocator, "_map", lambda size: pytest.fail("asked for it"))
    with pytest.raises(MemoryError, match=f"allocate {10**14} bytes"):
        block(10**14)
    with pytest.raises(MemoryError):
        blank(spec(F32, (1 << 60,)))
    monkeypatch.setattr(allocator, "limit", lambda: allocator.resident_bytes() + 2 * MIB)
    allocator._counts.room = 0
    with pytest.raises(MemoryError):
        block(3 * MIB)


def test_the_cache_is_emptied_before_memory_runs_short(monkeypatch):
    idle = block(5 * MIB)
    del idle
    monkeypatch.setattr(allocator, "available", lambda: MIB)
    allocator._counts.room = 0
    grown = Growth()
    made = block(20 * MIB)
    assert made.nbytes == 20 * MIB and grown["reserved_bytes.all.current"] == 15 * MIB
    allocator._counts.room = 0


def test_numpy_gets_the_idle_memory_when_it_has_none():
    kind, array, tries = spec(F32, (3,)), np.ones(3, np.float32), []

    def ref(xp, given):
        tries.append(torch.cpu.memory_reserved())
        if len(tries) == 1:
            raise MemoryError
        return given + 1
    op = SimpleNamespace(ref=ref, overwrites=False, effect=False, kwonly=(), direct=None, __module__="nobody")
    entry = SimpleNamespace(op=op, nbytes=12, casts=None, rounded=None, simple=True, outs=(kind,), many=False,
                            device=kind.device)
    idle = block(5 * MIB)
    del idle
    assert execute(entry, [array], ())[0].tolist() == [2, 2, 2] and tries[0] - tries[1] >= 5 * MIB
    tries.clear()
    with pytest.raises(MemoryError):                          # nothing is idle any more
        execute(entry, [array], ())


def test_what_the_machine_says():
    assert 0 < limits.available() <= limits.limit()
    assert 0 < limits.resident_bytes() < limits.limit()


@pytest.mark.parametrize("groups, files, limit, available", [
    ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "5000000", "a/memory.current": "3000000",
                   "a/memory.stat": "anon 1\ninactive_file 500000\n"}, 5_000_000, 2_500_000),
    ("4:cpu,memory:/x\n0::/\n", {"memory/memory.limit_in_bytes": "7000000", "memory/memory.usage_in_bytes": "6000000",
                                 "memory/memory.stat": "total_inactive_file 12\n"}, 7_000_000, 1_000_012),
    ("4:cpu:/x\n", {}, 1 << 30, 1 << 29),
])
def test_control_groups_bound_it(tmp_path, monkeypatch, groups, files, limit, available):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    real = limits.text_of
    said = {"/proc/self/cgroup": groups,
            "/proc/meminfo": f"MemTotal: {1 << 20} kB\nMemAvailable: {1 << 19} kB\nSwapTotal: 0 kB\n"}
    monkeypatch.setattr(limits, "CGROUP_FOLDER", str(tmp_path))
    monkeypatch.setattr(limits, "text_of", lambda path: said.get(path) or real(path))
    limits._groups.cache_clear()
    try:
        assert limits.limit() == limit and limits.available() == available
    finally:
        monkeypatch.undo()
        limits._groups.cache_clear()


# --- who holds the memory ---


def test_the_lines_that_hold_most():
    x = torch.ones(1000, 1000, requires_grad=True)
    ys = [x.exp() for _ in range(3)]
    part = x.detach()[1:]
    sums = [y.sum() for y in ys]
    line = x._site[0].co_firstlineno
    torch.cpu.synchronize()
    found = {one.line: one for one in out_of_memory.biggest(100)}
    assert found[f"test_memory.py:{line + 1}"][1:3] == (4_000_000, 1)
    assert found[f"test_memory.py:{line + 2}"][1:3] == (12_000_000, 3)
    assert found[f"test_memory.py:{line + 2}"].largest is ys[0]._spec
    assert f"test_memory.py:{line + 3}" not in found                      # a view holds nothing of its own
    del ys
    found = {one.line: one for one in out_of_memory.biggest(100)}
    assert found[f"test_memory.py:{line + 2} (for backward)"].nbytes == 12_000_000
    assert part.shape and sums


def test_an_operation_without_room_names_its_line_and_can_be_tried_again():
    x = torch.ones(10**6)
    y = x[:, None] * x
    line = x._site[0].co_firstlineno
    z = y[0, 0] + 1
    other = x + 1
    with pytest.raises(torch.OutOfMemoryError) as got:
        z.item()
    text = str(got.value)
    assert "you tried to allocate 4000000000000 bytes (3.638 TiB)" in text
    assert f"mul() giving float32[1000000, 1000000], recorded at test_memory.py:{line + 2}" in text
    assert f"needed for float32[], recorded at test_memory.py:{line + 4}" in text
    assert f"test_memory.py:{line + 1} " in text.partition("hold most memory:")[2]
    assert other[5].item() == 2 and x.sum().item() == 10**6
    with pytest.raises(MemoryError, match="you tried"):
        z.item()


test_an_operation_without_room_names_its_line_and_can_be_tried_again = NEEDS_A_LIMIT(
    test_an_operation_without_room_names_its_line_and_can_be_tried_again)      # a decorator would be its first line


@NEEDS_A_LIMIT
@pytest.mark.parametrize("make", [
    lambda: torch.zeros(10**13).numpy(), lambda: torch.rand(10**13), lambda: torch.arange(10**13).numpy(),
    lambda: torch.bincount(torch.tensor([10**13])), lambda: torch.empty(10**13).numpy()],
    ids="zeros rand arange bincount empty".split())
def test_numpy_without_room_says_the_same(make):
    with pytest.raises(torch.OutOfMemoryError, match="can't allocate memory: (?s:.*)The lines that hold most memory"):
        make()


def test_sizes_beyond_all_memory_are_refused_at_the_call():
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed with sizes="):
        torch.zeros(1 << 62)
    assert torch.ones(1).expand(1 << 62).shape == (1 << 62,)


def test_a_failed_operation_keeps_nothing_alive():
    x = torch.ones(10**6)
    seen = weakref.ref(x._storage)
    y = x[:, None] * x
    try:
        y.sum().item()
    except MemoryError:
        pass
    del x, y
    torch.cpu.synchronize()
    assert seen() is None


# --- cache lines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [20, 700])
def test_what_kernels_read_again_and_again_begins_at_a_cache_line(rows):
    """See Note [Lined up]: NumPy's own arrays begin at multiples of 16, and seldom at one of 64."""
    shape, many = (rows, 37), range(5)
    made = [torch.rand(shape) for _ in many] + [torch.randn(shape) for _ in many]
    made += [torch.empty(shape).uniform_(-1, 1) for _ in many] + [torch.randint(0, 9, shape) for _ in many]
    made += [torch.tensor(np.ones(shape, np.float32)) for _ in many] + [torch.tensor([[1.5] * 37] * rows) for _ in many]
    made += [torch.nn.Linear(37, rows).weight.detach() for _ in many]
    with torch.config.using(executor="auto"):
        made += [torch.ones(shape) * 2 + 1 for _ in many] + [torch.ones(37, rows).t() @ torch.ones(37, 37)]
        torch.cpu.synchronize()
    assert {t.data_ptr() % 64 for t in made} == {0}
    shared = np.ones(shape)
    assert torch.from_numpy(shared).data_ptr() == shared.ctypes.data          # which stays where it is
