cimport cython
from libc.stdint cimport int64_t

cdef int64_t _BITS, _SIGN


@cython.locals(units=bytes, value=int64_t, position=Py_ssize_t, unit=int64_t)
cpdef int64_t java_hash(object text) except? -7777777777777
