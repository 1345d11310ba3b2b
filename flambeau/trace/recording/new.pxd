from flambeau.trace.recording.instructions cimport Instruction
from flambeau.trace.value cimport Storage, TensorBase, Value


cdef Value value()
cdef Storage storage()
cdef Instruction instruction()
cdef TensorBase tensor(cls)
cdef instance(base, cls)
