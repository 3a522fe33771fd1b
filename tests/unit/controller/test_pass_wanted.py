"""After which changes another job may start."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.controller.scheduler.pass_wanted import wants_pass
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.events import NO_CHANGES, Changes, Layout
from spritz.model.job.record import ArrayState, Dependency, Hold, Job, JobSpec
from spritz.model.limits.records import Policy
from spritz.model.node.record import Node, NodeConfig
from spritz.model.node.reservation import Reservation
from spritz.model.reasons import Reason
from spritz.model.states import JobState, NodeFlag, NodeState

WAITS = Job(id=1, spec=JobSpec(), priority=5, eligible_at=1.0)
RUNS = replace(WAITS, state=JobState.RUNNING, started_at=2.0)
ENDED = replace(RUNS, state=JobState.COMPLETED, completing=("n1", "n2"))
NODE = Node(config=NodeConfig(name="n1"), state=NodeState.IDLE)
RESERVED = Reservation(id=1, name="r", start_at=10.0, end_at=20.0)


@pytest.mark.parametrize(
    ("before", "fields"),
    [
        (WAITS, {"spec": JobSpec(name="other")}),
        (WAITS, {"priority": 6}),
        (WAITS, {"dependencies": (Dependency(kind="singleton"),)}),
        (WAITS, {"accrued_at": 3.0}),
        (replace(WAITS, eligible_at=0.0), {"eligible_at": 3.0}),
        (replace(WAITS, hold=Hold.USER), {"hold": Hold.NONE}),
        (replace(WAITS, reason=Reason.FED_JOB_LOCK), {"reason": Reason.NONE}),
        (replace(WAITS, array=ArrayState(pending="ff", limit=1)), {"array": ArrayState(pending="ff", limit=2)}),
        (WAITS, {"state": JobState.CANCELLED}),
        (replace(WAITS, completing=("n1",)), {"completing": ()}),
        (RUNS, {"state": JobState.SUSPENDED}),
        (RUNS, {"state": JobState.COMPLETED}),
        (RUNS, {"state": JobState.PENDING}),
        (RUNS, {"time_limit_minutes": 3}),
        (ENDED, {"completing": ("n2",)}),
    ],
)
def test_a_job_that_gives_back_or_asks_for_something_else_lets_others_start(
    before: Job, fields: dict[str, Any]
) -> None:
    assert wants_pass(Changes(jobs=((before, replace(before, **fields)),)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, WAITS),
        (ENDED, None),
        (WAITS, RUNS),
        (WAITS, replace(WAITS, hold=Hold.USER, priority=0, eligible_at=0.0)),
        (WAITS, replace(WAITS, reason=Reason.PRIORITY, expected_start_at=9.0, last_evaluated_at=8.0)),
        (WAITS, replace(WAITS, awaits_victims_since=3.0)),
        (replace(WAITS, array=ArrayState(pending="f")), replace(WAITS, array=ArrayState(pending="e"))),
        (RUNS, replace(RUNS, ends_at=9.0, preempt_action="REQUEUE")),
        (replace(RUNS, state=JobState.SUSPENDED), RUNS),
        (ENDED, replace(ENDED, repeat_kill_at=9.0)),
    ],
)
def test_one_that_takes_or_is_told_why_it_waits_does_not(before: Job | None, after: Job | None) -> None:
    assert not wants_pass(Changes(jobs=((before, after),)))


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        (NO_CHANGES, False),
        (Changes(nodes=((None, NODE),)), True),
        (Changes(nodes=((NODE, replace(NODE, flags=NodeFlag.DRAIN.value)),)), True),
        (Changes(nodes=((NODE, replace(NODE, last_busy_at=9.0, registered_at=9.0)),)), False),
        (Changes(reservations=((RESERVED, replace(RESERVED, began=True)),)), True),
        (Changes(reservations=((RESERVED, None),)), True),
        (Changes(reservations=((RESERVED, replace(RESERVED, used_at=9.0)),)), False),
        (Changes(policy=(Policy(),)), True),
        (Changes(usage=True), True),
        (Changes(layout=Layout(settings=ClusterSettings(), partitions={}, nodes=())), True),
    ],
)
def test_nodes_reservations_and_policy(changes: Changes, wanted: bool) -> None:
    assert wants_pass(changes) is wanted
