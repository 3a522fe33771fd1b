"""What follows from a machine's health: records, reboots, burn-in."""

from __future__ import annotations

from typing import Any

from spritz.k8s.custom_resources.control import ClusterNode, Moment
from spritz.k8s.custom_resources.health import (
    BURN_IN_WAIT_SECONDS,
    REBOOT_SECONDS,
    RETEST_SECONDS,
    Burned,
    BurnIn,
    Health,
    Record,
    Seen,
    burn_in_due,
    burn_in_over,
    judge,
)

XID = "gpu-xid: Xid 79 on GPU 0000:3b:00"


def seen(state: str = "IDLE", reason: str = "", *, boot: str = "b1", started: int = 0, **more: Any) -> Seen:
    """A machine with one node; without a state, with none."""
    node = ClusterNode("gpu-0", state.split("+"), reason, slurmd_start_time=Moment(started))
    return Seen("m7", boot, more.pop("condition", ""), [node] if state else [], **more)


class Machine:
    """One machine through its steps; `interval` of its health program is 60 s."""

    def __init__(self, **health: Any) -> None:
        self.health = Health(**health)
        self.record: Record | None = None
        #: reasons of all events so far
        self.events: list[str] = []

    def step(self, now: float, what: Seen) -> str:
        """The phase after it; "" without a record."""
        verdict = judge(self.health, "default/gpu", self.record, what, now, 60.0)
        self.record = verdict.record
        self.events += [event.reason for event in verdict.events]
        return self.record.phase if self.record is not None else ""


def drained(reason: str = XID, **more: Any) -> Seen:
    return seen("IDLE+DRAIN", f"health-check: {reason}", **more)


def test_a_machine_without_a_fault_has_no_record() -> None:
    machine = Machine()
    assert machine.step(100, seen()) == ""
    assert machine.step(100, seen("IDLE+DRAIN", "bad fan")) == ""
    assert machine.events == []


def test_a_fault_that_goes_by_itself_returns_the_machine_after_a_check() -> None:
    machine = Machine()
    assert machine.step(100, drained("disk: /tmp: 0.2 % free")) == "drained"
    assert machine.record is not None
    assert (machine.record.cause, machine.record.node_set) == ("disk: /tmp: 0.2 % free", "default/gpu")
    # Another pod came to the machine, whose slurmd has not checked yet.
    assert machine.step(174, seen(started=105)) == "drained"
    assert machine.step(175, seen(started=105)) == ""
    assert machine.events == ["MachineFault", "MachineReturned"]


def test_the_record_stays_while_the_machine_has_no_pod() -> None:
    machine = Machine()
    machine.step(100, drained())
    assert machine.step(9_999, seen("")) == "drained"


def test_a_reboot_waits_for_jobs_and_ends_with_a_check() -> None:
    machine = Machine(on_fault="Reboot")
    assert machine.step(100, seen("MIXED+DRAIN", f"health-check: {XID}")) == "drained"
    assert machine.step(200, seen("MIXED+DRAIN", f"health-check: {XID}")) == "drained"
    assert machine.step(300, drained()) == "rebooting"
    assert machine.step(310, seen("DOWN+NOT_RESPONDING", "Not responding")) == "rebooting"
    assert machine.step(400, seen("DOWN+NOT_RESPONDING", boot="b2")) == "rechecking"
    assert machine.step(430, seen("IDLE+DRAIN", "spritz-operator: health: m7", boot="b2", started=410)) == "rechecking"
    assert machine.step(480, seen("IDLE+DRAIN", "spritz-operator: health: m7", boot="b2", started=410)) == ""
    assert machine.events == ["MachineFault", "Rebooting", "Rebooted", "MachineReturned"]


def test_a_machine_that_a_reboot_did_not_mend_is_broken_until_it_is_rebooted_by_hand() -> None:
    machine = Machine(on_fault="Reboot")
    for now, what in ((100, drained()), (110, drained()), (200, drained(boot="b2")), (230, drained(boot="b2"))):
        machine.step(now, what)
    assert machine.record is not None
    assert machine.record.phase == "broken"
    assert machine.record.keeps_pods_away(machine.health)
    assert machine.step(9_999, seen("", boot="b2")) == "broken"
    assert machine.step(10_000, seen("", boot="b3")) == "rechecking"
    assert not machine.record.keeps_pods_away(machine.health)
    assert machine.step(10_070, seen(boot="b3", started=10_000)) == ""
    assert machine.events[-4:] == ["Rebooted", "MachineBroken", "Rechecking", "MachineReturned"]


def test_a_machine_that_does_not_come_back_is_broken() -> None:
    machine = Machine(on_fault="Reboot")
    machine.step(100, drained())
    assert machine.step(110, drained()) == "rebooting"
    assert machine.step(110 + REBOOT_SECONDS + 1, seen("DOWN+NOT_RESPONDING")) == "broken"
    assert machine.events[-1] == "RebootFailed"


def test_a_replaced_machine_keeps_pods_away_from_the_first_moment() -> None:
    machine = Machine(on_fault="Replace")
    assert machine.step(100, drained()) == "drained"
    assert machine.record is not None
    assert machine.record.keeps_pods_away(machine.health)
    assert machine.step(110, seen("")) == "broken"
    assert machine.events == ["MachineFault", "MachineReplaced"]


def test_a_condition_that_is_over_frees_a_replaced_machine() -> None:
    machine = Machine(on_fault="Replace")
    assert machine.step(100, seen(condition="GpuUnhealthy (Xid79)")) == "drained"
    assert machine.step(110, seen("", condition="GpuUnhealthy (Xid79)")) == "broken"
    assert machine.step(120, seen("")) == "rechecking"


def test_a_burn_in_comes_before_the_return_and_its_failure_is_a_fault() -> None:
    machine = Machine(burn_in=BurnIn("burn"))
    machine.step(100, drained("disk: full"))
    assert machine.step(200, seen()) == "testing"
    assert machine.record is not None
    machine.record.job = 7
    assert machine.step(210, seen("ALLOCATED", job_state="RUNNING")) == "testing"
    assert machine.step(220, seen(job_state="FAILED")) == "drained"
    assert (machine.record.cause, machine.record.job) == ("burn-in job 7 FAILED", 0)
    # Nothing says that it has been mended: it is tried again after a while.
    assert machine.step(230, seen("IDLE+DRAIN", "spritz-operator: health: m7")) == "drained"
    assert machine.step(221 + RETEST_SECONDS, seen("IDLE+DRAIN", "spritz-operator: health: m7")) == "testing"
    machine.record.job = 8
    assert machine.step(9_999, seen(job_state="COMPLETED")) == ""
    assert machine.events[-1] == "MachineReturned"


def test_a_burn_in_that_fails_after_a_reboot_is_final() -> None:
    machine = Machine(on_fault="Reboot", burn_in=BurnIn("burn"))
    for now, what in ((100, drained()), (110, drained()), (200, seen(boot="b2")), (280, seen(boot="b2", started=200))):
        machine.step(now, what)
    assert machine.record is not None
    assert machine.record.phase == "testing"
    machine.record.job = 7
    assert machine.step(300, seen(boot="b2", job_state="FAILED")) == "broken"


def test_idle_machines_burn_in_when_it_is_time() -> None:
    health = Health(burn_in=BurnIn("burn", every_hours=1))
    assert burn_in_due(health, None, seen(), 100)
    assert not burn_in_due(Health(), None, seen(), 100)
    assert not burn_in_due(health, Burned(100), seen(), 3_699)
    assert burn_in_due(health, Burned(100), seen(), 3_700)
    for busy in ("MIXED", "IDLE+DRAIN", "IDLE+POWERED_DOWN", "DOWN"):
        assert not burn_in_due(health, None, seen(busy), 100)


def test_a_scheduled_burn_in_passes_fails_or_makes_room() -> None:
    health, burned = Health(burn_in=BurnIn("burn", every_hours=1)), Burned(100, job=7)

    def over(state: str, now: float = 200) -> tuple[Burned, str]:
        after, verdict = burn_in_over(health, "default/gpu", burned, seen(job_state=state), now)
        return after, verdict.record.cause if verdict.record is not None else ""

    assert over("RUNNING") == (burned, "")
    assert over("PENDING") == (burned, "")
    assert over("COMPLETED") == (Burned(200), "")
    assert over("FAILED") == (Burned(200), "burn-in job 7 FAILED")
    assert over("TIMEOUT") == (Burned(200), "burn-in job 7 TIMEOUT")
    # Other jobs came first: in half an hour, and not in an hour.
    now = 101 + BURN_IN_WAIT_SECONDS
    assert over("PENDING", now)[0].at == max(0, now - 3_600 + RETEST_SECONDS)
