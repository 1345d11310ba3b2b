cimport cython
from flambeau.trace.held cimport HeldBase, check_held
from flambeau.trace.runner cimport TraceRunner


cdef object recent_roots
cdef list in_force
cdef Py_ssize_t FIRST_STEPS, STEPS_PER_LOOK, SMALL_GRADIENT


cdef class OptimizerRecord:
    cdef public object optimizer, roots, module, unseen
    cdef public Py_ssize_t steps
    cdef public bint looks, told_graphs


@cython.locals(record=OptimizerRecord, trace=TraceRunner, recording=HeldBase)
cpdef before_step(number)


@cython.locals(record=OptimizerRecord, trace=TraceRunner)
cpdef after_step(number)
