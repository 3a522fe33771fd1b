"""Arrays: which records a target names, and giving a task a record of its own.

A pending array is one record. A task gets its own when it starts or is singled out (held, updated or cancelled by
itself). It gets a new id, and the last task left keeps the array's own, as in Slurm.

Source: sbatch(1) --array; https://slurm.schedmd.com/job_array.html as the manual pages restate it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.apply.job import array_members
from spritz.core.decision import DecisionContext, Refused
from spritz.core.job import het
from spritz.core.job.siblings import own_number
from spritz.model.events.job import ArrayTaskSplit
from spritz.model.federation import federated_number
from spritz.model.resources import mask_of
from spritz.notation.ranges import format_array, format_ids, ids_of
from spritz.notation.ranges import mask_of as tasks_mask

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job.job_filter import JobTarget
    from spritz.model.job.record import Job


class Selected:
    """A record that a target names.

    `tasks`: only these pending tasks of an array's own record (a mask); 0: the whole record.
    """

    __slots__ = ("job", "tasks")

    def __init__(self, job: Job, tasks: int = 0) -> None:
        self.job = job
        self.tasks = tasks


def select(state: State, target: JobTarget) -> list[Selected]:
    """Records that `target` names, tasks in ascending order. Refuses unknown ids (ESLURM_INVALID_JOB_ID)."""
    job_id = target.job_id
    job = state.jobs.get(job_id)
    is_array = job_id in state.arrays or (job is not None and job.array_job_id == job_id)
    if not is_array:
        if job is None or target.tasks:
            raise Refused("ESLURM_INVALID_JOB_ID")
        return _components(state, job, target.component)
    if target.component is not None:
        raise Refused("ESLURM_INVALID_JOB_ID")
    if not target.tasks:
        return [Selected(state.jobs[member]) for member in array_members(state, job_id)]
    tasks = _select_tasks(state, job_id, _mask(target.tasks))
    if not tasks:
        raise Refused("ESLURM_INVALID_JOB_ID")
    return tasks


def missing_tasks(state: State, target: JobTarget) -> str:
    """Which of the tasks that `target` names do not exist, as `8-9`; the others are valid all the same."""
    named = mask_or_none(target.tasks)
    if not named & (named - 1):
        return ""
    present, waiting = [], 0
    for selected in select(state, target):
        if selected.job.array is not None:
            waiting = mask_of(selected.job.array.pending)
        elif selected.job.array_task_id is not None:
            present.append(selected.job.array_task_id)
    return format_ids(named & ~waiting & ~tasks_mask(present))


def _components(state: State, job: Job, component: int | None) -> list[Selected]:
    """The leader's id, and component 0, name the whole job."""
    if component is not None and not (het.is_leader(job) and component < job.het_size):
        raise Refused("ESLURM_INVALID_JOB_ID")
    if component:
        return [Selected(state.jobs[job.id + component])]
    return [Selected(member) for member in het.members(state, job)] if het.is_leader(job) else [Selected(job)]


def with_whole_het_jobs(state: State, chosen: list[Selected]) -> list[Selected]:
    """With SchedulerParameters=whole_hetjob, all components of each job of which one is named."""
    parameters = dict(state.settings.scheduler_parameters)
    if not (parameters.keys() & {"whole_hetjob", "whole_pack"}):
        return chosen
    selected: dict[int, Selected] = {}
    for item in chosen:
        selected[item.job.id] = item
        for other in het.members(state, item.job) if item.job.het_job_id else ():
            selected.setdefault(other.id, Selected(other))
    return list(selected.values())


def _mask(text: str) -> int:
    mask = mask_or_none(text)
    if not mask:
        raise Refused("ESLURM_INVALID_JOB_ID")
    return mask


def mask_or_none(text: str) -> int:
    """The mask that a client wrote; 0 if the text is not a mask."""
    try:
        return mask_of(text) if text else 0
    except ValueError:
        return 0


def _select_tasks(state: State, array_id: int, wanted: int) -> list[Selected]:
    selected = []
    records = state.arrays.get(array_id, {})
    if wanted.bit_count() < len(records):
        hits = [records[task] for task in ids_of(wanted) if task in records]
    else:
        hits = [number for task, number in sorted(records.items()) if wanted >> task & 1]
    selected = [Selected(state.jobs[number]) for number in hits]
    array_record = state.jobs.get(array_id)
    if array_record is not None and array_record.array is not None:
        pending = mask_of(array_record.array.pending)
        if pending & wanted:
            selected.append(Selected(array_record, 0 if pending & ~wanted == 0 else pending & wanted))
    return selected


def lowest_tasks(job: Job, count: int) -> int:
    """The first `count` pending tasks of an array, as a mask."""
    assert job.array is not None, f"job {job.id} is no pending array"
    pending, tasks = mask_of(job.array.pending), 0
    for _ in range(count):
        lowest = pending & -pending
        pending, tasks = pending ^ lowest, tasks | lowest
    return tasks


def split(context: DecisionContext, array_id: int, task_id: int) -> int:
    """Give one pending task its own record. Returns its job id."""
    array_record = context.state.jobs[array_id]
    assert array_record.array is not None, f"job {array_id} is no pending array"
    # The last task takes over the record of the array. Otherwise an array without pending tasks would keep a record
    # that stands for no task, and every count of jobs would have to leave it out.
    last = mask_of(array_record.array.pending) == 1 << task_id
    job_id = array_id if last else _task_number(context.state)
    context.record(ArrayTaskSplit(at=context.now, array_job_id=array_id, task_id=task_id, job_id=job_id))
    return job_id


def free_number(state: State, count: int = 1) -> int:
    """The first of `count` consecutive unused job ids. Ids begin again at FirstJobId after MaxJobId."""
    settings, jobs, arrays = state.settings, state.jobs, state.arrays
    of_cluster = federated_number(0, own_number(state))
    number, free_count = state.next_job_id, 0
    for _ in range(settings.max_job_id - settings.first_job_id + count):
        if number > settings.max_job_id:
            number, free_count = settings.first_job_id, 0
        job_id = of_cluster | number
        free_count = free_count + 1 if job_id not in jobs and job_id not in arrays else 0
        if free_count == count:
            return job_id - count + 1
        number += 1
    raise Refused("ESLURM_MAX_JOB_COUNT")


def _task_number(state: State) -> int:
    """A job id as of `free_number`. If MaxJobId was lowered too far, acknowledged tasks get an id above it."""
    try:
        return free_number(state)
    except Refused:
        return max(state.settings.max_job_id, *state.jobs, *state.arrays) + 1


def enough_numbers(state: State, count: int) -> bool:
    """Whether there are job ids for this many more tasks, and for all tasks that have none yet."""
    return state.job_count + count <= state.settings.max_job_id - state.settings.first_job_id + 1


def label(job: Job, tasks: int = 0) -> str:
    """The job as messages name it: `12`, `12_3`; with `tasks`, tasks of an array: `12_[4-5]`."""
    if job.array_task_id is not None:
        return f"{job.array_job_id}_{job.array_task_id}"
    if job.het_offset:
        return f"{job.het_job_id}+{job.het_offset}"
    return array_label(job.id, tasks)


def array_label(array_id: int, tasks: int) -> str:
    """`12_4`, `12_[4-5]`; `12` for no tasks."""
    if not tasks:
        return str(array_id)
    text = format_array(tasks)
    return f"{array_id}_{text}" if text.isdecimal() else f"{array_id}_[{text}]"
