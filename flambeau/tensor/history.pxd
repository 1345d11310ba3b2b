cimport cython
from flambeau.autograd.edges cimport edge_of, requires
from flambeau.autograd.slots cimport NodeBase, RecipeBase
from flambeau.base.entry cimport Entry
from flambeau.trace.recording cimport new
from flambeau.trace.value cimport Storage, TensorBase


cdef object OpNode, Tensor, BackwardRecipe, numbering, keep
cdef dict events
cdef set tensor_types
cdef int NUMBER, TENSOR


@cython.locals(recipe=RecipeBase, node=NodeBase, t=TensorBase, out=TensorBase, storage=Storage, i=Py_ssize_t)
cpdef make_node(Entry entry, tuple args, inputs, outs, site, int wanted, bint special)


@cython.locals(storage=Storage, version=Py_ssize_t)
cdef _kept(TensorBase tensor, bint special)
