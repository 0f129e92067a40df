cimport cython
from libc.stdint cimport int64_t, uint64_t
from kbroker.protocol.records cimport raw

cdef uint64_t _MASK, _START_0, _START_1, _START_2, _START_3
cdef Py_ssize_t _FINAL_ROUNDS


@cython.final
cdef class OffsetMap:
    cdef object table
    cdef uint64_t* cells
    cdef readonly uint64_t slots
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef public int64_t latest_offset
    cdef public uint64_t seed_low
    cdef public uint64_t seed_high
    cdef readonly uint64_t hash_low
    cdef readonly uint64_t hash_high

    cpdef add(self, bytes key, int64_t offset)
    cpdef latest(self, bytes key)

    @cython.locals(at=Py_ssize_t, cells="uint64_t*")
    cdef void put(self, const unsigned char* data, Py_ssize_t start, Py_ssize_t length, int64_t offset) noexcept nogil

    @cython.locals(at=Py_ssize_t)
    cdef int64_t find(self, const unsigned char* data, Py_ssize_t start, Py_ssize_t length) noexcept nogil

    @cython.locals(low=uint64_t, high=uint64_t, cells="uint64_t*", slots=uint64_t, slot=uint64_t, at=Py_ssize_t)
    cdef Py_ssize_t place(self, const unsigned char* data, Py_ssize_t start, Py_ssize_t length) noexcept nogil

    @cython.locals(
        mask=uint64_t, v0=uint64_t, v1=uint64_t, v2=uint64_t, v3=uint64_t, words=Py_ssize_t, last=uint64_t,
        shift=int, position=Py_ssize_t, word=uint64_t, step=Py_ssize_t,
    )
    cdef void digest(self, const unsigned char* data, Py_ssize_t start, Py_ssize_t length) noexcept nogil
