from flambeau.trace.value cimport Storage, TensorBase, Value


cdef Value value()
cdef Storage storage()
cdef TensorBase tensor(cls)
cdef instance(base, cls)
