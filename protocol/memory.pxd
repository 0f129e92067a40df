# The functions of memory.py in C, inlined into the compiled modules that cimport this; memory.py is not compiled.
# Nothing here checks a position: Reader and Writer do, before they call.
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline const unsigned char* readable(memoryview view) noexcept:
    return <const unsigned char*> PyMemoryView_GET_BUFFER(view).buf


cdef inline unsigned char* writable(bytearray buffer) noexcept:
    return <unsigned char*> PyByteArray_AS_STRING(buffer)


cdef inline long long load_int16(const unsigned char* data, Py_ssize_t position) noexcept nogil:
    data += position
    return <int16_t> ((<uint16_t> data[0] << 8) | <uint16_t> data[1])


cdef inline long long load_int32(const unsigned char* data, Py_ssize_t position) noexcept nogil:
    data += position
    return <int32_t> (
        (<uint32_t> data[0] << 24) | (<uint32_t> data[1] << 16) | (<uint32_t> data[2] << 8) | <uint32_t> data[3]
    )


cdef inline long long load_int64(const unsigned char* data, Py_ssize_t position) noexcept nogil:
    cdef uint64_t high = <uint32_t> load_int32(data, position)
    cdef uint64_t low = <uint32_t> load_int32(data, position + 4)
    return <int64_t> ((high << 32) | low)


cdef inline double load_float64(const unsigned char* data, Py_ssize_t position) noexcept:
    cdef int64_t bits = load_int64(data, position)
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef inline str load_text(const unsigned char* data, Py_ssize_t position, Py_ssize_t end):
    return PyUnicode_DecodeUTF8(<const char*> data + position, end - position, NULL)


cdef inline bytes load_bytes(const unsigned char* data, Py_ssize_t position, Py_ssize_t end):
    return data[position:end]


cdef inline void store_int16(unsigned char* data, Py_ssize_t position, long long value) noexcept nogil:
    cdef uint64_t bits = <uint64_t> value
    data += position
    data[0] = <unsigned char> (bits >> 8)
    data[1] = <unsigned char> bits


cdef inline void store_int32(unsigned char* data, Py_ssize_t position, long long value) noexcept nogil:
    cdef uint64_t bits = <uint64_t> value
    data += position
    data[0] = <unsigned char> (bits >> 24)
    data[1] = <unsigned char> (bits >> 16)
    data[2] = <unsigned char> (bits >> 8)
    data[3] = <unsigned char> bits


cdef inline void store_int64(unsigned char* data, Py_ssize_t position, long long value) noexcept nogil:
    store_int32(data, position, value >> 32)
    store_int32(data, position + 4, value)


cdef inline void store_float64(unsigned char* data, Py_ssize_t position, double value) noexcept:
    cdef int64_t bits
    memcpy(&bits, &value, 8)
    store_int64(data, position, bits)


cdef inline void store_bytes(unsigned char* data, Py_ssize_t position, bytes value) noexcept:
    memcpy(data + position, PyBytes_AS_STRING(value), len(value))
