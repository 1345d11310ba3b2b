cimport cython
from flambeau.compiler.made cimport in_memory_of
from flambeau.trace.sole cimport are_sole
from flambeau.trace.value cimport Value


cdef object CPU, DeviceFailed, cell, observers
cdef dict events


cdef class BoundBase:
    cdef public object plan, program, runner, words, scalars, native, call, lock
    cdef public list free, read, outputs, takes, floats, halves, others
    cdef public dict at
    cdef public long long[::1] table
    cdef public double[::1] cells

    @cython.locals(value=Value, at=Py_ssize_t, index=Py_ssize_t, blocks=list)
    cpdef bint run(self, tuple values, tuple numbers, list made, dict happened) except -1
