"""What goes where an index says, as native steps, against NumPy's."""
import itertools

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from flambeau.backends.cpu import threads
from flambeau.backends.cpu.library.bags import bags
from flambeau.backends.cpu.library.scatter import scatter, spread
from flambeau.backends.cpu.library.scatter_kernels import SCATTER_OPERATIONS, SCATTERED_TYPES
from tests.thorough import sample

from .test_library import execute

JOINS = {"set": lambda old, new: new, "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
SIZES = [(1, 1, 1, 1), (1, 7, 40, 1), (3, 5, 11, 1), (2, 6, 9, 3), (1, 50, 30, 64), (4, 9, 33, 83), (2, 3, 5, 300)]


def laid(x):
    return x.shape, tuple(s // x.itemsize for s in x.strides)


def numbers(rng, shape, dtype):
    """Small whole numbers, of which sums and products are exact; some NaN among floats."""
    x = rng.integers(0, 3, shape) - (dtype[:4] in ("floa", "int8"))
    x = x.astype(dtype)
    if dtype.startswith("float"):
        x[rng.random(shape) < 0.01] = np.nan
    return x


def wanted(how, values, index, base, size, fresh, skip):
    out = np.zeros(size, values.dtype) if base is None else base.copy()
    shape = size[0], max(values.shape[1], index.shape[1]), size[2]
    values, index, named = np.broadcast_to(values, shape), np.broadcast_to(index, shape), set()
    for c, o, i in itertools.product(range(shape[1]), range(size[0]), range(size[2])):
        place = o, index[o, c, i] % size[1], i
        if place[1] != skip:
            first = fresh and place not in named
            out[place] = values[o, c, i] if first else JOINS[how](out[place], values[o, c, i])
            named.add(place)
    return out


@pytest.fixture
def some_threads():
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


@pytest.mark.parametrize("how, dtype", itertools.product(SCATTER_OPERATIONS, SCATTERED_TYPES))
@pytest.mark.parametrize("size", sample(SIZES, 3), ids=str)
def test_elements_go_where_the_index_says(how, dtype, size, some_threads):
    O, N, C, I = size
    rng = np.random.default_rng(O * N + C)
    values = {"whole": numbers(rng, (O, C, I), dtype), "one": numbers(rng, (1, 1, 1), dtype),
              "across": numbers(rng, (I, C, O), dtype).T}
    index = {"rows": rng.integers(-N, N, (1, C, 1)), "singly": rng.integers(-N, N, (O, C, I)),
             "int32": rng.integers(0, N, (O, C, 1)).astype(np.int32),
             "expanded": np.broadcast_to(rng.integers(0, N, (O, C, 1)), (O, C, I))}
    for (x, at), based, fresh in itertools.product(itertools.product(values.values(), index.values()), (0, 1), (0, 1)):
        base = numbers(rng, (O, N, I), dtype) if based else None
        skip = 0 if at.shape == (1, C, 1) and not based and I < 8 and C > 1 and x.shape[2] == I == 1 else -1
        want = wanted(how, x, at, base, (O, N, I), fresh, skip)
        for count in (1, 3):
            threads.set_num_threads(count)
            out = np.full((O, N, I), 77).astype(dtype)
            step = scatter(dtype, laid(x), laid(at), base is not None, out.shape, how, bool(fresh),
                           8 * at.itemsize, skip)
            given = [x, at, out] if base is None else [x, at, base, out]
            execute([step], given)
            np.testing.assert_array_equal(out, want)
            if based and count == 1:                       # over what it begins with
                own = base.copy()
                execute([step], [x, at, own, own])
                np.testing.assert_array_equal(own, want)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_have_the_same_bits_on_any_threads(dtype, some_threads):
    rng = np.random.default_rng(0)
    for size in ((1, 40, 500, 130), (3, 40, 500, 1), (5, 17, 200, 33)):
        O, N, C, I = size
        x, at = rng.standard_normal((O, C, I)).astype(dtype), rng.integers(0, N, (O, C, 1 if I > 100 else I))
        made = []
        for count in (1, 2, 5):
            threads.set_num_threads(count)
            out = np.empty((O, N, I), dtype)
            execute([scatter(dtype, laid(x), laid(at), False, out.shape, "sum")], [x, at, out])
            made.append(out)
        want = np.zeros((O, N, I))
        o, i = np.arange(O)[:, None, None], np.arange(I)[None, None]
        np.add.at(want, (o, at, i), x.astype(float))
        np.testing.assert_allclose(made[0], want, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-4)
        assert all(np.array_equal(made[0], other) for other in made[1:])


def test_what_it_does_not_take():
    line = (1, 4, 1), (4, 1, 1)
    assert scatter("complex64", line, line, False, line[0], "sum") is None
    assert scatter("float16", line, line, False, line[0], "mean") is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode, weighted", [("sum", 0), ("sum", 1), ("mean", 0), ("max", 0)])
@pytest.mark.parametrize("cols", [1, 5, 16, 70, 200])
def test_bags_of_rows(dtype, mode, weighted, cols, some_threads):
    rng = np.random.default_rng(cols)
    table = rng.integers(-3, 4, (9, cols)).astype(dtype)
    for kind, skip in itertools.product((np.int64, np.int32), (-1, 2)):
        index, offsets = rng.integers(0, 9, 20).astype(kind), np.array([0, 0, 3, 10, 10, 20], np.int32)
        weight = rng.integers(-2, 3, 20).astype(dtype)
        out, whose = np.full((6, cols), np.nan, dtype), np.full((6, cols), 77)
        threads.set_num_threads(3)
        step = bags(dtype, laid(table), laid(index), laid(offsets), laid(weight) if weighted else None, laid(out), mode,
                    skip, (8 * index.itemsize, 32))
        execute([step], [table, index, offsets, *[weight] * weighted, out, *[whose] * (mode == "max")])
        for b, (begin, end) in enumerate(zip(offsets, [*offsets[1:], 20], strict=True)):
            used = [e for e in range(begin, end) if index[e] != skip]
            rows = table[index[used]] * (weight[used][:, None] if weighted else 1)
            want = np.zeros(cols) if not used else rows.max(0) if mode == "max" else rows.sum(0)
            np.testing.assert_allclose(out[b], want / (len(used) or 1) if mode == "mean" else want, rtol=1e-6)
            if mode == "max":
                np.testing.assert_array_equal(whose[b], index[used][rows.argmax(0)] if used else -1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool"])
@pytest.mark.parametrize("count", [1, 7, 8, 100])
@pytest.mark.parametrize("share", [0, 0.05, 0.5, 1])
def test_a_vector_is_spread_over_a_mask(dtype, count, share):
    rng = np.random.default_rng(count)
    mask, base, out = rng.random(count) < share, numbers(rng, count, dtype), numbers(rng, count, dtype)
    values = numbers(rng, max(1, int(mask.sum())), dtype)
    execute([spread(np.dtype(dtype), len(values), count)], [values, mask, base, out])
    want = base.copy()
    want[mask] = values[:mask.sum()]
    np.testing.assert_array_equal(out, want)
