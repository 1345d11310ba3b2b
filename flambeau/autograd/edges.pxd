cimport cython
from flambeau.trace.value cimport TensorBase


cdef object AccumulateGrad, refresh


cpdef accumulator(TensorBase leaf)


cpdef edge_of(TensorBase tensor)


@cython.locals(base=TensorBase)
cpdef bint requires(TensorBase tensor) except -1
