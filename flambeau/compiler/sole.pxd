from flambeau.trace.value cimport TensorBase


cpdef bint are_sole(tuple values, list places) except -1
cpdef bint is_sole_grad(TensorBase tensor) except -1
