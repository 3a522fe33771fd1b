"""OverSubscribe in all its values: who may be on a CPU together. Source: slurm.conf(5) OverSubscribe."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.commands.cluster import ApplyPlan, Tick
from spritz.model.commands.job import CancelJobs, ResumeJob, SuspendJob
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Sharing
from spritz.model.node_daemon.reports import JobGone
from spritz.model.plan import Plan, PlannedStart
from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.states import JobState
from spritz.scheduling.view import capacity
from spritz.scheduling.view.nodes import NodeRow
from spritz.scheduling.view.request import Request
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, partition, spec


def site(oversubscribe: str, gang: bool = False, nodes: int = 1) -> Site:
    """One node of four CPUs in partition p; another partition q on the same."""
    configs = [node(f"n{number}", 4) for number in range(1, nodes + 1)]
    policy = PreemptionPolicy(mode=("GANG",) if gang else (), slice_seconds=30)
    homes = [
        partition("p", configs, default=True, oversubscribe=oversubscribe),
        partition("q", configs, oversubscribe=oversubscribe),
    ]
    return Site(configs, homes, structs.replace(SETTINGS, preemption=policy))


def do(here: Site, command: Any) -> Any:
    outcome = here.machine.handle(command, here.now)
    here.projection.follow(outcome.changes)
    return outcome.reply


def states(here: Site) -> list[str]:
    do(here, ApplyPlan(plan=here.plan()))
    return [job.state.value for job in here.jobs.values()]


ALONE, SHARED, WHOLE = Sharing.DEFAULT, Sharing.OVERSUBSCRIBE, Sharing.EXCLUSIVE


@pytest.mark.parametrize(
    ("oversubscribe", "asks", "running"),
    [
        ("NO", [ALONE, ALONE], 1),
        ("NO", [SHARED, SHARED], 1),
        ("YES:2", [SHARED, SHARED, SHARED], 2),
        ("YES", [SHARED] * 5, 4),
        ("YES:2", [ALONE, SHARED], 1),
        ("YES:2", [SHARED, ALONE], 1),
        ("FORCE:1", [ALONE, ALONE], 1),
        ("FORCE:2", [ALONE, ALONE, ALONE], 2),
        ("FORCE:3", [ALONE, SHARED, WHOLE, ALONE], 3),
        ("FORCE", [ALONE] * 5, 4),
    ],
)
def test_the_number_of_jobs_that_share_all_cpus_is_bounded(
    oversubscribe: str, asks: list[Sharing], running: int
) -> None:
    here = site(oversubscribe)
    for sharing in asks:
        here.submit(spec(tasks=4, sharing=sharing))
    assert states(here).count("RUNNING") == running


def test_a_cpu_is_shared_by_more_jobs_only_where_all_are_shared_by_as_many() -> None:
    """As a real Slurm 22.05 places them: rows are filled one after the other."""
    here = site("FORCE:3", nodes=2)
    places = []
    for _ in range(6):
        number = here.submit(spec(tasks=4))
        states(here)
        allocation = here.jobs[number].allocation
        assert allocation is not None
        places.append(allocation.names)
    assert [sorted(places[turn : turn + 2]) for turn in (0, 2, 4)] == [[("n1",), ("n2",)]] * 3


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the nodes of which it was found out how many CPUs may be shared, time after time."""
    seen: list[str] = []
    share_row = capacity._share_row

    def noting(row: NodeRow, request: Request, wanted: int) -> int:
        seen.append(row.name)
        return share_row(row, request, wanted)

    monkeypatch.setattr(capacity, "_share_row", noting)
    return seen


@pytest.mark.parametrize("most", [4, 12])
def test_a_job_that_shares_cpus_tests_only_changed_nodes(most: int, looks: list[str]) -> None:
    """However many nodes there are, and however many jobs may be on them."""
    nodes, ways = 40, most.bit_length() + 1
    here = site(f"FORCE:{most}", nodes=nodes)
    for _ in range(3):
        for _job in range(nodes):
            here.submit(spec(tasks=4))
        assert len(here.cycle()) == nodes
    assert len(looks) <= 6 * ways * nodes, "a bounded number for each start, not one for each node at each start"


def test_what_may_be_shared_is_remembered_from_cycle_to_cycle(looks: list[str]) -> None:
    here = site("FORCE:4", nodes=40)
    for _ in range(80):
        here.submit(spec(tasks=4))
    here.cycle()
    here.submit(spec(tasks=4))
    here.cycle()
    looks.clear()
    here.submit(spec(tasks=4))
    here.cycle()
    assert 0 < len(looks) < 20


def test_jobs_of_exclusive_partitions_get_whole_nodes() -> None:
    here = site("EXCLUSIVE", nodes=2)
    for _ in range(3):
        here.submit(spec(tasks=1))
    assert states(here).count("RUNNING") == 2
    assert all(job.allocation.cpu_count == 4 for job in here.jobs.values() if job.allocation is not None)


def test_partitions_share_nothing_with_one_another() -> None:
    here = site("FORCE:4")
    here.submit(spec(tasks=4))
    here.submit(spec(tasks=1, partitions=("q",)))
    assert states(here) == ["RUNNING", "PENDING"]


def test_memory_is_never_shared() -> None:
    here = site("FORCE:4")
    for _ in range(3):
        here.submit(spec(tasks=1, memory_mib_per_node=400))
    assert states(here).count("RUNNING") == 2


@pytest.mark.parametrize(("oversubscribe", "fits"), [("FORCE:1", False), ("FORCE:2", True), ("YES:2", False)])
def test_the_core_refuses_a_stale_start_on_cpus_that_are_not_shared(oversubscribe: str, fits: bool) -> None:
    here = site(oversubscribe)
    starts = []
    for _ in range(2):
        job_id = here.submit(spec(tasks=4))
        allocation = Allocation(partition="p", nodes=(NodeAllocation(node="n1", cpus="f", memory_mib=1),))
        starts.append(PlannedStart(job_id=job_id, allocation=allocation))
    reply = do(here, ApplyPlan(plan=Plan(starts=tuple(starts))))
    assert bool(reply.messages) is not fits


def test_with_gang_scheduling_they_take_turns_in_the_order_of_their_waiting() -> None:
    here = site("FORCE:3", gang=True)
    for _ in range(3):
        here.submit(spec(tasks=4))
    assert states(here) == ["RUNNING", "SUSPENDED", "SUSPENDED"]
    seen = []
    for _ in range(4):
        here.now += 30
        do(here, Tick())
        running = [job.id for job in here.jobs.values() if job.state.value == "RUNNING"]
        seen.append(running)
    assert seen == [[2], [3], [1], [2]]
    job = here.jobs[2]
    assert (job.suspended_seconds, job.ends_at) == (30 + 60, job.started_at + 600 + 90)


def test_a_job_that_an_administrator_suspends_between_slices_waits_until_it_is_resumed() -> None:
    here = site("FORCE:2", gang=True)
    for _ in range(2):
        here.submit(spec(tasks=4))
    assert states(here) == ["RUNNING", "SUSPENDED"]
    here.now += 10
    do(here, SuspendJob(target=JobTarget(2)))
    here.now += 30
    do(here, Tick())
    assert states(here) == ["RUNNING", "SUSPENDED"], "it had its turn"
    do(here, ResumeJob(target=JobTarget(2)))
    here.submit(spec(tasks=4))
    assert states(here) == ["RUNNING", "SUSPENDED", "PENDING"], "it stands in line again, on CPUs of its own"
    here.now += 30
    do(here, Tick())
    assert states(here) == ["SUSPENDED", "RUNNING", "PENDING"]
    assert here.jobs[2].suspended_seconds == 70


def test_a_job_whose_place_was_taken_is_not_resumed_above_the_share_limit() -> None:
    here = site("FORCE:2", gang=True)
    here.submit(spec(tasks=4))
    states(here)
    do(here, SuspendJob(target=JobTarget(1)))
    for _ in range(2):
        here.submit(spec(tasks=4))
    assert states(here) == ["SUSPENDED", "RUNNING", "SUSPENDED"]
    assert do(here, ResumeJob(target=JobTarget(1))).code == "ESLURM_NODES_BUSY"
    here.end(2)
    do(here, ResumeJob(target=JobTarget(1)))
    assert states(here) == ["RUNNING", "COMPLETED", "SUSPENDED"]


def test_a_job_that_fits_next_to_the_others_runs_in_every_slice() -> None:
    here = site("FORCE:2", gang=True)
    sizes = [3, 1, 3]
    for tasks in sizes:
        here.submit(spec(tasks=tasks))
    assert states(here) == ["RUNNING", "RUNNING", "SUSPENDED"]
    here.now += 30
    do(here, Tick())
    assert [job.state.value for job in here.jobs.values()] == ["SUSPENDED", "RUNNING", "RUNNING"]


def test_the_next_job_resumes_at_once_when_the_other_ends() -> None:
    here = site("FORCE:2", gang=True)
    for _ in range(2):
        here.submit(spec(tasks=4))
    states(here)
    do(here, CancelJobs(filter=JobFilter(targets=(JobTarget(1),))))
    do(here, JobGone(node="n1", job_id=1, restart_count=0))
    assert here.jobs[2].state.value == "RUNNING"
    here.now += 30
    do(here, Tick())
    assert here.machine.next_deadline() != here.now + 30, "no further slices while no job waits for one"


def _three_shared_nodes() -> Site:
    """Three nodes of two cores with two threads, each CPU for two jobs."""
    lines = (gpus(1, "a"), gpus(3, "b", 1))
    nodes = [node(f"n{number}", 4, sockets=2, threads=2, gres=lines) for number in range(3)]
    return Site(nodes, [partition("p", nodes, default=True, oversubscribe="FORCE:2")])


def _submit_crowd(site: Site, long: int, short: int, last: int) -> int:
    """Jobs that fill most of the nodes, and others that wait; the id of the first of these. Times are in minutes."""
    site.submit(spec(gpus=3, spread=True, time_limit_minutes=short))
    site.submit(spec(nodes=(1, 2), time_limit_minutes=long))
    site.submit(spec(gpus=2, cpus_per_gpu=2, time_limit_minutes=short))
    site.submit(spec(2, cpus_per_task=2, time_limit_minutes=1))
    waits = site.submit(spec(nodes=2, time_limit_minutes=20))
    brief = spec(time_limit_minutes=1)
    site.submit_het(spec(nodes=3, time_limit_minutes=1), brief)
    for _ in range(3):
        site.submit_het(*[brief] * last)
    site.submit(brief)
    return waits


def _end_those_over(site: Site) -> None:
    for job in list(site.jobs.values()):
        if job.state is JobState.RUNNING and job.ends_at <= site.now:
            site.end(job.id)


def test_a_planned_start_is_kept_when_later_ones_share_its_cpus() -> None:
    """What was promised later lies in other share rows; together over time it would seem to leave no row free."""
    site = _three_shared_nodes()
    waits = _submit_crowd(site, long=60, short=20, last=2)
    site.cycle()
    (start_at,) = {
        promise.start_at
        for request, promises in site.projection.ledger.by_request.items()
        for promise in promises
        if site.projection.queue.shapes[request].jobs[site.projection.queue.shapes[request].keys[0]].id == waits
    }
    site.now = (site.now + start_at) / 2
    site.end(3)
    site.cycle(100)
    site.now = start_at
    _end_those_over(site)
    site.cycle()
    assert site.jobs[waits].state is JobState.RUNNING


def test_promises_on_shared_cpus_do_not_hide_jobs_that_run_there() -> None:
    """More jobs hold a CPU at one time or another than may at once: those that hold it now count first."""
    site = _three_shared_nodes()
    _submit_crowd(site, long=20, short=5, last=2)
    site.cycle()
    site.now += 60
    _end_those_over(site)
    # `Site` sees to it that the core accepts every start.
    site.cycle()
