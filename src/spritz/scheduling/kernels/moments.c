/* Arithmetic on what nodes will have free: a node worked out, a hold put into a profile, and the least
of some time.

`view/profile.py` says the same in Python; tests compare the two. See docs/decisions/0096.
*/
#include "arrays.h"

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

PyDoc_STRVAR(hold_doc, "timeline_hold(times, counts, node, start, end, amounts) -> bool\n\n"
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

/* -- what a node will have free */

#define EVENTS_MAX 256

struct event {
    double at;
    int64_t sign;
    PyObject *taken;
};

static int by_moment(const void *one, const void *other)
{
    double mine = ((const struct event *)one)->at, theirs = ((const struct event *)other)->at;
    return mine < theirs ? -1 : mine > theirs;
}

static int add(int64_t *state, const struct event *event, Py_ssize_t quantities)
{
    for (Py_ssize_t each = 0; each < quantities; each++) {
        int64_t amount = PyLong_AsLongLong(PyTuple_GET_ITEM(event->taken, each));
        if (amount == -1 && PyErr_Occurred())
            return -1;
        state[each] += event->sign * amount;
    }
    return 0;
}

PyDoc_STRVAR(ahead_doc, "timeline_put(times, counts, node, now, events) -> int\n\n"
                        "Put into the node's row of times and of each column of counts what it has now, and from every later\n"
                        "moment on: as `changes.counts_ahead`. `now`: its counts; `events`: (when, 1 or -1, CPUs, memory,\n"
                        "company and GRES that are given back or taken then). Returns how many moments there are, -1 where\n"
                        "sums are not certain; nothing is put where there is no room for so many.");

static PyObject *ahead(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer times, columns[COLUMNS_MAX];
    struct event events[EVENTS_MAX];
    int64_t state[COLUMNS_MAX] = {0};
    Py_ssize_t opened = 0, moments = 0;
    PyObject *result = NULL;
    if (count != 5 || !PyTuple_Check(arguments[1]) || !PyList_Check(arguments[3]) || !PyList_Check(arguments[4]))
        return wrong("five arguments");
    Py_ssize_t number = PyTuple_GET_SIZE(arguments[1]), quantities = number - 1, some = PyList_GET_SIZE(arguments[4]);
    Py_ssize_t node = PyLong_AsSsize_t(arguments[2]);
    if (number < IDLE + 1 || number > COLUMNS_MAX || PyList_GET_SIZE(arguments[3]) != number)
        return wrong("as many counts as columns");
    if (some > EVENTS_MAX)
        return PyLong_FromLong(-1);
    if (PyErr_Occurred() || table_of(arguments[0], &times, 2) < 0)
        return NULL;
    const Py_ssize_t width = times.shape[1];
    if (node < 0 || node >= times.shape[0]) {
        wrong("no such node");
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
    }
    for (Py_ssize_t each = 0; each < some; each++) {
        PyObject *item = PyList_GET_ITEM(arguments[4], each);
        if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 3 || !PyTuple_Check(PyTuple_GET_ITEM(item, 2)) ||
            PyTuple_GET_SIZE(PyTuple_GET_ITEM(item, 2)) != quantities) {
            wrong("an event is (when, sign, amounts)");
            goto end;
        }
        events[each].at = PyFloat_AsDouble(PyTuple_GET_ITEM(item, 0));
        events[each].sign = PyLong_AsLongLong(PyTuple_GET_ITEM(item, 1));
        events[each].taken = PyTuple_GET_ITEM(item, 2);
        if (PyErr_Occurred())
            goto end;
    }
    qsort(events, (size_t)some, sizeof *events, by_moment);
    /* Quantities are CPUs, memory, company and GRES; twice, the first time to see whether they are certain. */
    for (int turn = 0; turn < 2; turn++) {
        int64_t company = 0;
        for (Py_ssize_t each = 0; each < number; each++) {
            int64_t have = PyLong_AsLongLong(PyList_GET_ITEM(arguments[3], each));
            if (have == -1 && PyErr_Occurred())
                goto end;
            if (each != CORES)
                state[each == CPUS ? 0 : each - 1] = each == IDLE ? 0 : have;
            if (turn)
                ((int64_t *)columns[each].buf)[node * width] = have;
        }
        for (Py_ssize_t each = 0; each < some; each++)
            company -= events[each].sign * PyLong_AsLongLong(PyTuple_GET_ITEM(events[each].taken, 2));
        if (PyErr_Occurred())
            goto end;
        state[2] = company;
        moments = 0;
        for (Py_ssize_t each = 0; each < some; moments++) {
            double at = events[each].at;
            for (; each < some && events[each].at == at; each++)
                if (add(state, &events[each], quantities) < 0)
                    goto end;
            int certain = state[0] >= 0;
            for (Py_ssize_t quantity = 3; quantity < quantities; quantity++)
                certain &= state[quantity] >= 0;
            if (!certain) {
                result = PyLong_FromLong(-1);
                goto end;
            }
            if (!turn)
                continue;
            ((double *)times.buf)[node * width + moments + 1] = at;
            for (Py_ssize_t column = 0; column < number; column++) {
                int64_t value = column == IDLE ? !state[2] : state[column < MEMORY ? 0 : column - 1];
                ((int64_t *)columns[column].buf)[node * width + moments + 1] = value;
            }
        }
        if (moments >= width)
            break;
    }
    if (moments < width) {
        double *row = (double *)times.buf + node * width;
        row[0] = -INFINITY;
        for (Py_ssize_t moment = moments + 1; moment < width; moment++)
            row[moment] = INFINITY;
    }
    result = PyLong_FromSsize_t(moments);
end:
    while (opened)
        PyBuffer_Release(&columns[--opened]);
    PyBuffer_Release(&times);
    return result;
}

PyDoc_STRVAR(lowest_doc, "timeline_lowest(times, counts, nodes, start, until, columns)\n\n"
                         "Put into each of columns, one number (or byte) a node, the least that the column of counts says of\n"
                         "these nodes (int64) for any time from start to until.");

static PyObject *lowest(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer times, nodes, columns[2 * COLUMNS_MAX];
    Py_ssize_t opened = 0;
    PyObject *result = NULL;
    if (count != 6 || !PyTuple_Check(arguments[1]) || !PyTuple_Check(arguments[5]) ||
        PyTuple_GET_SIZE(arguments[1]) != PyTuple_GET_SIZE(arguments[5]) || PyTuple_GET_SIZE(arguments[1]) > COLUMNS_MAX)
        return wrong("six arguments, as many columns as counts");
    Py_ssize_t number = PyTuple_GET_SIZE(arguments[1]);
    double start = PyFloat_AsDouble(arguments[3]), until = PyFloat_AsDouble(arguments[4]);
    if (PyErr_Occurred() || table_of(arguments[0], &times, 2) < 0)
        return NULL;
    if (table_of(arguments[2], &nodes, 1) < 0)
        goto times;
    const Py_ssize_t rows = times.shape[0], width = times.shape[1];
    for (; opened < number; opened++)
        if (table_of(PyTuple_GET_ITEM(arguments[1], opened), &columns[opened], 2) < 0)
            goto end;
    for (; opened < 2 * number; opened++)
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(arguments[5], opened - number), &columns[opened],
                               PyBUF_ND | PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0)
            goto end;
    for (Py_ssize_t each = 0; each < number; each++)
        if (columns[each].len != times.len || (columns[number + each].itemsize != 8 && columns[number + each].itemsize != 1) ||
            columns[number + each].len != rows * columns[number + each].itemsize) {
            wrong("counts are int64[node, moment], columns have one value a node");
            goto end;
        }
    for (Py_ssize_t each = 0; each < nodes.shape[0]; each++) {
        const int64_t node = ((const int64_t *)nodes.buf)[each];
        if (node < 0 || node >= rows) {
            wrong("no such node");
            goto end;
        }
        const double *row = (const double *)times.buf + node * width;
        Py_ssize_t first = 0, last;
        while (first + 1 < width && row[first + 1] <= start)
            first++;
        for (last = first; last < width && row[last] < until;)
            last++;
        for (Py_ssize_t column = 0; column < number; column++) {
            const int64_t *values = (const int64_t *)columns[column].buf + node * width;
            const Py_buffer *out = &columns[number + column];
            int64_t least = INT64_MAX;
            for (Py_ssize_t moment = first; moment < last; moment++)
                least = values[moment] < least ? values[moment] : least;
            if (out->itemsize == 8)
                ((int64_t *)out->buf)[node] = least;
            else
                ((uint8_t *)out->buf)[node] = least != 0;
        }
    }
    result = Py_NewRef(Py_None);
end:
    while (opened)
        PyBuffer_Release(&columns[--opened]);
    PyBuffer_Release(&nodes);
times:
    PyBuffer_Release(&times);
    return result;
}

PyMethodDef moments_methods[] = {
    {"timeline_put", (PyCFunction)(void (*)(void))ahead, METH_FASTCALL, ahead_doc},
    {"timeline_hold", (PyCFunction)(void (*)(void))hold, METH_FASTCALL, hold_doc},
    {"timeline_lowest", (PyCFunction)(void (*)(void))lowest, METH_FASTCALL, lowest_doc},
    {NULL, NULL, 0, NULL},
};
