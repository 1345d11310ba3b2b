cimport cython
from flambeau.autograd.slots cimport NodeBase, RecipeBase
from flambeau.trace.held cimport HeldBase
from flambeau.trace.runner cimport TraceRunner
from flambeau.trace.value cimport Storage, TensorBase, Value


cdef object OpNode, AccumulateGrad, Kept, HeldRecording


@cython.locals(node=NodeBase, target=NodeBase, recipe=RecipeBase, gs=list, left=Py_ssize_t)
cpdef run_nodes(list ready, dict readers, dict buffers, reached, bint careful, bint retain_graph, bint create_graph, site,
                run_with_hooks, accumulate, match_spec, add, emptied, list older)


@cython.locals(recipe=RecipeBase, wanted=tuple)
cdef list gradients_of(NodeBase node, grads)


@cython.locals(tensor=TensorBase, storage=Storage)
cdef fetch(NodeBase node, how, what)


@cython.locals(value=Value, held=Value, recording=HeldBase, pending=bint, large=bint)
cpdef hold(TraceRunner trace, TensorBase root, site, list older, Py_ssize_t held_bytes)
