"""The output of --test-only and --gres=help, and the wait of --wait.

Source: sbatch(1), srun(1) --test-only; texts of Slurm 22.05.
"""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Protocol

from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError, RemoteError
from spritz.client.locate import read_keys
from spritz.model.commands.job import WillRun
from spritz.model.queries.jobs import AwaitEnd, JobEndedReply
from spritz.notation.times import format_time

#: Seconds for which --wait keeps looking for a controller that does not answer.
_PATIENCE_SECONDS = 300.0

if TYPE_CHECKING:
    from typing import TypeVar

    from msgspec import Struct

    from spritz.cli.call.context import Context
    from spritz.model.commands.job import SubmitHetJob, SubmitJob

    T = TypeVar("T")


class Asked(Protocol):
    """A connection to the controller."""

    def call(self, request: Struct, reply_type: type[T], /) -> T: ...


def test_only(controller: Asked, request: SubmitJob | SubmitHetJob, context: Context) -> int:
    """Print when and where the job would start; return the exit status.

    As in Slurm, the message of a refusal lacks the program's name here.
    """
    try:
        plan = controller.call(request, WillRun)
    except RemoteError as error:
        for detail in error.details if error.code == "ESLURM_INVALID_PARTITION_NAME" else error.told:
            context.error(detail)
        context.err(f"allocation failure: {error.message}\n")
        return 1
    for message in plan.messages:
        context.info(message)
    when = format_time(plan.start_at)
    context.info(
        f"Job {plan.job_id} to start at {when} using {plan.cpus} processors on nodes {plan.nodes} "
        f"in partition {plan.partition}"
    )
    return 0


def await_end(job_id: int) -> int:
    """--wait: the job's exit status, the highest of an array's tasks; 1 if a signal ended the job.

    Asks again if the controller restarts. Differs: 1 for a job that was cancelled before it ran; Slurm returns 0.
    """
    away_since = 0.0
    while True:
        try:
            with connect_controller() as controller:
                away_since = 0.0
                end = controller.call(AwaitEnd(job_id=job_id), JobEndedReply, timeout=None)
                status = 1 if end.exit_status & 0x7F else end.exit_status >> 8 & 0xFF
                return status or int(end.state != "COMPLETED")
        except RemoteError:
            raise
        except ClientError:
            away_since = away_since or monotonic()
            if monotonic() - away_since > _PATIENCE_SECONDS:
                raise
        sleep(1.0)


def gres_help(context: Context) -> int:
    """--gres=help: print the GRES of slurm.conf."""
    types = read_keys(frozenset(("grestypes",))).get("grestypes", "")
    context.out("Valid gres options are:\n")
    for name in types.split(","):
        if name:
            context.out(f"{name}[[:type]:count]\n")
    return 0
