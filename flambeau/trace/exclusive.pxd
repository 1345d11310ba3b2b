from flambeau.trace.value cimport TensorBase, Value


cpdef bint owns_memory(Value value) except -1
cpdef bint are_sole(tuple values, list positions) except -1
cpdef bint is_sole_grad(TensorBase tensor) except -1
