"""Slurm's names and numbers of requests, and the order of their counts. Source: sdiag(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.model.accounting.accounting_admin import CallCount

#: requests that Slurm has as well: name and number
KINDS: dict[str, tuple[str, int]] = {
    "RegisterNode": ("MESSAGE_NODE_REGISTRATION_STATUS", 1002),
    "Reconfigure": ("REQUEST_RECONFIGURE", 1003),
    "Shutdown": ("REQUEST_SHUTDOWN", 1005),
    "Ping": ("REQUEST_PING", 1008),
    "SetDebug": ("REQUEST_SET_DEBUG_LEVEL", 1010),
    "SetDebugFlag": ("REQUEST_SET_DEBUG_FLAGS", 1012),
    "ShowConfig": ("REQUEST_BUILD_INFO", 2001),
    "ListJobs": ("REQUEST_JOB_INFO", 2003),
    "ListSteps": ("REQUEST_JOB_STEP_INFO", 2005),
    "ListNodes": ("REQUEST_NODE_INFO", 2007),
    "ListPartitions": ("REQUEST_PARTITION_INFO", 2009),
    "ListReservations": ("REQUEST_RESERVATION_INFO", 2024),
    "ListPriorities": ("REQUEST_PRIORITY_FACTORS", 2026),
    "GetDiagnostics": ("REQUEST_STATS_INFO", 2035),
    "UpdateJob": ("REQUEST_UPDATE_JOB", 3001),
    "UpdateNode": ("REQUEST_UPDATE_NODE", 3002),
    "CreatePartition": ("REQUEST_CREATE_PARTITION", 3003),
    "DeletePartition": ("REQUEST_DELETE_PARTITION", 3004),
    "UpdatePartition": ("REQUEST_UPDATE_PARTITION", 3005),
    "CreateReservation": ("REQUEST_CREATE_RESERVATION", 3006),
    "DeleteReservation": ("REQUEST_DELETE_RESERVATION", 3008),
    "UpdateReservation": ("REQUEST_UPDATE_RESERVATION", 3009),
    "SubmitJob": ("REQUEST_SUBMIT_BATCH_JOB", 4003),
    "AwaitAllocation": ("REQUEST_JOB_READY", 4019),
    "CreateStep": ("REQUEST_JOB_STEP_CREATE", 5001),
    "SuspendJob": ("REQUEST_SUSPEND", 5014),
    "FinishAllocation": ("REQUEST_COMPLETE_JOB_ALLOCATION", 5017),
    "StepFinished": ("REQUEST_STEP_COMPLETE", 5016),
    "RequeueJob": ("REQUEST_JOB_REQUEUE", 5023),
    "CancelJobs": ("REQUEST_KILL_JOB", 5032),
    "JobGone": ("MESSAGE_EPILOG_COMPLETE", 6012),
}


def sorted_kinds(rows: list[CallCount], order: str) -> list[CallCount]:
    """Sorted by count, largest first, unless an option says otherwise; by number, smallest first."""

    def average(row: CallCount) -> int:
        return row.microseconds // max(1, row.count)

    if order == "sort-by-id":
        return sorted(rows, key=lambda row: (number_of(row), row.name))
    if order == "sort-by-time":
        return sorted(rows, key=lambda row: (-row.microseconds, row.name))
    if order == "sort-by-time2":
        return sorted(rows, key=lambda row: (-average(row), row.name))
    return sorted(rows, key=lambda row: (-row.count, row.name))


def name_of(row: CallCount) -> str:
    """Slurm's name of a request; our own if it has none."""
    known = KINDS.get(row.name)
    return known[0] if known is not None else row.name


def number_of(row: CallCount) -> int:
    """Slurm's number of a request; the uid for a user's row; 0 if there is none."""
    if row.name.lstrip("-").isdecimal():
        return int(row.name)
    known = KINDS.get(row.name)
    return known[1] if known is not None else 0
