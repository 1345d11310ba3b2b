cimport cython
from flambeau.autograd.edges cimport requires
from flambeau.autograd.slots cimport NodeBase
from flambeau.trace.value cimport Storage, TensorBase


cdef object modes, door
cdef dict _broadcast_dims


@cython.locals(grads=list)
cpdef add(dict buffers, NodeBase node, Py_ssize_t nr, TensorBase g)


cpdef TensorBase match_spec(TensorBase g, wanted)


@cython.locals(leaf=TensorBase, grad=TensorBase)
cpdef accumulate(NodeBase node, TensorBase g, bint create_graph)


@cython.locals(storage=Storage, made=TensorBase, whole=bint)
cpdef TensorBase detached_copy(TensorBase g, TensorBase like)
