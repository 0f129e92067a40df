cimport cython
from libc.stdint cimport int64_t

from kbroker.protocol cimport slots

cdef dict _plans


@cython.final
cdef class Step:
    cdef readonly str name
    cdef readonly Py_ssize_t place
    cdef readonly int kind
    cdef readonly bint array
    cdef readonly bint nullable
    cdef readonly bint flexible
    cdef readonly Plan plan
    cdef readonly int64_t tag
    cdef readonly object default
    cdef readonly Py_ssize_t element_size


@cython.final
cdef class Plan:
    cdef readonly str name
    cdef readonly int version
    cdef readonly object struct_type
    cdef readonly bint flexible
    cdef readonly tuple steps
    cdef readonly tuple tagged
    cdef readonly tuple preset
    cdef readonly tuple refused
    cdef readonly Py_ssize_t smallest
    cdef readonly bint is_flat
    cdef readonly bint holds_arrays


@cython.locals(plan=Plan)
cpdef Plan plan_of(message_type, version)
@cython.locals(plan=Plan)
cpdef Plan element_plan(struct_type, message_type, version)
