"""The priority that a job has before the scheduler looks at it.

With priority/basic that is its priority: each later job gets one less. With priority/multifactor it is 1: the scheduler
computes the factors from its own snapshot, and reports the priority in force when the job starts.

Source: slurm.conf(5) PriorityType; sbatch(1) --nice, --priority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job.record import JobSpec

#: one more than the priority of the first job with priority/basic (0xffff0000)
TOP_PRIORITY = 4_294_901_760
PRIORITY_MAX = 4_294_967_295


def initial_priority(state: State, spec: JobSpec, job_id: int) -> int:
    """At least 1, since 0 means held."""
    if spec.priority is not None:
        return min(max(spec.priority, 0), PRIORITY_MAX)
    settings = state.settings
    if settings.priority_multifactor:
        return 1
    return min(max(1, TOP_PRIORITY - 1 - (job_id - settings.first_job_id) - spec.nice), PRIORITY_MAX)
