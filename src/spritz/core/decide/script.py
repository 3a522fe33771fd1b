"""The launch of a batch script: when its job is no longer CONFIGURING, nor any component of its heterogeneous job.

Source: slurm.conf(5) PrologFlags; https://slurm.schedmd.com/heterogeneous_jobs.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.job import het
from spritz.core.pending import launch
from spritz.model.ids import STEP_BATCH

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.model.job.record import Job


def launch_script(context: DecisionContext, job: Job) -> None:
    """Launch the script of the job (or of its leader) if it no longer waits for anything."""
    if het.configuring(context.state, job):
        return
    step = context.state.steps.get(job.het_job_id or job.id, {}).get(STEP_BATCH)
    if step is not None:
        context.add_effect(launch(step, step.nodes[0].allocation.node))
