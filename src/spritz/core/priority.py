"""The priority a job has before any scheduler looks at it.

With priority/basic that is all there is: each later job gets one less. With priority/multifactor it is 1: the scheduler
reckons the factors from its own snapshot, and tells what is in force when the job starts.

Source: slurm.conf(5) PriorityType; sbatch(1) --nice, --priority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job import JobSpec

#: one more than the first job of priority/basic gets (0xffff0000)
TOP_PRIORITY = 4_294_901_760
PRIORITY_MAX = 4_294_967_295


def initial_priority(state: State, spec: JobSpec, job_id: int) -> int:
    """At least 1: 0 means held."""
    if spec.priority is not None:
        return min(max(spec.priority, 0), PRIORITY_MAX)
    settings = state.settings
    if settings.priority_multifactor:
        return 1
    return min(max(1, TOP_PRIORITY - 1 - (job_id - settings.first_job_id) - spec.nice), PRIORITY_MAX)
