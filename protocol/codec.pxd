cimport cython
from libc.stdint cimport int64_t

from kbroker.protocol cimport slots
from kbroker.protocol.plans cimport Plan, Step, element_plan, plan_of
from kbroker.protocol.primitives cimport Reader, Writer, size_of

cdef int BOOL, INT8, INT16, INT32, INT64, FLOAT64, STRING, RECORDS, UUID, ERROR, STRUCT
cdef list _ERRORS
cdef int NUMBERS_PER_ELEMENT, STEP_ELEMENTS, LONGEST_STRING, MOST_COPIED
cdef int _KNOWN_ERRORS


@cython.final
cdef class EncodedArray:
    cdef readonly Py_ssize_t count
    cdef readonly object parts



@cython.final
cdef class ElementWriter:
    cdef object message_type
    cdef object version
    cdef readonly Py_ssize_t count
    cdef Writer writer
    cdef Plan plan

    cpdef append(self, struct)
    cpdef array(self)


cpdef bytes encode_elements(structs, message_type, version)
@cython.locals(step=Step)
cdef object _read_struct(Reader reader, Plan plan)
@cython.locals(kind="int", code=int64_t)
cdef object _read_value(Reader reader, Step step)
@cython.locals(length=Py_ssize_t)
cdef object _read_string(Reader reader, Step step)
cdef void _refuse_long(Py_ssize_t length, Step step) except *
@cython.locals(length=Py_ssize_t)
cdef object _read_blob(Reader reader, Step step)
cdef object _null(Step step)
cdef object _read_array(Reader reader, Step step)
@cython.locals(count=Py_ssize_t)
cdef Py_ssize_t _read_count(Reader reader, Step step) except -2
@cython.locals(_index=Py_ssize_t, elements=list, kind="int", plan=Plan)
cdef object _read_elements(Reader reader, Step step, Py_ssize_t count)
@cython.locals(length=Py_ssize_t)
cdef object _read_element(Reader reader, Step step)
@cython.locals(step=Step, count=Py_ssize_t, _index=Py_ssize_t, tag=int64_t, size=Py_ssize_t)
cdef void _read_tagged(Reader reader, Plan plan, struct) except *
cdef object _read_tagged_value(Reader reader, Step step)

@cython.locals(step=Step)
cdef void _write_struct(Writer writer, struct, Plan plan) except *
@cython.locals(step=Step)
cdef void _check_struct(struct, Plan plan) except *
cdef bint _is_default(value, default) except -1
@cython.locals(kind="int")
cdef void _write_value(Writer writer, value, Step step) except *
cdef void _write_length(Writer writer, int64_t length, Step step) except *
@cython.locals(text=bytes)
cdef void _write_string(Writer writer, value, Step step) except *
cdef void _write_blob(Writer writer, value, Step step) except *
cdef void _write_array(Writer writer, value, Step step) except *
cdef void _write_element(Writer writer, element, Step step) except *
@cython.locals(step=Step, inner=Writer, value=bytes, count=Py_ssize_t)
cdef void _write_tagged(Writer writer, struct, Plan plan) except *
cdef void _write_tagged_value(Writer writer, value, Step step) except *
cdef void _refuse_null(Step step) except *
