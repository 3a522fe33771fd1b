"""Which jobs may preempt which, and how: the relation between jobs as a pure table.

Core and scheduling both use it, so that the core accepts what scheduling plans. A new PreemptType is one more entry of
`_RELATIONS`. Besides this table three rules ask which type is configured: `preempt_mode` and `grace_seconds` (settings
of the QOS or of the partition), and `PreemptionRules.tier` of scheduling (which victims go first).

Source: slurm.conf(5) PreemptType, PreemptMode, PreemptExemptTime, GraceTime; sacctmgr(1) SPECIFICATIONS FOR QOS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from spritz.model.cluster.preemption import PreemptionPolicy, PreemptMode
from spritz.model.limits.records import Qos
from spritz.model.node.partition import Partition

#: words of PreemptMode that do not say how a job is preempted
_ASIDE = frozenset({"GANG", "WITHIN", "PRIORITY"})


class PreemptionSide(Struct, frozen=True, kw_only=True):
    """One side of a preemption: the facts that decide whether a job may preempt another. `qos`: the job's own, if
    accounting knows it.
    """

    partition: Partition
    qos: Qos | None = None
    priority: int = 0


def preempt_mode(policy: PreemptionPolicy, victim: PreemptionSide) -> PreemptMode:
    """How jobs of `victim` are preempted; OFF if not at all."""
    for word in _modes(policy, victim):
        if word not in _ASIDE:
            return PreemptMode(word)
    return PreemptMode.OFF


def _modes(policy: PreemptionPolicy, victim: PreemptionSide) -> tuple[str, ...]:
    """PreemptMode of the QOS or the partition, as PreemptType says, else the cluster's."""
    if policy.type != "qos":
        return words_of(victim.partition.preempt_mode) or policy.mode
    qos_modes = _qos_modes(victim)
    return qos_modes if any(word not in _ASIDE for word in qos_modes) else (*qos_modes, *policy.mode)


def _qos_modes(side: PreemptionSide) -> tuple[str, ...]:
    words = words_of(side.qos.preempt_mode) if side.qos is not None else ()
    # OFF and CLUSTER defer to the cluster's mode.
    return tuple(word for word in words if word not in ("OFF", "CLUSTER"))


def grace_seconds(policy: PreemptionPolicy, victim: PreemptionSide) -> int:
    """Time between the warning and the end: the QOS's or the partition's GraceTime, as PreemptType says."""
    if policy.type == "qos":
        return victim.qos.grace_seconds if victim.qos is not None else 0
    return victim.partition.grace_seconds


def exempt_seconds(policy: PreemptionPolicy, qos: Iterable[Qos]) -> int:
    """PreemptExemptTime of the first of these that has one (in their order of precedence), else the cluster's."""
    return next(
        (qos_record.preempt_exempt_seconds for qos_record in qos if qos_record.preempt_exempt_seconds is not None),
        policy.exempt_seconds,
    )


def words_of(text: str) -> tuple[str, ...]:
    """The words of a PreemptMode in capitals: `suspend,gang` -> SUSPEND, GANG."""
    return tuple(word.strip().upper() for word in text.split(",") if word.strip())


def time_sliced(policy: PreemptionPolicy, partition: Partition) -> bool:
    """Whether jobs of the partition that share CPUs use time slices: GANG for the cluster, and not OFF for the
    partition.
    """
    return "GANG" in policy.mode and "OFF" not in words_of(partition.preempt_mode)


def may_preempt(policy: PreemptionPolicy, preemptor: PreemptionSide, victim: PreemptionSide) -> bool:
    """Whether a job of `preemptor` may take the resources of one of `victim`."""
    relation = _RELATIONS.get(policy.type)
    if relation is None or not relation(policy, preemptor, victim):
        return False
    mode = preempt_mode(policy, victim)
    if mode is PreemptMode.OFF:
        return False
    return "PRIORITY" not in _modes(policy, victim) or preemptor.priority > victim.priority


def spared(policy: PreemptionPolicy, priority: int) -> bool:
    """Whether jobs of this priority are never preempted: min_exempt_priority."""
    return policy.min_exempt_priority is not None and priority >= policy.min_exempt_priority


def exempt_by_mode(mode: PreemptMode, seconds: int) -> int:
    """The exempt time of a job that is preempted in this way: SUSPEND does not honour PreemptExemptTime."""
    return 0 if mode is PreemptMode.SUSPEND else seconds


def exempt_until(seconds: int, *, started_at: float, suspended: float) -> float:
    """When a job's exempt time of `seconds` is over (0.0: it has none). Time while it was suspended does not count."""
    return started_at + suspended + seconds if seconds else 0.0


def reclaim_mode(policy: PreemptionPolicy, preemptor: PreemptionSide, victim: PreemptionSide) -> PreemptMode:
    """How such jobs are preempted when they must return what another account is guaranteed; OFF if they need not.

    SUSPEND becomes requeue or cancel, since a suspended job keeps its GPUs. OFF if the victim's jobs could preempt the
    preemptor in turn: they would preempt each other for ever.
    """
    if may_preempt(policy, victim, preemptor):
        return PreemptMode.OFF
    mode = preempt_mode(policy, victim) if policy.type != "none" else PreemptMode.REQUEUE
    return PreemptMode.REQUEUE if mode is PreemptMode.SUSPEND else mode


def guest_mode(policy: PreemptionPolicy) -> PreemptMode:
    """How jobs are preempted that leave a reservation of others (--signal=R:)."""
    return PreemptMode.REQUEUE if "REQUEUE" in policy.mode else PreemptMode.CANCEL


def _higher_tier(policy: PreemptionPolicy, preemptor: PreemptionSide, victim: PreemptionSide) -> bool:
    del policy
    return preemptor.partition.priority_tier > victim.partition.priority_tier


def _by_qos(policy: PreemptionPolicy, preemptor: PreemptionSide, victim: PreemptionSide) -> bool:
    if preemptor.qos is None or victim.qos is None:
        return False
    if preemptor.qos.name == victim.qos.name:
        return "WITHIN" in (*_qos_modes(preemptor), *policy.mode) and preemptor.priority > victim.priority
    return victim.qos.name in preemptor.qos.preempt.split(",")


_RELATIONS: dict[str, Callable[[PreemptionPolicy, PreemptionSide, PreemptionSide], bool]] = {
    "partition_prio": _higher_tier,
    "qos": _by_qos,
}
