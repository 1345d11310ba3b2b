cimport cython
from flambeau.autograd.edges cimport requires
from flambeau.trace.value cimport Storage, TensorBase


cdef class TensorLook:
    cdef public object spec
    cdef public Storage storage
    cdef public Py_ssize_t offset, leaf_hooks, post_hooks
    cdef public bint bare, needs, leaf, has_node

    cpdef bint is_off(self, TensorBase tensor) except -1


cdef class Guards:
    cdef public list items, entries, attributes, kinds, tensors, missing, keys

    @cython.locals(row=tuple, look=TensorLook, tensor=TensorBase, names=tuple)
    cpdef first_unmet(self)
