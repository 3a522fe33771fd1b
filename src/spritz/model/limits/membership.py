"""Check whether a job still has the association and the QOS that it was submitted with.

Source: squeue(1) JOB REASON CODES, InvalidAccount and InvalidQOS; slurm.conf(5) AccountingStorageEnforce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz.model.job.record import JobSpec
    from spritz.model.limits.rules import Rules

#: reasons that are shown without a detail
WORDLESS = frozenset({Reason.INVALID_ACCOUNT, Reason.INVALID_QOS, Reason.PARTITION_CONFIG})


def missing(rules: Rules, enforce: Collection[str], spec: JobSpec, partition: str) -> tuple[Reason, str] | None:
    """The association, account or QOS that the job lacks, as the reason for which it waits and a detail; None if it has
    all that are enforced.
    """
    if "associations" not in enforce or not rules.known:
        return None
    association = rules.association(spec.account, spec.user, partition)
    if association is None:
        return Reason.INVALID_ACCOUNT, f"user {spec.user} is not in account {spec.account}"
    allowed = spec.qos in association.qos or "qos" in spec.exempt
    if "qos" in enforce and (spec.qos not in rules.qos or not allowed):
        return Reason.INVALID_QOS, f"user {spec.user} may not use QOS {spec.qos} in account {spec.account}"
    return None
