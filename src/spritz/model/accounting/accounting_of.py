"""Makes accounting's records from jobs and steps as the controller knows them. Pure.

Used where events are stored, and by sacct for what the database does not hold yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.accounting.records import JobRecord, StepRecord
from spritz.model.ids import step_name
from spritz.model.rules import job_tres
from spritz.model.states import JobFlag, JobState
from spritz.notation import hostlist, licenses, tres

if TYPE_CHECKING:
    from spritz.model.job.record import ContainerOptions, Job
    from spritz.model.job.step import Step
    from spritz.model.resources import Allocation

#: longest text of indexed columns; longer ones are cut
NAME_LENGTH = 255

_AT_END: int = (JobFlag.COMPLETING | JobFlag.CONFIGURING).value

#: cached texts of TRES lists: most jobs are like others
_TRES_MAX = 8192
_tres_texts: dict[tuple[tuple[str, int], ...], str] = {}


def tres_text(pairs: tuple[tuple[str, int], ...]) -> str:
    """The amounts as Slurm writes them: `cpu=4,mem=8G,node=1`. Cached, since few combinations recur in many jobs."""
    text_of_pairs = _tres_texts.get(pairs)
    if text_of_pairs is None:
        if len(_tres_texts) >= _TRES_MAX:
            _tres_texts.clear()
        text_of_pairs = _tres_texts[pairs] = tres.format(pairs)
    return text_of_pairs


def text(value: str, length: int = 0) -> str:
    """A user's text as every database accepts it: without NUL, and at most as long as its column."""
    if "\0" in value:
        value = value.replace("\0", "\ufffd")
    return value[:length] if length else value


def record_of(number: int, job: Job, keep: frozenset[str]) -> JobRecord:
    """The record of a whole job."""
    record = JobRecord(number=number, job_id=job.id)
    describe(record, job, keep)
    # A requeued job still has those of its earlier life; for a preempted one Slurm records no exit status.
    if job.state is not JobState.PENDING:
        record.exit_status = 0 if job.state is JobState.PREEMPTED else job.exit_status
        record.derived_exit_status, record.failed_node = job.derived_exit_status, job.failed_node
    return record


def describe(record: JobRecord, job: Job, keep: frozenset[str]) -> None:
    """Fill in everything that a whole job says, except how it ended: a change since then does not touch that."""
    spec = job.spec
    record.restart_count = job.restart_count
    record.array_job_id = job.array_job_id
    record.array_task_id = job.array_task_id
    if job.het_job_id:
        record.het_job_id, record.het_offset = job.het_job_id, job.het_offset
    if job.array is not None:
        record.array_tasks, record.array_limit = job.array.pending, job.array.limit
    record.uid, record.gid = spec.uid, spec.gid
    record.user, record.group = text(spec.user, NAME_LENGTH), text(spec.group, NAME_LENGTH)
    record.account = text(spec.account, NAME_LENGTH)
    record.qos = text(spec.qos, NAME_LENGTH)
    record.wckey = text(spec.wckey, NAME_LENGTH)
    # While it waits, sacct shows all partitions that it may run in.
    allocation = None if job.is_between_lives else job.allocation
    waiting = allocation is None and len(spec.partitions) > 1
    record.partition = text(",".join(spec.partitions) if waiting else job.partition, NAME_LENGTH)
    record.reservation = text(spec.reservation if job.is_between_lives else job.reservation, NAME_LENGTH)
    record.name = text(spec.name, NAME_LENGTH)
    record.state = job.state.value
    record.flags = job.flags & ~_AT_END
    record.reason, record.reason_detail = job.reason.value, text(job.reason_detail)
    record.submitted_at, record.eligible_at = job.submitted_at, job.eligible_at
    record.started_at, record.ended_at = job.started_at, job.ended_at
    # A job that ended, or was queued again, while it was suspended keeps the time until its processes are gone.
    record.suspended_at = job.suspended_at if job.state is JobState.SUSPENDED else 0.0
    record.suspended_seconds = job.suspended_seconds
    record.time_limit_minutes = spec.time_limit_minutes if job.time_limit_minutes is None else job.time_limit_minutes
    record.priority = job.priority
    record.cancelled_by = job.cancelled_by_uid
    requested = job_tres.requested(job)
    record.tres_requested = tres_text((*requested, *licenses.requested(spec.licenses)))
    record.requested_cpus, record.requested_nodes = requested[0][1], spec.nodes_min
    if allocation is not None:
        allocate(record, allocation, job.billing, job.licenses)
    record.licenses = text(spec.licenses)
    record.constraints = text(spec.features)
    record.sharing = spec.sharing.value
    record.batch = spec.batch
    record.work_dir, record.command = text(spec.work_dir), text(spec.command)
    record.submit_line = text(spec.submit_line)
    if "no_stdio" not in keep:
        record.stdin, record.stdout, record.stderr = text(spec.stdin), text(spec.stdout), text(spec.stderr)
    record.comment = text(spec.comment) if "job_comment" in keep else ""
    record.admin_comment, record.system_comment = text(spec.admin_comment), text(spec.system_comment)
    record.extra = text(spec.extra) if "job_extra" in keep else ""
    record.script_key = spec.script_key if "job_script" in keep else ""
    record.environment_key = spec.environment_key if "job_env" in keep else ""
    record.scheduler, record.association_id = job.scheduler, job.association
    record.mcs_label = text(spec.mcs_label, NAME_LENGTH)
    record.container = _bundle(spec.container)


def allocate(
    record: JobRecord,
    allocation: Allocation,
    billing: float | None = None,
    taken: tuple[tuple[str, int], ...] = (),
) -> None:
    """Fill in the job's allocation. `billing`: None means the number of CPUs; `taken`: licenses."""
    record.nodes, record.node_count = hostlist.compress(allocation.names), len(allocation.nodes)
    allocated = job_tres.allocated_pairs(allocation, billing)
    record.cpus = allocated[0][1]
    record.tres_allocated = tres_text((*allocated, *licenses.pairs(taken)))


def step_record_of(number: int, step: Step) -> StepRecord:
    """The record of a whole step."""
    spec = step.spec
    shares = tuple(node.allocation for node in step.nodes)
    allocated = job_tres.pairs_of(shares)
    return StepRecord(
        number=number,
        step_id=step.step_id,
        job_id=step.job_id,
        name=text(spec.name or step_name(step.step_id), NAME_LENGTH),
        state=step.state.value,
        started_at=step.started_at,
        ended_at=step.ended_at,
        exit_status=step.exit_status,
        oom=step.oom,
        tasks=step.tasks,
        cpus=allocated[0][1],
        nodes=hostlist.compress(step.node_names),
        node_count=len(shares),
        tres_allocated=tres_text(tuple([pair for pair in allocated if pair[0] != "billing"])),
        layout=text(spec.distribution, NAME_LENGTH),
        submit_line=text(spec.submit_line),
        work_dir=text(spec.work_dir),
        stdin=text(spec.stdin),
        stdout=text(spec.stdout),
        stderr=text(spec.stderr),
        container=_bundle(spec.container),
    )


def _bundle(container: ContainerOptions | None) -> str | None:
    return text(container.bundle) if container is not None and container.bundle else None
