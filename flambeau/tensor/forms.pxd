cimport cython
from flambeau.base.entry cimport Entry
from flambeau.tensor.find cimport find
from flambeau.tensor.recorder cimport record_one
from flambeau.tensor.views cimport view_one
from flambeau.trace.value cimport TensorBase


cdef bint COMPILED
cdef object Tensor, LEAST_INT, MOST_INT
cdef set tensor_types
cdef frozenset number_types
cdef dict operand_calls


cpdef function(op, tuple args, dict kwargs)


@cython.locals(entry=Entry, full=tuple)
cpdef call_cached(op, tuple args, dict kwargs, public)


@cython.locals(known_calls=dict, seconds=dict, found=tuple, tail=tuple, inputs=tuple)
cpdef operands(op, tuple args, public)
