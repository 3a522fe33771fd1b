"""Finds the jobs that match a `JobFilter`, using indexes.

All given conditions must match; empty ones do not restrict. Finished jobs stay in the state for MinJobAge, tens of
thousands of them on a busy cluster, so a listing of live jobs uses the indexes and never touches them.

Source: squeue(1), scancel(1).
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from spritz.core.job import het
from spritz.model.rejection import Rejection
from spritz.model.resources import mask_of
from spritz.model.states import JobFlag, JobState

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job.job_filter import JobFilter, JobTarget
    from spritz.model.job.record import Job


def matching_jobs(state: State, job_filter: JobFilter) -> list[Job] | Rejection:
    """Matching records, by number. A single target that never existed is refused with Slurm's error."""
    if job_filter.targets:
        jobs: dict[int, Job] = {}
        for target in job_filter.targets:
            jobs.update((job.id, job) for job in target_jobs(state, target))
        if not jobs and len(job_filter.targets) == 1:
            number = job_filter.targets[0].job_id
            # A task index that the array lacks is no error.
            if number not in state.jobs and number not in state.arrays:
                return Rejection(code="ESLURM_INVALID_JOB_ID")
        candidates: Iterable[Job] = jobs.values()
    else:
        candidates = _candidates(state, job_filter)
    accepts = _Predicate(job_filter)
    if accepts.takes_all:
        chosen = list(candidates)
    elif accepts.takes_states:
        # The usual `squeue`: four orders of magnitude cheaper than a full scan.
        states, flags = tuple(state for state in JobState if state.value in accepts.states), accepts.flags
        chosen = [job for job in candidates if job.state in states or job.flags & flags]
    else:
        chosen = [job for job in candidates if accepts(job)]
    chosen.sort(key=attrgetter("id"))
    return chosen


def target_jobs(state: State, target: JobTarget) -> list[Job]:
    """Records of one target: a job, a whole array, or some of its tasks (which may still be part of the array's
    record).
    """
    job = state.jobs.get(target.job_id)
    tasks = state.arrays.get(target.job_id)
    if target.component is not None:
        component = state.jobs.get(target.job_id + target.component)
        return [component] if component is not None and component.het_job_id == target.job_id else []
    if job is not None and het.is_leader(job) and target.step_id is None:
        return het.members(state, job)
    if not target.tasks:
        members = [] if job is None else [job]
        if tasks:
            members += [state.jobs[number] for number in tasks.values() if number != target.job_id]
        return members
    tasks_named = mask_of(target.tasks)
    members = [state.jobs[number] for task, number in (tasks or {}).items() if tasks_named >> task & 1]
    if job is not None and job.array is not None and tasks_named & mask_of(job.array.pending):
        members.append(job)
    return members


_LIVE_STATES = frozenset({JobState.PENDING.value, JobState.RUNNING.value, JobState.SUSPENDED.value})
_FLAGS = {flag.name: int(flag) for flag in JobFlag if flag.name is not None}


def _candidates(state: State, job_filter: JobFilter) -> Iterable[Job]:
    """The smallest index that holds every match."""
    states = {text.upper() for text in job_filter.states}
    jobs = state.jobs
    if not states or not states <= _LIVE_STATES | _FLAGS.keys():
        return jobs.values()
    if job_filter.users:
        return [jobs[number] for uid in job_filter.users for number in state.live_by_user.get(uid, ())]
    numbers: dict[int, int] = {}
    with_flags = not states <= _LIVE_STATES
    if with_flags or "PENDING" in states:
        numbers.update(state.pending)
    if with_flags or states & {"RUNNING", "SUSPENDED"}:
        numbers.update(state.running)
    # A completing job counts as ended, and as COMPLETING.
    if with_flags:
        numbers.update(state.completing)
    return [jobs[number] for number in numbers]


class _Predicate:
    """All conditions except the targets, prepared once."""

    __slots__ = (
        "accounts",
        "flags",
        "licenses",
        "names",
        "nodes",
        "partitions",
        "qos",
        "reservation",
        "states",
        "takes_all",
        "takes_states",
        "users",
        "wckeys",
    )

    def __init__(self, job_filter: JobFilter) -> None:
        states = {text.upper() for text in job_filter.states}
        self.states = frozenset(states - _FLAGS.keys())
        self.flags = sum(_FLAGS[text] for text in states & _FLAGS.keys())
        self.users = frozenset(job_filter.users)
        self.accounts = frozenset(job_filter.accounts)
        self.names = frozenset(job_filter.names)
        self.partitions = frozenset(job_filter.partitions)
        self.qos = frozenset(job_filter.qos)
        self.nodes = frozenset(job_filter.nodes)
        self.reservation = job_filter.reservation
        self.wckeys = frozenset(job_filter.wckeys)
        self.licenses = frozenset(job_filter.licenses)
        self.takes_states = not any(
            (
                self.users,
                self.accounts,
                self.names,
                self.partitions,
                self.qos,
                self.nodes,
                self.reservation,
                self.wckeys,
                self.licenses,
            )
        )
        self.takes_all = self.takes_states and not states

    def __call__(self, job: Job) -> bool:
        return self._state_fits(job) and self._request_fits(job) and self._place_fits(job)

    def _state_fits(self, job: Job) -> bool:
        if not self.states and not self.flags:
            return True
        return job.state.value in self.states or bool(job.flags & self.flags)

    def _request_fits(self, job: Job) -> bool:
        spec = job.spec
        return not (
            (self.users and spec.uid not in self.users)
            or (self.names and spec.name not in self.names)
            or (self.accounts and spec.account not in self.accounts)
            or (self.qos and spec.qos not in self.qos)
            or (self.wckeys and spec.wckey not in self.wckeys)
            or (self.reservation and self.reservation not in job.reservation.split(","))
            or (self.licenses and self.licenses.isdisjoint(_license_names(spec.licenses)))
        )

    def _place_fits(self, job: Job) -> bool:
        if self.partitions:
            # A pending job belongs to each partition that it requests.
            partitions_of_job = (
                job.spec.partitions if job.state is JobState.PENDING and job.spec.partitions else (job.partition,)
            )
            if self.partitions.isdisjoint(partitions_of_job):
                return False
        if self.nodes:
            return job.allocation is not None and not self.nodes.isdisjoint(job.allocation.names)
        return True


def _license_names(text: str) -> list[str]:
    return [part.partition(":")[0].strip() for part in text.replace("|", ",").split(",") if part.strip()]
