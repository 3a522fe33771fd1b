"""What becomes of promised starts between cycles: a plan's are taken over, those of jobs that start are used up, and
those that have become void are dropped.

Decides nothing; who is promised what is `promises`.

Source: docs/decisions/0030-promised-starts.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.resources import mask_of
from spritz.scheduling.view.events import waiting_jobs
from spritz.scheduling.view.planned_starts import is_same

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.plan import Plan, PlannedPromise
    from spritz.scheduling.view.hardware import Hardware
    from spritz.scheduling.view.nodes import Holder
    from spritz.scheduling.view.planned_starts import FutureStart
    from spritz.scheduling.view.projection import Projection
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request


def adopt(projection: Projection, plan: Plan) -> None:
    """Take over the promises of a plan, once its starts have been applied; those that have become void since are
    left out, and those of nodes that are there no more.
    """
    for vain in plan.no_room:
        record = projection.records.get(vain.job_id)
        for _key, shape in record.entries if record is not None else ():
            if shape.request.queue_key == (vain.partition, vain.reservation):
                projection.memory.put_no_room(shape.request, vain)
    if plan.promises is None or _take_over(projection, plan.promises):
        made, version = projection.memory.made
        if made is plan:
            # Promises are as that cycle left them: what failed beside them, by its numbers, still does.
            projection.ledger.version = version


def _take_over(projection: Projection, promises: Sequence[PlannedPromise]) -> bool:
    """The ledger has these, all of them if True."""
    there = projection.table.index_of
    complete = True
    wanted: dict[Request, list[PlannedPromise]] = {}
    for item in promises:
        record = projection.records.get(item.job_id)
        line = item.allocation.partition, item.allocation.reservation
        entries = record.entries if record is not None else ()
        mine = [shape.request for _key, shape in entries if shape.request.queue_key == line]
        if not mine or not all(name in there for name in item.allocation.names):
            complete = False
            continue
        for request in mine:
            wanted.setdefault(request, []).append(item)
    for request, items in list(projection.ledger.promises.items()):
        left: dict[float, list[PlannedPromise]] = {}
        for item in wanted.get(request, ()):
            left.setdefault(item.start_at, []).append(item)
        for promise in items:
            alike = left.get(promise.start_at, [])
            same = next((item for item in alike if is_same(promise, item)), None)
            if same is None:
                projection.ledger.drop(projection.profile, promise)
            else:
                promise.freed, promise.holder, promise.place = same.freed, same.holder, same.place
                alike.remove(same)
        if request in wanted:
            wanted[request] = [item for alike in left.values() for item in alike]
    projection.queue.shrunk.update(wanted)
    for request, new in wanted.items():
        for item in new:
            uid = projection.records[item.job_id].spec.uid
            promise = projection.ledger.make(projection.profile, request, item.start_at, item.allocation, uid=uid)
            promise.provisional, promise.queued, promise.freed = item.provisional, item.queued, item.freed
            promise.holder, promise.place = item.holder, item.place
            projection.ledger.keep(projection.profile, promise)
    return complete


def keep_again(projection: Projection, promises: list[FutureStart], before: dict[str, Hardware]) -> None:
    """Promises outlive a new table, if all their nodes are there and have the hardware that they had."""
    table, ledger, profile = projection.table, projection.ledger, projection.profile
    for old in promises:
        names = old.allocation.names
        rows = [table.rows[table.index_of[name]] for name in names if name in table.index_of]
        if len(rows) < len(names) or any(row.hardware is not before.get(row.name) for row in rows):
            continue
        promise = ledger.make(profile, old.request, old.start_at, old.allocation, uid=old.parts[0][1].uid)
        promise.provisional, promise.queued, promise.holder = old.provisional, projection.queue.count, old.holder
        promise.place = old.place
        ledger.keep(profile, promise)
        projection.queue.shrunk.add(old.request)


def redeem(projection: Projection, record: JobRecord, request: Request) -> None:
    """A job of this request has started: the first promise to its kind is used up, in each of its partitions."""
    placed = record.id not in projection.unplaced
    others = [shape.request for _key, shape in record.entries] if placed and record.entries else None
    if others is None:
        others = [other for _tier, other in waiting_jobs.requests_of(projection, record)]
    for one in dict.fromkeys((request, *others)):
        for promise in projection.ledger.of(one)[:1]:
            projection.ledger.drop(projection.profile, promise)


def check_promises(projection: Projection) -> None:
    """No more promises than jobs that wait, and none on nodes that are down."""
    down = projection.ledger.up_version != projection.memory.up_version
    projection.ledger.up_version = projection.memory.up_version
    shrunk = projection.queue.shrunk
    if not projection.ledger.promises or not (down or shrunk):
        shrunk.clear()
        return
    for request in (
        list(projection.ledger.promises) if down else [item for item in shrunk if projection.ledger.of(item)]
    ):
        promises = projection.ledger.of(request)
        shape = projection.queue.shapes.get(request)
        count = len(shape.keys) if shape is not None else 0
        if shape is not None and len(promises) > count:
            count = sum(record.tasks.bit_count() if record.tasks else 1 for record in shape.jobs.values())
        void = list(promises[count:])
        if down:
            rows = projection.table.rows
            void += [item for item in promises[:count] if not all(rows[index].up for index, _ in item.parts)]
        for promise in void:
            projection.ledger.drop(projection.profile, promise)
    shrunk.clear()


def drop_broken(projection: Projection) -> None:
    """Promises that a reservation breaks are void."""
    for request, promises in list(projection.ledger.promises.items()):
        for promise in list(promises):
            parts = dict(promise.parts)
            if any(
                booking.start_at < promise.end_at
                and booking.end_at > promise.start_at
                and not projection.reserved.gives_way(booking.reservation, request)
                and any(index in parts and _overlap(holder, parts[index]) for index, holder in booking.parts)
                for held in projection.reserved.holds.values()
                for booking in held
            ):
                projection.ledger.drop(projection.profile, promise)


def _overlap(one: Holder, other: Holder) -> bool:
    """The same CPUs or devices."""
    return bool(one.cpus & other.cpus) or any(
        mine.name == theirs.name and mask_of(mine.indexes) & mask_of(theirs.indexes)
        for mine in one.gres
        for theirs in other.gres
    )
