"""Job ids that were given by events which are lost: the journal was damaged, or an older copy of it was restored.

They are not given again. Jobs with these ids may run on nodes, and accounting has records of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.job.siblings import own_number
from spritz.model.commands.job import Done
from spritz.model.events.cluster import JobIdsSkipped
from spritz.model.federation import local_number, origin_number

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.model.commands.cluster import SkipJobIds


def skip_job_ids(context: DecisionContext, command: SkipJobIds) -> Done:
    """See `SkipJobIds`."""
    skip_below(context, command.below)
    skip_seen(context, command.seen)
    return Done()


def skip_below(context: DecisionContext, number: int) -> None:
    """Give no job id below this number, unless all up to MaxJobId have been given."""
    state = context.state
    if state.next_job_id < number <= state.settings.max_job_id:
        context.record(JobIdsSkipped(at=context.now, next_job_id=number))


def skip_seen(context: DecisionContext, job_id: int) -> None:
    """A node or slurmdbd has seen this job id: give only later ones. Ids begin again after MaxJobId, so one that is far
    ahead was given before that.
    """
    state = context.state
    settings, number = state.settings, local_number(job_id)
    ahead = number - state.next_job_id
    if origin_number(job_id) == own_number(state) and 0 <= ahead < (settings.max_job_id - settings.first_job_id) // 2:
        skip_below(context, number + 1)
