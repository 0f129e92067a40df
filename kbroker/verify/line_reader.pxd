cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol.records cimport raw

cdef int64_t SEND, POLL, TXN, OK_CODE, FAIL_CODE, INFO_CODE, INVOKE_CODE, OPERATION_WIDTH, RECORD_WIDTH
cdef int64_t BYTES_PER_OPERATION, BYTES_PER_RECORD, _MOST_DIGITS
cdef unsigned char _NEWLINE, _SPACE, _QUOTE, _BACKSLASH, _ZERO, _NINE
cdef unsigned char _COMMA, _COLON, _OPEN, _CLOSE, _OPEN_MAP, _CLOSE_MAP


@cython.final
cdef class LineReader:
    cdef readonly memoryview operation_rows, send_rows, read_rows
    cdef readonly Py_ssize_t most_bytes
    cdef public dict waiting
    cdef dict processes, key_numbers, record_key_numbers
    cdef object keys, record_keys
    cdef readonly int64_t operations, sends, reads, first_row
    cdef int64_t number, commit_time
    cdef bint final
    cdef Py_ssize_t text_start, text_end

    @cython.locals(end=Py_ssize_t, data="const unsigned char*", sends=int64_t, reads=int64_t, after=Py_ssize_t)
    cpdef Py_ssize_t read(self, bytes piece, Py_ssize_t position) except -1

    @cython.locals(at=Py_ssize_t, index=int64_t, process=int64_t, type=int64_t, kind=int64_t, time=int64_t)
    cdef Py_ssize_t _line(self, bytes piece, const unsigned char* data, Py_ssize_t start) except -2

    @cython.locals(begun=tuple, number=object, rows="int64_t*", row=Py_ssize_t)
    cdef bint _complete(self, int64_t process, int64_t kind, int64_t type, int64_t index, int64_t time) except -1

    cdef Py_ssize_t _sign(self, const unsigned char* data, Py_ssize_t at, unsigned char sign) noexcept

    @cython.locals(wanted="const unsigned char*", number=Py_ssize_t)
    cdef Py_ssize_t _name(self, const unsigned char* data, Py_ssize_t at, bytes name) noexcept

    @cython.locals(found=int64_t, begin=Py_ssize_t)
    cdef Py_ssize_t _number(self, const unsigned char* data, Py_ssize_t at) noexcept

    cdef Py_ssize_t _text(self, const unsigned char* data, Py_ssize_t at) noexcept

    @cython.locals(size=Py_ssize_t, first=cython.uchar)
    cdef int64_t _type(self, const unsigned char* data) noexcept

    @cython.locals(size=Py_ssize_t, first=cython.uchar)
    cdef int64_t _kind(self, const unsigned char* data) noexcept

    @cython.locals(depth=Py_ssize_t)
    cdef Py_ssize_t _skipped(self, const unsigned char* data, Py_ssize_t at) noexcept

    @cython.locals(after=Py_ssize_t, kind=int64_t)
    cdef Py_ssize_t _operations(self, const unsigned char* data, Py_ssize_t at) except -2

    @cython.locals(key=int64_t, row=Py_ssize_t)
    cdef Py_ssize_t _send(self, const unsigned char* data, Py_ssize_t at) except -2

    @cython.locals(after=Py_ssize_t, rows="int64_t*", key=int64_t)
    cdef Py_ssize_t _poll(self, const unsigned char* data, Py_ssize_t at) except -2

    @cython.locals(offset=int64_t, value=int64_t, record_key=int64_t, after=Py_ssize_t)
    cdef Py_ssize_t _place(
        self, const unsigned char* data, Py_ssize_t at, int64_t* rows, Py_ssize_t row, int64_t key
    ) except -2

    cdef void _fill(
        self, int64_t* rows, Py_ssize_t row, int64_t key, int64_t value, int64_t offset, int64_t record_key
    ) noexcept

    @cython.locals(text=bytes, number=object)
    cdef int64_t _numbered(self, dict known, object names, const unsigned char* data) except -1

    @cython.locals(after=Py_ssize_t)
    cdef Py_ssize_t _next(self, const unsigned char* data, Py_ssize_t at, unsigned char close) noexcept

    @cython.locals(after=Py_ssize_t)
    cdef Py_ssize_t _more(self, const unsigned char* data, Py_ssize_t at) noexcept

    @cython.locals(sign=cython.uchar)
    cdef Py_ssize_t _true(self, const unsigned char* data, Py_ssize_t at) noexcept
