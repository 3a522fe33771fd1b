"""Associations, QOS and limits of a `Projection`: built again, or amended if the change allows it.

A change costs what it touches. The core does the same with its state (`core.policy`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.change import amended
from spritz.model.limits.ledger import Ledger
from spritz.model.limits.rules import Rules
from spritz.scheduling.view.changes import jobs
from spritz.scheduling.view.charges import count_charge
from spritz.scheduling.view.priority.inputs import policy_inputs

if TYPE_CHECKING:
    from spritz.model.limits.catalogue import Touched
    from spritz.model.limits.records import Policy, PolicyChange
    from spritz.scheduling.view.projection import Projection
    from spritz.scheduling.view.records import JobRecord


def put_policy(projection: Projection, policy: Policy) -> None:
    """Replace the whole policy, and what licenses and priorities derive from it."""
    make_rules(projection, policy)
    projection.set_licenses()
    projection.set_priority_inputs(projection.priority_inputs)
    for record in projection.records.values():
        projection.place(record)
    projection.free_all()


def amend_policy(projection: Projection, change: PolicyChange) -> None:
    """Apply a change of the policy; look again only at what it touches, if possible."""
    rules = projection.rules
    if not rules.can_amend(change):
        put_policy(projection, amended(rules.policy, change))
        return
    touched = rules.amend(change)
    projection.set_licenses()
    inputs = policy_inputs(projection.priority_inputs, rules, touched)
    if inputs is not projection.priority_inputs:
        projection.set_priority_inputs(inputs)
    for record in _touched_jobs(projection, touched):
        spec = record.spec
        if record.charge is None or record.allocation is None:
            projection.place(record)
            continue
        home = rules.partition_qos.get(record.allocation.partition, "")
        if touched.recounts(spec.account, spec.user, spec.qos) or home in touched.counted_qos:
            count_charge(projection.in_use, record.charge, -1)
            record.charge = jobs.bill(projection, record, record.allocation)
    projection.free_all()


def _touched_jobs(projection: Projection, touched: Touched) -> list[JobRecord]:
    if touched.qos:
        return list(projection.records.values())
    accounts = touched.accounts | {account for account, _user in touched.users}
    return [record for name in sorted(accounts) for record in projection.of_account.get(name, {}).values()]


def make_rules(projection: Projection, policy: Policy) -> None:
    """Build the rules alone, and the charges of running jobs under them."""
    projection.rules = Rules.of(policy, projection.partitions, projection.settings.priority_policy, projection.nodes)
    projection.in_use = Ledger()
    for record in projection.records.values():
        if record.runs and record.allocation is not None:
            record.charge = jobs.bill(projection, record, record.allocation)
    projection.priority_inputs = policy_inputs(projection.priority_inputs, projection.rules)
