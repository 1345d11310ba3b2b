"""Copies and conversions: the same elements in other memory, another dtype, another layout."""

import numpy as np

from ..base import dtypes, layout, observers, shapes
from ..base.arguments import fitting
from ..base.errors import argument_error, need, warn
from ..base.op import INSIDE, NUMBER_CLASSES, Composite, Op, door
from ..base.spec import CPU, as_device, openers, spec
from .create import _full

# --- copies -------------------------------------------------------------------------------------------------


class clone(Op):
    """A copy of `input` in memory of its own, that gradients flow through."""

    exact = True

    def meta(input, *, memory_format=None): return input.like(strides=format_strides(input, memory_format))
    def ref(xp, input, *, memory_format=None): return input
    def d_input(g): return g
    def bounds(input): return input
    def body(k, input, *, memory_format): return input


def format_strides(input, memory_format):
    """Strides of a copy of `input` under a memory format; None asks to preserve."""
    if memory_format is None or memory_format is layout.preserve_format:
        return shapes.preserved_strides(input.shape, input.strides)
    return memory_format.strides(input.shape)


class contiguous(Composite):
    """`input` itself if its elements lie in row-major order (or that of `memory_format`), else such a copy.

    >>> torch.ones(2, 3).t().contiguous().stride()
    (2, 1)
    """

    forms = "method"

    def of(input, *, memory_format=layout.contiguous_format):
        if input.is_contiguous(memory_format):
            return input
        need(memory_format is not layout.preserve_format, "preserve memory format is unsupported by the contiguous "
                                                          "operator")
        return clone(input, memory_format=memory_format)


class _to_copy(Op):
    """`input` with its elements converted to `dtype`, in memory of its own on `device`."""

    exact = True
    called = "to"

    def meta(input, dtype, memory_format=None, device=None):
        return spec(dtype, input.shape, format_strides(input, memory_format), device or input.device)

    def ref(xp, input, dtype, memory_format=None, device=None): return cast(xp, input, dtype)
    def d_input(g, input_spec): return g if g.device is input_spec.device else to(g, input_spec.device)
    def bounds(input): return input
    def body(k, input, dtype, memory_format, device): return converted(k, input, dtype)


def cast(xp, array, dtype):
    """Convert elements as PyTorch does: complex to real drops the imaginary part, floats wrap in integers."""
    have, want = array.dtype, dtype.np
    if have == want:
        return array
    if have.kind == "c" and not dtype.is_complex:
        if dtype is dtypes.bool:
            return array != 0
        array = array.real
    if have.kind not in "biu" and dtype.category == 1:
        array = array.astype(np.float32) if have.kind == "V" or have.itemsize == 1 else array  # foreign to NumPy
        if dtype is dtypes.uint64:
            return dtypes.as_dtype(array, dtype)
        # A float goes into a narrow integer through a wide one, so that 300.0 becomes 44.
        wide = np.int64 if want.itemsize == 8 or dtype in (dtypes.uint8, dtypes.uint32) else np.int32
        return dtypes.truncated(array, wide, xp).astype(want)
    if want.itemsize == 2 and dtype.category == 2:
        return array.astype(np.float32).astype(want)              # rounded by way of float32, as there
    return dtypes.as_dtype(array, dtype)


def converted(k, x, dtype):
    """`cast` in expressions."""
    if x.dtype.is_complex and not dtype.is_complex and dtype is not dtypes.bool:
        x = k.real(x)
    if x.dtype.is_floating_point and dtype.category == 1:
        x = k.cast(x, dtypes.int64 if dtype.itemsize == 8 or dtype is dtypes.uint8 else dtypes.int32)
    elif dtype.category == 2 and dtype.itemsize == 2:
        x = k.cast(x, dtypes.float32)
    return k.cast(x, dtype)


# --- to and its short names ---------------------------------------------------------------------------------


class to(Composite):
    """`input` with another dtype, on another device or in another memory format; itself if nothing changes.

    Written `x.to(dtype)`, `x.to(device)`, `x.to(device, dtype)` or `x.to(other)`; `copy=True` always copies.

    >>> torch.tensor([1.7, -2.5]).to(torch.int64)
    tensor([ 1, -2])
    """

    by_specs = INSIDE         # by itself it goes by which GPU is the current one
    forms = "method"

    def of(input, *args, device=None, dtype=None, other=None, non_blocking=False, copy=False,
           memory_format=None):
        if args:
            device, dtype, other, rest = _to_arguments(args, device, dtype, other)
            if rest:
                non_blocking, copy = (*rest, copy)[:2]
        if other is not None:
            dtype, device = other.dtype, other.device
        dtype = dtypes.given(dtype, input.dtype)
        where = input.device if device is None else as_device(device)
        return _convert(input, dtype, where, copy, memory_format, non_blocking)


def _to_arguments(args, device, dtype, other):
    """(device, dtype, other, [non_blocking, copy]) from the positional arguments of `to`."""
    first, rest = args[0], args[1:]
    if isinstance(first, dtypes.dtype) or (isinstance(first, type) and first in NUMBER_CLASSES):
        dtype = first
    elif isinstance(first, door.tensor):
        other = first
    else:
        device = first
        if rest:
            dtype, rest = rest[0], rest[1:]
    if len(rest) > 2 or any(not isinstance(r, bool) for r in rest):
        raise TypeError("to() received an invalid combination of arguments - got "
                        f"({', '.join(type(a).__name__ for a in args)}), but expected one of: (device, dtype, "
                        "non_blocking, copy), (dtype, non_blocking, copy), (other, non_blocking, copy)")
    return device, dtype, other, rest


def _convert(input, dtype, device, copy, memory_format, non_blocking=False):
    spec = input._spec
    keeps = memory_format is None or memory_format is layout.preserve_format
    same = dtype is spec.dtype and device is spec.device and (keeps or suggested(spec) is memory_format)
    if same and not copy:
        return input
    if spec.device is not device and spec.device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data! Use torch.empty_like(x, device=...) for a "
                                  "tensor of the same shape to fill.")
    if spec.dtype.is_complex and not dtype.is_complex and dtype is not dtypes.bool:
        warn("Casting complex values to real discards the imaginary part: use x.real, or "
             "torch.view_as_real(x), to say that it is meant")
    if device is not spec.device and (tell := observers.moved) is not None:
        tell(input, device)
    if non_blocking and device is not spec.device and (moved := input._moved_ahead(device)) is not None:
        _remember(moved, input)
        return _convert(moved, dtype, device, False, memory_format)
    made = _to_copy(input, dtype, None if keeps else memory_format, device)
    if dtype is spec.dtype:
        _remember(made, input)
    return made


def _remember(moved, input):
    """Let checks know what a copy to another device holds, where it came from the CPU."""
    if input._spec.device is CPU and moved._spec.device is not CPU:
        door.remember(moved, input)


def suggested(spec):
    """The memory format that a tensor of this spec is in: channels_last only if its strides say so."""
    if shapes.suggests_channels_last(spec.shape, spec.strides):
        return layout.channels_last if spec.ndim == 4 else layout.channels_last_3d
    return layout.contiguous_format


def conversion(name, dtype):
    """The declaration of the method `name`, a short name of `to(dtype)`."""
    def of(input, memory_format=None):
        return _convert(input, dtype, input.device, False, memory_format)
    docstring = f"`input` as {dtype.name}.\n\n>>> torch.tensor([0, 1]).{name}().dtype\ntorch.{dtype.name}"
    said = {"__doc__": docstring, "__module__": __name__, "names": f"Tensor.{name}", "of": of}
    return type(Composite)("_" + name, (Composite,), said)


SHORT_NAMES = {"bool": dtypes.bool, "byte": dtypes.uint8, "char": dtypes.int8, "short": dtypes.int16,
               "int": dtypes.int32, "long": dtypes.int64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
               "float": dtypes.float32, "double": dtypes.float64, "cfloat": dtypes.complex64,
               "cdouble": dtypes.complex128}
globals().update({"_" + name: conversion(name, dtype) for name, dtype in SHORT_NAMES.items()})


class type_as(Composite):
    """`input` with the dtype and on the device of `other`.

    >>> torch.tensor([1, 2]).type_as(torch.tensor(0.5))
    tensor([1., 2.])
    """

    forms = "method"

    def of(input, other):
        if not isinstance(other, door.tensor):
            raise TypeError(f"type_as(): argument 'other' (position 1) must be Tensor, not {type(other).__name__}")
        return to(input, other)


class _type(Composite):
    """The name of `input`'s type, "torch.FloatTensor", or `input` as a dtype or a type of such a name.

    >>> torch.tensor([1, 2]).type()
    'torch.LongTensor'
    """

    by_specs = INSIDE         # by itself it goes by which GPU is the current one
    names = "Tensor.type"

    def of(input, dtype=None, non_blocking=False, **kwargs):
        if dtype is None:
            where = "" if input.device.type == "cpu" else input.device.type + "."
            return f"torch.{where}{input.dtype.cname}Tensor"
        device = input.device
        if isinstance(dtype, str):
            prefix, _, last = dtype.rpartition(".")
            found = _by_tensor_name.get(last)
            home, _, device_type = prefix.partition(".")
            if found is None or home != "torch" or device_type and device_type not in openers:
                raise ValueError(f"invalid type: '{dtype}'")
            dtype, device = found, as_device(device_type or "cpu")
        elif not isinstance(dtype, dtypes.dtype):
            dtype = getattr(dtype, "dtype", dtype)                # the legacy types: torch.FloatTensor
            if not isinstance(dtype, dtypes.dtype):
                raise ValueError(f"invalid type: '{getattr(dtype, '__name__', dtype)}'")
        return _convert(input, dtype, device, False, None)


_by_tensor_name = {f"{d.cname}Tensor": d for d in dtypes.ALL}


class _cpu(Composite):
    """`input` on the CPU; itself if it is there.

    >>> torch.tensor([1, 2]).cpu()
    tensor([1, 2])
    """

    names = "Tensor.cpu"

    def of(input, memory_format=None): return _convert(input, input.dtype, as_device("cpu"), False, memory_format)


class _cuda(Composite):
    """`input` on a CUDA device; refused where there is none."""

    by_specs = INSIDE         # by itself it goes by which GPU is the current one
    names = "Tensor.cuda"

    def of(input, device=None, non_blocking=False, memory_format=None):
        device = as_device("cuda" if device is None else device)
        need(device.type == "cuda", f"Invalid device, must be cuda device: {device}; use .to('{device}')")
        return _convert(input, input.dtype, device, False, memory_format, non_blocking)


# --- writing one thing everywhere ---------------------------------------------------------------------------


def zeros(like, shape):
    """Zeros of `shape`, of the dtype and on the device of the tensor `like`."""
    return _full(tuple(shape), 0, like.dtype, like.device)


class _copy_inplace(Composite):
    """What `copy_` writes."""

    names = "copy"
    forms = "inplace"
    no_overlap = blind = True

    def of(input, src, non_blocking=False):
        if not isinstance(src, door.tensor):
            return _fill_inplace(input, src)
        return _copy(input, src) if input.requires_grad or src.requires_grad else copied(input, src, non_blocking)


def copied(input, src, non_blocking=False):
    """`src` in the dtype and shape of `input`."""
    shape = shapes.broadcast(input._spec.shape, src._spec.shape)
    made = _convert(src, input.dtype, input.device, False, None, non_blocking)
    return made if made._spec.shape == shape else made.expand(shape)


class _copy(Composite):
    """What `input` holds after `src` was copied into it: all of the gradient is that of `src`."""

    node = "torch::autograd::CopyBackwards"

    def of(input, src):  return copied(input, src)
    def d_input(g):      return zeros(g, g._spec.shape)
    def d_src(g):        return g


class fill(Composite):
    """A tensor like `input`, filled with `value`, a number or a tensor of no dimensions."""

    forms = "function"

    def of(input, value):
        return _fill_tensor(input, value) if isinstance(value, door.tensor) else _fill(input, value)


class _fill_inplace(Composite):
    """What `fill_` writes."""

    names = "fill"
    forms = "inplace"
    overlap_ok = blind = True

    def of(input, value):
        if isinstance(value, door.tensor):
            return _fill_tensor_(input, value)
        return _fill_(input, value) if input.requires_grad else _filled_like(input, value)


class _fill(Composite):
    """`input` overwritten with a number: no gradient is left for what was there."""

    def of(input, value):  return _filled_like(input, value)
    def d_input(g):        return zeros(g, g._spec.shape)


class _fill_(_fill):
    """`_fill`, written in place."""

    node = "FillBackward2"


class _fill_tensor(Composite):
    """`input` overwritten with the one element of `value`, which gets the whole gradient."""

    node = "FillBackward1"

    def of(input, value):
        need(value.ndim == 0, f"fill only supports 0-dimension value tensor but got tensor with {value.ndim} "
                              "dimensions.")
        spec = input._spec
        return _spread(value, spec.dtype, spec.shape, shapes.preserved_strides(spec.shape, spec.strides))

    def d_input(g):  return zeros(g, g._spec.shape)
    def d_value(g):  return g.sum()


class _fill_tensor_(_fill_tensor):
    """`_fill_tensor`, written in place."""

    node = "FillBackward3"


class _zero_inplace(Composite):
    """What `zero_` writes."""

    names = "zero"
    forms = "inplace"
    overlap_ok = blind = True

    def of(input): return _zero(input) if input.requires_grad else _filled_like(input, 0)


class _zero(Composite):
    """`input` overwritten with zeros."""

    def of(input):   return _filled_like(input, 0)
    def d_input(g):  return zeros(g, g._spec.shape)


class _spread(Op):
    """The one element of `value`, converted to `dtype`, repeated over `size`."""

    exact = True

    def meta(value, dtype, size, strides):     return spec(dtype, size, strides, value.device)
    def ref(xp, value, dtype, size, strides):  return xp.broadcast_to(cast(xp, value, dtype), size)
    def body(k, value, dtype, size, strides):  return k.expand(converted(k, value, dtype), size)


def _filled_like(input, value):
    spec = input._spec
    strides = None if spec.contiguous else shapes.preserved_strides(spec.shape, spec.strides)
    return _full(spec.shape, number_for(value, spec.dtype), spec.dtype, spec.device, strides)


def number_for(value, dtype):
    """`value` as a number that an element of `dtype` can hold; refused where it would overflow."""
    if not isinstance(value, (bool, int, float, complex)):
        if not isinstance(value, np.generic):
            raise argument_error(f"argument 'value' must be Number, not {type(value).__name__}")
        value = value.item()
    if dtype.is_floating_point and not dtype.family and not isinstance(value, complex) \
            and abs(value) < 65504:                                    # what any other float can hold
        return value if value.__class__ is float else float(value)     # float() would fix a number that is recorded
    fitting(value, dtype)
    if dtype is dtypes.bool:
        return value != 0
    if dtype.is_complex:
        return complex(value)
    value = value.real                                     # an int's is itself
    if dtype.is_floating_point:
        return float(value)
    value = int(value)
    info = np.iinfo(dtype.np)
    return value if value >= info.min else value + info.max + 1


class to_dense(Composite):
    """This tensor, which is dense already, or in `dtype`. `masked_grad` is about sparse ones, which are not here.

    >>> torch.ones(2).to_dense(torch.float64).dtype
    torch.float64
    """

    names = "Tensor.to_dense"
    forms = "method"

    def of(input, dtype=None, *, masked_grad=None): return input if dtype is None else input.to(dtype)
