cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol.records cimport raw

cdef Py_ssize_t _SMALLEST_RECORD
cdef int64_t _INT64_MAX, _BAD_NUMBER


@cython.final
cdef class RecordReader:
    cdef const unsigned char* data
    cdef memoryview view
    cdef readonly Py_ssize_t position
    cdef readonly Py_ssize_t limit
    cdef readonly Py_ssize_t end
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

    cdef int open(
        self, memoryview view, Py_ssize_t position, Py_ssize_t end, Py_ssize_t count, int64_t base_timestamp,
        int64_t last_offset_delta
    ) except -1
    @cython.locals(
        data="const unsigned char*", position=Py_ssize_t, limit=Py_ssize_t, length=int64_t, delta=int64_t
    )
    cpdef bint next_record(self) except -1
    cpdef int start_headers(self) except -1
    @cython.locals(data="const unsigned char*", position=Py_ssize_t, limit=Py_ssize_t, length=int64_t)
    cpdef int next_header(self) except -1
    @cython.locals(
        room=Py_ssize_t, key_start=Py_ssize_t, key_length=Py_ssize_t, value_start=Py_ssize_t, value_length=Py_ssize_t
    )
    cdef Py_ssize_t _check_headers(self) except -1
    @cython.locals(base=int64_t)
    cdef int64_t _absolute(self, int64_t delta) except? -7777777777777
    cdef object _bad_length(self, object what, int64_t length, Py_ssize_t room)
    cdef object _bad_delta(self, int64_t delta)
