"""Who may take whose resources, and how: the relation between jobs as a pure table, and the policy's settings.

Core and scheduling both ask here, so that what the one plans the other accepts. A new kind of relation (QOS) is one
more entry of `_RELATIONS`; nothing else knows which kind is configured.

Source: slurm.conf(5) PreemptType, PreemptMode, PreemptParameters, PreemptExemptTime, GraceTime.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from spritz.model.partition import Partition

TYPE_CHECKING = False  # commands import this: the typing module would cost them more than all else
if TYPE_CHECKING:
    from collections.abc import Callable


class PreemptMode(str, Enum):
    """What becomes of a job that is preempted; the value is as slurm.conf spells it."""

    OFF = "OFF"
    SUSPEND = "SUSPEND"
    REQUEUE = "REQUEUE"
    CANCEL = "CANCEL"


#: Words of PreemptMode that say something else than what becomes of the job.
_ASIDE = frozenset({"GANG", "WITHIN", "PRIORITY"})


class PreemptionPolicy(Struct, frozen=True, kw_only=True):
    """The cluster's settings of preemption and time slicing. `type` is "none" or "partition_prio"."""

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
    #: jobs of the lowest priority, even if more of them must go
    strict_order: bool = False
    youngest_first: bool = False
    #: between SIGTSTP and SIGSTOP
    suspend_grace_seconds: int = 2
    #: how long each job of a time-sliced partition runs before it is the next one's turn
    slice_seconds: int = 30


class Party(Struct, frozen=True, kw_only=True):
    """One side of a preemption: what decides who may preempt whom."""

    partition: Partition
    qos: str = ""
    priority: int = 0


def preempt_mode(policy: PreemptionPolicy, partition: Partition) -> PreemptMode:
    """What becomes of the partition's jobs when they are preempted: its own PreemptMode, else the cluster's."""
    words = words_of(partition.preempt_mode) or policy.mode
    for word in words:
        if word not in _ASIDE:
            return PreemptMode(word)
    return PreemptMode.OFF


def words_of(text: str) -> tuple[str, ...]:
    """`suspend,gang` -> SUSPEND, GANG."""
    return tuple(word.strip().upper() for word in text.split(",") if word.strip())


def time_sliced(policy: PreemptionPolicy, partition: Partition) -> bool:
    """Whether jobs of the partition that share CPUs take turns: GANG for the cluster, and not OFF for the partition."""
    return "GANG" in policy.mode and "OFF" not in words_of(partition.preempt_mode)


def may_preempt(policy: PreemptionPolicy, who: Party, whom: Party) -> bool:
    """Whether a job of `who` may take the resources of one of `whom`."""
    relation = _RELATIONS.get(policy.type)
    if relation is None or not relation(who, whom):
        return False
    mode = preempt_mode(policy, whom.partition)
    if mode is PreemptMode.OFF:
        return False
    if mode is PreemptMode.SUSPEND and whom.partition.oversubscribe.upper().startswith("NO"):
        # OverSubscribe=NO keeps CPUs to one job even while it stands still.
        return False
    own = words_of(whom.partition.preempt_mode) or policy.mode
    return "PRIORITY" not in own or who.priority > whom.priority


def exempt(
    policy: PreemptionPolicy, mode: PreemptMode, *, priority: int, started_at: float, suspended: float, now: float
) -> bool:
    """Whether a running job is spared: by its priority, or because it has run too little to be ended."""
    if policy.min_exempt_priority is not None and priority >= policy.min_exempt_priority:
        return True
    return mode is not PreemptMode.SUSPEND and now - started_at - suspended < policy.exempt_seconds


def _higher_tier(who: Party, whom: Party) -> bool:
    return who.partition.priority_tier > whom.partition.priority_tier


_RELATIONS: dict[str, Callable[[Party, Party], bool]] = {"partition_prio": _higher_tier}
