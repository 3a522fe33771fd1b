"""Controllers of a federation whose requests are lost, late and repeated: no job ever runs twice at a time, and once
all can be reached every copy is settled."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack

from spritz.core.job.siblings import lock_refusal, locked_elsewhere, owed, peers, taken
from spritz.core.machine import Machine
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.commands.job import FinishAllocation, HoldJob, JobSubmitted, ReleaseJob, RequeueJob, SubmitJob
from spritz.model.federation import LockUnused, PutSibling, QueueSibling, SiblingAnswer, SiblingRequest
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import Hold, Job
from spritz.model.limits.records import FederationMember, Policy, SetPolicy
from spritz.model.plan import Plan, PlannedStart
from spritz.model.rejection import Rejection
from spritz.model.resources import Allocation
from spritz.model.states import JobState
from spritz_testing.builders import ALICE, ROOT, World, job_spec

NAMES = ("a", "b", "c")


class Clusters:
    def __init__(self) -> None:
        self.worlds = {name: World(settings=ClusterSettings(cluster_name=name)) for name in NAMES}
        self.states = dict.fromkeys(NAMES, "ACTIVE")
        self.jobs: list[int] = []
        #: (to, request) that may still arrive
        self.late: list[tuple[str, SiblingRequest]] = []
        for name in NAMES:
            self.tell_policy(name)

    def tell_policy(self, name: str) -> None:
        members = tuple(
            FederationMember(cluster=one, federation="f", number=number, state=self.states[one])
            for number, one in enumerate(NAMES, 1)
        )
        self.worlds[name].do(SetPolicy(policy=Policy(version=1, federation=members)))

    def submit(self, at: str, *, batch: bool = True) -> None:
        """A batch job, or one of srun's or salloc's that gives up if it has not started in a while."""
        words: dict[str, Any] = {"batch": True, "requeue": True} if batch else {"batch": False, "interactive": True}
        command = SubmitJob(
            spec=job_spec(uid=1001, **words),
            script=b"#!/bin/sh\n" if batch else b"",
            immediate_seconds=None if batch else 30,
        )
        reply = self.worlds[at].do(command, ALICE).reply
        if isinstance(reply, JobSubmitted):
            self.jobs.append(reply.job_id)

    def deliver(self, to: str, request: SiblingRequest) -> SiblingAnswer | None:
        """None: a failure."""
        command = request
        if isinstance(request, PutSibling):
            command = QueueSibling(  # type: ignore[assignment]  # what the shell makes of it
                submission=SubmitJob(spec=request.spec, script=b"#!/bin/sh\n"),
                job_id=request.job_id,
                origin=request.origin,
                copy=request.copy,
                restart_count=request.restart_count,
            )
        reply = self.worlds[to].do(command).reply
        return None if isinstance(reply, Rejection) else msgpack.decode(msgpack.encode(reply), type=SiblingAnswer)

    def send(self, job_id: int, at: str, fate: int) -> bool:
        """What one cluster owes first; False: nothing. `fate`: 0 it arrives late, 1 its answer is lost."""
        job = self.worlds[at].state.jobs.get(job_id)
        for peer in peers(job) if job is not None else ():
            request = owed(job, peer, at)  # type: ignore[arg-type]  # there are peers
            if request is None:
                continue
            if fate == 0:
                self.late.append((peer, request))
                return True
            answer = self.deliver(peer, request)
            if answer is None:
                continue
            if fate != 1:
                self.worlds[at].do(taken(request, answer, peer))
            return True
        return False

    def start(self, job_id: int, at: str) -> None:
        world = self.worlds[at]
        job = world.state.jobs.get(job_id)
        if job is None or job.state is not JobState.PENDING:
            return
        allocation = Allocation(partition=job.partition, nodes=(world.free_share("n1", 1),))
        world.do(ApplyPlan(plan=Plan(starts=(PlannedStart(job_id=job_id, allocation=allocation),))))
        if world.state.jobs[job_id].state.active:
            assert not lock_refusal(job)
            world.started(job_id)

    def running(self, job_id: int) -> list[str]:
        jobs = {name: world.state.jobs.get(job_id) for name, world in self.worlds.items()}
        return [name for name, job in jobs.items() if job is not None and job.state.active]

    def finish(self, world: World, job: Job) -> None:
        """The script ends, or the client gives its allocation back."""
        if job.spec.batch:
            world.finished(job.id)
        else:
            world.do(FinishAllocation(job_id=job.id), ALICE)

    def clear(self, at: str) -> None:
        world = self.worlds[at]
        for job_id in list(world.state.completing):
            world.gone(job_id)

    def act(self, action: int, which: int, where: int, fate: int) -> None:
        at = NAMES[where % 3]
        world = self.worlds[at]
        if action == 0 or not self.jobs:
            if len(self.jobs) < 3:
                self.submit(at, batch=fate % 2 == 0)
            return
        job_id = self.jobs[which % len(self.jobs)]
        job = world.state.jobs.get(job_id)
        if action in (1, 2):
            self.send(job_id, at, fate)
        elif action == 3 and self.late:
            self.deliver(*self.late.pop(fate % len(self.late)))
        elif action == 4:
            self.start(job_id, at)
        elif action == 5 and job is not None and job.state.active:
            self.finish(world, job)
        elif action == 6:
            world.do(RequeueJob(target=JobTarget(job_id)))
        elif action == 7 and fate == 0:
            world.cancel(job_id)
        elif action == 8:
            world.do((HoldJob if fate % 2 else ReleaseJob)(target=JobTarget(job_id)), ROOT)
        elif action == 9:
            world.do(LockUnused(job_id=job_id))
        elif action == 10:
            self.states[at] = ("ACTIVE", "DRAIN", "INACTIVE")[fate % 3]
            self.tell_policy(NAMES[which % 3])
        elif action == 11:
            world.machine = Machine.from_image(world.machine.image())
        elif action == 12:
            self.pass_time(at)
        self.clear(at)

    def pass_time(self, at: str) -> None:
        """Time passes on a cluster: no job is given up that another one is starting, or runs."""
        world = self.worlds[at]
        locked = [job.id for job in world.state.jobs.values() if locked_elsewhere(job) and not job.state.ended]
        world.advance(20)
        ended = [job_id for job_id in locked if world.state.jobs[job_id].state.ended]
        assert not ended, f"{ended} ended at their origin while another cluster had them"

    def check(self) -> None:
        for job_id in self.jobs:
            assert len(self.running(job_id)) <= 1, f"job {job_id} runs on {self.running(job_id)}"

    def heal(self) -> None:
        """All can be reached, nothing is held: every job ends, once."""
        self.late.clear()
        self.states = dict.fromkeys(NAMES, "ACTIVE")
        for name in NAMES:
            self.tell_policy(name)
        for _ in range(40):
            if not self.unsettled():
                return
            for name, world in self.worlds.items():
                for job_id in self.jobs:
                    job = world.state.jobs.get(job_id)
                    if job is not None and job.hold is not Hold.NONE and not job.state.ended:
                        world.do(ReleaseJob(target=JobTarget(job_id)), ROOT)
                    while self.send(job_id, name, 9):
                        pending = world.state.jobs.get(job_id)
                        if pending is not None and pending.federation and pending.federation.lock == "wanted":
                            break
                    self.start(job_id, name)
                    self.check()
                    job = world.state.jobs.get(job_id)
                    if job is not None and job.state.active:
                        self.finish(world, job)
                    self.clear(name)
                world.advance(10)
        raise AssertionError(f"it does not come to an end: {self.unsettled()}")

    def unsettled(self) -> list[tuple[str, Job]]:
        jobs = [(name, world.state.jobs.get(job_id)) for job_id in self.jobs for name, world in self.worlds.items()]
        return [(name, job) for name, job in jobs if job is not None and (not job.state.ended or peers(job))]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 8), st.integers(0, 2), st.integers(0, 5)), min_size=10, max_size=80
    )
)
def test_a_job_runs_on_one_cluster_whatever_is_lost(steps: list[tuple[int, int, int, int]]) -> None:
    clusters = Clusters()
    clusters.submit("a")
    for step in steps:
        clusters.act(*step)
        clusters.check()
    clusters.heal()
    for world in clusters.worlds.values():
        world.check()
