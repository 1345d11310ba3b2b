cimport cython
from flambeau.autograd.edges cimport requires
from flambeau.trace cimport quick
from flambeau.trace.value cimport Storage, TensorBase


cdef class TensorLook:
    cdef public object spec
    cdef public Storage storage
    cdef public Py_ssize_t offset, leaf_hooks, post_hooks
    cdef public bint bare, needs, leaf, has_node

    cpdef bint is_off(self, TensorBase tensor) except -1


cdef class ClassLook:
    cdef public object cls
    cdef public bint lasting
    cdef public unsigned int version
    cdef public list rows

    @cython.locals(version=cython.uint, number=Py_ssize_t)
    cpdef Py_ssize_t first_unmet(self) except -2


cdef class DictLook:
    cdef public dict held
    cdef public unsigned long long version
    cdef public list items, missing, keys

    @cython.locals(row=tuple, names=tuple, held=dict, at=Py_ssize_t, version=cython.ulonglong)
    cpdef Py_ssize_t first_unmet(self) except -2


cdef class Guards:
    cdef public list classes, owners, dicts, items, attributes, functions, kinds, tensors, missing, keys
    cdef public dict looks

    @cython.locals(row=tuple, look=ClassLook, seen=DictLook, look_of=TensorLook, tensor=TensorBase, names=tuple,
                   number=Py_ssize_t)
    cpdef Py_ssize_t first_unmet(self) except -2


cdef bint is_equal(found, expected) except -1
