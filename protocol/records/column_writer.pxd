cimport cython
from libc.stdint cimport int64_t
from protocol.records.builder cimport BatchBuilder
from protocol.records.partitioner cimport KeyPartitioner

cdef bytes _EMPTY_HEADERS


@cython.final
cdef class BinaryView:
    cdef readonly Py_ssize_t rows
    cdef const int[::1] offsets
    cdef const unsigned char[::1] data
    cdef const unsigned char[::1] validity
    cdef bint is_null

    @cython.locals(row=Py_ssize_t)
    cdef int _check(self, Py_ssize_t rows) except -1
    cdef Py_ssize_t length(self, Py_ssize_t row) noexcept


@cython.final
cdef class ColumnEncoder:
    cdef readonly Py_ssize_t partitions
    cdef KeyPartitioner partitioner
    cdef readonly int64_t batch_size
    cdef readonly int compression
    cdef readonly object level
    cdef public int64_t producer_id
    cdef public int producer_epoch
    cdef public list sequences
    cdef Py_ssize_t sticky
    cdef readonly Py_ssize_t rows_seen
    cdef list builders
    cdef list first_rows
    cdef list last_rows
    cdef list done

    @cython.locals(
        keys=BinaryView, values=BinaryView, constant=int64_t, times="const long long[::1]", targets="const int[::1]",
        header_rows=_HeaderRows, row=Py_ssize_t, key_length=Py_ssize_t, target=Py_ssize_t, timestamp=int64_t,
        blob=bytes,
    )
    cpdef append(
        self, Py_ssize_t rows, object key, object value, object timestamps=*, object headers=*, object partition=*
    )
    @cython.locals(builder=BatchBuilder)
    cdef int _add(
        self, Py_ssize_t row, Py_ssize_t target, int64_t timestamp, BinaryView keys, Py_ssize_t key_length,
        BinaryView values, Py_ssize_t value_length, bytes blob,
    ) except -1
    @cython.locals(builder=BatchBuilder)
    cdef object _close(self, Py_ssize_t target)


@cython.final
cdef class _HeaderRows:
    cdef const int[::1] offsets
    cdef BinaryView keys
    cdef BinaryView values

    @cython.locals(first=Py_ssize_t, last=Py_ssize_t, index=Py_ssize_t, length=Py_ssize_t, start=Py_ssize_t, column=BinaryView)
    cdef bytes encode(self, Py_ssize_t row)
