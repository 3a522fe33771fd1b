"""The amounts of one job that count towards the limits of its association and QOS, and towards their usage.

A pending job counts as submitted; a running job counts with the resources that it holds, and adds to usage while it
runs.

Source: https://slurm.schedmd.com/resource_limits.html; sshare(1) RawUsage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spritz.core.flags import POWER_UP_NODE
from spritz.core.job.eligibility import accrues_age, awaits_accrual
from spritz.model.ids import INFINITE
from spritz.model.limits.usage import Rates, Usage, rates_of
from spritz.model.reasons import CORE_REASONS
from spritz.model.resources import mask_of
from spritz.model.rules.job_tres import allocated
from spritz.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.core.undo import Undo
    from spritz.model.job.record import Job
    from spritz.model.limits.ledger import Ledger, LedgerKey
    from spritz.model.limits.minutes import Minutes
    from spritz.model.limits.rules import Rules


class Charge(NamedTuple):
    """Where a job counts (`keys`), as how many jobs, and with which TRES.

    `rates`: usage per second (empty while it is suspended). `until`: end of its time limit, if a limit needs it.
    `left`: what a suspended job has left of it, in seconds. `factor`: UsageFactor.
    """

    keys: tuple[LedgerKey, ...]
    jobs: int
    submitted: int
    tres: tuple[tuple[str, int], ...] = ()
    rates: Rates = ()
    until: float = 0.0
    left: float | None = None
    factor: float = 1.0
    #: how many of its pending tasks accrue age priority, and whether the others wait for a limit to let them
    accruing: int = 0
    accrual_waits: bool = False
    #: its nodes, if a limit needs them
    nodes: tuple[str, ...] = ()


def charge_of(rules: Rules, job: Job) -> Charge | None:
    """The charge of a job that has not ended; None if there is no policy."""
    if not rules.known:
        return None
    spec = job.spec
    if job.state is JobState.PENDING:
        keys = rules.keys(spec.account, spec.user, spec.partitions or (job.partition,), spec.qos)
        count = 1 if job.array is None else mask_of(job.array.pending).bit_count()
        if not count:
            return None
        # No TRES: limits on resources are checked when the job would start, by what it would get.
        return Charge(keys, 0, count, accruing=count if accrues_age(job) else 0, accrual_waits=awaits_accrual(job))
    keys = rules.job_limits(spec.account, spec.user, job.partition, spec.qos).keys
    licenses = tuple((f"license/{name}", count) for name, count in job.licenses)
    tres = (*allocated(job), *licenses)
    factor = rules.usage_factor(spec.qos)
    until = _until(job) if rules.foresees else 0.0
    left = seconds_ahead(job, job.suspended_at) if until and job.state is JobState.SUSPENDED else None
    rates: Rates = ()
    # Time in which nodes are powered up or the job is suspended counts towards no usage, although it holds its TRES.
    if job.state is JobState.RUNNING and not job.flags & POWER_UP_NODE:
        # Without a billing weight a job is billed for its CPUs, the first of its TRES.
        rates = rates_of(tres, job.billing if job.billing is not None else float(tres[0][1]), factor)
    nodes = job.allocation.names if rules.shares_nodes and job.allocation is not None else ()
    return Charge(keys, 1, 1, tres, rates, until, left, factor, nodes=nodes)


def seconds_ahead(job: Job, now: float) -> float:
    """Seconds that an active job may still use, until its time limit; a suspended one keeps those that were left."""
    return max(0.0, _until(job) - (job.suspended_at if job.state is JobState.SUSPENDED else now))


def _until(job: Job) -> float:
    return job.ends_at or job.started_at + INFINITE * 60.0


def same_charge(old: Job, new: Job) -> bool:
    """Whether `charge_of` certainly gives the same for both records. A quick test that may be wrongly False."""
    return (
        old.state is new.state
        and old.spec is new.spec
        and old.allocation is new.allocation
        and old.array is new.array
        and old.flags == new.flags
        and old.partition == new.partition
        and old.licenses == new.licenses
        and old.ends_at == new.ends_at
        and old.eligible_at == new.eligible_at
        and old.accrued_at == new.accrued_at
        and (old.reason is new.reason or (old.reason in CORE_REASONS) is (new.reason in CORE_REASONS))
    )


def add_charge(ledger: Ledger, minutes: Minutes, charge: Charge, sign: int, at: float) -> None:
    """Add the charge, or (`sign` -1) remove it, from time `at` on."""
    ledger.add(
        charge.keys,
        jobs=charge.jobs,
        submitted=charge.submitted,
        accruing=charge.accruing,
        tres=charge.tres,
        nodes=charge.nodes,
        sign=sign,
    )
    if charge.rates:
        minutes.usage.change(charge.keys, charge.rates, sign, at)
    if charge.until:
        minutes.committed.add(charge.keys, charge.tres, charge.until, charge.factor, sign, charge.left)


def note_charge(undo: Undo, ledger: Ledger, minutes: Minutes, charge: Charge, sign: int, at: float) -> None:
    """Note how to take back `add_charge` with these arguments."""
    if charge.rates:  # sums of fractions: adding and subtracting is not enough
        for key in charge.keys:
            if key[0] in ("a", "q"):
                entry = minutes.usage.entries.get(key)
                undo.note(minutes.usage.put_back, key, entry.copy() if entry is not None else None)
    counts = charge._replace(rates=())
    undo.note(add_charge, ledger, minutes, counts, -sign, at)


def fit_usage(usage: Usage, old: Rules, new: Rules, at: float) -> None:
    """Adapt usage to a new policy: forget that of deleted associations and QOS; moved accounts take theirs along."""
    parents, before = new.parents(), old.parents()
    existing = {("a", association.id) for association in new.policy.associations} | {("q", name) for name in new.qos}
    for key in [key for key in usage.entries if key not in existing]:
        del usage.entries[key]
    if any(parents.get(number, above) != above for number, above in before.items()):
        usage.retree(parents, (association.id for association in new.policy.associations if association.user), at)


def reset_usage(usage: Usage, rules: Rules, keys: Iterable[LedgerKey], at: float) -> None:
    """Forget the usage of these keys and of all associations below them, and subtract it from the accounts above."""
    parents = rules.parents()
    forgotten: dict[LedgerKey, None] = {}
    for key in keys:
        forgotten[key] = None
        entry = usage.entries.get(key)
        if key[0] != "a" or entry is None:
            continue
        entry.advance(at)
        lost = dict(entry.amounts)
        for number in _above(parents, int(key[1])):
            other = usage.entries.get(("a", number))
            if other is not None:
                other.advance(at)
                for name, amount in lost.items():
                    other.amounts[name] = max(0.0, other.amounts.get(name, 0.0) - amount)
        for number in parents:
            if key[1] in _above(parents, number):
                forgotten["a", number] = None
    usage.reset(at, forgotten)


def _above(parents: Mapping[int, int], number: int) -> list[int]:
    ancestors: list[int] = []
    while number in parents and len(ancestors) < len(parents):
        number = parents[number]
        ancestors.append(number)
    return ancestors
