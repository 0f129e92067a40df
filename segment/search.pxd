cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol cimport memory

cdef Py_ssize_t _MAGIC, _LAST_OFFSET_DELTA, _LOOKED_AT, _OVERHEAD, _HEADER, _SMALLEST_MESSAGE


@cython.locals(
    data="const unsigned char*", low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, place=Py_ssize_t, value=int64_t,
)
cpdef Py_ssize_t count_up_to(
    memoryview entries, Py_ssize_t count, int64_t limit, Py_ssize_t entry_size, Py_ssize_t start, bint is_long
) except -1


@cython.locals(
    data="const unsigned char*", here=int64_t, end=int64_t, lowest=int64_t, known=int64_t, base_offset=int64_t, size=int64_t,
    smallest=int64_t, delta=int64_t,
)
cpdef tuple find_batch(memoryview chunk, int64_t last, int64_t room, int64_t offset, int64_t floor, int64_t indexed)
