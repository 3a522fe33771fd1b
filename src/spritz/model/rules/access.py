"""Check whether a waiting job may still run in a partition, as far as accounting and the partition's lists decide.

At submission the core refuses with Slurm's own codes (`core.decide.submission.spec`, `core.decide.accounts`).

Source: slurm.conf(5) AccountingStorageEnforce, AllowAccounts, AllowGroups, AllowQos and the Deny lists; squeue(1) JOB
REASON CODES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.membership import missing
from spritz.model.node.partition import shuts_out
from spritz.model.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz.model.job.record import JobSpec
    from spritz.model.limits.rules import Rules
    from spritz.model.node.partition import Partition


def barred(spec: JobSpec, partition: Partition, rules: Rules, enforce: Collection[str]) -> tuple[Reason, str] | None:
    """Why the job may not run there: reason and detail; None if it may."""
    outside = missing(rules, enforce, spec, partition.name)
    if outside is not None:
        return outside
    if shuts_out(partition, spec):
        return Reason.PARTITION_CONFIG, f"partition {partition.name} is not open to the groups of {spec.user}"
    return barrier(partition, spec.account, spec.qos)


def barrier(partition: Partition, account: str, qos: str) -> tuple[Reason, str] | None:
    """Why the partition is closed to this account or QOS: reason and detail; None if it is open.

    Source: slurm.conf(5) AllowAccounts, DenyAccounts, AllowQos, DenyQos: if both are set, Allow applies.
    """
    kinds = (
        (Reason.ACCOUNT_NOT_ALLOWED, "account", account, partition.allow_accounts, partition.deny_accounts),
        (Reason.QOS_NOT_ALLOWED, "QOS", qos, partition.allow_qos, partition.deny_qos),
    )
    for reason, what, name, allowed, denied in kinds:
        if allowed and name not in allowed:
            rule = f"allows {','.join(allowed)} not {name}"
        elif not allowed and name and name in denied:
            rule = f"denies {','.join(denied)} including {name}"
        else:
            continue
        return reason, f"Job's {what} not permitted to use this partition ({partition.name} {rule})"
    return None
