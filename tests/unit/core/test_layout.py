"""Tasks to nodes: block, cyclic, plane, arbitrary; and what SLURM_TASKS_PER_NODE says of a job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.model.job import layout
from spritz.model.job.record import Job, JobSpec
from spritz.model.resources import Allocation
from spritz_testing.builders import node_share

capacities = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(st.integers(1, 40), capacities)
def test_block_fills_node_after_node_and_leaves_none_empty(tasks: int, limits: list[int]) -> None:
    counts = layout.block_counts(tasks, limits)
    if tasks < len(limits) or tasks > sum(limits):
        assert counts is None
        return
    assert counts is not None
    assert sum(counts) == tasks
    assert all(1 <= count <= limit for count, limit in zip(counts, limits, strict=True))
    # Once a node is not full, every later one has a single task.
    first = next((rank for rank, count in enumerate(counts) if count < limits[rank]), len(counts))
    assert all(count == 1 for count in counts[first + 1 :])


@given(st.integers(1, 40), capacities)
def test_spread_is_as_many_as_dealing_one_by_one_gives(tasks: int, limits: list[int]) -> None:
    """As Slurm does without Pack: a cyclic deal says how many each node gets."""
    dealt = layout.dealt_ids(tasks, limits)
    assert layout.spread_counts(tasks, limits) == (None if dealt is None else tuple(map(len, dealt)))


@given(st.integers(1, 40), capacities, st.integers(1, 4))
def test_dealing_gives_every_task_once_and_no_node_too_many(tasks: int, limits: list[int], size: int) -> None:
    ids = layout.dealt_ids(tasks, limits, size)
    if tasks > sum(limits):
        assert ids is None
        return
    assert ids is not None
    assert sorted(task for some in ids for task in some) == list(range(tasks))
    assert all(len(some) <= limit and list(some) == sorted(some) for some, limit in zip(ids, limits, strict=True))


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, [(0, 2, 4), (1, 3, 5)]), (2, [(0, 1, 4, 5), (2, 3)]), (3, [(0, 1, 2), (3, 4, 5)])],
)
def test_plane_deals_blocks_of_tasks(size: int, expected: list[tuple[int, ...]]) -> None:
    """srun(1) --distribution=plane: consecutive blocks of `size` tasks go to consecutive nodes."""
    assert layout.dealt_ids(6, [4, 4], size) == expected


def test_plane_leaves_no_node_without_a_task() -> None:
    """As Slurm 22.05 does: `srun -N2 -n4 -m plane=4`."""
    assert layout.dealt_ids(4, [8, 8], 4) == [(0, 1, 2), (3,)]


def test_cyclic_passes_over_nodes_that_are_full() -> None:
    assert layout.dealt_ids(6, [1, 4, 1]) == [(0,), (1, 3, 4, 5), (2,)]


def test_overcommit_spreads_evenly() -> None:
    assert layout.block_counts(7, [layout.UNLIMITED] * 3) == (3, 2, 2)


def test_arbitrary_follows_the_list() -> None:
    assert layout.arbitrary_ids(["b", "a", "b"]) == (["b", "a"], [(0, 2), (1,)])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (4, 2)),
        ({"cpus_per_task": 2}, (2, 1)),
        ({"tasks": 5, "tasks_given": True}, (3, 2)),
        ({"tasks": 2, "tasks_given": True}, (1, 1)),
        ({"tasks_per_node": 2}, (2, 2)),
        ({"tasks": 3, "tasks_given": True, "tasks_per_node": 2}, (2, 1)),
        ({"tasks": 20, "tasks_given": True, "overcommit": True}, (10, 10)),
        ({"tasks": 4, "tasks_given": True}, (2, 2)),
        ({"tasks": 4, "tasks_given": True, "distribution": "block,pack"}, (3, 1)),
        ({"tasks": 5, "tasks_given": True, "distribution": "plane=3"}, (3, 2)),
    ],
)
def test_tasks_per_node_of_a_job(fields: dict[str, object], expected: tuple[int, ...]) -> None:
    allocation = Allocation(partition="debug", nodes=(node_share("n1", 4), node_share("n2", 2)))
    job = Job(id=1, spec=JobSpec(**fields), allocation=allocation)  # type: ignore[arg-type]  # parameters of one case
    assert layout.job_task_counts(job) == expected


def test_the_schedulers_layout_is_taken_as_it_is() -> None:
    allocation = Allocation(partition="debug", nodes=(node_share("n1", 4), node_share("n2", 2)), tasks=(1, 2))
    assert layout.job_task_counts(Job(id=1, spec=JobSpec(), allocation=allocation)) == (1, 2)
    assert layout.job_task_counts(Job(id=1, spec=JobSpec())) == ()


def test_a_job_with_whole_nodes_and_no_number_of_tasks_has_a_task_for_every_cpu() -> None:
    """As SLURM_TASKS_PER_NODE of `sbatch -N2 --exclusive` says, whatever the scheduler placed it by."""
    nodes = (node_share("n1", 4), node_share("n2", 2))
    allocation = Allocation(partition="debug", nodes=nodes, tasks=(1, 1), whole_nodes=True)
    assert layout.job_task_counts(Job(id=1, spec=JobSpec(), allocation=allocation)) == (4, 2)
    asked = JobSpec(tasks=2, tasks_given=True)
    assert layout.job_task_counts(Job(id=1, spec=asked, allocation=allocation)) == (1, 1)
