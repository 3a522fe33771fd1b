"""The settings of preemption and time slicing. `rules.preemption` has the rules that follow from them.

Source: slurm.conf(5) PreemptType, PreemptMode, PreemptParameters, PreemptExemptTime, SchedulerTimeSlice.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class PreemptMode(str, Enum):
    """How a job is preempted; the value is as slurm.conf spells it."""

    OFF = "OFF"
    SUSPEND = "SUSPEND"
    REQUEUE = "REQUEUE"
    CANCEL = "CANCEL"


class PreemptionPolicy(Struct, frozen=True, kw_only=True):
    """The cluster's settings of preemption and time slicing. `type` is "none", "partition_prio" or "qos"."""

    type: str = "none"
    #: PreemptMode as words: CANCEL, or SUSPEND and GANG …
    mode: tuple[str, ...] = ()
    #: a job that has run for less is not requeued or cancelled
    exempt_seconds: int = 0
    #: a job of this priority or above is never preempted (None: no such limit)
    min_exempt_priority: int | None = None
    #: take a job's licenses as well as its nodes
    reclaim_licenses: bool = False
    #: how often the search for fewer victims may spend its budget
    reorder_count: int = 1
    #: the warning is the job's own --signal
    send_user_signal: bool = False
    #: preempt the jobs of lowest priority, even if that takes more of them
    strict_order: bool = False
    youngest_first: bool = False
    #: between SIGTSTP and SIGSTOP
    suspend_grace_seconds: int = 2
    #: how long each job of a time-sliced partition runs in one slice
    slice_seconds: int = 30
