"""Over random clusters, partitions, QOS and queues: nothing is given twice, no job is preempted in vain, and no more
than must be.

A job that preempts starts as soon as its victims have left; a brute-force search finds no smaller set of victims.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, partition, spec

from spritz.core.invariants import breaches
from spritz.core.machine import Machine
from spritz.model.cluster.preemption import PreemptionPolicy, PreemptMode
from spritz.model.commands.cluster import ApplyPlan, Tick
from spritz.model.commands.job import CancelJobs
from spritz.model.events.cluster import PolicyChanged
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Sharing
from spritz.model.limits.records import Policy, Qos
from spritz.model.node_daemon.reports import JobGone
from spritz.model.plan import Plan, PlannedPreemption
from spritz.model.resources import mask_of
from spritz.model.rules.preemption import PreemptionSide, may_preempt, preempt_mode
from spritz.model.states import JobState
from spritz.scheduling.placement.place import place
from spritz.scheduling.plan.preemption import preemptor as preemption
from spritz.scheduling.view.projection import Projection
from spritz.scheduling.view.resolve import resolve

SPEED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MODES = ("REQUEUE", "CANCEL", "SUSPEND")
TIERS = {"low": 1, "middle": 5, "high": 10}


@st.composite
def clusters(draw: st.DrawFn) -> Site:
    """One to four nodes in three partitions of rising tiers, each with a mode and a grace time of its own; or three
    QOS of which each may preempt those before it.
    """
    count = draw(st.integers(1, 4))
    devices = draw(st.sampled_from([0, 0, 2]))
    configs = [
        node(f"n{number}", draw(st.sampled_from([2, 4])), gres=[gpus(devices)] if devices else ())
        for number in range(count)
    ]
    partitions = []
    levels: list[Qos] = []
    by_qos = draw(st.booleans())
    for name, tier in TIERS.items():
        mode = draw(st.sampled_from(MODES))
        options: dict[str, Any] = {"preempt_mode": mode}
        if mode == "SUSPEND":
            options["oversubscribe"] = draw(st.sampled_from(["FORCE:1", "FORCE:2"]))
        else:
            options["grace_seconds"] = draw(st.sampled_from([0, 0, 30]))
        levels.append(
            Qos(
                name=name,
                id=len(levels) + 1,
                preempt=",".join(level.name for level in levels),
                preempt_mode=mode.lower(),
                grace_seconds=options.get("grace_seconds", 0),
                priority=tier,
            )
        )
        if by_qos:
            options = {"oversubscribe": "FORCE:1"}
        partitions.append(
            partition(name, configs, priority_tier=1 if by_qos else tier, default=name == "low", **options)
        )
    policy = PreemptionPolicy(
        type="qos" if by_qos else "partition_prio",
        mode=("SUSPEND", "GANG"),
        youngest_first=draw(st.booleans()),
        slice_seconds=10,
        exempt_seconds=draw(st.sampled_from([0, 0, 40])),
    )
    here = Site(configs, partitions, structs.replace(SETTINGS, preemption=policy, requeue_delay_seconds=3600.0))
    if by_qos:
        here.apply(PolicyChanged(at=here.now, policy=Policy(version=1, qos=tuple(levels))))
    return here


def side(here: Site, partition: str, qos: str, priority: int = 0) -> PreemptionSide:
    state = here.machine.state
    level = state.rules.qos.get(qos)
    return PreemptionSide(
        partition=state.partitions[partition], qos=level.record if level is not None else None, priority=priority
    )


jobs = st.fixed_dictionaries(
    {
        "home": st.sampled_from([*TIERS, "high"]),
        "tasks": st.sampled_from([1, 2, 2, 3, 4, 6]),
        "nodes": st.sampled_from([None, None, None, 1, 2]),
        "sharing": st.sampled_from([Sharing.DEFAULT] * 4 + [Sharing.EXCLUSIVE]),
        "gpus_per_node": st.sampled_from([None, None, None, None, 1, 2]),
        "priority": st.integers(1, 3),
        "requeue": st.sampled_from([None, False]),
    }
)


def submit(here: Site, job: dict[str, Any]) -> int:
    fields = {name: value for name, value in job.items() if name not in ("home", "priority") and value is not None}
    if fields.get("nodes"):
        fields["tasks"] = max(fields["tasks"], fields["nodes"])
    request = spec(batch=True, partitions=(job["home"],), qos=job["home"], time_limit_minutes=600, **fields)
    return here.submit(request, priority=job["priority"])


def do(here: Site, command: Any) -> Any:
    outcome = here.machine.handle(command, here.now)
    here.projection.follow(outcome.changes)
    return outcome


def step(here: Site) -> Plan:
    """A cycle: the core accepts all of its plan, and the state is sound afterwards."""
    plan = here.plan()
    outcome = do(here, ApplyPlan(plan=plan))
    assert outcome.reply.messages == (), (outcome.reply, plan)
    sound(here)
    return plan


def sound(here: Site) -> None:
    state = here.machine.state
    assert breaches(state) == []
    for name, use in state.uses.items():
        running: list[tuple[str, int]] = []
        for job_id, share in use.jobs.items():
            job = state.jobs[job_id]
            mask = mask_of(share.cpus)
            if job.state is JobState.RUNNING:
                # Even in time-sliced partitions one job at a time runs on a CPU.
                assert not any(mask & other for _home, other in running), f"{name}: {running} and job {job_id}"
                running.append((job.partition, mask))
    for job in state.jobs.values():
        if job.state.active:
            assert job.allocation is not None
            stopped = {job.id in state.uses[one].suspended for one in job.allocation.names}
            assert stopped == {job.state is JobState.SUSPENDED}, "all of a job runs, or none of it"
    fresh = Projection()
    fresh.reset(state.jobs.values(), state.nodes.values(), state.partitions.values(), state.settings)
    assert [row.key() for row in fresh.table.rows] == [row.key() for row in here.projection.table.rows]
    assert Machine.from_image(here.machine.image()).image() == here.machine.image()


def leave(here: Site) -> None:
    """All that has ended leaves its nodes."""
    for job in list(here.jobs.values()):
        for name in job.completing:
            do(here, JobGone(node=name, job_id=job.id, restart_count=job.completing_life))
    sound(here)


def end(here: Site, job_id: int) -> None:
    do(here, CancelJobs(filter=JobFilter(targets=(JobTarget(job_id),))))


def pass_time(here: Site, seconds: float) -> None:
    until = here.now + seconds
    while (due := here.machine.next_deadline()) is not None and due <= until:
        here.now = max(here.now, due)
        do(here, Tick())
        after = here.machine.next_deadline()
        assert after is None or after > here.now
        sound(here)
    here.now = until


@SPEED
@given(
    here=clusters(),
    fill=st.lists(jobs, min_size=2, max_size=6),
    moves=st.lists(
        st.one_of(
            jobs,
            st.sampled_from(["cycle", "cycle", "leave", "end"]),
            st.sampled_from([1.0, 15.0, 40.0]),
        ),
        min_size=3,
        max_size=25,
    ),
    data=st.data(),
)
def test_nothing_is_given_twice_and_jobs_stop_and_go_on_as_a_whole(
    here: Site, fill: list[dict[str, Any]], moves: list[Any], data: Any
) -> None:
    for job in fill:
        submit(here, job | {"home": "low"})
    step(here)
    for move in moves:
        if isinstance(move, dict):
            submit(here, move)
        elif isinstance(move, float):
            pass_time(here, move)
        elif move == "end":
            if here.machine.state.running:
                end(here, data.draw(st.sampled_from(list(here.machine.state.running))))
                sound(here)
        elif move == "leave":
            leave(here)
        step(here)


@SPEED
@given(
    here=clusters(),
    running=st.lists(jobs, min_size=3, max_size=9),
    waiting=jobs,
    parts=st.sampled_from([preemption.QUICK_PARTS, 4]),
)
def test_a_job_that_preempts_starts_when_its_victims_have_left(
    here: Site, running: list[dict[str, Any]], waiting: dict[str, Any], parts: int
) -> None:
    """`parts`: with more that could be taken back victims are looked for on some nodes first, and then not always the
    fewest are found.
    """
    with mock.patch.object(preemption, "QUICK_PARTS", parts):
        check_victims(here, running, waiting, exact=parts > 4)


def check_victims(here: Site, running: list[dict[str, Any]], waiting: dict[str, Any], *, exact: bool) -> None:
    for job in running:
        submit(here, job | {"home": "low" if job["home"] == "high" else job["home"]})
        step(here)
    for job_id in list(here.machine.state.pending):
        end(here, job_id)
    here.now += 50
    preemptor = submit(here, waiting | {"home": "high"})
    taken: list[int] = []
    for _ in range(8):
        smallest = least(here, preemptor)
        plan = step(here)
        for item in plan.preemptions:
            assert item.job_id == preemptor
            assert right(here, item)
            if exact and smallest is not None:
                assert len(item.victims) <= smallest
            taken += [victim.job_id for victim in item.victims]
        if here.jobs[preemptor].state is JobState.RUNNING:
            return
        pass_time(here, 31)
        leave(here)
    assert not taken, f"{taken} were preempted, and job {preemptor} still waits"


def right(here: Site, item: PlannedPreemption) -> bool:
    """The preemptor may preempt each of them."""
    policy = here.machine.state.settings.preemption
    who = side(here, item.allocation.partition, here.jobs[item.job_id].spec.qos)
    return all(
        may_preempt(policy, who, side(here, here.jobs[victim.job_id].partition, here.jobs[victim.job_id].spec.qos))
        for victim in item.victims
    )


def least(here: Site, preemptor: int) -> int | None:
    """The size of the smallest set of jobs without which the preemptor could start, by trying all sets; None if some
    job is leaving already, or if no set will do.
    """
    state = here.machine.state
    if any(job.completing or job.preempt_action or job.state is JobState.SUSPENDED for job in here.jobs.values()):
        return None
    snapshot = here.projection.snapshot(here.now)
    homes, policy = state.partitions, state.settings.preemption
    who = side(here, "high", "high")
    request = resolve(here.jobs[preemptor].spec, homes["high"], state.settings)
    candidates = [
        here.jobs[job_id]
        for job_id in state.running
        if may_preempt(policy, who, side(here, here.jobs[job_id].partition, here.jobs[job_id].spec.qos))
    ]
    for size in range(len(candidates) + 1):
        for chosen in combinations(candidates, size):
            table = snapshot.table.fork()
            for job in chosen:
                mode = preempt_mode(policy, side(here, job.partition, job.spec.qos))
                assert job.allocation is not None
                for name in job.allocation.names:
                    index = table.index_of[name]
                    holder = table.rows[index].holders[job.id]
                    table.release(index, job.id)
                    if mode is PreemptMode.SUSPEND:
                        table.charge(index, holder.aside())
            if place(table, request, snapshot.eligibility) is not None:
                return size
    return None
