cimport cython
from flambeau.trace.value cimport TensorBase, Value


cdef object META


@cython.locals(value=Value)
cpdef array_of(TensorBase tensor)


@cython.locals(value=Value)
cpdef number_of(TensorBase tensor)


@cython.locals(value=Value)
cpdef lists_of(TensorBase tensor)
