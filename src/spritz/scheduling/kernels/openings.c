/* When each node could first carry its part of a job for as long as the job lasts.

The inner loop of `placement.earliest` over the free resources of nodes (`view.profile`): a table of breakpoints by node,
ascending in time, and for each column of counts a table of the same shape. A node is able between two breakpoints if
every count is at least what the job needs. It opens at a time from which it stays able for the job's whole duration.
`placement.openings.Openings` does the same with numpy; a test compares the two. See docs/decisions/0166.
*/
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>

#include "choose.h"

#define COLUMNS_MAX 32

struct search {
    Py_buffer times, nodes, counts[COLUMNS_MAX];
    const int64_t *column[COLUMNS_MAX]; /* the data of `counts` */
    int64_t least[COLUMNS_MAX];
    Py_ssize_t columns, breakpoints, rows;
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
        return fail(search, "times are float64[node, breakpoint], nodes int64");
    search->rows = search->times.shape[0];
    search->breakpoints = search->times.shape[1];
    for (Py_ssize_t column = 0; column < PyTuple_GET_SIZE(counts); column++) {
        Py_buffer *buffer = &search->counts[column];
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(counts, column), buffer, PyBUF_ND | PyBUF_C_CONTIGUOUS) < 0)
            return fail(search, "");
        search->columns++;
        search->least[column] = PyLong_AsLongLong(PyTuple_GET_ITEM(least, column));
        if (PyErr_Occurred() || buffer->itemsize != 8 || buffer->shape[0] != search->rows ||
            (buffer->ndim == 2 ? buffer->shape[1] : 1) != search->breakpoints)
            return fail(search, "counts are int64[node, breakpoint]");
        search->column[column] = buffer->buf;
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
        if (search->column[column][cell] < search->least[column])
            return 0;
    return 1;
}

/* The end of the interval that begins at the breakpoint: the next breakpoint, or inf. */
static inline double end_of(const double *times, Py_ssize_t breakpoints, Py_ssize_t breakpoint)
{
    return breakpoint + 1 < breakpoints ? times[breakpoint + 1] : INFINITY;
}

/* First time after `after` (-inf: any) at which the node opens; inf if it never does. */
static double opens(const struct search *search, int64_t node, double after)
{
    const Py_ssize_t breakpoints = search->breakpoints;
    const double *times = (const double *)search->times.buf + node * breakpoints;
    double last = -INFINITY; /* the node is known to stay able until then */
    for (Py_ssize_t breakpoint = 0; breakpoint < breakpoints && times[breakpoint] < INFINITY; breakpoint++) {
        if (end_of(times, breakpoints, breakpoint) <= search->since)
            continue;
        double start = times[breakpoint] > search->since ? times[breakpoint] : search->since;
        if (last <= start) {
            Py_ssize_t next = breakpoint;
            while (next < breakpoints && times[next] < INFINITY && is_able(search, node * breakpoints + next))
                next++;
            if (next == breakpoint)
                continue;
            last = next < breakpoints ? times[next] : INFINITY;
        }
        if (start > after && last - start >= search->seconds)
            return start;
    }
    return INFINITY;
}

PyDoc_STRVAR(first_doc, "openings_first(times, nodes, counts, least, since, seconds, out)\n\n"
                        "Write into out (float64) when each node first opens; inf for never.");

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

PyDoc_STRVAR(after_doc, "openings_after(times, nodes, counts, least, since, seconds, at)\n\n"
                        "The first time after `at` at which some node opens; inf if none does.");

static PyObject *after(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    struct search search;
    double earliest = INFINITY, at = count == 7 ? PyFloat_AsDouble(arguments[6]) : 0.0;
    if (count != 7 || PyErr_Occurred() || begin(&search, arguments) < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "seven arguments");
        return NULL;
    }
    const int64_t *nodes = search.nodes.buf;
    for (Py_ssize_t each = 0; each < search.nodes.len / 8; each++) {
        double opened = opens(&search, nodes[each], at);
        if (opened < earliest)
            earliest = opened;
    }
    release(&search);
    return PyFloat_FromDouble(earliest);
}

PyDoc_STRVAR(open_doc, "openings_at(times, nodes, counts, least, since, seconds, at, out) -> int\n\n"
                       "Write into out (int64) the indexes, in the flat tables, of the breakpoints of nodes that are able at\n"
                       "`at` and stay so for long enough. Returns how many there are. `at` must not be before `since`.");

static PyObject *open_at(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    struct search search;
    Py_buffer out;
    Py_ssize_t open_count = 0;
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
    const Py_ssize_t breakpoints = search.breakpoints;
    for (Py_ssize_t each = 0; !PyErr_Occurred() && each < search.nodes.len / 8; each++) {
        const double *times = (const double *)search.times.buf + nodes[each] * breakpoints;
        Py_ssize_t breakpoint = 0;
        while (breakpoint + 1 < breakpoints && times[breakpoint + 1] <= at)
            breakpoint++;
        Py_ssize_t next = breakpoint;
        while (next < breakpoints && times[next] < INFINITY && times[next] - at < search.seconds &&
               is_able(&search, nodes[each] * breakpoints + next))
            next++;
        double last = next < breakpoints ? times[next] : INFINITY;
        if (next > breakpoint && last - at >= search.seconds)
            ((int64_t *)out.buf)[open_count++] = nodes[each] * breakpoints + breakpoint;
    }
    PyBuffer_Release(&out);
    release(&search);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(open_count);
}

/* First time at which the node opens; inf if not before `bound`. */
static inline double opens_before(const struct search *search, int64_t node, double bound)
{
    const Py_ssize_t breakpoints = search->breakpoints;
    const double *times = (const double *)search->times.buf + node * breakpoints;
    double begun = INFINITY; /* the node has been able since then */
    for (Py_ssize_t breakpoint = 0; breakpoint < breakpoints && times[breakpoint] < INFINITY; breakpoint++) {
        double end = end_of(times, breakpoints, breakpoint);
        if (end <= search->since)
            continue;
        if (begun == INFINITY && times[breakpoint] >= bound)
            return INFINITY;
        if (!is_able(search, node * breakpoints + breakpoint)) {
            begun = INFINITY;
            continue;
        }
        if (begun == INFINITY) {
            begun = times[breakpoint] > search->since ? times[breakpoint] : search->since;
            if (begun >= bound)
                return INFINITY;
        }
        if (end - begun >= search->seconds)
            return begun;
    }
    return INFINITY;
}

/* A heap of the earliest `size` times with the latest of them on top: put `value` in at `place` and sift down. */
static void heap_put(double *heap, Py_ssize_t size, Py_ssize_t place, double value)
{
    for (;;) {
        Py_ssize_t child = 2 * place + 1;
        if (child + 1 < size && heap[child + 1] > heap[child])
            child++;
        if (child >= size || heap[child] <= value)
            break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = value;
}

/* The earliest time by which `nodes_min` nodes have opened: no earlier start is possible. */
static int first_of_all(const struct search *search, const uint8_t *up, Py_ssize_t nodes_min, double *result)
{
    const int64_t *nodes = search->nodes.buf;
    Py_ssize_t count = search->nodes.len / 8, size = nodes_min > 0 ? nodes_min : 1;
    *result = INFINITY;
    if (count < size)
        return 0;
    double *heap = malloc((size_t)size * sizeof *heap);
    if (heap == NULL)
        return -1;
    for (Py_ssize_t each = 0; each < size; each++)
        heap[each] = INFINITY;
    for (Py_ssize_t each = 0; each < count; each++) {
        double opened = up[nodes[each]] ? opens_before(search, nodes[each], heap[0]) : INFINITY;
        if (opened < heap[0])
            heap_put(heap, size, 0, opened);
    }
    *result = heap[0];
    free(heap);
    return 0;
}

struct wanted {
    struct term tasks[TERMS_MAX], gpus[TERMS_MAX];
    int task_terms, gpu_terms;
    int64_t most;
    struct target target;
};

/* Nodes that are able at `at` and stay so for long enough, with the least that they have during that time. Sets `*enough`
   if what they have at first would suffice for the job. */
static Py_ssize_t open_candidates(const struct search *search, const struct wanted *wanted, const uint8_t *up, double at,
                                  const int64_t *weights, const int64_t *busy, int64_t floor,
                                  struct candidate *candidates, int *enough)
{
    const int64_t *nodes = search->nodes.buf;
    const Py_ssize_t breakpoints = search->breakpoints;
    int64_t have[COLUMNS_MAX], tasks = 0, gpus = 0;
    Py_ssize_t count = 0;
    for (Py_ssize_t each = 0; each < search->nodes.len / 8; each++) {
        int64_t node = nodes[each];
        const double *times = (const double *)search->times.buf + node * breakpoints;
        Py_ssize_t breakpoint = 0, next;
        if (!up[node])
            continue;
        while (breakpoint + 1 < breakpoints && times[breakpoint + 1] <= at)
            breakpoint++;
        next = breakpoint;
        while (next < breakpoints && times[next] < INFINITY && times[next] - at < search->seconds &&
               is_able(search, node * breakpoints + next))
            next++;
        double last = next < breakpoints ? times[next] : INFINITY;
        if (next == breakpoint || last - at < search->seconds)
            continue;
        for (Py_ssize_t column = 0; column < search->columns; column++)
            have[column] = search->column[column][node * breakpoints + breakpoint];
        tasks += amount(wanted->tasks, wanted->task_terms, wanted->most, have);
        if (wanted->target.gpus)
            gpus += amount(wanted->gpus, wanted->gpu_terms, INT64_MAX, have);
        for (Py_ssize_t later = breakpoint + 1; later < next; later++)
            for (Py_ssize_t column = 0; column < search->columns; column++) {
                int64_t value = search->column[column][node * breakpoints + later];
                have[column] = value < have[column] ? value : have[column];
            }
        candidates[count].node = node;
        candidates[count].weight = busy == NULL ? weights[node] : 2 * weights[node] + (busy[node] >= floor);
        candidates[count].tasks = amount(wanted->tasks, wanted->task_terms, wanted->most, have);
        candidates[count].gpus = wanted->target.gpus ? amount(wanted->gpus, wanted->gpu_terms, INT64_MAX, have) : 0;
        count++;
    }
    *enough = count >= wanted->target.nodes_min && (wanted->target.tasks <= 0 || tasks >= wanted->target.tasks) &&
              gpus >= wanted->target.gpus;
    return count;
}

static int numbers_of(PyObject *tuple, int64_t *out, Py_ssize_t least, Py_ssize_t most)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) < least || PyTuple_GET_SIZE(tuple) > most) {
        PyErr_SetString(PyExc_TypeError, "a tuple of a fixed number of integers");
        return -1;
    }
    for (Py_ssize_t each = 0; each < PyTuple_GET_SIZE(tuple); each++) {
        out[each] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, each));
        if (out[each] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* Terms of five numbers each, one after the other. */
static int terms_of(PyObject *tuple, struct term *terms, int *count, Py_ssize_t columns)
{
    if (numbers_of(tuple, (int64_t *)terms, 0, 5 * TERMS_MAX) < 0)
        return -1;
    *count = (int)(PyTuple_GET_SIZE(tuple) / 5);
    for (int each = 0; each < *count; each++)
        if (terms[each].column < 0 || terms[each].column >= columns || terms[each].part < 1 || terms[each].each < 1) {
            PyErr_SetString(PyExc_ValueError, "no such term");
            return -1;
        }
    return 0;
}

static int wanted_of(PyObject *const *arguments, struct wanted *wanted, Py_ssize_t columns)
{
    int64_t target[6] = {0};
    if (terms_of(arguments[0], wanted->tasks, &wanted->task_terms, columns) < 0 ||
        terms_of(arguments[1], wanted->gpus, &wanted->gpu_terms, columns) < 0 ||
        numbers_of(arguments[2], target, 6, 6) < 0)
        return -1;
    wanted->target = (struct target){target[0], target[1], target[2], target[3], target[4]};
    wanted->most = target[5];
    return 0;
}

/* (at, tried, [node, tasks, GPUs, …]); the list is None if a better search must decide. */
static PyObject *answer(double at, Py_ssize_t tried, const struct candidate *chosen, Py_ssize_t count)
{
    if (count < 0)
        return Py_BuildValue("dnO", at, tried, Py_None);
    PyObject *list = PyList_New(3 * count);
    for (Py_ssize_t each = 0; list != NULL && each < count; each++) {
        const int64_t numbers[3] = {chosen[each].node, chosen[each].tasks, chosen[each].gpus};
        for (Py_ssize_t place = 0; place < 3; place++) {
            PyObject *number = PyLong_FromLongLong(numbers[place]);
            if (number == NULL) {
                Py_CLEAR(list);
                break;
            }
            PyList_SET_ITEM(list, 3 * each + place, number);
        }
        if (list == NULL)
            break;
    }
    return list == NULL ? NULL : Py_BuildValue("dnN", at, tried, list);
}

PyDoc_STRVAR(choose_doc,
             "choose_nodes(times, nodes, counts, least, since, seconds, until, up, tasks, gpus, target, weights, busy, floor,\n"
             "tries) -> (at, tried, [node, tasks, GPUs, ...] or None) or None\n\n"
             "The first time from since to until at which the job fits for its whole duration, by counts, and the nodes\n"
             "that it takes, unordered; None for the nodes if runs of neighbours do not suffice and a better search must\n"
             "decide. `tasks` and `gpus` are terms of five numbers each: an index in counts, less, part, times, each.\n"
             "`target`: nodes_min, nodes_max, nodes_wanted, tasks (-1: the least on each), gpus, most tasks on one node.\n"
             "`busy`: None, or free CPUs now: nodes with fewer than floor come first among those of one weight.");

static PyObject *choose(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    struct search search;
    struct wanted wanted;
    Py_buffer up, weights, busy;
    PyObject *result = NULL;
    struct candidate *candidates = NULL;
    if (count != 15) {
        PyErr_SetString(PyExc_TypeError, "fifteen arguments");
        return NULL;
    }
    double until = PyFloat_AsDouble(arguments[6]), at = INFINITY;
    int64_t floor = PyLong_AsLongLong(arguments[13]);
    Py_ssize_t tries = PyLong_AsSsize_t(arguments[14]), tried = 0;
    if (PyErr_Occurred() || begin(&search, arguments) < 0)
        return NULL;
    up.obj = weights.obj = busy.obj = NULL;
    int is_busy = arguments[12] != Py_None;
    if (wanted_of(arguments + 8, &wanted, search.columns) < 0 ||
        PyObject_GetBuffer(arguments[7], &up, PyBUF_ND | PyBUF_C_CONTIGUOUS) < 0 ||
        PyObject_GetBuffer(arguments[11], &weights, PyBUF_ND | PyBUF_C_CONTIGUOUS) < 0 ||
        (is_busy && PyObject_GetBuffer(arguments[12], &busy, PyBUF_ND | PyBUF_C_CONTIGUOUS) < 0))
        goto end;
    if (up.len != search.rows || weights.len != 8 * search.rows || (is_busy && busy.len != 8 * search.rows)) {
        PyErr_SetString(PyExc_ValueError, "one value a node");
        goto end;
    }
    if (first_of_all(&search, up.buf, wanted.target.nodes_min, &at) < 0)
        goto memory;
    if (at <= until && at < INFINITY) {
        /* One block: the candidates, and behind them the chosen nodes. */
        Py_ssize_t most = search.nodes.len / 8;
        candidates = malloc((size_t)(2 * most) * sizeof *candidates);
        if (candidates == NULL)
            goto memory;
        const int64_t *nodes = search.nodes.buf;
        while (tried < tries && at <= until && at < INFINITY) {
            int enough;
            Py_ssize_t open_count = open_candidates(&search, &wanted, up.buf, at, weights.buf, is_busy ? busy.buf : NULL, floor,
                                              candidates, &enough);
            if (enough) {
                tried++;
                Py_ssize_t taken = choose_nodes(candidates, open_count, &wanted.target, candidates + most);
                if (taken == -2)
                    goto memory;
                if (taken) {
                    result = answer(at, tried, candidates + most, taken);
                    goto end;
                }
            }
            double next = INFINITY;
            for (Py_ssize_t each = 0; each < most; each++) {
                double opened = ((const uint8_t *)up.buf)[nodes[each]] ? opens(&search, nodes[each], at) : INFINITY;
                next = opened < next ? opened : next;
            }
            at = next;
        }
    }
    result = Py_NewRef(Py_None);
    goto end;
memory:
    PyErr_NoMemory();
end:
    free(candidates);
    if (up.obj != NULL)
        PyBuffer_Release(&up);
    if (weights.obj != NULL)
        PyBuffer_Release(&weights);
    if (busy.obj != NULL)
        PyBuffer_Release(&busy);
    release(&search);
    return result;
}

PyMethodDef openings_methods[] = {
    {"openings_first", (PyCFunction)(void (*)(void))first, METH_FASTCALL, first_doc},
    {"openings_after", (PyCFunction)(void (*)(void))after, METH_FASTCALL, after_doc},
    {"openings_at", (PyCFunction)(void (*)(void))open_at, METH_FASTCALL, open_doc},
    {"choose_nodes", (PyCFunction)(void (*)(void))choose, METH_FASTCALL, choose_doc},
    {NULL, NULL, 0, NULL},
};
