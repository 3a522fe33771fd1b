/* Arithmetic on what nodes will have free: a hold put into a profile.

The inner loop of `scheduling.profile`, which says the same in Python; tests compare the two. See docs/decisions/0096.
*/
#include "_arrays.h"

#define COLUMNS_MAX 64

/* The columns of a node that have special meaning; others are GRES. */
enum { CPUS, CORES, MEMORY, IDLE };

/* The place of that moment, or of the last before it; ascending times, the first -inf. */
static Py_ssize_t place_of(const double *times, Py_ssize_t moments, double at)
{
    Py_ssize_t place = 0;
    while (place + 1 < moments && times[place + 1] <= at)
        place++;
    return place;
}

PyDoc_STRVAR(hold_doc, "hold(times, counts, node, start, end, amounts) -> bool\n\n"
                       "Take so much of the node from start to end: of each column of counts (int64[node, moment]), in\n"
                       "their order; the fourth is set to 0 if its amount is not. False, and nothing is changed, where\n"
                       "there is no room for the moments, or less than that of something.");

static PyObject *hold(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer times, columns[COLUMNS_MAX];
    int64_t amounts[COLUMNS_MAX];
    Py_ssize_t opened = 0;
    PyObject *result = NULL;
    if (count != 6 || !PyTuple_Check(arguments[1]) || !PyTuple_Check(arguments[5]) ||
        PyTuple_GET_SIZE(arguments[1]) != PyTuple_GET_SIZE(arguments[5]) || PyTuple_GET_SIZE(arguments[1]) > COLUMNS_MAX)
        return wrong("six arguments, as many amounts as columns");
    Py_ssize_t node = PyLong_AsSsize_t(arguments[2]), number = PyTuple_GET_SIZE(arguments[1]);
    double start = PyFloat_AsDouble(arguments[3]), end = PyFloat_AsDouble(arguments[4]);
    if (PyErr_Occurred() || table_of(arguments[0], &times, 2) < 0)
        return NULL;
    const Py_ssize_t width = times.shape[1];
    if (node < 0 || node >= times.shape[0] || !(start < end)) {
        wrong("no such node, or no time");
        goto end;
    }
    for (; opened < number; opened++) {
        if (table_of(PyTuple_GET_ITEM(arguments[1], opened), &columns[opened], 2) < 0)
            goto end;
        if (columns[opened].shape[0] != times.shape[0] || columns[opened].shape[1] != width) {
            opened++;
            wrong("counts are int64[node, moment]");
            goto end;
        }
        amounts[opened] = PyLong_AsLongLong(PyTuple_GET_ITEM(arguments[5], opened));
        if (amounts[opened] == -1 && PyErr_Occurred()) {
            opened++;
            goto end;
        }
    }
    double *row = (double *)times.buf + node * width;
    Py_ssize_t moments = 0;
    while (moments < width && row[moments] < INFINITY)
        moments++;
    Py_ssize_t first = place_of(row, moments, start), last = place_of(row, moments, end);
    int begins = row[first] < start, ends = row[last] < end;
    int fits = moments > 0 && moments + begins + ends <= width;
    for (Py_ssize_t moment = first; fits && moment <= last && row[moment] < end; moment++)
        for (Py_ssize_t column = 0; column < number; column++)
            if (column != MEMORY && column != IDLE &&
                ((int64_t *)columns[column].buf)[node * width + moment] < amounts[column])
                fits = 0;
    if (fits) {
        /* The later moment first: places before it stay. */
        for (int turn = 0; turn < 2; turn++) {
            double at = turn ? start : end;
            Py_ssize_t before = turn ? first : last;
            if (!(turn ? begins : ends))
                continue;
            memmove(row + before + 2, row + before + 1, (size_t)(moments - before - 1) * sizeof *row);
            row[before + 1] = at;
            for (Py_ssize_t column = 0; column < number; column++) {
                int64_t *values = (int64_t *)columns[column].buf + node * width;
                memmove(values + before + 1, values + before, (size_t)(moments - before) * sizeof *values);
            }
            moments++;
        }
        for (Py_ssize_t moment = 0; moment < moments; moment++)
            for (Py_ssize_t column = 0; row[moment] >= start && row[moment] < end && column < number; column++) {
                int64_t *value = (int64_t *)columns[column].buf + node * width + moment;
                *value = column != IDLE ? *value - amounts[column] : amounts[column] ? 0 : *value;
            }
    }
    result = PyBool_FromLong(fits);
end:
    while (opened)
        PyBuffer_Release(&columns[--opened]);
    PyBuffer_Release(&times);
    return result;
}

static PyMethodDef methods[] = {
    {"hold", (PyCFunction)(void (*)(void))hold, METH_FASTCALL, hold_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_moments", "What nodes will have free; see scheduling.profile.", 0, methods, NULL, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__moments(void) { return PyModule_Create(&definition); }
