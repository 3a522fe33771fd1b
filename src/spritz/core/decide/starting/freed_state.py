"""The use of a node as if some jobs were gone or suspended: the present state, seen without them.

Owns nothing. `start_refusal` reads it instead of the state, so that a start and a preemption pass the same checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.flags import COMPLETING
from spritz.core.job.charges import charge_of
from spritz.core.licenses import choose
from spritz.model.rules.node_use import NodeUse
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job.record import Job
    from spritz.model.resources import Allocation, NodeAllocation


class FreedState:
    """`gone` jobs hold nothing; `stopped` jobs have released their CPUs.

    `leaving`: jobs that have ended or are being preempted count as gone too. `take` adds jobs that are to start.
    """

    __slots__ = ("_leaving", "_starting", "_taken", "gone", "ledger", "state", "stopped")

    def __init__(
        self,
        state: State,
        *,
        gone: frozenset[int] = frozenset(),
        stopped: frozenset[int] = frozenset(),
        leaving: bool = False,
    ) -> None:
        self.state = state
        self.gone = gone
        self.stopped = stopped
        self._leaving = leaving
        #: allocations of jobs that are to start together: node -> share by job id
        self._taken: dict[str, dict[int, NodeAllocation]] = {}
        self._starting: dict[int, Job] = {}
        #: resources in use that count towards limits
        self.ledger = state.ledger

    def take(self, waiting: Job, allocation: Allocation, wanted: tuple[tuple[str, int], ...] = ()) -> None:
        """The job will start on this. `wanted`: the choice of its licenses (empty: the first that is free)."""
        text = waiting.spec.licenses
        licenses = choose(self.state, text, self.licenses(), wanted=wanted) if text else ()
        job = replace(
            waiting,
            state=JobState.RUNNING,
            partition=allocation.partition,
            allocation=allocation,
            licenses=licenses or (),
        )
        if not self._starting:
            self.ledger = self.ledger.fork()
        self._starting[job.id] = job
        for share in allocation.nodes:
            self._taken.setdefault(share.node, {})[job.id] = share
        charge = charge_of(self.state.rules, job)
        if charge is not None:
            # The job has counted as submitted since its submission.
            self.ledger.add(charge.keys, jobs=charge.jobs, tres=charge.tres, nodes=charge.nodes)

    def job(self, job_id: int) -> Job:
        """The record; of a job that is to start, the record as it will be."""
        return self._starting.get(job_id) or self.state.jobs[job_id]

    def use(self, name: str) -> NodeUse:
        """The resources in use on the node."""
        use = self.state.uses[name]
        absent = self._absent(use)
        taken = self._taken.get(name, {})
        gone = [job_id for job_id in use.kept if self._is_absent(job_id)]
        starting = [job.id for job in self._starting.values() if job.allocation and name in (job.allocation.kept or ())]
        # Most nodes of a plan are not concerned. Their own `NodeUse` answers for them, so a check costs what victims
        # and starts touch and not what the nodes hold.
        if not (absent or taken or gone or starting or self.stopped & use.jobs.keys()):
            return use
        seen = NodeUse()
        seen.kept = dict.fromkeys([*(job_id for job_id in use.kept if job_id not in gone), *starting])
        for job_id, share in use.jobs.items():
            if job_id in absent:
                continue
            seen.take(job_id, share)
            if job_id in use.suspended or job_id in self.stopped:
                seen.suspend(job_id)
        for job_id, share in taken.items():
            seen.take(job_id, share)
        return seen

    def _absent(self, use: NodeUse) -> set[int]:
        return {job_id for job_id in use.jobs if self._is_absent(job_id)}

    def _is_absent(self, job_id: int) -> bool:
        if job_id in self.gone:
            return True
        job = self.state.jobs[job_id]
        return self._leaving and bool(job.flags & COMPLETING or job.preempt_action)

    def licenses(self) -> dict[str, int]:
        """Licenses that gone jobs return, less those of jobs that are to start."""
        returned: dict[str, int] = {}
        for job in self._starting.values():
            for name, count in job.licenses:
                returned[name] = returned.get(name, 0) - count
        absent = set(self.gone)
        if self._leaving:
            # Not those that are COMPLETING: a job returns its licenses when it ends, and its nodes one by one later.
            absent.update(job_id for job_id in self.state.running if self.state.jobs[job_id].preempt_action)
        for job_id in absent:
            for name, count in self.state.jobs[job_id].licenses:
                returned[name] = returned.get(name, 0) + count
        return returned

    def occupants(self, name: str, partition: str) -> list[Job]:
        """Jobs that a new job of `partition` would share the node with: all that hold it and are not suspended."""
        jobs = (self.job(job_id) for job_id in self.use(name).jobs)
        return [job for job in jobs if job.id not in self.stopped and not _stands_aside(job, partition)]


def _stands_aside(job: Job, partition: str) -> bool:
    """Whether the scheduler has suspended the job for others, and does not resume it while they run."""
    return job.state is JobState.SUSPENDED and (
        job.suspended_by == "preempt" or (bool(job.suspended_by) and job.partition != partition)
    )
