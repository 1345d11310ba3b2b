"""The names of held.py in C."""
import numpy as np

from flambeau.trace.runner cimport TraceRunner
from flambeau.trace.value cimport TensorBase, Value
from libc.stdint cimport uint32_t, uint64_t, uintptr_t

from ..base import dtypes
from ..base.spec import CPU

cdef object float32 = dtypes.float32, float64 = dtypes.float64, cpu = CPU


cdef class HeldBase:
    pass


cpdef check_held(TraceRunner trace, groups, Py_ssize_t most):
    cdef HeldBase recording = trace.backward
    cdef TensorBase tensor = recording.root()
    cdef Value value
    if tensor is not None:
        value = tensor._storage.value
        if value.trace is not None:
            return None
        if tensor._spec.numel == 1 and not is_finite(value):
            trace.backward = None
            return recording, tensor
    tensor = small_gradient(groups, most)
    if tensor is not None:
        value = tensor._storage.value
        if value.trace is not None:
            return None
        if not is_finite(value):
            trace.backward = None
            return recording, tensor
    trace.backward = None
    return None


cdef TensorBase small_gradient(groups, Py_ssize_t most):
    cdef TensorBase p, g
    for group in groups:
        for p in group["params"]:
            g = p._grad
            if g is not None:
                spec = g._spec
                if spec.device is cpu and <Py_ssize_t>spec.numel <= most:
                    return g if g._storage is not None else None
    return None


cpdef bint is_finite(Value value) except -1:
    cdef object spec = value.spec
    cdef Py_ssize_t count = spec.numel, i
    cdef uint32_t* single
    cdef uint64_t* double_
    cdef bint bad = False
    if spec.dense and count and spec.device is cpu:
        # A number whose exponent is all ones is infinite, or none.
        if spec.dtype is float32:
            single = <uint32_t*><uintptr_t>(value._address or value.address())
            for i in range(count):
                bad |= (single[i] & 0x7F800000) == 0x7F800000
            return not bad
        if spec.dtype is float64:
            double_ = <uint64_t*><uintptr_t>(value._address or value.address())
            for i in range(count):
                bad |= (double_[i] & 0x7FF0000000000000ULL) == 0x7FF0000000000000ULL
            return not bad
    return all_finite(value.array)


cpdef bint all_finite(array) except -1:
    if array.dtype.isbuiltin == 2:                    # bfloat16 and smaller
        array = array.astype(np.float32)
    return array.dtype.kind not in "fc" or b"\0" not in np.isfinite(array).tobytes()
