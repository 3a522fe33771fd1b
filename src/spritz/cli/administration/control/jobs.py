"""Steering of jobs: hold, release, requeue, suspend, resume, top, notify, wait_job.

Source: scontrol(1); messages of 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.options import split_ids
from spritz.client.errors import RemoteError
from spritz.model.commands.job import Done, HoldJob, NotifyJob, ReleaseJob, RequeueJob, ResumeJob, SuspendJob, TopJob
from spritz.model.errors import ESLURM
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.notation import jobid
from spritz.notation.ranges import format_ids, parse_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Struct

    from spritz.cli.administration.control.session import Session

_INVALID_ID = ESLURM["ESLURM_INVALID_JOB_ID"][1]


def target_of(word: str) -> JobTarget | None:
    """A job, an array or some of its tasks; None if the word is no id."""
    try:
        reference = jobid.parse(word)
    except jobid.JobIdError:
        return None
    tasks = "" if reference.task_ids is None else format(reference.task_ids, "x")
    return JobTarget(reference.job_id, tasks, reference.step, reference.component)


def items(words: list[str]) -> list[str]:
    """Ids of several words, each a comma list; commas in brackets belong to an id."""
    return [item for word in words for item in split_ids(word)]


def named(session: Session, name: str) -> list[str]:
    """Ids of the jobs of that name that have not ended."""
    from spritz.model.queries.jobs import JobRows, ListJobs

    job_filter = JobFilter(names=tuple(name.split(",")), states=("PENDING", "RUNNING", "SUSPENDED"))
    pieces = session.controller().stream(ListJobs(filter=job_filter, fields=("id",), all=True), JobRows)
    return [str(row[0]) for piece in pieces for row in piece.rows]


def _each(session: Session, words: list[str], make: Callable[[JobTarget], Struct], last_line: str = "") -> int:
    """One request for each id. A failure is reported, and the others are processed; returns the status of the last
    failure.
    """
    status = 0
    for word in words:
        target = target_of(word)
        problem = hint = ""
        if target is None:
            problem = _INVALID_ID
        else:
            try:
                answer = session.call(make(target), Done)
                session.print_plugin_lines(answer.told)
                status = say_missing(session, target, answer) or status
            except RemoteError as error:
                session.print_plugin_lines(error.told, refused=True)
                problem, hint = error.message, error.hint
        if problem:
            status = 1
            say_refused(session, word, target, problem)
            session.hint(hint)
            if last_line and not _is_task(target):
                session.say(f"{last_line}: {problem}")
    return status


def say_refused(session: Session, word: str, target: JobTarget | None, problem: str) -> None:
    """Slurm words it in one way for a job, in another for the tasks of an array."""
    word = word.replace("[", "").replace("]", "") if _is_task(target) else word
    session.say(f"{word}: {problem}" if _is_task(target) else f"{problem} for job {word}")


def say_missing(session: Session, target: JobTarget, answer: Done) -> int:
    """If some of several tasks do not exist: the existing ones are printed first, as in 22.05's scontrol."""
    if not answer.missing:
        return 0

    done = format_ids(int(target.tasks, 16) & ~parse_ids(answer.missing))
    session.say(f"{target.job_id}_{done}: No error")
    session.say(f"{target.job_id}_{answer.missing}: {_INVALID_ID}")
    return 1


def _is_task(target: JobTarget | None) -> bool:
    return target is not None and bool(target.tasks)


def _chosen(session: Session, words: list[str]) -> list[str]:
    """The job ids, or `jobname=…`."""
    chosen = []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key.lower() in ("jobname", "name"):
            # A name that no job has is reported like an unknown job id.
            chosen += named(session, value) or [word]
        else:
            chosen += items([word])
    return chosen


def hold(session: Session, words: list[str]) -> int:
    return _each(session, _chosen(session, words), lambda target: HoldJob(target=target), "slurm_suspend error")


def uhold(session: Session, words: list[str]) -> int:
    """Hold jobs so that their owners can release them, also if an operator asks (`scontrol uhold`)."""
    return _each(
        session, _chosen(session, words), lambda target: HoldJob(target=target, by_user=True), "slurm_suspend error"
    )


def release(session: Session, words: list[str]) -> int:
    return _each(session, _chosen(session, words), lambda target: ReleaseJob(target=target), "slurm_suspend error")


def _outlive_own_job(session: Session) -> None:
    """A job may requeue itself and want to know whether that worked (submitit does): the SIGTERM that ends it is on its
    way together with the answer.
    """
    if "SLURM_JOB_ID" in session.context.environ:
        import signal  # with `enum` and all that it needs

        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def requeue(session: Session, words: list[str]) -> int:
    """`scontrol requeue [incomplete] JOBS`: put jobs back into the queue. Returns the exit status."""
    _outlive_own_job(session)
    incomplete = words[0].lower() == "incomplete"
    if incomplete:
        words = words[1:]
    return _each(session, items(words), lambda target: RequeueJob(target=target, incomplete_only=incomplete))


def requeue_hold(session: Session, words: list[str]) -> int:
    """`scontrol requeuehold [incomplete] [State=SpecialExit] JOBS`: the same, and hold them."""
    _outlive_own_job(session)
    special = incomplete = False
    while words and (words[0].lower() == "incomplete" or words[0].lower().startswith("state=")):
        word, *words = words
        if word.lower() == "incomplete":
            incomplete = True
        elif word.partition("=")[2].lower() in ("specialexit", "se", "special_exit"):
            special = True
        else:
            session.say(f"Invalid state specified: {word}")
            return 1
    return _each(
        session,
        items(words),
        lambda target: RequeueJob(target=target, hold=True, special_exit=special, incomplete_only=incomplete),
    )


def suspend(session: Session, words: list[str]) -> int:
    return _each(session, items(words), lambda target: SuspendJob(target=target))


def resume(session: Session, words: list[str]) -> int:
    return _each(session, items(words), lambda target: ResumeJob(target=target))


def top(session: Session, words: list[str]) -> int:
    """Move pending jobs before the other jobs of their owner (`scontrol top JOBS`)."""
    targets = []
    for word in items(words):
        target = target_of(word)
        if target is None:
            session.say(f"{_INVALID_ID} for job {word}")
            return 1
        targets.append(target)
    try:
        session.call(TopJob(targets=tuple(targets)), Done)
    except RemoteError as error:
        session.say(f"{error.message} for job {words[0]}")
        return 1
    return 0


def notify(session: Session, words: list[str]) -> int:
    """`scontrol notify JOB TEXT`. Returns 1 if the job is unknown or the controller refuses."""
    target = target_of(words[0])
    problem = _INVALID_ID if target is None else ""
    if target is not None:
        try:
            session.call(NotifyJob(target=target, message=" ".join(words[1:])), Done)
        except RemoteError as error:
            problem = error.message
    if problem:
        session.say(f"job notify failure: {problem}")
        return 1
    return 0


def wait_job(session: Session, words: list[str]) -> int:
    """wait_job JOB: until its nodes are ready, which here they are when it runs."""
    from spritz.model.queries.allocations import AllocationGranted, AwaitAllocation

    target = target_of(words[0])
    if target is None:
        session.context.error(f"Invalid job_id {words[0]}")
        return 1
    try:
        granted = session.call(AwaitAllocation(job_id=target.job_id), AllocationGranted, timeout=None)
    except RemoteError:
        session.context.info(f"Problem running job {words[0]}")
        return 1
    if granted.job.state.ended:
        session.context.info(f"Job {words[0]} no longer running")
        return 1
    session.context.info(f"Nodes are ready for job {words[0]}")
    return 0
