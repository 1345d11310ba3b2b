"""Reads and writes that begin elsewhere at every run have one plan: Note [Moving offsets] in trace/running/key.py."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.trace.planning import plan as planning
from flambeau.trace.recording.record import current

pytestmark = pytest.mark.pinned

ROWS, COLUMNS, LENGTH = 40, 6, 5


@pytest.fixture(autouse=True)
def native():
    with torch.config.using(executor="native"):
        torch.cpu.synchronize()
        planning.forget()
        yield


def ready(array):
    """A tensor of these contents that is there already, in memory of its own."""
    made = torch.tensor(array.tolist(), dtype=getattr(torch, str(array.dtype)))
    made.tolist()
    return made


def table(dtype=np.float32):
    return np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS).astype(dtype) / dtype(2)


def plans():
    """How many traces are known."""
    return len(planning._plans)


# --- one plan ---------------------------------------------------------------------------------------------------------


def test_one_plan_for_every_row():
    array = table()
    x, before = ready(array), plans()
    for row in range(1, 30, 3):
        assert (x[row:row + LENGTH] * 2 + x[row]).tolist() == (array[row:row + LENGTH] * 2 + array[row]).tolist()
    assert plans() == before + 1


def test_the_first_rows_and_the_others():
    array = table()
    x = ready(array)
    for row in (0, 5, 0, 7, 0):
        assert (x[row:row + LENGTH] + 1).sum().item() == (array[row:row + LENGTH] + 1).sum()


def test_one_plan_for_single_operations():
    array = table()
    x, before = ready(array), plans()
    for row in range(1, 20):
        assert (-x[row]).tolist() == (-array[row]).tolist()
        assert (x[row] * x[row + 1]).tolist() == (array[row] * array[row + 1]).tolist()
        assert (x[row] * x[row]).tolist() == (array[row] * array[row]).tolist()
    assert plans() == before + 3


def test_how_often_a_trace_was_seen_counts_all_rows():
    array = table()
    x = ready(array)
    with torch.config.using(executor="auto"):
        for row in range(1, 12):
            y = (x[row:row + 2].exp() + x[row + 3:row + 5]).sum()
            ran = plans()
            assert y.item() == pytest.approx((np.exp(array[row:row + 2]) + array[row + 3:row + 5]).sum(), rel=1e-6)
    assert ran == 1


def test_one_plan_for_every_place_that_is_written():
    array = table()
    x, before = ready(array), plans()
    for column in (1, 3, 2, 1, 4):
        y, want = x * 2, array * 2
        y[:, column:column + 2] = 0
        want[:, column:column + 2] = 0
        assert (y + 1).tolist() == (want + 1).tolist()
    assert plans() == before + 1


def test_one_plan_for_parts_of_results():
    array = table()
    x, before = ready(array), plans()
    for row in (1, 30, 7):
        y = x.cos()
        got = (y[row] + y[row + 2:row + 4].sin() @ y[:3, :3].repeat(1, 2).t().reshape(6, 3)[:, :1]).sum()
        y = np.cos(array)
        right = np.tile(y[:3, :3], (1, 2)).T.reshape(6, 3)[:, :1]
        np.testing.assert_allclose(got.item(), (y[row] + np.sin(y[row + 2:row + 4]) @ right).sum(), rtol=1e-4)
    assert plans() <= before + 2


# --- what must not be mixed up ----------------------------------------------------------------------------------------


def test_the_same_bytes_as_other_dtypes():
    words = np.arange(64, dtype=np.int32) * 65537
    x = ready(words)
    for at in (4, 8, 12):
        got = x[at:at + 4] + x.view(torch.int16)[at:at + 4]
        assert got.tolist() == (words[at:at + 4] + words.view(np.int16)[at:at + 4]).tolist()


def test_places_that_meet():
    array = table()
    x = ready(array)
    for one, two in ((1, 2), (3, 3), (5, 4), (6, 6), (7, 9)):
        assert (x[one] - x[two] * 3).tolist() == (array[one] - array[two] * 3).tolist()


def test_rows_that_are_written():
    array, want = table(), np.zeros((ROWS, COLUMNS), np.float32)
    x, out = ready(array), ready(want)
    for row in (1, 7, 3, 7, 20):
        out[row] = x[row + 1] * 2
        out[row + 1] += out[row]
        want[row] = array[row + 1] * 2
        want[row + 1] += want[row]
        assert out.tolist() == want.tolist()


def test_an_input_that_is_free():
    for row in (1, 4, 9, 2):
        array = table()
        x = ready(array)
        y = x[row:row + 3] * 2
        z = x.cos()
        del x
        assert y.tolist() == (array[row:row + 3] * 2).tolist()
        np.testing.assert_allclose(z.tolist(), np.cos(array), rtol=1e-5, atol=1e-6)


def test_between_steps_of_the_reference(sort_without_kernel):
    array = table()[:, ::-1].copy()
    x = ready(array)
    for row in (1, 8, 3):
        got = torch.sort(x[row:row + 3], 1)[0] + x[row + 5]
        assert got.tolist() == (np.sort(array[row:row + 3], 1) + array[row + 5]).tolist()


def test_parts_of_what_the_reference_gave(sort_without_kernel):
    array = table()[:, ::-1].copy()
    x, before = ready(array), plans()
    for row in (1, 8, 3):
        got = torch.sort(x * 2, 1)[0][row:row + 3] * 0.5
        assert got.tolist() == np.sort(array[row:row + 3], 1).tolist()
    assert plans() == before + 1


def test_products_and_columns():
    array = table()
    x = ready(array)
    for row, column in ((1, 1), (4, 2), (11, 1), (12, 3)):
        got = x[row:row + 4] @ x[row + 6:row + 9].t() + x[row + 1, column]
        want = array[row:row + 4] @ array[row + 6:row + 9].T + array[row + 1, column]
        np.testing.assert_allclose(got.tolist(), want, rtol=1e-6)


def test_gradients():
    array = table()
    x = ready(array)
    w = torch.ones(COLUMNS, requires_grad=True)
    for row in (1, 9, 4, 30):
        w.grad = None
        (x[row:row + LENGTH] @ w).square().sum().backward()
        part = array[row:row + LENGTH]
        np.testing.assert_allclose(w.grad.tolist(), 2 * part.T @ part.sum(1), rtol=1e-5)


def test_part_of_a_trace():
    array = table()
    x = ready(array)
    with torch.config.using(executor="auto"):
        for turn, row in enumerate(range(1, 25)):
            y = x[row:row + 3]
            for _ in range(8):
                y = y * 0.5 + x[row + 4]
            z = y.reshape(-1)[:3 + turn % 7].cos()               # new in most turns
            want = array[row:row + 3]
            for _ in range(8):
                want = want * np.float32(0.5) + array[row + 4]
            np.testing.assert_allclose(z.tolist(), np.cos(want.reshape(-1)[:3 + turn % 7]), rtol=1e-5)


# --- random programs --------------------------------------------------------------------------------------------------

place = st.integers(0, ROWS - 2 * LENGTH)
step = st.sampled_from(["add", "mul", "matmul", "sort", "write", "overwrite", "columns", "look"])


@settings(max_examples=60)
@given(st.lists(step, min_size=1, max_size=8),
       st.lists(st.lists(place, min_size=8, max_size=8), min_size=2, max_size=4),
       st.sampled_from([np.float32, np.float64]), st.sampled_from(["native", "auto"]))
def test_random_programs(steps, turns, dtype, executor):
    array, out = table(dtype) % dtype(3), np.zeros((ROWS, COLUMNS), dtype)
    x, filled = ready(array), ready(out)
    with torch.config.using(executor=executor):
        for places in turns * 2:
            y, want = x[places[0]:places[0] + LENGTH] + 0, array[places[0]:places[0] + LENGTH] + 0
            for name, at in zip(steps, places, strict=False):
                rows, same = x[at:at + LENGTH], array[at:at + LENGTH]
                if name == "add":
                    y, want = y + rows, want + same
                elif name == "mul":
                    y, want = y * rows[0] * 0.5, want * same[0] * dtype(0.5)
                elif name == "matmul":
                    y, want = (rows @ y.t()) @ rows * 0.01, (same @ want.T) @ same * dtype(0.01)
                elif name == "sort":
                    y, want = torch.sort(y, 0)[0] + rows, np.sort(want, 0) + same
                elif name == "write":
                    filled[at:at + LENGTH] = y
                    out[at:at + LENGTH] = want
                elif name == "overwrite":
                    filled[at:at + 2].mul_(0.5).add_(rows[2:4])
                    out[at:at + 2] = out[at:at + 2] * dtype(0.5) + same[2:4]
                elif name == "columns":
                    y, want = y + x[at, 1:2] + filled[at], want + array[at, 1:2] + out[at]
                else:
                    np.testing.assert_allclose(y.sum().item(), want.sum(), rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(y.tolist(), want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(filled.tolist(), out, rtol=1e-4, atol=1e-5)
        assert not current().code or executor == "auto"
