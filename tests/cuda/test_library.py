"""Kernels of the library that are written by hand, on simulated devices, against NumPy; and all of them by NVRTC."""
import itertools
from array import array

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.backends.backend import Task
from flambeau.backends.cuda import library, nvrtc
from flambeau.backends.cuda.backend import CUDABackend
from flambeau.backends.cuda.calls import LaunchCall
from flambeau.backends.cuda.library import rows
from flambeau.base import dtypes
from flambeau.base.shapes import contiguous_strides
from flambeau.ops import attention, maxpool

from ..thorough import THOROUGH, sample
from .simulated import compiler, simulating

pytestmark = pytest.mark.pinned
simulated = pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")

FLOATS = [dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16]
NUMBERS = [*FLOATS, dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64]
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}


@pytest.fixture(scope="module")
def device():
    with simulating(devices=1) as driver:
        yield driver


def laid(x):
    return x.shape, contiguous_strides(x.shape)


def ask(name, dtype, args, outs, params):
    return library.ask(name, dtype, [laid(a) for a in args], [laid(o) for o in outs], params)


def run(device, name, dtype, args, outs, params, calls=None):
    """What a function of the library makes of arrays, in arrays like `outs`."""
    calls = calls or ask(name, dtype, args, outs, params)
    assert calls is not None, name
    memory = [device.allocate(0, max(a.nbytes, 1)) for a in (*args, *outs)]
    for held, given_ in zip(memory, args, strict=False):
        whole = np.ascontiguousarray(given_)
        device.upload(0, held.address, whole.ctypes.data, whole.nbytes)
    scratch = max(call.scratch for call in calls)
    if scratch:
        memory.append(device.allocate(0, scratch))
    places = [(number, 0) for number in range(len(memory))]
    program = CUDABackend(0).program([Task(call, places) for call in calls])
    program.run([held.address for held in memory], array("q"))
    made = []
    for held, like in zip(memory[len(args):], outs, strict=False):
        one = np.empty(like.shape, like.dtype)
        device.download(0, held.address, one.ctypes.data, one.nbytes)
        made.append(one)
    device.synchronize(0)
    return made


def close(made, wanted, dtype):
    tolerance = TOLERANCE.get(dtype.name, 0)
    np.testing.assert_allclose(made.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


def numbers(rng, shape, dtype):
    if dtype.is_floating_point:
        return rng.standard_normal(shape).astype(dtype.np)
    return rng.integers(0, 5, shape).astype(dtype.np)


def wide(x):
    return x.astype(np.float64 if x.dtype.kind not in "iu" else np.int64)


# --- small products ---------------------------------------------------------------------------------------------------


def turned(draw, shape):
    """(the order in which dimensions lie in memory, strides of `shape` then)"""
    order = draw(st.permutations(range(len(shape))))
    steps = contiguous_strides([shape[d] for d in order])
    return order, tuple(steps[order.index(d)] for d in range(len(shape)))


@simulated
@settings(deadline=None, max_examples=30)
@given(st.data())
def test_small_products_of_any_layout(device, data):
    draw, dtype = data.draw, data.draw(st.sampled_from(FLOATS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, k, n = (draw(st.integers(1, 40)) for _ in range(3))
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    shared = draw(st.booleans())
    shapes = (*batch, m, k), ((1,) * len(batch) if shared else tuple(batch)) + (k, n), (*batch, m, n)
    orders, strides = zip(*[turned(draw, shape) for shape in shapes], strict=True)
    a, b = (rng.integers(-2, 3, shape).astype(dtype.np) for shape in shapes[:2])
    calls = library.ask("gemm", dtype, list(zip(shapes[:2], strides[:2], strict=True)), [(shapes[2], strides[2])], ())
    assert [call.name for call in calls] == ["multiply"]
    lying = [x.transpose(order) for x, order in zip((a, b), orders, strict=False)]
    blank = np.empty([shapes[2][d] for d in orders[2]], dtype.np)
    made, = run(device, "gemm", dtype, lying, [blank], (), calls)
    made = made.transpose([orders[2].index(d) for d in range(len(shapes[2]))])
    np.testing.assert_array_equal(wide(made), np.broadcast_to(wide(a) @ wide(b), shapes[2]))


# --- running results --------------------------------------------------------------------------------------------------


def along(kind, x, dim, factor):
    if kind == "recur":
        x, factor = np.moveaxis(x, dim, 0).copy(), np.moveaxis(factor, dim, 0)
        for i in range(1, len(x)):
            x[i] += factor[i] * x[i - 1]
        return np.moveaxis(x, 0, dim)
    return {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
            "logaddexp": np.logaddexp}[kind].accumulate(x, axis=dim)


@simulated
@settings(deadline=None, max_examples=30)
@given(st.data())
def test_running_results(device, data):
    draw = data.draw
    kind = draw(st.sampled_from(("sum", "prod", "max", "min", "logaddexp", "recur")))
    dtype = draw(st.sampled_from(FLOATS if kind in ("logaddexp", "recur") else [*FLOATS, dtypes.int64]))
    shape = draw(st.sampled_from([(3, 5), (2, 130), (1, 1037), (2, 40, 37), (70, 3), (9000,)]))
    dim = draw(st.integers(0, len(shape) - 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x, factor = numbers(rng, shape, dtype), rng.random(shape).astype(dtype.np)
    if kind == "prod":
        x = (1 + wide(x) / 100).astype(dtype.np) if dtype.is_floating_point else np.ones_like(x)
    places = kind in ("max", "min")
    outs = [np.empty(shape, dtype.np), np.empty(shape, np.int64)][:1 + places]
    made = run(device, "running", dtype, [x, factor] if kind == "recur" else [x], outs, (kind, dim))
    wanted = along(kind, wide(x), dim, wide(factor))
    tolerance = TOLERANCE.get(dtype.name, 0) * (20 if kind == "prod" else 1)
    np.testing.assert_allclose(wide(made[0]), wanted, rtol=tolerance, atol=tolerance * 10)
    if places:
        count = np.arange(shape[dim]).reshape([-1 if d == dim else 1 for d in range(len(shape))])
        last = np.maximum.accumulate(np.where(x == made[0], count, 0), axis=dim)
        np.testing.assert_array_equal(made[1], last)


@simulated
def test_a_nan_stays_until_the_next(device):
    x = np.array([[1, np.nan, 3, np.nan, 5, 2]], np.float32)
    values, places = run(device, "running", dtypes.float32, [x], [x, np.empty(x.shape, np.int64)], ("max", 1))
    assert np.isnan(values[0, 1:]).all() and places.tolist() == [[0, 1, 1, 3, 3, 3]]


# --- rows -------------------------------------------------------------------------------------------------------------


@simulated
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.name)
@pytest.mark.parametrize("count, cols, size, skip", [(10, 8, 5, -1), (500, 3, 40, 2), (60, 1030, 100, -1),
                                                     (5000, 5, 3, 1)])
def test_rows_are_added_in_order(device, dtype, count, cols, size, skip):
    rng = np.random.default_rng(count)
    g, index = rng.integers(0, 2, (count, cols)).astype(dtype.np), rng.integers(0, size, count)
    made, = run(device, "scatter", dtype, [g[None], index[None, :, None]], [np.empty((1, size, cols), dtype.np)],
                ("sum", False, 64, skip, (1, size, cols)))
    made = made[0]
    wanted = np.zeros((size, cols), np.int64)
    np.add.at(wanted, index, wide(g).astype(np.int64))
    if skip >= 0:
        wanted[skip] = 0
    if dtype.itemsize == 1:
        np.testing.assert_array_equal(made, wanted.astype(dtype.np))
    else:
        close(made, wanted, dtype)


@simulated
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_weighted_sums_of_rows(device, dtype):
    rng = np.random.default_rng(0)
    table, weight = (rng.standard_normal(shape).astype(dtype.np) for shape in ((50, 33), (40, 4)))
    index = rng.integers(0, 50, (40, 4))
    made, = run(device, "sum_weighted_rows", dtype, [table, index, weight], [np.empty((40, 33), dtype.np)], ())
    close(made, (wide(table)[index] * wide(weight)[:, :, None]).sum(1), dtype)


@simulated
@pytest.mark.parametrize("dtype, count, cols, distinct", sample(
    [(dtype, *case) for dtype in FLOATS
     for case in ((3000, 1, 2500), (3000, 3, 4), (2000, 40, 300), (1000, 33, 2))], 3))
def test_a_long_index_is_sorted_first(device, dtype, count, cols, distinct, monkeypatch):
    monkeypatch.setattr(rows, "MAX_INDEX_READS", 1000)
    library.forget()
    rng, size = np.random.default_rng(count), 70000
    g = rng.integers(0, 2, (count, cols)).astype(dtype.np)
    index = rng.permutation(size)[rng.integers(0, distinct, count)]
    made, = run(device, "scatter", dtype, [g[None], index[None, :, None]], [np.empty((1, size, cols), dtype.np)],
                ("sum", False, 64, int(index[5]), (1, size, cols)))
    made = made[0]
    wanted = np.zeros((size, cols))
    np.add.at(wanted, index, wide(g))
    wanted[index[5]] = 0
    close(made, wanted, dtype)
    library.forget()


@simulated
@pytest.mark.parametrize("dtype", [*FLOATS, dtypes.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("rows, count, size, shared", [(3, 10, 5, False), (2, 700, 300, False), (2, 600, 3, True),
                                                       (1, 300, 40000, False)])
def test_elements_are_added_where_an_index_says(device, dtype, rows, count, size, shared):
    rng = np.random.default_rng(count)
    g = rng.integers(-1, 2, (rows, count)).astype(dtype.np)
    index = rng.integers(0, size, (1 if shared else rows, count))
    made, = run(device, "drop", dtype, [g, index], [np.empty((rows, size), dtype.np)], (size,))
    wanted = np.zeros((rows, size))
    for row, places in zip(range(rows), itertools.cycle(index), strict=False):
        np.add.at(wanted[row], places, wide(g[row]))
    close(made, wanted, dtype)


# --- order ------------------------------------------------------------------------------------------------------------


def unordered(rng, shape, dtype):
    """Numbers with equals among them and, of floats, zeros of both signs, infinities and a NaN."""
    if dtype is dtypes.bool:
        return rng.integers(0, 2, shape).astype(bool)
    if not dtype.is_floating_point:
        return rng.integers(0 if dtype is dtypes.uint8 else -100, 100, shape).astype(dtype.np)
    x = rng.standard_normal(shape)
    x[:, ::5], x[:, 1::11], x[:, 3], x[:, 4], x[:, 5] = 0, -0.0, np.nan, np.inf, -np.inf
    return x.astype(dtype.np)


def order(x, descending):
    """Where the elements of rows come from, equal ones in the order that they had and NaN above all."""
    x = wide(x) if x.dtype != bool else x.astype(np.int64)
    nan = np.isnan(x)
    x = np.where(nan, 0, x)
    return np.stack([np.lexsort((-row, ~none) if descending else (row, none))
                     for row, none in zip(x, nan, strict=True)])


@simulated
@pytest.mark.parametrize("dtype, shape, descending", sample(itertools.product(
    [*NUMBERS, dtypes.bool], [(3, 10), (2, 1000), (3, 2500)], [False, True]), 5))
def test_sorting_is_stable_and_keeps_every_bit(device, dtype, shape, descending):
    x = unordered(np.random.default_rng(shape[1]), shape, dtype)
    values, places = run(device, "sort", dtype, [x], [x, np.empty(x.shape, np.int64)], (descending,))
    wanted = order(x, descending)
    np.testing.assert_array_equal(places, wanted)
    assert values.tobytes() == np.take_along_axis(x, wanted, 1).tobytes()


@simulated
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.name)
@pytest.mark.parametrize("rows, n, k", [(3, 10, 10), (2, 1000, 7), (2, 3000, 50)])
@pytest.mark.parametrize("largest", [False, True])
def test_the_largest_come_in_order(device, dtype, rows, n, k, largest):
    x = unordered(np.random.default_rng(n), (rows, n), dtype)
    outs = [np.empty((rows, k), dtype.np), np.empty((rows, k), np.int64)]
    values, places = run(device, "topk", dtype, [x], outs, (k, largest))
    wanted = order(x, largest)[:, :k]
    np.testing.assert_array_equal(places, wanted)
    assert values.tobytes() == np.take_along_axis(x, wanted, 1).tobytes()


# --- pooling ----------------------------------------------------------------------------------------------------------


def window(size, kernel, stride, padding, dilation):
    return "window", size, (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1, kernel, stride, padding, \
        dilation, False


@simulated
@pytest.mark.parametrize("dtype", [*FLOATS, dtypes.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("lead, maps", [
    ((2, 3), (window(9, 3, 2, 1, 1), window(11, 3, 2, 1, 1))), ((2,), (window(8, 2, 1, 0, 2), window(8, 3, 2, 1, 1))),
    ((2, 1), (window(5, 2, 2, 0, 1), window(6, 2, 1, 1, 1), window(7, 2, 2, 1, 1))), ((4,), (window(9, 3, 1, 1, 1),))])
def test_the_largest_of_windows(device, dtype, lead, maps):
    rng = np.random.default_rng(len(maps))
    x = rng.integers(-5, 6, (*lead, *[m[1] for m in maps])).astype(dtype.np)
    if dtype.is_floating_point:
        x.reshape(-1)[3] = np.nan
    values, places = maxpool._max_pool.ref(np, x if dtype.itemsize > 2 else x.astype(np.float32), maps)
    made = run(device, "max_pool", dtype, [x], [values.astype(dtype.np), places], (maps,))
    np.testing.assert_array_equal(wide(made[0]), wide(values))
    np.testing.assert_array_equal(made[1], places)


# --- attention --------------------------------------------------------------------------------------------------------


# samples, heads, queries, keys, features, features of values, causal, heads that share a key
ATTENTIONS = [(1, 2, 5, 7, 4, 3, False, 1), (1, 2, 70, 70, 16, 16, True, 1), (1, 4, 33, 65, 24, 24, False, 2),
              (1, 1, 40, 20, 8, 8, True, 1), (1, 1, 65, 70, 64, 64, True, 1)]


@simulated
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("case", sample(ATTENTIONS, 2), ids=str)
def test_attention(device, dtype, case):
    attend(device, dtype, case, None)


@simulated
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("case", sample([case for case in ATTENTIONS if not case[6]], 2), ids=str)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_with_a_mask(device, dtype, case, kind):
    _, heads, queries, keys = case[:4]
    rng = np.random.default_rng(keys)
    if kind == "bool":
        mask = rng.integers(0, 2, (1, heads, queries, keys)).astype(bool)
        mask[:, :, 3] = False                                # a query that no key counts for
    else:
        mask = np.where(rng.integers(0, 3, (1, 1, 1, keys)) > 0, rng.standard_normal((1, 1, 1, keys)), -np.inf)
        mask = mask.astype(dtype.np)
    attend(device, dtype, case, mask)


def attend(device, dtype, case, mask):
    """Compare an attention and its gradients with the reference."""
    samples, heads, queries, keys, size, width, causal, groups = case
    rng, how = np.random.default_rng(queries), (size ** -0.5, causal, groups)
    kind, given_ = None if mask is None else "bool" if mask.dtype == bool else "float", [] if mask is None else [mask]
    wide_mask = mask if mask is None or mask.dtype == bool else wide(mask)
    shared = heads // groups
    q, k, v, g = (rng.standard_normal((samples, *shape)).astype(dtype.np) for shape in (
        (heads, queries, size), (shared, keys, size), (shared, keys, width), (heads, queries, width)))
    average, rest = attention._flash.ref(np, *map(wide, (q, k, v)), wide_mask, *how)
    average_, rest_ = average.astype(dtype.np), rest.astype(np.float64 if dtype is dtypes.float64 else np.float32)
    made = run(device, "attention", dtype, [q, k, v, *given_], [average_, rest_], (*how, kind))
    close(made[0], average, dtype)
    np.testing.assert_allclose(made[1], rest, rtol=1e-5, atol=1e-5)
    gradients = attention._flash_backward.ref(np, *map(wide, (g, q, k, v)), average, rest, wide_mask, *how)
    made = run(device, "attention_backward", dtype, [g, q, k, v, average_, rest_, *given_], [q, k, v], (*how, kind))
    for one, other in zip(made, gradients, strict=True):
        close(one, other, dtype)


def attended(device, mask, dtype, groups):
    """(average, gradients, plan) of an attention over heads that lie as projections leave them."""
    torch.manual_seed(0)
    x = torch.randn(2, 9, 32 + 2 * 32 // groups).to(dtype).to(device).requires_grad_()
    q, k, v = [t.view(2, 9, -1, 8).transpose(1, 2) for t in x.split([32, 32 // groups, 32 // groups], 2)]
    mask = mask if mask is None else mask.to(device)
    made = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None,
                                                            enable_gqa=groups > 1)
    words = str(torch.plans.of(made)) if device == "cuda" else ""
    (made.float() * torch.arange(8, device=device)).sum().backward()
    return made.detach().cpu().float(), x.grad.cpu().float(), words


@simulated
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [None, "bool", "float"])
def test_attention_of_tensors(device, dtype, groups, kind):
    rng = np.random.default_rng(0)
    mask = None if kind is None else torch.from_numpy(rng.random((9, 9)) > 0.3) if kind == "bool" else \
        torch.from_numpy(rng.standard_normal((4, 9, 9))).to(dtype)
    *mine, words = attended("cuda", mask, dtype, groups)
    *other, _ = attended("cpu", mask, dtype, groups)
    assert "attention" in words and "gemm" not in words and "reference" not in words
    for a, b in zip(mine, other, strict=True):
        tolerance = 1e-5 if dtype is torch.float32 else 3e-2
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance * b.abs().max().item())


@simulated
def test_attention_keeps_to_the_switches(device):
    with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_mem_efficient=False, enable_cudnn=False):
        *_, words = attended("cuda", None, torch.float32, 1)
    assert "gemm" in words and "attention" not in words


# --- the compiler -----------------------------------------------------------------------------------------------------


def all_calls():
    """(name, LaunchCall) of every kernel by its text, in a few dtypes."""
    shape, index = (4, 5000), np.empty(5000, np.int64)
    picture = (window(9, 3, 2, 1, 1), window(11, 3, 2, 1, 1))
    for dtype in (dtypes.float32, dtypes.bfloat16, dtypes.int64):
        x = np.empty(shape, dtype.np)
        places = np.empty(shape, np.int64)
        for kind in ("sum", "prod", "max", "min", "logaddexp", "recur"):
            for dim in (0, 1):
                args = [x, x] if kind == "recur" else [x]
                yield from ask("running", dtype, args, [x, places][:1 + (kind in ("max", "min"))], (kind, dim)) or ()
        if dtype.is_floating_point:
            yield from ask("gemm", dtype, [x[:, :40], np.empty((40, 9), dtype.np)], [np.empty((4, 9), dtype.np)], ())
        yield from ask("scatter", dtype, [np.empty((1, 5000, 4), dtype.np), index[None, :, None]],
                       [np.empty((1, 9, 4), dtype.np)], ("sum", False, 64, -1, (1, 9, 4)))
        yield from ask("drop", dtype, [x, places], [np.empty((4, 9), dtype.np)], (9,))
        yield from ask("sort", dtype, [x], [x, places], (False,))
        yield from ask("sort", dtype, [x[:, :100]], [x[:, :100], places[:, :100]], (True,))
        yield from ask("topk", dtype, [x], [x[:, :9], places[:, :9]], (9, True))
        made, pooled = np.empty((1, 2, 5, 6), dtype.np), np.empty((1, 2, 9, 11), dtype.np)
        yield from ask("max_pool", dtype, [pooled], [made, np.empty(made.shape, np.int64)], (picture,))
        if dtype.is_floating_point:
            q, rest = np.empty((1, 2, 70, 64), dtype.np), np.empty((1, 2, 70), np.float32)
            yield from ask("attention", dtype, [q, q, q], [q, rest], (0.125, True, 1, None))
            yield from ask("attention_backward", dtype, [q, q, q, q, q, rest], [q, q, q], (0.125, True, 1, None))
            mask = np.empty((1, 1, 70, 70), bool)
            yield from ask("attention", dtype, [q, q, q, mask], [q, rest], (0.125, False, 1, "bool"))
            yield from ask("attention_backward", dtype, [q, q, q, q, q, rest, mask], [q, q, q],
                           (0.125, False, 1, "bool"))


@pytest.mark.skipif(not nvrtc.is_there(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc")
@pytest.mark.skipif(not THOROUGH, reason="takes half a minute: FLAMBEAU_TEST_THOROUGH=1 runs it, and `make cuda`")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_nvrtc_takes_every_kernel(device, architecture):
    texts = {call.source: call.name for call in all_calls() if isinstance(call, LaunchCall)}
    assert len(texts) > 50
    for text, name in texts.items():
        assert nvrtc.compile(text, architecture, ("--fmad=false",)), name
