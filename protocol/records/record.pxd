cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol cimport memory
from kbroker.protocol.records cimport raw
from kbroker.protocol.records.batch cimport BatchHeader
from kbroker.protocol.records.reader cimport RecordReader

cdef tuple _NO_HEADERS
cdef Py_ssize_t _TURN


@cython.final
@cython.no_gc
cdef class Record:
    cdef public int64_t offset
    cdef public int64_t timestamp
    cdef public int timestamp_type
    cdef public int partition
    cdef public object key
    cdef public object value
    cdef public tuple headers
    cdef public str topic


@cython.locals(
    view=memoryview, header=BatchHeader, data="const unsigned char*", start=Py_ssize_t, end=Py_ssize_t,
    reader=RecordReader, timestamp_type=int, base_offset=int64_t, record=Record, records=list,
)
cpdef list decode_batch(
    object buffer, Py_ssize_t position=*, Py_ssize_t size=*, bint check_crc=*, int64_t from_offset=*, object topic=*,
    int partition=*, Py_ssize_t max_payload_size=*,
)

@cython.locals(
    view=memoryview, header=BatchHeader, start=Py_ssize_t, end=Py_ssize_t, reader=RecordReader, base_offset=int64_t,
    found=int64_t,
)
cpdef tuple find_time(
    object buffer, int64_t timestamp, int64_t from_offset, object output, Py_ssize_t max_payload_size=*
)

@cython.locals(view=memoryview, header=BatchHeader)
cpdef tuple open_batch(
    object buffer, Py_ssize_t position, Py_ssize_t size, bint check_crc, Py_ssize_t max_payload_size, object output=*
)

@cython.locals(header=BatchHeader, end=Py_ssize_t)
cdef BatchHeader _checked_header(memoryview view, Py_ssize_t position, Py_ssize_t size, bint check_crc)

@cython.locals(data="const unsigned char*", start=Py_ssize_t)
cdef tuple _read_headers(RecordReader reader)
