"""What a job counts towards the limits of associations and QOS, and which users its limits bind.

Uses the checks and the ledger of `model.limits`, as the core does, so that the core accepts what is planned here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.rules.job_tres import allocated_pairs, wanted_pairs
from spritz.model.rules.whole_nodes import with_whole_nodes
from spritz.scheduling.view.records import Charge

if TYPE_CHECKING:
    from spritz.model.job.record import JobSpec
    from spritz.model.limits.ledger import Ledger
    from spritz.model.limits.rules import Rules
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Billed, Request


def count_charge(ledger: Ledger, charge: Charge, sign: int = 1) -> None:
    """Add a running job's charge, or (`sign` -1) remove it."""
    ledger.add(charge.keys, jobs=1, tres=charge.tres, nodes=charge.nodes, sign=sign)


def charge_of(rules: Rules, record: JobRecord, allocation: Allocation) -> Charge:
    """The charge of a job that holds this allocation."""
    spec = record.spec
    keys = rules.job_limits(spec.account, spec.user, allocation.partition, spec.qos).keys
    licenses = tuple((f"license/{name}", count) for name, count in record.licenses.items())
    tres = tuple(rules.priced(allocation.partition, (*allocated_pairs(allocation), *licenses)))
    return Charge(keys, tres, allocation.names if rules.shares_nodes else ())


def billed(rules: Rules, spec: JobSpec, partition: str, enforce: tuple[str, ...]) -> Billed | None:
    """Account, user and QOS of the job if any limit bounds them (jobs that differ in these are then different
    requests).
    """
    if "limits" not in enforce or not rules.job_limits(spec.account, spec.user, partition, spec.qos).bounded:
        return None
    return spec.account, spec.user, spec.qos, spec.exempt


def least_priority(rules: Rules, request: Request) -> int:
    """MinPrioThreshold of the job's QOS: with less priority it gets no planned start."""
    if request.billed is None:
        return 0
    account, user, qos, exempt = request.billed
    return rules.job_limits(account, user, request.partition, qos, exempt).min_priority


def wanted_by(spec: JobSpec, request: Request) -> list[tuple[str, int]]:
    """TRES that the job will hold, as far as they are known."""
    return wanted_pairs(spec, memory_consumable=request.memory_counts)


def guaranteed_pairs(eligibility: Eligibility, spec: JobSpec, request: Request) -> list[tuple[str, int]]:
    """TRES that the job will hold, as guarantees count them: of whole nodes everything."""
    pairs = wanted_by(spec, request)
    return with_whole_nodes(pairs, eligibility.capacities(request), request.nodes_min) if request.whole else pairs
