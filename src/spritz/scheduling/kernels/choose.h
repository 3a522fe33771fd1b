/* Which of the nodes that could serve a job takes: `placement.runs` in C. See docs/decisions/0166.

Everything is in counts: a term is the number of tasks (or GPUs) that one quantity of a node is enough for, and the
least of a node's terms is what it can carry.
*/
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TERMS_MAX 16

/* ((have - less) / part * times) / each */
struct term {
    int64_t column, less, part, times, each;
};

struct target {
    int64_t nodes_min, nodes_max, nodes_wanted;
    int64_t tasks; /* -1: `least` on every node */
    int64_t gpus;
};

struct candidate {
    int64_t node, weight, tasks, gpus;
};

static inline int64_t amount(const struct term *terms, int count, int64_t most, const int64_t *have)
{
    int64_t least = most;
    for (int each = 0; each < count; each++) {
        const struct term *term = &terms[each];
        int64_t value = have[term->column] - term->less;
        value = value < 0 ? 0 : value / term->part * term->times / term->each;
        if (value < least)
            least = value;
    }
    return least;
}

struct run {
    Py_ssize_t first, length;
    int64_t tasks, gpus;
    int used;
};

/* How many nodes from the start of a run supply what is missing. */
static Py_ssize_t supply(const struct candidate *from, Py_ssize_t room, const int64_t *missing)
{
    int64_t tasks = 0, gpus = 0;
    Py_ssize_t count = 0;
    while (count < room && (count < missing[0] || tasks < missing[1] || gpus < missing[2] || !count)) {
        tasks += from[count].tasks;
        gpus += from[count].gpus;
        count++;
    }
    return count;
}

/* Take nodes of one weight, run by run (a run is a series of neighbours): the smallest run that suffices, else the
   largest, and so on. */
static int take_runs(const struct candidate *members, Py_ssize_t count, const struct target *target, int64_t *missing,
                     struct candidate *chosen, Py_ssize_t *taken)
{
    struct run *runs = malloc((size_t)count * sizeof *runs);
    Py_ssize_t length = 0, left;
    if (runs == NULL)
        return -1;
    for (Py_ssize_t each = 0; each < count; each++) {
        if (!each || members[each].node != members[each - 1].node + 1)
            runs[length++] = (struct run){each, 0, 0, 0, 0};
        runs[length - 1].length++;
        runs[length - 1].tasks += members[each].tasks;
        runs[length - 1].gpus += members[each].gpus;
    }
    for (left = length; left && (missing[0] > 0 || missing[1] > 0 || missing[2] > 0) && *taken < target->nodes_max; left--) {
        struct run *best = NULL, *largest = NULL;
        for (struct run *run = runs; run < runs + length; run++) {
            if (run->used)
                continue;
            if (run->length >= missing[0] && run->tasks >= missing[1] && run->gpus >= missing[2] &&
                (best == NULL || run->tasks < best->tasks))
                best = run;
            if (largest == NULL || run->tasks > largest->tasks)
                largest = run;
        }
        if (best == NULL)
            best = largest;
        best->used = 1;
        Py_ssize_t room = target->nodes_max - *taken < best->length ? (Py_ssize_t)(target->nodes_max - *taken) : best->length;
        Py_ssize_t taken_here = supply(members + best->first, room, missing);
        for (Py_ssize_t each = best->first; each < best->first + taken_here; each++) {
            missing[0]--;
            missing[1] -= members[each].tasks;
            missing[2] -= members[each].gpus;
            chosen[(*taken)++] = members[each];
        }
    }
    free(runs);
    return 0;
}

/* Write the nodes taken into `chosen`. Returns their number; 0 if the candidates cannot carry the job; -1 if runs do not
   suffice and a better search must decide; -2 if memory is lacking. Candidates ascend by node. */
static Py_ssize_t choose_nodes(const struct candidate *candidates, Py_ssize_t count, const struct target *target,
                               struct candidate *chosen)
{
    int64_t tasks = 0, gpus = 0, missing[3] = {target->nodes_wanted, target->tasks > 0 ? target->tasks : 0, target->gpus};
    Py_ssize_t taken = 0, error = 0;
    if (count < target->nodes_min || !count)
        return 0;
    int64_t weight = candidates[0].weight, highest = weight;
    for (Py_ssize_t each = 0; each < count; each++) {
        tasks += candidates[each].tasks;
        gpus += candidates[each].gpus;
        weight = candidates[each].weight < weight ? candidates[each].weight : weight;
        highest = candidates[each].weight > highest ? candidates[each].weight : highest;
    }
    if ((target->tasks > 0 && tasks < target->tasks) || gpus < target->gpus)
        return 0;
    if (weight == highest) {
        error = take_runs(candidates, count, target, missing, chosen, &taken);
    } else {
        struct candidate *members = malloc((size_t)count * sizeof *members);
        error = members == NULL ? -1 : 0;
        while (!error) {
            Py_ssize_t member_count = 0;
            int64_t next = highest;
            for (Py_ssize_t each = 0; each < count; each++) {
                if (candidates[each].weight == weight)
                    members[member_count++] = candidates[each];
                else if (candidates[each].weight > weight && candidates[each].weight < next)
                    next = candidates[each].weight;
            }
            error = take_runs(members, member_count, target, missing, chosen, &taken);
            if (weight == highest || taken >= target->nodes_max ||
                (missing[0] <= 0 && missing[1] <= 0 && missing[2] <= 0))
                break;
            weight = next;
        }
        free(members);
    }
    if (error)
        return -2;
    return taken >= target->nodes_min && missing[1] <= 0 && missing[2] <= 0 ? taken : -1;
}
