"""Use of the cluster in each hour of a window, from records of jobs, reservations and nodes. Pure.

`Window` takes the records that overlap it and then tells, for each hour, the state of the cluster's resources and their
use by holder. Times are whole seconds, amounts are TRES count times seconds (memory in MiB).

The hour of a resource is divided in this order: allocated (jobs, and reservations as a whole), planned down (MAINT
reservations), down, planned (CPUs that waiting jobs could have had; their demand beyond that is `over`), idle. A
suspended job gives up only its CPUs. A drained node is down once its last job has left. Reserved time that was not used
is charged in equal parts to the reservation's holders. IGNORE_JOBS reservations are not counted.

Source: sreport(1) REPORT DESCRIPTION; results of slurmdbd 22.05 for the same records. Differs: that release subtracts
the jobs of a reservation twice from its unused time, and gives nodes a row of their own.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from spritz.accounting.rollup.amounts import Amounts, add
from spritz.notation import hostlist, tres

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from spritz.model.accounting.records import NodeEventRecord, ReservationRecord

Pairs = tuple[tuple[str, int], ...]
Interval = tuple[int, int]

_FOREVER = 1 << 60


class Holder(NamedTuple):
    """The account, user, wckey or QOS that is charged."""

    account: str
    user: str
    wckey: str = ""
    qos: str = ""


class Used(NamedTuple):
    """A job's record for the roll-up.

    Times in whole seconds, 0: not yet. `tasks`: pending array tasks, or 1. `cpus`: allocated; 0 without an allocation.
    """

    holder: Holder
    reservation: str
    eligible_at: int
    started_at: int
    ended_at: int
    cpus_asked: int
    tasks: int
    tres: str
    nodes: str
    #: intervals of suspension
    suspended: tuple[Interval, ...] = ()
    #: joules; charged to the hour in which it ended
    energy: int = 0
    cpus: int = 0
    partition: str = ""


class ClusterHour(Struct, frozen=True, kw_only=True, gc=False):
    """One TRES of a cluster in one hour."""

    tres: str
    count: int
    allocated: int
    down: int
    planned_down: int
    idle: int
    planned: int
    over: int


@lru_cache(4096)
def pairs_of(text: str) -> Pairs:
    """A TRES text of a job."""
    return tres.parse(text)


def overlap(start: int, end: int, low: int, high: int) -> int:
    """Seconds that the intervals [start, end) and [low, high) share."""
    return max(0, min(end, high) - max(start, low))


def used_amounts(pairs: Pairs, start: int, end: int, suspended: Iterable[Interval]) -> list[tuple[str, int]]:
    """Amounts that a job used from `start` to `end`; it ran, or was suspended, all that time.

    During a suspension other jobs may have its CPUs; it keeps everything else. An interval's end of 0: still suspended.
    """
    pause = sum(overlap(low, high or _FOREVER, start, end) for low, high in suspended)
    return [(name, count * max(0, end - start - pause * (name == "cpu"))) for name, count in pairs]


class _Reserved:
    """A reservation's record inside the window."""

    __slots__ = ("end", "holders", "maintenance", "name", "nodes", "start", "tres", "used")

    def __init__(self, record: ReservationRecord, holders: list[Holder]) -> None:
        self.name = record.name
        self.start, self.end = int(record.started_at), int(record.ended_at)
        self.tres = tres.parse(record.tres)
        self.nodes = frozenset(hostlist.expand(record.nodes)) if record.nodes else frozenset[str]()
        self.maintenance = "MAINT" in record.flags.split(",")
        self.holders = holders
        #: hour -> TRES -> use by its jobs
        self.used: dict[int, dict[str, int]] = {}


class Window:
    """Some hours in a row. `bounds`: the beginning of each, and the end of the last (`spans.hours`).

    An hour is named by its beginning. It has 3600 seconds, or less where clocks are changed by a part of an hour.
    """

    def __init__(self, bounds: Sequence[int]) -> None:
        self._bounds = bounds
        self.start, self.end = bounds[0], bounds[-1]
        #: the hours' beginnings, in order
        self.hours = bounds[:-1]
        self._ends = dict(itertools.pairwise(bounds))
        # Most jobs use all their TRES for the same time. They are counted in seconds by kind, (holder, TRES), hour by
        # hour, and multiplied only when asked for; `_holders` and `_allocated` have the other jobs.
        self._kinds: dict[tuple[Holder, str], int] = {}
        self._kind_names: list[tuple[Holder, str]] = []
        self._kind_pairs: list[Pairs] = []
        #: hour -> kind -> seconds
        self._plain: dict[int, dict[int, int]] = {hour: {} for hour in self.hours}
        #: hour -> holder -> TRES -> used
        self._holders: dict[int, dict[Holder, Amounts]] = {}
        self._allocated: dict[int, Amounts] = {}
        #: hour -> CPU seconds demanded by waiting jobs, under key 0 (the layout of `_plain`, with a single kind)
        self._wanted: dict[int, dict[int, int]] = {hour: {} for hour in self.hours}
        self._reserved: dict[str, list[_Reserved]] = {}
        #: drains by node: (place of the record, from, to)
        self._drains: dict[str, list[tuple[int, int, int]]] = {}
        #: place of such a record -> when the last job left the node
        self._busy: dict[int, int] = {}

    def _parts(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The parts of a span: (hour, beginning, end)."""
        start, end = max(start, self.start), min(end, self.end)
        while start < end:
            hour = self.hours[bisect_right(self._bounds, start) - 1]
            after = min(end, self._ends[hour])
            yield hour, start, after
            start = after

    def _count(self, into: dict[int, dict[int, int]], kind: int, start: int, end: int, times: int) -> None:
        """Add a span's seconds to its hours, times a factor. As `_parts`, but fast enough for a million jobs."""
        start = start if start > self.start else self.start
        end = end if end < self.end else self.end
        if start >= end:
            return
        bounds = self._bounds
        place = bisect_right(bounds, start)
        sums, after = into[bounds[place - 1]], bounds[place]
        while end > after:
            sums[kind] = sums.get(kind, 0) + (after - start) * times
            start, sums, place = after, into[after], place + 1
            after = bounds[place]
        sums[kind] = sums.get(kind, 0) + (end - start) * times

    # Input

    def reserve(self, record: ReservationRecord, holders: list[Holder]) -> None:
        """Add a reservation; all of them before any job. `holders`: who is charged for its unused time."""
        if "IGNORE_JOBS" not in record.flags.split(","):
            self._reserved.setdefault(record.name, []).append(_Reserved(record, holders))

    def watch(self, trouble: Iterable[NodeEventRecord]) -> None:
        """Add node records; before any job."""
        for record in trouble:
            if record.state != "DOWN":
                span = (record.place, int(record.started_at), int(record.ended_at) or _FOREVER)
                self._drains.setdefault(record.node, []).append(span)

    def add(self, job: Used) -> None:
        """Add a job's use of TRES and its wait, in the hours of the window that they touch."""
        # Jobs of a reservation wait for the reservation.
        if job.eligible_at and not job.reservation:
            self._wait(job)
        if not job.started_at or not job.tres:
            return
        end = job.ended_at or _FOREVER
        if job.suspended or job.reservation:
            self._add_odd(job, end)
        else:
            key = (job.holder, job.tres)
            kind = self._kinds.get(key, -1)
            if kind < 0:
                kind = self._kinds[key] = len(self._kind_names)
                self._kind_names.append(key)
                self._kind_pairs.append(pairs_of(job.tres))
            self._count(self._plain, kind, job.started_at, end, 1)
        if job.energy and self.start <= job.ended_at < self.end:
            hour = self.hours[bisect_right(self._bounds, job.ended_at) - 1]
            sums = self._holders.setdefault(hour, {}).setdefault(job.holder, {})
            sums["energy"] = sums.get("energy", 0) + job.energy
        if self._drains and job.nodes:
            for node in _nodes_of(job.nodes).intersection(self._drains):
                for place, low, high in self._drains[node]:
                    if overlap(job.started_at, end, low, high):
                        self._busy[place] = max(self._busy.get(place, 0), end)

    def _add_odd(self, job: Used, end: int) -> None:
        """Add a job that was suspended or belongs to a reservation."""
        pairs = pairs_of(job.tres)
        reservations = self._reserved.get(job.reservation, ()) if job.reservation else ()
        for hour, low, high in self._parts(job.started_at, end):
            used = used_amounts(pairs, low, high, job.suspended)
            add(self._holders.setdefault(hour, {}).setdefault(job.holder, {}), used)
            # A reservation that was changed has several records in an hour: each gets the use in its own time. What
            # is left was used before or after the reservation.
            outside = dict(used)
            for reserved in reservations:
                begin, after = max(low, reserved.start), min(high, reserved.end)
                if begin < after:
                    inside = used_amounts(pairs, begin, after, job.suspended)
                    add(reserved.used.setdefault(hour, {}), inside)
                    add(outside, inside, -1)
            add(self._allocated.setdefault(hour, {}), [(name, max(0, amount)) for name, amount in outside.items()])

    def _wait(self, job: Used) -> None:
        until = job.started_at or job.ended_at or _FOREVER
        if job.eligible_at < until:
            self._count(self._wanted, 0, job.eligible_at, until, job.cpus_asked * job.tasks)

    # Results

    def holders(self, hour: int) -> dict[Holder, Amounts]:
        """Use by holder in that hour, unused reserved time included."""
        return self.expanded(self.counted(hour), self.uncounted(hour))

    def counted(self, hour: int) -> dict[int, int]:
        """Seconds by kind: the bulk of it. Several hours may be added up before `expanded`."""
        return self._plain[hour]

    def expanded(self, counted: dict[int, int], amounts: dict[Holder, Amounts]) -> dict[Holder, Amounts]:
        """The amounts for these seconds by kind, added to `amounts`."""
        names, pairs = self._kind_names, self._kind_pairs
        for kind, seconds in counted.items():
            holder = names[kind][0]
            sums = amounts.get(holder)
            if sums is None:
                amounts[holder] = {name: count * seconds for name, count in pairs[kind]}
            else:
                add(sums, pairs[kind], seconds)
        return amounts

    def uncounted(self, hour: int) -> dict[Holder, Amounts]:
        """The amounts of that hour that `counted` leaves out."""
        holders = {holder: dict(sums) for holder, sums in self._holders.get(hour, {}).items()}
        for reserved in (reserved for several in self._reserved.values() for reserved in several):
            seconds = overlap(reserved.start, reserved.end, hour, self._ends[hour])
            if not seconds or not reserved.holders:
                continue
            used = reserved.used.get(hour, {})
            for name, count in reserved.tres:
                share = max(0, count * seconds - used.get(name, 0)) // len(reserved.holders)
                if share and name != "node":
                    for holder in reserved.holders:
                        sums = holders.setdefault(holder, {})
                        sums[name] = sums.get(name, 0) + share
        return holders

    def cluster(
        self, hour: int, configured: list[NodeEventRecord], trouble: list[NodeEventRecord], by_node: dict[str, Pairs]
    ) -> list[ClusterHour]:
        """State of the cluster's resources. `configured`: the cluster's own records, `trouble`: those of nodes."""
        total: dict[str, int] = {}
        counts: dict[str, int] = {}
        for record in configured:
            seconds = overlap(int(record.started_at), int(record.ended_at) or _FOREVER, hour, self._ends[hour])
            if seconds:
                for name, count in tres.parse(record.tres):
                    if name != "node":
                        total[name] = total.get(name, 0) + count * seconds
                        counts[name] = max(counts.get(name, 0), count)
        allocated = dict(self._allocated.get(hour, ()))
        for text, seconds in self._seconds_by_tres(hour).items():
            add(allocated, pairs_of(text), seconds)
        planned_down: dict[str, int] = {}
        for reservation in (item for several in self._reserved.values() for item in several):
            into = planned_down if reservation.maintenance else allocated
            add(into, reservation.tres, overlap(reservation.start, reservation.end, hour, self._ends[hour]))
        reserved = self._wanted[hour].get(0, 0)
        down: dict[str, int] = {}
        for record in trouble:
            add(down, by_node.get(record.node, ()), self._down_seconds(record, hour))
        return [
            _divide(name, counts[name], whole, allocated, planned_down, down, reserved) for name, whole in total.items()
        ]

    def _seconds_by_tres(self, hour: int) -> dict[str, int]:
        sums: dict[str, int] = {}
        for kind, seconds in self.counted(hour).items():
            text = self._kind_names[kind][1]
            sums[text] = sums.get(text, 0) + seconds
        return sums

    def _down_seconds(self, record: NodeEventRecord, hour: int) -> int:
        start, end = int(record.started_at), int(record.ended_at) or _FOREVER
        if record.state != "DOWN":
            start = max(start, self._busy.get(record.place, 0))
        seconds = overlap(start, end, hour, self._ends[hour])
        for reserved in (reserved for several in self._reserved.values() for reserved in several):
            if seconds and reserved.maintenance and record.node in reserved.nodes:
                seconds -= overlap(max(start, hour), min(end, self._ends[hour]), reserved.start, reserved.end)
        return max(0, seconds)


def _divide(
    name: str,
    count: int,
    whole: int,
    allocated: dict[str, int],
    planned_down: dict[str, int],
    down: dict[str, int],
    wanted: int,
) -> ClusterHour:
    room = whole
    parts = []
    for source in (allocated, planned_down, down):
        parts.append(min(source.get(name, 0), room))
        room -= parts[-1]
    # Demand is known for CPUs only: the other needs of a job depend on its nodes.
    demand = wanted if name == "cpu" else 0
    planned = min(demand, room)
    return ClusterHour(
        tres=name,
        count=count,
        allocated=parts[0],
        down=parts[2],
        planned_down=parts[1],
        idle=room - planned,
        planned=planned,
        over=demand - planned,
    )


@lru_cache(4096)
def _nodes_of(text: str) -> frozenset[str]:
    return frozenset(hostlist.expand(text))
