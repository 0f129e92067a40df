cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol.records cimport raw

cdef Py_ssize_t _LARGEST_BATCH
cdef bytes _NO_HEADERS


@cython.final
cdef class BatchBuilder:
    cdef readonly int64_t batch_size
    cdef readonly int compression
    cdef readonly object level
    cdef bytearray buffer
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp

    @cython.locals(
        key_bytes=bytes, value_bytes=bytes, header_bytes=bytes, key_length=Py_ssize_t, value_length=Py_ssize_t,
        headers_length=Py_ssize_t, at=Py_ssize_t, target="unsigned char*",
    )
    cpdef bint append(self, object key, object value, object headers=*, int64_t timestamp=*) except -1

    @cython.locals(at=Py_ssize_t, target="unsigned char*")
    cdef bint append_slices(
        self,
        int64_t timestamp,
        const unsigned char* keys,
        Py_ssize_t key_start,
        Py_ssize_t key_length,
        const unsigned char* values,
        Py_ssize_t value_start,
        Py_ssize_t value_length,
        const unsigned char* headers,
        Py_ssize_t headers_length,
    ) except -1

    @cython.locals(delta=int64_t, length=int64_t, end=int64_t, at=Py_ssize_t, target="unsigned char*")
    cdef Py_ssize_t _open_record(
        self, int64_t timestamp, Py_ssize_t key_length, Py_ssize_t value_length, Py_ssize_t headers_length
    ) except? -7777777777777

    @cython.locals(capacity=int64_t)
    cdef int _grow(self, int64_t needed) except -1


cpdef bytes encode_headers(object headers)

@cython.locals(buffer=bytearray)
cpdef bytes encode_varint(int64_t value)
