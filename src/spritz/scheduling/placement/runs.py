"""The usual choice of nodes in array form: `select` for requests that name no nodes and want no special order.

Its scalar reference is `select.select`; the two agree wherever this one gives an answer.

Source: select/cons_tres, best fit among runs of consecutive nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.placement.select import Candidate, Portion, portions_of, target_of

if TYPE_CHECKING:
    from spritz.scheduling.placement.select import Target
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Ints

_LARGE = np.iinfo(np.int64).max


def plain(request: Request) -> bool:
    """Whether the usual order of the nodes applies."""
    return not (request.gpu_types or request.contiguous or request.spread or request.least_loaded or request.node_list)


def select_columns(
    nodes: Ints, tasks: Ints, gpus: Ints, weights: Ints, request: Request
) -> tuple[list[Portion] | None, bool]:
    """Portions, and whether the answer is final. None without finality means that the slower `select` must look for a
    better set.

    `nodes` ascend; `tasks` and `gpus` are their capacities (0: cannot serve), `weights` their weights; all int64[n].
    """
    target = target_of(request)
    able = (tasks >= (target.tasks_per_node if target.tasks is None else 1)).nonzero()[0]
    if len(able) < target.nodes_min:
        return None, True
    tasks, gpus = tasks[able], gpus[able]
    if (target.tasks and int(tasks.sum()) < target.tasks) or (target.gpus and int(gpus.sum()) < target.gpus):
        return None, True
    nodes, weights = nodes[able], weights[able]
    chosen = _in_order(nodes, tasks, gpus, weights, target)
    if chosen is None:
        return None, False
    picked = [Candidate(int(nodes[i]), int(tasks[i]), int(gpus[i])) for i in chosen]
    portions = portions_of(picked, target)
    return portions, portions is not None


def _in_order(nodes: Ints, tasks: Ints, gpus: Ints, weights: Ints, target: Target) -> list[int] | None:
    """Positions of the nodes taken; None if they do not suffice."""
    chosen: list[int] = []
    #: nodes, tasks and GPUs that are still wanted
    missing = [target.nodes_wanted, target.tasks or 0, target.gpus]
    lowest, highest = int(weights.min()), int(weights.max())
    for weight in [lowest] if lowest == highest else np.unique(weights).tolist():
        members = np.arange(len(nodes)) if lowest == highest else (weights == weight).nonzero()[0]
        _take_runs(members, nodes[members], tasks[members], gpus[members], target, missing, chosen)
        if max(missing) <= 0 or len(chosen) >= target.nodes_max:
            break
    complete = len(chosen) >= target.nodes_min and missing[1] <= 0 and missing[2] <= 0
    return chosen if complete else None


def _take_runs(
    members: Ints, nodes: Ints, tasks: Ints, gpus: Ints, target: Target, missing: list[int], chosen: list[int]
) -> None:
    """Take runs of neighbours among nodes of one weight: the smallest that suffices, else the largest, and so on."""
    # A run begins where the index jumps by more than one; `reduceat` sums tasks and GPUs from each beginning to the
    # next.
    starts = np.concatenate(([0], (np.diff(nodes) != 1).nonzero()[0] + 1))
    lengths = np.diff(np.append(starts, len(nodes)))
    run_tasks, run_gpus = np.add.reduceat(tasks, starts), np.add.reduceat(gpus, starts)
    unused = np.ones(len(starts), np.bool_)
    while unused.any() and max(missing) > 0 and len(chosen) < target.nodes_max:
        enough = unused & (lengths >= missing[0]) & (run_tasks >= missing[1]) & (run_gpus >= missing[2])
        if enough.any():
            run = int(np.where(enough, run_tasks, _LARGE).argmin())
        else:
            run = int(np.where(unused, run_tasks, -1).argmax())
        unused[run] = False
        first, length = int(starts[run]), int(lengths[run])
        room = min(length, target.nodes_max - len(chosen))
        count = min(room, _needed(tasks[first : first + room], gpus[first : first + room], missing))
        end = first + count
        chosen.extend(members[first:end].tolist())
        missing[0] -= count
        missing[1] -= int(tasks[first:end].sum())
        missing[2] -= int(gpus[first:end].sum())


def _needed(tasks: Ints, gpus: Ints, missing: list[int]) -> int:
    """How many nodes from the start of a run supply what is missing; more than there are if they do not."""
    count = max(missing[0], 1)
    for sizes, wanted in ((tasks, missing[1]), (gpus, missing[2])):
        if wanted > 0:
            count = max(count, int(np.searchsorted(np.cumsum(sizes), wanted)) + 1)
    return count
