"""Which GPU each task of a step sees, when its job has shares of several."""

from __future__ import annotations

from spritz.core.step.layout import lay_out
from spritz.model.job.record import Job, JobSpec
from spritz.model.job.step import StepNode, StepSpec
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
