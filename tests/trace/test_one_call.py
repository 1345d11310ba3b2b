"""Programs that are a single native call: the numbers that they are given, and the memory that they are given again.

Where the core is compiled they have a way of their own (trace/running/table.pyx), and small arrays come back to be
used once more (Note [Spare arrays] in backends/cpu/memory/array_pool.py); interpreted, the same must hold.
"""
import contextlib
import gc
import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.backends.cpu.memory import allocator, array_pool
from flambeau.base.core import COMPILED
from flambeau.base.observers import Observer, observing
from flambeau.trace.planning import plan
from flambeau.trace.recording.record import current

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True)
def native():
    with torch.config.using(executor="native"):
        yield


WHOLE = st.one_of(st.integers(-130, 130), st.integers(-2**63, 2**63 - 1), st.booleans())


@settings(max_examples=30)
@given(st.lists(WHOLE, min_size=1, max_size=4), st.sampled_from([torch.int64, torch.int32, torch.uint8]))
def test_whole_numbers_enter_as_numpy_wraps_them(numbers, dtype):
    x = torch.tensor([0, 1, 2], dtype=dtype)
    want = np.array([0, 1, 2], dtype.np)
    for n in numbers:
        x, want = x + n, want + np.array(int(n) & 2**64 - 1, np.uint64).astype(dtype.np)
    assert x.tolist() == want.tolist()


@settings(max_examples=30)
@given(st.lists(st.one_of(st.floats(width=32), st.integers(-2**63, 2**64 - 1), st.booleans()), min_size=1, max_size=3))
def test_any_number_enters_a_float_as_its_double_does(numbers):
    x, want = torch.tensor([1.0, -2.0], dtype=torch.float64), np.array([1.0, -2.0])
    with np.errstate(all="ignore"):
        for n in numbers:
            x, want = x * n, want * float(n)
    np.testing.assert_array_equal(np.array(x.tolist()), want)


def test_more_addresses_and_numbers_than_stand_on_the_stack():
    x = [torch.full((3,), float(i)) for i in range(150)]
    y = [x[i] * (i + 0.5) for i in range(150)]
    assert [part.tolist()[0] for part in y] == [i * (i + 0.5) for i in range(150)]


@settings(max_examples=30)
@given(st.lists(st.sampled_from("hold drop view array item write".split()), min_size=3, max_size=12))
def test_memory_that_somebody_sees_is_never_given_again(acts):
    """Results are held, dropped, seen through views and arrays; whatever comes after, none of them changes."""
    x, kept = torch.tensor([1.0, 2.0, 3.0]), []
    for number, act in enumerate(acts):
        y = x * float(number)
        y.tolist()
        want = [float(number), 2.0 * number, 3.0 * number]
        if act == "hold":
            kept.append((y, want))
        elif act == "view":
            kept.append((y[1:], want[1:]))
        elif act == "array":
            kept.append((y.numpy()[::2], want[::2]))
        elif act == "write":
            kept.append((y.add_(1.0), [n + 1 for n in want]))
        elif act == "item":
            assert y[1].item() == want[1]
        del y
        for seen, expected in kept:
            assert seen.tolist() == expected


def spare_addresses(like):
    """Where the spare arrays stand that the next result like this may be made in."""
    large = allocator.large_spares.get(like._spec)
    return {address for _, address in [*allocator.spares.get(like._spec, []), *([large] if large else [])]}


# bytes of arrays of which several are kept, one, one, none
SMALL_SPARE_BYTES = 16 << 10
SIZES = SMALL_SPARE_BYTES, 10 * SMALL_SPARE_BYTES, array_pool.LARGE_SPARE_BYTES, array_pool.LARGE_SPARE_BYTES + 4


@pytest.mark.parametrize("nbytes", SIZES)
def test_large_memory_that_somebody_sees_is_never_given_again(nbytes):
    """The same for arrays of other sizes."""
    allocator.empty_cache()
    numel, rng = nbytes // 4, np.random.default_rng(nbytes)
    x, kept = torch.arange(numel, dtype=torch.float32), []
    for number, act in enumerate(rng.permutation(["hold", "view", "array", "write", *["drop"] * 8])):
        y, want = x + float(number), np.arange(number, number + numel, dtype=np.float32)
        torch.cpu.synchronize()
        if act == "view":
            kept.append((y[1:].view(-1)[::2], want[1::2]))
        elif act == "array":
            kept.append((y.numpy()[5:], want[5:]))
        elif act == "write":
            kept.append((y.mul_(2.0), want * 2))
        elif act == "hold":
            kept.append((y, want))
        del y
        for seen, expected in kept:
            np.testing.assert_array_equal(np.asarray(torch.clone(seen) if torch.is_tensor(seen) else seen), expected)


@pytest.mark.parametrize("nbytes", (28, *SIZES))
def test_what_comes_back_counts_as_idle(nbytes):
    x = torch.arange(nbytes // 4, dtype=torch.float32)

    def product():
        y = x * 2
        torch.cpu.synchronize()
        return y
    product()
    gc.collect()
    before, calls = allocator.allocated(), allocator.stats()["allocation.all.allocated"]
    for _ in range(5):
        product()
    after = allocator.stats()
    assert after["allocated_bytes.all.current"] == before and after["allocation.all.allocated"] == calls + 5
    found = spare_addresses(x)
    if COMPILED and nbytes <= array_pool.LARGE_SPARE_BYTES:
        states = {b["address"]: b["state"] for segment in allocator.segments() for b in segment["blocks"]}
        assert found and {states[address] for address in found} == {"inactive"}
        held = product()
        assert held._storage.value.address() in found and not spare_addresses(x) & {held._storage.value.address()}
        allocator.empty_cache()
        assert not allocator.spares and not allocator.large_spares
    else:
        assert not found


def test_few_large_arrays_are_kept():
    """One of each of the last specs, so that what lies idle there is no more than it says."""
    allocator.empty_cache()
    sizes = [array_pool.LARGE_SPARE_BYTES // 4 - n for n in range(20)]
    for numel in sizes:
        pair = [torch.ones(numel) * 2 for _ in range(2)]
        torch.cpu.synchronize()
        del pair
    kept = (16 << 20) // array_pool.LARGE_SPARE_BYTES
    assert [spec.numel for spec in allocator.large_spares] == (sizes[-kept:] if COMPILED else [])


@pytest.mark.parametrize("numel", [1000, 40_000, 300_000, 900_000])
def test_the_peak_counts_results_in_spare_arrays(numel):
    """However many are taken from the spare ones, and whatever they were before."""
    x = torch.ones(numel)
    torch.cpu.synchronize()
    size = array_pool.class_size(4 * numel)
    for number in range(4):
        gone, held = [x * 2, (x[1:] * 3).sum()], None
        torch.cpu.synchronize()
        del gone
        if number % 2:
            allocator.empty_cache()
        gc.collect()
        allocator.reset_peaks()
        before = allocator.allocated()
        held = x + number
        torch.cpu.synchronize()
        more = [x - number, x * number]
        torch.cpu.synchronize()
        del more
        peak = allocator.stats()["allocated_bytes.all.peak"]
        missed = 4 * size if 4 * numel <= SMALL_SPARE_BYTES else 0           # of small ones it does not know
        assert before + 3 * size - missed <= peak <= before + 3 * size, number
        assert held[0].item() == 1 + number


def test_threads_that_look_at_once_get_their_own():
    x, wrong = torch.tensor([1.0, 2.0, 3.0]), []

    def look(factor):
        for _ in range(300):
            if (x * factor).tolist() != [factor, 2 * factor, 3 * factor]:
                wrong.append(factor)
    threads = [threading.Thread(target=look, args=(float(n),)) for n in range(1, 5)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


@pytest.mark.skipif(not COMPILED, reason="interpreted, nothing is found beforehand")
@pytest.mark.parametrize("observed", [False, True])
def test_what_an_interrupted_run_had_found_is_not_used(observed):
    class Runs(Observer):
        def ran(self, run): pass

    x = torch.tensor([1.0, 2.0, 3.0])
    y = x * 2
    current().found = (("another trace",), (), ())
    with observing(Runs()) if observed else contextlib.nullcontext():
        assert y.tolist() == [2, 4, 6] and current().found is None


def test_one_instruction_whoever_holds_what_it_reads():
    """Its plan is found by the call alone where others hold its operands: not where it may write over them."""
    held, other = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5.0])
    for n in range(6):
        assert (held * held).tolist() == [1, 4, 9]
        assert (torch.tensor([1.0, 2.0, n]) * held).tolist() == [1, 4, 3 * n]          # nobody else holds that one
        assert (held * torch.tensor([1.0, 2.0, n])).tolist() == [1, 4, 3 * n]
        assert (held[1:] * held[:2]).tolist() == [2, 6] and (held[:2] * held[1:]).tolist() == [2, 6]
        assert (held * other).tolist() == [5, 10, 15] and (held * float(n)).tolist() == [n, 2 * n, 3 * n]
        held * held                                                                    # whose result nobody wants
        assert (held + 1).tolist() == [2, 3, 4] and held.tolist() == [1, 2, 3]


def test_plans_that_are_forgotten_are_not_used():
    x = torch.tensor([1.0, 2.0, 3.0])
    for _ in range(3):
        assert (x * x).tolist() == [1, 4, 9]
    plan.forget()
    assert not plan._plans and (x * x).tolist() == [1, 4, 9]
    assert plan._plans                                        # it was made anew


def test_others_wait_for_a_small_look():
    """Two threads look at what a third has recorded and looks at itself."""
    x, wrong, done = torch.tensor([1.0, 2.0, 3.0]), [], threading.Event()
    box = [(0.0, x * 0.0)]

    def look():
        while not done.is_set():
            n, found = box[0]
            if found.tolist() != [n, 2 * n, 3 * n]:
                wrong.append(n)
    threads = [threading.Thread(target=look) for _ in range(2)]
    for one in threads:
        one.start()
    for n in range(1500):
        y = x * float(n)
        box[0] = (float(n), y)
        z = y + 1.0
        if z.tolist() != [n + 1, 2 * n + 1, 3 * n + 1]:
            wrong.append(n)
    done.set()
    for one in threads:
        one.join()
    assert not wrong


def test_a_finaliser_amid_a_small_look():
    """What a finaliser records and looks at while this thread looks is its own affair, and both are right."""
    x, found = torch.tensor([1.0, 2.0, 3.0]), []

    class Looks:
        def __init__(self): self.me = self
        def __del__(self): found.append((x + 1.0).tolist())

    before = gc.get_threshold()
    gc.set_threshold(3)
    try:
        for n in range(300):
            Looks()
            assert (x * float(n)).tolist() == [n, 2 * n, 3 * n]
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert found and all(one == [2, 3, 4] for one in found)


def test_working_memory_comes_back():
    """Small working memory is taken from the spare arrays, and what stands there is nobody's result."""
    a, b = torch.ones(8, 8), torch.eye(8) * 2
    for _ in range(3):
        kept = ((a @ b).tanh() @ b).sum(0)
        want = np.tanh(2.0) * 16
        np.testing.assert_allclose(kept.tolist(), [want] * 8, rtol=1e-6)
