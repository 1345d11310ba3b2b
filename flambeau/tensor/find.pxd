cimport cython
from flambeau.base.entry cimport Facts
from flambeau.trace.value cimport TensorBase


cdef object Tensor, LEAST_INT, MOST_INT
cdef set tensor_types


@cython.locals(parts=list, inputs=list, typed=tuple, at=Py_ssize_t, found=tuple)
cpdef tuple find(op, Facts facts, tuple args, kwargs, bint bound=*)
