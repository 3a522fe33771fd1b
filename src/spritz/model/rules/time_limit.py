"""How long a job may run: its own limit, or the one that its partition gives it.

Source: sbatch(1) --time, --time-min, --deadline; slurm.conf(5) DefaultTime, MaxTime; sacctmgr(1) PartitionTimeLimit;
answers of Slurm 22.05 (docs/decisions/0154).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.ids import INFINITE
from spritz.model.limits import flags

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz.model.job.record import JobRequest, JobSpec
    from spritz.model.node.partition import Partition

#: a job without a time limit is planned to hold its resources for this long, as in Slurm's backfill and reservations
YEAR_SECONDS = 365 * 86_400.0


def limit_minutes(spec: JobRequest, partition: Partition) -> int:
    """The job's own time limit, else DefaultTime, else MaxTime, in minutes (INFINITE: none).

    A DefaultTime above MaxTime is not cut: the job then waits for PartitionTimeLimit, as if it had asked for that time.
    """
    minutes = spec.time_limit_minutes
    if minutes is None:
        minutes = partition.default_time_minutes
    if minutes is None:
        minutes = partition.max_time_minutes
    return minutes or INFINITE


def with_default(spec: JobSpec, partition: Partition) -> JobSpec:
    """The spec with the DefaultTime of the partition that it names first, if it has no limit of its own.

    Later changes of DefaultTime do not affect the job, and it keeps the limit in whatever partition it starts. A job
    whose first partition has no DefaultTime gets its limit from the partition in which it starts.
    """
    if spec.time_limit_minutes is not None or partition.default_time_minutes is None:
        return spec
    return replace(spec, time_limit_minutes=partition.default_time_minutes)


def longest_minutes(spec: JobSpec, partition: Partition, lifted: Collection[str]) -> int:
    """MaxTime as it applies to the job, in minutes (INFINITE: it does not apply).

    `lifted`: flags of its QOS. MaxTime does not apply to a limit set by an operator either.
    """
    free = flags.PARTITION_TIME_LIMIT in lifted or "time" in spec.exempt
    return INFINITE if free else partition.max_time_minutes


def exceeds(spec: JobSpec, partition: Partition, lifted: Collection[str]) -> bool:
    """Whether the job asks for more than MaxTime. With --time-min that minimum counts."""
    asked = spec.time_min_minutes or limit_minutes(spec, partition)
    return asked > longest_minutes(spec, partition, lifted)


def granted_minutes(spec: JobSpec, partition: Partition, lifted: Collection[str], most: int | None = None) -> int:
    """The time limit of a start in the partition, in minutes (INFINITE: none).

    With --time-min it is shortened to MaxTime and to `most` minutes, but never below --time-min.
    """
    minutes = limit_minutes(spec, partition)
    if not spec.time_min_minutes:
        return minutes
    minutes = min(minutes, longest_minutes(spec, partition, lifted))
    return max(minutes if most is None else min(minutes, most), spec.time_min_minutes)


def held_seconds(minutes: int) -> float:
    """How long a job with this limit is planned to hold its resources, in seconds."""
    return YEAR_SECONDS if minutes >= INFINITE else minutes * 60.0
