"""Comparing in tests: `assert_close`, with PyTorch's tolerances and messages, and the pairs that it is made of.

What is compared is taken apart, sequences and mappings into their items (`originate_pairs`), and each item with its
counterpart is a Pair: the first class of a list that does not refuse them by UnsupportedInputs. A pair that does not
match raises an ErrorMeta, which becomes the error that is seen. Suites of tests give that list classes of their own.
"""
import cmath
import collections.abc
import contextlib
import warnings

import numpy as np

from ..base import dtypes
from ..base.dtypes import promote_types
from ..tensor.functions import as_tensor, tensor
from ..tensor.reading import array_of
from ..tensor.tensor import Tensor

# dtype → (rtol, atol), PyTorch's own
TOLERANCES = {dtypes.float16: (1e-3, 1e-5), dtypes.bfloat16: (1.6e-2, 1e-5), dtypes.float32: (1.3e-6, 1e-5),
              dtypes.float64: (1e-7, 1e-7), dtypes.complex32: (1e-3, 1e-5), dtypes.complex64: (1.3e-6, 1e-5),
              dtypes.complex128: (1e-7, 1e-7)}
ALLCLOSE_TOLERANCES = {dtypes.float16: (1e-3, 1e-3), dtypes.float32: (1e-4, 1e-5), dtypes.float64: (1e-5, 1e-8)}
UNPROMOTED = (dtypes.uint16, dtypes.uint32, dtypes.uint64)       # compared with others as int64


class ErrorMeta(Exception):
    """That a pair does not match: the class and the words of the error that it becomes, and the item, as indices."""

    def __init__(self, type, msg, *, id=()):
        super().__init__(msg)
        self.type, self.msg, self.id = type, msg, id

    def to_error(self, msg=None):
        """The error; `msg` are other words, or makes them of these."""
        if not isinstance(msg, str):
            words = self.msg
            if self.id:
                words += f"\n\nThe failure occurred for item {_item(self.id)}"
            msg = msg(words) if callable(msg) else words
        return self.type(msg)


class UnsupportedInputs(Exception):
    """A class of pairs is not for these inputs."""


def _item(id):
    return "".join(f"[{part!r}]" for part in id)


# --- tolerances and messages ------------------------------------------------------------------------------------------


def default_tolerances(*inputs, dtype_precisions=None):
    """(rtol, atol) for tensors or dtypes: the widest of theirs."""
    found = []
    for one in inputs:
        if not isinstance(one, (Tensor, dtypes.dtype)) and not hasattr(one, "layout"):
            raise TypeError(f"Expected a torch.Tensor or a torch.dtype, but got {type(one)} instead.")
        found.append((dtype_precisions or TOLERANCES).get(getattr(one, "dtype", one), (0.0, 0.0)))
    return max(rtol for rtol, _ in found), max(atol for _, atol in found)


def get_tolerances(*inputs, rtol, atol, id=()):
    """(rtol, atol): those given, or else the default ones. One alone is refused: the other would surprise."""
    if (rtol is None) != (atol is None):
        raise ErrorMeta(ValueError, "Both 'rtol' and 'atol' must be either specified or omitted, but got no "
                        f"{'rtol' if rtol is None else 'atol'}.", id=id)
    return default_tolerances(*inputs) if rtol is None else (rtol, atol)


def make_scalar_mismatch_msg(actual, expected, *, rtol, atol, identifier=None):
    """The words about two numbers that are not close."""
    apart = abs(actual - expected)
    relative = float("inf") if expected == 0 else apart / abs(expected)
    return _headline("Scalars", identifier, rtol, atol) + f"Expected {expected} but got {actual}.\n" + \
        f"Absolute difference: {apart}{_allowed(rtol, atol, atol)}\n" \
        f"Relative difference: {relative}{_allowed(rtol, atol, rtol)}"


def make_tensor_mismatch_msg(actual, expected, matches, *, rtol, atol, identifier=None):
    """The words about two tensors that are close only where `matches` is true."""
    x, y, good = (array_of(t.detach()) for t in (actual, expected, matches))
    wrong = f"Mismatched elements: {(~good).sum()} / {good.size} ({(~good).sum() / good.size:.1%})\n"
    if actual.dtype.is_floating_point and actual.dtype.itemsize == 1:
        first = tuple(int(i) for i in np.argwhere(~good)[0])
        return f"{_named('Tensor-likes', identifier)} are not 'equal'!\n\n{wrong}" \
               f"The first mismatched element is at index {first}."
    if x.dtype.kind in "biu":
        x, y = x.astype(np.int64), y.astype(np.int64)
    with np.errstate(all="ignore"):
        apart = np.where(good, 0, np.abs(x - y))
        parts = (apart, np.abs(y)) if x.dtype.kind != "i" else (apart.astype(np.float32), np.abs(y).astype(np.float32))
        relative = np.where(good, 0, np.divide(*parts))
    far, far_relative = (np.unravel_index(np.argmax(one), one.shape) for one in (apart, relative))

    def where(at): return tuple(int(i) for i in at)
    return _headline("Tensor-likes", identifier, rtol, atol) + wrong + \
        f"Greatest absolute difference: {apart[far].item()} at index {where(far)}{_allowed(rtol, atol, atol)}\n" \
        f"Greatest relative difference: {relative[far_relative].item()} at index {where(far_relative)}" \
        f"{_allowed(rtol, atol, rtol)}\nAt index {where(far)}: {x[far].item()} instead of {y[far].item()}"


def _named(usual, identifier):
    return usual if identifier is None else identifier(usual) if callable(identifier) else identifier


def _headline(usual, identifier, rtol, atol):
    return f"{_named(usual, identifier)} are not {'equal' if rtol == atol == 0 else 'close'}!\n\n"


def _allowed(rtol, atol, tolerance):
    return "" if rtol == atol == 0 else f" (up to {tolerance} allowed)"


# --- pairs ------------------------------------------------------------------------------------------------------------


class Pair:
    """Two things to be compared, `actual` and `expected`; `id` says which item of the whole they are.

    A pair is given all options, takes its own, and hands the others on. For inputs that it is not for it raises
    UnsupportedInputs while it is made.
    """

    options: tuple = ()       # names of attributes that a pair shows of itself

    def __init__(self, actual, expected, *, id=(), **unknown_parameters):
        self.actual, self.expected, self.id = actual, expected, id
        self._unknown_parameters = unknown_parameters

    @staticmethod
    def _inputs_not_supported():
        raise UnsupportedInputs

    @staticmethod
    def _check_inputs_isinstance(*inputs, cls):
        if not all(isinstance(one, cls) for one in inputs):
            raise UnsupportedInputs

    def _fail(self, type, msg, *, id=()):
        raise ErrorMeta(type, msg, id=id or getattr(self, "id", ()))

    def compare(self):
        """Raise an ErrorMeta unless they match."""
        raise NotImplementedError(f"{type(self).__name__} has no compare(self), which every Pair needs")

    def extra_repr(self):
        """What a pair shows of itself besides: names of attributes, or (name, value)."""
        return self.options

    def __repr__(self):
        shown = [("id", self.id), ("actual", self.actual), ("expected", self.expected),
                 *((one, getattr(self, one)) if isinstance(one, str) else one for one in self.extra_repr())]
        return "\n".join([f"{type(self).__name__}(", *(f"    {name}={value!s}," for name, value in shown), ")"])


class ObjectPair(Pair):
    """Anything, compared by `==`; the last of a list."""

    def compare(self):
        try:
            equal = self.actual == self.expected
        except Exception as error:
            raise ErrorMeta(ValueError, f"{self.actual} == {self.expected} failed with:\n{error}.",
                            id=self.id) from error
        if not equal:
            self._fail(AssertionError, f"{self.actual} != {self.expected}")


class NonePair(Pair):
    """None, or a thing and None."""

    def __init__(self, actual, expected, **other_parameters):
        if actual is not None and expected is not None:
            raise UnsupportedInputs
        super().__init__(actual, expected, **other_parameters)

    def compare(self):
        if self.actual is not self.expected:
            self._fail(AssertionError, f"None mismatch: {self.actual} is not {self.expected}")


class BooleanPair(Pair):
    """Two of Python's or NumPy's truth values."""

    def __init__(self, actual, expected, *, id=(), **other_parameters):
        self._check_inputs_isinstance(actual, expected, cls=(bool, np.bool_))
        super().__init__(bool(actual), bool(expected), id=id, **other_parameters)

    def compare(self):
        if self.actual is not self.expected:
            self._fail(AssertionError, f"Booleans mismatch: {self.actual} is not {self.expected}")


class NumberPair(Pair):
    """Two of Python's or NumPy's numbers."""

    DTYPES = {int: dtypes.int64, float: dtypes.float64, complex: dtypes.complex128}
    options = ("rtol", "atol", "equal_nan", "check_dtype")

    def __init__(self, actual, expected, *, id=(), rtol=None, atol=None, equal_nan=False, check_dtype=False,
                 **other_parameters):
        self._check_inputs_isinstance(actual, expected, cls=(*self.DTYPES, np.number))
        actual, expected = (one.item() if isinstance(one, np.number) else one for one in (actual, expected))
        super().__init__(actual, expected, id=id, **other_parameters)
        self.rtol, self.atol = get_tolerances(self._dtype(actual), self._dtype(expected), rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_dtype = equal_nan, check_dtype

    def _dtype(self, number):
        return next(dtype for kind, dtype in self.DTYPES.items() if isinstance(number, kind))

    def compare(self):
        x, y = self.actual, self.expected
        if self.check_dtype and type(x) is not type(y):
            self._fail(AssertionError, f"The (d)types do not match: {type(x)} != {type(y)}.")
        if x == y or self.equal_nan and cmath.isnan(x) and cmath.isnan(y):
            return
        apart = abs(x - y)
        if not (cmath.isfinite(apart) and apart <= self.atol + self.rtol * abs(y)):     # which may be no number
            self._fail(AssertionError, make_scalar_mismatch_msg(x, y, rtol=self.rtol, atol=self.atol))


class TensorLikePair(Pair):
    """Two tensors, or things of one kind that tensors can be made of."""

    options = ("rtol", "atol", "equal_nan", "check_device", "check_dtype", "check_layout", "check_stride")

    def __init__(self, actual, expected, *, id=(), allow_subclasses=True, rtol=None, atol=None, equal_nan=False,
                 check_device=True, check_dtype=True, check_layout=True, check_stride=False, **other_parameters):
        actual, expected = self._process_inputs(actual, expected, id=id, allow_subclasses=allow_subclasses)
        super().__init__(actual, expected, id=id, **other_parameters)
        self.rtol, self.atol = get_tolerances(actual, expected, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_device, self.check_dtype = equal_nan, check_device, check_dtype
        self.check_layout, self.check_stride = check_layout, check_stride

    def _process_inputs(self, actual, expected, *, id, allow_subclasses):
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not related or not allow_subclasses and type(actual) is not type(expected):
            raise UnsupportedInputs
        return self._to_tensor(actual), self._to_tensor(expected)

    def _to_tensor(self, tensor_like):
        if isinstance(tensor_like, Tensor) or _is_sparse(tensor_like):
            return tensor_like
        try:
            return as_tensor(tensor_like)
        except Exception:                         # whatever it is, it is no tensor
            raise UnsupportedInputs from None

    def compare(self):
        x, y = self.actual, self.expected
        self._compare_attributes(x, y)
        if "meta" not in (x.device.type, y.device.type):
            self._compare_values(*self._equalize_attributes(x, y))

    def _compare_attributes(self, actual, expected):
        self._compare_one("shape", actual.shape, expected.shape)
        if self.check_layout:
            self._compare_one("layout", actual.layout, expected.layout)
        if self.check_stride and isinstance(actual, Tensor) and isinstance(expected, Tensor):
            self._compare_one("stride()", actual.stride(), expected.stride())
        if self.check_device:
            self._compare_one("device", actual.device, expected.device)
        if self.check_dtype:
            self._compare_one("dtype", actual.dtype, expected.dtype)

    def _compare_one(self, name, actual, expected):
        if actual != expected:
            self._fail(AssertionError, f"The values for attribute '{name}' do not match: {actual} != {expected}.")

    def _equalize_attributes(self, actual, expected):
        """Both on one device, of one dtype and layout, as far as that was not asked for."""
        pair = actual, expected
        if _is_sparse(actual) != _is_sparse(expected):
            pair = tuple(one.to_dense() if _is_sparse(one) else one for one in pair)
        if actual.device != expected.device:
            pair = tuple(one.cpu() for one in pair)
        if actual.dtype is not expected.dtype and not _is_sparse(pair[0]):
            dtype = promote_types(*(dtypes.int64 if one.dtype in UNPROMOTED else one.dtype for one in pair))
            pair = tuple(one.to(dtype) for one in pair)
        return pair

    def _compare_values(self, actual, expected):
        if _is_sparse(actual):
            self._compare_sparse_coo_values(actual, expected)
            return
        if actual.dtype.is_floating_point and actual.dtype.itemsize == 1 and (self.rtol, self.atol) != (0, 0):
            self._fail(AssertionError, f"Rtol={self.rtol} and atol={self.atol} are not supported for bitwise "
                       "comparison of low dimensional floats. Please use rtol=0.0 and atol=0.0.")
        self._compare_regular_values_close(actual, expected, rtol=self.rtol, atol=self.atol, equal_nan=self.equal_nan)

    def _compare_sparse_coo_values(self, actual, expected):
        for what, x, y in (("sparse dimensions", actual.sparse_dim(), expected.sparse_dim()),
                           ("specified values", actual._nnz(), expected._nnz())):
            if x != y:
                self._fail(AssertionError, f"The number of {what} in sparse COO tensors does not match: {x} != {y}")
        self._compare_regular_values_equal(actual._indices(), expected._indices(), identifier="Sparse COO indices")
        self._compare_regular_values_close(actual._values(), expected._values(), rtol=self.rtol, atol=self.atol,
                                           equal_nan=self.equal_nan, identifier="Sparse COO values")

    def _compare_regular_values_equal(self, actual, expected, *, equal_nan=False, identifier=None):
        self._compare_regular_values_close(actual, expected, rtol=0, atol=0, equal_nan=equal_nan, identifier=identifier)

    def _compare_regular_values_close(self, actual, expected, *, rtol, atol, equal_nan, identifier=None):
        good = _close(array_of(actual.detach()), array_of(expected.detach()), rtol, atol, equal_nan)
        if good.all():
            return
        if not good.shape:
            words = make_scalar_mismatch_msg(actual.item(), expected.item(), rtol=rtol, atol=atol,
                                             identifier=identifier)
        else:
            words = make_tensor_mismatch_msg(actual, expected, as_tensor(good), rtol=rtol, atol=atol,
                                             identifier=identifier)
        self._fail(AssertionError, words)


def _is_sparse(x):
    return not isinstance(x, Tensor) and getattr(x, "is_sparse", False) is True


def _close(x, y, rtol, atol, equal_nan):
    """Where two arrays are equal, or finite and close."""
    wide = np.complex128 if "c" in (x.dtype.kind, y.dtype.kind) else np.float64
    good = x == y
    if not rtol and not atol and not equal_nan:
        return good
    x, y = x.astype(wide), y.astype(wide)
    with np.errstate(all="ignore"):
        apart = np.abs(x - y)
        good |= np.isfinite(apart) & (apart <= atol + rtol * np.abs(y))
    return good | (x != x) & (y != y) if equal_nan else good


# --- comparing --------------------------------------------------------------------------------------------------------


def originate_pairs(actual, expected, *, pair_types, sequence_types=(collections.abc.Sequence,),
                    mapping_types=(collections.abc.Mapping,), id=(), **options):
    """The pairs of two things, each of the first of `pair_types` that takes it; sequences and mappings are opened."""
    if all(isinstance(one, sequence_types) and not isinstance(one, str) for one in (actual, expected)):
        if len(actual) != len(expected):
            raise ErrorMeta(AssertionError, f"The length of the sequences mismatch: {len(actual)} != {len(expected)}",
                            id=id)
        keys = range(len(actual))
    elif isinstance(actual, mapping_types) and isinstance(expected, mapping_types):
        keys, wanted = set(actual.keys()), set(expected.keys())
        if keys != wanted:
            raise ErrorMeta(AssertionError, "The keys of the mappings do not match:\n"
                            f"Missing keys in the actual mapping: {sorted(wanted - keys)}\n"
                            f"Additional keys in the actual mapping: {sorted(keys - wanted)}", id=id)
        with contextlib.suppress(TypeError):      # keys without an order have none here either
            keys = sorted(keys)
    else:
        return [_pair(actual, expected, pair_types, id, options)]
    return [pair for key in keys for pair in originate_pairs(
        actual[key], expected[key], pair_types=pair_types, sequence_types=sequence_types, mapping_types=mapping_types,
        id=(*id, key), **options)]


def _pair(actual, expected, pair_types, id, options):
    for kind in pair_types:
        try:
            return kind(actual, expected, id=id, **options)
        except UnsupportedInputs:
            continue
        except ErrorMeta:
            raise
        except Exception as error:
            raise RuntimeError(f"Originating a {kind.__name__}() at item {_item(id)} with\n\n"
                               f"{type(actual).__name__}(): {actual}\n\nand\n\n"
                               f"{type(expected).__name__}(): {expected}\n\nresulted in the unexpected exception "
                               "above.") from error
    raise ErrorMeta(TypeError, f"No comparison pair was able to handle inputs of type {type(actual)} and "
                    f"{type(expected)}.", id=id)


def not_close_error_metas(actual, expected, *, pair_types=(ObjectPair,), sequence_types=(collections.abc.Sequence,),
                          mapping_types=(collections.abc.Mapping,), **options):
    """The ErrorMetas of all pairs that do not match, in order; `options` go to every pair."""
    __tracebackhide__ = True
    try:
        pairs = originate_pairs(actual, expected, pair_types=pair_types, sequence_types=sequence_types,
                                mapping_types=mapping_types, **options)
    except ErrorMeta as meta:
        raise meta.to_error() from None
    return [meta for meta in map(_compared, pairs) if meta is not None]


def _compared(pair):
    """The ErrorMeta of a pair that does not match, without its frames, which would keep the tensors in them alive."""
    try:
        pair.compare()
    except ErrorMeta as meta:
        return meta.with_traceback(None)
    except Exception as error:
        raise RuntimeError(f"Comparing\n\n{pair}\n\nresulted in the unexpected exception above.") from error
    return None


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True,
                 check_dtype=True, check_layout=True, check_stride=False, msg=None):
    """Refuse, with AssertionError, unless `actual` equals `expected` within the tolerances; containers are opened.

    >>> torch.testing.assert_close(torch.tensor([1., 2.]), torch.tensor([1., 2.]))
    """
    __tracebackhide__ = True
    metas = not_close_error_metas(actual, expected, pair_types=(NonePair, BooleanPair, NumberPair, TensorLikePair),
                                  allow_subclasses=allow_subclasses, rtol=rtol, atol=atol, equal_nan=equal_nan,
                                  check_device=check_device, check_dtype=check_dtype, check_layout=check_layout,
                                  check_stride=check_stride, msg=msg)
    if metas:
        raise metas[0].to_error(msg)


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg=""):
    """The older `assert_close`, which compares no dtypes, finds NaN equal to NaN, and has wider tolerances."""
    warnings.warn("`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a future release. "
                  "Please use `torch.testing.assert_close()` instead. You can find detailed upgrade instructions in "
                  "https://github.com/pytorch/pytorch/issues/61844.", FutureWarning, stacklevel=2)
    actual = actual if isinstance(actual, Tensor) else tensor(actual)
    expected = expected if isinstance(expected, Tensor) else tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        rtol, atol = default_tolerances(actual, expected, dtype_precisions=ALLCLOSE_TOLERANCES)
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)
