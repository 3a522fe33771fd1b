"""Running jobs that have used up their minutes: those of their association or QOS, or their own.

Not with AccountingStorageEnforce=safe: then no job starts that could not run to its end.

Source: sacctmgr(1) GrpTRESMins, GrpWall, MaxTRESMinsPerJob. Slurm ends them like jobs at their time limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.ending import end_job
from spritz.core.policy import key_text
from spritz.model.limits.minutes import NEVER, reached, reached_at
from spritz.model.reasons import Reason
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext

#: least time before looking again at a limit that was not quite reached (seconds)
LOOK_AGAIN_SECONDS = 0.5


def end_spent(context: DecisionContext) -> None:
    """End jobs whose minutes are used up."""
    state = context.state
    due = set(state.minute_deadlines.due(context.now))
    if not due:
        return
    for job_id in list(state.running):
        job, charge = state.jobs[job_id], state.charges.get(job_id)
        if charge is None or job.state is not JobState.RUNNING or not due.intersection(map(key_text, charge.keys)):
            continue
        spec = job.spec
        job_limits = state.rules.job_limits(spec.account, spec.user, job.partition, spec.qos)
        if any(
            reached(state.usage, place, context.now) for place in job_limits.minute_limits if key_text(place.key) in due
        ):
            end_job(context, job, JobState.TIMEOUT, Reason.TIME_LIMIT)
    for key, place in state.minute_limits_by_key.items():
        if key_text(key) in due:
            # A job whose QOS sets a limit of its own goes on: it is checked again when a job starts or ends.
            spent = reached(state.usage, place, context.now)
            later = (
                NEVER if spent else max(reached_at(state.usage, place, context.now), context.now + LOOK_AGAIN_SECONDS)
            )
            state.set_minute_deadline(key_text(key), later)
