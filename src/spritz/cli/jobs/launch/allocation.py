"""A job for srun or salloc: submit it, wait until it runs, and complete it at the end.

Source: srun(1), salloc(1); texts of Slurm 22.05.
"""

from __future__ import annotations

import signal
from time import monotonic, sleep
from typing import TYPE_CHECKING

from spritz.cli.call import clusters
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.jobs.launch.controller import PATIENCE_SECONDS, Interrupted
from spritz.cli.jobs.submit.values import IMMEDIATE
from spritz.client.errors import ClientError, RemoteError
from spritz.client.locate import locate_controller
from spritz.model.commands.job import CancelJobs, CancelResult, Done, FinishAllocation, JobSubmitted, SubmitHetJob
from spritz.model.errors import ESLURM, SpritzError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.reasons import Reason
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.cli.call.context import Context
    from spritz.cli.jobs.launch.controller import Controller
    from spritz.cli.jobs.launch.interrupts import Interrupts
    from spritz.model.commands.job import SubmitJob
    from spritz.model.job.record import Job
    from spritz.model.queries.allocations import AllocationGranted

#: Seconds within which a grant counts as immediate, without a message about waiting.
_AT_ONCE_SECONDS = 0.3


class Words:
    """Messages that differ between srun and salloc."""

    def __init__(self, refused: str, waiting: str = "", revoked: str = "") -> None:
        #: precedes the reason of a refusal
        self.refused = refused
        #: printed first if the job must wait; `{}` is its id
        self.waiting = waiting
        #: printed if a signal ended the wait
        self.revoked = revoked


SRUN = Words("Unable to allocate resources", revoked="Job allocation {} has been revoked")
SALLOC = Words("Job submit/allocate failed", "Pending job allocation {}", "Job allocation {} has been revoked.")


class Revoked(AlreadyReported):
    """A signal ended the wait for the allocation."""


def obtain(
    controller: Controller,
    interrupts: Interrupts,
    request: SubmitJob | SubmitHetJob,
    context: Context,
    words: Words,
    *,
    quiet: bool,
) -> AllocationGranted:
    """Submit the job and wait until it runs. Raises SpritzError, Revoked."""
    controller.send(request)
    interrupts.handler = lambda number: controller.interrupt(number) if number not in HARMLESS else None
    try:
        submitted = _submitted(controller, request)
    except RemoteError as error:
        submitted = _submitted_elsewhere(controller, request, error, words)
    except Interrupted as error:
        raise Revoked from error
    if not quiet:
        for message in submitted.messages:
            context.info(message)
    # In Slurm only a scheduling pass starts a heterogeneous job, so the job always waits and the command says so.
    waits = isinstance(request, SubmitHetJob)
    quiet = quiet or _immediate_seconds(request) == 1
    granted = _await(controller, submitted, context, words, quiet=quiet, waits=waits)
    if granted.job.state.active:
        return granted
    raise _ended(granted, request, context, words)


def _submitted(controller: Controller, request: SubmitJob | SubmitHetJob) -> JobSubmitted:
    """The answer to the submission. If the connection breaks, repeats the submission until MessageTimeout.

    Raises RemoteError, Interrupted, ClientError.
    """
    deadline = 0.0
    while True:
        try:
            if deadline:
                controller.connect_patiently(max(0.0, deadline - monotonic()))
                controller.send(request)
            submitted = controller.wait(JobSubmitted)
            assert submitted is not None, "a wait without a limit ends with an answer"
            return submitted
        except RemoteError:
            raise
        except ClientError as error:
            from spritz.client.command.submission_retry import RETRY_SECONDS, outcome_unknown

            controller.close()
            if deadline and monotonic() + RETRY_SECONDS >= deadline:
                raise outcome_unknown(error) from error
            deadline = deadline or monotonic() + locate_controller().message_timeout_seconds
            sleep(RETRY_SECONDS)


def _submitted_elsewhere(
    controller: Controller, request: SubmitJob | SubmitHetJob, refusal: RemoteError, words: Words
) -> JobSubmitted:
    """The answer of another cluster of the federation, if this one cannot hold the job. Raises SpritzError."""
    from spritz.cli.jobs.submit.first_cluster import taken_elsewhere

    def again() -> JobSubmitted:
        controller.look_again()
        controller.send(request)
        return _submitted(controller, request)

    try:
        return taken_elsewhere(refusal, request, again)
    except RemoteError as error:
        raise refused(error, words) from error
    except Interrupted as error:
        raise Revoked from error


#: Signals that do not end the wait.
HARMLESS = (signal.SIGCONT, signal.SIGWINCH)


def _await(
    controller: Controller, submitted: JobSubmitted, context: Context, words: Words, *, quiet: bool, waits: bool
) -> AllocationGranted:
    from spritz.model.queries.allocations import AllocationGranted, AwaitAllocation

    job_id = submitted.job_id
    request = AwaitAllocation(job_id=job_id)
    waited = False
    controller.send(request)
    while True:
        if waits and not waited:
            waited = True
            if not quiet:
                if words.waiting:
                    context.info(words.waiting.format(job_id))
                context.info(f"job {job_id} queued and waiting for resources")
        try:
            granted = controller.wait(AllocationGranted, seconds=None if waited else _AT_ONCE_SECONDS)
        except Interrupted as interruption:
            _give_up(controller, job_id, context, words)
            raise Revoked from interruption
        except RemoteError as error:
            raise refused(error, words) from error
        except ClientError:
            # The controller does not answer, but knows the job: wait until it is back.
            controller.close()
            controller.connect_patiently(PATIENCE_SECONDS)
            controller.send(request)
            continue
        if granted is not None and granted.job.state is JobState.PENDING:
            _move(controller, granted.job)
            controller.send(request)
        elif granted is not None:
            break
        waits = waits or granted is None
    if waited and granted.job.state.active and not quiet:
        context.info(f"job {job_id} has been allocated resources")
    return granted


def _move(controller: Controller, job: Job) -> None:
    """Another cluster of the federation has started the job: from here on the client speaks to that cluster.

    Raises SpritzError if it cannot be reached from here; the job is cancelled then.
    """
    assert job.federation is not None, "only a federated job is granted by another cluster"
    origin, cluster = locate_controller(), job.federation.runs_on
    try:
        clusters.use(clusters.named(cluster))
        controller.look_again()
    except SpritzError as error:
        clusters.use(origin)
        controller.look_again()
        cancel(controller, job.id)
        raise SpritzError(
            f"Job {job.id} started on cluster {cluster}, which cannot be reached from here: {error.message}",
            code=error.code,
            hint=error.hint,
        ) from error


def cancel(controller: Controller, job_id: int) -> None:
    """Cancel the job, as scancel does."""
    command = CancelJobs(filter=JobFilter(targets=(JobTarget(job_id),)))
    controller.call(command, CancelResult, patience=PATIENCE_SECONDS)


def _give_up(controller: Controller, job_id: int, context: Context, words: Words) -> None:
    controller.close()
    try:
        cancel(controller, job_id)
    except ClientError as error:
        context.error(error.message)
    context.info(words.revoked.format(job_id))


def refused(error: SpritzError, words: Words) -> SpritzError:
    """The controller's refusal, or an error that it would report, with the command's message."""
    if error.code == "ESLURM_INVALID_GRES":  # Slurm's commands check this before they ask the controller
        return SpritzError(error.message, code=error.code, hint=error.hint, details=error.details)
    before = SRUN.refused if error.code in IMMEDIATE else words.refused
    return SpritzError(f"{before}: {error.message}", code=error.code, hint=error.hint, details=error.details)


def _ended(
    granted: AllocationGranted, request: SubmitJob | SubmitHetJob, context: Context, words: Words
) -> SpritzError:
    seconds = _immediate_seconds(request)
    if seconds is not None:
        if words is SALLOC:
            context.info(words.revoked.format(granted.job.id))
            if seconds > 1:
                return SpritzError(f"{SRUN.refused}: Connection timed out")
        return SpritzError(f"{SRUN.refused}: {ESLURM['ESLURM_NODES_BUSY'][1]}", code="ESLURM_NODES_BUSY")
    _tell_why(granted.job, context)
    if words is SALLOC:
        context.info(words.revoked.format(granted.job.id))
    return SpritzError(f"{words.refused}: {ESLURM['ESLURM_ALREADY_DONE'][1]}", code="ESLURM_ALREADY_DONE")


def _tell_why(job: Job, context: Context) -> None:
    """Say why the job ended before its command could run."""
    if job.state is JobState.NODE_FAIL:
        context.error(f"Node failure on {job.failed_node}")
    elif job.reason is Reason.LAUNCH_FAILURE and job.reason_detail:
        context.error(f"{job.failed_node and f'{job.failed_node}: '}{job.reason_detail}")
    else:
        context.info("Job has been cancelled")


def _immediate_seconds(request: SubmitJob | SubmitHetJob) -> int | None:
    """Seconds of --immediate, None without it. The minimum is 1, which means at once."""
    leader = request.components[0] if isinstance(request, SubmitHetJob) else request
    return None if leader.immediate_seconds is None else max(leader.immediate_seconds, 1)


def give_back(controller: Controller, job_id: int, exit_status: int, *, out_of_memory: bool = False) -> None:
    """Complete the job. Waits for a controller that does not answer: until then, the nodes stay allocated."""
    try:
        finished = FinishAllocation(job_id=job_id, exit_status=exit_status, out_of_memory=out_of_memory)
        controller.call(finished, Done, patience=PATIENCE_SECONDS)
    except RemoteError:
        return  # the job has ended already: cancelled, or out of time
