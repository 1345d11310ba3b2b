cimport cython
from flambeau.base.entry cimport Entry, Facts
from flambeau.tensor.find cimport find
from flambeau.tensor.recorder cimport record_one
from flambeau.tensor.views cimport view_one
from flambeau.trace.value cimport TensorBase


cdef object Tensor, LEAST_INT, MOST_INT
cdef set tensor_types
cdef frozenset number_types
cdef int ONE_RESULT, ONE_VIEW
cdef dict known
cdef KnownCall OTHERWISE


cdef class KnownCall:
    cdef public Entry entry
    cdef public tuple tail, params
    cdef public Py_ssize_t number_at
    cdef public bint asks


cpdef function(op, tuple args, dict kwargs)


@cython.locals(table=dict, facts=Facts, entry=Entry, full=tuple)
cpdef call_cached(op, tuple args, dict kwargs, public)


@cython.locals(table=dict, facts=Facts, row=dict, entry=Entry, full=tuple)
cpdef operands(op, tuple args, public)
