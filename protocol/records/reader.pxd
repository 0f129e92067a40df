cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef Py_ssize_t _SMALLEST_RECORD
cdef int64_t _INT64_MAX


@cython.final
cdef class RecordReader:
    cdef const unsigned char[::1] data
    cdef readonly Py_ssize_t position
    cdef readonly Py_ssize_t end
    cdef readonly Py_ssize_t limit
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t index
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t last_offset_delta
    cdef readonly int64_t timestamp
    cdef readonly int64_t offset_delta
    cdef readonly Py_ssize_t key_start
    cdef readonly Py_ssize_t key_length
    cdef readonly Py_ssize_t value_start
    cdef readonly Py_ssize_t value_length
    cdef readonly Py_ssize_t headers_start
    cdef readonly int64_t header_count

    @cython.locals(length=int64_t)
    cpdef bint next_record(self) except -1
    cpdef int start_headers(self) except -1
    cpdef int next_header(self) except -1
    @cython.locals(position=Py_ssize_t, limit=Py_ssize_t, value=uint64_t, byte=uint64_t, shift="int")
    cdef int64_t read_varint(self, int last_shift) except? -7777777777777
    @cython.locals(length=int64_t)
    cdef int _read_pair(self) except -1
    @cython.locals(key_start=Py_ssize_t, key_length=Py_ssize_t, value_start=Py_ssize_t, value_length=Py_ssize_t)
    cdef int _check_headers(self) except -1
    @cython.locals(base=int64_t)
    cdef int64_t _absolute(self, int64_t delta) except? -7777777777777
