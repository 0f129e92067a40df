cimport cython
from libc.stdint cimport int64_t

from kbroker.protocol cimport memory

cdef Py_ssize_t SMALL_RECORDS, TEXT_PER_ELEMENT, MOST_GROWTH


@cython.final
cdef class Reader:
    cdef readonly memoryview view
    cdef const unsigned char* data
    cdef public Py_ssize_t position
    cdef public Py_ssize_t end
    cdef readonly Py_ssize_t elements_left

    cpdef Py_ssize_t remaining(self)
    @cython.locals(position=Py_ssize_t)
    cpdef Py_ssize_t advance(self, Py_ssize_t size) except -1
    cpdef int count_elements(self, Py_ssize_t count) except -1
    @cython.locals(position=Py_ssize_t)
    cpdef bint read_bool(self) except? -1
    @cython.locals(position=Py_ssize_t, value="int")
    cpdef int64_t read_int8(self) except? -77
    @cython.locals(position=Py_ssize_t)
    cpdef int64_t read_int16(self) except? -7777
    @cython.locals(position=Py_ssize_t)
    cpdef int64_t read_int32(self) except? -77777777
    @cython.locals(position=Py_ssize_t, numbers=list, _index=Py_ssize_t)
    cpdef list read_int32s(self, Py_ssize_t count)
    @cython.locals(position=Py_ssize_t)
    cpdef int64_t read_int64(self) except? -7777777777777
    @cython.locals(position=Py_ssize_t)
    cpdef double read_float64(self) except? -77.0
    @cython.locals(position=Py_ssize_t, value=int64_t, shift="int", byte=int64_t)
    cpdef int64_t read_varint(self) except -1
    @cython.locals(position=Py_ssize_t)
    cpdef str read_text(self, Py_ssize_t length)
    @cython.locals(position=Py_ssize_t)
    cpdef bytes read_bytes(self, Py_ssize_t length)
    @cython.locals(position=Py_ssize_t)
    cpdef memoryview read_view(self, Py_ssize_t length)


@cython.final
cdef class Writer:
    cdef bytearray buffer
    cdef unsigned char* data
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t position
    cdef readonly list outside
    cdef readonly Py_ssize_t outside_size
    cdef readonly Py_ssize_t elements_left
    cdef readonly Py_ssize_t most_bytes

    cpdef int check_size(self) except -1
    cpdef int count_elements(self, Py_ssize_t count) except -1
    @cython.locals(position=Py_ssize_t)
    cpdef Py_ssize_t reserve(self, Py_ssize_t size) except -1
    @cython.locals(position=Py_ssize_t)
    cpdef int write_bool(self, bint value) except -1
    @cython.locals(position=Py_ssize_t)
    cpdef int write_int8(self, int64_t value) except -1
    @cython.locals(position=Py_ssize_t)
    cpdef int write_int16(self, int64_t value) except -1
    @cython.locals(position=Py_ssize_t)
    cpdef int write_int32(self, int64_t value) except -1
    @cython.locals(position=Py_ssize_t)
    cpdef int write_int64(self, int64_t value) except -1
    @cython.locals(position=Py_ssize_t)
    cpdef int write_float64(self, double value) except -1
    @cython.locals(position=Py_ssize_t)
    cpdef int write_varint(self, int64_t value) except -1
    cpdef int write_text(self, bytes text) except -1
    @cython.locals(position=Py_ssize_t)
    cpdef int write_raw(self, bytes value) except -1
    @cython.locals(size=Py_ssize_t)
    cpdef int write_records(self, value) except -1
    cpdef Py_ssize_t size(self)
    cpdef bytes to_bytes(self)
    cpdef list frame(self)
    @cython.locals(view=memoryview, parts=list, outside=tuple, start=Py_ssize_t, position=Py_ssize_t)
    cpdef list parts(self)


cpdef Py_ssize_t size_of(value) except -1
