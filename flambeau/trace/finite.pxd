from flambeau.trace.value cimport TensorBase, Value


cdef class SpecFacts:
    cdef Py_ssize_t numel
    cdef int numbers
    cdef bint on_cpu


cdef SpecFacts facts_of(spec)
cpdef bint is_finite(Value value) except -1
cdef bint is_finite_as(Value value, SpecFacts known) except -1
cpdef double largest(TensorBase g) except? -1
