# The functions of slots.py in C, inlined into the compiled modules that cimport this; slots.py is not compiled.
# The caller has made sure that the struct's class is the one its places were asked from.
from cpython.object cimport PyObject, PyTypeObject

cdef extern from *:
    """
    #include <stddef.h>
    #if PY_VERSION_HEX < 0x030C0000
    #include <structmember.h>
    #endif

    static CYTHON_INLINE PyObject* kbroker_new(PyObject* cls) {
        PyTypeObject* type = (PyTypeObject*) cls;
        return type->tp_alloc(type, 0);
    }

    static CYTHON_INLINE Py_ssize_t kbroker_place_of(PyObject* cls, PyObject* name) {
        PyObject* member = PyObject_GetAttr(cls, name);
        Py_ssize_t place = -1;
        if (member == NULL) return -1;
        if (Py_TYPE(member) == &PyMemberDescr_Type && PyDescr_TYPE(member) == (PyTypeObject*) cls)
            place = ((PyMemberDescrObject*) member)->d_member->offset;
        else
            PyErr_Format(PyExc_TypeError, "%R has no slot %R", cls, name);
        Py_DECREF(member);
        return place;
    }

    static CYTHON_INLINE void kbroker_store(PyObject* object, Py_ssize_t place, PyObject* value) {
        PyObject** slot = (PyObject**) ((char*) object + place);
        PyObject* old = *slot;
        Py_INCREF(value);
        *slot = value;
        Py_XDECREF(old);
    }

    static CYTHON_INLINE PyObject* kbroker_load(PyObject* object, Py_ssize_t place) {
        PyObject* value = *(PyObject**) ((char*) object + place);
        if (value == NULL) {
            PyErr_Format(PyExc_AttributeError, "a field of %s was never set", Py_TYPE(object)->tp_name);
            return NULL;
        }
        Py_INCREF(value);
        return value;
    }
    """
    object new "kbroker_new" (object cls)
    void untrack "PyObject_GC_UnTrack" (object struct)
    Py_ssize_t place_of "kbroker_place_of" (object cls, object name) except -1
    void store "kbroker_store" (object struct, Py_ssize_t place, object value)
    object load "kbroker_load" (object struct, Py_ssize_t place)
