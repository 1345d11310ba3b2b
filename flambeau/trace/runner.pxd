cimport cython
from flambeau.trace.append cimport TraceBase
from flambeau.trace.key cimport key_of


cdef bint COMPILED
cdef dict events, switches
cdef object _planning


cdef class TraceRunner(TraceBase):
    cdef public object lock, owner, failures, asides, quiet, ran, begun, unsettled, backward, emptied, weighed
    cdef public tuple found
    cdef public bint aside

    cpdef clear(self)


@cython.locals(trace=TraceRunner, found=tuple, plans=dict)
cpdef _at_once(trace)
