"""Siblings of federated jobs: their state, and the requests that other clusters must still get.

Pure. `decide.siblings` changes them, and the shell (`controller.federation`) sends what is owed until it is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from spritz.core.flags import COMPLETING
from spritz.model.federation import (
    AskLock,
    LockAnswered,
    LockReturned,
    PutSibling,
    ReportSibling,
    ReportTaken,
    ReturnLock,
    RevokeSibling,
    SiblingAnswer,
    SiblingGone,
    SiblingPlaced,
    SiblingRequest,
    member,
    phase_of,
)
from spritz.model.job.record import Federated, Hold, Sibling, SiblingState
from spritz.model.states import JobState

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.job.record import Job
    from spritz.model.limits.rules import Rules

#: the values of `lock` in a copy that holds, or asks for, the lock
WANTED, HELD, RETURNED = "wanted", "held", "returned"


class InFederation(Protocol):
    """The federation that the cluster is in (`state.State`)."""

    @property
    def rules(self) -> Rules: ...

    @property
    def settings(self) -> ClusterSettings: ...


def own_number(state: InFederation) -> int:
    """The cluster's number in its federation; 0: it is in none."""
    membership = member(state.rules.federation, state.settings.cluster_name)
    return membership.number if membership is not None else 0


def lock_refusal(job: Job) -> str:
    """Why the federation keeps the job from starting here now; "" if it does not. A copy may ask for the lock."""
    federated = job.federation
    if federated is None:
        return ""
    if federated.is_origin:
        return "another cluster has its lock" if federated.lock or not federated.local else ""
    return "" if federated.lock == HELD else "its origin has the lock"


def locked_elsewhere(job: Job) -> bool:
    """Whether another cluster alone may start, or has started, this origin's job: no deadline of waiting ends it."""
    federated = job.federation
    return federated is not None and federated.is_origin and bool(federated.lock)


def entry_of(federated: Federated, cluster: str) -> Sibling | None:
    """The copy on that cluster; None if there is none."""
    return next((sibling for sibling in federated.siblings if sibling.cluster == cluster), None)


def with_entry(federated: Federated, entry: Sibling) -> Federated:
    """The record with this entry in place of the cluster's earlier one."""
    return replace(
        federated,
        siblings=tuple(entry if sibling.cluster == entry.cluster else sibling for sibling in federated.siblings),
    )


def peers(job: Job) -> list[str]:
    """The clusters that this cluster must send a request to."""
    federated = job.federation
    if federated is None:
        return []
    if federated.is_origin:
        ended = job.state.ended
        return [
            sibling.cluster
            for sibling in federated.siblings
            if sibling.state in (SiblingState.DUE, SiblingState.LEAVING)
            or (ended and sibling.state is SiblingState.PLACED)
        ]
    owes = federated.lock in (WANTED, RETURNED) or phase_of(job) != federated.reported
    return [federated.origin] if owes else []


def owed(job: Job, cluster: str, own_cluster: str) -> SiblingRequest | None:
    """The next request from this cluster to that one; None: none. The shell adds script and environment."""
    federated = job.federation
    if federated is None:
        return None
    if not federated.is_origin:
        return _owed_to_origin(job, federated, own_cluster) if cluster == federated.origin else None
    entry = entry_of(federated, cluster)
    if entry is None:
        return None
    if entry.state is SiblingState.LEAVING:
        return RevokeSibling(job_id=job.id, copy=entry.copy, by_uid=job.cancelled_by_uid)
    if entry.state is SiblingState.DUE and federated.request is not None:
        # What the origin has waited for need not be waited for again.
        spec = replace(federated.request, hold=False, dependencies=(), clusters=(), cluster_features="")
        spec = replace(spec, priority=None) if spec.priority == 0 else spec
        return PutSibling(
            job_id=job.id, origin=own_cluster, copy=entry.copy, spec=spec, restart_count=job.restart_count
        )
    return None


def _owed_to_origin(job: Job, federated: Federated, own_cluster: str) -> SiblingRequest | None:
    phase = phase_of(job)
    if phase != federated.reported:
        # Before all else: the lock of a new life is asked for when the origin knows that the last one is over.
        return ReportSibling(
            job_id=job.id,
            cluster=own_cluster,
            copy=federated.copy,
            phase=phase,
            restart_count=job.restart_count,
            state=job.state,
            exit_status=job.exit_status,
            reason=job.reason.value,
            held=job.hold is not Hold.NONE,
        )
    if federated.lock == WANTED:
        return AskLock(
            job_id=job.id,
            cluster=own_cluster,
            copy=federated.copy,
            restart_count=job.restart_count,
            asked=federated.asked,
        )
    if federated.lock == RETURNED:
        return ReturnLock(job_id=job.id, cluster=own_cluster, copy=federated.copy, asked=federated.asked)
    return None


def taken(request: SiblingRequest, answer: SiblingAnswer, cluster: str) -> Struct:
    """A sibling cluster's answer as the core gets it."""
    if isinstance(request, PutSibling):
        return SiblingPlaced(job_id=request.job_id, cluster=cluster, copy=request.copy, refusal=answer.refusal)
    if isinstance(request, RevokeSibling):
        return SiblingGone(job_id=request.job_id, cluster=cluster, copy=request.copy)
    if isinstance(request, AskLock):
        return LockAnswered(job_id=request.job_id, asked=request.asked, granted=answer.granted, unknown=answer.unknown)
    if isinstance(request, ReturnLock):
        return LockReturned(job_id=request.job_id, asked=request.asked)
    return ReportTaken(job_id=request.job_id, copy=request.copy, phase=request.phase)


def succeeded(job: Job) -> bool:
    """Whether the job has ended well, here or on another cluster."""
    federated = job.federation
    how = (
        federated.ended_as
        if federated is not None and job.state is JobState.REVOKED and federated.ended_as is not None
        else job.state
    )
    return how is JobState.COMPLETED


def may_have_copies(job: Job) -> bool:
    """The job waits for nothing but resources."""
    return (
        job.state is JobState.PENDING and job.hold is Hold.NONE and not job.dependencies and not job.flags & COMPLETING
    )
