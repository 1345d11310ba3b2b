cimport cython
from flambeau.autograd.accumulate cimport accumulate, add, match_spec
from flambeau.autograd.slots cimport NodeBase, RecipeBase
from flambeau.trace.held cimport HeldRecording
from flambeau.trace.runner cimport TraceRunner
from flambeau.trace.value cimport Storage, TensorBase, Value


cdef object OpNode, AccumulateGrad, Kept, door, ref
cdef bint COMPILED


@cython.locals(readers=dict, stack=list, node=NodeBase)
cpdef dict count_readers(list roots)


@cython.locals(node=NodeBase, target=NodeBase, recipe=RecipeBase, gs=list, left=Py_ssize_t)
cpdef run_nodes(list ready, dict readers, dict buffers, reached, bint careful, bint retain_graph, bint create_graph, site,
                run_with_hooks, emptied, list older)


cpdef list gradients_of(NodeBase node, list grads)


@cython.locals(recipe=RecipeBase, wanted=tuple)
cpdef list by_rules(NodeBase node, list grads, dict fetched)


cdef wanted_by(NodeBase node, how, what, dict fetched)


@cython.locals(tensor=TensorBase, storage=Storage)
cpdef fetch(NodeBase node, how, what)


@cython.locals(value=Value, recording=HeldRecording, pending=bint, large=bint)
cpdef hold(TraceRunner trace, TensorBase root, site, list older, Py_ssize_t held_bytes)


@cython.locals(found=dict, node=NodeBase)
cdef dict values_now(list older)
