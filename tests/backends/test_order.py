"""Rows in order as native steps, against NumPy's stable sort: values to the last bit, and places."""
import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.backends.cpu import library, machine_code, threads
from flambeau.backends.cpu.library import gemm_kernels, sort
from flambeau.base import dtypes
from flambeau.loops.target import Target
from tests.backends.test_library import execute

NUMPY = {name: np.uint16 if name == "bfloat16" else np.dtype(name) for name in sort.ORDERED_TYPES}
LENGTHS = 1, 2, 3, 15, 16, 17, 31, 32, 33, 34, 63, 64, 65, 127, 129, 192, 193, 255, 256, 257, 383, 385, 1000, 2049, 5000
WAYS = [(sort._ranks, 300), (sort._digits, 5000), (sort._leaders, 5000), (sort._best, 5000), (sort._select, 5000)]
KEPT: list = []


def comparable(x, dtype):
    """`x` as NumPy orders it: bfloat16 is held as its bits."""
    return (x.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else x


def stable(x, dtype, descending):
    """The places that put rows in order, equal elements in theirs."""
    x = comparable(x, dtype)
    if not descending:
        return np.argsort(x, -1, kind="stable")
    return x.shape[-1] - 1 - np.flip(np.argsort(np.flip(x, -1), -1, kind="stable"), -1)


def nans_of(x, dtype):
    x = comparable(x, dtype)
    return np.isnan(x).sum(-1) if x.dtype.kind == "f" else np.zeros(x.shape[:-1], int)


def special(dtype):
    """Elements at the edges of a type."""
    if dtype == "bool":
        return np.array([False, True])
    if not sort.ORDERED_TYPES[dtype].infinity:
        info = np.iinfo(NUMPY[dtype])
        return np.array([info.min, info.min + 1, 0, 1, info.max - 1, info.max], NUMPY[dtype])
    wide = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5], np.float32)
    if dtype == "bfloat16":
        return np.append((wide.view(np.uint32) >> 16).astype(np.uint16), np.array([1, 0x8001, 0x7F7F], np.uint16))
    info = np.finfo(dtype)
    return np.append(wide.astype(dtype), np.array([info.smallest_subnormal, -info.smallest_subnormal, info.max,
                                                   info.min, info.tiny], dtype))


def rows_of(dtype, rows, n, kind, seed):
    """Rows of a kind: any bits, a few values, the edges, all equal, or in order already."""
    rng, bits = np.random.default_rng(seed), sort.ORDERED_TYPES[dtype].bits
    x = rng.integers(0, 256, (rows, n * bits // 8), np.uint8).view(NUMPY[dtype] if dtype != "bool" else np.uint8)
    x = (x & 1).astype(bool) if dtype == "bool" else x
    if kind == "few":
        x = rng.choice(x.ravel()[:3], x.shape)
    elif kind == "edges":
        x = rng.choice(special(dtype), x.shape)
    elif kind == "equal":
        x = np.repeat(x[:, :1], n, 1)
    elif kind in ("up", "down"):
        x = np.take_along_axis(x, stable(x, dtype, kind == "down"), -1)
    return np.ascontiguousarray(x)


def run(call, x, count):
    """(values, places) that a step gives."""
    outs = [np.zeros((*x.shape[:-1], count), x.dtype), np.full((*x.shape[:-1], count), -1, np.int64)]
    execute([call], [x, *outs])
    return outs


def check(found, x, places):
    values, at = found
    np.testing.assert_array_equal(at, places)
    assert values.tobytes() == np.take_along_axis(x, places, -1).tobytes()


def pick_places(x, dtype, which, place):
    at, n, nans = stable(x, dtype, False), x.shape[-1], nans_of(x, dtype)
    wanted = {"kthvalue": np.full(nans.shape, place), "median": np.where(nans > 0, n - nans, (n - 1) // 2),
              "nanmedian": np.maximum(n - nans - 1, 0) // 2}[which]
    return np.take_along_axis(at, wanted[..., None], -1)


ROWS = st.builds(rows_of, st.shared(st.sampled_from(sorted(NUMPY)), key="dtype"), st.integers(1, 4),
                 st.sampled_from(LENGTHS), st.sampled_from(["any", "few", "edges", "equal", "up", "down"]),
                 st.integers(0, 1 << 30))
TYPE = st.shared(st.sampled_from(sorted(NUMPY)), key="dtype")


@settings(max_examples=150, deadline=None)
@given(TYPE, ROWS, st.booleans())
def test_sorting(dtype, x, descending):
    check(run(sort.sort(dtype, x.shape, descending), x, x.shape[-1]), x, stable(x, dtype, descending))


@settings(max_examples=200, deadline=None)
@given(TYPE, ROWS, st.booleans(), st.floats(0, 1), st.integers(1, 80), st.booleans())
def test_the_best(dtype, x, largest, share, small, few):
    k = min(small, x.shape[-1]) if few else max(1, round(share * x.shape[-1]))
    check(run(sort.topk(dtype, x.shape, k, largest), x, k), x, stable(x, dtype, largest)[..., :k])


@settings(max_examples=200, deadline=None)
@given(TYPE, ROWS, st.sampled_from(["kthvalue", "median", "nanmedian"]), st.floats(0, 1))
def test_one_of_each_row(dtype, x, which, share):
    place = round(share * (x.shape[-1] - 1))
    check(run(sort.pick(dtype, x.shape, which, place), x, 1), x, pick_places(x, dtype, which, place))


@settings(max_examples=400, deadline=None)
@given(TYPE, ROWS, st.sampled_from(WAYS), st.booleans(), st.floats(0, 1))
def test_every_way_does_for_every_row(dtype, x, way, descending, share):
    """Whatever the estimates say."""
    (plan, longest), n = way, x.shape[-1]
    name, first, count = plan.__name__[1:], 0, 1 + round(share * (n - 1))
    if name == "select":
        first, count, descending = count - 1, 1, False
    elif name == "leaders":
        count = min(count, sort.MAX_LEADERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sort, "SAMPLED_ROW", 100)
        assume(n <= longest and plan(dtype, sort.Keys(dtype, machine_code.target()), n, count, descending) is not None)
        call = sort._call(dtype, x.shape, [plan], first, count, sort.AT_FIRST, descending)
    check(run(call, x, count), x, stable(x, dtype, descending)[..., first:first + count])


def test_all_ways_are_taken(monkeypatch):
    asked = set()
    monkeypatch.setattr(gemm_kernels.CompiledKernels, "function", lambda self, what, *_, **__: asked.add(what) or 1)
    for n in LENGTHS:
        sort.sort("float32", (4, n), False)
        for k in {1, min(n, 5), min(n, 50), n}:
            sort.topk("float32", (4, n), k, True)
        sort.pick("float32", (4, n), "median", 0)
    assert asked == {"ranks", "digits", "leaders", "best", "select"}


@pytest.mark.parametrize("shape, count", [((700, 40), 7), ((900, 300), 300), ((30, 6000), 50), ((40, 3000), 700)])
def test_threads_change_nothing(shape, count):
    x, before = np.random.default_rng(3).standard_normal(shape).astype("float32").round(1), threads.get_num_threads()
    found = []
    try:
        for number in (1, 2, 5):
            threads.set_num_threads(number)
            call = sort.topk("float32", shape, count, True)
            assert (call.tiles > 1) == (number > 1)
            found.append(run(call, x, count))
    finally:
        threads.set_num_threads(before)
    for values, places in found:
        check((values, places), x, stable(x, "float32", True)[:, :count])


@pytest.fixture(params=[16, 32, 64])
def vector_bytes(request, monkeypatch):
    """Steps for vectors of so many bytes, as on another machine."""
    target = machine_code.target()._replace(vector_bytes=request.param)
    monkeypatch.setattr(machine_code, "target", lambda: target)
    monkeypatch.setattr(gemm_kernels, "_hosts", {})
    monkeypatch.setattr(gemm_kernels.CompiledKernels, "words",
                        lambda self, name: f"{name} of the library, {request.param} bytes")
    KEPT.append(gemm_kernels._hosts)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_other_vectors(dtype, vector_bytes):
    for n, kind in itertools.product((1, 17, 70, 200, 2100), ("any", "edges")):
        x = rows_of(dtype, 3, n, kind, n)
        check(run(sort.sort(dtype, x.shape, True), x, n), x, stable(x, dtype, True))
        for k in {1, min(5, n), min(n, 60), n // 2 or 1}:
            check(run(sort.topk(dtype, x.shape, k, False), x, k), x, stable(x, dtype, False)[:, :k])
        check(run(sort.pick(dtype, x.shape, "median", 0), x, 1), x, pick_places(x, dtype, "median", 0))


@pytest.mark.parametrize("dtype, width", [*itertools.product(sort.ORDERED_TYPES, (16, 32, 64))])
def test_the_text_for_other_machines_is_sound(dtype, width):
    llvm = pytest.importorskip("llvmlite.binding")
    made = sort.OrderKernels("float", Target(width))
    for text in (made.ranks("f", dtype), made.digits("f", dtype, 8), made.leaders("f", dtype, 0),
                 made.leaders("f", dtype, 1), made.best("f", dtype, 11), made.select("f", dtype, 11)):
        llvm.parse_assembly(text).verify()


def test_what_has_no_step():
    assert sort.sort("complex64", (3, 4), False) is None and sort.sort("uint32", (3, 4), False) is None
    assert sort.sort("float32", (), False) is None and sort.sort("float32", (3, 0), False) is None
    assert sort.topk("float32", (3, 4), 0, True) is None
    assert library.ask("sort", dtypes.float32, [((3, 4), (1, 3))], [((3, 4), (4, 1))] * 2, (False,)) is None


# --- through operations -----------------------------------------------------------------------------------------------

LAID = {"whole": lambda x: x, "turned": lambda x: x.transpose(0, 2).contiguous().transpose(0, 2),
        "apart": lambda x: torch.stack([x, x], -1)[..., 0], "shared": lambda x: x[:, :1].expand(-1, 6, -1)}


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("laid", LAID)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int16", "float64"])
def test_any_dimension_of_any_layout(dtype, laid, dim):
    rng = np.random.default_rng(5)
    x = LAID[laid](torch.tensor(rng.integers(-9, 9, (40, 6, 35))).to(getattr(torch, dtype)))
    held = np.moveaxis(x.double().numpy(), dim, -1)
    for executor in ("auto", "native"):
        with torch.config.using(executor=executor):
            for found, at in (
                    (x.sort(dim), stable(held, "float64", False)),
                    (x.sort(dim, descending=True), stable(held, "float64", True)),
                    (x.topk(4, dim), stable(held, "float64", True)[..., :4]),
                    (x.kthvalue(5, dim, keepdim=True), stable(held, "float64", False)[..., 4:5]),
                    (x.median(dim, keepdim=True), pick_places(held, "float64", "median", 0)),
                    (x.nanmedian(dim, keepdim=True), pick_places(held, "float64", "nanmedian", 0))):
                values, places = found
                assert values.dtype == x.dtype and places.dtype == torch.int64
                np.testing.assert_array_equal(np.moveaxis(places.numpy(), dim, -1), at)
                np.testing.assert_array_equal(np.moveaxis(values.double().numpy(), dim, -1),
                                              np.take_along_axis(held, at, -1))
            assert x.kthvalue(5, dim).values.shape == x.sum(dim).shape == x.median(dim).indices.shape
            assert x.median().item() == np.sort(held, None)[(held.size - 1) // 2] == x.nanmedian().item()


def test_a_nan_among_all_elements():
    x = torch.tensor([[2.0, float("nan"), 1.0], [4.0, 3.0, float("nan")]])
    assert x.median().isnan() and x.nanmedian().item() == 2 and x.mul(float("nan")).nanmedian().isnan()
    assert torch.tensor(5.0).median().item() == 5 and torch.empty(0).median().isnan()
