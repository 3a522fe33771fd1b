"""The origin of a federated job while another cluster starts or runs it."""

from __future__ import annotations

import pytest

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.job import JobSubmitted, SubmitJob
from spritz.model.federation import AskLock, ReportSibling, ReturnLock, SiblingAnswer, SiblingPlaced
from spritz.model.limits.records import FederationMember, Policy, SetPolicy
from spritz.model.states import JobState
from spritz_testing.builders import ALICE, World, expect, job_spec

ANSWER_SECONDS = 30


@pytest.fixture
def world() -> World:
    """Cluster `here`, with `there` in its federation."""
    world = World(settings=ClusterSettings(cluster_name="here"))
    members = tuple(
        FederationMember(cluster=name, federation="both", number=number, state="ACTIVE")
        for number, name in enumerate(("here", "there"), 1)
    )
    world.ok(SetPolicy(policy=Policy(version=1, federation=members)))
    return world


def waiting(world: World) -> int:
    """An allocation of salloc's with `--immediate=30`, which the other cluster has a copy of."""
    spec = job_spec(batch=False, interactive=True)
    submitted = world.ok(SubmitJob(spec=spec, immediate_seconds=ANSWER_SECONDS), ALICE).reply
    job_id = expect(submitted, JobSubmitted).job_id
    world.ok(SiblingPlaced(job_id=job_id, cluster="there", copy=1))
    return job_id


def test_an_allocation_has_copies_as_a_batch_job_has(world: World) -> None:
    tie = world.state.jobs[waiting(world)].federation
    assert tie is not None
    assert tie.active == "here,there"


def test_a_job_is_not_given_up_while_another_cluster_is_starting_it(world: World) -> None:
    job_id = waiting(world)
    asked = AskLock(job_id=job_id, cluster="there", copy=1, restart_count=0, asked=1)
    assert expect(world.ok(asked).reply, SiblingAnswer).granted
    world.advance(2 * ANSWER_SECONDS)
    assert world.state.jobs[job_id].state is JobState.PENDING
    world.ok(ReturnLock(job_id=job_id, cluster="there", copy=1, asked=1))
    world.advance(1)
    assert world.state.jobs[job_id].state is JobState.CANCELLED


def test_a_job_that_runs_elsewhere_stays_until_it_has_ended_there(world: World) -> None:
    job_id = waiting(world)
    world.ok(AskLock(job_id=job_id, cluster="there", copy=1, restart_count=0, asked=1))
    told = {"job_id": job_id, "cluster": "there", "copy": 1, "restart_count": 0}
    world.ok(ReportSibling(**told, phase="started:0", state=JobState.RUNNING))  # type: ignore[arg-type]  # by name
    world.advance(2 * ANSWER_SECONDS)
    job = world.state.jobs[job_id]
    assert job.state is JobState.PENDING
    assert job.federation is not None
    assert job.federation.runs_on == "there"
    world.ok(ReportSibling(**told, phase="ended", state=JobState.COMPLETED))  # type: ignore[arg-type]  # by name
    assert world.state.jobs[job_id].state is JobState.REVOKED
