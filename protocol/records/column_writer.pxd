cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol.records cimport raw
from kbroker.protocol.records.builder cimport BatchBuilder
from kbroker.protocol.records.partitioner cimport KeyPartitioner


@cython.final
cdef class BinaryView:
    cdef readonly Py_ssize_t rows
    cdef memoryview offsets_view
    cdef memoryview data_view
    cdef memoryview validity_view
    cdef const int* offsets
    cdef const unsigned char* data
    cdef const unsigned char* validity
    cdef bint is_null

    @cython.locals(row=Py_ssize_t, offsets="const int*")
    cdef int _check(self, Py_ssize_t rows) except -1
    cdef Py_ssize_t length(self, Py_ssize_t row) noexcept


@cython.final
cdef class ColumnEncoder:
    cdef readonly Py_ssize_t partitions
    cdef KeyPartitioner partitioner
    cdef readonly int64_t shortest_key
    cdef readonly int64_t batch_size
    cdef readonly int compression
    cdef readonly object level
    cdef public int64_t producer_id
    cdef public int producer_epoch
    cdef public bint transactional
    cdef public list sequences
    cdef Py_ssize_t usual_size
    cdef list anywhere
    cdef Py_ssize_t turn
    cdef Py_ssize_t sticky
    cdef readonly Py_ssize_t rows_seen
    cdef list builders
    cdef list row_numbers
    cdef int64_t* first_rows
    cdef int64_t* last_rows
    cdef list done

    @cython.locals(
        keys=BinaryView, values=BinaryView, constant=int64_t, time_view=memoryview, times="const int64_t*",
        has_times=bint, target_view=memoryview, targets="const int*", has_targets=bint, header_rows=_HeaderRows,
        row=Py_ssize_t, key_length=Py_ssize_t, target=Py_ssize_t,
    )
    cpdef append(
        self, Py_ssize_t rows, object key, object value, object timestamps=*, object headers=*, object partition=*
    )
    @cython.locals(builder=BatchBuilder, headers_length=Py_ssize_t)
    cdef int _add(
        self, Py_ssize_t row, Py_ssize_t target, int64_t timestamp, BinaryView keys, Py_ssize_t key_length,
        BinaryView values, _HeaderRows headers,
    ) except -1
    @cython.locals(builder=BatchBuilder)
    cdef object _close(self, Py_ssize_t target)


@cython.final
cdef class _HeaderRows:
    cdef bytearray encoded
    cdef bint is_empty
    cdef memoryview offsets_view
    cdef const int* offsets
    cdef BinaryView keys
    cdef BinaryView values

    @cython.locals(
        keys=BinaryView, values=BinaryView, first=Py_ssize_t, last=Py_ssize_t, index=Py_ssize_t, length=Py_ssize_t,
        size=Py_ssize_t, at=Py_ssize_t, target="unsigned char*",
    )
    cdef Py_ssize_t encode(self, Py_ssize_t row) except -1
