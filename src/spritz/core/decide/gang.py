"""Gang scheduling: jobs that the scheduler suspends and resumes so that others can use their CPUs, for a preemptor or
between two time slices.

A job is suspended and resumed as a whole, on all its nodes together. It keeps its memory and GRES. In a time-sliced
partition (PreemptMode=GANG and OverSubscribe) the job that has waited longest comes first in the next slice; each
further job that fits with those before it runs too.

Source: slurm.conf(5) SchedulerTimeSlice, PreemptMode=GANG; https://slurm.schedmd.com/gang_scheduling.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.effects import SuspendOn
from spritz.core.flags import CONFIGURING
from spritz.model.events.cluster import TimeSliceEnded
from spritz.model.events.job import JobResumed, JobSuspended
from spritz.model.resources import mask_of
from spritz.model.rules.preemption import time_sliced
from spritz.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.job.record import Job

#: CPU masks by node
Busy = dict[str, int]


def suspend_job(context: DecisionContext, job: Job, by: str) -> None:
    """Suspend a running job on all its nodes. `by`: what suspends it."""
    context.record(JobSuspended(at=context.now, job_id=job.id, by=by))
    notify_nodes(context, job, resume=False)


def resume_job(context: DecisionContext, job: Job) -> None:
    """Resume the job; its time limit moves by the time it was suspended."""
    seconds = max(0.0, context.now - job.suspended_at)  # the clock may have been set back
    context.record(
        JobResumed(
            at=context.now,
            resumed_at=context.now,
            job_id=job.id,
            ends_at=job.ends_at + seconds if job.ends_at else 0.0,
            suspended_seconds=job.suspended_seconds + seconds,
        )
    )
    notify_nodes(context, job, resume=True)


def notify_nodes(context: DecisionContext, job: Job, *, resume: bool) -> None:
    """Send the suspension or resumption to every node of the job."""
    assert job.allocation is not None, f"job {job.id} runs nowhere"
    for node in job.allocation.names:
        context.add_effect(SuspendOn(node=node, job_id=job.id, restart_count=job.restart_count, resume=resume))


def cpus_are_free(state: State, job: Job) -> bool:
    """Whether no running job uses a CPU of the suspended job."""
    return all(not mask_of(share.cpus) & state.uses[share.node].cpus for share in state.held_shares(job))


def resume_on(context: DecisionContext, nodes: Iterable[str]) -> None:
    """CPUs have become free on these nodes: resume jobs that were suspended for them and whose CPUs are all free."""
    state = context.state
    waiting: dict[int, Job] = {}
    for name in nodes:
        use = state.uses.get(name)
        for job_id in use.suspended if use is not None else ():
            job = state.jobs[job_id]
            if job.state is JobState.SUSPENDED and job.suspended_by:
                waiting[job_id] = job
    for job in sorted(waiting.values(), key=lambda job: _turn_order(state, job)):
        if cpus_are_free(state, job):
            resume_job(context, job)


def _turn_order(state: State, job: Job) -> tuple[int, float, int]:
    home = state.partitions.get(job.partition)
    return (-home.priority_tier if home is not None else 0, job.suspended_at, job.id)


def wait_for_slice(context: DecisionContext, job: Job) -> None:
    """Suspend a job that has just started on the CPUs of a running job until its time slice comes."""
    state = context.state
    home = state.partitions.get(job.partition)
    if home is None or job.flags & CONFIGURING or not time_sliced(state.settings.preemption, home):
        return
    for share in state.held_shares(job):
        use, mask = state.uses[share.node], mask_of(share.cpus)
        for other_id, other in use.jobs.items():
            running = other_id != job.id and other_id not in use.suspended
            if running and state.jobs[other_id].partition == job.partition and mask & mask_of(other.cpus):
                suspend_job(context, job, "gang")
                return


def end_slice(context: DecisionContext) -> None:
    """The time slice is over: in each time-sliced partition the jobs that have waited longest run next."""
    state = context.state
    by_partition: dict[str, list[Job]] = {}
    for job_id in state.running:
        job = state.jobs[job_id]
        if job.flags & CONFIGURING or (job.state is JobState.SUSPENDED and job.suspended_by != "gang"):
            continue
        by_partition.setdefault(job.partition, []).append(job)
    for name in sorted(by_partition):
        if any(job.suspended_by == "gang" for job in by_partition[name]):
            _take_turns(context, by_partition[name])
    waiting = any(state.jobs[job_id].suspended_by == "gang" for job_id in state.running)
    context.record(
        TimeSliceEnded(
            at=context.now, next_at=context.now + state.settings.preemption.slice_seconds if waiting else 0.0
        )
    )


def _take_turns(context: DecisionContext, jobs: list[Job]) -> None:
    """Run the jobs that fit, suspended ones first; suspend the others."""
    state = context.state
    slice_ids = {job.id for job in jobs}
    busy: Busy = {}
    chosen: set[int] = set()
    # The longest suspended first, so each job runs in turn; running jobs come after them and stay only where CPUs are
    # left. First fit, and so perhaps not the fullest slice, but no job can be passed over for ever.
    for job in sorted(jobs, key=lambda job: (job.state is not JobState.SUSPENDED, job.suspended_at, job.id)):
        shares = state.held_shares(job)
        for share in shares:
            if share.node not in busy:
                busy[share.node] = _others(state, share.node, slice_ids)
        if any(mask_of(share.cpus) & busy[share.node] for share in shares):
            continue
        chosen.add(job.id)
        for share in shares:
            busy[share.node] |= mask_of(share.cpus)
    # All suspensions before any resumption: at no event do two running jobs have one CPU.
    for job in jobs:
        if job.id not in chosen and job.state is JobState.RUNNING:
            suspend_job(context, job, "gang")
    for job in jobs:
        if job.id in chosen and job.state is JobState.SUSPENDED:
            resume_job(context, job)


def _others(state: State, node: str, slice_ids: set[int]) -> int:
    """CPUs in use by running jobs outside `slice_ids`, which take no part in the time slices."""
    use = state.uses[node]
    mask = 0
    for job_id, share in use.jobs.items():
        if job_id not in slice_ids and job_id not in use.suspended:
            mask |= mask_of(share.cpus)
    return mask
