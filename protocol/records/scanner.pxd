cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol.records cimport raw

cdef int64_t _SMALLEST_LENGTH, _INT64_MAX, _BAD_NUMBER


@cython.final
cdef class RecordScanner:
    cdef readonly int64_t timestamp_delta
    cdef readonly int64_t offset_delta
    cdef readonly Py_ssize_t key_start
    cdef readonly int64_t key_length
    cdef readonly int64_t value_length
    cdef readonly Py_ssize_t body_start
    cdef readonly Py_ssize_t end

    @cython.locals(length=int64_t, delta=int64_t)
    cdef bint read(self, const unsigned char* data, Py_ssize_t position, Py_ssize_t limit) noexcept nogil

@cython.locals(length=int64_t)
cdef int64_t _length(const unsigned char* data, Py_ssize_t position, Py_ssize_t limit) noexcept nogil
