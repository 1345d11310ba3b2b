cimport cython
from flambeau.autograd.walk cimport by_rules, fetch
from flambeau.autograd.edges cimport requires
from flambeau.autograd.slots cimport NodeBase, RecipeBase
from flambeau.base.entry cimport Entry, Facts
from flambeau.tensor.recorder cimport record_one, record_several
from flambeau.tensor.views cimport view_one
from flambeau.trace.running cimport quick
from flambeau.trace.recording.append cimport TraceBase
from flambeau.trace.running.runner cimport TraceRunner
from flambeau.trace.value cimport TensorBase, looks


cdef object Tensor, NO_VALUE, WANTS_GRADIENT, modes, CPU, Size
cdef list new_tensors_go_to
cdef dict latest, questions, known
cdef int NUMBER, ANY_VIEW, CHECKED, DETACHED, LONG_WAY, ONE_VIEW, RULED
cdef set tensor_types, plain_types, sighted


cdef class Tape


cdef class TapedCall:
    cdef public Entry entry
    cdef public tuple args, tensor_args, list_args, inputs, params
    cdef public bint owned
    cdef public Tape inner

    @cython.locals(args=list, at=Py_ssize_t, number=Py_ssize_t, numbers=tuple)
    cdef tuple with_tensors(self, list tensors)


cdef class Tape:
    cdef public tuple steps
    cdef public object made, several


@cython.locals(step=TapedCall, entry=Entry, args=tuple, inputs=tuple, number=Py_ssize_t, seen=TensorBase,
               wants_args=bint, results=list)
cpdef follow(TraceBase trace, Tape tape, list tensors)


@cython.locals(trace=TraceRunner)
cpdef taped(trace, tuple key, function, tuple args, list given)


@cython.locals(trace=TraceBase, recipe=RecipeBase, key=list, given=list, values=list, fetched=dict, wanted=tuple,
               whole=tuple, table=dict, last=tuple, how=int, g=TensorBase)
cpdef list gradients(NodeBase node, list grads)


@cython.locals(at=Py_ssize_t)
cdef bint same(list one, list two)


cdef bint is_plain(value) except -1


cdef noted(list key, value)


@cython.locals(t=TensorBase)
cdef bint is_elsewhere(list given) except -1


cdef bint noted_list(list key, several, list given) except -1


cdef bint is_new(tuple key) except -1


@cython.locals(trace=TraceBase, facts=Facts, key=list, given=list, whole=tuple, table=dict)
cpdef followed(op, tuple args, kwargs)
