from flambeau.trace.finite cimport SpecFacts


cdef class OptimizerRecord:
    cdef public object optimizer, roots, module, unseen
    cdef public Py_ssize_t steps
    cdef public bint looks, told_graphs
    cdef object small, small_spec         # a parameter whose gradient is small, by a weak reference, and its spec
    cdef SpecFacts small_facts
