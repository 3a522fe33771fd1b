"""All pods are deleted after a node was removed and slurmctld restarted.

Ten external jobs, which are pods, run on two nodes. One node is removed from slurm.conf, and slurmctld restarts or is
killed around that moment. The Kubernetes operator reads the queue all the time, and evicts a pod only for a job that
slurmctld has ended and still waits for, or that is being preempted (`k8s.scheduling.pod_scheduler`). No answer, however
early or empty, may make it evict a pod: those of the removed node have lost their jobs, and are left alone; those of
the other node have theirs.
"""

from __future__ import annotations

from typing import Any

import pytest

from spritz_testing.daemons.history import Operation, Outcome
from spritz_testing.daemons.plan import Action, Scale
from spritz_testing.daemons.runs.run import Result
from tests.simulation.daemons.scenarios.play import ask, entries, fault, readings
from tests.simulation.daemons.scenarios.pods import play_pods

PODS = 10

_SCALE = Scale(nodes=2, busy_seconds=300.0, quiet_seconds=1800.0, faults=4, preemption="")


def _plan(*restarts: Action) -> list[Action]:
    """The node goes at 60 seconds; the operator looks every second and at each restart."""
    pods = [ask(5 + number / 10, "pod", tag=f"p{number}", node=f"n{1 + number % 2}") for number in range(PODS)]
    looks = [ask(10 + number / 2, "look") for number in range(160)]
    over = [ask(150 + number, "complete", tag=f"p{number}") for number in range(0, PODS, 2)]
    return [*pods, *looks, ask(60, "remove"), *restarts, *over, ask(200, "look")]


def _need_no_eviction(result: Result) -> None:
    assert not [row for reading in readings(result, "pods") for row in reading.rows if row[1]]


def _moments() -> list[Any]:
    """slurmctld restarts, or is killed, before, in and after the reconfiguration."""
    kinds = [(kind, after) for kind in ("restart", "kill") for after in (-0.5, 0.0, 0.002, 0.05, 1.0)]
    some = {("restart", 1.0), ("kill", 0.002)}
    return [pytest.param(*one, marks=() if one in some else pytest.mark.slow) for one in kinds]


@pytest.mark.parametrize(("kind", "after"), _moments())
def test_no_pod_is_evicted_when_a_node_is_removed(kind: str, after: float) -> None:
    result = play_pods(_SCALE, *_plan(fault(60 + after, kind, "slurmctld:1", 2.0), fault(70, kind, "slurmctld:1", 2.0)))
    _need_no_eviction(result)
    finished = entries(result, Operation, kind="finish")
    assert [operation.outcome for operation in finished] == [Outcome.DONE] * (PODS // 2), "jobs of n1 ran until then"
    looks = readings(result, "pods")
    assert all(len(reading.rows) == PODS for reading in looks), "no answer is partial"
    assert [row[2] for row in looks[-1].rows] == [True] * PODS


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_under_other_faults_no_pod_is_evicted(seed: int) -> None:
    """But by faults of n1, whose jobs then fail."""
    result = play_pods(_SCALE, *_plan(), seed=seed, faulty=True)
    assert readings(result, "pods")
