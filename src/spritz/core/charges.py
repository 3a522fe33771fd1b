"""What one job counts for the limits of its association and QOS: pending as submitted, running with what it holds.

Source: https://slurm.schedmd.com/resource_limits.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.job_tres import allocated
from spritz.model.resources import mask_of
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.model.job import Job
    from spritz.model.limits.ledger import Key, Ledger
    from spritz.model.limits.rules import Rules

#: keys, running jobs, submitted jobs, TRES
Charge = tuple[tuple["Key", ...], int, int, tuple[tuple[str, int], ...]]


def charge_of(rules: Rules, job: Job) -> Charge | None:
    """The share of a job that has not ended; None: there is no policy."""
    if not rules.known:
        return None
    spec = job.spec
    keys = rules.party(spec.account, spec.user, job.partition, spec.qos).keys
    if job.state is JobState.PENDING:
        count = 1 if job.array is None else mask_of(job.array.pending).bit_count()
        return (keys, 0, count, ()) if count else None
    licenses = tuple((f"license/{name}", count) for name, count in job.licenses)
    return keys, 1, 1, (*allocated(job), *licenses)


def add_charge(ledger: Ledger, charge: Charge | None, sign: int) -> None:
    """Count it, or (`sign` -1) count it no longer."""
    if charge is not None:
        keys, jobs, submitted, tres = charge
        ledger.add(keys, jobs=jobs, submitted=submitted, tres=tres, sign=sign)
