"""Planned starts between cycles: those of a plan are adopted, those of started jobs are used up, void ones are dropped.

Decides nothing; `plan.backfill` decides which jobs get planned starts.

Source: docs/decisions/0030-planned-starts.md.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from spritz.model.resources import mask_of
from spritz.scheduling.view.events import waiting_jobs
from spritz.scheduling.view.parameters import parameters_of
from spritz.scheduling.view.planned_starts import is_same

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spritz.model.plan import Plan, PlannedFutureStart
    from spritz.scheduling.view.hardware import Hardware
    from spritz.scheduling.view.nodes import Holder
    from spritz.scheduling.view.planned_starts import FutureStart
    from spritz.scheduling.view.projection import Projection
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request


def adopt(projection: Projection, plan: Plan, started: Sequence[tuple[int, Request]]) -> None:
    """Take over the planned starts of a plan, once its starts have been applied. Leaves out those that have become void
    since, and those on nodes that no longer exist. `started`: jobs that others started since the snapshot that the plan
    was made from, with their requests. Each of them has used up the earliest planned start of its request, and no
    planned start may rely on the resources that it has taken.
    """
    for vain in plan.no_room:
        record = projection.records.get(vain.job_id)
        for _key, shape in record.entries if record is not None else ():
            if shape.request.queue_key == (vain.partition, vain.reservation):
                projection.memory.put_no_room(shape.request, vain)
    if plan.future_starts is None or _take_over(projection, plan.future_starts, started):
        made, version = projection.memory.made
        if made is plan:
            # The ledger is now as the cycle left it, so failures recorded with its version are still valid. Dropping
            # and making planned starts above has counted the version up: set it back.
            projection.ledger.version = version


def _take_over(
    projection: Projection, future_starts: Sequence[PlannedFutureStart], started: Sequence[tuple[int, Request]]
) -> bool:
    """Make the ledger hold these. True if it could take all of them."""
    index_of = projection.table.index_of
    used_up = Counter(request for _job_id, request in started)
    taken = _taken(projection, {job_id for job_id, _request in started})
    complete = True
    planned: dict[Request, list[PlannedFutureStart]] = {}
    for item in future_starts:
        record = projection.records.get(item.job_id)
        line = item.allocation.partition, item.allocation.reservation
        entries = record.entries if record is not None else ()
        requests = [shape.request for _key, shape in entries if shape.request.queue_key == line]
        if not requests or not all(name in index_of for name in item.allocation.names):
            complete = False
            continue
        for request in requests:
            planned.setdefault(request, []).append(item)
    for request, count in used_up.items():
        # Otherwise the next jobs of this request would be promised what those had that run already.
        if request in planned:
            planned[request] = sorted(planned[request], key=_order)[count:]
            complete = False
    # Planned starts that the plan repeats are kept, matched one to one: dropping and making a hold again costs time for
    # each of its nodes in the profile. Grouping by start avoids comparing every pair.
    for request, items in list(projection.ledger.by_request.items()):
        left: dict[float, list[PlannedFutureStart]] = {}
        for item in planned.get(request, ()):
            left.setdefault(item.start_at, []).append(item)
        for future_start in items:
            alike = left.get(future_start.start_at, [])
            same = next((item for item in alike if is_same(future_start, item)), None)
            if same is None:
                projection.ledger.drop(projection.profile, future_start)
            else:
                future_start.freed, future_start.holder, future_start.place = same.freed, same.holder, same.place
                alike.remove(same)
        if request in planned:
            planned[request] = [item for alike in left.values() for item in alike]
    projection.queue.shrunk.update(planned)
    for request, new in planned.items():
        for item in new:
            if taken and _is_taken(projection, taken, item, request):
                complete = False
                continue
            uid = projection.records[item.job_id].spec.uid
            future_start = projection.ledger.make(projection.profile, request, item.start_at, item.allocation, uid=uid)
            future_start.provisional, future_start.queued, future_start.freed = (
                item.provisional,
                item.queued,
                item.freed,
            )
            future_start.holder, future_start.place = item.holder, item.place
            projection.ledger.keep(projection.profile, future_start)
    return complete


def _taken(projection: Projection, job_ids: Iterable[int]) -> dict[str, float]:
    """Nodes of these jobs, and until when the last of them may be there."""
    taken: dict[str, float] = {}
    for job_id in job_ids:
        record = projection.records.get(job_id)
        if record is None or record.allocation is None:
            continue
        for name in record.names:
            taken[name] = max(taken.get(name, 0.0), record.ends_at)
    return taken


def _is_taken(projection: Projection, taken: Mapping[str, float], item: PlannedFutureStart, request: Request) -> bool:
    """Whether jobs that the plan did not know leave too little for the planned start. Its job has none then, until the
    next full cycle: kept, it would be a promise that cannot be kept, and would put off the jobs behind it once more.
    """
    if request.share_rows:
        return False  # jobs of its partition share CPUs
    latest = item.start_at + parameters_of(projection.settings).resolution_seconds  # it may be a little late
    for part in item.allocation.nodes:
        if taken.get(part.node, 0.0) <= latest:
            continue
        row = projection.table.rows[projection.table.index_of[part.node]].after(latest)
        if mask_of(part.cpus).bit_count() > row.free_cpus.bit_count():
            return True
        if request.memory_counts and part.memory_mib > row.free_memory_mib:
            return True
        if any(
            mask_of(gres.indexes).bit_count() > row.devices_free(gres.name, gres.type).bit_count()
            for gres in part.gres
            if gres.name in row.gres_free
        ):
            return True
    return False


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


def redeem(projection: Projection, record: JobRecord, request: Request) -> None:
    """A job of this request has started: use up the planned start of its request in each of its partitions."""
    placed = record.id not in projection.unplaced
    others = [shape.request for _key, shape in record.entries] if placed and record.entries else None
    if others is None:
        others = [other for _tier, other in waiting_jobs.requests_of(projection, record)]
    for other_request in dict.fromkeys((request, *others)):
        projection.redeemed.append((record.id, other_request))
        used_up = projection.ledger.used_up_by(
            record, other_request, partial(_waits, projection), in_turn=parameters_of(projection.settings).predict
        )
        if used_up is not None:
            projection.ledger.drop(projection.profile, used_up)


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


def _overlap(first: Holder, other: Holder) -> bool:
    """Whether two holders have a CPU or device in common."""
    return bool(first.cpus & other.cpus) or any(
        device.name == other_device.name and mask_of(device.indexes) & mask_of(other_device.indexes)
        for device in first.gres
        for other_device in other.gres
    )


def _order(item: PlannedFutureStart) -> float:
    return item.start_at
