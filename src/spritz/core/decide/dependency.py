"""Dependencies: the state of each, and which jobs to check again when a job starts or ends.

A condition on a job that the controller does not know (any more) counts as fulfilled and is dropped, as in Slurm. Only
jobs that wait for the changed job are checked (`State.dependents`, `State.singletons`). Conditions on a whole array are
decided only once all of it has ended.

Source: sbatch(1) --dependency; slurm.conf(5) DependencyParameters=kill_invalid_depend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.apply.job import array_members
from spritz.core.decide.arrays import split
from spritz.core.decision import DecisionContext, Refused
from spritz.core.flags import COMPLETING
from spritz.core.job import het
from spritz.core.job.eligibility import eligibility
from spritz.core.job.siblings import succeeded
from spritz.model.events.job import DependenciesChanged, JobEnded
from spritz.model.job.record import Hold
from spritz.model.reasons import Reason
from spritz.model.resources import mask_of
from spritz.model.states import JobState
from spritz.notation.errors import shown
from spritz.notation.ranges import ids_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.core.state import State
    from spritz.model.job.record import Dependency, Job, JobSpec

UNFULFILLED, FULFILLED, FAILED = "unfulfilled", "fulfilled", "failed"
KINDS = frozenset({"after", "afterany", "afterok", "afternotok", "aftercorr", "singleton"})


class Waiter:
    """The waiting job, as far as `singleton` and `aftercorr` depend on it.

    `whole_id`: the array or heterogeneous job that it belongs to (0: none). `tasks`: pending tasks of an array, as a
    mask. `held`: by its user or an administrator.
    """

    __slots__ = ("held", "job_id", "name", "tasks", "uid", "whole_id")

    def __init__(self, spec: JobSpec, job_id: int, whole_id: int, tasks: int, *, held: bool) -> None:
        self.held = held
        self.uid = spec.uid
        self.name = spec.name
        self.job_id = job_id
        self.whole_id = whole_id
        self.tasks = tasks

    @classmethod
    def of(cls, job: Job) -> Waiter:
        """The facts of this pending job on which its conditions depend."""
        tasks = mask_of(job.array.pending) if job.array is not None else 0
        held = job.hold is not Hold.NONE
        return cls(job.spec, job.id, job.array_job_id or job.het_job_id, tasks, held=held)


def fresh_dependencies(dependencies: Iterable[Dependency]) -> tuple[Dependency, ...]:
    """The conditions as a user asks for them: how they stand is the controller's alone. Refuses unknown kinds."""
    fresh = []
    for item in dependencies:
        if item.kind not in KINDS:
            raise Refused("ESLURM_DEPENDENCY", hint=f"{shown(item.kind)} is not supported")
        minutes = item.minutes if item.kind == "after" else 0
        fresh.append(replace(item, minutes=minutes, state=UNFULFILLED, due_at=0.0))
    return tuple(fresh)


def still_open(
    state: State, waiter: Waiter, dependencies: tuple[Dependency, ...], mode: str, now: float
) -> tuple[Dependency, ...]:
    """The conditions that are still open: fulfilled ones are dropped (with mode `any`, one fulfilled condition drops
    all).
    """
    judged = [judge(state, waiter, item, now) for item in dependencies]
    unfulfilled = tuple(item for item in judged if item.state != FULFILLED)
    if mode == "any" and len(unfulfilled) < len(judged):
        return ()
    return unfulfilled


def judge(state: State, waiter: Waiter, item: Dependency, now: float) -> Dependency:
    """The condition with its present state. A failed condition stays failed."""
    if item.state == FAILED:
        return item
    if item.kind == "singleton":
        # A held job cannot start when it becomes the oldest, and later jobs of its name may start before its release.
        waits = waiter.held or _name_is_taken(state, waiter)
        return replace(item, state=UNFULFILLED if waits else FULFILLED)
    verdict, due_at = _verdict(state, waiter, item, now)
    if verdict == item.state and due_at == item.due_at:
        return item
    return replace(item, state=verdict, due_at=due_at)


def _name_is_taken(state: State, waiter: Waiter) -> bool:
    """Whether an earlier or running job of this user has this name.

    Parts of the same array or heterogeneous job do not wait for each other, and are as early as the whole: the id of a
    task comes late, and jobs with ids in between may wait for that task.
    """
    own_id = waiter.whole_id or waiter.job_id
    for other_id in state.live_by_name.get((waiter.uid, waiter.name), ()):
        if other_id == waiter.job_id:
            continue
        other = state.jobs[other_id]
        whole = _whole(other)
        if whole == own_id:
            continue
        if whole < own_id or other.state is not JobState.PENDING:
            return True
    return False


def _whole(job: Job) -> int:
    """Id of the array or heterogeneous job that it belongs to; else its own id."""
    return job.array_job_id or job.het_job_id or job.id


def _verdict(state: State, waiter: Waiter, item: Dependency, now: float) -> tuple[str, float]:
    # First find the record that the condition is about. An array has one record for its pending tasks and one for each
    # task that was split off; a task that was cancelled before that has only its bit in a mask.
    target = state.jobs.get(item.job_id)
    is_array = item.job_id in state.arrays or (target is not None and target.array_job_id == item.job_id)
    if is_array and item.task_id is None:
        return _array_verdict(state, waiter, item, now)
    if is_array:
        # A task that was cancelled while pending never got a record of its own: the array remembers it in a mask.
        if _cancelled(state, item.job_id) >> (item.task_id or 0) & 1:
            return FULFILLED if item.kind == "after" else _end_verdict(item.kind, False), 0.0
        number = state.arrays.get(item.job_id, {}).get(item.task_id or 0)
        if number is not None:
            target = state.jobs[number]
        # A task that has not been split off is pending in the array's record, which then stands for it.
        elif target is None or target.array is None or not mask_of(target.array.pending) >> (item.task_id or 0) & 1:
            target = None
    # The job is no array, so it has no such task.
    elif item.task_id is not None and item.kind != "aftercorr":
        target = None
    if target is None:
        # It was forgotten. Minutes since its start that this condition has seen go on.
        return _after(0.0, item, now) if item.due_at else (FULFILLED, 0.0)
    if het.is_leader(target):
        return _het_verdict(state, item, target, now)
    if item.kind == "after":
        # `after` asks for a start. A requeued job is pending again, but has started before.
        if target.state is JobState.PENDING and not target.restart_count:
            return UNFULFILLED, 0.0
        return _after(target.started_at or target.ended_at, item, now)
    if not is_over(target):
        return UNFULFILLED, 0.0
    return _end_verdict(item.kind, succeeded(target)), 0.0


def _het_verdict(state: State, item: Dependency, leader: Job, now: float) -> tuple[str, float]:
    """The leader's id names the whole heterogeneous job."""
    whole = het.members(state, leader)
    if item.kind == "after":
        if any(member.state is JobState.PENDING and not member.restart_count for member in whole):
            return UNFULFILLED, 0.0
        return _after(leader.started_at or leader.ended_at, item, now)
    if not all(is_over(member) for member in whole):
        return UNFULFILLED, 0.0
    return _end_verdict(item.kind, all(member.state is JobState.COMPLETED for member in whole)), 0.0


def is_over(job: Job) -> bool:
    """Whether the job has ended and left all its nodes."""
    return job.state.ended and not job.flags & COMPLETING


def _after(since: float, item: Dependency, now: float) -> tuple[str, float]:
    """`since`: when the job started, or ended without a start; 0.0: it waits again, and that start is not known."""
    due_at = since + item.minutes * 60.0
    if item.minutes and not since:
        # The minutes since a start that this condition has seen go on; else they begin with the next start.
        due_at = item.due_at
        if not due_at:
            return UNFULFILLED, 0.0
    return (FULFILLED, 0.0) if not item.minutes or due_at <= now else (UNFULFILLED, due_at)


def _end_verdict(kind: str, succeeded: bool) -> str:
    if kind == "afterany":
        return FULFILLED
    return FULFILLED if succeeded is (kind != "afternotok") else FAILED


def _array_verdict(state: State, waiter: Waiter, item: Dependency, now: float) -> tuple[str, float]:
    if item.kind == "after":
        array_record = state.jobs.get(item.job_id)
        if array_record is not None and array_record.array is not None and array_record.state is JobState.PENDING:
            return UNFULFILLED, 0.0
        # No task is left in the array's own record, so each has a record by which to tell whether it has started.
        records = [state.jobs[number] for number in array_members(state, item.job_id)]
        if any(job.state is JobState.PENDING and not job.restart_count for job in records):
            return UNFULFILLED, 0.0
        return _after(max(job.started_at or job.ended_at for job in records), item, now)
    if item.job_id in state.arrays_live:
        return UNFULFILLED, 0.0
    members = [state.jobs[number] for number in array_members(state, item.job_id)]
    succeeded = not _cancelled(state, item.job_id) and all(job.state is JobState.COMPLETED for job in members)
    if item.kind == "aftercorr" and waiter.tasks and not succeeded:
        # Tasks with a counterpart are decided one by one (`correspond`); the others need not wait.
        return UNFULFILLED if waiter.tasks & _task_ids(state, item.job_id) else FULFILLED, 0.0
    return _end_verdict(item.kind, succeeded), 0.0


# -- jobs to check again


def job_started(context: DecisionContext, job: Job) -> None:
    """A job started: `after` conditions may be fulfilled now."""
    for number in _names_of(job):
        for waiter_id in list(context.state.dependents.get(number, ())):
            waiting = context.state.jobs[waiter_id]
            if any(item.kind == "after" for item in waiting.dependencies):
                look_again(context, waiter_id)


def job_is_over(context: DecisionContext, job: Job) -> None:
    """The job has ended and left its nodes: check all jobs that wait for it, and so on down the chain."""
    # A worklist and no recursion: with kill_invalid_depend one failure may cancel a chain of thousands of jobs.
    queue = [job]
    while queue:
        over = queue.pop()
        ended = [
            number for member in het.members(context.state, over) if is_over(member) for number in _names_of(member)
        ]
        for number in dict.fromkeys(ended):
            for waiter_id in list(context.state.dependents.get(number, ())):
                if number == over.array_job_id:
                    queue += _corresponding(context, waiter_id, number, over.array_task_id)
                killed = _looked_at(context, waiter_id)
                if killed is not None:
                    queue.append(killed)
        same_name = context.state.singletons.get((over.spec.uid, over.spec.name))
        if same_name:
            # Of several waiting jobs of a name only the oldest can start, since the others wait for it. To look at all
            # of them at each end would cost n² for n jobs of one name.
            oldest = min(_whole(context.state.jobs[number]) for number in same_name)
            for number in [job_id for job_id in same_name if _whole(context.state.jobs[job_id]) == oldest]:
                killed = _looked_at(context, number)
                if killed is not None:
                    queue.append(killed)


def _names_of(job: Job) -> tuple[int, ...]:
    whole = job.array_job_id or job.het_job_id
    return (job.id, whole) if whole and whole != job.id else (job.id,)


def look_again(context: DecisionContext, job_id: int) -> None:
    """Check a pending job's conditions now. If one failed and it is cancelled for that, those that wait for it hear."""
    _cascade(context, [_looked_at(context, job_id)])


def cancel_if_hopeless(context: DecisionContext, job: Job) -> None:
    """kill_invalid_depend: cancel a job that can never start, and let those that wait for it hear."""
    _cascade(context, [_cancelled_as_hopeless(context, job)])


def correspond(context: DecisionContext, job_id: int, array_id: int) -> None:
    """`aftercorr` between arrays: tasks of `job_id` whose counterpart in `array_id` has ended get records of their own
    and are decided.
    """
    _cascade(context, _corresponding(context, job_id, array_id, None))


def single_out(context: DecisionContext, array_id: int, tasks: int) -> list[int]:
    """Give each of these pending tasks its own record. Returns their job ids in order of the task ids."""
    corresponds = any(item.kind == "aftercorr" for item in context.state.jobs[array_id].dependencies)
    numbers = [split(context, array_id, task_id) for task_id in ids_of(tasks)]
    # The array's record waits for all counterparts; a task that has none need not.
    for number in numbers if corresponds else ():
        look_again(context, number)
    return numbers


def _cascade(context: DecisionContext, cancelled: Iterable[Job | None]) -> None:
    for job in cancelled:
        if job is not None:
            job_is_over(context, job)


def _looked_at(context: DecisionContext, job_id: int) -> Job | None:
    """Check its conditions; the job if it was cancelled. The caller lets others hear."""
    job = context.state.jobs.get(job_id)
    if job is None or job.state is not JobState.PENDING or not job.dependencies:
        return None
    unfulfilled = still_open(context.state, Waiter.of(job), job.dependencies, job.spec.dependency_mode, context.now)
    if unfulfilled != job.dependencies:
        reason, eligible_at = eligibility(job.spec, job.hold, unfulfilled, context.now)
        if job.reason is not reason and job.hold.value:
            reason = job.reason  # the hold's reason stays
        context.record(
            DependenciesChanged(
                at=context.now, job_id=job_id, dependencies=unfulfilled, reason=reason, eligible_at=eligible_at
            )
        )
    return _cancelled_as_hopeless(context, context.state.jobs[job_id])


def _cancelled_as_hopeless(context: DecisionContext, job: Job) -> Job | None:
    kill = job.spec.kill_on_invalid_dependency
    if kill is None:
        kill = context.state.settings.kill_invalid_dependency
    if not kill or job.state is not JobState.PENDING or job.reason is not Reason.DEPENDENCY_NEVER_SATISFIED:
        return None
    for member in het.members(context.state, job):
        context.record(
            JobEnded(
                at=context.now, job_id=member.id, state=JobState.CANCELLED, reason=Reason.DEPENDENCY_NEVER_SATISFIED
            )
        )
    return context.state.jobs[job.id]


def _corresponding(context: DecisionContext, job_id: int, array_id: int, task_id: int | None) -> list[Job]:
    """Apply `correspond` to one task, or to all (None). Returns the cancelled jobs."""
    job = context.state.jobs.get(job_id)
    if job is None or job.array is None or job.state is not JobState.PENDING:
        return []
    if not any(item.kind == "aftercorr" and item.job_id == array_id for item in job.dependencies):
        return []
    tasks = mask_of(job.array.pending) & _task_ids(context.state, array_id)
    if task_id is not None:
        tasks &= 1 << task_id
    cancelled = _cancelled(context.state, array_id)
    killed = [
        _looked_at(context, split(context, job_id, candidate))
        for candidate in ids_of(tasks)
        if cancelled >> candidate & 1 or is_over(_counterpart(context.state, array_id, candidate))
    ]
    return [cancelled_job for cancelled_job in killed if cancelled_job is not None]


def _cancelled(state: State, array_id: int) -> int:
    """Tasks of the array that were cancelled without a record of their own, as a mask."""
    array_record = state.jobs.get(array_id)
    shape = None if array_record is None else array_record.array or array_record.array_of
    return mask_of(shape.cancelled) if shape is not None else 0


def tasks_are_over(context: DecisionContext, array_id: int) -> None:
    """Tasks of this array were cancelled without records: check the jobs and tasks that wait for them."""
    for waiter_id in list(context.state.dependents.get(array_id, ())):
        correspond(context, waiter_id, array_id)
        look_again(context, waiter_id)


def _task_ids(state: State, array_id: int) -> int:
    """All tasks of an array that the controller still knows, as a mask."""
    tasks = sum(1 << task for task in state.arrays.get(array_id, ())) | _cancelled(state, array_id)
    array_record = state.jobs.get(array_id)
    return (
        tasks | mask_of(array_record.array.pending)
        if array_record is not None and array_record.array is not None
        else tasks
    )


def _counterpart(state: State, array_id: int, task_id: int) -> Job:
    return state.jobs[state.arrays.get(array_id, {}).get(task_id, array_id)]
