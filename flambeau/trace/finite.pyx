"""The names of finite.py in C."""
import numpy as np

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from flambeau.trace.value cimport TensorBase, Value
from libc.stdint cimport int32_t, int64_t, uintptr_t

from ..base import dtypes
from ..base.spec import CPU

cdef extern from *:
    """
    #if defined(__GNUC__) && !defined(__clang__)
    #define WITH_VECTORS __attribute__((optimize("O3")))
    #else
    #define WITH_VECTORS
    #endif

    /* Without their signs, numbers are in the order of their bits: zero first, and behind all others what is infinite,
       or none. */
    static WITH_VECTORS int32_t largest_single(const int32_t* bits, Py_ssize_t count) {
        int32_t most = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            int32_t one = bits[i] & 0x7FFFFFFF;
            most = one > most ? one : most;
        }
        return most;
    }

    static WITH_VECTORS int64_t largest_double(const int64_t* bits, Py_ssize_t count) {
        int64_t most = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            int64_t one = bits[i] & 0x7FFFFFFFFFFFFFFFLL;
            most = one > most ? one : most;
        }
        return most;
    }

    static double as_single(int32_t bits) {
        float number;
        memcpy(&number, &bits, sizeof number);
        return number;
    }

    static double as_double(int64_t bits) {
        double number;
        memcpy(&number, &bits, sizeof number);
        return number;
    }
    """
    int32_t largest_single(int32_t*, Py_ssize_t) noexcept nogil
    int64_t largest_double(int64_t*, Py_ssize_t) noexcept nogil
    double as_single(int32_t) noexcept nogil
    double as_double(int64_t) noexcept nogil

cdef enum:
    SPECS_KNOWN = 250
    OTHER = 0                     # how the numbers of a spec can be looked at here
    SINGLE = 1
    DOUBLE = 2
    INFINITE_SINGLE = 0x7F800000

cdef int64_t INFINITE_DOUBLE = 0x7FF0000000000000LL
cdef object float32 = dtypes.float32, float64 = dtypes.float64, cpu = CPU


cdef class SpecFacts:
    """What is asked of a spec in every step."""


cdef dict facts = {}              # spec → its SpecFacts


cdef SpecFacts facts_of(spec):
    cdef PyObject* found = PyDict_GetItem(facts, spec)
    cdef SpecFacts known
    if found is not NULL:
        return <SpecFacts>found
    known = SpecFacts()
    known.numel, known.on_cpu, known.numbers = spec.numel, spec.device is cpu, OTHER
    if known.on_cpu and spec.dense and known.numel:
        known.numbers = SINGLE if spec.dtype is float32 else DOUBLE if spec.dtype is float64 else OTHER
    if len(facts) >= SPECS_KNOWN:
        facts.clear()
    facts[spec] = known
    return known


cdef void* where(Value value) except NULL:
    return <void*><uintptr_t>(value._address or value.address())


cpdef bint is_finite(Value value) except -1:
    return is_finite_as(value, facts_of(value.spec))


cdef bint is_finite_as(Value value, SpecFacts known) except -1:
    if known.numbers == SINGLE:
        return largest_single(<int32_t*>where(value), known.numel) < INFINITE_SINGLE
    if known.numbers == DOUBLE:
        return largest_double(<int64_t*>where(value), known.numel) < INFINITE_DOUBLE
    return all_finite(value.array)


def all_finite(array):
    if array.dtype.isbuiltin == 2:                    # bfloat16 and smaller
        array = array.astype(np.float32)
    return array.dtype.kind not in "fc" or b"\0" not in np.isfinite(array).tobytes()


cpdef double largest(TensorBase g) except? -1:
    cdef Value value
    cdef SpecFacts known
    if g._storage is None or g._offset:               # sparse, or part of something else
        return -1
    value = g._storage.value
    if value.trace is not None or value.spec is not g._spec:
        return -1
    known = facts_of(value.spec)
    if known.numbers == SINGLE:
        return as_single(largest_single(<int32_t*>where(value), known.numel))
    if known.numbers == DOUBLE:
        return as_double(largest_double(<int64_t*>where(value), known.numel))
    return -1
