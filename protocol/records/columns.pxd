cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol cimport memory
from kbroker.protocol.records cimport raw
from kbroker.protocol.records.batch cimport BatchHeader
from kbroker.protocol.records.reader cimport RecordReader

cdef int64_t _INT64_MAX, _MAX_MILLISECONDS


@cython.final
cdef class BinaryBuffers:
    cdef object pool
    cdef Py_ssize_t rows
    cdef Py_ssize_t null_count
    cdef object offsets_buffer
    cdef object data_buffer
    cdef object validity_buffer
    cdef int* offsets
    cdef unsigned char* data
    cdef unsigned char* validity

    cdef int _borrow_offsets(self, Py_ssize_t rows) except -1
    cdef int _borrow_data(self, Py_ssize_t data_bytes) except -1
    cdef int _borrow_validity(self, Py_ssize_t size) except -1
    @cython.locals(used=int64_t, wanted=int64_t, used_bits=Py_ssize_t)
    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t data_bytes) except -1
    cdef int set_null(self, Py_ssize_t row) except -1
    cdef int _fill_validity(self, Py_ssize_t first_byte) except -1
    @cython.locals(at=Py_ssize_t)
    cdef int append(self, const unsigned char* source, Py_ssize_t start, Py_ssize_t length) except -1
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
    cdef bint is_waiting
    cdef object scratch
    cdef object records
    cdef Py_ssize_t record_position
    cdef BatchHeader header
    cdef RecordReader reader
    cdef BinaryBuffers keys
    cdef BinaryBuffers values
    cdef BinaryBuffers header_keys
    cdef BinaryBuffers header_values
    cdef list fixed
    cdef int64_t* offset_column
    cdef int64_t* timestamp_column
    cdef int* timestamp_type_column
    cdef int* partition_column
    cdef int* header_offsets

    @cython.locals(rows=Py_ssize_t)
    cdef int _borrow(self) except -1
    @cython.locals(last=int64_t, length=Py_ssize_t, header=BatchHeader)
    cpdef Py_ssize_t append(
        self, object records, int partition, int64_t from_offset=*, object to_offset=*, Py_ssize_t position=*,
        object aborted=*, bint check_crc=*,
    ) except -1
    @cython.locals(header=BatchHeader, view=memoryview, reader=RecordReader, start=Py_ssize_t, end=Py_ssize_t, used=int64_t)
    cdef bint _open(self, object records, Py_ssize_t position, bint check_crc) except -1
    @cython.locals(rows=Py_ssize_t)
    cdef int _reserve(self, Py_ssize_t records, Py_ssize_t payload_bytes) except -1
    @cython.locals(first_row=Py_ssize_t, header_rows=Py_ssize_t)
    cdef bint _take_rows(self, int partition, int64_t from_offset, int64_t to_offset) except -1
    @cython.locals(
        reader=RecordReader, data="const unsigned char*", header=BatchHeader, base_offset=int64_t,
        timestamp_type=int, keys=BinaryBuffers, values=BinaryBuffers, key_data="unsigned char*",
        key_offsets="int*", value_data="unsigned char*", value_offsets="int*", offsets="int64_t*",
        timestamps="int64_t*", timestamp_types="int*", partitions="int*", row=Py_ssize_t,
        key_at=Py_ssize_t, value_at=Py_ssize_t, done=bint, offset=int64_t, length=Py_ssize_t,
    )
    cdef bint _copy_rows(self, int partition, int64_t from_offset, int64_t to_offset) except -1
    @cython.locals(reader=RecordReader, data="const unsigned char*", room=Py_ssize_t)
    cdef int _copy_headers(self, Py_ssize_t row) except -1
    @cython.locals(reader=RecordReader, keys=BinaryBuffers, start=Py_ssize_t, text=bytes)
    cdef int _append_repaired(self) except -1
    cdef Py_ssize_t _close_batch(self) except -1
    @cython.locals(rows=Py_ssize_t)
    cpdef object finish(self)


cdef int64_t _microseconds(int64_t milliseconds) noexcept
