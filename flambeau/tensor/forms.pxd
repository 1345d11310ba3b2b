from flambeau.tensor.known_calls cimport call_cached, operands


cdef object Tensor
cdef set tensor_types
cdef frozenset number_types
