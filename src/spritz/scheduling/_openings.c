/* When could each node first carry its part of a job, for as long as the job lasts?

The inner loop of `scheduling.backfill` over what nodes will have free (`scheduling.profile`): a table of moments by node,
ascending in time, and for each column of counts a table of the same shape. A node is able from a moment to the next
where every count is at least what is asked for. It opens at each moment from which it stays able for so many seconds.
`backfill._Openings` says the same with numpy; a test compares the two. See docs/decisions/0037.
*/
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>

#define COLUMNS_MAX 32

struct search {
    Py_buffer times, nodes, counts[COLUMNS_MAX];
    int64_t least[COLUMNS_MAX];
    Py_ssize_t columns, moments, rows;
    double since, seconds;
};

static void release(struct search *search)
{
    PyBuffer_Release(&search->times);
    PyBuffer_Release(&search->nodes);
    for (Py_ssize_t column = 0; column < search->columns; column++)
        PyBuffer_Release(&search->counts[column]);
}

static int fail(struct search *search, const char *what)
{
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, what);
    release(search);
    return -1;
}

/* (times, nodes, counts, least, since, seconds): buffers of float64, int64, and a tuple of int64; a tuple of numbers. */
static int begin(struct search *search, PyObject *const *arguments)
{
    PyObject *counts = arguments[2], *least = arguments[3];
    memset(search, 0, sizeof *search);
    if (!PyTuple_Check(counts) || !PyTuple_Check(least) || PyTuple_GET_SIZE(counts) != PyTuple_GET_SIZE(least) ||
        PyTuple_GET_SIZE(counts) > COLUMNS_MAX)
        return fail(search, "as many numbers as columns, and no more than 32");
    if (PyObject_GetBuffer(arguments[0], &search->times, PyBUF_ND | PyBUF_C_CONTIGUOUS) < 0 ||
        PyObject_GetBuffer(arguments[1], &search->nodes, PyBUF_ND | PyBUF_C_CONTIGUOUS) < 0)
        return fail(search, "");
    if (search->times.ndim != 2 || search->times.itemsize != 8 || search->nodes.itemsize != 8)
        return fail(search, "times are float64[node, moment], nodes int64");
    search->rows = search->times.shape[0];
    search->moments = search->times.shape[1];
    for (Py_ssize_t column = 0; column < PyTuple_GET_SIZE(counts); column++) {
        Py_buffer *buffer = &search->counts[column];
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(counts, column), buffer, PyBUF_ND | PyBUF_C_CONTIGUOUS) < 0)
            return fail(search, "");
        search->columns++;
        search->least[column] = PyLong_AsLongLong(PyTuple_GET_ITEM(least, column));
        if (PyErr_Occurred() || buffer->ndim != 2 || buffer->itemsize != 8 || buffer->shape[0] != search->rows ||
            buffer->shape[1] != search->moments)
            return fail(search, "counts are int64[node, moment]");
    }
    search->since = PyFloat_AsDouble(arguments[4]);
    search->seconds = PyFloat_AsDouble(arguments[5]);
    if (PyErr_Occurred())
        return fail(search, "");
    const int64_t *nodes = search->nodes.buf;
    for (Py_ssize_t each = 0; each < search->nodes.len / 8; each++)
        if (nodes[each] < 0 || nodes[each] >= search->rows)
            return fail(search, "no such node");
    return 0;
}

static inline int is_able(const struct search *search, Py_ssize_t cell)
{
    for (Py_ssize_t column = 0; column < search->columns; column++)
        if (((const int64_t *)search->counts[column].buf)[cell] < search->least[column])
            return 0;
    return 1;
}

/* The end of the node's moment: where the next one begins. */
static inline double end_of(const double *times, Py_ssize_t moments, Py_ssize_t moment)
{
    return moment + 1 < moments ? times[moment + 1] : INFINITY;
}

/* First time after `after` (-inf: any) at which the node opens; inf if it never does. */
static double opens(const struct search *search, int64_t node, double after)
{
    const Py_ssize_t moments = search->moments;
    const double *times = (const double *)search->times.buf + node * moments;
    double last = -INFINITY; /* the node stays able until then, as far as is known */
    for (Py_ssize_t moment = 0; moment < moments && times[moment] < INFINITY; moment++) {
        if (end_of(times, moments, moment) <= search->since)
            continue;
        double start = times[moment] > search->since ? times[moment] : search->since;
        if (last <= start) {
            Py_ssize_t next = moment;
            while (next < moments && times[next] < INFINITY && is_able(search, node * moments + next))
                next++;
            if (next == moment)
                continue;
            last = next < moments ? times[next] : INFINITY;
        }
        if (start > after && last - start >= search->seconds)
            return start;
    }
    return INFINITY;
}

PyDoc_STRVAR(first_doc, "first(times, nodes, counts, least, since, seconds, out)\n\n"
                        "Put into out (float64) when each node first opens; inf for never.");

static PyObject *first(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    struct search search;
    Py_buffer out;
    if (count != 7 || begin(&search, arguments) < 0) {
        if (count != 7)
            PyErr_SetString(PyExc_TypeError, "seven arguments");
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[6], &out, PyBUF_ND | PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0) {
        release(&search);
        return NULL;
    }
    if (out.len != search.nodes.len) {
        PyErr_SetString(PyExc_ValueError, "one number a node");
    } else {
        const int64_t *nodes = search.nodes.buf;
        for (Py_ssize_t each = 0; each < out.len / 8; each++)
            ((double *)out.buf)[each] = opens(&search, nodes[each], -INFINITY);
    }
    PyBuffer_Release(&out);
    release(&search);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(after_doc, "after(times, nodes, counts, least, since, seconds, at)\n\n"
                        "The first moment after `at` at which some node opens; inf if none does.");

static PyObject *after(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    struct search search;
    double found = INFINITY, at = count == 7 ? PyFloat_AsDouble(arguments[6]) : 0.0;
    if (count != 7 || PyErr_Occurred() || begin(&search, arguments) < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "seven arguments");
        return NULL;
    }
    const int64_t *nodes = search.nodes.buf;
    for (Py_ssize_t each = 0; each < search.nodes.len / 8; each++) {
        double opened = opens(&search, nodes[each], at);
        if (opened < found)
            found = opened;
    }
    release(&search);
    return PyFloat_FromDouble(found);
}

PyDoc_STRVAR(open_doc, "open_at(times, nodes, counts, least, since, seconds, at, out) -> int\n\n"
                       "Put into out (int64) the places, in the flat tables, of the moments of nodes that are able at\n"
                       "that time and stay so for long enough; returns how many there are. `at` is `since` or later.");

static PyObject *open_at(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    struct search search;
    Py_buffer out;
    Py_ssize_t found = 0;
    double at = count == 8 ? PyFloat_AsDouble(arguments[6]) : 0.0;
    if (count != 8 || PyErr_Occurred() || begin(&search, arguments) < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "eight arguments");
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[7], &out, PyBUF_ND | PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0) {
        release(&search);
        return NULL;
    }
    if (out.len != search.nodes.len)
        PyErr_SetString(PyExc_ValueError, "one place a node");
    const int64_t *nodes = search.nodes.buf;
    const Py_ssize_t moments = search.moments;
    for (Py_ssize_t each = 0; !PyErr_Occurred() && each < search.nodes.len / 8; each++) {
        const double *times = (const double *)search.times.buf + nodes[each] * moments;
        Py_ssize_t moment = 0;
        while (moment + 1 < moments && times[moment + 1] <= at)
            moment++;
        Py_ssize_t next = moment;
        while (next < moments && times[next] < INFINITY && times[next] - at < search.seconds &&
               is_able(&search, nodes[each] * moments + next))
            next++;
        double last = next < moments ? times[next] : INFINITY;
        if (next > moment && last - at >= search.seconds)
            ((int64_t *)out.buf)[found++] = nodes[each] * moments + moment;
    }
    PyBuffer_Release(&out);
    release(&search);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(found);
}

static PyMethodDef methods[] = {
    {"first", (PyCFunction)(void (*)(void))first, METH_FASTCALL, first_doc},
    {"after", (PyCFunction)(void (*)(void))after, METH_FASTCALL, after_doc},
    {"open_at", (PyCFunction)(void (*)(void))open_at, METH_FASTCALL, open_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_openings", "When nodes could serve; see scheduling.openings.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__openings(void) { return PyModule_Create(&definition); }
