"""Estimated starts of jobs held back by limits, licenses, begin times or dependencies.

A discrete-event simulation. Running jobs, and those with expected starts, end at their time limits. An end returns the
job's part of limits and its licenses; begin times and dependencies make jobs eligible. After each event, the groups
that wait for it are tried in order of rank. Admitted jobs get nodes after all jobs that have an expected start
(`lanes`). Fair share, preemption and named reservations are not simulated. No decision depends on these estimates.

Source: docs/decisions/0141.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from spritz.model.ids import INFINITE
from spritz.model.limits.check import exceeded
from spritz.model.limits.ledger import Ledger
from spritz.model.limits.minutes import Minutes, out_of_minutes
from spritz.model.rules.licenses import NOTHING, LicensePool
from spritz.scheduling.forecast.dependencies import Conditions
from spritz.scheduling.forecast.held_events import Arrival, Call, JobEnd, Recheck
from spritz.scheduling.forecast.held_groups import HeldEntry, HeldGroup
from spritz.scheduling.forecast.limit_minutes import future_minutes
from spritz.scheduling.forecast.starts import ExpectedStarts
from spritz.scheduling.plan.decisions import Begun
from spritz.scheduling.plan.feasible import UNSEEN
from spritz.scheduling.plan.verdicts import partition_verdict
from spritz.scheduling.view.changes.waiting_jobs import requests_of
from spritz.scheduling.view.charges import count_charge, wanted_by
from spritz.scheduling.view.profile import NEVER
from spritz.scheduling.view.records import Charge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.model.job.record import JobSpec
    from spritz.model.limits.bounds import Tres
    from spritz.scheduling.forecast.lanes import Lanes
    from spritz.scheduling.forecast.starts import Groups, Starts
    from spritz.scheduling.plan.limits import Limits
    from spritz.scheduling.view.records import JobRecord, Shape, SortKey
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

#: Budgets: checks whether a job is within its limits, and searches for resources. When they are used up, the groups
#: that are left go on at the pace found until then, or get the time from which they may start.
CHECKS = 10_000
PLACEMENTS = 10_000
#: added to job ids, above all of them
LATER = 1 << 40


NO_CHARGE = Charge((), ())
#: a job (or tasks of it, as a mask), its charge, and the licenses that it gets
Admitted = tuple["JobRecord", int, Charge, "Mapping[str, int]"]


class HeldJobs:
    """The simulation. `limits` and `licenses`: their state after the cycle's starts, which are `begun`. `tasks_left`:
    mask of the array tasks that are still pending.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        limits: Limits,
        licenses: LicensePool,
        room: Callable[[], tuple[Lanes, Groups]],
        begun: Sequence[Begun],
        tasks_left: Callable[[JobRecord], int],
    ) -> None:
        self._snapshot = snapshot
        self._rules = snapshot.rules
        self._now = snapshot.now
        self._ledger = limits.in_use.fork()
        self._licenses = licenses.copy()
        self._room_of = room
        self._tasks_left = tasks_left
        self._order = count()
        self._checks = self._placements = 0
        #: `CHECKS` are used up
        self._spent = False
        self._running = dict(snapshot.array_running)
        for begun_job in begun:
            array = begun_job.record.array_job_id
            if array:
                self._running[array] = self._running.get(array, 0) + 1
        self._begun = begun
        #: tasks that are eligible and have no start yet, and arrivals to come
        self._waiting = self._arrivals = 0
        self._events: list[tuple[float, int, JobEnd | Arrival | Call | Recheck]] = []
        self._lines: dict[tuple[Request, int], HeldGroup | None] = {}
        self._touched: dict[object, list[HeldGroup]] = {}
        self._entries: dict[tuple[int, int], HeldEntry] = {}
        self._asked: dict[tuple[JobSpec, tuple[bool, bool, bool, bool, int]], list[tuple[int, Request]]] = {}
        self._found = ExpectedStarts()
        self._conditions: Conditions | None = None
        self._starting = limits.starting
        self._minutes = future_minutes(limits) if self._rules.foresees else None

    # -- waiting jobs

    def hold(self, shapes: Iterable[Shape], started: Iterable[int]) -> None:
        """Add all jobs of these shapes that have not started: limits or licenses hold them back."""
        for shape in shapes:
            if shape.request.reservation:
                continue
            for key in shape.keys:
                record = shape.jobs[key]
                if record.id not in started:
                    self._wait(record, key, shape.request, self._tasks_left(record), held=True)

    def cap(self, records: Iterable[JobRecord]) -> None:
        """Add arrays that run as many tasks as they may."""
        for record in records:
            for key, shape in record.entries:
                if not shape.request.reservation:
                    self._wait(record, key, shape.request, self._tasks_left(record))

    def come(self, records: Iterable[JobRecord], known: Sequence[Starts]) -> None:
        """Add jobs that wait for their begin times or for other jobs. `known`: expected starts found so far."""
        conditions = self._conditions = Conditions(self._snapshot.records, records, self._now, self._arrive, self._call)
        if conditions.wanted:
            self._tell(conditions, known)
        conditions.begin()

    def _wait(
        self, record: JobRecord, key: SortKey, request: Request, tasks: int, *, held: bool = False
    ) -> HeldGroup | None:
        """`held`: limits or licenses hold it back."""
        most = self._snapshot.array_limits.get(record.array_job_id, 0) if record.array_job_id else 0
        array = record.array_job_id if most else 0
        line = self._line(request, record, array, most, held=held)
        if line is None:
            return None
        entry = self._entries.get((record.id, tasks))
        if entry is None:
            entry = self._entries[record.id, tasks] = HeldEntry(record, tasks)
            self._waiting += entry.left
        line.add(key, entry)
        return line

    def _line(self, request: Request, record: JobRecord, array: int, most: int, *, held: bool) -> HeldGroup | None:
        """The group of jobs with this request; None: its cause of waiting cannot be predicted, or is permanent."""
        group = self._lines.get((request, array))
        if group is not None or (request, array) in self._lines:
            return group
        job_limits = None
        tres: Tres = ()
        if request.billed is not None:
            account, user, qos, exempt = request.billed
            job_limits = self._rules.job_limits(account, user, request.partition, qos, exempt)
            tres = tuple(self._rules.priced(request.partition, wanted_by(record.spec, request)))
        held_group = HeldGroup(request, job_limits, tres, array, most)
        # If nothing that is simulated holds the job back at this moment, then something else does, and a time would be
        # a guess.
        never = held_group.limited and self._never(held_group)
        unforeseen = held and self._fits(held_group, self._now) is not None
        line = None if never or unforeseen else held_group
        self._lines[request, array] = line
        if line is not None:
            for key in line.keys:
                self._touched.setdefault(key, []).append(line)
        return line

    def _arrive(self, at: float, record: JobRecord, tasks: int, apart: bool) -> None:
        self._arrivals += 1
        heappush(self._events, (max(at, self._now), next(self._order), Arrival(record, tasks, apart)))

    def _call(self, at: float, function: Callable[[float], None]) -> None:
        self._arrivals += 1
        heappush(self._events, (max(at, self._now), next(self._order), Call(function)))

    def _tell(self, conditions: Conditions, known: Sequence[Starts]) -> None:
        """Report until when each running job, and each with an expected start, may hold its resources."""
        targets = conditions.wanted
        begun: dict[int, list[Begun]] = {}
        for begun_job in self._begun:
            begun.setdefault(begun_job.record.id, []).append(begun_job)
        expected: dict[int, float] = {}
        if known:
            job_ids = np.concatenate([batch.job_ids for batch in known])
            start_at = np.concatenate([batch.start_at for batch in known])
            wanted_rows = np.isin(job_ids, np.fromiter(targets, np.int64, len(targets)))
            for number, at in zip(job_ids[wanted_rows].tolist(), start_at[wanted_rows].tolist(), strict=True):
                expected[number] = min(at, expected.get(number, at))
        for record in list(targets.values()):
            tasks = 0 if record.tasks is None else record.tasks & ~self._tasks_left(record)
            starts = begun.get(record.id)
            if starts and (tasks or record.tasks is None):
                conditions.placed(record, tasks, self._now, max(start.ends_at for start in starts))
            if record.allocation is not None:
                over = self._now if record.completing else max(record.ends_at, self._now)
                unlimited = record.request is not None and record.request.time_limit_minutes >= INFINITE
                conditions.placed(record, 0, record.started_at, NEVER if unlimited and not record.completing else over)
            elif record.id in expected:
                self._expect(conditions, record, expected[record.id])

    def _expect(self, conditions: Conditions, record: JobRecord, at: float) -> None:
        """A job that waits for resources starts then; further tasks of an array follow when there is room for them."""
        request = record.entries[0][1].request
        tasks = HeldEntry(record, self._tasks_left(record))
        conditions.placed(record, tasks.take(1), at, _end(request, at))
        most = self._snapshot.array_limits.get(record.array_job_id, 0)
        while tasks.left:
            # As many at a time as may run, each such batch after the one before.
            times = self._room(request, min(tasks.left, most or tasks.left), at)[0]
            for start_at in times:
                conditions.placed(record, tasks.take(1), start_at, _end(request, start_at))
            if not times:
                return
            at += request.seconds

    # -- events

    def starts(self) -> list[Starts]:
        """Run the simulation. Returns the expected starts of all jobs in it."""
        self._ends()
        events = self._events
        while events and (self._waiting or self._arrivals):
            at = events[0][0]
            groups: dict[int, HeldGroup] = {}
            # All events of one moment before any group is tried: a group that two ends help together must not be tried
            # after the first of them.
            while events and events[0][0] == at:
                _at, _order, event = heappop(events)
                if isinstance(event, Call):
                    self._arrivals -= 1
                    event.function(at)
                    continue
                for line in self._stirred(event, at):
                    groups[id(line)] = line
            self._let_in(list(groups.values()), at)
            if self._checks >= CHECKS and not self._spent:
                self._spent = True
                self._go_on(at)
        return self._found.starts()

    def _ends(self) -> None:
        """Ends of running jobs that count towards limits."""
        if not self._waiting and not self._arrivals:
            return
        records, factor_of = self._snapshot.records, self._rules.usage_factor
        ends = [
            (
                max(ends_at, self._now),
                JobEnd(
                    record.charge or NO_CHARGE,
                    record.licenses,
                    record.array_job_id,
                    ends_at,
                    # Suspended jobs use nothing now, and the minutes that they have left stay theirs.
                    0.0 if record.suspended or record.stopped else factor_of(record.spec.qos),
                ),
            )
            for ends_at, number in self._snapshot.ends
            if (record := records[number]).charge is not None or record.licenses or record.array_job_id
        ]
        ends += [(ends_at, JobEnd(charge, NOTHING, 0, ends_at, factor)) for ends_at, charge, factor in self._starting]
        arrays = [begun_job for begun_job in self._begun if begun_job.record.array_job_id]
        ends += [
            (begun_job.ends_at, JobEnd(NO_CHARGE, NOTHING, begun_job.record.array_job_id, begun_job.ends_at, 1.0))
            for begun_job in arrays
        ]
        self._events += [(at, next(self._order), end) for at, end in ends]
        heapify(self._events)

    def _stirred(self, event: JobEnd | Arrival | Recheck, at: float) -> Iterable[HeldGroup]:
        """Groups that may be able to start now."""
        if isinstance(event, Recheck):
            self._arrivals -= 1
            return (event.line,)
        return self._over(event, at) if isinstance(event, JobEnd) else self._come(event, at)

    def _over(self, end: JobEnd, at: float) -> Iterator[HeldGroup]:
        """Return what the job held. Returns the groups that wait for some of it."""
        charge = end.charge
        if charge.keys:
            count_charge(self._ledger, charge, -1)
            if self._minutes is not None:
                self._minutes.end(charge.keys, charge.tres, at, end.ends_at, end.factor)
        self._licenses.give_back(end.licenses)
        if end.array:
            self._running[end.array] = self._running.get(end.array, 0) - 1
        for key in (*charge.keys, *end.licenses, end.array):
            yield from self._touched.get(key, ())

    def _come(self, arrival: Arrival, at: float) -> Iterator[HeldGroup]:
        """The job, or a task of it, is eligible. Returns the groups in which it waits."""
        self._arrivals -= 1
        record = arrival.record
        if (record.id, arrival.tasks) in self._entries:
            return  # the first of its conditions was enough
        for tier, request in self._requests(record):
            if request.reservation:
                self._reserved(record, request, arrival.tasks, at)
                continue
            rank, _until = self._snapshot.pricing.rank_at(record, request.partition, at)
            number = LATER + next(self._order) if arrival.apart else record.id
            line = self._wait(record, (-tier, -rank, record.submitted_at, number), request, arrival.tasks)
            if line is not None:
                yield line

    def _requests(self, record: JobRecord) -> list[tuple[int, Request]]:
        """(PriorityTier, request) in each partition that would let it start; computed once for similar jobs."""
        flags = (
            record.any_switches,
            record.may_boot,
            record.expediting,
            record.claiming,
            record.het_job_id and record.id,
        )
        key = replace(record.spec, **UNSEEN), flags
        requests = self._asked.get(key)
        if requests is None:
            requests = self._asked[key] = [
                (tier, request)
                for tier, request in requests_of(self._snapshot, record)
                if not request.refusal and partition_verdict(self._snapshot, request) is None
            ]
        return requests

    def _reserved(self, record: JobRecord, request: Request, tasks: int, at: float) -> None:
        """Plan the job on the nodes of its reservation, which is assumed to have room."""
        reservation = self._snapshot.reserved.by_name.get(request.reservation)
        if reservation is not None and at < reservation.end_at:
            self._place(record, tasks, max(at, reservation.start_at), (), request)

    def _fits(self, line: HeldGroup, at: float) -> Mapping[str, int] | None:
        """The licenses that a job of the group gets; None if it must wait."""
        self._checks += 1
        request, job_limits = line.request, line.job_limits
        if line.most and self._running.get(line.array, 0) >= line.most:
            return None
        minutes = request.time_limit_minutes
        if job_limits is not None and exceeded(job_limits, self._ledger, line.tres, minutes, nodes=request.nodes_min):
            return None
        if job_limits is not None and job_limits.timed and self._minutes is not None:
            free_at = self._minutes.free_at(job_limits, line.tres, minutes, at)
            if free_at > at:
                self._look_at(line, free_at)
                return None
        return self._licenses.choose(line.licenses)

    def _look_at(self, line: HeldGroup, at: float) -> None:
        """Look at the group again at that time, or earlier if something ends."""
        if at < NEVER and at != line.look_at:
            line.look_at = at
            self._arrivals += 1
            heappush(self._events, (at, next(self._order), Recheck(line)))

    def _never(self, line: HeldGroup) -> bool:
        """Whether the group's request exceeds a limit by itself, or its cause of waiting cannot be predicted."""
        request, job_limits = line.request, line.job_limits
        minutes = request.time_limit_minutes
        if job_limits is not None:
            if job_limits.threshold is not None:
                factor = self._snapshot.pricing.inputs.fair_share(
                    job_limits.account, job_limits.user, request.partition
                )
                if factor < job_limits.threshold:
                    return True
            if exceeded(job_limits, Ledger(), line.tres, minutes, nodes=request.nodes_min):
                return True
            safe = "safe" in self._snapshot.settings.enforce
            if out_of_minutes(job_limits, Minutes(), dict(line.tres), minutes, self._now, safe=safe) is not None:
                return True
        return LicensePool(self._licenses.total.items()).choose(line.licenses) is None

    def _let_in(self, lines: Iterable[HeldGroup], at: float) -> None:
        """Admit the jobs that may start by now, in order of the queue; then all jobs of a group get their nodes
        together.
        """
        queue = []
        for number, line in enumerate(lines):
            if self._spent or not line.limited:
                self._start_all(line, at)
            elif (first := line.first) is not None:
                queue.append((first[0], number, line))
        # One job at a time, the first in rank of all groups: each admission uses up limits and licenses that the next
        # group may need. Placing the jobs waits until the end, since nodes for many equal jobs cost little more than
        # for one.
        heapify(queue)
        admitted: dict[int, tuple[HeldGroup, list[Admitted]]] = {}
        while queue and self._checks < CHECKS:
            _key, number, line = heappop(queue)
            first = line.first
            if first is None:
                continue
            licenses = self._fits(line, at)
            if licenses is None:
                continue
            entry = first[1]
            line.note(1, at)
            tasks = entry.take(1)
            charge = NO_CHARGE
            if line.job_limits is not None:
                # As if on nodes of its own, since its nodes are not known yet.
                nodes = range(line.request.nodes_min) if self._rules.shares_nodes else ()
                order = next(self._order)
                charge = Charge(line.job_limits.keys, line.tres, tuple(f"{order}/{place}" for place in nodes))
                count_charge(self._ledger, charge)
                if self._minutes is not None:
                    ends_at = at + line.request.seconds
                    self._minutes.start(line.job_limits.keys, line.tres, at, ends_at, line.job_limits.usage_factor)
            self._licenses.take(licenses)
            array = entry.record.array_job_id
            if array:
                self._running[array] = self._running.get(array, 0) + 1
            admitted.setdefault(number, (line, []))[1].append((entry.record, tasks, charge, licenses))
            first = line.first
            if first is not None:
                heappush(queue, (first[0], number, line))
        for line, jobs in admitted.values():
            self._start(line, jobs, at)

    def _start_all(self, line: HeldGroup, at: float) -> None:
        """Start the jobs that wait for resources only."""
        jobs: list[Admitted] = []
        for entry in line.rest():
            while entry.left:
                jobs.append((entry.record, entry.take(1), NO_CHARGE, NOTHING))
        if jobs:
            line.note(len(jobs), at)
            self._start(line, jobs, at)

    def _start(self, line: HeldGroup, jobs: Sequence[Admitted], at: float) -> None:
        """Give these jobs nodes from that time on."""
        times, nodes = self._room(line.request, len(jobs), at)
        self._waiting -= len(jobs)
        for (record, tasks, charge, licenses), start_at, chosen in zip(jobs, times, nodes, strict=False):
            self._place(record, tasks, start_at, chosen, line.request)
            if line.limited:
                factor = line.job_limits.usage_factor if line.job_limits is not None else 1.0
                end = JobEnd(charge, licenses, record.array_job_id, at + line.request.seconds, factor)
                heappush(self._events, (start_at + line.request.seconds, next(self._order), end))

    def _place(
        self, record: JobRecord, tasks: int, at: float, nodes: Sequence[int], request: Request, more: float = 0.0
    ) -> None:
        """The job starts at that time; of several tasks the last starts `more` seconds later."""
        self._found.add(record.id, at, nodes)
        if self._conditions is not None:
            self._conditions.placed(record, tasks, at + more, _end(request, at + more))

    def _room(self, request: Request, tasks: int, since: float) -> tuple[list[float], list[Sequence[int]]]:
        """When and on which nodes the next `tasks` tasks start; fewer if not all fit."""
        times: list[float] = []
        nodes: list[Sequence[int]] = []
        lanes, groups = self._room_of()
        group = groups.of(request)
        while len(times) < tasks:
            unplaced = tasks - len(times)
            if self._placements >= PLACEMENTS:
                # The budget is used up: a time from which they may start, and no nodes, is all that is said.
                times += [max([since, *times[-1:]])] * unplaced
                nodes += [()] * unplaced
                break
            self._placements += 1
            at, chosen = lanes.starts(group, np.full(unplaced, request.seconds), since)
            if not len(at):
                break
            times += at.tolist()
            nodes += chosen.tolist()
        return times, nodes

    def _go_on(self, at: float) -> None:
        """`CHECKS` are used up. Groups that have begun to start go on at the same pace; a group that has not comes
        after all higher-ranked groups under the same limits.
        """
        # An extrapolation in place of further simulation: one pass over the groups in order of rank, whatever their
        # number of jobs. `busy`: for each limit, when the groups under it will have started, and at which pace.
        busy: dict[object, tuple[float, float]] = {}
        lines = [
            (first[0], number, line)
            for number, line in enumerate(self._lines.values())
            if line and (first := line.first)
        ]
        for _key, _number, line in sorted(lines):
            seconds = line.request.seconds
            pace, turn = seconds, line.last_at + seconds if line.let_in else at
            before = [busy[key] for key in line.keys if key in busy]
            if line.let_in > 1:
                pace = (line.last_at - line.first_at) / (line.let_in - 1)
                turn = line.last_at + pace
            elif before:
                turn, pace = max(turn for turn, _pace in before), min(pace for _turn, pace in before)
            entries = [(entry.record, entry.left, entry.take(entry.left)) for entry in line.rest()]
            times, nodes = self._room(line.request, len(entries), turn)
            for (record, number, tasks), room_at, chosen in zip(entries, times, nodes, strict=False):
                self._place(record, tasks, max(turn, room_at), chosen, line.request, pace * (number - 1))
                turn += pace * number
            self._waiting -= sum(number for _record, number, _tasks in entries)
            busy.update((key, (turn, pace)) for key in line.keys)


def _end(request: Request, at: float) -> float:
    return NEVER if request.time_limit_minutes >= INFINITE else at + request.seconds
