"""The names of step_hooks.py in C."""
from weakref import ref

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from flambeau.trace.running cimport quick
from flambeau.trace.finite cimport SpecFacts, facts_of, is_finite, is_finite_as, largest
from flambeau.trace.recording.backward_recording cimport HeldRecording
from flambeau.trace.running.runner cimport TraceRunner
from flambeau.trace.value cimport TensorBase, Value
from libc.stdint cimport uintptr_t

from ..autograd.engine import recent_roots
from ..base import observers
from .finding import in_force as all_in_force

cdef enum:
    STEPS_LOOKED_AT = 64          # FIRST_STEPS
    EVERY = 8                     # STEPS_PER_LOOK
    SMALL = 1 << 9                # SMALL_GRADIENT

cdef object forget_roots = recent_roots.clear
cdef object step_began = None, step_ended = None      # the observers'
cdef list in_force = all_in_force

FIRST_STEPS, STEPS_PER_LOOK, SMALL_GRADIENT = STEPS_LOOKED_AT, EVERY, SMALL
records = {}
tellers = []
cdef Py_ssize_t taken = 0
cdef dict by_number = records


cdef class OptimizerRecord:
    pass


def steps_taken():
    return taken


def _observe():
    global step_began, step_ended
    step_began, step_ended = observers.step_began, observers.step_ended


observers.on_change.append(_observe)


def before_step(number):
    cdef PyObject* found = PyDict_GetItem(by_number, number)
    cdef OptimizerRecord record
    cdef TraceRunner trace
    cdef HeldRecording recording
    if found is NULL:
        return
    record = <OptimizerRecord>found
    if record.looks or step_began is not None:
        tell(record, 0, step_began)
    trace = <TraceRunner>quick.this_trace()
    if trace.backward is not None:
        recording = trace.backward
        if recording.large and not in_force:
            check(trace, record)


def after_step(number):
    global taken
    cdef PyObject* found = PyDict_GetItem(by_number, number)
    cdef OptimizerRecord record
    cdef TraceRunner trace
    if found is NULL:
        return
    record = <OptimizerRecord>found
    taken += 1
    record.steps += 1
    record.looks = record.steps < STEPS_LOOKED_AT or record.steps % EVERY == 0
    if record.looks or step_ended is not None:
        tell(record, 1, step_ended)
    if not record.looks:
        forget_roots()
    trace = <TraceRunner>quick.this_trace()
    if trace.backward is not None and not in_force:
        check(trace, record)


cdef tell(OptimizerRecord record, int which, told):
    optimizer = record.optimizer()
    if optimizer is None:
        return
    if record.looks:
        tellers[which](optimizer, record)
    if told is not None:
        told(optimizer)


cdef check(TraceRunner trace, OptimizerRecord record):
    bad = find_nonfinite(trace, record)
    if bad is not None:
        tellers[2](bad)


# --- what is kept of the backward ---


cdef object loss_spec = None      # of the last loss that was looked at,
cdef SpecFacts loss_facts = None  # and what is known of it


cpdef find_nonfinite(TraceRunner trace, OptimizerRecord record):
    global loss_spec, loss_facts
    cdef HeldRecording recording = trace.backward
    cdef TensorBase tensor = recording.root()
    cdef Value value
    if tensor is not None:
        value = tensor._storage.value
        if value.trace is not None:
            return None
        if value.spec is not loss_spec:
            loss_spec, loss_facts = value.spec, facts_of(value.spec)
        if not (is_finite_as(value, loss_facts) if tensor._spec is loss_spec and loss_facts.numel == 1 else
                tensor._spec.numel != 1 or is_finite(value)):
            trace.backward = None
            return recording, tensor
    tensor = small_gradient(record)
    if tensor is not None:
        value = tensor._storage.value
        if value.trace is not None:
            return None
        if not (is_finite_as(value, record.small_facts) if value.spec is record.small_spec else is_finite(value)):
            trace.backward = None
            return recording, tensor
    trace.backward = None
    return None


cdef TensorBase small_gradient(OptimizerRecord record):
    cdef TensorBase p, g
    cdef SpecFacts known
    if record.small is not None and not record.looks:
        p = record.small()
        if p is not None:
            g = p._grad
            if g is not None and g._spec is record.small_spec and g._storage is not None:
                return g
    record.small = None
    optimizer = record.optimizer()
    if optimizer is None:
        return None
    for group in optimizer.param_groups:
        for p in group["params"]:
            g = p._grad
            if g is not None:
                known = facts_of(g._spec)
                if known.on_cpu and known.numel <= SMALL:
                    if g._storage is None:            # sparse
                        return None
                    record.small, record.small_spec, record.small_facts = ref(p), g._spec, known
                    return g
    return None


# --- all gradients, for the full watch ---


def unusual_gradients(groups, dict bounds, dict zeros):
    cdef TensorBase p, g
    cdef list found = []
    cdef double size
    for group in groups:
        for p in group["params"]:
            g = p._grad
            if g is not None and p._requires_grad:
                size = largest(g)
                key = <uintptr_t><PyObject*>p
                if not (0 < size <= <double>bounds.get(key, 0)) or zeros and key in zeros:
                    found.append(p)
    return found
