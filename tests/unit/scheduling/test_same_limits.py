"""The core and the scheduler give the same answer about time limits and limits of partitions: what the one plans, the
other starts as planned.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.commands.cluster import ApplyPlan, UpdatePartition
from spritz.model.commands.job import Done, SubmitJob, UpdateJob
from spritz.model.commands.reservation import CreateReservation, ReservationRequest
from spritz.model.events.cluster import PolicyChanged
from spritz.model.ids import INFINITE
from spritz.model.job.job_filter import JobTarget
from spritz.model.limits.records import Association, Policy, Qos
from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec

DAY = 86_400.0
NODES = [node(f"n{number}", 4) for number in range(1, 4)]


def limits(site: Site, job_id: int) -> tuple[int | None, int]:
    """What the record says, and what the scheduler plans with."""
    site.projection.settle(site.now)
    requests = [shape.request for _key, shape in site.projection.records[job_id].entries]
    return site.jobs[job_id].time_limit_minutes, requests[0].time_limit_minutes


def update(site: Site, name: str, **changes: object) -> None:
    site.send(UpdatePartition(name=name, changes=changes))


def test_a_default_above_maxtime_is_the_same_everywhere_and_waits() -> None:
    """Source: Slurm 22.05, `scontrol update partition=p MaxTime=60` under DefaultTime=120."""
    home = partition("p", NODES, default=True, default_time_minutes=120, max_time_minutes=240)
    site = Site(NODES, [home])
    update(site, "p", max_time_minutes=60)
    job = site.ask(spec(1, time_limit_minutes=None))
    assert limits(site, job) == (120, 120)
    assert site.cycle() == {}
    assert site.jobs[job].reason.value == "PartitionTimeLimit"
    update(site, "p", max_time_minutes=240)
    assert job in site.cycle()
    assert site.jobs[job].time_limit_minutes == 120


@pytest.mark.parametrize("enforced", ["ALL", "ANY"])
def test_a_default_above_maxtime_is_refused_where_partition_limits_are_enforced(enforced: str) -> None:
    home = partition("p", NODES, default=True, default_time_minutes=120, max_time_minutes=60)
    site = Site(NODES, [home], replace(SETTINGS, enforce_part_limits=enforced))
    with pytest.raises(AssertionError, match="ESLURM_INVALID_TIME_LIMIT"):
        site.ask(spec(1, time_limit_minutes=None))


def test_the_default_of_its_first_partition_is_the_jobs_own_from_then_on() -> None:
    """Source: Slurm 22.05; a job whose first partition has none gets the limit of the one in which it starts."""
    first = partition("p", NODES, default=True, default_time_minutes=120, max_time_minutes=240)
    site = Site(NODES, [first, partition("q", NODES, max_time_minutes=200)])
    kept = site.ask(spec(1, time_limit_minutes=None, partitions=("p", "q")))
    open_ended = site.ask(spec(1, time_limit_minutes=None, partitions=("q", "p")))
    update(site, "p", default_time_minutes=30, state="DOWN")
    assert kept in site.cycle()
    assert (site.jobs[kept].partition, site.jobs[kept].time_limit_minutes) == ("q", 120)
    assert site.jobs[open_ended].time_limit_minutes == 200
    update(site, "p", state="UP")
    update(site, "q", state="DOWN")
    later = site.ask(spec(1, time_limit_minutes=None, partitions=("q", "p")))
    assert later in site.cycle()
    assert (site.jobs[later].partition, site.jobs[later].time_limit_minutes) == ("p", 30)


def test_a_job_with_a_least_time_runs_no_longer_than_maxtime() -> None:
    site = Site(NODES, [partition("p", NODES, default=True, max_time_minutes=60)])
    job = site.ask(spec(1, time_limit_minutes=120, time_min_minutes=10))
    assert limits(site, job)[1] == 60
    assert job in site.cycle()
    assert site.jobs[job].time_limit_minutes == 60


@pytest.mark.parametrize(("minutes", "starts"), [(0, True), (401 * 24 * 60, False), (399 * 24 * 60, True)])
def test_a_job_without_a_limit_takes_a_year_for_reservations(minutes: int, starts: bool) -> None:
    """Source: Slurm 22.05, where such a job starts before a reservation in 400 days and waits for one in 300."""
    site = Site(NODES[:1])
    request = ReservationRequest(
        name="later", start_at=site.now + 400 * DAY, duration_seconds=3600.0, nodes=("n1",), users=("bob",)
    )
    assert site.send(CreateReservation(request=request)).rejection is None
    job = site.ask(spec(1, time_limit_minutes=minutes))
    assert (job in site.cycle()) is starts


def test_limits_of_accounting_look_at_the_time_that_the_start_gives() -> None:
    """The record of a job of several partitions has the limit of the first; it may start in another with less."""
    homes = [
        partition("long", NODES, default=True, max_time_minutes=INFINITE),
        partition("short", NODES, default_time_minutes=30),
    ]
    site = Site(NODES, homes, replace(SETTINGS, enforce=("associations", "limits")))
    root = Association(id=1, cluster="c", account="lab", qos="normal")
    user = Association(id=2, cluster="c", account="lab", user="alice", is_default=True)
    policy = Policy(version=1, associations=(root, user), qos=(Qos(name="normal"),))
    site.apply(PolicyChanged(at=site.now, policy=policy))
    job = site.ask(spec(1, time_limit_minutes=None, partitions=("long", "short"), user="alice", uid=1001))
    bounded = replace(policy, version=2, qos=(Qos(name="normal", max_wall=60),))
    site.apply(PolicyChanged(at=site.now, policy=bounded))
    assert job in site.cycle()
    assert (site.jobs[job].partition, site.jobs[job].time_limit_minutes) == ("short", 30)


@pytest.mark.parametrize(
    ("home", "asked", "reason"),
    [
        ({"max_memory_mib_per_node": 50}, {"memory_mib_per_node": 100}, "MaxMemPerLimit"),
        ({"max_memory_mib_per_node": 50}, {"memory_mib_per_node": 50}, ""),
        ({"max_memory_mib_per_cpu": 50, "max_memory_mib_per_node": 0}, {"memory_mib_per_node": 100}, ""),
        ({"min_nodes": 2}, {"nodes": (1, 3), "tasks": 1}, "PartitionNodeLimit"),
        ({"min_nodes": 2}, {"nodes": (1, 3)}, ""),
        ({"min_nodes": 2}, {"tasks": 1}, ""),
        ({"max_nodes": 2}, {"nodes": (1, 3)}, "PartitionNodeLimit"),
        ({"max_nodes": 2}, {"nodes": (1, 3), "tasks": 2}, ""),
        ({"max_nodes": 2}, {"node_list": ("n1", "n2", "n3")}, "PartitionNodeLimit"),
        ({"max_nodes": 1}, {"nodes": 2}, "PartitionNodeLimit"),
        ({"max_time_minutes": 5}, {}, "PartitionTimeLimit"),
    ],
)
def test_what_a_partition_does_not_allow_waits_for_that_or_is_refused(
    home: dict[str, int], asked: dict[str, Any], reason: str
) -> None:
    """Source: Slurm 22.05 with EnforcePartLimits=NO and =ALL."""
    homes = [partition("p", NODES, default=True, **home)]
    site = Site(NODES, homes)
    job = site.ask(spec(**asked))
    assert site.jobs[job].reason.value == (reason or "None"), "by the core"
    assert (job in site.cycle()) is not bool(reason)
    assert site.jobs[job].reason.value == (reason or "None"), "by the scheduler"
    strict = Site(NODES, homes, replace(SETTINGS, enforce_part_limits="ALL"))
    assert (strict.send(SubmitJob(spec=spec(**asked))).rejection is None) is not bool(reason)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_time_minutes": 5}, "limit PartitionTimeLimit"),
        ({"max_nodes": 1}, "limit PartitionNodeLimit"),
        ({"max_memory_mib_per_node": 1}, "limit MaxMemPerLimit"),
    ],
)
def test_a_plan_from_before_a_limit_was_set_does_not_break_it(changes: dict[str, int], words: str) -> None:
    site = Site(NODES)
    job = site.ask(spec(nodes=2, memory_mib_per_node=10))
    plan = site.plan()
    assert [start.job_id for start in plan.starts] == [job]
    update(site, "debug", **changes)
    reply = site.send(ApplyPlan(plan=plan)).reply
    assert isinstance(reply, Done)
    assert reply.messages == (f"job {job}: {words}",)


def test_maxtime_does_not_bound_a_limit_that_an_operator_sets() -> None:
    """Source: Slurm 22.05, `scontrol update jobid=… TimeLimit=` by root."""
    site = Site(NODES, [partition("p", NODES, default=True, max_time_minutes=60)])
    job = site.ask(spec(1, time_limit_minutes=100))
    assert site.cycle() == {}
    site.send(UpdateJob(target=JobTarget(job_id=job), changes={"time_limit_minutes": 90}))
    assert job in site.cycle()
    assert site.jobs[job].time_limit_minutes == 90
