"""Jobs that wait for nodes to come up go on when all of them are.

Source: slurm.conf(5) ResumeProgram; squeue(1) CONFIGURING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide import prolog
from spritz.core.flags import POWER_UP_NODE
from spritz.core.power import needs_power_up
from spritz.model.events.job import JobNodesUp
from spritz.model.ids import INFINITE

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.model.job.record import Job


def nodes_came_up(context: DecisionContext, name: str) -> None:
    """A node has registered: start the time of jobs that wait for no other node."""
    for job_id in list(context.state.uses[name].jobs):
        begin_if_up(context, context.state.jobs[job_id])


def begin_if_up(context: DecisionContext, job: Job) -> None:
    """Start the job's time if all its nodes are up."""
    if not job.flags & POWER_UP_NODE or job.allocation is None or needs_power_up(context.state, job.allocation):
        return
    minutes = INFINITE if job.time_limit_minutes is None else job.time_limit_minutes
    ends_at = 0.0 if minutes >= INFINITE else context.now + minutes * 60.0
    context.record(JobNodesUp(at=context.now, job_id=job.id, ends_at=ends_at))
    if not context.state.settings.prolog_slurmctld:
        prolog.prepare(context, context.state.jobs[job.id])
