"""The time limit of a job that asks for none, if limits bound how long it may run.

Source: answers of Slurm 22.05; sacctmgr(1) MaxWall, GrpWall, GrpTRESMins, GrpTRESRunMins, MaxTRESMins, DenyOnLimit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.flags import DENY_ON_LIMIT
from spritz.model.limits.minutes import job_bounds
from spritz.model.limits.reasons import Excess
from spritz.model.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spritz.model.limits.job_limits import JobLimits


def longest_minutes(job_limits: JobLimits, wanted: Mapping[str, int]) -> int | Excess | None:
    """The longest time in minutes that limits permit for these TRES; None: any. Excess: an association permits no time,
    and the job is refused.

    Of the QOS the least limit counts. If they have none, the first limit from the job's association upward counts,
    GrpWall before MaxWall. With DenyOnLimit the time is also at most what its TRES limits can last.
    """
    walls = [qos_record.record.max_wall for qos_record in job_limits.qos if qos_record.record.max_wall is not None][:1]
    walls += [qos_record.record.grp_wall for qos_record in job_limits.qos if qos_record.record.grp_wall is not None][:1]
    least: int | None = min(walls, default=None)
    if least is None:
        least, reason = next(_of_associations(job_limits), (None, Reason.NONE))
        if least == 0:
            return Excess(reason)
    if any(DENY_ON_LIMIT in qos_record.flags for qos_record in job_limits.qos):
        lasting = [limit // wanted[name] for name, limit in job_bounds(job_limits) if wanted.get(name)]
        least = min([*lasting, *([] if least is None else [least])], default=None)
    return least


def _of_associations(job_limits: JobLimits) -> Iterator[tuple[int, Reason]]:
    for level, association in enumerate(job_limits.chain):
        above_all = not association.record.user and not association.record.parent
        if association.record.grp_wall is not None and not above_all:
            yield association.record.grp_wall, Reason.ASSOC_GRP_WALL
        if level == 0 and association.max_wall is not None:
            yield association.max_wall, Reason.ASSOC_MAX_WALL
