"""Products of matrices and convolutions as native steps, against NumPy's in float64."""
import ast
import ctypes
import ctypes.util
import itertools
import math
import platform
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from flambeau.backends.cpu import caches, llvm_writer, machine_code, threads
from flambeau.backends.cpu.library import conv, gemm, gemm_kernels, gemm_packing, pool, scatter
from flambeau.backends.cpu.library.conv_kernels import TapKernels
from flambeau.backends.cpu.library.images import ImageKernels
from flambeau.backends.cpu.library.pool import RUNNING_OPERATIONS, PoolKernels
from flambeau.base import axis_maps
from flambeau.loops.step import in_room
from flambeau.loops.target import Target
from tests.thorough import sample

PRECISION = {"float32": 2.0 ** -24, "float64": 2.0 ** -53}
TYPES = ["float32", "float64"]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def two_threads():
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


def strides(x):
    """Strides in elements: of rows and columns, then of the batch."""
    found = [s // x.itemsize for s in x.strides]
    return *found[-2:], *found[:-2]


def execute(steps, buffers, scalars=()):
    """Run steps that all read the same buffers, and the working memory that they ask for."""
    words, buffers = [], [*buffers, np.full(max(getattr(step, "scratch", 0) for step in steps), 255, np.uint8)]
    for step in steps:
        words += [step.fn, step.tiles, step.grain, len(buffers), len(scalars), len(step.ints)]
        words += [word for index in range(len(buffers)) for word in (index, 0)]
        words += [*range(len(scalars)), *step.ints]
    words, table = np.array(words, np.int64), np.array([b.ctypes.data for b in buffers], np.int64)
    cells = np.array([*scalars, 0.0])
    threads.run(words.ctypes.data, len(steps), table.ctypes.data, cells.ctypes.data)


def product(a, b, c):
    """c = a @ b by native steps; whether there are any."""
    batch = c.shape[:-2]
    a, b = [np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b)]
    steps = gemm.gemm(c.shape[-2], c.shape[-1], a.shape[-1], c.dtype.name, strides(a), strides(b), strides(c), batch)
    if steps is None:
        return False
    execute(steps, [a, b, c])
    return True


def check(c, want, k, dtype):
    """Within a few units of rounding of a sum of `k` products of numbers about one."""
    np.testing.assert_allclose(c, want, rtol=0, atol=PRECISION[dtype] * 16 * (k + 4) ** 0.5 * 4)


def laid(x, how):
    """`x` in memory by rows, by columns, with gaps, or with every element apart."""
    if how == "rows":
        return np.ascontiguousarray(x)
    if how == "columns":
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    *lead, m, n = x.shape
    room = np.full((*lead, m + 3, 2 * n + 5), np.nan, x.dtype)
    seen = room[..., :m, :n] if how == "gaps" else room[..., 1:m + 1, 1:2 * n + 1:2]
    seen[...] = x
    return seen


SIZES = [(1, 1, 1), (1, 17, 33), (17, 1, 33), (33, 17, 1), (2, 3, 5), (8, 48, 16), (7, 47, 15), (9, 49, 17),
         (16, 16, 16), (64, 64, 64), (65, 63, 130), (3, 200, 300), (200, 3, 300), (6, 40, 700), (130, 96, 784),
         (100, 10, 84)]


# --- products ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("m, n, k", SIZES)
def test_products_of_any_layout(rng, dtype, m, n, k):
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    a, b = a.astype(dtype), b.astype(dtype)
    want = a.astype(float) @ b.astype(float)
    for ways in itertools.product(("rows", "columns", "gaps", "apart"), repeat=2):
        for out in ("rows", "columns", "gaps"):
            c = laid(np.full((m, n), np.nan, dtype), out)
            assert product(laid(a, ways[0]), laid(b, ways[1]), c)
            check(c, want, k, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("m, n, k", [(1100, 200, 300), (2051, 49, 513), (1024, 64, 31), (1027, 70, 1)])
def test_many_rows_that_are_turned(rng, dtype, m, n, k):
    """More than are turned together, the last of them fewer than a strip has; whole numbers, so that sums are exact."""
    a, b = [rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n))]
    for ways in (("columns", "rows"), ("columns", "columns")):
        c = np.full((m, n), np.nan, dtype)
        assert product(laid(a, ways[0]), laid(b, ways[1]), c)
        assert (c == a @ b).all()


@pytest.mark.parametrize("second", [256 << 10, 1 << 20, 8 << 20])
def test_results_do_not_depend_on_the_second_cache(rng, monkeypatch, second):
    a, b = rng.standard_normal((70, 900)).astype("float32"), rng.standard_normal((900, 1500)).astype("float32")
    c, again = np.full((2, 70, 1500), np.nan, "float32")
    assert product(laid(a, "columns"), b, c)
    monkeypatch.setattr(gemm, "second_cache", lambda: second)
    for n, k in ((1500, 900), (5000, 384), (5000, 60)):
        ints = gemm.gemm(9000, n, k, "float32", (1, 9000), (n, 1), (n, 1))[-1].ints
        room = dict(zip(gemm_kernels.STEP_FIELDS, ints, strict=True))
        assert in_room(4, room["a_room"], room["b_room"])
    assert product(laid(a, "columns"), b, again)
    assert (c == again).all()


def say_caches(root, files):
    """Have the system under `root` say so of its caches."""
    for folder, words in files.items():
        path = root / "sys/devices/system/cpu" / folder
        path.mkdir(parents=True)
        for name, word in zip(("level", "type", "size", "ways_of_associativity"), words.split()):
            (path / name).write_text(word + "\n")


@pytest.mark.parametrize("files, size", [
    ({}, 1 << 20),
    ({"cpu0/cache/index0": "1 Data 48K", "cpu0/cache/index2": "2 Unified 2048K", "cpu1/cache/index2": "2 Unified 2M"},
     2 << 20),
    ({"cpu0/cache/index2": "2 Unified 512K", "cpu12/cache/index2": "2 Unified 128K"}, 128 << 10),   # slow ones beside
    ({"cpu0/cache/index2": "2 Instruction 64K", "cpu0/cache/index3": "2 Data 256K"}, 256 << 10),
    ({"cpu0/cache/index2": "2 Unified lots"}, 1 << 20),
])
def test_the_second_cache(tmp_path, files, size):
    say_caches(tmp_path, files)
    assert caches.second_cache(f"{tmp_path}/") == size


@pytest.mark.parametrize("files, first", [
    ({}, (8, 4096)),
    ({"cpu0/cache/index0": "1 Data 48K 12", "cpu0/cache/index1": "1 Instruction 32K 2",
      "cpu0/cache/index2": "2 Unified 2048K 16"}, (12, 4096)),
    ({"cpu0/cache/index0": "1 Data 64K 4", "cpu4/cache/index0": "1 Data 32K 2"}, (2, 16384)),
    ({"cpu0/cache/index0": "1 Data 64K 0"}, (8, 4096)),            # a hypervisor that does not say
    ({"cpu0/cache/index0": "1 Data 64K"}, (8, 4096)),
])
def test_the_first_cache(tmp_path, files, first):
    say_caches(tmp_path, files)
    assert caches.first_cache(f"{tmp_path}/") == first


@pytest.mark.parametrize("ways, way_bytes", [(12, 4096), (8, 4096), (4, 16384), (2, 64)])
def test_which_rows_crowd_the_first_cache(monkeypatch, ways, way_bytes):
    monkeypatch.setattr(gemm, "first_cache", lambda: (ways, way_bytes))
    assert not gemm.crowd(8, 0, True)               # one row, eight times
    for stride in range(64, 40_000, 64):
        lines = Counter(row * stride % way_bytes for row in range(8))
        assert gemm.crowd(8, stride, True) == (max(lines.values()) > ways // 2)
        assert gemm.crowd(8, stride, False) == (max(lines.values()) > ways - 2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("m, n, k", [(70, 900, 1024), (9, 300, 2048), (513, 260, 500), (8, 1100, 70), (3, 700, 1024)])
def test_rows_that_meet_in_the_first_cache(rng, monkeypatch, dtype, m, n, k):
    """Strips of them are copied; whole numbers, so that sums are exact."""
    a, b = [rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, 2048), (k, n))]
    monkeypatch.setattr(gemm, "few", lambda *sizes: False)
    for crowded in (True, False):
        monkeypatch.setattr(gemm, "crowd", lambda *rows, crowded=crowded: crowded)
        ints = gemm.gemm(m, n, k, dtype, (2048, 1), (n, 1), (n, 1))[0].ints
        how = dict(zip(gemm_kernels.STEP_FIELDS, ints, strict=True))["a_pack"]
        assert how == (gemm_packing.COPY if crowded else gemm_packing.DIRECT)
        c = np.full((m, n), np.nan, dtype)
        assert product(a[:, :k], b, c)
        assert (c == a[:, :k] @ b).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("m", [*range(1, 15), 17, 24, 31, 32, 33])
def test_few_rows(rng, monkeypatch, dtype, m, wide):
    """B as it lies, a few rows of it at a time, in both ways; whole numbers, so that sums are exact."""
    monkeypatch.setattr(gemm, "FEW_ROWS_WAYS", dict.fromkeys((False, True), gemm.FEW_ROWS_WAYS[wide]))
    for n, k in ((1, 40), (3, 3), (16, 64), (50, 21), (333, 130), (1030, 7), (40, 1)):
        a, b = [rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n))]
        for ways in (("rows", "rows"), ("columns", "rows"), ("rows", "columns")):
            c = np.full((m, n), np.nan, dtype)
            assert product(laid(a, ways[0]), laid(b, ways[1]), c)
            assert (c == a @ b).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("m, n, k", sample([
    (1, 1000, 1000), (2, 37, 4100), (24, 130, 4097), (4, 1030, 517), (7, 513, 1025), (130, 35, 1025), (12, 100, 2050),
    (64, 64, 2048), (13, 1000, 1200), (200, 3, 9000)], 2))
def test_parts_of_k(rng, monkeypatch, dtype, m, n, k):
    """Sums of them stand in working memory and are added up: the same bits for any number of threads, in both ways
    that few rows are cut; whole numbers, so that sums are exact, and others."""
    exact = [rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n))]
    rough = [rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n))]
    every_way = gemm.FEW_ROWS_WAYS
    for wide, ways in itertools.product((False, True), (("rows", "rows"), ("columns", "rows"), ("gaps", "gaps"))):
        monkeypatch.setattr(gemm, "FEW_ROWS_WAYS", dict.fromkeys((False, True), every_way[wide]))
        made = []
        for count in (1, 2, 16):
            monkeypatch.setattr(gemm, "get_num_threads", lambda count=count: count)
            out = laid(np.full((m, n), np.nan, dtype), "gaps" if ways[0] == "gaps" else "rows")
            a, b = [laid(x, way) for x, way in zip(exact, ways)]
            steps = gemm.gemm(m, n, k, dtype, strides(a), strides(b), strides(out))
            in_parts = [step.share for step in steps] == [1, 0]
            assert in_parts or ways[1] == "gaps" and m <= gemm.FEW_ROWS or wide and gemm.FEW_ROWS < m <= 32 and n > 512
            execute(steps, [a, b, out])
            assert (out == exact[0] @ exact[1]).all()
            a, b = [laid(x, way) for x, way in zip(rough, ways)]
            execute(steps, [a, b, out])
            check(out, rough[0].astype(float) @ rough[1].astype(float), k, dtype)
            made.append(out.copy())
        assert (made[0] == made[1]).all() and (made[0] == made[2]).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("m, n, k", sample([
    (300, 300, 300), (64, 1000, 385), (513, 100, 1025), (1000, 33, 800), (130, 517, 50), (200, 2000, 770)], 3))
def test_tiles_that_threads_take_from_each_other(rng, monkeypatch, dtype, m, n, k):
    """The same bits for any number of threads, of those that it was planned for and of those that run it; whole
    numbers, so that sums are exact, and others."""
    exact = [rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n))]
    rough = [rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n))]
    monkeypatch.setattr(gemm, "SHARED_CYCLES", 0)
    monkeypatch.setattr(gemm, "cut_k", lambda *ways: 1)
    for ways in itertools.product(("rows", "columns", "gaps"), repeat=2):
        made, shared = [], []
        for count in (1, 2, 3, 16):
            monkeypatch.setattr(gemm, "get_num_threads", lambda count=count: count)
            a, b = [laid(x, way) for x, way in zip(exact, ways)]
            out = np.full((m, n), np.nan, dtype)
            steps = gemm.gemm(m, n, k, dtype, strides(a), strides(b), strides(out))
            shared.append(len(steps) == 2)
            execute(steps, [a, b, out])
            assert (out == exact[0] @ exact[1]).all()
            execute(steps, [*[laid(x, way) for x, way in zip(rough, ways)], out])
            check(out, rough[0].astype(float) @ rough[1].astype(float), k, dtype)
            made.append(out.copy())
        assert not shared[0] and all(shared[1:3])
        assert all((one == made[0]).all() for one in made)


@pytest.mark.parametrize("second", [256 << 10, 512 << 10, 1 << 20, 2 << 20])
def test_what_is_packed_lasts_for_all_tiles_that_a_thread_takes(rng, monkeypatch, second):
    """All panels of a block of columns are packed together, however wide it is: none is left out."""
    monkeypatch.setattr(gemm, "second_cache", lambda: second)
    found = 0
    for dtype, threads_planned, k in itertools.product(TYPES, (2, 3, 16), (100, 365, 384, 1000)):
        monkeypatch.setattr(gemm, "get_num_threads", lambda count=threads_planned: count)
        for n in rng.integers(100, 9000, 60).tolist():
            *_, last = gemm.gemm(300, n, k, dtype, (k, 1), (n, 1), (n, 1))
            how = dict(zip(gemm_kernels.STEP_FIELDS, last.ints, strict=True))
            if how["shares"]:
                vectors = -(-min(n, how["tile_n"]) // gemm_kernels.compiled_kernels(dtype).lanes)
                assert how["group"] >= -(-vectors // how["width"])
                assert in_room(np.dtype(dtype).itemsize, how["a_room"], how["b_room"])
                found += 1
    assert found > 500


@pytest.mark.parametrize("m, n, k", [(74, 7105, 365), (293, 590, 2119), (420, 382, 424), (2000, 1000, 0)])
def test_products_whose_columns_nearly_fill_the_second_cache(rng, m, n, k):
    a, b = [rng.integers(-4, 5, shape).astype("float32") for shape in ((m, k), (k, n))]
    for ways in (("rows", "rows"), ("columns", "columns")):
        out = np.full((m, n), np.nan, "float32")
        assert product(laid(a, ways[0]), laid(b, ways[1]), out)
        assert (out == a @ b).all()


def test_a_product_that_others_help_with(rng, monkeypatch):
    """Whoever comes first does everything, if nobody else comes; and one that comes late finds nothing to do."""
    monkeypatch.setattr(gemm, "get_num_threads", lambda: 5)
    a, b, out = rng.integers(-4, 5, (700, 600)), rng.integers(-4, 5, (600, 500)), np.zeros((700, 500))
    a, b = a.astype(float), b.astype(float)
    clear, shared = gemm.gemm(700, 500, 600, "float64", strides(a), strides(b), strides(out))
    assert shared.tiles == 5
    execute([clear, shared._replace(tiles=1)], [a, b, out])
    assert (out == a @ b).all()
    out[:] = 0
    execute([clear, shared._replace(tiles=3, grain=3), shared], [a, b, out])
    assert (out == a @ b).all()


def test_the_room_for_parts_of_k(monkeypatch):
    """Nothing is cut where it would take much memory, or where there is little to do."""
    monkeypatch.setattr(gemm, "get_num_threads", lambda: 1)
    for m, n, k in ((768, 768, 8192), (2048, 2048, 2048), (32, 10, 1024), (64, 64, 512), (1, 100, 100)):
        assert [step.scratch for step in gemm.gemm(m, n, k, "float32", (k, 1), (n, 1), (n, 1))] == [0]
    for m, n, k in ((512, 500, 100_000), (1, 100_000, 1000), (12, 4096, 4096)):
        steps = gemm.gemm(m, n, k, "float32", (k, 1), (n, 1), (n, 1))
        assert all(step.scratch <= 1.25 * gemm.LONG_K_ROOM_BYTES for step in steps)


@pytest.mark.parametrize("dtype", TYPES)
def test_nothing_is_written_beside_the_result(rng, dtype):
    for m, n, k in ((5, 21, 9), (1, 3, 40), (9, 50, 3), (3, 133, 700), (70, 21, 3000)):
        room = np.full((m + 2, n + 4), 7.0, dtype)
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
        assert product(a, b, room[1:m + 1, 2:n + 2])
        check(room[1:m + 1, 2:n + 2], a.astype(float) @ b.astype(float), k, dtype)
        room[1:m + 1, 2:n + 2] = 7.0
        assert (room == 7.0).all()


STACK_BYTES = 1 << 20
POISON_TEXT = f"""
define void @poison(i64 %word) {{
entry:
  %room = alloca [{STACK_BYTES // 8} x i64], align 64
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %place = getelementptr i64, ptr %room, i64 %i
  store volatile i64 %word, ptr %place
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {STACK_BYTES // 8}
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
SIGNALLING = {"float32": 0x7F80_0001_7F80_0001, "float64": 0x7FF0_0000_0000_0001}       # NaNs that show where they go


def exceptions_of(dtype, run):
    """What `run` raises of the processor's flags but "inexact", with a stack full of NaNs that raise one."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    x86 = platform.machine() == "x86_64"
    flags, inexact = (0x3F, 0x20) if x86 else (0x1F, 0x10)    # x86: that an operand was denormal is one of them
    poison = ctypes.CFUNCTYPE(None, ctypes.c_int64)(machine_code.function("poison", POISON_TEXT))
    run()                                                     # whatever is compiled is compiled now
    poison(SIGNALLING[dtype])
    libm.feclearexcept(flags)
    run()
    return libm.fetestexcept(flags) & ~inexact


@pytest.fixture
def one_thread():
    before = threads.get_num_threads()
    threads.set_num_threads(1)
    yield
    threads.set_num_threads(before)


POSIX_FLAGS = pytest.mark.skipif(sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
                                 reason="the flags have other numbers")


@POSIX_FLAGS
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("m, n, k", SIZES)
def test_nothing_but_the_operands_is_computed_with(rng, one_thread, dtype, m, n, k):
    """Whatever stands in memory beside them may be numbers that take a processor a hundred times as long."""
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    for ways in itertools.product(("rows", "columns", "gaps"), repeat=2):
        given, c = [laid(x, how) for x, how in zip((a, b), ways, strict=True)], np.empty((m, n), dtype)
        assert exceptions_of(dtype, lambda given=given, c=c: product(*given, c)) == 0, ways


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("batch", [(3,), (2, 3), (2, 3, 4), (1, 5), (2, 1, 3, 2)])
def test_batches_broadcast(rng, dtype, batch):
    for m, n, k in ((5, 7, 9), (1, 40, 33), (33, 2, 40)):
        for one_a, one_b in itertools.product((False, True), repeat=2):
            lead_a = (1,) * len(batch) if one_a else batch
            lead_b = (*batch[:-1], 1) if one_b else batch
            a, b = [rng.standard_normal(s).astype(dtype) for s in ((*lead_a, m, k), (*lead_b, k, n))]
            c = np.full((*batch, m, n), np.nan, dtype)
            assert product(laid(a, "columns"), b, c)
            check(c, np.broadcast_to(a.astype(float) @ b.astype(float), c.shape), k, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("batch", [(700,), (5, 41), (3, 7, 11)])
def test_tiny_matrices(rng, two_threads, dtype, batch):
    """Number by number, in the order in which others are added up; whole numbers, whose sums are exact, and others."""
    sizes = list(itertools.product(range(1, gemm.MAX_TINY + 1), repeat=3))
    for (m, n, k), (one_a, one_b) in zip(sizes, itertools.cycle(itertools.product((False, True), repeat=2))):
        lead_a, lead_b = (1,) * len(batch) if one_a else batch, (*batch[:-1], 1) if one_b else batch
        for ways in itertools.product(("rows", "columns", "gaps"), repeat=2):
            exact = [rng.integers(-4, 5, shape).astype(dtype) for shape in ((*lead_a, m, k), (*lead_b, k, n))]
            c = np.full((*batch, m, n), np.nan, dtype)
            assert product(laid(exact[0], ways[0]), laid(exact[1], ways[1]), c)
            assert (c == exact[0] @ exact[1]).all()
        a, b = [rng.standard_normal(x.shape).astype(dtype) for x in exact]
        assert product(a, b, c)
        check(c, np.broadcast_to(a.astype(float) @ b.astype(float), c.shape), k, dtype)
        alone = np.full((m, n), np.nan, dtype)
        last_a, last_b = [x[(-1,) * len(batch)] for x in (a, b)]
        assert product(last_a, last_b, alone)
        if gemm_kernels.compiled_kernels(dtype).kernels.v.target.fma:
            assert (alone == c[(-1,) * len(batch)]).all()              # the same bits as of a matrix by itself


def test_batches_that_do_not_merge_into_three_dimensions_are_left():
    batch, apart = (2, 3, 2, 3), (1000, 101, 47, 9)
    assert gemm.gemm(4, 4, 4, "float32", (4, 1, *apart), (4, 1, *apart), (4, 1, *apart), batch) is None
    assert gemm.gemm(4, 4, 4, "float32", (4, 1, 192, 64, 32, 16), (4, 1, 0, 0, 0, 0), (4, 1, 192, 64, 32, 16),
                        (2, 3, 2, 2)) is not None


@pytest.mark.parametrize("dtype", TYPES)
def test_no_terms_give_zeros(dtype):
    c = np.full((5, 20), np.nan, dtype)
    assert product(np.zeros((5, 0), dtype), np.zeros((0, 20), dtype), c)
    assert (c == 0).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("m, n, k", [(9, 50, 20), (1, 50, 64), (3, 5, 64), (40, 1, 64)])
def test_nan_and_infinity_stay_where_they_belong(rng, dtype, m, n, k):
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    a[m // 2, 3], b[k - 1, n // 2] = np.nan, np.inf
    c = np.full((m, n), np.nan, dtype)
    assert product(a, b, c)
    with np.errstate(invalid="ignore"):
        want = a.astype(float) @ b.astype(float)
    assert (np.isnan(c) == np.isnan(want)).all() and (np.isinf(c) == np.isinf(want)).all()
    fine = np.isfinite(want)
    check(c[fine], want[fine], k, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("m, n, k", [(300, 300, 300), (500, 48, 700), (16, 900, 600), (1, 3000, 500), (3000, 1, 500),
                                     (7, 1000, 1000), (64, 64, 1700)])
def test_the_number_of_threads_does_not_show(rng, two_threads, dtype, m, n, k):
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    for left, right in itertools.product(("rows", "columns"), repeat=2):
        results = []
        for count in (1, 2, 5):
            threads.set_num_threads(count)
            c = np.full((m, n), np.nan, dtype)
            assert product(laid(a, left), laid(b, right), c)
            results.append(c)
        check(results[0], a.astype(float) @ b.astype(float), k, dtype)
        assert (results[0] == results[1]).all() and (results[0] == results[2]).all()


def test_batches_on_threads(rng, two_threads):
    threads.set_num_threads(3)
    a, b = [rng.standard_normal((40, 64, 64)).astype("float32") for _ in range(2)]
    c = np.empty_like(a)
    for _ in range(20):
        assert product(a, b, c)
    check(c, a.astype(float) @ b.astype(float), 64, "float32")


def test_what_has_no_step():
    square = ((4, 1),) * 3
    for dtype in ("int64", "float16", "bfloat16", "bool", "complex64"):
        assert gemm.gemm(4, 4, 4, dtype, *square) is None
    assert gemm.gemm(0, 4, 4, "float32", *square) is None
    assert gemm.gemm(4, 4, 4, "float32", (4, 1), (4, 1), (8, 2)) is None           # C contiguous along neither


@pytest.mark.parametrize("element, width, fma", [*itertools.product(("float", "double"), (16, 32, 64), (False, True))])
def test_the_text_for_other_machines_is_sound(element, width, fma):
    llvm = pytest.importorskip("llvmlite.binding")
    target = Target(width, fma=fma)
    products, taps, pool = [kind(element, target) for kind in (gemm_kernels.GemmKernels, TapKernels, PoolKernels)]
    for text in (products.micro("f", 3, 2), products.micro_ahead("f", 3, 2), products.micro_next("f", 3, 2),
                 products.gemm("f"), products.gemm_shared("f"), products.dots("f", 2, 3), products.tiny("f", 3),
                 *[products.pack_a("f", how) for how in (gemm_packing.COPY, gemm_packing.TURN, gemm_packing.GATHER)],
                 *[products.pack_b("f", how) for how in (gemm_packing.COPY, gemm_packing.TURN, gemm_packing.GATHER)],
                 taps.forth("f"), taps.spots("f"), taps.back("f"), taps.plane("f", 0), taps.plane("f", 1),
                 pool.max_pool("f", 0), pool.max_pool("f", 1), pool.weigh("f"),
                 pool.drop_weighted("f"), pool.add_weighted_rows("f"),
                 pool.sum_weighted_rows("f"), *[pool.scan("f", kind) for kind in RUNNING_OPERATIONS]):
        llvm.parse_assembly(text).verify()


@pytest.mark.parametrize("width, fma", [*itertools.product((16, 32, 64), (False, True))])
def test_the_text_of_images_for_other_machines_is_sound(width, fma):
    llvm = pytest.importorskip("llvmlite.binding")
    made = ImageKernels("float", Target(width, fma=fma))
    for element in ("i8", "float"):
        for text in (made.jitter("f", element), made.resize("f", element, 3), made.resize("f", element, 0),
                     made.warp("f", element, 6, 0, 1), made.warp("f", element, 8, 1, 0), made.flip("f", "i16")):
            llvm.parse_assembly(text).verify()


@pytest.fixture(params=[16, 32, 64])
def vector_bytes(request, monkeypatch):
    """Kernels for vectors of so many bytes, as on another machine; LLVM cuts up what is too wide for this one."""
    target = machine_code.target()
    target = target._replace(vector_bytes=request.param, fma=request.param > 16 and target.fma)
    monkeypatch.setattr(machine_code, "target", lambda: target)
    monkeypatch.setattr(gemm_kernels, "X86", False if request.param == 16 else gemm_kernels.X86)   # or 32
    monkeypatch.setattr(gemm_kernels, "_hosts", {})
    KEPT.append(gemm_kernels._hosts)                                  # steps that were planned go on using its tables


KEPT: list = []


@pytest.mark.parametrize("dtype", TYPES)
def test_products_on_other_machines(rng, vector_bytes, dtype):
    for m, n, k in ((300, 75, 90), (300, 9, 40), (9, 300, 40), (3, 30, 300), (40, 5, 600)):
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
        for left, right in itertools.product(("rows", "columns", "apart"), repeat=2):
            c = np.full((m, n), np.nan, dtype)
            assert product(laid(a, left), laid(b, right), c)
            check(c, a.astype(float) @ b.astype(float), k, dtype)


@POSIX_FLAGS
@pytest.mark.parametrize("dtype", TYPES)
def test_nothing_but_the_operands_is_computed_with_on_other_machines(rng, one_thread, vector_bytes, dtype):
    for m, n, k in ((64, 4, 64), (32, 10, 64), (30, 5, 600), (9, 21, 40), (3, 30, 300)):
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
        for ways in itertools.product(("rows", "columns", "apart"), repeat=2):
            given, c = [laid(x, how) for x, how in zip((a, b), ways, strict=True)], np.empty((m, n), dtype)
            assert exceptions_of(dtype, lambda given=given, c=c: product(*given, c)) == 0, (m, n, k, ways)


@POSIX_FLAGS
@pytest.mark.parametrize("dtype", TYPES)
def test_nothing_but_the_operands_is_convolved_on_other_machines(rng, one_thread, vector_bytes, dtype):
    for name in CONVOLUTIONS:
        x, weight, how = make(rng, dtype, **CONVOLUTIONS[name])
        g = rng.standard_normal(convolved(x.astype(float), weight.astype(float), *how).shape).astype(dtype)
        y, d_x, d_weight = np.empty_like(g), np.empty_like(x), np.empty_like(weight)
        back = conv.convolve(dtype, layout(g), layout(weight), layout(d_x), *how, transposed=True)
        for steps, buffers in (
                (conv.convolve(dtype, layout(x), layout(weight), layout(y), *how), [x, weight, y]),
                (back, [g, weight, d_x]),
                (conv.convolve_weight(dtype, layout(x), layout(g), layout(d_weight), *how), [x, g, d_weight])):
            assert exceptions_of(dtype, lambda steps=steps, buffers=buffers: execute(steps, buffers)) == 0, name


@pytest.mark.parametrize("dtype", TYPES)
def test_convolutions_on_other_machines(rng, vector_bytes, dtype):
    for name in ("its second", "many channels", "strided by two", "a long row"):
        test_convolutions(rng, dtype, name)
        test_gradients_of_convolutions(rng, dtype, name)


# --- convolutions -----------------------------------------------------------------------------------------------------


def windows(x, kernel, out, stride, padding, dilation):
    """[N, C, *out, *kernel] of x [N, C, *size]."""
    x = np.pad(x, [(0, 0), (0, 0), *[(p, p + d * k + s) for p, d, k, s in zip(padding, dilation, kernel, stride)]])
    steps = x.strides[2:]
    return np.lib.stride_tricks.as_strided(
        x, (*x.shape[:2], *out, *kernel),
        (*x.strides[:2], *[t * s for t, s in zip(steps, stride)], *[t * d for t, d in zip(steps, dilation)]))


def convolved(x, weight, stride, padding, dilation, groups):
    """The meaning: each output is the sum over a window."""
    n, kernel = x.ndim - 2, weight.shape[2:]
    out = [(s + 2 * p - d * (k - 1) - 1) // t + 1
           for s, p, d, k, t in zip(x.shape[2:], padding, dilation, kernel, stride)]
    parts = []
    for xs, ws in zip(np.split(x, groups, 1), np.split(weight, groups, 0)):
        seen = windows(xs, kernel, out, stride, padding, dilation)
        last = tuple(range(-n, 0))
        parts.append(np.tensordot(seen, ws, ((1, *last), (1, *last))))
    return np.moveaxis(np.concatenate(parts, -1), -1, 1)


def layout(x):
    return x.shape, tuple(s // x.itemsize for s in x.strides)


CONVOLUTIONS = {
    "a small net's":      dict(x=(2, 3, 32, 32), weight=(32, 3, 3, 3), padding=(1, 1)),
    "its second":         dict(x=(2, 32, 16, 16), weight=(20, 32, 3, 3), padding=(1, 1)),
    "many channels":      dict(x=(2, 130, 7, 7), weight=(300, 130, 3, 3), padding=(1, 1)),
    "odd rows":           dict(x=(3, 5, 13, 29), weight=(9, 5, 4, 2), padding=(2, 1)),
    "strided":            dict(x=(2, 4, 17, 40), weight=(6, 4, 3, 3), stride=(2, 3), padding=(1, 1)),
    "strided by two":     dict(x=(2, 6, 30, 70), weight=(8, 6, 5, 5), stride=(2, 2), padding=(2, 2)),
    "more stride than kernel": dict(x=(1, 2, 9, 50), weight=(3, 2, 1, 1), stride=(2, 3)),
    "dilated":            dict(x=(2, 4, 20, 40), weight=(5, 4, 3, 3), dilation=(2, 3), padding=(2, 4)),
    "grouped":            dict(x=(2, 6, 10, 16), weight=(9, 2, 3, 3), groups=3),
    "by channel":         dict(x=(2, 5, 12, 20), weight=(10, 1, 3, 3), groups=5, padding=(1, 1)),
    "pointwise":          dict(x=(3, 20, 7, 9), weight=(17, 20, 1, 1)),
    "pointwise, grouped": dict(x=(3, 20, 5, 9), weight=(18, 10, 1, 1), groups=2),
    "pointwise, padded":  dict(x=(3, 4, 5, 9), weight=(6, 4, 1, 1), padding=(1, 2)),
    "one dimension":      dict(x=(2, 3, 40), weight=(4, 3, 5), stride=(2,), padding=(3,)),
    "a long row":         dict(x=(1, 3, 2500), weight=(4, 3, 7), padding=(3,)),
    "three dimensions":   dict(x=(2, 3, 5, 6, 18), weight=(4, 3, 2, 3, 3), stride=(2, 1, 1), padding=(1, 1, 1)),
    "padding beyond the kernel": dict(x=(1, 2, 4, 4), weight=(3, 2, 2, 2), padding=(5, 5)),
}


def make(rng, dtype, x, weight, stride=None, padding=None, dilation=None, groups=1):
    n = len(x) - 2
    how = (stride or (1,) * n, padding or (0,) * n, dilation or (1,) * n, groups)
    return rng.standard_normal(x).astype(dtype), rng.standard_normal(weight).astype(dtype), how


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(rng, dtype, name):
    x, weight, how = make(rng, dtype, **CONVOLUTIONS[name])
    want = convolved(x.astype(float), weight.astype(float), *how)
    y = np.full(want.shape, np.nan, dtype)
    execute(conv.convolve(dtype, layout(x), layout(weight), layout(y), *how), [x, weight, y])
    check(y, want, math.prod(weight.shape[1:]), dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_of_convolutions(rng, dtype, name):
    """<g, conv(x, w)> = <conv_transposed(g, w), x> = <conv_weight(x, g), w>, for every x and every w."""
    x, weight, how = make(rng, dtype, **CONVOLUTIONS[name])
    y = convolved(x.astype(float), weight.astype(float), *how)
    g = rng.standard_normal(y.shape).astype(dtype)
    d_x, d_weight = np.full(x.shape, np.nan, dtype), np.full(weight.shape, np.nan, dtype)
    execute(conv.convolve(dtype, layout(g), layout(weight), layout(d_x), *how, transposed=True), [g, weight, d_x])
    execute(conv.convolve_weight(dtype, layout(x), layout(g), layout(d_weight), *how), [x, g, d_weight])
    for _ in range(3):
        other = rng.standard_normal(x.shape)
        pairs = [((g * convolved(other, weight.astype(float), *how)).sum(), (d_x * other).sum(), d_x * other)]
        other = rng.standard_normal(weight.shape)
        pairs += [((g * convolved(x.astype(float), other, *how)).sum(), (d_weight * other).sum(), d_weight * other)]
        for want, got, terms in pairs:
            assert abs(want - got) < PRECISION[dtype] * 256 * (np.abs(terms).sum() + 1)


def test_each_element_of_the_gradients(rng):
    """Where it is small, element by element."""
    x, weight, how = make(rng, "float64", (1, 2, 5, 6), (3, 2, 3, 2), stride=(2, 1), padding=(1, 1))
    y = convolved(x, weight, *how)
    g, d_x, d_weight = rng.standard_normal(y.shape), np.empty_like(x), np.empty_like(weight)
    steps = conv.convolve("float64", layout(g), layout(weight), layout(d_x), *how, transposed=True)
    execute(steps, [g, weight, d_x])
    execute(conv.convolve_weight("float64", layout(x), layout(g), layout(d_weight), *how), [x, g, d_weight])
    for given, made, run in ((x, d_x, lambda v: convolved(v, weight, *how)),
                             (weight, d_weight, lambda v: convolved(x, v, *how))):
        for at in np.ndindex(given.shape):
            unit = np.zeros_like(given)
            unit[at] = 1.0
            assert abs((run(unit) * g).sum() - made[at]) < 1e-12


def test_channels_last_and_infinities(rng):
    x, weight, how = make(rng, "float32", (2, 5, 9, 18), (7, 5, 3, 3), padding=(1, 1))
    x[0, 2, 4, 0], x[1, 1, 8, 17] = np.inf, np.nan
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    weight = np.ascontiguousarray(weight.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    with np.errstate(invalid="ignore"):
        want = convolved(x.astype(float), weight.astype(float), *how)
    y = np.full((2, 9, 18, 7), np.nan, "float32").transpose(0, 3, 1, 2)
    execute(conv.convolve("float32", layout(x), layout(weight), layout(y), *how), [x, weight, y])
    assert (np.isfinite(y) == np.isfinite(want)).all()
    check(y[np.isfinite(want)], want[np.isfinite(want)], 45, "float32")
    g, d_weight = np.ones(y.shape, "float32"), np.empty((7, 5, 3, 3), "float32")
    execute(conv.convolve_weight("float32", layout(x), layout(g), layout(d_weight), *how), [x, g, d_weight])
    assert np.isfinite(d_weight[:, [0, 3, 4]]).all() and np.isinf(d_weight[:, 2]).any()
    assert np.isfinite(d_weight[:, 2, :, 2]).all()              # that tap never reads the first column


@pytest.mark.parametrize("name", ["a small net's", "many channels", "strided", "a long row"])
def test_convolutions_do_not_show_the_number_of_threads(rng, two_threads, name):
    x, weight, how = make(rng, "float32", **CONVOLUTIONS[name])
    y = convolved(x.astype(float), weight.astype(float), *how).astype("float32")
    results = []
    for count in (1, 2, 5):
        threads.set_num_threads(count)
        made = [np.full(shape, np.nan, "float32") for shape in (y.shape, x.shape, weight.shape)]
        execute(conv.convolve("float32", layout(x), layout(weight), layout(y), *how), [x, weight, made[0]])
        execute(conv.convolve("float32", layout(y), layout(weight), layout(x), *how, transposed=True),
                [y, weight, made[1]])
        execute(conv.convolve_weight("float32", layout(x), layout(y), layout(weight), *how), [x, y, made[2]])
        results.append(made)
    for made in results[1:]:
        assert all((one == first).all() for one, first in zip(made, results[0]))


def test_convolutions_that_have_no_step():
    x, weight, y = [(shape, (1,) * len(shape)) for shape in ((1, 2, 4, 4), (3, 2, 1, 1), (1, 3, 4, 4))]
    how = ((1, 1), (0, 0), (1, 1))
    assert conv.convolve("int64", x, weight, y, *how) is None
    assert conv.convolve("float32", ((0, 2, 4, 4), (1,) * 4), weight, y, *how) is None
    assert conv.convolve_weight("float16", x, y, weight, *how) is None
    assert conv.convolve_weight("float32", x, y, ((3, 2, 1, 1), (1, 3, 3, 3)), *how) is None


# --- pooling ----------------------------------------------------------------------------------------------------------


def largest(x, reads):
    """The largest of what `reads` lists for each output along each dimension, of equals the first, of nans the last;
    and its place in its plane."""
    lead, size = x.shape[:-len(reads)], x.shape[-len(reads):]
    out = tuple(len(outputs) for outputs in reads)
    values, places = np.empty((*lead, *out), x.dtype), np.empty((*lead, *out), np.int64)
    for at in np.ndindex(*lead, *out):
        plane, best = x[at[:len(lead)]], None
        for place in itertools.product(*[outputs[o] for outputs, o in zip(reads, at[len(lead):], strict=True)]):
            if best is None or plane[place] > best[0] or np.isnan(plane[place]):
                best = plane[place], np.ravel_multi_index(place, size)
        values[at], places[at] = best
    return values, places


def positions(m):
    """What each output of a window, or of an adaptive one, reads."""
    if m[0] == "adaptive":
        _, size, out = m
        return [range(o * size // out, -(-(o + 1) * size // out)) for o in range(out)]
    _, size, out, kernel, stride, padding, dilation, _ = m
    return [[i for i in range(o * stride - padding, o * stride - padding + kernel * dilation, dilation)
             if 0 <= i < size] for o in range(out)]


def window(size, kernel, stride=1, padding=0, dilation=1):
    return "window", size, (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1, kernel, stride, padding, \
        dilation, True


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("maps", [
    (window(8, 2, 2), window(70, 2, 2)), (window(9, 3, 2, 1), window(41, 3, 2, 1)), (window(5, 2), window(40, 3, 1, 1)),
    (window(7, 3, 2, 1), window(30, 2, 3, 0, 2)), (window(3, 2, 1, 0, 2), window(3, 2, 1, 1)),
    (window(5, 2, 2), window(99, 37, 20, 11)), (window(5, 2), window(60, 9, 4, 0, 3)),
    (window(6, 2, 2), window(5, 3, 1, 1), window(37, 3, 2, 1)),
    (window(5, 2, 1, 0, 2), window(6, 2, 2), window(19, 9, 5)),
    (("adaptive", 9, 4), ("adaptive", 70, 7)), (("adaptive", 1, 1), ("adaptive", 199, 3)),
    (("adaptive", 20, 1), ("adaptive", 17, 1)), (("adaptive", 5, 8), ("adaptive", 4, 9)),
    (("adaptive", 6, 3), ("adaptive", 7, 2), ("adaptive", 33, 5)), (window(9, 2, 2), ("adaptive", 11, 3)),
], ids=str)
def test_the_largest_of_windows(rng, dtype, maps):
    size, out = [m[1] for m in maps], [m[2] for m in maps]
    x = rng.integers(-2, 3, (2, 3, *size)).astype(dtype)
    x[rng.random(x.shape) < 0.02], x[rng.random(x.shape) < 0.3] = np.nan, -np.inf
    x[0, 0] = -np.inf
    want = largest(x, [positions(m) for m in maps])
    for across in (x, laid(x, "columns")):
        values, places = np.empty((2, 3, *out), dtype), np.empty((2, 3, *out), np.int64)
        step = pool.max_pool(dtype, layout(across), layout(values), maps)
        execute([step], [across, values, places])
        np.testing.assert_array_equal(values, want[0])
        np.testing.assert_array_equal(places, want[1])
    g, d_x = rng.standard_normal(values.shape).astype(dtype), np.full(x.shape, np.nan, dtype)
    count, whole = math.prod(out), math.prod(size)
    lines = [((6, n, 1), (n, 1, 1)) for n in (count, count, whole)]
    execute([scatter.scatter(dtype, *lines[:2], False, lines[2][0], "sum")], [g, places, d_x])
    sums = np.zeros((6, whole))
    np.add.at(sums, (np.arange(6)[:, None], places.reshape(6, -1)), g.reshape(6, -1))
    check(d_x.reshape(6, -1), sums, count, dtype)
    execute([scatter.scatter(dtype, *lines[:2], False, lines[2][0], "set")], [g, places, d_x])
    last = np.zeros((6, whole), dtype)
    for row, place, value in zip(np.repeat(np.arange(6), count), places.reshape(-1), g.reshape(-1), strict=True):
        last[row, place] = value
    np.testing.assert_array_equal(d_x.reshape(6, -1), last)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("samples, channels, taps, count, size", [
    (2, 3, 4, 50, 9), (3, 9, 1, 20, 40), (1, 4, 16, 7, 3), (2, 8, 0, 5, 6), (2, 5, 2, 0, 70)])
def test_weighted_drops(rng, dtype, samples, channels, taps, count, size):
    """What is sent nowhere counts for nothing, whatever it is."""
    g = rng.standard_normal((samples, channels, count)).astype(dtype)
    index, weight = rng.integers(-1, size, (samples, taps, count)), rng.standard_normal((samples, taps, count))
    weight[index < 0] = np.nan
    out, want = np.full((samples, channels, size), np.nan, dtype), np.zeros((samples, channels, size))
    for n, c, k, i in np.ndindex(samples, channels, taps, count):
        if index[n, k, i] >= 0:
            want[n, c, index[n, k, i]] += g[n, c, i] * weight[n, k, i]
    execute([pool.drop_weighted(dtype, samples, channels, taps, count, size)], [g, index, weight.astype(dtype), out])
    check(out, want, taps * count, dtype)


@pytest.mark.parametrize("size", [1, 2, 7, 56, 224, 4097, 1 << 20])
def test_adaptive_windows_without_dividing(size):
    for out in (1, 2, 3, 7, 28, 99, 1000):
        pace, reach, shift, _, _ = pool.pooled_axis(("adaptive", size, out))
        assert [(o * pace >> shift, o * pace + reach >> shift) for o in range(out)] == [
            (o * size // out, -(-(o + 1) * size // out)) for o in range(out)]


def test_windows_that_have_no_step():
    x, y = [(shape, (1,) * 3) for shape in ((2, 1, 9), (2, 1, 4))]
    whole, one = ("window", 9, 4, 2, 2, 0, 1, True), ("window", 1, 1, 1, 1, 0, 1, True)
    assert pool.max_pool("int64", x, y, (one, whole)) is None
    assert pool.max_pool("float32", x, y, (whole,)) is None
    assert pool.max_pool("float32", x, y, (("window", 1, 1, 2, 1, 1, 2, True), whole)) is None      # nothing in it
    long = [(shape, (shape[-1], 1, 1)) for shape in ((2, 1, 10 ** 7), (2, 1, 999))]
    assert pool.max_pool("float32", *long, (one, ("adaptive", 10 ** 7, 999))) is None              # beyond 64 bits


# --- sums by taps -----------------------------------------------------------------------------------------------------

MAPS = [("linear", 5, 13, False, None), ("linear", 40, 7, True, None), ("cubic", 6, 11, False, None),
        ("smooth", 31, 8, False, None, "cubic"), ("nearest", 7, 12, None, False, False), ("reflect", 20, 31, 6),
        ("replicate", 9, 40, 11), ("circular", 12, 17, 2, 3), ("window", 13, 6, 3, 2, 1, 1, True),
        ("window", 13, 7, 3, 2, 1, 1, False), ("window", 9, 3, 2, 3, 1, 4, False), ("adaptive", 17, 5),
        ("adaptive", 4, 9)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("across", MAPS, ids=str)
def test_sums_by_taps(rng, dtype, across):
    """Along one dimension and along two, transposed, with means, and where channels are last."""
    for down, lead, lasts in ((None, (3, 2), False), (MAPS[0], (2, 5), False), (MAPS[5], (2, 5), True),
                              (MAPS[9], (2, 37), True), (across, (1, 1), False)):
        maps = (across,) if down is None else (down, across)
        means = (False, True) if all(m[0] in ("window", "adaptive") for m in maps) else (False,)
        for back, mean in itertools.product((False, True), means):
            sizes = [(m[2], m[1]) if back else (m[1], m[2]) for m in maps]
            x = rng.standard_normal((*lead, *[n for n, _ in sizes])).astype(dtype)
            y = np.full((*lead, *[n for _, n in sizes]), np.nan, dtype)
            if lasts:
                x, y = [np.moveaxis(np.ascontiguousarray(np.moveaxis(one, 1, -1)), -1, 1) for one in (x, y)]
            step = pool.weigh(dtype, layout(x), layout(y), maps, back, mean)
            execute([step], [x, y])
            want = x.astype(float)
            for axis, m in enumerate(maps, -len(maps)):
                table = axis_maps.taps_of(m)
                count = axis_maps.along(np, table.counts if mean else np.ones(m[2]), axis, float)
                want = axis_maps.weighted_sum(np, want / count, axis, table.back) if back else \
                    axis_maps.weighted_sum(np, want, axis, table) / count
            np.testing.assert_allclose(y, want, rtol=60 * PRECISION[dtype], atol=60 * PRECISION[dtype])


def test_what_a_tap_of_weight_zero_would_read(rng):
    """An infinity beside it does no harm; and what is copied is the same to the last bit."""
    x = np.array([[np.inf, 1.0, -0.0, 2.0, np.nan, 3.0, 4.0, 5.0, -0.0, 6.0, 7.0, 8.0]])
    maps, y = (("linear", 12, 23, True, None),), np.zeros((1, 23))
    execute([pool.weigh("float64", layout(x), layout(y), maps, False, False)], [x, y])
    np.testing.assert_array_equal(y[0, ::2], x[0])
    assert np.isnan(y[0, 7:10]).all() and np.isfinite(y[0, 2:7]).all() and np.isfinite(y[0, 10:]).all()
    y = np.zeros((1, 18))
    execute([pool.weigh("float64", layout(x), layout(y), (("reflect", 12, 18, 3),), False, False)], [x, y])
    assert y.tobytes() == np.pad(x, ((0, 0), (3, 3)), mode="reflect").tobytes()


def test_where_taps_are_left_to_the_reference():
    def asked(dtype="float32", shape=(2, 3, 8, 8), maps=(("linear", 8, 16, False, None),) * 2):
        x, y = np.zeros(shape), np.zeros((*shape[:-len(maps)], *[m[2] for m in maps]))
        return pool.weigh(dtype, layout(x), layout(y), maps, False, False)
    assert asked() is not None
    assert asked("int64") is None
    assert asked(shape=(0, 3, 8, 8)) is None
    assert asked(maps=(("linear", 3, 5, False, None), *[("linear", 8, 16, False, None)] * 2)) is None
    assert asked(shape=(1, 8, 1 << 16), maps=(("linear", 1 << 16, 8, False, None),)) is None           # a long row


# --- the writer -------------------------------------------------------------------------------------------------------


def test_the_writer_writes_loops():
    w = llvm_writer.LLVMWriter("define void @f(ptr %p, i64 %n)")
    with w.loop(0, "%n", 2, [("i64", 5)]) as loop:
        loop.next = [w.add(loop.values[0], loop.i)]
    w.store("i64", loop.values[0], "%p")
    assert w.text() == """\
define void @f(ptr %p, i64 %n) "probe-stack"="inline-asm" {
entry:
  %v3 = icmp slt i64 0, %n
  br i1 %v3, label %loop1, label %end2
loop1:
  %i4 = phi i64 [ 0, %entry ], [ %v7, %loop1 ]
  %c5 = phi i64 [ 5, %entry ], [ %v6, %loop1 ]
  %v6 = add nsw i64 %c5, %i4
  %v7 = add nsw i64 %i4, 2
  %v8 = icmp slt i64 %v7, %n
  br i1 %v8, label %loop1, label %end2
end2:
  %v9 = phi i64 [ 5, %entry ], [ %v6, %loop1 ]
  store i64 %v9, ptr %p
  ret void
}"""


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count, cols, taps, size", [(1, 1, 1, 1), (70, 5, 3, 4), (40, 64, 16, 7), (30, 130, 9, 11)])
def test_weighted_rows_are_summed_and_spread(rng, two_threads, dtype, count, cols, taps, size):
    at, weight = rng.integers(0, size, (count, taps)), rng.standard_normal((count, taps)).astype(dtype)
    table, g = rng.standard_normal((size, cols)).astype(dtype), rng.standard_normal((count, cols)).astype(dtype)
    close = 1e-5 if dtype == "float32" else 1e-13
    out = np.full((count, cols), np.nan, dtype)
    execute([pool.sum_weighted_rows(dtype, count, cols, taps)], [table, at, weight, out])
    want = (table[at].astype(float) * weight[:, :, None]).sum(1)
    np.testing.assert_allclose(out, want, close, 10 * close)
    back = np.full((size, cols), np.nan, dtype)
    execute([pool.add_weighted_rows(dtype, count, cols, size, taps)], [g, at, weight, back])
    want = np.zeros((size, cols))
    np.add.at(want, at, g[:, None].astype(float) * weight[:, :, None])
    np.testing.assert_allclose(back, want, 10 * close, 100 * close)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape, dim", [((1,), 0), ((300,), 0), ((7, 50), 1), ((50, 7), 0), ((3, 40, 33), 1),
                                        ((2, 3, 16), 0)])
def test_running_sums(rng, two_threads, dtype, shape, dim):
    x = rng.standard_normal(shape).astype(dtype)
    out = np.full(shape, np.nan, dtype)
    for kind, run in (("sum", np.cumsum), ("prod", np.cumprod)):
        execute([pool.scan(dtype, kind, shape, dim)], [x, out])
        np.testing.assert_array_equal(out, run(x, dim, dtype=float).astype(dtype))          # in double, in order
    factor, rows = rng.standard_normal(shape).astype(dtype), np.moveaxis(x.copy(), dim, 0)
    execute([pool.scan(dtype, "recur", shape, dim)], [x, factor, out])
    for i in range(1, len(rows)):
        rows[i] += np.moveaxis(factor, dim, 0)[i] * rows[i - 1]
    np.testing.assert_array_equal(out, np.moveaxis(rows, 0, dim))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape, dim", [((7,), 0), ((3, 40), 1), ((5, 37), 0), ((2, 9, 3), 1)])
def test_running_extremes(rng, dtype, shape, dim):
    """Of equals the last, and a nan stays until the next."""
    x = rng.integers(-3, 4, shape).astype(dtype)
    x[rng.random(shape) < 0.1], x[rng.random(shape) < 0.1], x[rng.random(shape) < 0.1] = np.nan, np.inf, -np.inf
    for kind, extreme in (("max", np.maximum), ("min", np.minimum)):
        out, places = np.zeros(shape, dtype), np.zeros(shape, np.int64)
        execute([pool.scan(dtype, kind, shape, dim)], [x, out, places])
        want = extreme.accumulate(x, dim)
        count = np.arange(shape[dim]).reshape([-1 if d == dim else 1 for d in range(len(shape))])
        np.testing.assert_array_equal(out, want)
        np.testing.assert_array_equal(places, np.maximum.accumulate(np.where((x == want) | (x != x), count, 0), dim))


def test_threads_may_write_texts_at_once():
    """Kernels of the library are one object for all threads, so writing a text leaves no field of theirs behind."""
    folder, left = Path(gemm.__file__).parent, []
    for path in sorted(folder.glob("*.py")):
        for cls in [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]:
            if not any(isinstance(one, ast.Assign) and getattr(one.targets[0], "id", "") == "word" for one in cls.body):
                continue
            left += [f"{path.name}: {cls.name}.{method.name} sets self.{node.attr}"
                     for method in cls.body if isinstance(method, ast.FunctionDef) and method.name != "__init__"
                     for node in ast.walk(method) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                     and getattr(node.value, "id", "") == "self"]
    assert not left
