"""scontrol top: nice values of one line of jobs change, and their sum does not. Source: scontrol(1) top."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.job import HoldJob, TopJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.node.partition import Partition
from spritz.model.rejection import Rejection
from spritz_testing.builders import ALICE, BOB, World

MakeWorld = Callable[..., World]
MULTIFACTOR = ClusterSettings(priority_multifactor=True, scheduler_parameters=(("enable_user_top", ""),))
BASIC = ClusterSettings(scheduler_parameters=(("enable_user_top", ""),))


def top(world: World, *jobs: int, priorities: dict[int, int], **options: Any) -> Rejection | None:
    command = TopJob(targets=tuple(JobTarget(job) for job in jobs), priorities=tuple(priorities.items()))
    reply = world.do(command, **options).reply
    return reply if isinstance(reply, Rejection) else None


def nices(world: World, jobs: list[int]) -> list[int]:
    return [world.job(job).spec.nice for job in jobs]


def test_a_job_gets_the_highest_priority_and_the_others_pay(make_world: MakeWorld) -> None:
    """The figures of a real Slurm 22.05, but for the job that it brings down to priority 0."""
    world = make_world(settings=MULTIFACTOR)
    jobs = [world.submit(nice=nice) for nice in (0, 500, 700, 900)]
    assert top(world, jobs[3], priorities=dict(zip(jobs, (1000, 500, 300, 100), strict=True))) is None
    assert nices(world, jobs) == [300, 800, 1000, 0]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("cluster", [MULTIFACTOR, BASIC])
def test_the_chosen_come_first_in_their_order_and_the_sum_stays(
    make_world: MakeWorld, cluster: ClusterSettings, data: st.DataObject
) -> None:
    world = make_world(settings=cluster)
    count = data.draw(st.integers(1, 6))
    priorities = st.integers(1, 2000) | st.integers(1, 100_000_000)
    before = {world.submit(nice=0): data.draw(priorities) for _ in range(count)}
    jobs = list(before)
    if not cluster.priority_multifactor:
        before = {job: world.job(job).priority for job in jobs}
    chosen = data.draw(st.lists(st.sampled_from(jobs), unique=True, min_size=1))
    assert top(world, *chosen, priorities=before) is None
    assert sum(nices(world, jobs)) == 0
    if cluster.priority_multifactor:
        now = {job: before[job] - world.job(job).spec.nice for job in jobs}
    else:
        now = {job: world.job(job).priority for job in jobs}
        assert now == {job: before[job] - world.job(job).spec.nice for job in jobs}
    ranked = sorted(jobs, key=lambda job: -now[job])
    assert ranked[: len(chosen)] == chosen
    assert len({now[job] for job in chosen} | {max((now[job] for job in jobs if job not in chosen), default=-1)}) == (
        len(chosen) + 1
    ), "no tie with what follows"
    rest = [job for job in jobs if job not in chosen]
    drop = [before[job] - now[job] for job in rest]
    assert not drop or max(drop) - min(drop) <= 1, "all others pay alike"


def test_jobs_of_other_lines_stay_as_they_are(make_world: MakeWorld) -> None:
    world = make_world(settings=MULTIFACTOR)
    mine = [world.submit(), world.submit()]
    others = [world.submit(account="x"), world.submit(qos="x"), world.submit(BOB)]
    held = world.submit()
    world.do(HoldJob(target=JobTarget(held)))
    top(world, mine[1], priorities=dict.fromkeys([*mine, *others], 5))
    assert nices(world, [*mine, *others, held]) == [1, -1, 0, 0, 0, 0]


@pytest.mark.parametrize("case", ["held", "partitions", "running", "not allowed", "not his"])
def test_what_is_refused(make_world: MakeWorld, case: str) -> None:
    world = make_world(
        settings=ClusterSettings() if case == "not allowed" else BASIC,
        partitions=tuple(Partition(name=name, nodes=("n1",), default=name == "debug") for name in ("debug", "other")),
    )
    job = world.submit(partitions=("debug", "other") if case == "partitions" else ("debug",))
    options: dict[str, Any] = {}
    if case == "held":
        world.do(HoldJob(target=JobTarget(job)))
    elif case == "running":
        world.start(job)
    elif case == "not allowed":
        options["caller"] = ALICE
    elif case == "not his":
        options["caller"] = BOB
    refused = top(world, job, priorities={job: 5}, **options)
    assert refused is not None
    assert refused.code == {
        "held": "ESLURM_JOB_HELD",
        "partitions": "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE",
        "running": "ESLURM_JOB_NOT_PENDING",
    }.get(case, "ESLURM_ACCESS_DENIED")
    assert world.job(job).spec.nice == 0
