/* Arguments of the compiled loops: contiguous arrays of 64-bit values, and the error for wrong ones. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>

static PyObject *wrong(const char *what)
{
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, what);
    return NULL;
}

static int table_of(PyObject *array, Py_buffer *buffer, int dimensions)
{
    if (PyObject_GetBuffer(array, buffer, PyBUF_ND | PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    if (buffer->ndim != dimensions || buffer->itemsize != 8) {
        PyBuffer_Release(buffer);
        wrong("a contiguous array of 64-bit values with the expected number of dimensions");
        return -1;
    }
    return 0;
}
