/* Arithmetic on the free resources of nodes over time: compute a node's breakpoints, enter a hold into a profile, and
find the least of an interval.

`view/profile.py` does the same in Python; tests compare the two. See docs/decisions/0166.
*/
#include "arrays.h"

#define COLUMNS_MAX 64

/* Columns of a node with a special meaning, as in `NodeRow.counts`; the others are GRES. */
enum { CPUS, CORES, MEMORY, IDLE };

/* Index of the last breakpoint at or before `at`. Times ascend, and the first is -inf. */
static Py_ssize_t place_of(const double *times, Py_ssize_t breakpoints, double at)
{
    Py_ssize_t place = 0;
    while (place + 1 < breakpoints && times[place + 1] <= at)
        place++;
    return place;
}

PyDoc_STRVAR(hold_doc, "timeline_hold(times, counts, node, start, end, amounts) -> bool\n\n"
                       "Subtract the amounts from the node between start and end, one amount for each column of counts\n"
                       "(int64[node, breakpoint]). The fourth column, idle, becomes 0 if its amount is not 0. Returns\n"
                       "False and changes nothing if there is no room for new breakpoints or too little of a quantity.");

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
            wrong("counts are int64[node, breakpoint]");
            goto end;
        }
        amounts[opened] = PyLong_AsLongLong(PyTuple_GET_ITEM(arguments[5], opened));
        if (amounts[opened] == -1 && PyErr_Occurred()) {
            opened++;
            goto end;
        }
    }
    double *row = (double *)times.buf + node * width;
    Py_ssize_t breakpoints = 0;
    while (breakpoints < width && row[breakpoints] < INFINITY)
        breakpoints++;
    Py_ssize_t first = place_of(row, breakpoints, start), last = place_of(row, breakpoints, end);
    int begins = row[first] < start, ends = row[last] < end;
    int fits = breakpoints > 0 && breakpoints + begins + ends <= width;
    for (Py_ssize_t breakpoint = first; fits && breakpoint <= last && row[breakpoint] < end; breakpoint++)
        for (Py_ssize_t column = 0; column < number; column++)
            if (column != MEMORY && column != IDLE &&
                ((int64_t *)columns[column].buf)[node * width + breakpoint] < amounts[column])
                fits = 0;
    if (fits) {
        /* Insert the later breakpoint first: indexes before it stay valid. */
        for (int turn = 0; turn < 2; turn++) {
            double at = turn ? start : end;
            Py_ssize_t before = turn ? first : last;
            if (!(turn ? begins : ends))
                continue;
            memmove(row + before + 2, row + before + 1, (size_t)(breakpoints - before - 1) * sizeof *row);
            row[before + 1] = at;
            for (Py_ssize_t column = 0; column < number; column++) {
                int64_t *values = (int64_t *)columns[column].buf + node * width;
                memmove(values + before + 1, values + before, (size_t)(breakpoints - before) * sizeof *values);
            }
            breakpoints++;
        }
        for (Py_ssize_t breakpoint = 0; breakpoint < breakpoints; breakpoint++)
            for (Py_ssize_t column = 0; row[breakpoint] >= start && row[breakpoint] < end && column < number; column++) {
                int64_t *value = (int64_t *)columns[column].buf + node * width + breakpoint;
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

/* -- free resources of a node over time */

#define EVENTS_MAX 256

struct event {
    double at;
    int64_t sign;
    PyObject *taken;
};

static int by_time(const void *left, const void *right)
{
    double first = ((const struct event *)left)->at, second = ((const struct event *)right)->at;
    return first < second ? -1 : first > second;
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
                        "Write the node's row of times, and of each column of counts its value now and from each breakpoint\n"
                        "on, as `node_timeline.counts_ahead`. `now`: its counts; `events`: (when, 1 to release or -1 to take,\n"
                        "(CPUs, memory, jobs, GRES...)). Returns the number of breakpoints, or -1 if sums are not exact. Writes\n"
                        "nothing if there is no room for that many breakpoints.");

static PyObject *ahead(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer times, columns[COLUMNS_MAX];
    struct event events[EVENTS_MAX];
    int64_t state[COLUMNS_MAX] = {0};
    Py_ssize_t opened = 0, breakpoints = 0;
    PyObject *result = NULL;
    if (count != 5 || !PyTuple_Check(arguments[1]) || !PyList_Check(arguments[3]) || !PyList_Check(arguments[4]))
        return wrong("five arguments");
    Py_ssize_t number = PyTuple_GET_SIZE(arguments[1]), quantities = number - 1, event_count = PyList_GET_SIZE(arguments[4]);
    Py_ssize_t node = PyLong_AsSsize_t(arguments[2]);
    if (number < IDLE + 1 || number > COLUMNS_MAX || PyList_GET_SIZE(arguments[3]) != number)
        return wrong("as many counts as columns");
    if (event_count > EVENTS_MAX)
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
            wrong("counts are int64[node, breakpoint]");
            goto end;
        }
    }
    for (Py_ssize_t each = 0; each < event_count; each++) {
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
    qsort(events, (size_t)event_count, sizeof *events, by_time);
    /* Quantities are CPUs, memory, jobs and GRES. Two passes: the first only checks that the sums are exact, so that
       nothing is written otherwise. */
    for (int turn = 0; turn < 2; turn++) {
        int64_t jobs = 0;
        for (Py_ssize_t each = 0; each < number; each++) {
            int64_t have = PyLong_AsLongLong(PyList_GET_ITEM(arguments[3], each));
            if (have == -1 && PyErr_Occurred())
                goto end;
            if (each != CORES)
                state[each == CPUS ? 0 : each - 1] = each == IDLE ? 0 : have;
            if (turn)
                ((int64_t *)columns[each].buf)[node * width] = have;
        }
        for (Py_ssize_t each = 0; each < event_count; each++)
            jobs -= events[each].sign * PyLong_AsLongLong(PyTuple_GET_ITEM(events[each].taken, 2));
        if (PyErr_Occurred())
            goto end;
        state[2] = jobs;
        breakpoints = 0;
        for (Py_ssize_t each = 0; each < event_count; breakpoints++) {
            double at = events[each].at;
            for (; each < event_count && events[each].at == at; each++)
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
            ((double *)times.buf)[node * width + breakpoints + 1] = at;
            for (Py_ssize_t column = 0; column < number; column++) {
                int64_t value = column == IDLE ? !state[2] : state[column < MEMORY ? 0 : column - 1];
                ((int64_t *)columns[column].buf)[node * width + breakpoints + 1] = value;
            }
        }
        if (breakpoints >= width)
            break;
    }
    if (breakpoints < width) {
        double *row = (double *)times.buf + node * width;
        row[0] = -INFINITY;
        for (Py_ssize_t breakpoint = breakpoints + 1; breakpoint < width; breakpoint++)
            row[breakpoint] = INFINITY;
    }
    result = PyLong_FromSsize_t(breakpoints);
end:
    while (opened)
        PyBuffer_Release(&columns[--opened]);
    PyBuffer_Release(&times);
    return result;
}

PyDoc_STRVAR(lowest_doc, "timeline_lowest(times, counts, nodes, start, until, columns)\n\n"
                         "Write into each of columns (a number or byte per node) the least value that the same column of\n"
                         "counts has for these nodes (int64) at any time from start to until.");

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
            wrong("counts are int64[node, breakpoint], columns have one value a node");
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
            for (Py_ssize_t breakpoint = first; breakpoint < last; breakpoint++)
                least = values[breakpoint] < least ? values[breakpoint] : least;
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

PyMethodDef timeline_methods[] = {
    {"timeline_put", (PyCFunction)(void (*)(void))ahead, METH_FASTCALL, ahead_doc},
    {"timeline_hold", (PyCFunction)(void (*)(void))hold, METH_FASTCALL, hold_doc},
    {"timeline_lowest", (PyCFunction)(void (*)(void))lowest, METH_FASTCALL, lowest_doc},
    {NULL, NULL, 0, NULL},
};
