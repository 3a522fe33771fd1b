"""Jobs, partitions and reservations as plugins see them; each field is computed when a plugin reads it.

Names and values as in Slurm's job_record_t, part_record_t and slurmctld_resv_t; an unknown name reads as None.

Source: https://slurm.schedmd.com/job_submit_plugins.html; values as recorded from Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from spritz.model.ids import NO_VAL
from spritz.model.job.record import Job
from spritz.model.node.partition import Partition, opens_to
from spritz.model.node.reservation import Reservation
from spritz.model.rules.job_tres import allocated, cpu_count, requested, text
from spritz.model.states import JobFlag, JobState, PartitionState
from spritz.notation import hostlist
from spritz.plugins.description import Description
from spritz.plugins.fields import FIELDS

#: numbers of job_states; higher bits are flags
_STATES = {state: number for number, state in enumerate(JobState)}
_COMPLETING = 0x8000

#: fields that a job's record has and its description lacks
_JOB: dict[str, Callable[[Job], Any]] = {
    "array_job_id": lambda job: job.array_job_id,
    "array_task_cnt": lambda job: 0 if job.array is None else job.array.task_count,
    "array_task_id": lambda job: NO_VAL if job.array_task_id is None else job.array_task_id,
    "batch_host": lambda job: None if job.allocation is None else job.allocation.names[0],
    "end_time": lambda job: int(job.ended_at or job.ends_at),
    "exit_code": lambda job: job.exit_status,
    "het_job_id": lambda job: job.het_job_id,
    "het_job_offset": lambda job: job.het_offset if job.het_job_id else NO_VAL,
    "job_id": lambda job: job.id,
    "job_state": lambda job: state_number(job.state, completing=bool(job.flags & JobFlag.COMPLETING)),
    "nodes": lambda job: None if job.allocation is None else hostlist.compress(job.allocation.names),
    "pack_job_id": lambda job: job.het_job_id,
    "pack_job_offset": lambda job: job.het_offset if job.het_job_id else NO_VAL,
    "partition": lambda job: ",".join(job.spec.partitions) or job.partition,
    "priority": lambda job: job.priority,
    "resizing": lambda job: 0,
    "restart_cnt": lambda job: job.restart_count,
    "resv_name": lambda job: job.spec.reservation or None,
    "start_time": lambda job: int(job.started_at),
    "submit_time": lambda job: int(job.submitted_at),
    "time_limit": lambda job: NO_VAL if job.time_limit_minutes is None else job.time_limit_minutes,
    "total_cpus": cpu_count,
    "total_nodes": lambda job: job.spec.nodes_min if job.allocation is None else len(job.allocation.nodes),
    "tres_alloc_str": lambda job: None if job.allocation is None else text(allocated(job)),
    "tres_fmt_alloc_str": lambda job: None if job.allocation is None else text(allocated(job)),
    "tres_fmt_req_str": lambda job: text(requested(job)),
    "tres_req_str": lambda job: text(requested(job)),
}


def state_number(state: JobState, *, completing: bool) -> int:
    """Number of the state as in job_states, with the completing flag."""
    return _STATES[state] | (_COMPLETING if completing else 0)


class JobView:
    """Read-only view of a job of the controller."""

    __slots__ = ("_description", "job")

    def __init__(self, job: Job) -> None:
        self.job = job
        self._description: Description | None = None

    def read(self, name: str) -> Any:
        """The field's value; None for an unknown name."""
        getter = _JOB.get(name)
        if getter is not None:
            return getter(self.job)
        if name not in FIELDS or name in ("script", "environment"):
            return None
        if self._description is None:
            self._description = Description(msgspec.to_builtins(self.job.spec))
        return FIELDS[name].read(self._description)


_STATE_UP = {
    PartitionState.UP: 3,
    PartitionState.DOWN: 1,
    PartitionState.DRAIN: 2,
    PartitionState.INACTIVE: 0,
}


def _part_flags(partition: Partition) -> int:
    return (
        0x1 * partition.default
        | 0x2 * partition.hidden
        | 0x4 * partition.disable_root_jobs
        | 0x8 * partition.root_only
        | 0x10 * partition.require_reservation
        | 0x20 * partition.lln
        | 0x40 * partition.exclusive_user
    )


def _share(partition: Partition) -> int:
    word, _, count = partition.oversubscribe.upper().partition(":")
    if word == "EXCLUSIVE":
        return 0
    number = int(count) if count.isdecimal() else 4
    return {"NO": 1, "YES": number}.get(word, number | 0x8000)


def _names(words: Collection[str]) -> str | None:
    return ",".join(words) or None


_PARTITION: dict[str, Callable[[Partition], Any]] = {
    "allow_accounts": lambda partition: _names(partition.allow_accounts),
    "allow_alloc_nodes": lambda partition: _names(partition.allow_alloc_nodes),
    "allow_groups": lambda partition: _names(partition.allow_groups),
    "allow_qos": lambda partition: _names(partition.allow_qos),
    "alternate": lambda partition: partition.alternate or None,
    "billing_weights_str": lambda partition: partition.billing_weights_text or None,
    "default_time": lambda partition: (
        NO_VAL if partition.default_time_minutes is None else partition.default_time_minutes
    ),
    "def_mem_per_cpu": lambda partition: partition.default_memory_mib_per_cpu or None,
    "def_mem_per_node": lambda partition: partition.default_memory_mib_per_node or None,
    "deny_accounts": lambda partition: _names(partition.deny_accounts),
    "deny_groups": lambda partition: _names(partition.deny_groups),
    "deny_qos": lambda partition: _names(partition.deny_qos),
    "flag_default": lambda partition: int(partition.default),
    "flags": _part_flags,
    "max_cpus_per_node": lambda partition: partition.max_cpus_per_node,
    "max_cpus_per_socket": lambda partition: partition.max_cpus_per_socket,
    "max_mem_per_cpu": lambda partition: partition.max_memory_mib_per_cpu or None,
    "max_mem_per_node": lambda partition: partition.max_memory_mib_per_node or None,
    "max_nodes": lambda partition: partition.max_nodes,
    "max_nodes_orig": lambda partition: partition.max_nodes,
    "max_oversubscribe": _share,
    "max_share": _share,
    "max_time": lambda partition: partition.max_time_minutes,
    "min_nodes": lambda partition: partition.min_nodes,
    "min_nodes_orig": lambda partition: partition.min_nodes,
    "name": lambda partition: partition.name,
    "nodes": lambda partition: hostlist.compress(partition.nodes),
    "priority_job_factor": lambda partition: partition.priority_job_factor,
    "priority_tier": lambda partition: partition.priority_tier,
    "qos": lambda partition: partition.qos or None,
    "state_up": lambda partition: _STATE_UP[partition.state],
    "total_nodes": lambda partition: len(partition.nodes),
}


class PartitionView:
    """Read-only view of a partition. `cpus`: total of its nodes."""

    __slots__ = ("_cpus", "partition")

    def __init__(self, partition: Partition, cpus: int = 0) -> None:
        self.partition = partition
        self._cpus = cpus

    def read(self, name: str) -> Any:
        """The field's value; None for an unknown name."""
        if name == "total_cpus":
            return self._cpus
        getter = _PARTITION.get(name)
        return None if getter is None else getter(self.partition)


def usable(partition: Partition, uid: int, submit_uid: int, groups: Collection[str]) -> bool:
    """Whether users and groups allow the user's jobs in the partition. Source: the rule of job_submit/partition."""
    if uid == 0:
        return not partition.disable_root_jobs
    if partition.root_only and submit_uid != 0:
        return False
    return opens_to(partition, groups)


_RESERVATION: dict[str, Callable[[Reservation], Any]] = {
    "accounts": lambda reservation: _names(reservation.accounts),
    "assoc_list": lambda reservation: None,
    "duration": lambda reservation: int(reservation.duration // 60),
    "end_time": lambda reservation: int(reservation.end_at),
    "features": lambda reservation: reservation.features or None,
    "full_nodes": lambda reservation: not reservation.cpus,
    "licenses": lambda reservation: _names([f"{name}:{count}" for name, count in reservation.licenses]),
    "node_cnt": lambda reservation: len(reservation.nodes),
    "node_list": lambda reservation: hostlist.compress(reservation.nodes) or None,
    "partition": lambda reservation: reservation.partition or None,
    "start_time": lambda reservation: int(reservation.start_at),
    "users": lambda reservation: _names(reservation.users),
}


class ReservationView:
    __slots__ = ("reservation",)

    def __init__(self, reservation: Reservation) -> None:
        self.reservation = reservation

    def read(self, name: str) -> Any:
        """The field's value; None for an unknown name. `flags` are words here, not Slurm's bits."""
        if name == "flags":
            return ",".join(self.reservation.flags)
        getter = _RESERVATION.get(name)
        return None if getter is None else getter(self.reservation)
