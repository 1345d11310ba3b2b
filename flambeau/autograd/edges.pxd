cimport cython
from flambeau.autograd.slots cimport NodeBase
from flambeau.trace.recording cimport new
from flambeau.trace.value cimport TensorBase


cdef object AccumulateGrad, refresh, weak
cdef long long LEAF_SEQUENCE_NUMBER


@cython.locals(made=NodeBase)
cpdef accumulator(TensorBase leaf)


cpdef edge_of(TensorBase tensor)


@cython.locals(base=TensorBase)
cpdef bint requires(TensorBase tensor) except -1
