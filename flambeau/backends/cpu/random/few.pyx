"""The names of few.py in C."""
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport ceil, cos, exp, fma, fmaf, log, log1p, sin, sqrt, tan
from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from flambeau.backends.cpu.memory.address cimport address

import numpy as np

MAX_FEW = 1024
RAW_WORDS, UNIFORM, NORMAL, INTEGERS, BERNOULLI, ODDS = range(6)
EXPONENTIAL, GEOMETRIC, CAUCHY, LOG_NORMAL, PERMUTATION = range(6, 11)

cdef int words = RAW_WORDS, uniform = UNIFORM, normal = NORMAL, integers = INTEGERS, bernoulli = BERNOULLI, at_odds = ODDS
cdef int exponential = EXPONENTIAL, geometric = GEOMETRIC, cauchy = CAUCHY, log_normal = LOG_NORMAL
cdef int permutation = PERMUTATION
cdef object float32 = np.dtype(np.float32), float64 = np.dtype(np.float64), int64 = np.dtype(np.int64)
cdef object uint32 = np.dtype(np.uint32), new_array = np.empty
cdef double pi = 3.141592653589793


cdef flambeau_bitgen* words_of(source) except NULL:
    return <flambeau_bitgen*>PyCapsule_GetPointer(source._stream().capsule, "BitGenerator")


cpdef drawn(source, int kind, Py_ssize_t count, dtype, first, second, odds):
    cdef flambeau_bitgen* stream
    cdef float* singles = NULL
    cdef double* doubles = NULL
    cdef int64_t* longs = NULL
    cdef uintptr_t memory
    cdef uint64_t span = 0, base = 0
    cdef Py_ssize_t i
    if kind == words or kind == permutation:
        if dtype is not (uint32 if kind == words else int64):
            return None
    elif dtype is int64:
        if kind != integers:
            return None
    elif dtype is not float32 and dtype is not float64:
        return None
    if kind == at_odds and not (odds.dtype is float32 and odds.size == count and are_odds(odds, count)):
        return None
    out = new_array(count, dtype)
    memory = address(out)
    stream = words_of(source)
    if kind == words:
        for i in range(count):
            (<uint32_t*>memory)[i] = stream.next_uint32(stream.state)
        return out
    if dtype is float32:
        singles = <float*>memory
    elif dtype is float64:
        doubles = <double*>memory
    else:
        longs = <int64_t*>memory
    if kind == permutation:
        permute(stream, longs, count)
    elif kind == integers:
        span, base = first, second
        fill_integers(stream, singles, doubles, longs, count, span, base)
    elif kind == uniform:
        fill_uniform(stream, singles, doubles, count, first, second)
    elif kind == at_odds:
        fill_at_odds(stream, singles, doubles, <float*><uintptr_t>address(odds), count)
    elif kind == normal or kind == log_normal:
        source._spare = fill_normal(stream, singles, doubles, count, first, second, kind == log_normal, source._spare)
    else:
        fill_single(stream, kind, singles, doubles, count, first, second)
    return out


cdef bint are_odds(odds, Py_ssize_t count) except -1:
    """Whether they are probabilities, in a row."""
    cdef float* given
    cdef Py_ssize_t i
    if not odds.flags.c_contiguous:
        return False
    given = <float*><uintptr_t>address(odds)
    for i in range(count):
        if not 0 <= given[i] <= 1:
            return False
    return True


cdef void permute(flambeau_bitgen* stream, int64_t* out, Py_ssize_t count) noexcept:
    cdef Py_ssize_t i, target
    cdef int64_t there
    for i in range(count):
        out[i] = i
    for i in range(count - 1):
        target = i + <Py_ssize_t>(stream.next_uint32(stream.state) % <uint32_t>(count - i))
        there = out[i]
        out[i] = out[target]
        out[target] = there


cdef void fill_integers(flambeau_bitgen* stream, float* singles, double* doubles, int64_t* longs, Py_ssize_t count,
                        uint64_t span, uint64_t base) noexcept:
    cdef Py_ssize_t i
    cdef uint64_t word
    cdef int64_t value
    for i in range(count):
        word = word64(stream) if span >= <uint64_t>1 << 28 else stream.next_uint32(stream.state)
        value = <int64_t>(word % span + base)
        if singles != NULL:
            singles[i] = <float>value
        elif doubles != NULL:
            doubles[i] = <double>value
        else:
            longs[i] = value


cdef void fill_uniform(flambeau_bitgen* stream, float* singles, double* doubles, Py_ssize_t count, double low,
                       double high) noexcept:
    cdef Py_ssize_t i
    cdef float low32 = <float>low, high32 = <float>high, single
    cdef double wide
    if singles != NULL:
        for i in range(count):
            single = fmaf(unit32(stream), high32 - low32, low32)
            singles[i] = low32 if single == high32 else single        # it may have been rounded to what is not in it
        return
    for i in range(count):
        wide = fma(unit64(stream), high - low, low)
        doubles[i] = low if wide == high else wide


cdef void fill_at_odds(flambeau_bitgen* stream, float* singles, double* doubles, float* odds,
                       Py_ssize_t count) noexcept:
    cdef Py_ssize_t i
    cdef bint heads
    for i in range(count):
        heads = unit32(stream) < odds[i]
        if singles != NULL:
            singles[i] = heads
        else:
            doubles[i] = heads


cdef object fill_normal(flambeau_bitgen* stream, float* singles, double* doubles, Py_ssize_t count, double mean,
                        double std, bint is_log, spare):
    """Gives what is spare then."""
    cdef Py_ssize_t i
    cdef double kept = 0, value, u1, radius, angle
    cdef bint has = spare is not None
    if has:
        kept = spare
    for i in range(count):
        if has:
            value, has = kept, False
        else:
            u1 = unit64(stream)
            radius, angle = sqrt(-2.0 * log1p(-unit64(stream))), 2.0 * pi * u1
            value, kept, has = radius * cos(angle), radius * sin(angle), True
        value = fma(value, std, mean)
        if is_log:
            value = exp(value)
        if singles != NULL:
            singles[i] = <float>value
        else:
            doubles[i] = value
    return kept if has else None


cdef void fill_single(flambeau_bitgen* stream, int kind, float* singles, double* doubles, Py_ssize_t count,
                      double first, double second) noexcept:
    """One sample of each unit."""
    cdef Py_ssize_t i
    cdef double unit, value = 0
    cdef double rate = -1.0 / first if kind == exponential else log1p(-first) if kind == geometric else 0
    for i in range(count):
        unit = unit64(stream)
        if kind == bernoulli:
            value = unit < first
        elif kind == exponential:
            value = log1p(-unit) * rate
        elif kind == geometric:
            value = ceil(log(unit) / rate)
        else:
            value = fma(tan(pi * (unit - 0.5)), second, first)
        if singles != NULL:
            singles[i] = <float>value
        else:
            doubles[i] = value
