"""No request that can be decoded hangs the core, placement, a cycle or an explanation, or makes them fail.

Requests are made of the types of the messages with odd values within their ranges, are decoded as a daemon does, and
go the way of a submission on clusters of different hardware. The guard counts the process's own time, so that a busy
machine does not matter.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct, msgpack
from tests.fuzz.guard import guard
from tests.fuzz.odd import Odd
from tests.unit.scheduling.site import Site, gpus, node

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.cluster.topology import Block, Switch, Topology
from spritz.model.commands.job import (
    CancelJobs,
    FinishAllocation,
    HoldJob,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    SubmitHetJob,
    SubmitJob,
    SuspendJob,
    TopJob,
    UpdateJob,
)
from spritz.model.commands.step import CreateStep, SignalStep
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.layout import job_task_counts
from spritz.model.job.record import Job, JobSpec
from spritz.model.job.step import StepSpec
from spritz.model.node.partition import Partition
from spritz.model.resources import GresCapacity
from spritz.model.states import JobState
from spritz.scheduling.explain.context import PlanView
from spritz.scheduling.explain.explanation import explain
from spritz.scheduling.forecast import full_cycle
from spritz.scheduling.plan import feasible
from spritz.wire.envelope import Request
from spritz.wire.requests import BadRequest, RequestDecoder
from spritz_testing.builders import ALICE, ROOT

#: what else users do with jobs
ORDERS = (CancelJobs, HoldJob, ReleaseJob, RequeueJob, SuspendJob, ResumeJob, TopJob, SignalStep, FinishAllocation)

DECODER = RequestDecoder([SubmitJob, SubmitHetJob, UpdateJob, CreateStep, *ORDERS])

NODES = {
    "one socket": [node("n1", 4, features=("a",)), node("n2", 8, features=("b", "c"))],
    "two sockets": [node(f"n{number}", 16, sockets=2, threads=2, memory=4000) for number in (1, 2, 3)],
    "gpus": [
        node("n1", 8, sockets=2, gres=[gpus(2, "a100", cores="0-3"), gpus(2, "h100", first=2, cores="4-7")]),
        node("n2", 8, gres=[gpus(4), GresCapacity(name="shard", count=16, per_device=4)], tmp=100),
        node("n3", 2),
    ],
    "blocks": [node(f"n{number}", 4, sockets=2, features=("ab"[number % 2],)) for number in range(1, 13)],
    "switches": [node(f"n{number}", 4, weight=number % 3) for number in range(1, 9)],
}
NETWORKS = {
    "blocks": Topology(
        kind="block",
        name="default",
        blocks=tuple(Block(name=f"b{first}", nodes=f"n[{first}-{first + 2}]") for first in (1, 4, 7, 10)),
        block_sizes=(3, 6),
    ),
    "switches": Topology(
        kind="tree",
        name="default",
        switches=(
            Switch(name="s0", nodes="n[1-3]"),
            Switch(name="s1", nodes="n[4-8]"),
            Switch(name="top", level=1, nodes="n[1-8]", switches="s[0-1]"),
        ),
    ),
}
SHARING = ("NO", "FORCE:3", "YES:2", "EXCLUSIVE")
GRAINS = ("cpu", "core", "socket")


def site(hardware: str, sharing: str, grain: str) -> Site:
    nodes = NODES[hardware]
    names = tuple(one.name for one in nodes)
    partitions = [
        Partition(name="main", nodes=names, default=True, oversubscribe=sharing, consumable=grain),
        Partition(name="other", nodes=names[:1], max_nodes=1, max_time_minutes=60, default_time_minutes=5),
    ]
    known = ClusterSettings(
        gres_types=("gpu", "shard"),
        licenses=(("a", 2), ("b", 1)),
        max_array_size=1000,
        topologies=(NETWORKS[hardware],) if hardware in NETWORKS else (),
        topology_sizes_max=6,
    )
    return Site(nodes, partitions, known)


def decoded(kind: type[Struct], body: object) -> Struct | None:
    """As a daemon reads it; None where it is refused."""
    try:
        return DECODER.decode(Request(id=1, kind=kind.__name__, body=Raw(msgpack.encode(body))))
    except BadRequest:
        return None


#: Fields that have no part in where a job or step goes.
PLAIN = {*feasible.UNSEEN, "uid", "gid", "user", "group", "groups", "mcs_label", "core_spec", "environment"}
JOB_FIELDS, STEP_FIELDS = (
    [name for name in kind.__struct_fields__ if name not in PLAIN] for kind in (JobSpec, StepSpec)
)


def odd_spec(odd: Odd, random: Random) -> dict[str, object]:
    """Mostly sizes and places, which decide what is tried; now and then anything."""
    names = JOB_FIELDS if random.random() < 0.8 else JobSpec.__struct_fields__
    chosen = random.sample(names, random.choice((1, 2, 3, 5, 8)))
    return {"batch": True, "work_dir": "/tmp", "name": "job", **odd.fields(JobSpec, chosen)}


def odd_step(odd: Odd, random: Random) -> dict[str, object]:
    """The same of a step: a number of tasks in any case."""
    chosen = ["tasks", "overcommit", *random.sample(STEP_FIELDS, random.choice((0, 1, 2, 4)))]
    return {"argv": ["true"], **odd.fields(StepSpec, chosen)}


def check(site: Site, request: SubmitJob | SubmitHetJob) -> None:
    """Could placement ever serve it? As slurmctld asks before the core decides."""
    snapshot = site.projection.snapshot(site.now)
    try:
        if isinstance(request, SubmitHetJob):
            feasible.check_whole([component.spec for component in request.components], snapshot)
        else:
            feasible.check_request(request.spec, snapshot)
    except ValueError:
        pass  # an expression that cannot be read: the core says so


def send(site: Site, command: Struct | None, random: Random) -> None:
    """Decide, and have the projection follow."""
    if command is not None:
        outcome = site.machine.handle(command, site.now, random.choice((ALICE, ROOT)))
        site.projection.follow(outcome.changes)


def submit(site: Site, odd: Odd, random: Random) -> None:
    """One job, plain or heterogeneous."""
    parts = [{"spec": odd_spec(odd, random), "script": b"#!"} for _ in range(random.choice((1, 1, 1, 2)))]
    made = decoded(SubmitHetJob, {"components": parts}) if len(parts) > 1 else decoded(SubmitJob, parts[0])
    if isinstance(made, SubmitJob | SubmitHetJob):
        check(site, made)
        send(site, made, random)


def use(site: Site, job: Job, odd: Odd, random: Random) -> None:
    """What is done with a job: steps are made in it, it is updated, signalled, released."""
    if job.allocation is not None:
        job_task_counts(job)
        for _ in range(2):
            send(site, decoded(CreateStep, {"job_id": job.id, "spec": odd_step(odd, random)}), random)
    send(site, decoded(UpdateJob, {"target": {"job_id": job.id}, "changes": odd.changes(JobSpec)}), random)
    kind = random.choice(ORDERS)
    body = odd.body(kind)
    if "target" in body:
        body["target"] = {**odd.fields(JobTarget, ["tasks"]), "job_id": job.id}
    send(site, decoded(kind, body), random)


def go_through(site: Site, random: Random) -> None:
    """Some submissions, a cycle, what users do with their jobs, another cycle, and why each job waits."""
    odd = Odd(random, wildness=random.choice((0.0, 0.02)))
    for _ in range(random.choice((1, 3))):
        submit(site, odd, random)
    site.cycle()
    for job in list(site.jobs.values()):
        use(site, job, odd, random)
    site.cycle()
    snapshot = site.projection.snapshot(site.now)
    view = PlanView(snapshot, full_cycle.run(snapshot, held=True), site.jobs, site.projection.nodes)
    for job in site.jobs.values():
        if job.state is JobState.PENDING:
            explain(view, job)


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(NODES)), st.sampled_from(SHARING), st.sampled_from(GRAINS))
def test_no_request_hangs_or_breaks_what_decides_about_it(seed: int, hardware: str, sharing: str, grain: str) -> None:
    with guard():
        go_through(site(hardware, sharing, grain), Random(seed))
