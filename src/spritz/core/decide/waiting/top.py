"""scontrol top: moves jobs ahead of the user's others by nice values. What these gain, the others of the group lose.

A group is all waiting jobs of one user, account and QOS that ask only for one same partition. Priorities in force come
with the command, from the scheduler, which knows the factors.

Source: scontrol(1) top.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.access import is_operator, need_control
from spritz.core.decide.arrays import select
from spritz.core.decision import DecisionContext, Refused
from spritz.core.priority import PRIORITY_MAX
from spritz.model.commands.job import Done
from spritz.model.events.job import JobUpdated
from spritz.model.job.record import Hold
from spritz.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.core.state import State
    from spritz.model.commands.job import TopJob
    from spritz.model.job.record import Job

#: as sbatch's --nice
NICE_MAX = 2_147_483_645


def top(context: DecisionContext, command: TopJob) -> Done:
    """Put these jobs before all others of their group, in the order given."""
    state = context.state
    if not is_operator(context) and not any(key == "enable_user_top" for key, _ in state.settings.scheduler_parameters):
        raise Refused("ESLURM_ACCESS_DENIED", hint="SchedulerParameters=enable_user_top is not set")
    chosen: dict[int, Job] = {}
    for target in command.targets:
        for selected in select(state, target):
            need_control(context, selected.job)
            if selected.job.state is not JobState.PENDING:
                raise Refused("ESLURM_JOB_NOT_PENDING")
            if selected.job.hold is not Hold.NONE:
                raise Refused("ESLURM_JOB_HELD")
            if len(selected.job.spec.partitions) > 1:
                raise Refused("ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE", hint="the job waits in several partitions")
            chosen[selected.job.id] = selected.job
    in_force = dict(command.priorities)
    for members in _lines(state, chosen.values()):
        first = [job for job in chosen.values() if job.id in members]
        others = [job for job in members.values() if job.id not in chosen]
        for job, gain in _gains(
            first, others, {number: in_force.get(number, job.priority) for number, job in members.items()}
        ):
            if gain:
                context.record(JobUpdated(at=context.now, job=_moved(state, job, gain)))
    return Done()


def line_of(state: State, job: Job) -> list[Job]:
    """Waiting jobs with which this one shares user, partition, account and QOS, itself included."""
    spec = job.spec
    return [
        other
        for number in state.live_by_user.get(spec.uid, ())
        if number in state.pending
        and (other := state.jobs[number]).hold is Hold.NONE
        and other.spec.partitions == spec.partitions
        and (other.spec.account, other.spec.qos) == (spec.account, spec.qos)
    ]


def _lines(state: State, jobs: Iterable[Job]) -> list[dict[int, Job]]:
    lines: dict[tuple[object, ...], dict[int, Job]] = {}
    for job in jobs:
        spec = job.spec
        key = (spec.uid, spec.partitions, spec.account, spec.qos)
        if key not in lines:
            lines[key] = {other.id: other for other in line_of(state, job)}
    return list(lines.values())


def _gains(first: list[Job], others: list[Job], in_force: dict[int, int]) -> list[tuple[Job, int]]:
    """The priority that each job gains; the sum is 0. The first get the highest priorities of the group, or a little
    more.
    """
    goals: list[int] = []
    for at_least in sorted(in_force.values())[-len(first) :]:
        goals.append(max(at_least, goals[-1] + 1 if goals else 0))
    if not others:
        # No other job gives up priority: all of them return equally what the job gains.
        return _level(_raised(first, goals, in_force, 0))
    above = max(in_force[job.id] for job in others)
    gained = sum(goals) - sum(in_force[job.id] for job in first)

    def leads(extra: int) -> bool:
        """Whether the last of the first jobs is above all others, if each of the first gains `extra` more."""
        return goals[0] + extra > above - (gained + extra * len(first)) // len(others)

    # Priorities have 32 bits: to try one value of `extra` after the other would take minutes.
    extra = bisect_left(range(max(above - goals[0], 0) + 1), True, key=leads)
    share, more = divmod(gained + extra * len(first), len(others))
    lowered = [(job, -share - (place < more)) for place, job in enumerate(others)]
    return _raised(first, goals, in_force, extra) + lowered


def _raised(first: list[Job], goals: list[int], in_force: dict[int, int], extra: int) -> list[tuple[Job, int]]:
    """The first jobs with their gains in priority. `goals`: their new priorities, lowest first, without `extra`."""
    return [(job, goal + extra - in_force[job.id]) for job, goal in zip(first, reversed(goals), strict=True)]


def _level(gains: list[tuple[Job, int]]) -> list[tuple[Job, int]]:
    share, more = divmod(sum(gain for _job, gain in gains), len(gains))
    return [(job, gain - share - (place >= len(gains) - more)) for place, (job, gain) in enumerate(gains)]


def _moved(state: State, job: Job, gain: int) -> Job:
    """The job with its priority raised by `gain`, by lowering its nice value."""
    spec = replace(job.spec, nice=min(max(job.spec.nice - gain, -NICE_MAX), NICE_MAX))
    by_hand = spec.priority is not None
    if not by_hand and state.settings.priority_multifactor:
        return replace(job, spec=spec)
    priority = min(max(1, job.priority + gain), PRIORITY_MAX)
    return replace(job, spec=replace(spec, priority=priority) if by_hand else spec, priority=priority)
