# The functions of raw.py in C, inlined into the compiled modules that cimport this; raw.py is not compiled.
from cpython.buffer cimport Py_buffer, PyBuffer_IsContiguous
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MIN, int64_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    void* PyEval_SaveThread() noexcept
    void PyEval_RestoreThread(void* state) noexcept

cdef extern from *:
    """
    #ifndef KBROKER_SHORT_CRC
    #define KBROKER_SHORT_CRC
    #include <stdint.h>
    #include <string.h>
    /* CRC-32C by the processor's own instruction, 8 bytes a step: for short batches the library's call costs more. */
    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("sse4.2"))) static int64_t kbroker_crc(const unsigned char *data, Py_ssize_t length) {
        uint64_t crc = 0xFFFFFFFFu, word;
        for (; length >= 8; data += 8, length -= 8) {
            memcpy(&word, data, 8);
            crc = __builtin_ia32_crc32di(crc, word);
        }
        uint32_t rest = (uint32_t) crc;
        for (; length > 0; data++, length--) {
            rest = __builtin_ia32_crc32qi(rest, *data);
        }
        return (int64_t) (rest ^ 0xFFFFFFFFu);
    }
    static inline int64_t kbroker_short_crc(const unsigned char *data, Py_ssize_t length) {
        return length <= 2048 && __builtin_cpu_supports("sse4.2") ? kbroker_crc(data, length) : -1;
    }
    #else
    static inline int64_t kbroker_short_crc(const unsigned char *data, Py_ssize_t length) { return -1; }
    #endif
    #endif
    """
    int64_t kbroker_short_crc(const unsigned char* data, Py_ssize_t length) noexcept nogil


cdef inline const unsigned char* address(memoryview view) except? NULL:
    cdef Py_buffer* buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.ndim != 1 or buffer.itemsize != 1 or not PyBuffer_IsContiguous(buffer, b"C"):
        raise ValueError("records lie in buffers of contiguous bytes")
    return <const unsigned char*> buffer.buf


cdef inline unsigned char* writable_address(memoryview view) except? NULL:
    if PyMemoryView_GET_BUFFER(view).readonly:
        raise ValueError("a buffer to write to is read-only")
    return <unsigned char*> address(view)


cdef inline const unsigned char* bytes_address(bytes value) noexcept:
    return <const unsigned char*> PyBytes_AS_STRING(value)


cdef inline unsigned char* bytearray_address(bytearray value) noexcept:
    return <unsigned char*> PyByteArray_AS_STRING(value)


cdef inline memoryview aligned(memoryview view, Py_ssize_t width):
    if <uint64_t> address(view) % <uint64_t> width:
        return memoryview(bytes(view))
    return view


cdef inline int* int32_address(memoryview view) except? NULL:
    return <int*> address(view)


cdef inline int64_t* int64_address(memoryview view) except? NULL:
    return <int64_t*> address(view)


cdef inline uint64_t* uint64_address(memoryview view) except? NULL:
    return <uint64_t*> address(view)


cdef inline uint64_t load_word(const unsigned char* data, Py_ssize_t position) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, data + position, 8)
    return word


cdef inline void* release_gil() noexcept:
    return PyEval_SaveThread()


cdef inline void take_gil(void* state) noexcept:
    PyEval_RestoreThread(state)


cdef inline void copy(
    unsigned char* target, Py_ssize_t at, const unsigned char* source, Py_ssize_t start, Py_ssize_t length
) noexcept nogil:
    memcpy(target + at, source + start, length)


cdef inline int resize(bytearray buffer, Py_ssize_t size) except -1:
    return PyByteArray_Resize(buffer, size)


cdef inline bint is_text(const unsigned char* data, Py_ssize_t start, Py_ssize_t length) except -1:
    cdef unsigned char bits = 0
    cdef Py_ssize_t i
    for i in range(length):
        bits |= data[start + i]
    if bits < 128:
        return True
    try:
        PyUnicode_DecodeUTF8(<const char*> data + start, length, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef inline int64_t short_crc(const unsigned char* data, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    return kbroker_short_crc(data + start, end - start)


cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t rest = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    cdef int size = 1
    while rest > 127:
        rest >>= 7
        size += 1
    return size


cdef inline Py_ssize_t put_varint(unsigned char* target, Py_ssize_t at, int64_t value) noexcept nogil:
    cdef uint64_t rest = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    while rest > 127:
        target[at] = <unsigned char> ((rest & 127) | 128)
        rest >>= 7
        at += 1
    target[at] = <unsigned char> rest
    return at + 1


cdef inline int64_t varint(const unsigned char* data, Py_ssize_t position, Py_ssize_t limit) noexcept nogil:
    return _short_number(data, position, limit, 28)


cdef inline int64_t varlong(const unsigned char* data, Py_ssize_t position, Py_ssize_t limit) noexcept nogil:
    return _short_number(data, position, limit, 63)


cdef inline int64_t _short_number(
    const unsigned char* data, Py_ssize_t position, Py_ssize_t limit, int last_shift
) noexcept nogil:
    # One and two bytes are nearly all that is met.
    cdef unsigned int value
    if position < limit and data[position] < 128:
        value = data[position]
    elif position + 1 < limit and data[position + 1] < 128:
        value = (data[position] & 127) | (<unsigned int> data[position + 1] << 7)
    else:
        return _number(data, position, limit, last_shift)
    return <int64_t> (value >> 1) ^ -<int64_t> (value & 1)


cdef inline Py_ssize_t varint_end(const unsigned char* data, Py_ssize_t position) noexcept nogil:
    while data[position] > 127:
        position += 1
    return position + 1


cdef inline int64_t _number(
    const unsigned char* data, Py_ssize_t position, Py_ssize_t limit, int last_shift
) noexcept nogil:
    cdef uint64_t value = 0
    cdef uint64_t byte
    cdef int shift = 0
    while position < limit:
        byte = data[position]
        position += 1
        if byte < 128:
            if shift == last_shift and byte > (15 if last_shift == 28 else 1):
                break
            value |= byte << shift
            return <int64_t> ((value >> 1) ^ -(value & 1))
        if shift == last_shift:
            break
        value |= (byte & 127) << shift
        shift += 7
    return INT64_MIN
