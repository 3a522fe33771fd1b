"""Why a job waits or why it ended: the strings of squeue's REASON column.

Only reasons that something in Spritz can set are members; the inventory's others come with the features that set them.

Source: squeue(1) JOB REASON CODES; slurm `job_reason_string`.
"""

from __future__ import annotations

from enum import Enum


class Reason(str, Enum):
    """One word per cause; the value is exactly what Slurm prints."""

    NONE = "None"
    PRIORITY = "Priority"
    RESOURCES = "Resources"
    DEPENDENCY = "Dependency"
    DEPENDENCY_NEVER_SATISFIED = "DependencyNeverSatisfied"
    BEGIN_TIME = "BeginTime"
    HELD_USER = "JobHeldUser"
    HELD_ADMIN = "JobHeldAdmin"
    HELD_MAX_REQUEUE = "JobHoldMaxRequeue"
    ARRAY_TASK_LIMIT = "JobArrayTaskLimit"
    LICENSES = "Licenses"
    RESERVATION = "Reservation"
    RESERVATION_DELETED = "ReservationDeleted"
    NODES_NOT_AVAILABLE = "ReqNodeNotAvail"
    PARTITION_DOWN = "PartitionDown"
    PARTITION_INACTIVE = "PartitionInactive"
    PARTITION_NODE_LIMIT = "PartitionNodeLimit"
    PARTITION_TIME_LIMIT = "PartitionTimeLimit"
    PARTITION_CONFIG = "PartitionConfig"
    INVALID_ACCOUNT = "InvalidAccount"
    INVALID_QOS = "InvalidQOS"
    ACCOUNT_NOT_ALLOWED = "AccountNotAllowed"
    QOS_NOT_ALLOWED = "QOSNotAllowed"
    BAD_CONSTRAINTS = "BadConstraints"
    CONSTRAINTS = "Constraints"
    NODE_DOWN = "NodeDown"
    PROLOG = "Prolog"
    CLEANING = "Cleaning"
    LAUNCH_FAILURE = "JobLaunchFailure"
    NON_ZERO_EXIT_CODE = "NonZeroExitCode"
    RAISED_SIGNAL = "RaisedSignal:%d"
    TIME_LIMIT = "TimeLimit"
    OUT_OF_MEMORY = "OutOfMemory"
    DEADLINE = "DeadLine"
    SYSTEM_FAILURE = "SystemFailure"
    INACTIVE_LIMIT = "InactiveLimit"
    MAX_MEMORY_PER_LIMIT = "MaxMemPerLimit"
    ACCOUNTING_POLICY = "AccountingPolicy"
    SCHED_DEFER = "SchedDefer"
