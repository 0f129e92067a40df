cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol cimport memory
from kbroker.protocol.records cimport raw
from kbroker.protocol.records.batch_chunk cimport BatchChunk
from kbroker.protocol.records.offset_map cimport OffsetMap
from kbroker.protocol.records.scanner cimport RecordScanner

cdef int _DISCARD, _KEEP_EMPTY, _ENDS_EMPTY_TRANSACTION, _COMPRESSION, _LOG_APPEND_TIME, _TRANSACTIONAL_CONTROL
cdef int _CONTROL, _DELETE_HORIZON
cdef Py_ssize_t _SMALLEST_RECORD, _GROWTH, _HEADER, _MARK_NUMBERS
cdef object crc32c, compress, _MARK


@cython.final
cdef class RecordFilter:
    cdef OffsetMap map
    cdef RecordScanner scanner
    cdef readonly int64_t now_ms
    cdef readonly int64_t delete_horizon_ms
    cdef readonly Py_ssize_t index_interval
    cdef readonly int64_t records_read
    cdef readonly int64_t records_kept
    cdef readonly int64_t null_keys
    cdef bytearray output
    cdef unsigned char* output_data
    cdef readonly Py_ssize_t size
    cdef bytearray keep_flags
    cdef object last_offsets_view
    cdef int64_t* last_offsets
    cdef Py_ssize_t last_offsets_count
    cdef readonly int64_t position
    cdef int64_t since_entry
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t max_timestamp_offset
    cdef object mark_bytes
    cdef int64_t* mark_numbers
    cdef Py_ssize_t mark_count
    cdef int64_t kept
    cdef bint has_tombstone
    cdef int64_t first_timestamp
    cdef int64_t largest_kept

    cpdef begin(self, bytes last_offsets)
    @cython.locals(number=Py_ssize_t, state="void*", flags="unsigned char*")
    cpdef memoryview filter(self, BatchChunk chunk)
    cdef int _make_room(self, BatchChunk chunk) except -1
    cdef int _reserve(self, Py_ssize_t size) except -1

    @cython.locals(
        data="const unsigned char*", position=Py_ssize_t, verdict=int, attributes=int, size=Py_ssize_t, kept=int64_t,
        horizon=bint,
    )
    cdef Py_ssize_t _filter_plain(self, BatchChunk chunk, Py_ssize_t number, unsigned char* flags) noexcept nogil

    @cython.locals(payload=memoryview)
    cdef int _filter_compressed(self, BatchChunk chunk, Py_ssize_t number) except -1
    @cython.locals(
        length=Py_ssize_t, records="const unsigned char*", data="const unsigned char*",
        position=Py_ssize_t, attributes=int, size=Py_ssize_t, flags="unsigned char*", state="void*", good=bint,
        horizon=bint,
    )
    cdef int _filter_payload(self, BatchChunk chunk, Py_ssize_t number, memoryview payload) except -1

    @cython.locals(
        data="const unsigned char*", start=Py_ssize_t, rest=Py_ssize_t, state="void*", compression=int,
        compressed=memoryview, size=Py_ssize_t,
    )
    cdef int _recompress(
        self, BatchChunk chunk, Py_ssize_t position, const unsigned char* records, Py_ssize_t length,
        const unsigned char* flags, bint horizon
    ) except -1

    cdef bint _new_horizon(self, int attributes, int verdict) noexcept nogil
    @cython.locals(offset=int64_t, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef bint _is_last_of_producer(self, const unsigned char* data, Py_ssize_t position) noexcept nogil

    @cython.locals(
        base=int64_t, attributes=int, last_delta=int64_t, base_timestamp=int64_t, append_time=int64_t, count=int64_t,
        tombstones_stay=bint, index=int64_t, stays=bint, timestamp=int64_t,
    )
    cdef bint _judge(
        self, const unsigned char* data, Py_ssize_t header, const unsigned char* records, Py_ssize_t position,
        Py_ssize_t end, unsigned char* flags
    ) noexcept nogil

    cdef bint _stays(self, const unsigned char* records, int64_t offset, bint tombstones_stay) noexcept nogil

    @cython.locals(
        attributes=int, base_timestamp=int64_t, max_timestamp=int64_t, new_base=int64_t, kept_attributes=int,
        target="unsigned char*", at=Py_ssize_t, count=int64_t, index=int64_t, start=Py_ssize_t,
        delta=int64_t, body=Py_ssize_t,
    )
    cdef void _rewrite(
        self, const unsigned char* data, Py_ssize_t header, const unsigned char* records, Py_ssize_t position,
        Py_ssize_t end, const unsigned char* flags, bint horizon
    ) noexcept nogil

    @cython.locals(target="unsigned char*", at=Py_ssize_t)
    cdef void _put_header(
        self, const unsigned char* data, Py_ssize_t header, Py_ssize_t size, int64_t count, int attributes,
        int64_t base_timestamp, int64_t max_timestamp
    ) noexcept nogil

    @cython.locals(
        batches=Py_ssize_t, output="unsigned char*", at=Py_ssize_t, size=Py_ssize_t, crc=int64_t, timestamp=int64_t,
        last=int64_t,
    )
    cdef int _note_batches(self) except -1
    @cython.locals(at=Py_ssize_t)
    cdef int _mark(self, int64_t last_offset) except -1
