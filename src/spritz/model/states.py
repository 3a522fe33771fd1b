"""Job and node states, their flags and the transitions that are allowed.

A job has one base state and any number of flags (COMPLETING, CONFIGURING …), and so has a node (IDLE + DRAIN …). Flags
travel as plain integers because msgspec decodes no combined `IntFlag`; the classes here name them.

Source: squeue(1) JOB STATE CODES, sinfo(1) NODE STATE CODES, slurm/slurm.h.
"""

from __future__ import annotations

from enum import Enum, IntFlag


class JobState(str, Enum):
    """Base state of a job; the value is the long name that commands print."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    #: a federated job that another cluster ran, or a copy that its origin took back
    REVOKED = "REVOKED"

    @property
    def active(self) -> bool:
        """Whether a job in this state holds or may hold resources: RUNNING or SUSPENDED."""
        return self is JobState.RUNNING or self is JobState.SUSPENDED

    @property
    def ended(self) -> bool:
        """Whether a job in this state will not run again (unless requeued)."""
        return self is not JobState.PENDING and self is not JobState.RUNNING and self is not JobState.SUSPENDED


_LIVE = frozenset({JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED})

#: How each state is shown: the two-letter code of `squeue -o %t`, and the suffix of Slurm's metrics that count it.
JOB_STATES: dict[JobState, tuple[str, str]] = {
    JobState.PENDING: ("PD", "pending"),
    JobState.RUNNING: ("R", "running"),
    JobState.SUSPENDED: ("S", "suspended"),
    JobState.COMPLETED: ("CD", "completed"),
    JobState.CANCELLED: ("CA", "cancelled"),
    JobState.FAILED: ("F", "failed"),
    JobState.TIMEOUT: ("TO", "timeout"),
    JobState.NODE_FAIL: ("NF", "node_failed"),
    JobState.PREEMPTED: ("PR", "preempted"),
    JobState.BOOT_FAIL: ("BF", "bootfail"),
    JobState.DEADLINE: ("DL", "deadline"),
    JobState.OUT_OF_MEMORY: ("OOM", "outofmemory"),
    JobState.REVOKED: ("RV", "revoked"),
}
JOB_STATE_COMPACT = {state: code for state, (code, _metric) in JOB_STATES.items()}


class JobFlag(IntFlag):
    """Flags added to the base state. COMPLETING and CONFIGURING hide the base state in short listings."""

    COMPLETING = 1 << 0
    CONFIGURING = 1 << 1
    RESIZING = 1 << 2
    REQUEUED = 1 << 3
    REQUEUE_HOLD = 1 << 4
    SPECIAL_EXIT = 1 << 5
    STOPPED = 1 << 6
    SIGNALING = 1 << 7
    LAUNCH_FAILED = 1 << 8
    RECONFIG_FAIL = 1 << 9
    POWER_UP_NODE = 1 << 10
    RESV_DEL_HOLD = 1 << 11
    REVOKED = 1 << 12
    STAGE_OUT = 1 << 13
    EXPEDITING = 1 << 14


#: How each flag is shown, in the order in which one replaces the base state: its compact code ("": it does not replace
#: the state), and the suffix of Slurm's metrics that count it ("": none does). JSON shows all by their names.
JOB_FLAGS: dict[JobFlag, tuple[str, str]] = {
    JobFlag.COMPLETING: ("CG", "completing"),
    JobFlag.CONFIGURING: ("CF", "configuring"),
    JobFlag.RESIZING: ("RS", "resizing"),
    JobFlag.REQUEUE_HOLD: ("RH", ""),
    JobFlag.REQUEUED: ("RQ", "requeued"),
    JobFlag.SPECIAL_EXIT: ("SE", ""),
    JobFlag.STOPPED: ("ST", ""),
    JobFlag.SIGNALING: ("SI", "signaling"),
    JobFlag.STAGE_OUT: ("SO", "stageout"),
    JobFlag.RESV_DEL_HOLD: ("RD", ""),
    JobFlag.REVOKED: ("RV", "revoked"),
    JobFlag.LAUNCH_FAILED: ("", ""),
    JobFlag.RECONFIG_FAIL: ("", ""),
    JobFlag.POWER_UP_NODE: ("", "powerup_node"),
    JobFlag.EXPEDITING: ("", "expediting"),
}
JOB_FLAG_COMPACT = {flag: code for flag, (code, _metric) in JOB_FLAGS.items() if code}

#: from-state -> states that a job may enter next. Ended states lead back to PENDING by requeue only.
JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.PENDING: frozenset(
        {
            JobState.RUNNING,
            JobState.CANCELLED,
            JobState.DEADLINE,
            JobState.FAILED,
            JobState.BOOT_FAIL,
            JobState.NODE_FAIL,
            JobState.REVOKED,
        }
    ),
    JobState.RUNNING: frozenset(set(JobState) - {JobState.RUNNING}),
    JobState.SUSPENDED: frozenset(set(JobState) - {JobState.SUSPENDED}),
} | {state: frozenset({JobState.PENDING}) for state in JobState if state not in _LIVE}


class NodeState(str, Enum):
    """Base state of a node, as stored; MIXED and ALLOCATED are derived from what runs there (see `Node`)."""

    UNKNOWN = "UNKNOWN"
    DOWN = "DOWN"
    IDLE = "IDLE"
    ALLOCATED = "ALLOCATED"
    ERROR = "ERROR"
    MIXED = "MIXED"
    FUTURE = "FUTURE"


class NodeFlag(IntFlag):
    """Flags added to a node's base state."""

    DRAIN = 1 << 0
    COMPLETING = 1 << 1
    NOT_RESPONDING = 1 << 2
    FAIL = 1 << 3
    CLOUD = 1 << 4
    POWERING_UP = 1 << 5
    POWERED_DOWN = 1 << 6
    POWERING_DOWN = 1 << 7
    MAINTENANCE = 1 << 8
    REBOOT_REQUESTED = 1 << 9
    REBOOT_ISSUED = 1 << 10
    RESERVED = 1 << 11
    PLANNED = 1 << 12
    INVALID_REG = 1 << 13
    BLOCKED = 1 << 14
    DYNAMIC_NORM = 1 << 15
    #: to be powered down when nothing runs there any more
    POWER_DOWN = 1 << 16
    #: to be powered up when ResumeRate permits
    POWER_UP = 1 << 17
    #: a FUTURE node of slurm.conf whose place a daemon started with -F has taken
    DYNAMIC_FUTURE = 1 << 18
    #: another workload manager runs jobs there, and no slurmd: only jobs with `JobSpec.external`
    EXTERNAL = 1 << 19


class PartitionState(str, Enum):
    """UP: queue and run; DOWN: queue only; DRAIN: run what is queued; INACTIVE: neither."""

    UP = "UP"
    DOWN = "DOWN"
    DRAIN = "DRAIN"
    INACTIVE = "INACTIVE"
