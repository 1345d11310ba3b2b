cimport cython
from flambeau.autograd.accumulate cimport accumulate, add, match_spec
from flambeau.autograd.slots cimport NodeBase, RecipeBase
from flambeau.trace.recording.backward_recording cimport HeldRecording
from flambeau.trace.running.runner cimport TraceRunner
from flambeau.trace.value cimport Storage, TensorBase, Value


cdef object OpNode, AccumulateGrad, Kept, door, ref, _seq_of
cdef int LIST, NUMBER, OUT, SPEC, TENSOR


@cython.locals(readers=dict, stack=list, node=NodeBase, edge=tuple)
cpdef dict count_readers(list roots)


@cython.locals(useful=set, left=dict, node=NodeBase, runs=bint, edge=tuple)
cpdef tuple on_the_way(dict readers, set targets, bint run_targets)


@cython.locals(node=NodeBase, target=NodeBase, recipe=RecipeBase, gs=list, left=Py_ssize_t, g=TensorBase,
               edge=tuple)
cpdef run_nodes(list ready, dict readers, dict buffers, set reached, set targets, bint careful, bint retain_graph,
                bint create_graph, site, run_with_hooks, long long emptied, list older)


cpdef list gradients_of(NodeBase node, list grads)


@cython.locals(recipe=RecipeBase, wanted=tuple)
cpdef list by_rules(NodeBase node, list grads, dict fetched)


cdef wanted_by(NodeBase node, int how, what, dict fetched)


@cython.locals(tensor=TensorBase, storage=Storage, version=Py_ssize_t)
cpdef fetch(NodeBase node, int how, what)


@cython.locals(value=Value, recording=HeldRecording, pending=bint, large=bint)
cpdef hold(TraceRunner trace, TensorBase root, site, list older, Py_ssize_t max_bytes)


@cython.locals(found=dict, node=NodeBase)
cdef dict values_now(list older)
