"""The reference executor: run one instruction with a device's array module, and fit the result to its spec.

It is the definition of every operation. Arrays come in as the array module sees the views; what `ref` gives back is
cast, laid out and, where it is still another owner's memory, copied, so that a result always owns its memory.
"""
import os

import numpy as np

from ..base import settings
from ..base.arguments import as_scalar
from ..base.dtypes import as_dtype
from ..base.op import wrapped
from .cpu.memory import allocator

CHECKED_RESULT_BYTES = 64 << 20  # results of so many bytes are asked about before NumPy allocates them
# OpenBLAS, behind NumPy's products, takes a buffer at its first call (32 MiB measured on aarch64, 128 by its sources on
# wide x86) and keeps it; it ends the process if it gets none.
BLAS_BUFFER_BYTES = 64 << 20 if hasattr(os, "uname") and os.uname().machine in ("aarch64", "arm64") else 192 << 20
BLAS_MODULES = frozenset("addmm attention conv distance einsum embedding factor integer_products linalg linear_loss "
                         "gru lstm matmul recurrence solve spectral weights".split())
_blas = False                 # whether it has its buffer


def execute(entry, arrays, params, own=False, xp=np):
    """The result arrays of one instruction, laid out as their specs say. `own`: the first array may be overwritten."""
    op = entry.op
    if xp is np:
        if entry.nbytes > CHECKED_RESULT_BYTES and not own and not allocator.make_room(entry.nbytes):
            raise allocator.failure(entry.nbytes)
        if not _blas and op.__module__.rpartition(".")[2] in BLAS_MODULES:
            _ready_blas()
    given, may = arrays, own
    try:
        if entry.rounded is not None:
            arrays = list(arrays)
            for slot in entry.rounded[1]:
                arrays[slot] = arrays[slot].astype(entry.rounded[0].np)
        casts = entry.casts
        if casts is not None:
            arrays = [a if a.dtype is c else a.astype(c) for a, c in zip(arrays, casts, strict=True)]
            own = own or (op.overwrites and arrays[0] is not given[0])
        if op.overwrites and not own:
            arrays = [arrays[0].copy(order="K"), *arrays[1:]]
        if entry.simple and op.direct is None:
            out = op.ref(xp, *arrays)
        else:
            argv, named = arguments(entry, arrays, params), {}
            if op.kwonly:
                n = op.n_positional
                argv, named = argv[:n], dict(zip(op.kwonly, argv[n:], strict=True))
            solvers = entry.device.backend.solvers if op.direct is not None else None
            out = None if solvers is None else op.direct(solvers, *argv, **named)
            if out is None:
                out = op.ref(xp, *argv, **named)
        if op.overwrites:
            arrays = arrays[1:]                              # what was written into it is the result
        if entry.outs is None:                               # shapes known only now
            return [owned(xp.asarray(o), arrays, xp) for o in (out if entry.many else (out,))]
        if not entry.many:
            return [fit(out, entry.outs[0], arrays, xp)]
        return [fit(o, s, arrays, xp) for o, s in zip(out, entry.outs, strict=True)]
    except MemoryError:
        if may or op.effect or not entry.device.backend.empty_cache():   # what was overwritten, or has happened, stays
            raise
    return execute(entry, given, params, xp=xp)


def _ready_blas():
    """Let OpenBLAS take its buffer, if there is room."""
    global _blas
    if not allocator.has_room(BLAS_BUFFER_BYTES):
        raise allocator.failure(BLAS_BUFFER_BYTES)
    np.ones((2, 2), np.float32) @ np.ones((2, 2), np.float32)
    _blas = True


def arguments(entry, arrays, params):
    """The argument list of `ref`: arrays, lists of arrays and parameters in their places."""
    argv: list = list(entry.template)
    for at, param in zip(entry.param_at, params, strict=True):
        if entry.rounded is not None and at in entry.rounded[2]:
            param = float(as_scalar(param, entry.rounded[0]))
        elif param.__class__ is int:
            if entry.wrap is not None:
                param = wrapped(param, entry.wrap)
            elif entry.compute is not None:
                if entry.compute.category == 0:
                    param = param != 0
                elif not -2**63 <= param < 2**63:            # NumPy would take it for an object
                    param = float(param)
        argv[at] = param
    for at, slot in enumerate(entry.template):
        if slot.__class__ is int:
            argv[at] = arrays[slot]
        elif slot.__class__ is tuple:
            argv[at] = [None if s is None else arrays[s] for s in slot]
    return argv


def fit(result, spec, inputs, xp=np):
    """`result` as an array of exactly `spec`'s dtype, shape and strides, in memory of its own."""
    if result.__class__ is not xp.ndarray:
        result = xp.asarray(result)
    dtype = spec.dtype.np
    if result.dtype is not dtype and result.dtype != dtype:
        result = as_dtype(result, spec.dtype) if spec.dtype.family else result.astype(dtype)
    if result.shape != spec.shape:
        raise AssertionError(f"reference gave shape {result.shape}, its spec says {spec.shape}")
    if result.base is None and result.strides == spec.np_strides and result.flags.owndata:
        for given in inputs:
            if result is given:
                break
        else:
            return allocator.lined_up(result, spec) if xp is np and lines_up(spec) else result
    if (result.strides != spec.np_strides and not same_layout(result, spec)) or not fresh(result, inputs, xp):
        laid = blank(spec, xp)
        laid[...] = result
        return laid
    return allocator.lined_up(result, spec) if xp is np and lines_up(spec) else result


def lines_up(spec):
    """Whether a result of `spec` is to begin at a cache line: see Note [Lined up] in cpu/memory/allocator.py."""
    return spec.nbytes >= allocator.LINED_UP_BYTES and settings.executor != "reference"       # NumPy does not care


def same_layout(result, spec):
    """Whether strides agree wherever they matter (a dimension of size one steps nowhere)."""
    return spec.numel == 0 or all(
        a == b or n == 1 for a, b, n in zip(result.strides, spec.np_strides, spec.shape, strict=True))


def fresh(result, inputs, xp=np):
    """Whether `result` is writeable memory that no input shares."""
    if xp is np and result.flags.writeable:
        owner = result if result.base is None else result.base
        if owner.__class__ is np.ndarray and owner.flags.owndata:   # which views of it name as their base
            for one in inputs:
                if one is owner or one.base is owner:
                    break
            else:
                return True
    return getattr(result.flags, "writeable", True) and not any(xp.may_share_memory(result, i) for i in inputs)


def owned(result, inputs, xp=np):
    """An array without holes in memory of its own."""
    outer_first = sorted(range(result.ndim), key=lambda d: -result.strides[d])
    if result.transpose(outer_first).flags.c_contiguous and fresh(result, inputs, xp):
        return result
    return xp.array(result, order="C", copy=True)


def blank(spec, xp=np):
    """Uninitialised memory laid out as `spec`, which must be dense."""
    if xp is not np:
        order = sorted(range(spec.ndim), key=lambda d: -spec.strides[d])
        laid = xp.empty([spec.shape[d] for d in order], spec.dtype.np)
        return laid.transpose([order.index(d) for d in range(spec.ndim)])
    if spec.nbytes > allocator.MAX_SMALL_BYTES or lines_up(spec):
        return allocator.blank(spec)[0]                     # which is lined up, and on pages that were touched before
    if spec.contiguous:
        return np.empty(spec.shape, spec.dtype.np)
    return np.ndarray(spec.shape, spec.dtype.np, np.empty(spec.nbytes, np.uint8), 0, spec.np_strides)


