"""The names of counting.py in C."""
import sys

from cpython.object cimport PyObject

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(object, Py_ssize_t)
    Py_ssize_t Py_REFCNT(PyObject*)

count = getattr(sys, "getrefcount", None)


cpdef list counts(list values):
    cdef Py_ssize_t i
    cdef list found = []
    for i in range(len(values)):
        found.append(Py_REFCNT(PyList_GET_ITEM(values, i)))      # where it stands: it is not taken from there
    return found


cpdef Py_ssize_t count_in(list values, Py_ssize_t at) except -1:
    return Py_REFCNT(PyList_GET_ITEM(values, at))


cpdef Py_ssize_t count_at(get, owner) except -1:
    thing = get(owner)
    return Py_REFCNT(<PyObject*>thing)
