"""Create a step: srun's message for each refusal, the wait for resources that other steps hold, and recovery from a
controller's restart in between.

Source: srun(1); texts of Slurm 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.jobs.launch.controller import PATIENCE_SECONDS, Interrupted
from spritz.client.errors import ClientError, RemoteError
from spritz.model.commands.step import STEP_WAITS, CreateHetStep, CreateStep, StepCreated
from spritz.model.errors import ESLURM, SpritzError

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.cli.call.context import Context
    from spritz.cli.jobs.launch.controller import Controller
    from spritz.cli.jobs.launch.settings import Settings
    from spritz.model.job.step import Step, StepSpec

    Wording = Callable[[RemoteError, int, Context], SpritzError]

#: Seconds without a message about a busy node: srun may know the end of the previous step before the controller does.
_AT_ONCE_SECONDS = 0.3


def create_step(
    controller: Controller,
    job_id: int,
    spec: StepSpec,
    settings: Settings,
    context: Context,
    *,
    immediate: bool,
    wording: Wording | None = None,
) -> Step:
    """Create a step. Returns it with its layout; the controller is launching it. Raises SpritzError in the words of
    `wording` (default: srun's).
    """
    request = CreateStep(job_id=job_id, spec=spec, wait=True)
    return create(controller, request, settings, context, immediate=immediate, wording=wording).step


def create(
    controller: Controller,
    request: CreateStep | CreateHetStep,
    settings: Settings,
    context: Context,
    *,
    immediate: bool,
    wording: Wording | None = None,
) -> StepCreated:
    """Like `create_step`, also for a step of several components; returns all parts."""
    job_id = request.job_id
    try:
        created = _created_now(controller, request)
        asking = _Asking(controller, request)
        if created is None:
            created = asking.answer(_AT_ONCE_SECONDS)
        if created is None:
            busy = ESLURM["ESLURM_NODES_BUSY"][1]
            if immediate:
                controller.close()
                message = f"Unable to create step for job {job_id}: {busy}"
                raise SpritzError(message, code="ESLURM_NODES_BUSY")
            if not settings.quiet:
                context.info(f"Job {job_id} step creation temporarily disabled, retrying ({busy})")
            created = asking.answer(None)
            assert created is not None, "a wait without a limit ends with an answer"
            if not settings.quiet:
                context.info(f"Step created for job {job_id}")
    except RemoteError as error:
        raise (wording or worded)(error, job_id, context) from error
    except Interrupted as interruption:
        # The controller drops the request when the connection closes.
        controller.close()
        context.info(f"Cancelled pending job step with signal {interruption.number}")
        message = f"Unable to create step for job {job_id}: {ESLURM['ESLURM_ALREADY_DONE'][1]}"
        raise SpritzError(message, code="ESLURM_ALREADY_DONE") from interruption
    for message in created.messages:
        context.info(message)
    return created


def _created_now(controller: Controller, request: CreateStep | CreateHetStep) -> StepCreated | None:
    """The step, however long the controller takes to answer; None if the step has to wait.

    A request that waits would be enough to get the step. But srun says that resources are busy after
    `_AT_ONCE_SECONDS` without an answer, and by that request alone could not tell them from a slow controller. The
    second request is sent only if resources are busy.
    """
    try:
        return _Asking(controller, replace(request, wait=False)).answer(None)
    except RemoteError as error:
        if error.code not in STEP_WAITS:
            raise
    return None


class _Asking:
    """A request that is repeated if the connection breaks before the answer."""

    def __init__(self, controller: Controller, request: CreateStep | CreateHetStep) -> None:
        self._controller = controller
        self._request = request
        self._sent = False

    def answer(self, seconds: float | None) -> StepCreated | None:
        """The answer; None after `seconds` without one."""
        controller = self._controller
        while True:
            try:
                if not self._sent:
                    controller.send(self._request)
                    self._sent = True
                return controller.wait(StepCreated, seconds=seconds)
            except RemoteError:
                raise
            except ClientError:
                # The step may exist already: the controller answers the repeated request with that step.
                controller.close()
                controller.connect_patiently(PATIENCE_SECONDS)
                self._request = replace(self._request, again=True)
                self._sent = False


def worded(error: RemoteError, job_id: int, context: Context) -> SpritzError:
    """srun's error for a refused step. Prints the messages that precede it."""
    if error.code in ("ESLURM_INVALID_JOB_ID", "ESLURM_JOB_PENDING"):
        context.error(f"Unable to confirm allocation for job {job_id}: {error.message}")
    elif error.code == "ESLURM_ALREADY_DONE":
        context.error(f"Slurm job {job_id} has expired")
    elif error.code == "ESLURMD_CPU_BIND_ERROR":
        if error.hint:
            context.error(error.hint)
        return SpritzError(f"Application launch failed: {error.message}", code=error.code)
    else:
        message = f"Unable to create step for job {job_id}: {error.message}"
        return SpritzError(message, code=error.code, hint=error.hint, details=error.details)
    context.info(f"Check SLURM_JOB_ID environment variable. Expired or invalid job {job_id}")
    return AlreadyReported()
