cimport cython
from libc.stdint cimport int64_t
from protocol.records.batch cimport BatchHeader
from protocol.records.builder cimport BatchBuilder
from protocol.records.reader cimport RecordReader

cdef object _NO_HEADERS


@cython.final
cdef class Record:
    cdef public int64_t offset
    cdef public int64_t timestamp
    cdef public int timestamp_type
    cdef public int partition
    cdef public object key
    cdef public object value
    cdef public object headers
    cdef public object topic


@cython.locals(
    header=BatchHeader, payload=bytes, text="const char*", start=Py_ssize_t, end=Py_ssize_t, reader=RecordReader,
    timestamp_type=int, base_offset=int64_t, record=Record, records=list,
)
cpdef list decode_batch(
    object buffer, Py_ssize_t position=*, Py_ssize_t size=*, bint check_crc=*, int64_t from_offset=*, object topic=*,
    int partition=*, Py_ssize_t max_payload_size=*,
)

@cython.locals(header=BatchHeader, batch_size=int64_t)
cpdef tuple open_batch(
    object buffer, Py_ssize_t position, Py_ssize_t size, bint check_crc, Py_ssize_t max_payload_size, object output=*
)

cdef tuple _read_headers(RecordReader reader, bytes payload)
