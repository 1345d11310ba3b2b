cimport cython
from flambeau.compiler.rebuild cimport in_memory_of
from flambeau.trace.running.one_call cimport WorkingMemory, new_value, taken_spare
from flambeau.trace.exclusive cimport are_sole
from flambeau.trace.value cimport Storage, Value


cdef object CPU, DeviceFailed, cell, observers
cdef dict events, switches


cdef class BoundBase:
    cdef public object plan, program, runner, words, scalars, native, call, again, lock
    cdef public WorkingMemory memory
    cdef public list free, read, outputs, takes, floats, halves, others
    cdef public dict at
    cdef public long long[::1] table
    cdef public double[::1] cells

    cpdef bint run(self, tuple values, tuple numbers, list made, dict happened) except -1

    @cython.locals(value=Value, at=Py_ssize_t, index=Py_ssize_t, blocks=list,
                   table=cython.longlong[::1], cells=cython.double[::1])
    cpdef bint run_alone(self, tuple values, tuple numbers, list made) except -1


cdef class RunnerBase:
    cdef public BoundBase bound

    @cython.locals(bound=BoundBase)
    cpdef run(self, tuple values, tuple numbers, list made)


cdef class HeadBase:
    cdef public RunnerBase runner
    cdef public tuple fixed
    cdef public list kept, answers, places


cdef class ChecksBase:
    cdef public list last
