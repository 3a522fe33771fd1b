"""Planned starts between cycles: those of a plan are adopted, those of started jobs are used up, void ones are dropped.

Decides nothing; `plan.backfill` decides which jobs get planned starts.

Source: docs/decisions/0030-planned-starts.md.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from spritz.model.resources import mask_of
from spritz.scheduling.view.changes import waiting_jobs
from spritz.scheduling.view.parameters import parameters_of
from spritz.scheduling.view.planned_starts import FutureStart, is_same, used_up
from spritz.scheduling.view.profile import NEVER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from spritz.model.plan import Plan, PlannedFutureStart, PlannedStart
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.hardware import Hardware
    from spritz.scheduling.view.nodes import Holder
    from spritz.scheduling.view.projection import Projection
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request


_NO_PLACE = 1 << 62


def adopt(
    projection: Projection, plan: Plan, started: Sequence[tuple[int, Request]], elsewhere: Collection[int]
) -> set[int]:
    """Take over the planned starts of a plan, once its starts have been applied. Leaves out those that have become void
    since, and those on nodes that no longer exist. `started`: jobs that others started since the snapshot that the plan
    was made from, with their requests. Each of them has used up a planned start of its request, and no planned start
    may rely on the resources that it has taken. `elsewhere`: jobs that the plan starts, and that others have started
    with other resources. Returns the waiting jobs of which it says another start than they have now.
    """
    for vain in plan.no_room:
        record = projection.records.get(vain.job_id)
        for _key, shape in record.entries if record is not None else ():
            if shape.request.queue_key == (vain.partition, vain.reservation):
                projection.memory.put_no_room(shape.request, vain)
    complete, void = True, set[int]()
    if plan.future_starts is not None:
        complete, void = _take_over(projection, plan, started, elsewhere)
    if complete:
        made, version = projection.memory.made
        if made is plan:
            # The ledger is now as the cycle left it, so failures recorded with its version are still valid. Dropping
            # and making planned starts above has counted the version up: set it back.
            projection.ledger.version = version
    return void


def _take_over(
    projection: Projection,
    plan: Plan,
    started: Sequence[tuple[int, Request]],
    elsewhere: Collection[int],
) -> tuple[bool, set[int]]:
    """Make the ledger hold the planned starts of the plan. Whether it could take all of them, and the waiting jobs for
    which it could not.
    """
    ledger, profile = projection.ledger, projection.profile
    planned, complete = _by_request(projection, plan.future_starts or ())
    for job_id, request in started:
        # Otherwise the next jobs of this request would be promised what those had that run already.
        spent = _used_up(projection, job_id, planned.get(request, ()))
        if spent is not None:
            planned[request].remove(spent)
        complete = complete and request not in planned
    # Planned starts that the plan repeats are kept, matched one to one: dropping and making a hold again costs time for
    # each of its nodes in the profile. Grouping by start avoids comparing every pair.
    replaced: list[FutureStart] = []
    #: those that the plan gives to another job, by the former one
    given: dict[int, FutureStart] = {}
    for request, futures in list(ledger.by_request.items()):
        left: dict[float, list[PlannedFutureStart]] = {}
        for item in planned.get(request, ()):
            left.setdefault(item.start_at, []).append(item)
        for future_start in futures:
            alike = left.get(future_start.start_at, [])
            same = next((item for item in alike if is_same(future_start, item)), None)
            if same is None:
                ledger.drop(profile, future_start)
                replaced.append(future_start)
            else:
                if same.holder != future_start.holder:
                    given[future_start.holder] = future_start
                future_start.freed, future_start.holder, future_start.place = same.freed, same.holder, same.place
                alike.remove(same)
        if request in planned:
            planned[request] = [item for alike in left.values() for item in alike]
    projection.queue.shrunk.update(planned)
    late = _LatePlan(projection, replaced, given, {*(job_id for job_id, _request in started), *elsewhere})
    for start in plan.starts:
        in_vain = start.task_id is None and _waits(projection, start.job_id)
        if in_vain or start.job_id in elsewhere:
            late.missed(start, waits=in_vain)
    new = [(item, request) for request, items in planned.items() for item in items]
    if late.is_late:
        new.sort(key=lambda pair: pair[0].place or _NO_PLACE)
    for item, request in new:
        late.put(_made(projection, item, request))
    return complete and not late.void_jobs, late.void_jobs


class _LatePlan:
    """Puts planned starts of a plan into the ledger, best rank first, where jobs that others have started since leave
    room for them. `started`: these jobs. `replaced`: planned starts that the plan does not repeat; `given`: those that
    it gives to equal jobs, by the job that had them.

    A job whose planned start is void has the one that it had before, where that is free yet. What was to have that now
    is void in turn, and so is what was planned behind a void one: it will be planned again.
    """

    def __init__(
        self,
        projection: Projection,
        replaced: Iterable[FutureStart],
        given: dict[int, FutureStart],
        started: Collection[int],
    ) -> None:
        self._projection = projection
        self._given = given
        self._replaced: dict[int, list[FutureStart]] = {}
        for future_start in replaced:
            self._replaced.setdefault(future_start.holder, []).append(future_start)
        #: by node: until when the last of those that the plan did not know there may be there
        self._occupied = _occupied(projection, started)
        #: by node: when the first void one was to start
        self._void: dict[int, float] = {}
        #: jobs that wait and for which the plan has nothing that can be
        self.void_jobs: set[int] = set()

    @property
    def is_late(self) -> bool:
        """Whether any may be void."""
        return bool(self._occupied or self._void)

    def missed(self, start: PlannedStart, *, waits: bool) -> None:
        """The plan starts a job there, in vain; it `waits`, or others have started it elsewhere."""
        index_of = self._projection.table.index_of
        self._void.update((index_of[name], 0.0) for name in start.allocation.names if name in index_of)
        if waits:
            self._return(start.job_id, None)

    def put(self, future_start: FutureStart) -> None:
        """Hold it, if it can be."""
        indexes = [index for index, _holder in future_start.parts]
        is_behind = any(self._void.get(index, NEVER) <= future_start.start_at for index in indexes)
        occupied = _prolonged(self._projection, future_start, self._occupied)
        if is_behind or (occupied and not _has_room(self._projection, future_start, occupied)):
            for index in indexes:
                self._void[index] = min(self._void.get(index, NEVER), future_start.start_at)
            self._return(future_start.holder, future_start.request)
        else:
            self._projection.ledger.keep(self._projection.profile, future_start)

    def _return(self, job_id: int, request: Request | None) -> None:
        """The job has its former planned starts of this request (None: of any)."""
        if not job_id:
            return
        self.void_jobs.add(job_id)
        former = [item for item in self._replaced.get(job_id, ()) if request in (None, item.request)]
        self._replaced[job_id] = [item for item in self._replaced.get(job_id, ()) if item not in former]
        for item in former:
            if _has_room(self._projection, item, None):
                self._projection.ledger.keep(self._projection.profile, item)
                self._projection.queue.shrunk.add(item.request)
                for index, _holder in item.parts:
                    self._occupied[index] = max(self._occupied.get(index, 0.0), item.end_at)
        given = self._given.pop(job_id, None)
        if given is not None and not former:
            other, given.holder = given.holder, job_id
            self._return(other, given.request)


def _by_request(
    projection: Projection, future_starts: Sequence[PlannedFutureStart]
) -> tuple[dict[Request, list[PlannedFutureStart]], bool]:
    """By request, ascending by start; and whether all of them have jobs and nodes yet."""
    index_of, complete = projection.table.index_of, True
    known = {hash(request): request for request in projection.queue.shapes}
    planned: dict[Request, list[PlannedFutureStart]] = {}
    for item in sorted(future_starts, key=_order):
        request = known.get(item.request)
        if request is None or not all(name in index_of for name in item.allocation.names):
            complete = False
            continue
        planned.setdefault(request, []).append(item)
    return planned, complete


def _used_up(projection: Projection, job_id: int, items: Sequence[PlannedFutureStart]) -> PlannedFutureStart | None:
    """Which of these the job has used up that runs already."""
    record = projection.records.get(job_id)
    ids = {job_id} if record is None else {job_id, record.array_job_id}
    names = record.names if record is not None else ()
    in_turn = parameters_of(projection.settings).predict
    return used_up(items, ids, names, partial(_waits, projection), in_turn=in_turn)


def _made(projection: Projection, item: PlannedFutureStart, request: Request) -> FutureStart:
    uid = next(iter(projection.queue.shapes[request].jobs.values())).spec.uid
    future_start = projection.ledger.make(projection.profile, request, item.start_at, item.allocation, uid=uid)
    future_start.provisional, future_start.queued, future_start.freed = item.provisional, item.queued, item.freed
    future_start.holder, future_start.place = item.holder, item.place
    return future_start


def _occupied(projection: Projection, job_ids: Iterable[int]) -> dict[int, float]:
    """Nodes of these jobs, by index, and until when the last of them may be there."""
    occupied: dict[int, float] = {}
    index_of = projection.table.index_of
    for job_id in job_ids:
        record = projection.records.get(job_id)
        if record is None or record.allocation is None:
            continue
        for index in (index_of[name] for name in record.names if name in index_of):
            occupied[index] = max(occupied.get(index, 0.0), record.ends_at)
    return occupied


def _prolonged(projection: Projection, future_start: FutureStart, occupied: dict[int, float]) -> dict[int, float]:
    """`occupied`, with nodes of the planned start where a job got more time after that was examined."""
    if not projection.prolonged:
        return occupied
    ends = {index: projection.prolonged.get(index, (0, 0.0)) for index, _holder in future_start.parts}
    later = {index: until for index, (freed, until) in ends.items() if freed > future_start.freed}
    return {**occupied, **{index: max(until, occupied.get(index, 0.0)) for index, until in later.items()}}


def _has_room(projection: Projection, item: FutureStart, occupied: Mapping[int, float] | None) -> bool:
    """Whether running jobs and other planned starts leave enough for this one on nodes that are `occupied` when it
    begins (None: on all of its nodes). Its job has none otherwise, until the next full cycle: kept, it would be a
    promise that cannot be kept, and would put off the jobs behind it once more.
    """
    if item.request.share_rows:
        return True  # jobs of its partition share CPUs
    latest = item.start_at + parameters_of(projection.settings).resolution_seconds  # it may be a little late
    return all(
        _spares(projection, index, holder, item, latest)
        for index, holder in item.parts
        if occupied is None or occupied.get(index, 0.0) > latest
    )


def _spares(projection: Projection, index: int, holder: Holder, item: FutureStart, latest: float) -> bool:
    """Whether as much as the holder takes is free on the node from `latest` until the planned start ends. Others may be
    as late.
    """
    row, kinds = projection.table.rows[index], projection.profile.kinds
    pools = row.hardware.pools
    #: places in `NodeRow.counts` and in `Holder.taken`: CPUs, memory if it counts, and GRES that are not shares
    places = [(0, 0), *([(2, 1)] if item.request.memory_counts else ())]
    places += [
        (place + 4, place + 3) for place, (name, _) in enumerate(kinds) if name in pools and not pools[name].shares
    ]

    def amounts(other: Holder, sign: int) -> list[int]:
        taken = other.taken(kinds, row.hardware)
        return [sign * taken[place] for _place, place in places]

    counts = row.after(latest).counts(kinds)
    changes = [(latest, 1, [counts[place] for place, _place in places]), (latest, -1, amounts(holder, -1))]
    if not row.overlaps:  # else what one gives back another may hold
        changes += [(other.ends_at, 1, amounts(other, 1)) for other in row.holders.values() if other.ends_at > latest]
        for hold, other in projection.profile.holds.get(index, ()):
            begins = hold.start_at + latest - item.start_at
            if isinstance(hold, FutureStart) and not hold.request.share_rows and hold.end_at > max(begins, latest):
                changes.append((max(begins, latest), -1, amounts(other, -1)))
                changes.append((hold.end_at, 1, amounts(other, 1)))
    state = [0] * len(places)
    for at, _sign, change in sorted(changes, key=lambda change: (change[0], -change[1])):
        if at >= item.end_at > latest:
            break
        state = [have + count for have, count in zip(state, change, strict=True)]
        if min(state) < 0:
            return False
    return True


def restore(projection: Projection, future_starts: list[FutureStart], before: dict[str, Hardware]) -> None:
    """Restore planned starts after a new table was built, if all their nodes exist with unchanged hardware."""
    table, ledger, profile = projection.table, projection.ledger, projection.profile
    for old in future_starts:
        names = old.allocation.names
        rows = [table.rows[table.index_of[name]] for name in names if name in table.index_of]
        if len(rows) < len(names) or any(row.hardware is not before.get(row.name) for row in rows):
            continue
        future_start = ledger.make(profile, old.request, old.start_at, old.allocation, uid=old.parts[0][1].uid)
        future_start.provisional, future_start.queued, future_start.holder = (
            old.provisional,
            projection.queue.count,
            old.holder,
        )
        future_start.place = old.place
        ledger.keep(profile, future_start)
        projection.queue.shrunk.add(old.request)


def redeem(projection: Projection, record: JobRecord, request: Request, allocation: Allocation) -> None:
    """A job of this request has started: use up the planned start of its request in each of its partitions."""
    waits, in_turn = partial(_waits, projection), parameters_of(projection.settings).predict
    for other_request in dict.fromkeys((request, *waiting_jobs.present_requests(projection, record))):
        projection.redeemed.append((record.id, other_request))
        spent = projection.ledger.used_up_by(record, other_request, allocation, waits, in_turn=in_turn)
        if spent is not None:
            projection.ledger.drop(projection.profile, spent)


def _waits(projection: Projection, job_id: int) -> bool:
    record = projection.records.get(job_id)
    return record is not None and record.waiting


def check_planned_starts(projection: Projection) -> None:
    """Drop planned starts in excess of waiting jobs, and those on nodes that are down."""
    down = projection.ledger.up_version != projection.memory.up_version
    projection.ledger.up_version = projection.memory.up_version
    shrunk = projection.queue.shrunk
    if not projection.ledger.by_request or not (down or shrunk):
        shrunk.clear()
        return
    for request in (
        list(projection.ledger.by_request) if down else [item for item in shrunk if projection.ledger.of(item)]
    ):
        future_starts = projection.ledger.of(request)
        shape = projection.queue.shapes.get(request)
        count = len(shape.keys) if shape is not None else 0
        # An array is one job of the shape and may have several planned starts, one for each of its next tasks.
        if shape is not None and len(future_starts) > count:
            count = sum(record.tasks.bit_count() if record.tasks else 1 for record in shape.jobs.values())
        void = list(future_starts[count:])
        if down:
            rows = projection.table.rows
            void += [item for item in future_starts[:count] if not all(rows[index].up for index, _ in item.parts)]
        for future_start in void:
            projection.ledger.drop(projection.profile, future_start)
    shrunk.clear()


def drop_broken(projection: Projection) -> None:
    """Drop planned starts that a reservation makes impossible."""
    for request, future_starts in list(projection.ledger.by_request.items()):
        for future_start in list(future_starts):
            parts = dict(future_start.parts)
            if any(
                booking.start_at < future_start.end_at
                and booking.end_at > future_start.start_at
                and not projection.reserved.gives_way(booking.reservation, request)
                and any(index in parts and _overlap(holder, parts[index]) for index, holder in booking.parts)
                for held in projection.reserved.holds.values()
                for booking in held
            ):
                projection.ledger.drop(projection.profile, future_start)


def give_up_behind(projection: Projection, record: JobRecord, indexes: Iterable[int]) -> None:
    """A job has these nodes for longer than was planned, since it was resumed or its time limit was raised. Planned
    starts that it leaves no room for, those of the lowest rank first, are given up: what stands for each until the next
    full cycle plans it again, behind that job on the same nodes, only keeps jobs of lower rank off.
    """
    occupied = dict.fromkeys(indexes, record.ends_at)
    for index, until in occupied.items():
        _freed, latest = projection.prolonged.get(index, (0, until))
        projection.prolonged[index] = projection.freed, max(until, latest)
    holds = (hold for index in occupied for hold, _ in projection.profile.holds.get(index, ()))
    behind = dict.fromkeys(hold for hold in holds if isinstance(hold, FutureStart) and hold.start_at < record.ends_at)
    ledger, profile = projection.ledger, projection.profile
    for future_start in sorted(behind, key=_rank, reverse=True):
        if _has_room(projection, future_start, occupied):
            continue
        ledger.drop(profile, future_start)
        if not future_start.request.component:  # components start together
            later = ledger.moved(profile, future_start, record.ends_at, future_start.allocation)
            later.provisional = True
            ledger.keep(profile, later)
    if projection.reserved.holds:
        drop_broken(projection)


def _overlap(first: Holder, other: Holder) -> bool:
    """Whether two holders have a CPU or device in common."""
    return bool(first.cpus & other.cpus) or any(
        device.name == other_device.name and mask_of(device.indexes) & mask_of(other_device.indexes)
        for device in first.gres
        for other_device in other.gres
    )


def _order(item: PlannedFutureStart) -> float:
    return item.start_at


def _rank(future_start: FutureStart) -> tuple[int, float]:
    return future_start.place or _NO_PLACE, future_start.start_at
