"""A scripted history of a cluster with every kind of event: the same events each time, for golden journals.

Nothing in it depends on the clock, on chance or on the machine. It asserts little: what the events do is tested where
they are decided. A new kind of event gets its scene here; `tests/golden/test_formats.py` says so if it has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.preemption import PreemptionPolicy, PreemptMode
from spritz.model.cluster.priority import PriorityPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands import cluster as on_cluster
from spritz.model.commands import job as on_job
from spritz.model.commands import reservation as on_reservation
from spritz.model.commands.crontab import UpdateCrontab
from spritz.model.commands.step import CreateStep, SignalStep
from spritz.model.ids import STEP_BATCH
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import CronEntry, Dependency, EndSignal
from spritz.model.job.step import StepSpec
from spritz.model.limits import records as limits
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.node_daemon.reports import AdmitNode, NodePrologEnded, PowerProgramStarted, PrologEnded, Usage
from spritz.model.plan import PendingNote, Plan, PlannedPreemption, PlannedStart, PlannedVictim
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation, GresRequest
from spritz.model.triggers import ClearTriggers, FireTriggers, Pull, PullTriggers, SetTrigger
from spritz_testing.builders import ALICE, BOB, ROOT, World, capacity, job_spec, node_share

if TYPE_CHECKING:
    from spritz.model.events import Event

SETTINGS = ClusterSettings(
    cluster_name="golden",
    max_node_count=6,
    gres_types=("gpu",),
    licenses=(("matlab", 4),),
    min_job_age_seconds=100_000,
    kill_wait_seconds=5,
    priority_policy=PriorityPolicy(half_life_seconds=3600.0),
)


def tell() -> list[Event]:
    """The events, in order."""
    names = ("n1", "n2", "n3", "n4")
    world = World(
        hardware=capacity(cpus=8, memory_mib=4000, gpus=2),
        settings=SETTINGS,
        partitions=(Partition(name="debug", nodes=names, nodes_text="ALL", default=True),),
        features=("fast", "ssd"),
    )
    scenes = (
        _jobs,
        _arrays,
        _steps,
        _limits,
        _preemption,
        _turns,
        _prologs,
        _reservations,
        _nodes,
        _power,
        _crontabs,
        _triggers,
    )
    for scene in scenes:
        scene(world)
        world.advance(60)
    _what_is_left(world)
    world.check()
    return world.events


def _configure(world: World, **changes: object) -> None:
    """Settings of the history with these changes, and its nodes and partitions as they are."""
    partitions = (
        *world.partitions,
        Partition(name="high", nodes=world.names, priority_tier=5, oversubscribe="FORCE:2"),
    )
    settings = replace(SETTINGS, **changes)
    world.ok(on_cluster.Configure(settings=settings, nodes=world.nodes, partitions=partitions))


def _end(world: World, *job_ids: int) -> None:
    """The jobs are cancelled and all their nodes have let go of them."""
    world.cancel(*job_ids, caller=ROOT)
    world.advance(5)
    for job_id in job_ids:
        job = world.state.jobs.get(job_id)
        if job is not None and job.completing:
            world.gone(job_id)


def _jobs(world: World) -> None:
    """A batch job's life; one that is held, changed and released; dependencies; requeues; signals; a lost node."""
    first = world.submit(name="first", time_limit_minutes=10, comment="größer")
    after = world.submit(name="after", dependencies=(Dependency(kind="afterok", job_id=first),))
    later = world.submit(name="later", begin_at=world.now + 30, deadline_at=world.now + 5000)
    world.start(first, "n1", "n2", cpus=2)
    world.started(first)
    target = JobTarget(later)
    world.ok(on_job.HoldJob(target=target))
    world.ok(on_job.UpdateJob(target=target, changes={"name": "changed", "nice": 5}))
    world.advance(40)
    world.ok(on_job.ReleaseJob(target=target))
    begins = world.submit(BOB, name="begins", begin_at=world.now + 20)
    world.advance(25)
    world.ok(on_cluster.ApplyPlan(plan=Plan(notes=(PendingNote(job_id=later, reason=Reason.RESOURCES),))))
    world.ok(on_cluster.KeepPriorities(marks=((begins, "debug", 17.0),)))
    world.finished(first, gone=False, usage=Usage(cpu_user_seconds=1.5, rss_peak_mib=20.0))
    world.gone(first)
    assert world.job(after).eligible_at

    warned = world.submit(name="warned", time_limit_minutes=2, end_signal=EndSignal(signal=10, seconds=60))
    world.start(warned)
    world.started(warned)
    world.ok(on_job.SuspendJob(target=JobTarget(warned)))
    world.advance(10)
    world.ok(on_job.ResumeJob(target=JobTarget(warned)))
    world.advance(100)
    world.ok(on_job.RequeueJob(target=JobTarget(warned)))
    world.gone(warned)

    stubborn = world.submit(name="stubborn", requeue=False)
    world.start(stubborn)
    world.started(stubborn)
    world.cancel(stubborn)
    world.advance(200)
    world.gone(stubborn)

    wide = world.submit(name="wide", no_kill=True, nodes_min=2, licenses="matlab:2")
    world.start(wide, "n3", "n4", cpus=1)
    world.started(wide)
    world.lose("n4")
    world.finished(wide, 3 << 8)
    world.register("n4")
    world.do(on_cluster.UpdateNode(names=("n4",), state="RESUME"))
    pair = world.submit_het({"name": "left"}, {"name": "right"})
    leader = pair.reply.job_id  # type: ignore[attr-defined]
    world.start_het(leader, "n1", "n2")
    world.finished(leader)
    world.gone(leader + 1)


def _crontabs(world: World) -> None:
    """A crontab whose job comes twice, and is cancelled then."""
    _configure(world, crontabs=True)
    entry = CronEntry(schedule="* * * * *", line_first=1, line_last=2, utc_offset_seconds=3600)
    job = on_job.SubmitJob(spec=job_spec(name="again", cron=entry), script=b"#!/bin/sh\n")
    world.ok(UpdateCrontab(text="#SCRON -J again\n* * * * * true\n", jobs=(job,)), ALICE)
    number = max(world.state.jobs)
    world.advance(60)
    world.start(number)
    world.finished(number)
    world.cancel(number, caller=ALICE)


def _triggers(world: World) -> None:
    """A trigger that is pulled and fires, one that is cleared, and one that stays."""
    world.ok(SetTrigger(events=("down",), program="/bin/true", offset_seconds=5), ALICE)
    world.ok(SetTrigger(events=("idle", "up"), program="/bin/true now", nodes="n[1-2]", permanent=True), ALICE)
    world.ok(SetTrigger(events=("drained",), program="/bin/true"), BOB)
    first, _, third = sorted(world.state.triggers)
    pull = Pull(first, world.now + 5, "n1")
    world.ok(PullTriggers(pulls=(pull,)))
    world.ok(FireTriggers(pulls=(pull,)))
    world.ok(ClearTriggers(id=third), BOB)


def _arrays(world: World) -> None:
    """Tasks that start, are cancelled before they had a record, and end."""
    array = world.submit(name="array", array="0-5%2", gpus=(GresRequest("gpu", "", 1),))
    running = world.start(array, node_share("n1", "2", gpus="1"))
    world.ok(
        on_job.CancelJobs(filter=JobFilter(targets=(JobTarget(array, tasks="30"),))),
        ALICE,
    )
    world.started(running)
    world.finished(running, 2 << 8)


def _steps(world: World) -> None:
    """Steps over several nodes: one that ends, one that is cancelled; the job stays for the end of the history."""
    job_id = world.submit(name="steps", batch=False, interactive=True, nodes_min=2, tasks=4, tasks_given=True)
    world.start(job_id, "n1", "n2", cpus=4)
    step = world.step(job_id, tasks=2, nodes_min=2, name="hello")
    for name in step.node_names:
        world.started(job_id, name, step.step_id)
    for name in step.node_names:
        world.finished(job_id, 0, name, step.step_id, gone=False, usage=Usage(cpu_system_seconds=0.5))
    second = world.do(CreateStep(job_id=job_id, spec=StepSpec(argv=("sleep", "9"), overlap=True)), ALICE)
    number = second.reply.step.step_id  # type: ignore[attr-defined]
    world.ok(SignalStep(job_id=job_id, step_id=number, signal=9, terminate=True), ALICE)
    third = world.step(job_id, name="runs-on", overlap=True)
    world.started(job_id, third.node_names[0], third.step_id)


def _limits(world: World) -> None:
    """Associations, QOS and what was used of them."""
    _configure(world, enforce=("associations", "limits"))
    root = limits.Association(id=1, cluster="golden", account="root", qos="normal")
    chem = limits.Association(id=2, cluster="golden", account="chem", parent="root", grp_jobs_accrue=1)
    users = tuple(
        limits.Association(id=number, cluster="golden", account="chem", user=user, is_default=True)
        for number, user in ((3, "alice"), (4, "bob"))
    )
    normal, fast = limits.Qos(name="normal", id=1), limits.Qos(name="fast", id=2, priority=5)
    policy = limits.Policy(version=1, associations=(root, chem, *users), qos=(normal,), wckeys=())
    world.ok(limits.SetPolicy(policy=policy))
    change = limits.PolicyChange(base=1, version=2, qos=(fast,), associations=(replace(users[1], max_jobs=7),))
    world.ok(limits.ChangePolicy(change=change))
    one, two = world.submit(name="grows"), world.submit(name="waits")
    world.start(one, "n3", cpus=2)
    world.advance(100)
    world.finished(one)
    world.ok(limits.ResetUsage(keys=(("a", 2),)))
    rows = (limits.UsageRow(key=("a", "chem"), at=world.now, amounts={"cpu": 50.0}),)
    world.ok(limits.AdoptUsage(since=world.now - 10, rows=rows))
    world.ok(on_job.CancelJobs(filter=JobFilter(targets=(JobTarget(two),))), ALICE)


def _preemption(world: World) -> None:
    """A job that makes room within its grace time."""
    world.partitions = (replace(world.partitions[0], grace_seconds=30),)
    _configure(world, preemption=PreemptionPolicy(type="partition_prio", mode=("REQUEUE",)))
    victim = world.submit(name="victim")
    world.start(victim, "n3", cpus=8)
    world.started(victim)
    winner = world.submit(name="winner", partitions=("high",))
    planned = PlannedPreemption(
        job_id=winner,
        allocation=Allocation(partition="high", nodes=(node_share("n3", 8),)),
        victims=(PlannedVictim(victim, PreemptMode.REQUEUE),),
    )
    world.ok(on_cluster.ApplyPlan(plan=Plan(preemptions=(planned,))))
    world.advance(40)
    world.gone(victim)
    _end(world, victim, winner)


def _turns(world: World) -> None:
    """Two jobs that take turns on the same CPUs."""
    _configure(world, preemption=PreemptionPolicy(mode=("SUSPEND", "GANG")))
    shared = node_share("n3", 8)
    jobs = [world.submit(name=name, partitions=("high",), tasks=8) for name in ("tick", "tock")]
    for job_id in jobs:
        world.start(job_id, shared, partition="high")
    world.advance(70)
    _end(world, *jobs)


def _prologs(world: World) -> None:
    """A job that waits for the Prolog of its nodes and of the controller."""
    _configure(world, prolog_flags=("Alloc",), prolog_slurmctld=True)
    job_id = world.submit(name="prologs")
    world.start(job_id, "n3", cpus=1)
    world.ok(PrologEnded(job_id=job_id, restart_count=0))
    world.ok(NodePrologEnded(node="n3", job_id=job_id, restart_count=0))
    world.started(job_id)
    world.finished(job_id)
    _configure(world)


def _reservations(world: World) -> None:
    """One that begins, is changed and deleted, and one that stays."""
    for name, start_at in (("short", world.now + 10), ("long", world.now + 100)):
        request = on_reservation.ReservationRequest(
            name=name, start_at=start_at, duration_seconds=300.0, nodes=("n4",), users=("alice",), flags=("OVERLAP",)
        )
        world.ok(on_reservation.CreateReservation(request=request))
    world.advance(20)
    request = on_reservation.ReservationRequest(name="short", duration_seconds=600.0)
    world.ok(on_reservation.UpdateReservation(request=request))
    world.ok(on_reservation.DeleteReservation(name="short"))


def _nodes(world: World) -> None:
    """Partitions and nodes that come, change, reboot and go."""
    world.ok(on_cluster.CreatePartition(partition=Partition(name="night", nodes=("n3",), max_time_minutes=60)))
    world.ok(on_cluster.UpdatePartition(name="night", changes={"state": "DOWN"}))
    world.ok(on_cluster.CreatePartition(partition=Partition(name="gone", nodes=("n3",))))
    world.ok(on_cluster.DeletePartition(name="gone"))
    world.ok(on_cluster.UpdateNode(names=("n3",), changes={"comment": "golden", "weight": 3}))
    world.ok(on_cluster.UpdateNode(names=("n4",), state="DRAIN", reason="disk"))
    config = NodeConfig(name="d1", capacity=world.hardware, features=("slow",))
    world.ok(AdmitNode(hostname="host", capacity=world.hardware, config=config))
    world.ok(on_cluster.AddNodes(nodes=(replace(config, name="d2", initial_state="FUTURE"),)))
    world.ok(on_cluster.DeleteNodes(names=("d2",)))
    world.register("d1", features_changeable=("a", "b"), features_active=("a",), spool_id="5f")
    _configure(world, power=PowerPolicy(reboots=True, reboots_here=True))
    world.ok(on_cluster.RebootNodes(names=("n4",), asap=True, next_state="RESUME", reason="kernel"))
    world.register("n4", booted_at=world.now + 1)


def _power(world: World) -> None:
    """Nodes that go down when idle, and come up for jobs; one too late."""
    policy = PowerPolicy(resumes=True, suspends=True, suspend_seconds=100, resume_rate=1, kept=((("n3", "n4"), 1),))
    _configure(world, power=policy)
    world.advance(400)
    asleep = [name for name in world.names if world.state.nodes[name].flags][:1]
    wakes = world.submit(name="wakes")
    late = world.submit(name="late")
    for job_id, name in zip((wakes, late), (*asleep, "d1"), strict=True):
        allocation = Allocation(partition="debug", nodes=(node_share(name, 1),))
        world.ok(on_cluster.ApplyPlan(plan=Plan(starts=(PlannedStart(job_id=job_id, allocation=allocation),))))
    node = world.state.nodes[asleep[0]]
    world.ok(PowerProgramStarted(names=tuple(asleep), up=True, began_at=node.resumed_at))
    world.register(asleep[0])
    world.advance(200)
    _end(world, wakes, late)


def _what_is_left(world: World) -> None:
    """What an image must hold besides ended jobs: jobs that run, wait and are held, and an array that waits."""
    _configure(world, min_job_age_seconds=30)
    old = world.submit(name="old")
    _end(world, old)
    world.advance(60)
    _configure(world)
    world.ok(on_cluster.SkipJobIds(below=world.state.next_job_id + 5))
    running = world.submit(name="running", memory_mib_per_node=500)
    world.start(running, "n3", cpus=2)
    world.started(running, step_id=STEP_BATCH)
    world.submit(name="held", hold=True)
    world.submit(BOB, name="tasks", array="1-9:2%3")
    world.submit(name="waits", dependencies=(Dependency(kind="after", job_id=running, minutes=1),))
