from flambeau.trace.value cimport TensorBase, Value


cpdef Value drawn_indices(TensorBase weights, wanted, source)
