"""`show job [ID]`: asks for the records and prints them. Source: scontrol(1) show job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.client.errors import RemoteError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from spritz.model.resources import mask_ids
from spritz.notation import jobid
from spritz.notation.jobid import JobReference
from spritz.presentation.job.job_record import record_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.cli.administration.control.session import Session
    from spritz.model.job.record import Job


def run(session: Session, words: list[str]) -> int:
    """`show job [ID]`: print a job, the tasks of an array, or all jobs. Returns the exit status."""
    word = words[0].strip("0") and words[0] if words else ""  # as in Slurm, job 0 is every job
    reference = None
    if word:
        try:
            reference = jobid.parse(word)
        except jobid.JobIdError:
            reference = None
        if reference is None or reference.step is not None:
            session.say("scontrol_print_job error: Invalid job id specified")
            return 1
    try:
        now, jobs, exempt_of = fetch(session, reference)
    except RemoteError as error:
        if session.quiet:
            return 1
        session.say(f"slurm_load_jobs error: {error.message}")
        return 1
    if reference is not None and reference.task_ids is None:
        # Tasks of an array: what has its number first, then from the last to the first that began.
        jobs.sort(key=lambda job: (0, job.id) if job.id == (job.array_job_id or job.id) else (1, -job.id))
    if session.json is not None:
        from spritz.presentation.json.jobs import show_records

        show_records(session.context, session.json, now, jobs, exempt_of)
        return 0
    if not jobs:
        if word:
            session.out(f"Job {word} not found\n")
            return 1
        session.out("No jobs in the system\n")
        return 0

    session.tell_age(now, len(jobs))
    session.out("".join([record_text(job, now, session.oneliner, session.details, exempt_of(job)) for job in jobs]))
    return 0


def fetch(session: Session, reference: object) -> tuple[float, list[Job], Callable[[Job], int | None]]:
    """The records; single tasks of an array's rest as records of their own. And for how long each is not preempted."""
    job_filter = JobFilter()
    tasks: int | None = None
    if isinstance(reference, JobReference):
        tasks = reference.task_ids
        mask = "" if tasks is None else format(tasks, "x")
        job_filter = JobFilter(targets=(JobTarget(reference.job_id, mask, component=reference.component),))
    controller = session.controller()
    now = 0.0
    jobs: list[Job] = []
    exempt: dict[tuple[str, str], int | None] = {}
    # A job that is named is shown, also in a hidden partition.
    query = ListJobs(filter=job_filter, all=session.all or reference is not None)
    for piece in controller.stream(query, Jobs, timeout=controller.timeout_seconds):
        now = piece.now
        exempt |= {(job.partition, job.spec.qos): piece.exempt_of(job) for job in piece.jobs}
        jobs += piece.jobs
    parts = [part for job in jobs for part in _parts(job, tasks)]
    return now, parts, lambda job: exempt[job.partition, job.spec.qos]


def _parts(job: Job, tasks: int | None) -> list[Job]:
    if tasks is None or job.array is None:
        return [job]

    pending = int(job.array.pending, 16) & tasks
    return [
        replace(job, array=None, array_of=job.array, array_job_id=job.id, array_task_id=task)
        for task in mask_ids(pending)
    ]
