"""Searching: where elements are true, which are among others, where they would go in a sorted row."""

from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import spec
from .create import _full
from .index import tensor_given, within

COMPARED_TESTS = 16            # that elements are compared with one by one


class _nonzero(Op):
    """The positions of the true elements, one row each."""

    exact = True
    eager = True
    forms = ""

    def meta(input): return None

    def ref(xp, input):
        if not input.ndim:
            return xp.zeros((int(input != 0), 0), xp.int64)
        found = xp.nonzero(input)
        # one dimension after the other in memory, as PyTorch has it: strides (1, n)
        return xp.stack(found).T if len(found) > 1 else found[0].reshape(1, -1).T


class _nonzero_tuple(Op):
    """The positions of the true elements, a vector for each dimension."""

    called = "nonzero"
    exact = True
    eager = True
    forms = ""

    def meta(input): return (None,) * input.ndim
    def ref(xp, input): return xp.nonzero(input)


class nonzero(Composite):
    """The positions of the elements that are not zero: one row each; `as_tuple`, a vector for each dimension.

    >>> torch.tensor([[0, 3], [4, 0]]).nonzero()
    tensor([[0, 1],
            [1, 0]])
    """

    forms = "function method out"
    strict_out = True
    def of(input, *, as_tuple=False):
        if not as_tuple:
            return _nonzero(input)
        return _nonzero_tuple(input if input.ndim else input.unsqueeze(0))


class argwhere(Composite):
    """The positions of the elements that are not zero, one row each."""

    def of(input): return _nonzero(input)


class nonzero_static(Op):
    """The first `size` positions of elements that are not zero, one row each; `fill_value` if there are fewer."""

    forms = "function method out"
    exact = True

    def meta(input, *, size, fill_value=-1):
        need(size >= 0, f"'size' must be an non-negative integer, got {size}")
        return spec(dtypes.int64, (size, input.ndim), None, input.device)

    def ref(xp, input, *, size, fill_value=-1):
        out = xp.full((size, input.ndim), fill_value)
        if input.ndim:
            found = xp.stack(xp.nonzero(input), axis=1)[:size]
            out[:len(found)] = found
        return out


class isin(Composite):
    """For each of `elements`, whether it is among `test_elements`; with `invert`, whether it is not."""

    strict_out = True
    forms = "function out"

    renamed = {"element": "elements", "test_element": "test_elements"}

    def of(elements, test_elements, *, assume_unique=False, invert=False):
        tensors = [t for t in (elements, test_elements) if isinstance(t, door.tensor)]
        if not tensors:
            raise TypeError("isin() received an invalid combination of arguments: one of elements and test_elements "
                            "must be a Tensor")
        for name, t in (("elements", elements), ("test_elements", test_elements)):
            if not isinstance(t, (door.tensor, int, float, complex)):
                raise TypeError(f"isin(): argument '{name}' must be Tensor or Number, not {type(t).__name__}; "
                                "torch.tensor() makes a tensor of it")
            need(not isinstance(t, complex), "Unsupported input type encountered for isin(): ComplexDouble")
        for t in tensors:
            need(t.dtype.category in (1, 2), f"Unsupported input type encountered for isin(): {t.dtype.cname}")
        pair = [t if isinstance(t, door.tensor) else number_beside(t, tensors[0]) for t in (elements, test_elements)]
        return _isin(*pair, assume_unique, invert)


def number_beside(number, tensor):
    """A number as a zero-dimensional tensor of the dtype that it has together with `tensor`."""
    dtype = dtypes.result_of([(tensor.dtype, 2), (dtypes.of_number(type(number)), 0)])
    return _full((), number, dtype, tensor.device)


class _isin(Op):
    """`isin` of two tensors."""

    exact = True
    forms = ""

    def meta(elements, test_elements, assume_unique, invert):
        return spec(dtypes.bool, elements.shape, None, elements.device)

    def ref(xp, elements, test_elements, assume_unique, invert):
        common = dtypes.promote_types(*[dtypes.from_numpy(a.dtype) for a in (elements, test_elements)]).compute
        elements, test_elements = elements.astype(common), test_elements.astype(common)
        if test_elements.size < 10 * elements.size ** 0.145:   # PyTorch's rule: few are compared one by one
            found = xp.zeros(elements.shape, bool)
            for test in test_elements.reshape(-1):
                found |= elements == test
            return ~found if invert else found
        return xp.isin(elements, test_elements, invert=invert)

    def body(k, elements, test_elements, assume_unique, invert):
        common = dtypes.promote_types(elements.dtype, test_elements.dtype).compute
        common = dtypes.from_numpy(common)
        wanted, tests = k.cast(elements, common), k.reshape(k.cast(test_elements, common), (1, test_elements.numel))
        count, flat = tests.shape[1], k.reshape(wanted, (wanted.numel, 1))
        if count <= COMPARED_TESTS:
            found = k.any(flat == tests, 1)
        else:
            made = k.library("sort", (tests,), [(common, (1, count)), (dtypes.int64, (1, count))], (False,))
            wanted = k.reshape(wanted, (1, wanted.numel))
            at = None if made is None else searched(k, made[0], wanted, "below", flat.shape)
            if at is None:
                return NotImplemented
            at = k.minimum(at, k.const(count - 1, dtypes.int64))
            found = k.gather(k.reshape(made[0], (count, 1)), 0, at) == flat
        found = k.reshape(found, elements.shape)
        return ~found if invert else found


def searched(k, rows, values, how, shape, dtype=dtypes.int64):
    """For a body: where `values` [count, many] go in `rows` [count or 1, n], in `shape`; None without a library."""
    made = k.library("search", (rows, values), [(dtype, tuple(shape))], (how, 8 * dtype.itemsize))
    return None if made is None else made[0]


class searchsorted(Composite):
    """The positions in the last dimension of `sorted_sequence` before which `input` would go; `right`: after equals.

    >>> torch.searchsorted(torch.tensor([1, 3, 5]), torch.tensor([0, 3, 9]))
    tensor([0, 1, 3])
    """

    strict_out = True
    forms = "function out"

    def of(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
        need(side in (None, "left", "right"), f"side can only be 'left' or 'right' but got {side}")
        need(not (right and side == "left"), "side and right can't be set to opposites, got side of left while right "
                                             "was True")
        if not isinstance(input, door.tensor):
            input = number_beside(input, sorted_sequence)
        need(input.ndim or sorted_sequence.ndim == 1, "input value can be a scalar only when boundaries "
             f"tensor dimension is 1, but we got boundaries tensor dim({sorted_sequence.ndim}) and input "
             f"value's dim({input.ndim}) numel({input.numel()})")
        at_right = right or side == "right"
        if sorter is None:
            return _searchsorted(sorted_sequence, input, bool(out_int32), at_right)
        need(sorter.dtype is dtypes.int64, f"sorter must be a tensor of long dtype but got dtype {sorter.dtype.cname}")
        need(sorter.shape == sorted_sequence.shape, "boundary and sorter must have the same size, but got "
             f"boundary tensor {list(sorted_sequence.shape)} and got sorter tensor {list(sorter.shape)}")
        return _searchsorted(_in_order(sorted_sequence, sorter), input, bool(out_int32), at_right)


class _in_order(Op):
    """The rows of `input` put in the order that `sorter` says."""

    called = "searchsorted"
    exact = True
    forms = ""

    def meta(input, sorter): return spec(input.dtype, input.shape, None, input.device)

    def verify(sorter, input_spec):
        within(sorter, input_spec.shape[-1], input_spec.ndim - 1, False, RuntimeError,
               f"sorter index out of range: {{bad}} for a sequence of {input_spec.shape[-1]}")

    def ref(xp, input, sorter): return xp.take_along_axis(input, sorter, -1)


class _searchsorted(Op):
    """`searchsorted` of tensors."""

    forms = ""

    def meta(sorted_sequence, input, out_int32, right):
        tensor_given(sorted_sequence, "sorted_sequence", 1)
        for given in (sorted_sequence, input):
            need(given.dtype.category in (1, 2), "\"searchsorted_out_cpu\" not implemented for "
                                                f"'{given.dtype.cname}'", NotImplementedError)
        need(sorted_sequence.ndim, "boundaries tensor should have positive dimension, but got 0 dimension")
        alike = sorted_sequence.ndim == input.ndim and sorted_sequence.shape[:-1] == input.shape[:-1]
        need(sorted_sequence.ndim == 1 or alike,
             "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value "
             f"tensor must match, but we got boundaries tensor {list(sorted_sequence.shape)} and input value tensor "
             f"{list(input.shape)}")
        need(not out_int32 or sorted_sequence.shape[-1] < 2**31, "the size of boundaries' last dimension "
             f"should be less than 2147483647 with out_int32, got {sorted_sequence.shape[-1]}")
        return spec(dtypes.int32 if out_int32 else dtypes.int64, input.shape, None, input.device)

    def ref(xp, sorted_sequence, input, out_int32, right):
        common = dtypes.promote_types(*[dtypes.from_numpy(a.dtype) for a in (sorted_sequence, input)]).compute
        rows, values = sorted_sequence.astype(common, copy=False), input.astype(common, copy=False)
        if rows.ndim == 1 and (not rows.size or not xp.isnan(rows).any()):
            return xp.searchsorted(rows, values, "right" if right else "left")
        return bisect(xp, rows, values, right)

    def body(k, sorted_sequence, input, out_int32, right):
        common = dtypes.from_numpy(dtypes.promote_types(sorted_sequence.dtype, input.dtype).compute)
        n = sorted_sequence.shape[-1]
        rows = k.reshape(k.cast(sorted_sequence, common), (sorted_sequence.numel // n, n))
        count = rows.shape[0]
        values = k.reshape(k.cast(input, common), (count, input.numel // count))
        at = searched(k, rows, values, "right" if right else "left", input.shape,
                      dtypes.int32 if out_int32 else dtypes.int64)
        return NotImplemented if at is None else at


def bisect(xp, rows, values, right):
    """Halve the range of every value at once. A NaN in a row counts as less than anything, as in PyTorch."""
    low, high = xp.zeros(values.shape, xp.int64), xp.full(values.shape, rows.shape[-1])
    while (low < high).any():
        middle = (low + high) // 2
        at = xp.minimum(middle, rows.shape[-1] - 1)
        element = xp.take_along_axis(rows, at, -1) if rows.ndim > 1 else rows[at]
        goes_on = ~(element > values) if right else ~(element >= values)
        goes_on &= low < high
        low, high = xp.where(goes_on, middle + 1, low), xp.where(goes_on, high, xp.maximum(low, middle))
    return low


class bucketize(Composite):
    """The number of the bucket between `boundaries`, a sorted vector, that each element of `input` falls into."""

    strict_out = True
    forms = "function out"

    def of(input, boundaries, *, out_int32=False, right=False):
        need(boundaries.ndim == 1, f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
        return searchsorted(boundaries, input, out_int32=out_int32, right=right)


class unravel_index(Composite):
    """The coordinates, a tensor each, that positions counted in a flattened tensor of `shape` have in it."""

    forms = "function"

    def of(indices, shape):
        if not isinstance(indices, door.tensor) or indices.dtype.category != 1:
            raise TypeError("expected 'indices' to be integer dtype, but got "
                            f"{getattr(indices, 'dtype', type(indices).__name__)}")
        if not isinstance(shape, (int, tuple, list)):
            raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape).__name__}")
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        for n in shape:
            if not isinstance(n, int):
                raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(n).__name__}")
            if n < 0:
                raise ValueError(f"'shape' cannot have negative values, but got {shape}")
        steps = [shapes.numel(shape[d + 1:]) for d in range(len(shape))]
        indices = indices.to(dtypes.int64)
        return tuple([indices.floor_divide(step).remainder(n) for step, n in zip(steps, shape, strict=True)])


class _one_hot(Composite):
    """For each class number in `input` a row of `num_classes` zeros with a one in that place.

    >>> torch.nn.functional.one_hot(torch.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """

    names = "nn.functional.one_hot"

    def of(input, num_classes=-1):
        need(input.dtype is dtypes.int64, "one_hot is only applicable to index tensor of type LongTensor, got "
                                          f"{input.dtype.cname}")
        if not input.numel():
            need(num_classes > 0, "Can not infer total number of classes from empty tensor.")
            return _full((*input.shape, num_classes), 0, dtypes.int64, input.device)
        if input.device.type == "meta":
            need(num_classes > 0, "Can not infer total number of classes without data: give num_classes.")
            return _full((*input.shape, num_classes), 0, dtypes.int64, input.device)
        if num_classes > 0:
            try:                                             # which checks the numbers without a look at them
                return _full((*input.shape, num_classes), 0, dtypes.int64, input.device).scatter(
                    -1, input.unsqueeze(-1), 1)
            except (RuntimeError, IndexError):
                pass                                         # said below, in words of classes
        least, most = int(input.min()), int(input.max())
        need(least >= 0, f"Class values must be non-negative, got {least}.")
        need(num_classes == -1 or most < num_classes, f"Class values must be smaller than num_classes: {most} with "
                                                      f"{num_classes} classes.")
        count = most + 1 if num_classes == -1 else num_classes
        return _full((*input.shape, count), 0, dtypes.int64, input.device).scatter(-1, input.unsqueeze(-1), 1)
