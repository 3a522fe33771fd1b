"""Accounting's policy in the state: what follows from a new policy, from an edit, and from settings it depends on.

The cost of an edit depends on what it touches. Only edits that move accounts or change how jobs count cost as much as a
new policy.

Source: https://slurm.schedmd.com/resource_limits.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.job.charges import fit_usage
from spritz.core.job.timers import NEVER, Deadlines
from spritz.model.limits.change import amended
from spritz.model.limits.ledger import Ledger, LedgerKey
from spritz.model.limits.minutes import reached_at
from spritz.model.limits.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.core.state import State
    from spritz.model.limits.records import Policy, PolicyChange


def put_policy(state: State, policy: Policy) -> None:
    """Replace accounting's policy, and charge running jobs again by the new one."""
    priority = state.settings.priority_policy
    old, state.rules = state.rules, Rules.of(policy, state.partitions, priority, state.nodes)
    # Rates of use are sums over the charges of running jobs: set all to nothing, and let every charge below add its own
    # again under the new policy.
    usage, committed = state.change_usage(), state.minutes.committed
    usage.idle(state.at)
    usage.configure(state.rules.decay(priority), state.at)
    if old.policy is not policy:
        fit_usage(usage, old, state.rules, state.at)
    state.undo.note(setattr, committed, "sums", committed.sums)
    before = state.undo.here()
    committed.sums = {}
    state.ledger, state.charges, state.accrual_waits = Ledger(), {}, {}
    state.memory.accrual_freed = True
    state.enforced = state.settings.enforce
    state.minute_limits_by_key = state.rules.minute_limits_by_key() if "limits" in state.enforced else {}
    state.minute_deadlines = Deadlines()
    for job_id, job in state.jobs.items():
        state.charge(job_id, job)
    refresh_minutes(state)
    state.undo.drop_since(before)
    if old.times_jobs or state.rules.times_jobs:
        state.refresh_deadlines()


def amend_policy(state: State, change: PolicyChange) -> None:
    """Apply an edit of accounting's policy; look again only at what it touches, if possible."""
    rules = state.rules
    if not rules.can_amend(change) or state.enforced != state.settings.enforce:
        put_policy(state, amended(rules.policy, change))
        return
    timed = rules.times_jobs
    state.undo.note(_take_back, state, rules, rules.inverse(change))
    touched = rules.amend(change)
    # A limit may have been raised: `settle_accrual` looks whether further jobs may accrue age.
    state.memory.accrual_freed = True
    if touched.counted or touched.counted_qos:
        for job_id in list(state.charges):
            job = state.jobs[job_id]
            spec = job.spec
            homes = {rules.partition_qos.get(name, "") for name in (job.partition, *spec.partitions)}
            if touched.recounts(spec.account, spec.user, spec.qos) or homes & touched.counted_qos:
                state.charge(job_id, job)
    for number in change.gone_associations:
        key: LedgerKey = ("a", number)
        state.undo.note(state.usage.put_back, key, state.usage.entries.pop(key, None))
    keys: list[LedgerKey] = [("a", associated) for associated in touched.ids]
    _note_minute_limits(state, keys + [("q", name) for name in touched.qos])
    # Before or after: the edit may have removed the last such limit, and with it deadlines that running jobs have.
    if timed or rules.times_jobs:
        for job_id in state.running:
            state.refresh_deadline(state.jobs[job_id])


def _take_back(state: State, rules: Rules, inverse: PolicyChange) -> None:
    """Undo an edit of these rules, to which others refer."""
    priority = state.settings.priority_policy
    rules.become(Rules.of(amended(rules.policy, inverse), state.partitions, priority, state.nodes))


def _note_minute_limits(state: State, keys: list[LedgerKey]) -> None:
    """The limits on usage of these keys may have changed: note them again."""
    if "limits" not in state.enforced:
        return
    for key in keys:
        place = state.rules.minute_limits(key)
        if place is not None:
            state.undo.put(state.minute_limits_by_key, key, place)
        elif state.undo.drop(state.minute_limits_by_key, key) is not None:
            state.set_minute_deadline(key_text(key), NEVER)
    refresh_minutes(state, keys)


def refresh_minutes(state: State, keys: Iterable[LedgerKey] | None = None) -> None:
    """Compute when these keys (None: all) reach their limits on minutes. With AccountingStorageEnforce=safe jobs are
    not ended for that, so there is nothing to compute.
    """
    if "safe" in state.settings.enforce:
        return
    for key in state.minute_limits_by_key if keys is None else keys:
        place = state.minute_limits_by_key.get(key)
        if place is not None:
            state.set_minute_deadline(key_text(key), reached_at(state.usage, place, state.at))


def refresh_rules(state: State) -> None:
    """Settings or partitions changed: compute again what is billed, which limits apply, and how usage decays."""
    state.memory.accrual_freed = True  # PriorityFlags may have lifted the limits on accrual
    priority = state.settings.priority_policy
    same = state.rules.fits(state.partitions, priority, state.nodes)
    if not same or state.rules.decay(priority) != state.usage.decay or state.enforced != state.settings.enforce:
        put_policy(state, state.rules.policy)


def key_text(key: LedgerKey) -> str:
    """The key as `kind:id`: `Deadlines` compares its keys, and keys of associations and QOS do not compare."""
    return f"{key[0]}:{key[1]}"
