"""Ports of steps. Source: srun(1) --resv-ports; slurm.conf(5) MpiParams."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.step import CreateStep
from spritz.model.job.step import StepSpec
from spritz_testing.builders import ALICE, World


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Six ports."""
    return make_world(settings=ClusterSettings(mpi_ports=(12000, 12005)))


def request(job: int, ports: int | None, tasks: int = 2) -> CreateStep:
    """A step that shares its CPUs."""
    return CreateStep(job_id=job, spec=StepSpec(argv=("true",), tasks=tasks, ports=ports, overlap=True))


def opened(world: World, job: int, ports: int | None, tasks: int = 2) -> tuple[int, ...]:
    """The ports of a new step."""
    reply = world.ok(request(job, ports, tasks), ALICE).reply
    return reply.step.ports  # type: ignore[attr-defined, no-any-return]  # StepCreated


def test_a_step_gets_one_port_a_task_and_one_more_or_as_many_as_it_says(world: World) -> None:
    job = world.submit(nodes_min=2, nodes_given=True)
    world.start(job, "n1", "n2", cpus=4)
    assert opened(world, job, None) == ()
    assert opened(world, job, 0, tasks=4) == (12000, 12001, 12002)
    assert opened(world, job, 1) == (12003,)
    assert world.refused(request(job, 3), ALICE) == "ESLURM_PORTS_BUSY"
    assert world.refused(request(job, 7), ALICE) == "ESLURM_PORTS_INVALID"


def test_steps_on_other_nodes_have_ports_of_their_own(world: World) -> None:
    here, there = world.submit(), world.submit()
    world.start(here, "n1", cpus=2)
    world.start(there, "n2", cpus=2)
    second = world.submit()
    world.start(second, world.free_share("n1", 2))
    assert opened(world, here, 4) == (12000, 12001, 12002, 12003)
    assert opened(world, there, 4) == (12000, 12001, 12002, 12003)
    assert world.refused(request(second, 4), ALICE) == "ESLURM_PORTS_BUSY"
    assert opened(world, second, 2) == (12004, 12005)
    world.finished(here, step_id=0)
    assert opened(world, second, 1) == (12000,)


def test_there_are_none_without_mpi_params(make_world: Callable[..., World]) -> None:
    world = make_world()
    job = world.submit()
    world.start(job, "n1", cpus=2)
    assert world.refused(request(job, 1), ALICE) == "ESLURM_PORTS_INVALID"
