"""The names of new.py in C; and `instance`, for classes that this module does not know."""
from cpython.object cimport PyObject, PyTypeObject
from flambeau.trace.recording.instructions cimport Instruction
from flambeau.trace.value cimport Storage, TensorBase, Value

cdef tuple nothing = ()


cdef Value value():
    return Value.__new__(Value)


cdef Storage storage():
    return Storage.__new__(Storage)


cdef Instruction instruction():
    return Instruction.__new__(Instruction)


cdef TensorBase tensor(cls):
    # Not `cls.__new__`, which is for the user. The class gives room for its dictionary.
    return <TensorBase>instance(TensorBase, cls)


def wrapper(cls):
    def wrap(Storage storage, spec, Py_ssize_t offset=0):
        cdef TensorBase made = tensor(cls)
        made._storage = storage
        made._spec = spec
        made._offset = offset
        return made                       # a compiled one begins without a history
    return wrap


cdef instance(base, cls):
    """An empty object of class `cls`, which derives from the compiled class `base`."""
    return (<PyTypeObject*>base).tp_new(<type>cls, <PyObject*>nothing, NULL)
