"""The names of address.py in C."""
import numpy as np

from cpython.object cimport PyObject

cdef extern from *:
    """
    /* Every array of NumPy's begins like this: what was compiled against any version of it reads the field so. */
    typedef struct { PyObject_HEAD char *data; } flambeau_array;
    """
    ctypedef struct flambeau_array:
        char* data

cdef object ndarray = np.ndarray
cdef bint is_known = False


cpdef address(array):
    if is_known and type(array) is ndarray:
        return <size_t>(<flambeau_array*><PyObject*>array).data
    return array.__array_interface__["data"][0]


def _try():
    """Whether arrays are as they are read here; else NumPy is asked."""
    global is_known
    samples = np.arange(6.0), np.arange(6.0)[2:], np.zeros(())
    is_known = all([<size_t>(<flambeau_array*><PyObject*>array).data == array.__array_interface__["data"][0]
                    for array in samples])


_try()
