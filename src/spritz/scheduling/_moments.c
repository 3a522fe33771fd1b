/* Arithmetic on what nodes will have free: a hold put into a profile, and lanes of the forecast.

The inner loops of `scheduling.profile` and `scheduling.lanes`, which say the same with numpy; tests compare the two. See
docs/decisions/0096.
*/
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>

#define COLUMNS_MAX 64
#define KINDS 3

/* The columns of a node that have special meaning; others are GRES. */
enum { CPUS, CORES, MEMORY, IDLE };

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
        wrong("an array of so many dimensions, of 64 bits each");
        return -1;
    }
    return 0;
}

/* -- a hold in a profile */

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

/* -- lanes of a forecast */

struct lanes {
    Py_buffer free_at[KINDS], cpus, up, nodes;
    int64_t need[KINDS];
    int whole, opened;
    Py_ssize_t count;
    double now;
};

static void close_lanes(struct lanes *lanes)
{
    Py_buffer *all[] = {&lanes->free_at[0], &lanes->free_at[1], &lanes->free_at[2], &lanes->cpus, &lanes->up, &lanes->nodes};
    while (lanes->opened)
        PyBuffer_Release(all[--lanes->opened]);
}

/* (free_at, need, whole, cpus, up, nodes, now) */
static int open_lanes(struct lanes *lanes, PyObject *const *arguments)
{
    lanes->opened = 0;
    if (!PyTuple_Check(arguments[0]) || PyTuple_GET_SIZE(arguments[0]) != KINDS || !PyTuple_Check(arguments[1]) ||
        PyTuple_GET_SIZE(arguments[1]) != KINDS) {
        wrong("three kinds of lanes");
        return -1;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        if (table_of(PyTuple_GET_ITEM(arguments[0], kind), &lanes->free_at[kind], 2) < 0)
            goto fail;
        lanes->opened++;
        lanes->need[kind] = PyLong_AsLongLong(PyTuple_GET_ITEM(arguments[1], kind));
    }
    lanes->whole = PyObject_IsTrue(arguments[2]);
    lanes->now = PyFloat_AsDouble(arguments[6]);
    Py_buffer *others[] = {&lanes->cpus, &lanes->up, &lanes->nodes};
    for (int each = 0; each < 3; each++) {
        if (PyObject_GetBuffer(arguments[3 + each], others[each], PyBUF_ND | PyBUF_C_CONTIGUOUS) < 0)
            goto fail;
        lanes->opened++;
    }
    lanes->count = lanes->free_at[0].shape[1];
    if (PyErr_Occurred() || lanes->cpus.len != 8 * lanes->count || lanes->up.len != lanes->count ||
        lanes->nodes.itemsize != 8 || lanes->free_at[1].shape[1] != lanes->count || lanes->free_at[2].shape[1] != lanes->count) {
        wrong("one value a node");
        goto fail;
    }
    for (Py_ssize_t each = 0; each < lanes->nodes.len / 8; each++) {
        int64_t node = ((int64_t *)lanes->nodes.buf)[each];
        if (node < 0 || node >= lanes->count) {
            wrong("no such node");
            goto fail;
        }
    }
    return 0;
fail:
    close_lanes(lanes);
    return -1;
}

/* When the node can give what is needed. */
static double ready(const struct lanes *lanes, int64_t node)
{
    double at = lanes->now;
    if (!((const uint8_t *)lanes->up.buf)[node])
        return INFINITY;
    for (int kind = 0; kind < KINDS; kind++) {
        int64_t need = lanes->need[kind];
        if (need > lanes->free_at[kind].shape[0])
            return INFINITY;
        if (need > 0) {
            double free_at = ((const double *)lanes->free_at[kind].buf)[(need - 1) * lanes->count + node];
            at = free_at > at ? free_at : at;
        }
    }
    int64_t all = ((const int64_t *)lanes->cpus.buf)[node];
    if (lanes->whole && all > 0 && all <= lanes->free_at[0].shape[0]) {
        double free_at = ((const double *)lanes->free_at[0].buf)[(all - 1) * lanes->count + node];
        at = free_at > at ? free_at : at;
    }
    return at;
}

struct readiness {
    double at;
    Py_ssize_t place;
};

static int by_time(const void *one, const void *other)
{
    const struct readiness *mine = one, *theirs = other;
    if (mine->at != theirs->at)
        return mine->at < theirs->at ? -1 : 1;
    return mine->place < theirs->place ? -1 : mine->place > theirs->place;
}

static void sift(struct readiness *heap, Py_ssize_t size, Py_ssize_t place)
{
    struct readiness value = heap[place];
    for (;;) {
        Py_ssize_t child = 2 * place + 1;
        if (child + 1 < size && by_time(&heap[child], &heap[child + 1]) < 0)
            child++;
        if (child >= size || by_time(&heap[child], &value) <= 0)
            break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = value;
}

PyDoc_STRVAR(soonest_doc,
             "soonest(free_at, need, whole, cpus, up, nodes, now, chosen, at) -> int\n\n"
             "Put into chosen (int64) and at (float64) those of `nodes` that can give what is needed first, and when\n"
             "(inf: never): as many as there is room for, in order of time and of `nodes`. Returns how many of all\n"
             "nodes ever can. `free_at`: three arrays float64[lane, node].");

static PyObject *soonest(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    struct lanes lanes;
    Py_buffer chosen, at;
    PyObject *result = NULL;
    if (count != 9)
        return wrong("nine arguments");
    if (open_lanes(&lanes, arguments) < 0)
        return NULL;
    if (table_of(arguments[7], &chosen, 1) < 0)
        goto lanes;
    if (table_of(arguments[8], &at, 1) < 0)
        goto chosen;
    Py_ssize_t wanted = chosen.shape[0], all = lanes.nodes.len / 8, usable = 0, size = 0;
    if (at.shape[0] != wanted || wanted > all) {
        wrong("no more than there are nodes");
        goto at;
    }
    struct readiness *heap = malloc((size_t)(wanted + 1) * sizeof *heap);
    if (heap == NULL) {
        PyErr_NoMemory();
        goto at;
    }
    const int64_t *nodes = lanes.nodes.buf;
    for (Py_ssize_t each = 0; each < all; each++) {
        struct readiness one = {ready(&lanes, nodes[each]), each};
        usable += one.at < INFINITY;
        if (size < wanted) {
            heap[size++] = one;
            if (size == wanted)
                for (Py_ssize_t place = size / 2; place-- > 0;)
                    sift(heap, size, place);
        } else if (wanted && one.at < heap[0].at) {
            heap[0] = one;
            sift(heap, size, 0);
        }
    }
    qsort(heap, (size_t)size, sizeof *heap, by_time);
    for (Py_ssize_t each = 0; each < size; each++) {
        ((int64_t *)chosen.buf)[each] = nodes[heap[each].place];
        ((double *)at.buf)[each] = heap[each].at;
    }
    free(heap);
    result = PyLong_FromSsize_t(usable);
at:
    PyBuffer_Release(&at);
chosen:
    PyBuffer_Release(&chosen);
lanes:
    close_lanes(&lanes);
    return result;
}

PyDoc_STRVAR(take_doc, "take(free_at, need, whole, cpus, up, nodes, now, until)\n\n"
                       "The first lanes of these nodes are in use until (float64[node]) then: as many as are needed of\n"
                       "each kind, all of the first kind if `whole`.");

static PyObject *take(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    struct lanes lanes;
    Py_buffer until;
    if (count != 8)
        return wrong("eight arguments");
    if (open_lanes(&lanes, arguments) < 0)
        return NULL;
    if (table_of(arguments[7], &until, 1) < 0) {
        close_lanes(&lanes);
        return NULL;
    }
    if (until.len != lanes.nodes.len)
        wrong("one time a node");
    for (int kind = 0; kind < KINDS && !PyErr_Occurred(); kind++) {
        Py_ssize_t all = lanes.free_at[kind].shape[0], stride = lanes.count;
        Py_ssize_t taken = lanes.whole && !kind ? all : (Py_ssize_t)lanes.need[kind];
        if (lanes.need[kind] <= 0 || taken > all)
            continue;
        for (Py_ssize_t each = 0; each < until.len / 8; each++) {
            double *lane = (double *)lanes.free_at[kind].buf + ((int64_t *)lanes.nodes.buf)[each];
            double then = ((double *)until.buf)[each];
            Py_ssize_t given = 0, to = 0;
            while (given < taken && lane[given * stride] < INFINITY)
                given++;
            Py_ssize_t from = given;
            while (from < all && lane[from * stride] <= then)
                lane[to++ * stride] = lane[from++ * stride];
            while (to < from)
                lane[to++ * stride] = then;
        }
    }
    PyBuffer_Release(&until);
    close_lanes(&lanes);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"hold", (PyCFunction)(void (*)(void))hold, METH_FASTCALL, hold_doc},
    {"soonest", (PyCFunction)(void (*)(void))soonest, METH_FASTCALL, soonest_doc},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, take_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_moments", "What nodes will have free; see scheduling.profile and scheduling.lanes.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__moments(void) { return PyModule_Create(&definition); }
