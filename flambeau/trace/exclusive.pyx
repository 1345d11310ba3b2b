"""The names of exclusive.py in C."""
from cpython.object cimport PyObject

from flambeau.trace.value cimport Storage, TensorBase, Value

from ..base.spec import CPU

cdef extern from "Python.h":
    PyObject* PyTuple_GET_ITEM(object, Py_ssize_t)
    Py_ssize_t Py_REFCNT(PyObject*)

cdef object cpu = CPU


cpdef bint owns_memory(Value value) except -1:
    cdef bint seen = value._memory is not None
    cdef Py_ssize_t ours = 1
    if seen:
        if Py_REFCNT(<PyObject*>value._memory) != 1:
            return False
        ours += value._memory.base is value.array
    if Py_REFCNT(<PyObject*>value.array) > ours:
        return False
    return value.array.flags.writeable if value.spec.device is cpu else value.may_be_written()


cpdef bint are_sole(tuple values, list positions) except -1:
    cdef Py_ssize_t at
    cdef PyObject* value
    for at in positions:
        value = PyTuple_GET_ITEM(values, at)
        if Py_REFCNT(value) != 2 or Py_REFCNT(<PyObject*>(<Value>value).array) != 1:     # its storage and the tuple
            return False
    return True


cpdef bint is_sole_grad(TensorBase tensor) except -1:
    cdef PyObject* grad = <PyObject*>tensor._grad
    if Py_REFCNT(grad) != 1:
        return False
    cdef PyObject* storage = <PyObject*>(<TensorBase>grad)._storage
    if Py_REFCNT(storage) != 1:
        return False
    cdef PyObject* value = <PyObject*>(<Storage>storage).value
    return (<Value>value).trace is None and Py_REFCNT(value) == 1 and Py_REFCNT(<PyObject*>(<Value>value).array) == 1
