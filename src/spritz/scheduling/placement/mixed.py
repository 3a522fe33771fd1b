"""Places a job that asks for GPUs of several types in total: `--gpus=a100:3,h100:2`.

`select` counts one kind of device. Its choice is taken here if the types come out; otherwise nodes are added greedily
by how much of what is missing they have. Then each type is dealt over the nodes, at least one device to each node. An
existing solution is missed only if the node limit is so tight that the greedy cover fails.

Source: sbatch(1) --gpus; select/cons_tres.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.scheduling.placement.select import Candidate, Portion, portions_of, select, target_of
from spritz.scheduling.view.capacity import capacity
from spritz.scheduling.view.request import Need

if TYPE_CHECKING:
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import NodeTable

#: devices of each type, in the order of `Request.gpu_types`
Counts = tuple[int, ...]


def mixed_portions(
    table: NodeTable, request: Request, candidates: list[Candidate], required: frozenset[int]
) -> list[tuple[Portion, Request]] | None:
    """The portion of each node, with the request as it applies to this node alone; None if they cannot carry the job.

    `candidates` are in node order, with tasks and GPUs of any type as upper bounds.
    """
    wanted = tuple(need.count for need in request.gpu_types)
    have: dict[int, Counts] = {}
    able: list[Candidate] = []
    for candidate in candidates:
        row = table.rows[candidate.index]
        free = (min(row.count_free(need.name, need.type), need.count) for need in request.gpu_types)
        have[candidate.index] = counts = tuple(free)
        devices = min(sum(counts), candidate.gpus)
        if devices:
            able.append(replace(candidate, gpus=devices))
    usual = select(able, request, required)
    by_index = {candidate.index: candidate for candidate in able}
    choices = [[by_index[portion.index] for portion in usual]] if usual else []
    greedy = None if request.contiguous else _covering(able, have, wanted, request, required)
    for chosen in [*choices, *([greedy] if greedy else [])]:
        portions = _dealt(table, request, chosen, have, wanted)
        if portions is not None:
            return portions
    return None


def _covering(
    able: list[Candidate], have: dict[int, Counts], wanted: Counts, request: Request, required: frozenset[int]
) -> list[Candidate] | None:
    """Required nodes, then those with most of what is missing."""
    target = target_of(request)
    chosen = [candidate for candidate in able if candidate.index in required]
    others = [candidate for candidate in able if candidate.index not in required]
    if not len(required) <= len(chosen) <= target.nodes_max:
        return None
    missing, tasks = wanted, target.tasks or 0
    for candidate in chosen:
        missing, tasks = _minus(missing, have[candidate.index]), tasks - candidate.tasks
    # Equal nodes, the first one last: compare only one node of each kind.
    kinds: dict[tuple[Counts, int, int], list[Candidate]] = {}
    for candidate in reversed(others):
        kinds.setdefault((have[candidate.index], candidate.tasks, candidate.weight), []).append(candidate)
    while any(missing) or len(chosen) < target.nodes_min or tasks > 0:
        if not kinds or len(chosen) >= target.nodes_max:
            return None
        best = max(kinds, key=lambda kind: (_useful(missing, kind[0]), kind[1], -kind[2], -kinds[kind][-1].index))
        chosen.append(kinds[best].pop())
        missing, tasks = _minus(missing, best[0]), tasks - best[1]
        if not kinds[best]:
            del kinds[best]
    return chosen


def _useful(missing: Counts, counts: Counts) -> int:
    return sum(map(min, missing, counts))


def _minus(missing: Counts, counts: Counts) -> Counts:
    return tuple(max(0, count - other) for count, other in zip(missing, counts, strict=True))


def _dealt(
    table: NodeTable, request: Request, chosen: list[Candidate], have: dict[int, Counts], wanted: Counts
) -> list[tuple[Portion, Request]] | None:
    """Each node in turn takes what it can, but leaves a device for each node that follows, and types that only those
    have.
    """
    chosen = sorted(chosen, key=lambda candidate: candidate.index)
    missing = wanted
    ahead = tuple(map(sum, zip(*(have[taken.index] for taken in chosen), strict=True)))
    parts: list[tuple[Candidate, Request]] = []
    for later, candidate in zip(range(len(chosen) - 1, -1, -1), chosen, strict=True):
        # `ahead`: what the nodes that follow have of each type. This node must take what they lack (`share`); beyond
        # that it takes what it can (`spare`), but leaves a device for each of them, because every chosen node
        # must serve a task.
        ahead = tuple(map(int.__sub__, ahead, have[candidate.index]))
        devices = candidate.gpus
        share = [max(0, left_count - other) for left_count, other in zip(missing, ahead, strict=True)]
        spare = min(devices, sum(missing) - later) - sum(share)
        for kind, count in enumerate(have[candidate.index]):
            more = min(count - share[kind], missing[kind] - share[kind], spare)
            if more > 0:
                share[kind] += more
                spare -= more
        if not any(share) or sum(share) > devices or any(map(int.__gt__, share, have[candidate.index])):
            return None
        missing = _minus(missing, tuple(share))
        node_request = request_of_node(request, tuple(share))
        tasks, _gpus = capacity(table.rows[candidate.index], node_request)
        parts.append((Candidate(candidate.index, tasks, sum(share)), node_request))
    if any(missing) or not all(candidate.tasks for candidate, _node_request in parts):
        return None
    target = target_of(request)
    if target.tasks is None and any(candidate.tasks < target.tasks_per_node for candidate, _node_request in parts):
        return None
    portions = portions_of([candidate for candidate, _node_request in parts], target)
    return (
        None
        if portions is None
        else [(portion, node_request) for portion, (_c, node_request) in zip(portions, parts, strict=True)]
    )


def request_of_node(request: Request, share: Counts) -> Request:
    """The request with this node's devices (of each of its types) as what the node must give."""
    needs = dict(request.node_needs)
    for need, count in zip(request.gpu_types, share, strict=True):
        if count:
            needs[need.name, need.type] = needs.get((need.name, need.type), 0) + count
    return replace(
        request,
        gres_node=tuple(Need(name, kind, count) for (name, kind), count in sorted(needs.items())),
        gres_total=None,
        gpu_types=(),
        cpus_per_node_min=max(request.cpus_per_node_min, request.cpus_per_gpu * sum(share)),
    )
