cimport cython
from flambeau.trace.exclusive cimport are_sole
from flambeau.trace.running.bound cimport BoundProgram
from flambeau.trace.value cimport Storage, Value


cdef object observers
cdef dict events, switches


cdef class BoundBase:
    cdef public object plan, runner
    cdef public BoundProgram program
    cdef public list free

    @cython.locals(value=Value)
    cpdef bint run(self, tuple values, tuple numbers, list made, dict happened, bint observed) except -1


cdef class RunnerBase:
    cdef public BoundBase bound

    @cython.locals(bound=BoundBase)
    cpdef run(self, tuple values, tuple numbers, list made)


cdef class HeadBase:
    cdef public RunnerBase runner
    cdef public tuple fixed
    cdef public list kept, answers, positions


cdef class ChecksBase:
    cdef public list last
