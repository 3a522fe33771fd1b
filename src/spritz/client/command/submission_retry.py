"""Repeats submissions whose answer was lost, until their outcome is known.

A controller may die between the commit of a job and its answer. The submission carries a key (`sync.submit_key`), so
repeating it queues nothing twice. srun and salloc, which also wait for signals, do this themselves.

Source: docs/decisions/0161; slurm.conf(5) MessageTimeout.
"""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING

from spritz.client.command.sync import TAKE_OVER_SECONDS, connect_controller
from spritz.client.errors import ClientError, RemoteError
from spritz.client.locate import locate_controller
from spritz.model.commands.job import JobSubmitted

if TYPE_CHECKING:
    from spritz.model.commands.job import SubmitHetJob, SubmitJob

#: Seconds between attempts.
RETRY_SECONDS = 0.05

UNKNOWN = "The controller's answer was lost, and the job may have been queued: see squeue before submitting it again"


def ask_again(request: SubmitJob | SubmitHetJob, lost: ClientError) -> JobSubmitted:
    """The answer to a submission with a key, on new connections until MessageTimeout from now.

    `lost`: how the answer was lost. Raises RemoteError if it is refused: nothing is queued; ClientError, which says
    that the outcome is unknown, if the controller does not come back.
    """
    config = locate_controller()
    deadline = monotonic() + (
        max(TAKE_OVER_SECONDS, config.message_timeout_seconds) if config.has_standby else config.message_timeout_seconds
    )
    while (remaining := deadline - monotonic()) > 0:
        try:
            with connect_controller(config, timeout=remaining, wait_seconds=remaining) as again:
                return again.call(request, JobSubmitted)
        except RemoteError:
            raise
        except ClientError as error:
            lost = error
            sleep(RETRY_SECONDS)
    raise outcome_unknown(lost)


def outcome_unknown(error: ClientError) -> ClientError:
    """The error for the user: the job may be queued."""
    return ClientError(error.message, code=error.code, hint=error.hint, details=(*error.details, UNKNOWN))
