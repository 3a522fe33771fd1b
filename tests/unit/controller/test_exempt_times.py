"""PreemptEligibleTime of `scontrol show job`: PreemptExemptTime of the job's QOS counts, else the cluster's."""

from __future__ import annotations

from spritz.controller.api.jobs import exempt_times
from spritz.model.cluster import ClusterSettings
from spritz.model.limits.records import Association, Policy, Qos, SetPolicy
from spritz.model.preemption import PreemptionPolicy
from spritz.model.queries.job_records import Jobs
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


def test_without_preemption_no_job_has_such_a_time() -> None:
    world = World()
    assert exempt_times(world.state, [world.job(world.submit())]) == (None, ())
