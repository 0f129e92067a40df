cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol cimport memory
from kbroker.protocol.records cimport raw
from kbroker.protocol.records.batch cimport BatchHeader, read_header, verify_crc
from kbroker.protocol.records.offset_map cimport OffsetMap
from kbroker.protocol.records.scanner cimport RecordScanner

cdef int _DISCARD, _KEEP_EMPTY, _ENDS_EMPTY_TRANSACTION
cdef Py_ssize_t _SMALLEST_RECORD, _RECORDS_START, _BEFORE_LENGTH
cdef int _COMPRESSED


@cython.final
cdef class BatchChunk:
    cdef readonly list special
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t record_count
    cdef readonly Py_ssize_t end
    cdef readonly int64_t next_offset
    cdef bint full
    cdef bytearray scratch
    cdef bytearray verdict_bytes
    cdef unsigned char* verdicts
    cdef object places
    cdef int64_t* positions
    cdef memoryview view
    cdef const unsigned char* data
    cdef RecordScanner scanner

    cdef int _make_room(self, Py_ssize_t batches) except -1

    @cython.locals(length=Py_ssize_t, number=Py_ssize_t, position=Py_ssize_t, header=BatchHeader, size=Py_ssize_t)
    cpdef Py_ssize_t read(self, bytes data, int64_t floor=*) except -1

    cpdef Py_ssize_t position(self, Py_ssize_t number) except -1
    cpdef BatchHeader header(self, Py_ssize_t number)
    @cython.locals(position=Py_ssize_t)
    cpdef memoryview batch(self, Py_ssize_t number)

    @cython.locals(verdict=int)
    cpdef decide(self, Py_ssize_t number, bint discard, bint keep_empty=*, bint ends_empty_transaction=*)
    cdef int _check(self, Py_ssize_t number) except -1

    @cython.locals(header=BatchHeader, position=Py_ssize_t)
    cpdef memoryview open_payload(self, Py_ssize_t number)

    @cython.locals(number=Py_ssize_t, state="void*", payload=memoryview, good=bint)
    cpdef bint add_keys_to(self, OffsetMap offset_map, int64_t from_offset) except -1
    cdef object bad_records(self, Py_ssize_t number)

    @cython.locals(data="const unsigned char*", position=Py_ssize_t, end=Py_ssize_t, last=int64_t)
    cdef Py_ssize_t _map_plain(self, OffsetMap offset_map, int64_t from_offset, Py_ssize_t number) noexcept nogil

    @cython.locals(
        header=Py_ssize_t, base=int64_t, last_delta=int64_t, count=int64_t, offset=int64_t,
        _=int64_t,
    )
    cdef bint _map_records(
        self, OffsetMap offset_map, int64_t from_offset, Py_ssize_t number, const unsigned char* records,
        Py_ssize_t position, Py_ssize_t end
    ) noexcept nogil
