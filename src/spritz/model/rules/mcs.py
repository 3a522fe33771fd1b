"""Labels that keep jobs apart (MCS): which label a job gets, and where it applies.

Nodes on which a labelled job keeps others out are shared only by jobs of the same label. `McsPolicy` is in
`model.cluster.settings`.

Source: Slurm's guide to Multi-Category Security; slurm.conf(5) MCSPlugin, MCSParameters; sbatch(1) --mcs-label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.job.record import Sharing

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz.model.cluster.settings import McsPolicy
    from spritz.model.job.record import JobRequest, JobSpec


class BadLabel(ValueError):
    """The job may not have the label that it asks for, or lacks one that it must have. The text says why."""


def label_of(policy: McsPolicy, spec: JobSpec, groups: Collection[str]) -> str:
    """The label that the job gets; "": none. `groups`: names of its user's groups. Raises BadLabel."""
    asked, wanted = spec.mcs_label, policy.enforced or spec.sharing is Sharing.MCS
    if policy.plugin == "none":
        if asked or spec.sharing is Sharing.MCS:
            raise BadLabel("labels are disabled: MCSPlugin is mcs/none")
        return ""
    if not asked and not wanted:
        return ""
    if policy.plugin == "label":
        if not asked:
            raise BadLabel("jobs need a label: use --mcs-label")
        return asked
    if policy.plugin == "group":
        member_of = [name for name in policy.groups if name in groups]
        if asked and asked not in member_of:
            raise BadLabel(f"{asked} is not one of your groups that serve as a label")
        if not member_of and policy.enforced:
            raise BadLabel("none of your groups serves as a label")
        return asked or next(iter(member_of), "")
    default = spec.user if policy.plugin == "user" else spec.account
    if asked and asked != default:
        raise BadLabel(f"the label must be {default or 'that of an account'}")
    if not default:
        raise BadLabel(f"the job has no {policy.plugin}")
    return default


def kept_by(policy: McsPolicy, spec: JobRequest) -> str:
    """The job's MCS label: only jobs with the same label may share its nodes; "" shares only with unlabelled jobs."""
    if not spec.mcs_label or policy.select == "noselect":
        return ""
    return spec.mcs_label if policy.select == "select" or spec.sharing is Sharing.MCS else ""
