"""How many tasks of a step each of its nodes has. Source: srun(1) --distribution; answers of Slurm 22.05."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.fuzz.guard import guard

from spritz.core.decision import Refused
from spritz.core.step.layout import lay_out
from spritz.model.commands.step import CreateStep
from spritz.model.job.record import Job, JobSpec
from spritz.model.job.step import StepSpec
from spritz.model.node.record import Node, NodeConfig
from spritz.model.rejection import Rejection
from spritz.model.resources import Allocation, NodeAllocation, NodeCapacity
from spritz.model.states import JobState
from spritz_testing.builders import ALICE, World


@pytest.mark.parametrize(
    ("tasks", "distribution", "packs", "size", "expected"),
    [
        (10, "", False, {}, [5, 5]),
        (3, "block", False, {}, [2, 1]),
        (10, "", True, {}, [8, 2]),
        (10, "block,nopack", True, {}, [5, 5]),
        (10, "block,pack", False, {}, [8, 2]),
        (6, "block,pack", False, {}, [6]),
        (4, "block,pack", False, {"nodes_min": 2, "nodes_max": 2}, [3, 1]),
        (4, "block,pack", False, {"nodes_min": 1, "nodes_max": 2}, [4]),
        (4, "block,pack", False, {"overcommit": True}, [3, 1]),
        (15, "block,pack", False, {"overcommit": True}, [8, 7]),
        (17, "block,pack", False, {"overcommit": True}, [9, 8]),
        (10, "plane=4", False, {}, [6, 4]),
        (4, "plane=4", False, {}, [3, 1]),
        (16, "", False, {}, [8, 8]),
        (3, "", False, {"tasks_per_node": 1}, [2, 1]),
    ],
)
def test_tasks_are_spread_unless_nodes_are_to_be_filled(
    tasks: int, distribution: str, packs: bool, size: dict[str, Any], expected: list[int]
) -> None:
    """`packs`: SelectTypeParameters=CR_Pack_Nodes."""
    names = ("n1", "n2")
    allocation = Allocation(partition="p", nodes=tuple(NodeAllocation(node=name, cpus="ff") for name in names))
    job = Job(id=1, spec=JobSpec(), state=JobState.RUNNING, allocation=allocation)
    node = Node(config=NodeConfig(name="n1", capacity=NodeCapacity(cpus=8, cores_per_socket=8)))
    spec = StepSpec(tasks=tasks, distribution=distribution, **size)
    found = lay_out(job, spec, (), lambda name: node, packs=packs)
    assert [len(one.task_ids) for one in found] == expected


@pytest.mark.parametrize("asked", [{"tasks": 10**9}, {"tasks_per_node": 10**9}])
def test_no_more_tasks_are_laid_out_than_nodes_may_have(asked: dict[str, int]) -> None:
    """With --overcommit no number of CPUs bounds them: `srun -O -n 1000000000` took slurmctld's memory."""
    world = World(nodes=2)
    job = world.submit(ALICE, nodes_min=2, nodes_given=True)
    world.start(job, "n1", "n2")
    command = CreateStep(job_id=job, spec=replace(StepSpec(overcommit=True, argv=("true",)), **asked))
    with guard():
        assert world.do(command, ALICE).rejection == Rejection(code="ESLURM_BAD_TASK_COUNT", hint="MaxTasksPerNode")


@pytest.mark.parametrize(
    ("hosts", "asked", "expected"),
    [
        (("n2", "n1", "n1", "n2"), {}, [("n2", (0, 3)), ("n1", (1, 2))]),
        (("n2", "n2", "n2", "n1"), {}, [("n2", (0, 1, 2)), ("n1", (3,))]),
        (("n1",) * 5, {"overcommit": True}, [("n1", (0, 1, 2, 3, 4))]),
        (("n2", "n1", "n1", "n2", "n1"), {}, None),
        (("n2", "n2"), {}, None),
        (("n2", "n1", "n2"), {"cpus_per_task": 2}, None),
    ],
)
def test_tasks_go_to_the_nodes_of_their_list_whatever_cpus_these_have(
    hosts: tuple[str, ...], asked: dict[str, Any], expected: list[tuple[str, tuple[int, ...]]] | None
) -> None:
    """Three CPUs on n1 and one on n2: they bound the tasks together, as in Slurm."""
    nodes = (NodeAllocation(node="n1", cpus="7"), NodeAllocation(node="n2", cpus="1"))
    job = Job(id=1, spec=JobSpec(), state=JobState.RUNNING, allocation=Allocation(partition="p", nodes=nodes))
    node = Node(config=NodeConfig(name="n1", capacity=NodeCapacity(cpus=8, cores_per_socket=8)))
    spec = StepSpec(tasks=len(hosts), distribution="arbitrary", node_list=hosts, **asked)
    if expected is None:
        with pytest.raises(Refused, match="ESLURM_TOO_MANY_REQUESTED_CPUS"):
            lay_out(job, spec, (), lambda name: node)
        return
    found = lay_out(job, spec, (), lambda name: node)
    assert [(one.allocation.node, one.task_ids) for one in found] == expected
