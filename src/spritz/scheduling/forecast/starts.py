"""Expected starts of jobs that wait for resources, as arrays: planned starts, and estimates for the other jobs.

Source: squeue(1) --start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from spritz.model.plan import Forecast
from spritz.scheduling.forecast.lanes import Group, Lanes

if TYPE_CHECKING:
    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.planned_starts import FutureStart
    from spritz.scheduling.view.profile import Floats
    from spritz.scheduling.view.records import Shape
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Ints


class Starts:
    """Starts of jobs with equal numbers of nodes: arrays `job_ids`, `start_at` [job], `nodes` [job, node]."""

    __slots__ = ("job_ids", "nodes", "start_at")

    def __init__(self, job_ids: Ints, start_at: Floats, nodes: Ints) -> None:
        self.job_ids = job_ids
        self.start_at = start_at
        self.nodes = nodes


class ExpectedStarts:
    """Expected starts so far: one per job, the earliest."""

    def __init__(self) -> None:
        self._at: dict[int, float] = {}
        self._by_size: dict[int, list[tuple[int, float, Sequence[int]]]] = {}

    def add(self, number: int, at: float, nodes: Sequence[int]) -> None:
        if number not in self._at:
            self._at[number] = at
            self._by_size.setdefault(len(nodes), []).append((number, at, nodes))

    def starts(self) -> list[Starts]:
        return [
            Starts(
                np.array([number for number, _at, _nodes in rows], np.int64),
                np.array([at for _number, at, _nodes in rows], np.float64),
                np.array([nodes for _number, _at, nodes in rows], np.int64).reshape(len(rows), size),
            )
            for size, rows in self._by_size.items()
        ]


def planned_starts(planned: Iterable[tuple[int, FutureStart]]) -> tuple[list[Starts], set[int]]:
    """Starts of jobs that have planned starts, the earliest if a job has several; and the ids of these jobs."""
    first: dict[int, FutureStart] = {}
    for job_id, future_start in planned:
        if job_id not in first or future_start.start_at < first[job_id].start_at:
            first[job_id] = future_start
    by_size: dict[int, list[tuple[int, FutureStart]]] = {}
    for job_id, future_start in first.items():
        by_size.setdefault(len(future_start.parts), []).append((job_id, future_start))
    starts = [
        Starts(
            np.array([job_id for job_id, _ in rows], np.int64),
            np.array([future_start.start_at for _, future_start in rows], np.float64),
            np.array([index for _, future_start in rows for index, _holder in future_start.parts], np.int64).reshape(
                -1, size
            ),
        )
        for size, rows in by_size.items()
    ]
    return starts, set(first)


class Groups:
    """Groups of one forecast: one for all requests that need the same resources of the same nodes."""

    def __init__(self, lanes: Lanes, eligibility: Eligibility) -> None:
        self._lanes = lanes
        self._eligibility = eligibility
        self._groups: dict[tuple[object, ...], Group] = {}
        self._of: dict[Request, Group] = {}
        #: by request without its times
        self._kinds: dict[Request, tuple[object, ...]] = {}
        #: one array object for equal sets of nodes, since groups compare them by identity
        self._named: dict[frozenset[int], Ints] = {}

    def of(self, request: Request, fit: Request | None = None) -> Group:
        """The group of the request. `fit`: the request without its times, if known."""
        group = self._of.get(request)
        if group is None:
            group = self._of[request] = self._find(request, fit if fit is not None else request)
        return group

    def _find(self, request: Request, fit: Request) -> Group:
        eligibility = self._eligibility
        nodes = eligibility.nodes(request)
        required = eligibility.required(request)
        if required and len(required) >= request.nodes_min:
            nodes = self._named.setdefault(required, np.array(sorted(required), np.int64))
        kind = self._kinds.get(fit)
        if kind is None:
            kind = self._kinds[fit] = self._lanes.kind(request)
        kind = (*kind, id(nodes))
        if kind not in self._groups:
            self._groups[kind] = Group(request, nodes)
        return self._groups[kind]


def estimated_starts(shapes: Sequence[Shape], known: Collection[int], lanes: Lanes, groups_of: Groups) -> list[Starts]:
    """Starts of all jobs of these shapes that are not in `known`, in order of the queue.

    A job that waits in several partitions may occur more than once.
    """
    if not shapes:
        return []
    numbers: dict[int, int] = {}
    groups: list[Group] = []
    of_shape = []
    for shape in shapes:
        group = groups_of.of(shape.request, shape.fit)
        if id(group) not in numbers:
            numbers[id(group)] = len(groups)
            groups.append(group)
        of_shape.append(numbers[id(group)])
    counts = [len(shape.keys) for shape in shapes]
    numbers_of_keys = chain.from_iterable(key for shape in shapes for key in shape.keys)
    keys = np.fromiter(numbers_of_keys, np.float64, 4 * sum(counts)).reshape(-1, 4)
    group_of = np.repeat(np.array(of_shape, np.int64), counts)
    seconds = np.repeat(np.array([shape.request.seconds for shape in shapes]), counts)
    job_ids = keys[:, 3].astype(np.int64)
    unknown = ~np.isin(job_ids, np.fromiter(known, np.int64, len(known)))
    # (np.lexsort takes the most significant key last.)
    order = np.lexsort(keys.T[::-1])
    order = order[unknown[order]]
    # Group by group, each in order of the queue; `turn`: their positions among all jobs.
    by_group = np.argsort(group_of[order], kind="stable")
    ends = np.cumsum(np.bincount(group_of[order], minlength=len(groups))).tolist()
    turn, job_ids, seconds = by_group.tolist(), job_ids[order][by_group], seconds[order][by_group]
    waiting = [
        (turn[first], first, first, end, group)
        for group, first, end in zip(groups, [0, *ends], ends, strict=False)
        if first < end
    ]
    heapify(waiting)
    starts = []
    while waiting:
        _turn, done, first, end, group = waiting[0]
        # Batches grow with the number of jobs before them: near the front of the queue, where users look, jobs are
        # estimated in small batches, in true order; far back an error of some jobs does not matter, and few calls serve
        # many jobs.
        start_at, chosen = lanes.starts(group, seconds[done : min(end, done + max(8, 3 * (done - first)))])
        count = len(start_at)
        starts.append(Starts(job_ids[done : done + count], start_at, chosen))
        done += count
        if count and done < end:
            heapreplace(waiting, (turn[done], done, first, end, group))
        else:
            heappop(waiting)
    return starts


def together(starts: Sequence[Starts], wholes: Mapping[int, int]) -> None:
    """Components start together, with the last of them. `wholes`: heterogeneous job id by component id."""
    latest: dict[int, float] = {}
    components: list[tuple[Starts, int, int]] = []
    for batch in starts:
        for place, job_id in enumerate(batch.job_ids.tolist()):
            whole = wholes.get(job_id)
            if whole is not None:
                components.append((batch, place, whole))
                latest[whole] = max(latest.get(whole, 0.0), float(batch.start_at[place]))
    for batch, place, whole in components:
        batch.start_at[place] = latest[whole]


def as_arrays(starts: Sequence[Starts]) -> Forecast:
    """In order of job ids; of several starts of a job the earliest."""
    if not starts:
        return Forecast(job_ids=b"", start_at=b"", ends=b"", nodes=b"")
    job_ids = np.concatenate([batch.job_ids for batch in starts])
    start_at = np.concatenate([batch.start_at for batch in starts])
    nodes = np.concatenate([batch.nodes.reshape(-1) for batch in starts])
    sizes = np.repeat([batch.nodes.shape[1] for batch in starts], [len(batch.job_ids) for batch in starts])
    begins = np.cumsum(sizes) - sizes
    order = np.lexsort((start_at, job_ids))
    order = order[np.append(True, job_ids[order][1:] != job_ids[order][:-1])[: len(order)]]
    sizes, ends = sizes[order], np.cumsum(sizes[order])
    places = np.repeat(begins[order] - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
    return Forecast(
        job_ids=job_ids[order].astype(np.int64).tobytes(),
        start_at=start_at[order].astype(np.float64).tobytes(),
        ends=ends.astype(np.int64).tobytes(),
        nodes=nodes[places].astype(np.int32).tobytes(),
    )
