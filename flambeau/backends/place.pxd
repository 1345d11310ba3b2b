cpdef address(array)
