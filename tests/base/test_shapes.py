"""Shapes and strides against NumPy, which answers the same questions about arrays."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flambeau.base import shapes

pytestmark = pytest.mark.pinned

sizes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
positive = st.lists(st.integers(1, 4), max_size=4).map(tuple)
plenty = settings(max_examples=200, deadline=None, derandomize=True)


def strides_of(array):
    return tuple(s // array.itemsize for s in array.strides)


@st.composite
def views(draw, of=positive):
    """An array seen through slices and a permutation, so that its strides are anything."""
    array = np.empty([2 * n for n in draw(of)], np.int8)
    array = array[tuple(slice(draw(st.integers(0, 1)), None, draw(st.sampled_from((1, 2)))) for _ in array.shape)]
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    for axis in range(array.ndim):
        if draw(st.integers(0, 5)) == 0:
            array = array[(slice(None),) * axis + (slice(0, 1),)]
    return array


@plenty
@given(sizes)
def test_contiguous(shape):
    strides = shapes.contiguous_strides(shape)
    if 0 not in shape:
        assert strides == strides_of(np.empty(shape))
    assert shapes.is_contiguous(shape, strides) and shapes.is_dense(shape, strides)
    assert shapes.numel(shape) == np.empty(shape).size


@plenty
@given(views())
def test_layout_questions(array):
    shape, strides = array.shape, strides_of(array)
    assert shapes.is_contiguous(shape, strides) == array.flags.c_contiguous
    low, high = np.lib.array_utils.byte_bounds(array)
    assert shapes.extent(shape, strides) == high - low
    assert shapes.is_dense(shape, strides) == (high - low == array.size)
    assert not shapes.may_overlap(shape, strides)
    assert shapes.may_overlap((2, *shape), (0, *strides))


@plenty
@given(views(), st.data())
def test_view_strides_are_numpys(array, data):
    """A view exists exactly where NumPy can reshape without a copy, and has the same strides."""
    factors = [f for n in array.shape for f in ((2, 2) if n == 4 else (n,))]
    wanted, at = [], 0
    while at < len(factors):
        take = data.draw(st.integers(1, 2))
        wanted.append(int(np.prod(factors[at:at + take])))
        at += take
    for _ in range(data.draw(st.integers(0, 2))):
        wanted.insert(data.draw(st.integers(0, len(wanted))), 1)
    ours = shapes.view_strides(array.shape, strides_of(array), tuple(wanted))
    try:
        view = np.reshape(array, wanted, copy=False)
    except ValueError:
        assert ours is None
        return
    assert ours is not None
    for size, mine, theirs in zip(wanted, ours, strides_of(view)):
        assert size == 1 or mine == theirs


def test_view_strides_by_hand():
    assert shapes.view_strides((2, 3), (3, 1), (6,)) == (1,)
    assert shapes.view_strides((2, 3), (1, 2), (6,)) is None
    assert shapes.view_strides((4, 3), (1, 4), (2, 2, 3)) == (2, 1, 4)
    assert shapes.view_strides((), (), (1, 1)) == (1, 1)


@plenty
@given(st.lists(st.lists(st.sampled_from((0, 1, 1, 2, 3)), max_size=3).map(tuple), min_size=1, max_size=3))
def test_broadcast(many):
    try:
        expected = np.broadcast_shapes(*many)
    except ValueError:
        with pytest.raises(RuntimeError, match=r"The size of tensor a \(\d\) must match the size of tensor b \(\d\)"):
            shapes.broadcast(*many)
    else:
        assert shapes.broadcast(*many) == expected


def test_broadcast_names_the_dimension_and_the_way_out():
    with pytest.raises(RuntimeError, match=r"singleton dimension 1; b.unsqueeze\(1\), which is \[4, 1\], would fit"):
        shapes.broadcast((4, 3), (4,))
    with pytest.raises(RuntimeError, match="at non-singleton dimension 0$"):
        shapes.broadcast((4, 3), (2, 3))


@plenty
@given(views(), st.data())
def test_expand(array, data):
    lead = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)))
    wanted = lead + tuple(n if n != 1 else data.draw(st.integers(1, 3)) for n in array.shape)
    expanded = np.broadcast_to(array, wanted)
    ours = shapes.expand_strides(array.shape, strides_of(array), wanted)
    for size, mine, theirs in zip(wanted, ours, strides_of(expanded)):
        assert size == 1 or mine == theirs


def test_dimensions_wrap():
    assert shapes.wrap_dim(-1, 3) == 2 and shapes.wrap_dim(0, 0) == 0 and shapes.wrap_dims(None, 2) == (0, 1)
    assert shapes.wrap_dims((-1, 0), 2) == (1, 0) and shapes.reduced((2, 3, 4), (1,), True) == (2, 1, 4)
    with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)"):
        shapes.wrap_dim(2, 2)
    with pytest.raises(RuntimeError, match="dim 1 appears multiple times"):
        shapes.wrap_dims((1, -1), 2)


def test_fill_in():
    assert shapes.fill_in((2, -1), 6) == (2, 3) and shapes.fill_in((0, 3), 0) == (0, 3)
    for shape, count, words in [((-1, -1), 4, "only one dimension can be inferred"), ((5,), 6, "is invalid"),
                                ((4, -1), 6, "is invalid for input of size 6"), ((-1, 0), 0, "ambiguous"),
                                ((-2, 3), 6, "invalid shape dimension -2")]:
        with pytest.raises(RuntimeError, match=words):
            shapes.fill_in(shape, count)


@plenty
@given(views())
def test_an_elementwise_result_is_dense_and_keeps_the_order_of_dimensions(array):
    shape, strides = array.shape, strides_of(array)
    made = shapes.elementwise_strides(shape, [(shape, strides)])
    assert shapes.is_dense(shape, made)
    real = [d for d, n in enumerate(shape) if n > 1]
    assert sorted(real, key=lambda d: strides[d]) == sorted(real, key=lambda d: made[d])
    assert shapes.preserved_strides(shape, strides) == (strides if shapes.is_dense(shape, strides) else made)


def test_channels_last():
    shape = (2, 3, 4, 5)
    nhwc = strides_of(np.empty((2, 4, 5, 3), np.int8).transpose(0, 3, 1, 2))
    assert shapes.channels_last_strides(shape) == nhwc and shapes.is_channels_last(shape, nhwc)
    assert shapes.suggests_channels_last(shape, nhwc)
    assert not shapes.suggests_channels_last(shape, shapes.contiguous_strides(shape))
    assert shapes.elementwise_strides(shape, [(shape, nhwc), (shape, nhwc)]) == nhwc
