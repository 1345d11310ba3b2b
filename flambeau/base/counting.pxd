cpdef list counts(list values)
cpdef Py_ssize_t count_in(list values, Py_ssize_t at) except -1
cpdef Py_ssize_t count_at(get, owner) except -1
