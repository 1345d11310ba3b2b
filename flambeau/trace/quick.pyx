"""The names of quick.py in C."""
from cpython.object cimport PyObject
from flambeau.trace.append cimport TraceBase

from ..base.errors import _ours, here as interpreted_here

cdef extern from "Python.h":
    ctypedef struct PyFrameObject:
        pass
    ctypedef struct PyThreadState:
        pass
    PyFrameObject* PyEval_GetFrame()
    ctypedef struct PyCodeObject:
        pass
    PyCodeObject* PyFrame_GetCode(PyFrameObject*)
    int PyFrame_GetLasti(PyFrameObject*)
    PyFrameObject* PyFrame_GetBack(PyFrameObject*)
    void Py_DECREF(PyObject*)
    PyThreadState* PyThreadState_Get()
    unsigned long long PyThreadState_GetID(PyThreadState*)

cdef dict ours = _ours
cdef object user = None               # the user's code object that was found last
cdef object local = None
cdef unsigned long long thread = 0    # the thread that asked last; a number is never used again
cdef TraceBase trace_there = None     # and its trace


cpdef here(int inside=1):
    # How many frames are ours is not known: compiled functions have none. So they are looked at one by one.
    global user
    cdef PyFrameObject* frame = PyEval_GetFrame()
    cdef PyObject* found
    cdef object held = None
    while frame is not NULL:
        found = <PyObject*>PyFrame_GetCode(frame)
        code = <object>found
        Py_DECREF(found)
        if code is user:
            return (code, PyFrame_GetLasti(frame))
        known = ours.get(<size_t><PyObject*>code)
        if known is None or not known[1]:
            break
        frame = PyFrame_GetBack(frame)
        if frame is not NULL:
            held = <object>frame
            Py_DECREF(<PyObject*>frame)
    site = interpreted_here()
    if site is not None:
        user = site[0]
    return site


def remember_traces(new):
    global local
    local = new


def forget_trace():
    global thread, trace_there
    before = trace_there              # it lives until both are set: others may run when it goes
    thread = 0
    trace_there = None


cdef TraceBase this_trace():
    global thread, trace_there
    cdef unsigned long long now = PyThreadState_GetID(PyThreadState_Get())
    cdef TraceBase found
    if now == thread:
        return trace_there
    found = local.trace               # others may run meanwhile
    before = trace_there
    trace_there = found
    thread = now
    return found
