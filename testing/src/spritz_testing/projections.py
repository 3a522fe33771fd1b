"""What a projection says, in a comparable form: one that has followed every change says what one built from the records
says.

Each attribute of a projection and of a job's row is compared, or named here as history, which a start forgets. For a
new one that is neither, `tests/property/test_changes.py` fails.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from spritz.core.state import State
from spritz.scheduling.view.changes.waiting_jobs import partitions_of
from spritz.scheduling.view.projection import Projection
from spritz.scheduling.view.records import JobRecord
from spritz.scheduling.view.request import Request

#: Attributes of a projection that what has happened decides, and not only the records; and those that the others hold.
HISTORY = {
    "freed",
    "ledger",
    "marked",
    "memory",
    "outdated",
    "owners_changed",
    "partition_freed",
    "priorities_at",
    "priority_inputs",
    "prolonged",
    "reached",
    "redeemed",
    "reorder",
    "unplaced",
    "_hardware",
    "_members_outdated",
    "_workload_at",
    "_workload_jobs",
}
COMPARED = {
    "array_limits",
    "array_running",
    "boot_waits",
    "eligibility",
    "ends",
    "in_use",
    "ineligible",
    "licenses",
    "nodes",
    "occupants",
    "of_account",
    "owners",
    "partitions",
    "powered",
    "pricing",
    "profile",
    "queue",
    "records",
    "reserved",
    "rules",
    "settings",
    "switch_waits",
    "table",
    "_node_partitions",
}
#: of a row: where it stands in the queue (`queue` and `waits` have that), since when, and what cycles have found
ROW_HISTORY = {"any_switches", "entries", "may_boot", "predicted", "queued", "ranked_until"}


def rebuilt(state: State) -> Projection:
    """A projection of the records alone."""
    fresh = Projection()
    fresh.reset(
        state.jobs.values(),
        state.nodes.values(),
        state.partitions.values(),
        state.settings,
        state.reservations.values(),
        state.rules.policy,
    )
    return fresh


def held(projection: Projection) -> dict[str, Any]:
    """What it says of jobs and of what they hold, in a comparable form. Changes nothing, so that a daemon's own may be
    asked: what the next snapshot is to find out is left out.
    """
    rows = [row.key() for row in projection.table.rows]
    return {
        "array_running": projection.array_running,
        "ends": projection.ends,
        "in_use": projection.in_use.uses,
        "licenses": projection.licenses.taken,
        "nodes": list(projection.nodes.items()),
        "of_account": {account: sorted(records) for account, records in projection.of_account.items()},
        "owners": projection.owners,
        "partitions": list(projection.partitions.items()),
        "queue": sorted(
            number
            for number, record in projection.records.items()
            if (
                record.waiting and partitions_of(projection, record)
                if number in projection.unplaced
                else record.entries
            )
        ),
        "records": {number: _row(record) for number, record in sorted(projection.records.items())},
        "reservations": projection.reserved.by_name,
        "settings": projection.settings,
        "table": rows if projection.is_current else None,
    }


def portrait(projection: Projection, now: float) -> dict[str, Any]:
    """Everything that a cycle could see at this time."""
    snapshot = projection.snapshot(now)
    snapshot.occupants.settle(projection.records)
    table, queue, profile = projection.table, projection.queue, projection.profile
    occupants, timed = projection.occupants, bool(projection.pricing.per_second)
    profile.settle()
    return {
        "array_limits": {
            number: limit for number, limit in projection.array_limits.items() if number in projection.records
        },
        "array_running": projection.array_running,
        "boot_waits": _waiting(projection.boot_waits),
        "eligibility": {name: nodes.tolist() for name, nodes in projection.eligibility.partition_nodes.items()},
        "ends": projection.ends,
        "in_use": projection.in_use.uses,
        "ineligible": sorted(projection.ineligible),
        "licenses": (projection.licenses.total, projection.licenses.taken),
        "nodes": list(projection.nodes.items()),
        "occupants": (
            {kind: held.tolist() for kind, held in occupants.held.items()},
            {kind: prices.tolist() for kind, prices in occupants.prices.items()},
            occupants.counts,
            occupants.leaving(),
        ),
        "of_account": {account: sorted(records) for account, records in projection.of_account.items()},
        "owners": projection.owners,
        "partitions": list(projection.partitions.items()),
        "powered": (projection.powered.left, projection.powered.resumes),
        "pricing": projection.pricing.weights,
        "profile": [row.key() for row in profile.table.rows],
        "queue": sorted(
            (key if not timed else (key[0], key[2:]), request.partition, request.reservation)
            for request, shape in queue.shapes.items()
            for key in shape.keys
        ),
        "records": {number: _row(record) for number, record in sorted(projection.records.items())},
        "waits": {
            number: (record.any_switches, record.may_boot)
            for number, record in projection.records.items()
            if record.pending
        },
        "reserved": (
            projection.reserved.by_name,
            {
                name: [
                    (hold.start_at, hold.end_at, [(index, holder.key()) for index, holder in hold.parts])
                    for hold in holds
                ]
                for name, holds in projection.reserved.holds.items()
            },
        ),
        "rules": projection.rules.policy,
        "settings": projection.settings,
        "switch_waits": _waiting(projection.switch_waits),
        "table": (
            [(row.key(), row.weight, row.features, row.changeable, row.extra, row.external) for row in table.rows],
            [column.tolist() for _kind, column in sorted(table.gres.items())],
            table.cpus.tolist(),
            table.memory.tolist(),
            table.up.tolist(),
            table.weight.tolist(),
            {
                (index, number): holder.ends_at
                for index, row in enumerate(table.rows)
                for number, holder in row.holders.items()
            },
        ),
        "_node_partitions": projection._node_partitions,
    }


def _waiting(records: dict[int, JobRecord]) -> list[int]:
    return sorted(number for number, record in records.items() if record.pending)


def _queues(projection: Projection, record: JobRecord) -> bool:
    """Whether it is in the queue, or will be from the next snapshot on."""
    if record.id not in projection.unplaced:
        return bool(record.entries)
    return record.waiting and bool(partitions_of(projection, record))


def _row(record: JobRecord) -> dict[str, Any]:
    row = {name: getattr(record, name) for name in JobRecord.__slots__ if name not in ROW_HISTORY}
    if record.allocation is None:
        del row["ends_at"]
    row["request"] = None if record.request is None else _settled(record.request)
    return row


def _settled(request: Request) -> Request:
    """Without what the request of a job that runs says of the moment when it started, and of the policy then: only
    waiting jobs are asked for that.
    """
    return replace(
        request, switches=0, boots=(), boots_later=False, uid=-1, barred=None, billed=None, guaranteed="", preempts=""
    )
