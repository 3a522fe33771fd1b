"""The priority a job has before any scheduler looks at it.

With priority/basic that is all there is: each later job gets one less. With priority/multifactor the scheduler adds
age and the other factors from its own snapshot; what is stored here is the base, so that equal jobs compare equal and
the older goes first.

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
        name = spec.partitions[0] if spec.partitions else ""
        partition = state.partitions.get(name)
        base = settings.priority_weight_partition if partition is not None else 0
        if partition is not None and base:
            largest = max(item.priority_job_factor for item in state.partitions.values()) or 1
            base = round(base * partition.priority_job_factor / largest)
        return max(1, base - spec.nice)
    return min(max(1, TOP_PRIORITY - 1 - (job_id - settings.first_job_id) - spec.nice), PRIORITY_MAX)
