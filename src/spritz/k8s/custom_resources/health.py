"""Health of a machine: its next state and the actions, as a pure function of what is observed.

The record of a fault is an annotation of the Kubernetes node, so it stays with the machine, whatever becomes of its
pods. It is made when spritz-health-check drained a node of ours there, when the node has a condition of `drainOn`, or
when a burn-in job failed; the NodeSet that made it says what is done:

    drained      no job starts there. Recheck: until the fault is gone; Replace: its pods go to other machines;
    rebooting    Reboot: when no job is left, a pod restarts the machine
    rechecking   it was rebooted, or the fault is gone: the health program must have run and found nothing
    testing      burn-in, where the NodeSet has it: a job in a reservation of the node
    broken       faulty after a reboot, not back after one, or left by its pods: no pods of NodeSets, until it is
                 rebooted by hand or the annotation is removed

Without a fault no record is left. Idle machines get burn-in jobs on a schedule, which any other job's start delays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from spritz.k8s.custom_resources.control import ClusterNode
from spritz.k8s.pods import PREFIX

#: Annotations of a Kubernetes node: the record of its fault, and its burn-in. Label: no pods of NodeSets there.
RECORD: Final = f"{PREFIX}health"
BURNED: Final = f"{PREFIX}burn-in"
UNHEALTHY: Final = f"{PREFIX}unhealthy"

#: Reasons of spritz-health-check, and of the operator's own drains for health.
CHECKED: Final = "health-check: "

#: Seconds within which a machine must come back from a reboot, and after which a failed burn-in is repeated.
REBOOT_SECONDS: Final = 1800.0
RETEST_SECONDS: Final = 1800.0

#: Longest run of the health program on a healthy machine, in seconds.
CHECK_SECONDS: Final = 10.0

#: Seconds for which a scheduled burn-in job stays queued on a machine that was idle.
BURN_IN_WAIT_SECONDS: Final = 600.0

_OCCUPIED: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_AWAY: Final = frozenset({"DOWN", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"})

Phase = Literal["drained", "rebooting", "rechecking", "testing", "broken"]
Source = Literal["check", "condition", "burn-in"]


class BurnIn(msgspec.Struct, rename="camel"):
    """A command that must succeed; `every_hours`: on idle machines; `minutes`: its time limit."""

    command: str
    every_hours: int = 168
    minutes: int = 10


class Health(msgspec.Struct, rename="camel"):
    """Node conditions that count as faults besides the health program's findings, and the reaction to a fault."""

    drain_on: list[str] = []
    on_fault: Literal["Recheck", "Reboot", "Replace"] = "Recheck"
    requeue_jobs: bool = False
    reboot_command: list[str] = []
    burn_in: BurnIn | None = None


class Record(msgspec.Struct, rename="camel", omit_defaults=True):
    """A machine's fault. `since`: when it was found, `at`: when its phase began, in seconds since the epoch."""

    cause: str
    source: Source
    #: NAMESPACE/NAME
    node_set: str
    since: int
    phase: Phase = "drained"
    at: int = 0
    #: boot ID of the machine when its fault was found, or since its last reboot
    boot: str = ""
    rebooted: bool = False
    #: of the burn-in
    job: int = 0

    def keeps_pods_away(self, health: Health) -> bool:
        """Whether the machine must not get pods of NodeSets."""
        return self.phase == "broken" or (self.phase == "drained" and health.on_fault == "Replace")


class Burned(msgspec.Struct, omit_defaults=True):
    """A machine's last burn-in: when it ended or was queued, and its job while it has not ended."""

    at: int
    job: int = 0


class Seen(msgspec.Struct):
    """The observed machine. `condition`: one of `drainOn`, or ""; `job_state`: of its burn-in, "" if unknown."""

    name: str
    boot: str
    condition: str
    nodes: Sequence[ClusterNode]
    job_state: str = ""

    @property
    def check(self) -> str:
        """The finding of spritz-health-check, or "" if it has not drained the node."""
        for node in self.nodes:
            if "DRAIN" in node.state and node.reason.startswith(CHECKED):
                return node.reason.removeprefix(CHECKED)
        return ""

    @property
    def is_busy(self) -> bool:
        return any(not _OCCUPIED.isdisjoint(node.state) for node in self.nodes)

    @property
    def serves(self) -> bool:
        """Whether slurmd answers on all nodes, of which there is one at least."""
        return bool(self.nodes) and all(_AWAY.isdisjoint(node.state) for node in self.nodes)

    def was_checked(self, since: float, now: float, interval: float) -> bool:
        """Whether the health program has run since then, in the daemons that serve now."""
        begun = max([since, *(node.slurmd_start_time.number for node in self.nodes)])
        return self.serves and (not interval or now - begun >= interval + CHECK_SECONDS)


class HealthEvent(msgspec.Struct, frozen=True):
    """An event for the machine and the NodeSet."""

    reason: str
    message: str
    is_warning: bool = False


class Verdict(msgspec.Struct):
    """The new record (None: no fault), and the events to report."""

    record: Record | None
    events: list[HealthEvent]


def judge(health: Health, node_set: str, record: Record | None, seen: Seen, now: float, interval: float) -> Verdict:
    """The next step. `interval`: seconds between runs of the health program; 0 without one."""
    fault, source = _fault(seen)
    if record is None:
        if not fault:
            return Verdict(None, [])
        new = Record(fault, source, node_set, int(now), at=int(now), boot=seen.boot)
        return Verdict(new, [HealthEvent("MachineFault", f"{seen.name}: {fault}", is_warning=True)])
    if record.phase == "broken":
        if record.source == "condition" and not seen.condition:
            words = f"{seen.name}: {record.cause} is over"
            return _moved(record, "rechecking", now, "Rechecking", words, boot=seen.boot)
        if seen.boot != record.boot:
            return _moved(record, "rechecking", now, "Rechecking", f"{seen.name} was rebooted", boot=seen.boot)
        return Verdict(record, [])
    if record.phase == "rebooting":
        return _rebooting(record, seen, now)
    if record.phase == "testing":
        return _testing(health, record, seen, now, fault, source)
    if record.phase == "rechecking":
        if fault:
            return _again(record, seen, now, fault, source)
        if not seen.was_checked(record.at, now, interval):
            return Verdict(record, [])
        return _passed(health, record, seen, now)
    return _drained(health, record, seen, now, fault, source, interval)


def _fault(seen: Seen) -> tuple[str, Source]:
    return (seen.check, "check") if seen.check else (seen.condition, "condition")


def _moved(
    record: Record, phase: Phase, now: float, reason: str, message: str, *, warn: bool = False, **changes: object
) -> Verdict:
    moved = msgspec.structs.replace(record, phase=phase, at=int(now), **changes)
    return Verdict(moved, [HealthEvent(reason, message, warn)])


def _drained(
    health: Health, record: Record, seen: Seen, now: float, fault: str, source: Source, interval: float
) -> Verdict:
    over = not fault and record.source != "burn-in" and seen.was_checked(0.0, now, interval)
    if over:
        # The fault has gone without a reboot: the program has resumed its node, or the condition is false again.
        return _passed(health, record, seen, now)
    if health.on_fault == "Replace" and not seen.nodes:
        words = f"{seen.name}: {record.cause}; its pods move to other machines"
        return _moved(record, "broken", now, "MachineReplaced", words, warn=True)
    if health.on_fault == "Reboot" and (fault or record.source == "burn-in") and not seen.is_busy:
        words = f"{seen.name} reboots: {fault or record.cause}"
        return _moved(record, "rebooting", now, "Rebooting", words, boot=seen.boot)
    if health.on_fault == "Recheck" and record.source == "burn-in" and now >= record.at + RETEST_SECONDS:
        return _passed(health, record, seen, now)
    if fault:
        return Verdict(msgspec.structs.replace(record, cause=fault, source=source), [])
    return Verdict(record, [])


def _rebooting(record: Record, seen: Seen, now: float) -> Verdict:
    if seen.boot != record.boot:
        words = f"{seen.name} was rebooted for {record.cause}"
        return _moved(record, "rechecking", now, "Rebooted", words, boot=seen.boot, rebooted=True)
    if now > record.at + REBOOT_SECONDS:
        words = f"{seen.name} has not rebooted in {REBOOT_SECONDS:.0f} s: {record.cause}"
        return _moved(record, "broken", now, "RebootFailed", words, warn=True)
    return Verdict(record, [])


def _again(record: Record, seen: Seen, now: float, fault: str, source: Source) -> Verdict:
    phase: Phase = "broken" if record.rebooted else "drained"
    reason = "MachineBroken" if record.rebooted else "MachineFault"
    words = f"{seen.name} is still faulty after a reboot: {fault}" if record.rebooted else f"{seen.name}: {fault}"
    return _moved(record, phase, now, reason, words, warn=True, cause=fault, source=source, job=0)


def _passed(health: Health, record: Record, seen: Seen, now: float) -> Verdict:
    if health.burn_in is None:
        return Verdict(None, [HealthEvent("MachineReturned", f"{seen.name} is back in use after {record.cause}")])
    words = f"{seen.name} runs {health.burn_in.command.split()[0]} before it is used again"
    return _moved(record, "testing", now, "BurnIn", words, job=0)


def _testing(health: Health, record: Record, seen: Seen, now: float, fault: str, source: Source) -> Verdict:
    if fault:
        return _again(record, seen, now, fault, source)
    if seen.job_state == "COMPLETED":
        return Verdict(None, [HealthEvent("MachineReturned", f"{seen.name} is back in use after {record.cause}")])
    if seen.job_state and seen.job_state not in ("PENDING", "RUNNING", "SUSPENDED"):
        return _again(record, seen, now, f"burn-in job {record.job} {seen.job_state}", "burn-in")
    return Verdict(record, [])


def burn_in_due(health: Health, burned: Burned | None, seen: Seen, now: float) -> bool:
    """Whether a machine without a fault should start its burn-in now."""
    if health.burn_in is None or not seen.nodes or seen.condition:
        return False
    if any("DRAIN" in node.state or node.state[:1] != ["IDLE"] for node in seen.nodes) or not seen.serves:
        return False
    return burned is None or now >= burned.at + health.burn_in.every_hours * 3600.0


def burn_in_over(health: Health, node_set: str, burned: Burned, seen: Seen, now: float) -> tuple[Burned, Verdict]:
    """The outcome of a scheduled burn-in: still under way, passed, or a fault. An unknown job is run again."""
    state, nothing = seen.job_state, Verdict(None, [])
    if state in ("RUNNING", "SUSPENDED"):
        return burned, nothing
    if state == "PENDING" and now < burned.at + BURN_IN_WAIT_SECONDS:
        return burned, nothing
    if state == "COMPLETED":
        return Burned(int(now)), Verdict(None, [HealthEvent("BurnInPassed", f"{seen.name}: job {burned.job}")])
    if state in ("PENDING", "CANCELLED", ""):
        # Another job took the machine, or the burn-in was cancelled: run it after RETEST_SECONDS.
        every = health.burn_in.every_hours * 3600 if health.burn_in is not None else 0
        return Burned(max(0, int(now - every + RETEST_SECONDS))), nothing
    cause = f"burn-in job {burned.job} {state}"
    record = Record(cause, "burn-in", node_set, int(now), at=int(now), boot=seen.boot)
    return Burned(int(now)), Verdict(record, [HealthEvent("MachineFault", f"{seen.name}: {cause}", is_warning=True)])
