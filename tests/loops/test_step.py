"""What steps keep in their thread's room fits in it, on any thread, and nothing is written beyond it."""
import ctypes
import itertools
import os
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from flambeau.backends.cpu import machine_code, threads
from flambeau.backends.cpu.library import gemm, gemm_kernels, gemm_micro
from flambeau.loops.step import MAX_ROOM_BYTES, ROOM_ALIGNMENT, STEP_ARGUMENTS, in_room, room_bytes
from tests.backends.test_library import execute

WAYS = "rows", "columns", "apart"


@pytest.fixture
def set_threads(monkeypatch):
    monkeypatch.setattr(threads, "quota", lambda: 1 << 20)
    before = threads.get_num_threads()
    yield threads.set_num_threads
    threads.set_num_threads(before)


def in_memory(rows, cols, how):
    """The strides of a matrix that lies by rows, by columns, or with every element apart."""
    return {"rows": (cols, 1), "columns": (1, rows), "apart": (2 * cols + 3, 2)}[how]


def machine_of(lanes, registers, size):
    """What a plan asks of a processor with such vectors; nothing is compiled."""
    def rows(width): return max(1, min(gemm_micro.MAX_KERNEL_ROWS, (registers - width - 1) // width))
    kernels = SimpleNamespace(whole_lines=lanes == 16, products_a_cycle=2 * lanes * 4 // size, pack_share=1.0,
                              fields=gemm_kernels.STEP_FIELDS)
    return SimpleNamespace(lanes=lanes // (size // 4), size=size, registers=registers, rows=rows, kernels=kernels,
                           function=lambda *_, **__: 0,
                           functions=lambda wanted, *_, **__: [0] * (len(wanted) + 1))


SIZES = [(m, n, k) for long in (5000, 262_144) for short in (1, 16, 300, 2048) for k in (1, 2, 3, 4, 7, 9, 15, 16, 60)
         for m, n in ((short, long), (long, short))] + \
        [(m, n, k) for m, n in ((16, 262_144), (300, 5000), (9000, 1500), (9000, 60), (2051, 2051), (40, 40))
         for k in (193, 365, 384, 385, 5000)]


@pytest.mark.parametrize("lanes, registers", [(4, 32), (8, 16), (16, 32)])
def test_products_pack_no_more_than_a_room_has(monkeypatch, lanes, registers):
    seen, ways = set(), list(itertools.product(WAYS, repeat=2))
    for turn, second in enumerate((256 << 10, 1 << 20, 2 << 20, 4 << 20)):
        monkeypatch.setattr(gemm, "second_cache", lambda second=second: second)
        for number, (m, n, k) in enumerate(SIZES, turn):         # by turns: types, layouts, threads, and batches
            size, (a, b), batch = (4, 8)[number % 2], ways[number % 9], ((), (), (2,))[number // 3 % 3]
            count = (1, 2, 3, 6, 1, 2, 3, 16)[number // 2 % 8]
            monkeypatch.setattr(gemm, "get_num_threads", lambda count=count: count)
            machine = machine_of(lanes, registers, size)
            monkeypatch.setattr(gemm, "compiled_kernels", lambda *_, machine=machine: machine)
            lead = [[s] * len(batch) for s in (m * k, k * n, m * n)]
            steps = gemm.gemm(m, n, k, f"float{8 * size}", (*in_memory(m, k, a), *lead[0]),
                              (*in_memory(k, n, b), *lead[1]), (n, 1, *lead[2]), batch)
            how = dict(zip(gemm_kernels.STEP_FIELDS, steps[-1].ints, strict=True))
            assert in_room(size, how["a_room"], how["b_room"]), (m, n, k, a, b, batch, count, size, second)
            seen.add((how["a_pack"], bool(how["shares"]), how["b_room"] * size > MAX_ROOM_BYTES // 4))
    assert len(seen) >= 8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_write_only_where_they_have_room(monkeypatch, set_threads, dtype):
    """Neither operand's copy goes beyond its end, which is close: rooms are as large as what is packed."""
    set_threads(1)
    threads.start()
    address = ctypes.CFUNCTYPE(ctypes.c_void_p)(machine_code.functions({"room": threads.text()})["room"])()
    room = np.ctypeslib.as_array((ctypes.c_uint8 * MAX_ROOM_BYTES).from_address(address))
    size, packed, rng = np.dtype(dtype).itemsize, set(), np.random.default_rng(3)
    for m, n, k in [(1, 50_000, 1), (100, 5000, 2), (30, 700, 5), (700, 30, 5), (41, 53, 7), (60, 3, 90),
                    (300, 301, 130), (200, 47, 385), (47, 200, 385), (2051, 49, 17), (9, 40_000, 3), (1100, 96, 384)]:
        exact = [rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n))]
        for ways in itertools.product(WAYS, repeat=2):
            step_a, step_b = [in_memory(*x.shape, how) for x, how in zip(exact, ways, strict=True)]
            a, b = [np.zeros(2 * x.size + 4 * sum(x.shape), dtype) for x in exact]
            for flat, x, step in ((a, exact[0], step_a), (b, exact[1], step_b)):
                np.lib.stride_tricks.as_strided(flat, x.shape, [size * s for s in step])[...] = x
            out = np.full((m, n), np.nan, dtype)
            steps = gemm.gemm(m, n, k, dtype, step_a, step_b, (n, 1))
            how = dict(zip(gemm_kernels.STEP_FIELDS, steps[-1].ints, strict=True))
            room[:] = 0xA5
            execute(steps, [a, b, out])
            assert (out == exact[0] @ exact[1]).all()
            if len(steps) == 1 and how["rows"]:                  # packed, not vectors along k
                ends = [how["a_room"] * size, room_bytes(size, how["a_room"]) + how["b_room"] * size]
                assert (room[ends[0]:room_bytes(size, how["a_room"])] == 0xA5).all()
                assert (room[ends[1]:] == 0xA5).all(), (m, n, k, ways)
                packed.add((how["a_pack"], bool(how["pack_b"])))
    assert len(packed) > 4


ROOMS = f"""
define void @rooms({STEP_ARGUMENTS}) {{
entry:
  %found = load ptr, ptr %buffers
  %last = getelementptr i8, ptr %room, i64 {MAX_ROOM_BYTES - 1}
  br label %next
next:
  %t = phi i64 [%begin, %entry], [%t.next, %waited]
  %at = getelementptr ptr, ptr %found, i64 %t
  store ptr %room, ptr %at
  store i8 1, ptr %room
  store i8 1, ptr %last
  br label %wait
wait:
  %n = phi i64 [0, %next], [%n.next, %wait]
  %n.next = add i64 %n, 1
  fence seq_cst
  %again = icmp slt i64 %n.next, 20000
  br i1 %again, label %wait, label %waited
waited:
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, %end
  br i1 %more, label %next, label %done
done:
  ret void
}}
"""


def rooms_of(tiles, grain):
    found = np.zeros(tiles, np.int64)
    words = np.array([machine_code.function("rooms", ROOMS), tiles, grain, 1, 0, 0, 0, 0], np.int64)
    threads.run(words.ctypes.data, 1, np.array([found.ctypes.data]).ctypes.data, 0)
    return found


def test_every_thread_has_one_room_that_it_keeps(set_threads):
    set_threads(3)
    own = {*rooms_of(4, 4)}
    assert len(own) == 1 and all(room % ROOM_ALIGNMENT == 0 for room in own)
    seen = set()
    for _ in range(50):
        seen |= {*rooms_of(64, 1)}
        assert own <= {*rooms_of(4, 4)}
    apart = np.diff(sorted(seen))
    assert own < seen and len(seen) <= 3 and (apart >= MAX_ROOM_BYTES).all()


def child(body, **env):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(body)], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"FLAMBEAU_EXECUTOR": "native", **env})


PRODUCTS = """
import threading
import numpy as np
import flambeau as F
rng = np.random.default_rng(0)
def products():
    for m, n, k in ((1, 262144, 1), (16, 262144, 1), (16, 100000, 4)):
        a, b = rng.integers(-4, 5, (m, k)).astype("f4"), rng.integers(-4, 5, (k, n)).astype("f4")
        assert ((F.tensor(a) @ F.tensor(b)).numpy() == a @ b).all()
"""


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_product_of_one_column_and_one_row(count):
    done = child(PRODUCTS + "products(); print('done')", FLAMBEAU_NUM_THREADS=count)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.skipif(os.name != "posix", reason="systems round what is asked for up")
def test_threads_with_small_stacks():
    """What a step keeps does not lie there: packed matrices, copies of images, rows for a later pass, resized rows."""
    done = child(PRODUCTS + """
        def everything():
            products()
            F.nn.functional.conv2d(F.rand(2, 64, 40, 40), F.rand(64, 64, 3, 3)).numpy()
            F.nn.functional.conv2d(F.rand(2, 64, 40, 40), F.rand(64, 64, 5, 5)).numpy()
            x = F.rand(2, 16000, dtype=F.float64)
            assert np.allclose(x.softmax(1).sum(1).numpy(), 1)
            F.nn.functional.interpolate(F.rand(1, 1, 20, 15000), size=(40, 16000), mode="bilinear").numpy()
            print("done")
        everything()                             # whatever is compiled is so on another thread
        threading.stack_size(128 << 10)
        thread = threading.Thread(target=everything)
        thread.start()
        thread.join()
    """.replace("\n        ", "\n"), FLAMBEAU_NUM_THREADS="1")
    assert (done.returncode, done.stdout) == (0, "done\ndone\n"), done.stderr


@pytest.mark.parametrize("count", ["1", "2"])
def test_bilinear_backward_where_the_second_cache_is_large(count):
    done = child("""
        import numpy as np
        import flambeau as F
        from flambeau.backends.cpu.library import gemm
        gemm.second_cache = lambda: 2 << 20
        rng = np.random.default_rng(0)
        x, y, w = [rng.integers(-2, 3, shape).astype("f4") for shape in ((256, 512), (256, 512), (4, 512, 512))]
        left, right, weight = [F.tensor(one, requires_grad=True) for one in (x, y, w)]
        F.nn.functional.bilinear(left, right, weight).sum().backward()
        assert (weight.grad.numpy() == x.T @ y).all()
        assert (left.grad.numpy() == y @ w.sum(0).T).all()
        print("done")
    """, FLAMBEAU_NUM_THREADS=count)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.skipif(os.name != "posix", reason="how a process ended is told by a signal there")
def test_a_step_that_asks_for_more_than_a_room_ends_the_process():
    done = child("""
        import numpy as np
        from flambeau.backends.cpu.library import gemm, gemm_kernels
        from flambeau.loops.step import MAX_ROOM_BYTES
        from tests.backends.test_library import execute
        step, = gemm.gemm(40, 50, 60, "float32", (60, 1), (50, 1), (50, 1))
        a, b, c = np.ones((40, 60), "f4"), np.ones((60, 50), "f4"), np.zeros((40, 50), "f4")
        for room in (MAX_ROOM_BYTES // 4, MAX_ROOM_BYTES // 4 + 1):
            step.ints[gemm_kernels.STEP_FIELDS.index("a_room")] = 0
            step.ints[gemm_kernels.STEP_FIELDS.index("b_room")] = room
            execute([step], [a, b, c])
            print((c == 60).all(), flush=True)
    """, FLAMBEAU_NUM_THREADS="1")
    assert done.stdout == "True\n" and done.returncode in (-signal.SIGILL, -signal.SIGTRAP, -signal.SIGABRT), done
