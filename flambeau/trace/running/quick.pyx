"""The names of quick.py in C."""
from cpython.object cimport PyObject
from flambeau.trace.recording.append cimport TraceBase

from ...base.errors import _ours, here as interpreted_here

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

    PyObject* PyFunction_GetCode(object)
    PyObject* PyFunction_GetDefaults(object)
    PyObject* PyFunction_GetKwDefaults(object)
    ctypedef struct Class "PyTypeObject":
        unsigned int tp_version_tag

# Up to Python 3.12 every change of a dictionary gives it a version that none had before (PEP 509). Later ones keep some
# attributes beside the dictionary, and then have no versions at all.
cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030D0000
    #define FLAMBEAU_DICT_VERSION(held) ((unsigned long long)((PyDictObject *)(held))->ma_version_tag)
    #else
    #define FLAMBEAU_DICT_VERSION(held) ((void)(held), 0ULL)
    #endif
    """
    unsigned long long FLAMBEAU_DICT_VERSION(PyObject* dictionary)

cdef dict ours = _ours
cdef object user = None               # the user's code object that was found last
cdef object local = None
cdef unsigned long long thread = 0    # the thread that asked last; a number is never used again
cdef TraceBase trace_there = None     # and its trace


cpdef here():
    global user
    cdef PyFrameObject* frame = PyEval_GetFrame()
    cdef PyObject* found
    cdef object kept = None           # the frame that is looked at must stay alive
    while frame is not NULL:
        found = <PyObject*>PyFrame_GetCode(frame)
        code = <object>found
        Py_DECREF(found)
        if code is user:
            return (code, PyFrame_GetLasti(frame))
        if <size_t><PyObject*>code not in ours:
            break
        frame = PyFrame_GetBack(frame)
        if frame is not NULL:
            kept = <object>frame
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


cpdef unsigned int class_version(cls):
    return (<Class*><PyObject*>cls).tp_version_tag if versions_tell else 0


cpdef unsigned long long dict_version(dictionary):
    return FLAMBEAU_DICT_VERSION(<PyObject*>dictionary)


cdef bint is_or_none(PyObject* found, expected):
    return expected is None if found is NULL else <object>found is expected


cpdef bint is_function(function, code, defaults, named) except -1:
    return PyFunction_GetCode(function) == <PyObject*>code and is_or_none(PyFunction_GetDefaults(function), defaults) \
        and is_or_none(PyFunction_GetKwDefaults(function), named)


cdef bint _versions_tell() except -1:
    """Whether this Python's classes have versions as we know them: a change takes them, and no two are the same."""
    class Base:
        number = 1

    class Derived(Base):
        pass

    cdef set seen = set()
    cdef unsigned int now
    for change in (None, lambda: setattr(Derived, "number", 2), lambda: delattr(Derived, "number"),
                   lambda: setattr(Base, "number", 3), lambda: setattr(Derived, "__bases__", (object_of(Base),))):
        if change is not None:
            change()
            if (<Class*><PyObject*>Derived).tp_version_tag in seen:
                return False
        Derived.number                            # a class that is asked for something gets one
        now = (<Class*><PyObject*>Derived).tp_version_tag
        if now == 0 or now in seen:
            return False
        seen.add(now)
    return True


def object_of(base):
    """Another class like `base`."""
    return type("Other", (), dict(number=base.number))


cdef bint versions_tell = False
versions_tell = _versions_tell()
