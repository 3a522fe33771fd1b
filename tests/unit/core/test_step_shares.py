"""Which GPU each task of a step sees, when its job has shares of several."""

from __future__ import annotations

from typing import Any

import pytest

from spritz.core.step.layout import lay_out
from spritz.model.job.record import Job, JobSpec
from spritz.model.job.step import Step, StepNode, StepSpec
from spritz.model.node.record import Node, NodeConfig
from spritz.model.resources import Allocation, GresAllocation, GresRequest, NodeAllocation, NodeCapacity
from spritz.model.states import JobState

EACH = (GresRequest("shard", "", 2),)


def shards(count: int, device: int) -> GresAllocation:
    return GresAllocation(name="shard", count=count, indexes=format(1 << device, "x"))


def laid_out(gres: tuple[GresAllocation, ...], spec: StepSpec, **of_job: object) -> StepNode:
    allocation = Allocation(partition="p", nodes=(NodeAllocation(node="n1", cpus="f", gres=gres),))
    job = Job(id=1, spec=JobSpec(**of_job), state=JobState.RUNNING, allocation=allocation)  # type: ignore[arg-type]
    node = Node(config=NodeConfig(name="n1", capacity=NodeCapacity(cpus=4, cores_per_socket=4)))
    (found,) = lay_out(job, spec, (), lambda name: node)
    return found


def test_each_task_sees_the_gpu_of_its_shares() -> None:
    gres = (shards(2, 0), shards(2, 3))
    step = laid_out(gres, StepSpec(tasks=2, gres_per_task=EACH))
    assert step.gpus_by_task == ("1", "8")
    assert step.allocation.gres == gres


def test_a_step_that_asks_for_nothing_has_it_as_its_job_does() -> None:
    gres = (shards(2, 0), shards(2, 3))
    assert laid_out(gres, StepSpec(tasks=2), gres_per_task=EACH).gpus_by_task == ("1", "8")
    # More tasks than the job has shares for: all see all of it.
    assert laid_out(gres, StepSpec(tasks=3), gres_per_task=EACH).gpus_by_task == ()
    assert laid_out(gres, StepSpec(tasks=2, gpu_bind="none"), gres_per_task=EACH).gpus_by_task == ()


def test_tasks_share_one_gpu_where_the_job_has_one() -> None:
    assert laid_out((shards(4, 1),), StepSpec(tasks=2, gres_per_task=EACH)).gpus_by_task == ()


def test_a_task_whose_shares_lie_on_two_gpus_sees_both() -> None:
    gres = (shards(2, 0), shards(1, 1), shards(1, 2))
    assert laid_out(gres, StepSpec(tasks=2, gres_per_task=EACH)).gpus_by_task == ("1", "6")


@pytest.mark.parametrize(
    ("asked", "own", "expected"),
    [
        ({"gpus_per_node": (GresRequest("gpu", "", 2),)}, {}, "3"),
        ({"gres_per_node": (GresRequest("gpu", "", 2),)}, {}, "3"),
        ({"gpus": (GresRequest("gpu", "", 3),)}, {}, "7"),
        ({"gpus": (GresRequest("gpu", "", 12),)}, {}, "ff"),
        ({"gpus_per_socket": (GresRequest("gpu", "", 1),)}, {}, "1"),
        ({"gpus_per_node": (GresRequest("gpu", "", 2),)}, {"gpus_per_node": (GresRequest("gpu", "", 4),)}, "f"),
        ({"gpus_per_node": (GresRequest("gpu", "", 2),)}, {"gres_none": True}, ""),
        ({}, {}, "ff"),
    ],
)
def test_a_step_of_whole_nodes_has_the_gpus_that_its_job_asked_for(
    asked: dict[str, Any], own: dict[str, Any], expected: str
) -> None:
    """The job holds all GPUs of a node as exclusive, also those that it did not ask for."""
    gpus = (GresAllocation(name="gpu", count=8, indexes="ff"),)
    nodes = (NodeAllocation(node="n1", cpus="f", gres=gpus),)
    job = Job(
        id=1,
        spec=JobSpec(**asked),
        state=JobState.RUNNING,
        allocation=Allocation(partition="p", nodes=nodes, whole_nodes=True),
    )
    node = Node(config=NodeConfig(name="n1", capacity=NodeCapacity(cpus=4, cores_per_socket=4)))
    spec = StepSpec(tasks=1, **own)
    (first,) = lay_out(job, spec, (), lambda name: node)
    assert "".join(item.indexes for item in first.allocation.gres) == expected
    if not own:  # what it does not ask for itself, other steps have as well
        step = Step(job_id=1, step_id=0, spec=spec, uid=0, nodes=(first,), running_nodes=("n1",))
        overlapping = StepSpec(tasks=1, overlap=True)
        (second,) = lay_out(job, overlapping, (step,), lambda name: node)
        assert second.allocation.gres == first.allocation.gres
