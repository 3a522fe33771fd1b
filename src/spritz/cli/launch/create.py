"""CreateStep: each refusal in srun's words, and the wait for resources that other steps hold.

Source: srun(1); texts as Slurm 22.05 prints them.
"""

from __future__ import annotations

from spritz.cli.launch.controller import Interrupted
from spritz.cli.silent import Silent
from spritz.client.errors import RemoteError
from spritz.model.commands.step import CreateStep, StepCreated
from spritz.model.errors import ESLURM, SpritzError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spritz.cli.context import Context
    from spritz.cli.launch.controller import Controller
    from spritz.cli.launch.settings import Settings
    from spritz.model.step import Step, StepSpec

#: refusals that time will cure
_BUSY = frozenset({"ESLURM_NODES_BUSY", "ESLURM_PROLOG_RUNNING", "ESLURM_PORTS_BUSY"})


def create_step(
    controller: Controller, job_id: int, spec: StepSpec, settings: Settings, context: Context, *, immediate: bool
) -> Step:
    """The step, as the controller laid it out and is launching it now. Raises SpritzError."""
    try:
        created = controller.call(CreateStep(job_id=job_id, spec=spec), StepCreated)
    except RemoteError as error:
        if immediate or error.code not in _BUSY:
            raise worded(error, job_id, context) from error
        created = _wait(controller, job_id, spec, settings, context, error.message)
    for message in created.messages:
        context.info(message)
    return created.step


def _wait(
    controller: Controller, job_id: int, spec: StepSpec, settings: Settings, context: Context, why: str
) -> StepCreated:
    if not settings.quiet:
        context.info(f"Job {job_id} step creation temporarily disabled, retrying ({why})")
    controller.send(CreateStep(job_id=job_id, spec=spec, wait=True))
    try:
        created = controller.wait(StepCreated)
    except RemoteError as error:
        raise worded(error, job_id, context) from error
    except Interrupted as interruption:
        # Closing the connection takes the request back.
        controller.close()
        context.info(f"Cancelled pending job step with signal {interruption.number}")
        message = f"Unable to create step for job {job_id}: {ESLURM['ESLURM_ALREADY_DONE'][1]}"
        raise SpritzError(message, code="ESLURM_ALREADY_DONE") from interruption
    assert created is not None, "a wait without a limit ends with an answer"
    if not settings.quiet:
        context.info(f"Step created for job {job_id}")
    return created


def worded(error: RemoteError, job_id: int, context: Context) -> SpritzError:
    """What srun says when it may not make a step in this job."""
    if error.code in ("ESLURM_INVALID_JOB_ID", "ESLURM_JOB_PENDING"):
        context.error(f"Unable to confirm allocation for job {job_id}: {error.message}")
    elif error.code == "ESLURM_ALREADY_DONE":
        context.error(f"Slurm job {job_id} has expired")
    else:
        message = f"Unable to create step for job {job_id}: {error.message}"
        return SpritzError(message, code=error.code, hint=error.hint, details=error.details)
    context.info(f"Check SLURM_JOB_ID environment variable. Expired or invalid job {job_id}")
    return Silent()
