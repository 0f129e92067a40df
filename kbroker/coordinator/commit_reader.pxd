cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol cimport memory
from kbroker.protocol.records cimport raw
from kbroker.protocol.records.batch cimport verify_crc
from kbroker.protocol.records.reader cimport RecordReader

cdef int64_t _KEY_VERSION, _VALUE_VERSION, _GROUP_START, _METADATA_START, _HEADER, _BEFORE_LENGTH, _NOT_PLAIN, _MAGIC
cdef object CommittedOffset


@cython.final
cdef class CommitReader:
    cdef readonly dict commits
    cdef readonly dict places
    cdef readonly list odd
    cdef readonly Py_ssize_t records
    cdef readonly int64_t next_offset
    cdef dict topics

    @cython.locals(
        view=memoryview, address="const unsigned char*", length=Py_ssize_t, size=int64_t, next_offset=int64_t,
    )
    cpdef Py_ssize_t read(self, bytes data, Py_ssize_t position, int64_t from_offset) except -1

    @cython.locals(
        base_offset=int64_t, last_delta=int64_t, reader=RecordReader, start=Py_ssize_t, key=bytes, value=object,
    )
    cdef bint _take(
        self, memoryview view, const unsigned char* data, Py_ssize_t position, Py_ssize_t end
    ) except -1

    cpdef resolve(self, object found)

    @cython.locals(
        size=Py_ssize_t, data="const unsigned char*", group_end=Py_ssize_t, topic_end=Py_ssize_t, end=Py_ssize_t,
        topic=object, metadata=object, group=bytes, known=tuple,
    )
    cdef bint _resolve(self, bytes key, bytes value, object record_offset) except -1

    cdef object _topic(self, bytes name)


cdef object _text(bytes data)
