"""The names of sole.py in C."""
from cpython.object cimport PyObject

from flambeau.trace.value cimport Storage, TensorBase, Value

cdef extern from "Python.h":
    PyObject* PyTuple_GET_ITEM(object, Py_ssize_t)
    Py_ssize_t Py_REFCNT(PyObject*)


cpdef bint are_sole(tuple values, list places) except -1:
    cdef Py_ssize_t at
    cdef PyObject* value
    for at in places:
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
    return Py_REFCNT(value) == 1 and Py_REFCNT(<PyObject*>(<Value>value).array) == 1
