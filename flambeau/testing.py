"""Comparing tensors in tests: `assert_close`, with PyTorch's tolerances and a message that shows the worst place."""
import numpy as np

from .base import dtypes
from .base.names import attribute_error
from .tensor.reading import array_of
from .tensor.tensor import Tensor

# dtype → (rtol, atol), PyTorch's own
TOLERANCES = {dtypes.float16: (1e-3, 1e-5), dtypes.bfloat16: (1.6e-2, 1e-5), dtypes.float32: (1.3e-6, 1e-5),
              dtypes.float64: (1e-7, 1e-7), dtypes.complex64: (1.3e-6, 1e-5), dtypes.complex128: (1e-7, 1e-7)}


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True,
                 check_dtype=True, check_layout=True, check_stride=False, msg=None):
    """Refuse, with AssertionError, unless `actual` equals `expected` within the tolerances; containers are opened.

    >>> torch.testing.assert_close(torch.tensor([1., 2.]), torch.tensor([1., 2.]))
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or unspecified, but got rtol={rtol} and "
                         f"atol={atol}")
    _compare(actual, expected, "", rtol, atol, equal_nan, check_device, check_dtype, check_stride, msg)


def _compare(a, b, where, rtol, atol, equal_nan, check_device, check_dtype, check_stride, msg):
    rest = (rtol, atol, equal_nan, check_device, check_dtype, check_stride, msg)
    if isinstance(b, dict):
        if not isinstance(a, dict) or a.keys() != b.keys():
            _fail("The keys of the mappings do not match", where, msg)
        for key in b:
            _compare(a[key], b[key], f"{where}[{key!r}]", *rest)
    elif isinstance(b, (list, tuple)):
        if not isinstance(a, (list, tuple)) or len(a) != len(b):
            _fail("The length of the sequences mismatch", where, msg)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            _compare(x, y, f"{where}[{i}]", *rest)
    else:
        _compare_tensors(a, b, where, *rest)


def _compare_tensors(a, b, where, rtol, atol, equal_nan, check_device, check_dtype, check_stride, msg):
    x, y = (array_of(t.detach()) if isinstance(t, Tensor) else np.asarray(t) for t in (a, b))
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if check_device and a.device != b.device:
            _fail(f"The values for attribute 'device' do not match: {a.device} != {b.device}.", where, msg)
        if check_dtype and a.dtype is not b.dtype:
            _fail(f"The values for attribute 'dtype' do not match: {a.dtype} != {b.dtype}.", where, msg)
        if check_stride and a.stride() != b.stride():
            _fail(f"The values for attribute 'stride()' do not match: {a.stride()} != {b.stride()}.", where, msg)
    if x.shape != y.shape:
        _fail(f"The values for attribute 'shape' do not match: {x.shape} != {y.shape}.", where, msg)
    if rtol is None:
        pairs = [TOLERANCES.get(t.dtype, (0.0, 0.0)) if isinstance(t, Tensor) else (1e-7, 1e-7) for t in (a, b)]
        rtol, atol = max(p[0] for p in pairs), max(p[1] for p in pairs)
    wide = np.complex128 if "c" in (x.dtype.kind, y.dtype.kind) else np.float64
    if x.dtype.kind not in "biu" or y.dtype.kind not in "biu":
        x, y = x.astype(wide), y.astype(wide)
    with np.errstate(invalid="ignore"):
        off = np.abs(np.subtract(x, y, dtype=wide))
        good = (x == y) | (off <= atol + rtol * np.abs(y.astype(wide))) | (equal_nan & (x != x) & (y != y))
    if not good.all():
        off = np.where(good, 0, np.nan_to_num(off, nan=np.inf))
        at = np.unravel_index(np.argmax(off), off.shape)
        _fail(f"Tensor-likes are not close!\n\nMismatched elements: {int((~good).sum())} / {good.size} "
              f"({100 * (~good).sum() / good.size:.1f}%)\nGreatest absolute difference: {off[at]} at index "
              f"{tuple(int(i) for i in at)} (up to {atol} allowed): got {x[at]}, expected {y[at]}", where, msg)


def _fail(words, where, msg):
    words += f"\n\nThe failure occurred for item {where}" if where else ""
    raise AssertionError(msg(words) if callable(msg) else msg or words)


def __getattr__(name):
    raise attribute_error("torch.testing", name, globals().keys)
