from flambeau.trace.runner cimport TraceRunner
from flambeau.trace.value cimport TensorBase, Value


cdef class HeldBase:
    cdef public object code, inputs, root, slot, site, older
    cdef public Py_ssize_t count
    cdef public bint large


cpdef check_held(TraceRunner trace, groups, Py_ssize_t most)
cpdef bint is_finite(Value value) except -1
cpdef bint all_finite(array) except -1
