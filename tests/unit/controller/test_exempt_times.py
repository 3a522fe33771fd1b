"""PreemptEligibleTime of `scontrol show job`: PreemptExemptTime of the job's QOS counts, else the cluster's."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.controller.api.queue.jobs import exempt_times
from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.job.record import Job
from spritz.model.limits.records import Association, Policy, Qos, SetPolicy
from spritz.model.node.partition import Partition
from spritz.model.queries.job_records import Jobs
from spritz.presentation.job.job_text import preemptable_at
from spritz_testing.builders import World


def test_each_job_is_exempt_for_as_long_as_its_qos_says() -> None:
    world = World(
        settings=ClusterSettings(preemption=PreemptionPolicy(type="qos", mode=("CANCEL",), exempt_seconds=60))
    )
    qos = (Qos(name="normal", id=1), Qos(name="long", id=2, preempt_exempt_seconds=3600))
    root = Association(id=1, cluster="cluster", account="root", qos="normal,long")
    world.ok(SetPolicy(policy=Policy(version=1, associations=(root,), qos=qos)))
    jobs = [world.job(world.submit(qos=name)) for name in ("normal", "long", "long")]
    exempt, by_qos = exempt_times(world.state, jobs)
    assert (exempt, by_qos) == (60, (("debug", "long", 3600),))
    reply = Jobs(now=0.0, version=0, jobs=jobs, exempt_seconds=exempt, exempt_by_qos=by_qos)
    assert [reply.exempt_of(job) for job in jobs] == [60, 3600, 3600]


def world_of(mode: tuple[str, ...], *qos: Qos, partition: str = "") -> World:
    policy = PreemptionPolicy(type="qos" if qos else "partition_prio", mode=mode, exempt_seconds=60)
    debug = Partition(name="debug", nodes=("n1",), default=True, preempt_mode=partition)
    world = World(1, settings=ClusterSettings(preemption=policy), partitions=(debug,))
    if not qos:
        return world
    names = ",".join(record.name for record in qos)
    root = Association(id=1, cluster="cluster", account="root", qos=names)
    world.ok(SetPolicy(policy=Policy(version=1, associations=(root,), qos=qos)))
    return world


def shown(world: World, job: Job) -> float:
    """The time that commands show, by the reply of the controller."""
    exempt, by_qos = exempt_times(world.state, [job])
    reply = Jobs(now=0.0, version=0, jobs=[job], exempt_seconds=exempt, exempt_by_qos=by_qos)
    return preemptable_at(job, job.started_at, reply.exempt_of(job))


def test_time_in_which_a_job_was_suspended_does_not_count() -> None:
    world = world_of(("REQUEUE",))
    job_id = world.submit()
    world.start(job_id, "n1")
    job = replace(world.job(job_id), suspended_seconds=40.0)
    assert shown(world, job) == job.started_at + 100.0


def test_only_requeue_and_cancel_honour_the_exempt_time() -> None:
    """Source: slurm.conf(5) PreemptExemptTime."""
    world = world_of(("SUSPEND", "GANG"))
    job_id = world.submit()
    world.start(job_id, "n1")
    assert shown(world, world.job(job_id)) == world.job(job_id).started_at


def test_a_job_that_its_partition_protects_has_no_such_time() -> None:
    world = world_of(("REQUEUE",), partition="OFF")
    job_id = world.submit()
    world.start(job_id, "n1")
    assert shown(world, world.job(job_id)) == 0.0


def test_a_job_of_a_qos_with_a_mode_of_its_own_has_its_time() -> None:
    world = world_of(
        ("OFF",), Qos(name="normal", id=1), Qos(name="low", id=2, preempt_mode="cancel", preempt_exempt_seconds=30)
    )
    normal, low = (world.job(world.submit(qos=name)) for name in ("normal", "low"))
    assert exempt_times(world.state, [normal, low]) == (None, (("debug", "low", 30),))


def test_without_preemption_no_job_has_such_a_time() -> None:
    world = World()
    assert exempt_times(world.state, [world.job(world.submit())]) == (None, ())
