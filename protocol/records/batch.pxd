cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol cimport memory
from kbroker.protocol.records cimport raw
from kbroker.protocol.records.reader cimport RecordReader

cdef int64_t _LAST_BASE_OFFSET, _LARGE
cdef Py_ssize_t _MAGIC, _TURN
cdef list _ZEROS

cdef object _INT64, _INT32, _UINT32, _INT16, _PRODUCER, _LENGTH_TO_MAGIC
cdef object crc32c, decompress


@cython.final
cdef class BatchHeader:
    cdef public int64_t base_offset
    cdef public int batch_length
    cdef public int partition_leader_epoch
    cdef public int magic
    cdef public unsigned int crc
    cdef public int attributes
    cdef public int last_offset_delta
    cdef public int64_t base_timestamp
    cdef public int64_t max_timestamp
    cdef public int64_t producer_id
    cdef public int producer_epoch
    cdef public int base_sequence
    cdef public int count


@cython.final
cdef class RecordsSummary:
    cdef public int64_t max_timestamp
    cdef public int64_t offset_of_max_timestamp
    cdef public int64_t min_timestamp
    cdef public bint has_null_key


cpdef BatchHeader read_header(object buffer, Py_ssize_t position=*)

@cython.locals(view=memoryview, header=BatchHeader, end=Py_ssize_t, count=Py_ssize_t)
cpdef tuple check_batch(object buffer, Py_ssize_t position=*, Py_ssize_t size=*)

@cython.locals(view=memoryview, expected=int64_t)
cpdef bint verify_crc(object buffer, Py_ssize_t position, Py_ssize_t size) except -1

@cython.locals(view=memoryview, header=BatchHeader, payload=memoryview)
cpdef RecordsSummary validate_records(
    object buffer, Py_ssize_t position, Py_ssize_t size, Py_ssize_t max_payload_size=*, object output=*
)

@cython.locals(batch_length=int64_t, magic=int, size=int64_t, position=Py_ssize_t, length=Py_ssize_t)
cpdef list split_batches(object buffer)

@cython.locals(power=Py_ssize_t)
cpdef unsigned int followed_by(unsigned int crc, Py_ssize_t count)

@cython.locals(product=cython.uint, bit=cython.uint)
cdef unsigned int _product(unsigned int a, unsigned int b)

@cython.locals(view=memoryview, data="const unsigned char*", batch_length=int64_t, position=Py_ssize_t, length=Py_ssize_t)
cpdef bint holds_messages(object buffer) except -1

cdef int _check_magic_and_length(int magic, int batch_length, Py_ssize_t position) except -1

@cython.locals(data="const unsigned char*", header=BatchHeader)
cdef BatchHeader _read_header(memoryview view, Py_ssize_t position)

@cython.locals(value=int)
cdef int _int8(const unsigned char* data, Py_ssize_t position) noexcept

@cython.locals(value=int64_t)
cdef int64_t _crc(memoryview view, Py_ssize_t start, Py_ssize_t end) except -1

@cython.locals(
    reader=RecordReader,
    max_timestamp=int64_t,
    min_timestamp=int64_t,
    timestamp=int64_t,
    max_index=Py_ssize_t,
    index=Py_ssize_t,
    null_keys=Py_ssize_t,
    summary=RecordsSummary,
)
cdef RecordsSummary _walk(BatchHeader header, memoryview payload, Py_ssize_t start, Py_ssize_t end)
