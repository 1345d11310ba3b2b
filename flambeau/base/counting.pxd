cpdef list counts(list values)
cpdef Py_ssize_t count_at(get, owner) except -1
