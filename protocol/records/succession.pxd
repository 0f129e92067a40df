cimport cython
from libc.stdint cimport int64_t
from kbroker.protocol.records.batch cimport BatchHeader, read_header


@cython.locals(
    start=Py_ssize_t,
    position=Py_ssize_t,
    doubtful_at=Py_ssize_t,
    length=Py_ssize_t,
    next_offset=int64_t,
    believed_to=int64_t,
    limit=int64_t,
    resume_at=int64_t,
    last_base=int64_t,
    end=int64_t,
    base_offset=int64_t,
    following=int64_t,
    is_believed=bint,
    is_before=bint,
    is_whole=bint,
    header=BatchHeader,
)
cpdef look_through(object records, int64_t offset, int64_t high_watermark=*)

@cython.locals(header=BatchHeader, least=int64_t)
cdef int64_t _behind(object records, Py_ssize_t position, int64_t offset) except -2

@cython.locals(header=BatchHeader)
cdef tuple _first_beyond(object records, Py_ssize_t position, int64_t offset, int64_t limit)
