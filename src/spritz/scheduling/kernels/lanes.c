/* Lanes of a forecast: which nodes are free first, and taking lanes of them.

`kernels/lanes.py` does the same with numpy; tests compare the two. See docs/decisions/0166.
*/
#include "arrays.h"

#define KINDS 3

struct lanes {
    Py_buffer free_at[KINDS], cpus, up, nodes;
    int64_t need[KINDS];
    const double *lane[KINDS]; /* the last lane that is needed of each kind (NULL: none is) */
    int whole, opened, too_many;
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
    lanes->opened = lanes->too_many = 0;
    if (!PyTuple_Check(arguments[0]) || PyTuple_GET_SIZE(arguments[0]) != KINDS || !PyTuple_Check(arguments[1]) ||
        PyTuple_GET_SIZE(arguments[1]) != KINDS) {
        wrong("three kinds of lanes");
        return -1;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        if (table_of(PyTuple_GET_ITEM(arguments[0], kind), &lanes->free_at[kind], 2) < 0)
            goto fail;
        lanes->opened++;
        int64_t need = lanes->need[kind] = PyLong_AsLongLong(PyTuple_GET_ITEM(arguments[1], kind));
        int there = need <= lanes->free_at[kind].shape[0];
        lanes->too_many |= !there;
        lanes->lane[kind] = NULL;
        if (need > 0 && there)
            lanes->lane[kind] = (const double *)lanes->free_at[kind].buf + (need - 1) * lanes->free_at[kind].shape[1];
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

PyDoc_STRVAR(lasting_doc,
             "lanes_free_at(times, counts, now, free_at)\n\n"
             "Write into free_at (float64[lane, node]) the times from which 1, 2 ... lanes of each node are free for good\n"
             "(inf: never).\n"
             "`times` float64[node, breakpoint] (inf: no more), `counts` int64[node, breakpoint].");

static PyObject *lasting(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer times, counts, out;
    PyObject *result = NULL;
    double now = count == 4 ? PyFloat_AsDouble(arguments[2]) : 0.0;
    if (count != 4 || PyErr_Occurred())
        return wrong("four arguments");
    if (table_of(arguments[0], &times, 2) < 0)
        return NULL;
    if (table_of(arguments[1], &counts, 2) < 0)
        goto times;
    if (table_of(arguments[3], &out, 2) < 0)
        goto counts;
    const Py_ssize_t nodes = times.shape[0], breakpoints = times.shape[1], lanes = out.shape[0];
    if (counts.shape[0] != nodes || counts.shape[1] != breakpoints || out.shape[1] != nodes) {
        wrong("as many breakpoints of as many nodes");
        goto out;
    }
    for (Py_ssize_t node = 0; node < nodes; node++) {
        const double *at = (const double *)times.buf + node * breakpoints;
        const int64_t *have = (const int64_t *)counts.buf + node * breakpoints;
        double *free_at = (double *)out.buf + node;
        Py_ssize_t last = breakpoints, done = lanes;
        while (last > 0 && !(at[last - 1] < INFINITY))
            last--;
        /* From the last breakpoint back: fewer lanes are free for good from an earlier breakpoint on, or from the same. */
        double from = INFINITY;
        int64_t least = INT64_MAX;
        while (last-- > 0) {
            least = have[last] < least ? have[last] : least;
            for (; done > 0 && done > least; done--)
                free_at[(done - 1) * nodes] = from;
            from = at[last] > now ? at[last] : now;
        }
        for (; done > 0; done--)
            free_at[(done - 1) * nodes] = from;
    }
    result = Py_NewRef(Py_None);
out:
    PyBuffer_Release(&out);
counts:
    PyBuffer_Release(&counts);
times:
    PyBuffer_Release(&times);
    return result;
}

/* When the node can give what is needed. */
static inline double ready(const struct lanes *lanes, int64_t node)
{
    double at = lanes->now;
    if (lanes->too_many || !((const uint8_t *)lanes->up.buf)[node])
        return INFINITY;
    for (int kind = 0; kind < KINDS; kind++)
        if (lanes->lane[kind] != NULL) {
            double free_at = lanes->lane[kind][node];
            at = free_at > at ? free_at : at;
        }
    if (!lanes->whole)
        return at;
    int64_t all = ((const int64_t *)lanes->cpus.buf)[node];
    if (all > 0 && all <= lanes->free_at[0].shape[0]) {
        double free_at = ((const double *)lanes->free_at[0].buf)[(all - 1) * lanes->count + node];
        at = free_at > at ? free_at : at;
    }
    return at;
}

struct readiness {
    double at;
    Py_ssize_t place;
};

static int by_time(const void *left, const void *right)
{
    const struct readiness *first = left, *second = right;
    if (first->at != second->at)
        return first->at < second->at ? -1 : 1;
    return first->place < second->place ? -1 : first->place > second->place;
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
             "lanes_soonest(free_at, need, whole, cpus, up, nodes, now, chosen, at)\n\n"
             "Write into chosen (int64) and at (float64) those of `nodes` that can give what is needed first, and when they\n"
             "can (inf: never), in order of time and of `nodes`; the length of chosen says how many. `free_at`: three\n"
             "arrays float64[lane, node].");

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
    Py_ssize_t wanted = chosen.shape[0], all = lanes.nodes.len / 8, size = 0;
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
        struct readiness candidate = {ready(&lanes, nodes[each]), each};
        if (size < wanted) {
            heap[size++] = candidate;
            if (size == wanted)
                for (Py_ssize_t place = size / 2; place-- > 0;)
                    sift(heap, size, place);
        } else if (wanted && candidate.at < heap[0].at) {
            heap[0] = candidate;
            sift(heap, size, 0);
        }
    }
    qsort(heap, (size_t)size, sizeof *heap, by_time);
    for (Py_ssize_t each = 0; each < size; each++) {
        ((int64_t *)chosen.buf)[each] = nodes[heap[each].place];
        ((double *)at.buf)[each] = heap[each].at;
    }
    free(heap);
    result = Py_NewRef(Py_None);
at:
    PyBuffer_Release(&at);
chosen:
    PyBuffer_Release(&chosen);
lanes:
    close_lanes(&lanes);
    return result;
}

#define SAMPLE 32

/* A value probably a little above that of the rank: a pivot, estimated from a sample. */
static double near_rank(const double *values, Py_ssize_t count, Py_ssize_t rank)
{
    double sample[SAMPLE];
    for (Py_ssize_t each = 0; each < SAMPLE; each++) {
        double value = values[each * count / SAMPLE];
        Py_ssize_t place = each;
        for (; place > 0 && sample[place - 1] > value; place--)
            sample[place] = sample[place - 1];
        sample[place] = value;
    }
    Py_ssize_t place = rank * SAMPLE / count + 2;
    return sample[place < SAMPLE ? place : SAMPLE - 1];
}

/* The value of that rank (0: the least) of `count` values, which are reordered (quickselect). */
static double ranked(double *values, Py_ssize_t count, Py_ssize_t rank)
{
    Py_ssize_t first = 0, last = count - 1;
    while (first < last) {
        int many = last - first >= 8 * SAMPLE;
        double middle = many ? near_rank(values + first, last - first + 1, rank - first) : values[first + (last - first) / 2];
        Py_ssize_t low = first, high = last;
        while (low <= high) {
            while (values[low] < middle)
                low++;
            while (values[high] > middle)
                high--;
            if (low <= high) {
                double value = values[low];
                values[low++] = values[high];
                values[high--] = value;
            }
        }
        if (rank <= high)
            last = high;
        else if (rank >= low)
            first = low;
        else
            break;
    }
    return values[rank];
}

PyDoc_STRVAR(pool_doc,
             "lanes_pool(free_at, need, whole, cpus, up, nodes, now, chosen) -> (int, float)\n\n"
             "Write into chosen (int64), in the order of `nodes`, those of them that can give what is needed first; its\n"
             "length says how many. Returns how many of all nodes ever can, and when the first of the others can.");

static PyObject *pool(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    struct lanes lanes;
    Py_buffer chosen;
    PyObject *result = NULL;
    if (count != 8)
        return wrong("eight arguments");
    if (open_lanes(&lanes, arguments) < 0)
        return NULL;
    if (table_of(arguments[7], &chosen, 1) < 0)
        goto lanes;
    Py_ssize_t width = chosen.shape[0], all = lanes.nodes.len / 8, usable = 0, put = 0;
    if (width >= all) {
        wrong("fewer than there are nodes");
        goto chosen;
    }
    double *at = malloc((size_t)(2 * all) * sizeof *at);
    if (at == NULL) {
        PyErr_NoMemory();
        goto chosen;
    }
    const int64_t *nodes = lanes.nodes.buf;
    for (Py_ssize_t each = 0; each < all; each++) {
        at[each] = ready(&lanes, nodes[each]);
        usable += at[each] < INFINITY;
    }
    memcpy(at + all, at, (size_t)all * sizeof *at);
    double limit = ranked(at + all, all, width);
    /* Of the nodes that are ready exactly at the limit, take the first ones while there is room. */
    Py_ssize_t room = width;
    for (Py_ssize_t each = 0; each < all; each++)
        room -= at[each] < limit;
    for (Py_ssize_t each = 0; each < all && put < width; each++)
        if (at[each] < limit || (at[each] == limit && room-- > 0))
            ((int64_t *)chosen.buf)[put++] = nodes[each];
    free(at);
    result = Py_BuildValue("nd", usable, limit);
chosen:
    PyBuffer_Release(&chosen);
lanes:
    close_lanes(&lanes);
    return result;
}

PyDoc_STRVAR(take_doc, "lanes_take(free_at, need, whole, cpus, up, nodes, now, until)\n\n"
                       "Mark the first lanes of these nodes as in use until `until` (float64[node]): as many as are needed\n"
                       "of each kind; all lanes of the first kind if `whole`.");

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

PyMethodDef lanes_methods[] = {
    {"lanes_free_at", (PyCFunction)(void (*)(void))lasting, METH_FASTCALL, lasting_doc},
    {"lanes_pool", (PyCFunction)(void (*)(void))pool, METH_FASTCALL, pool_doc},
    {"lanes_soonest", (PyCFunction)(void (*)(void))soonest, METH_FASTCALL, soonest_doc},
    {"lanes_take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, take_doc},
    {NULL, NULL, 0, NULL},
};
