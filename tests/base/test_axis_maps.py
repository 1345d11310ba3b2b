"""Maps by taps: the steps do what the table says, and the transposed table is the transposed matrix."""
import numpy as np
import pytest

from flambeau.base import axis_maps

NAMES = [
    ("window", 7, 4, 3, 2, 1, 1, True), ("window", 9, 3, 2, 3, 1, 4, False), ("adaptive", 7, 3), ("adaptive", 3, 7),
    ("nearest", 5, 11, None, False, False), ("nearest", 11, 5, 0.47, True, True), ("linear", 4, 9, False, None),
    ("linear", 9, 4, True, None), ("cubic", 5, 8, False, 1.7), ("smooth", 12, 5, False, None, "linear"),
    ("smooth", 12, 5, False, None, "cubic"), ("smooth", 5, 12, False, None, "lanczos"), ("reflect", 5, 9, 3),
    ("reflect", 5, 3, -1), ("replicate", 4, 9, 3), ("circular", 4, 7, 2, 1), ("circular", 4, 5, 2, -1),
]


def matrix(table):
    """The map as a dense matrix [outputs, inputs]."""
    made = np.zeros((table.index.shape[1], table.size))
    for index, weight in zip(table.index, table.weight, strict=True):
        np.add.at(made, (np.arange(len(index)), index), weight)
    return made


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_steps_are_the_matrix(name):
    table = axis_maps.taps_of(name)
    dense = matrix(table)
    assert dense.shape == (name[2], name[1])
    x = np.random.default_rng(0).normal(size=(2, name[1], 3))
    np.testing.assert_allclose(axis_maps.weighted_sum(np, x, -2, table), np.einsum("oi,nic->noc", dense, x), atol=1e-12)


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_back_is_the_transpose(name):
    table = axis_maps.taps_of(name)
    np.testing.assert_array_equal(matrix(table.back), matrix(table).T)


@pytest.mark.parametrize("name", [name for name in NAMES if name[0] not in ("window", "adaptive")], ids=str)
def test_interpolation_keeps_a_constant(name):
    np.testing.assert_allclose(matrix(axis_maps.taps_of(name)).sum(1), 1)


REGULAR = [
    ("nearest", 5, 15, None, False, False), ("nearest", 4, 4, None, True, True), ("nearest", 3, 6, 2.0, False, True),
    ("window", 8, 4, 2, 2, 0, 1, True), ("window", 9, 3, 3, 3, 0, 1, False), ("window", 8, 8, 1, 1, 0, 1, True),
    ("window", 6, 3, 2, 2, 0, 2, True), ("window", 8, 4, 2, 2, 1, 1, True), ("adaptive", 12, 4), ("adaptive", 4, 12),
    ("adaptive", 6, 6),
]


@pytest.mark.parametrize("name", NAMES + REGULAR, ids=str)
def test_which_maps_repeat_or_adjoin(name):
    """They are those whose matrix is that of repeating each input, or of adding up as many as there are for each."""
    dense = matrix(axis_maps.taps_of(name))
    repeats = [n for n in range(1, 20) if name[1] and np.array_equal(dense, np.eye(name[1]).repeat(n, 0))]
    adjoins = [n for n in range(1, 20) if name[2] and np.array_equal(dense, np.eye(name[2]).repeat(n, 1))]
    assert axis_maps.repeats(name) == (repeats or [None])[0]
    assert axis_maps.adjoins(name) == (adjoins or [None])[0]


def test_maximum_takes_the_first_of_equals_and_the_last_nan():
    table = axis_maps.taps_of(("window", 6, 2, 3, 3, 0, 1, True))
    x = np.array([[2.0, 2.0, 1.0, np.nan, 5.0, np.nan]])
    best, label = axis_maps.maximum(np, x, np.arange(6), -1, table)
    np.testing.assert_array_equal(best, [[2.0, np.nan]])
    assert label.tolist() == [[0, 5]]


def test_maximum_of_nothing_but_minus_infinity_is_inside():
    table = axis_maps.taps_of(("window", 4, 2, 3, 2, 1, 1, True))
    best, label = axis_maps.maximum(np, np.full((1, 4), -np.inf), np.arange(4), -1, table)
    assert best.tolist() == [[-np.inf, -np.inf]] and label.tolist() == [[0, 1]]


def test_regular_windows_are_views():
    steps = axis_maps.taps_of(("window", 8, 4, 2, 2, 0, 1, True)).steps
    assert [(outputs, inputs, weight) for outputs, inputs, weight in steps] == [
        (slice(0, 4, 1), slice(0, 7, 2), None), (slice(0, 4, 1), slice(1, 8, 2), None)]


def test_bytes_round_to_nearest():
    table = axis_maps.taps_of(("linear", 2, 4, False, None))
    x = np.array([[0, 255]], np.uint8)
    assert axis_maps.byte_sum(np, x, -1, table).tolist() == [[0, 64, 191, 255]]
