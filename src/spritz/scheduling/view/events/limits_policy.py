"""Associations, QOS and limits of a `Projection`: made anew, or followed where a change allows that.

What a change touches is looked at again, and no more. The core does the same with its state (`core.policy`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.change import amended
from spritz.model.limits.ledger import Ledger
from spritz.model.limits.rules import Rules
from spritz.scheduling.view.charges import count_in
from spritz.scheduling.view.events import running_jobs
from spritz.scheduling.view.priority_inputs import policy_inputs

if TYPE_CHECKING:
    from spritz.model.limits.catalogue import Touched
    from spritz.model.limits.records import Policy, PolicyChange
    from spritz.scheduling.view.projection import Projection
    from spritz.scheduling.view.records import JobRecord


def put_policy(projection: Projection, policy: Policy) -> None:
    """They are these from now on."""
    make_rules(projection, policy)
    projection.stock()
    projection.set_priority_inputs(projection.priority_inputs)
    for record in projection.records.values():
        projection.place(record)
    projection.free_all()


def amend_policy(projection: Projection, change: PolicyChange) -> None:
    """They have changed in this; only what that touches is looked at again, if that will do."""
    rules = projection.rules
    if not rules.can_amend(change):
        put_policy(projection, amended(rules.policy, change))
        return
    touched = rules.amend(change)
    projection.stock()
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
            count_in(projection.in_use, record.charge, -1)
            record.charge = running_jobs.bill(projection, record, record.allocation)
    projection.free_all()


def _touched_jobs(projection: Projection, touched: Touched) -> list[JobRecord]:
    if touched.qos:
        return list(projection.records.values())
    accounts = touched.accounts | {account for account, _user in touched.users}
    return [record for name in sorted(accounts) for record in projection.of_account.get(name, {}).values()]


def make_rules(projection: Projection, policy: Policy) -> None:
    """The rules alone, and what running jobs count under them."""
    projection.rules = Rules.of(policy, projection.partitions, projection.settings.priority_policy, projection.nodes)
    projection.in_use = Ledger()
    for record in projection.records.values():
        if record.allocation is not None and not record.completing:
            record.charge = running_jobs.bill(projection, record, record.allocation)
    projection.priority_inputs = policy_inputs(projection.priority_inputs, projection.rules)
