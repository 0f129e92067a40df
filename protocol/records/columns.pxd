cimport cython
from libc.stdint cimport int64_t
from protocol.records.batch cimport BatchHeader
from protocol.records.reader cimport RecordReader

cdef int64_t _INT64_MAX, _MAX_MILLISECONDS
cdef bint _INTERPRETED


@cython.final
cdef class BinaryBuffers:
    cdef object pool
    cdef Py_ssize_t rows
    cdef Py_ssize_t null_count
    cdef object offsets_buffer
    cdef object data_buffer
    cdef object validity_buffer
    cdef int[::1] offsets
    cdef unsigned char[::1] data
    cdef unsigned char[::1] validity

    cdef int _borrow(self, Py_ssize_t rows, Py_ssize_t data_bytes) except -1
    @cython.locals(used=int64_t, wanted=int64_t, used_bits=Py_ssize_t)
    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t data_bytes) except -1
    cdef int set_null(self, Py_ssize_t row) except -1
    cdef int _fill_validity(self, Py_ssize_t first_byte) except -1
    @cython.locals(at=Py_ssize_t)
    cdef int append(self, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(row=Py_ssize_t)
    cdef int cut_to(self, Py_ssize_t rows) except -1
    cdef object finish(self)


@cython.final
cdef class ColumnDecoder:
    cdef readonly Py_ssize_t row_limit
    cdef readonly Py_ssize_t byte_limit
    cdef readonly bint with_headers
    cdef readonly Py_ssize_t max_payload_size
    cdef readonly object pool
    cdef readonly int64_t next_offset
    cdef readonly bint full
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t scanned
    cdef object scratch
    cdef object records
    cdef Py_ssize_t record_position
    cdef BatchHeader header
    cdef RecordReader reader
    cdef const unsigned char[::1] payload
    cdef BinaryBuffers keys
    cdef BinaryBuffers values
    cdef BinaryBuffers header_keys
    cdef BinaryBuffers header_values
    cdef list fixed
    cdef long long[::1] offset_column
    cdef long long[::1] timestamp_column
    cdef int[::1] timestamp_type_column
    cdef int[::1] partition_column
    cdef int[::1] header_offsets

    cdef int _borrow(self) except -1
    @cython.locals(last=int64_t, length=Py_ssize_t, header=BatchHeader)
    cpdef Py_ssize_t append(
        self, object records, int partition, int64_t from_offset=*, object to_offset=*, Py_ssize_t position=*,
        object aborted=*, bint check_crc=*,
    ) except -1
    @cython.locals(header=BatchHeader, start=Py_ssize_t, end=Py_ssize_t, used=int64_t)
    cdef bint _open(self, object records, Py_ssize_t position, bint check_crc) except -1
    @cython.locals(rows=Py_ssize_t)
    cdef int _reserve(self, Py_ssize_t records, Py_ssize_t payload_bytes) except -1
    @cython.locals(first_row=Py_ssize_t, header_rows=Py_ssize_t)
    cdef bint _take_rows(self, int partition, int64_t from_offset, int64_t to_offset) except -1
    @cython.locals(
        reader=RecordReader, data="const unsigned char[::1]", header=BatchHeader, base_offset=int64_t,
        timestamp_type=int, keys=BinaryBuffers, values=BinaryBuffers, key_data="unsigned char[::1]",
        key_offsets="int[::1]", value_data="unsigned char[::1]", value_offsets="int[::1]", offsets="long long[::1]",
        timestamps="long long[::1]", timestamp_types="int[::1]", partitions="int[::1]", row=Py_ssize_t,
        key_at=Py_ssize_t, value_at=Py_ssize_t, done=bint, offset=int64_t, length=Py_ssize_t,
        start=Py_ssize_t, i=Py_ssize_t,
    )
    cdef bint _copy_rows(self, int partition, int64_t from_offset, int64_t to_offset) except -1
    @cython.locals(reader=RecordReader, room=Py_ssize_t)
    cdef int _copy_headers(self, Py_ssize_t row) except -1
    cdef Py_ssize_t _close_batch(self) except -1
    @cython.locals(rows=Py_ssize_t)
    cpdef object finish(self)


cdef int64_t _microseconds(int64_t milliseconds) noexcept

@cython.locals(i=Py_ssize_t)
cdef void _copy(
    unsigned char[::1] target, Py_ssize_t at, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t length
) noexcept

cdef int _copy_slice(
    unsigned char[::1] target, Py_ssize_t at, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t length
) except -1
