cimport cython
from libc.stdint cimport int64_t, uint32_t
from kbroker.protocol.records cimport raw

cdef uint32_t _SEED, _M, _MASK, _CRC32_POLYNOMIAL, _FNV_OFFSET, _FNV_PRIME


@cython.locals(value=int64_t, view=memoryview)
cpdef int64_t murmur2(object data) except? -7777777777777

@cython.locals(view=memoryview)
cpdef int64_t partition_for_key(object key, int64_t partitions, int hashing=*) except -1

@cython.locals(value=uint32_t)
cdef int64_t _positive_hash(const unsigned char* data, Py_ssize_t start, Py_ssize_t length, int hashing) noexcept

@cython.locals(value=uint32_t, position=Py_ssize_t)
cdef uint32_t _crc32(const unsigned char* data, Py_ssize_t start, Py_ssize_t length) noexcept

@cython.locals(value=uint32_t, position=Py_ssize_t)
cdef uint32_t _fnv1a(const unsigned char* data, Py_ssize_t start, Py_ssize_t length) noexcept

@cython.locals(value=uint32_t, word=uint32_t, position=Py_ssize_t, end=Py_ssize_t, rest=Py_ssize_t)
cdef uint32_t _hash_range(const unsigned char* data, Py_ssize_t start, Py_ssize_t length) noexcept


@cython.final
cdef class KeyPartitioner:
    cdef int64_t partitions
    cdef int hashing

    cdef int64_t of_range(self, const unsigned char* data, Py_ssize_t start, Py_ssize_t length) noexcept
