"""Jobs of a federation: numbers that are unique in it, which clusters may run a job, and what controllers tell each
other about its copies. Pure.

A job's number has the number of its origin's cluster in its upper bits. What is sent may be sent again: each request
says which copy it means, and what it asks for is true already if it was carried out before.

Source: the Slurm Federated Scheduling Guide; sbatch(1) --clusters, --cluster-constraint; sacctmgr(1) FedState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.commands.job import SubmitJob
from spritz.model.job.record import JobRequest, JobSpec
from spritz.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.job.record import Job
    from spritz.model.limits.records import FederationMember

#: bits of a job's number that count jobs; those above have the number of the origin's cluster
LOCAL_BITS = 26
_LOCAL = (1 << LOCAL_BITS) - 1


def federated_number(local: int, cluster_number: int) -> int:
    """The job's number in the federation; `cluster_number` 0: the cluster is in none."""
    return cluster_number << LOCAL_BITS | local


def local_number(job_id: int) -> int:
    """The number that the origin's cluster gave the job: its lower bits."""
    return job_id & _LOCAL


def origin_number(job_id: int) -> int:
    """Number of the origin's cluster in its federation; 0: the job is of none."""
    return job_id >> LOCAL_BITS


def member(federation: Iterable[FederationMember], cluster: str) -> FederationMember | None:
    """The cluster's entry; None if it is not a member."""
    return next((cluster_member for cluster_member in federation if cluster_member.cluster == cluster), None)


def may_have_siblings(spec: JobRequest) -> bool:
    """Whether the job may run on another cluster than the one that took it. Components of a heterogeneous job, which
    the request alone does not tell, stay together there.
    """
    return not (spec.array or spec.external or spec.cron is not None)


def viable(federation: Iterable[FederationMember], spec: JobRequest) -> tuple[str, ...]:
    """Clusters that may be given the job now, by number: ACTIVE, and they suit it."""
    return tuple(
        cluster_member.cluster
        for cluster_member in federation
        if cluster_member.state == "ACTIVE" and suits(cluster_member, spec)
    )


def may_keep(cluster_member: FederationMember | None, spec: JobRequest) -> bool:
    """A cluster that was given the job may still start it: a draining one too, an INACTIVE one not."""
    return cluster_member is not None and cluster_member.state != "INACTIVE" and suits(cluster_member, spec)


def suits(cluster_member: FederationMember, spec: JobRequest) -> bool:
    """Whether the cluster is named, if any are, and has a requested feature (with `!`: none of them)."""
    if spec.clusters and cluster_member.cluster not in spec.clusters:
        return False
    if not spec.cluster_features:
        return True
    has = set(cluster_member.features.split(","))
    if spec.cluster_features.startswith("!"):
        return has.isdisjoint(spec.cluster_features[1:].split(","))
    return not has.isdisjoint(spec.cluster_features.split(","))


def phase_of(job: Job) -> str:
    """The state of a copy that its origin must know: `pending:LIFE`, `started:LIFE` or `ended`."""
    if job.state.ended:
        return "ended"
    return f"{'pending' if job.state is JobState.PENDING else 'started'}:{job.restart_count}"


# -- between controllers; slurmdbd passes them on


class PutSibling(Struct, frozen=True, kw_only=True, tag=True):
    """Queue this copy of a job. Reply: `SiblingAnswer`, with `refusal` if the cluster does not take it."""

    job_id: int
    origin: str
    copy: int
    spec: JobSpec
    restart_count: int = 0
    script: bytes = b""
    environment: tuple[bytes, ...] = ()


class RevokeSibling(Struct, frozen=True, kw_only=True, tag=True):
    """Take this copy back, and end it if it runs: its job was cancelled. Reply: `SiblingAnswer`."""

    job_id: int
    copy: int
    by_uid: int = -1


class AskLock(Struct, frozen=True, kw_only=True, tag=True):
    """May this copy start? Reply: `SiblingAnswer` with `granted`, or `unknown` if the origin knows no such copy."""

    job_id: int
    cluster: str
    copy: int
    restart_count: int
    asked: int


class ReturnLock(Struct, frozen=True, kw_only=True, tag=True):
    """The copy could not start after all. Reply: `SiblingAnswer`."""

    job_id: int
    cluster: str
    copy: int
    asked: int


class ReportSibling(Struct, frozen=True, kw_only=True, tag=True):
    """A copy's report to its origin. Reply: `SiblingAnswer`."""

    job_id: int
    cluster: str
    copy: int
    phase: str
    restart_count: int
    state: JobState
    exit_status: int = 0
    reason: str = ""
    #: it was requeued in hold
    held: bool = False


SiblingRequest = PutSibling | RevokeSibling | AskLock | ReturnLock | ReportSibling


class SiblingAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reply to a `SiblingRequest`. `granted`: the copy may start; `unknown`: no such copy; `refusal`: why not."""

    granted: bool = False
    unknown: bool = False
    refusal: str = ""


class PassToCluster(Struct, frozen=True, kw_only=True):
    """To slurmdbd: ask the controller of a cluster, and reply with its answer. A failure if it is not connected."""

    cluster: str
    request: SiblingRequest


# -- what the shell hands to the core, besides the requests above


class QueueSibling(Struct, frozen=True, kw_only=True):
    """`PutSibling`, with owner, script and environment stored. Reply: `SiblingAnswer`, or a refusal."""

    submission: SubmitJob
    job_id: int
    origin: str
    copy: int
    restart_count: int = 0


class SiblingPlaced(Struct, frozen=True, kw_only=True):
    """Another cluster has answered: it has the copy, or (`refusal`) does not take it."""

    job_id: int
    cluster: str
    copy: int
    refusal: str = ""


class SiblingGone(Struct, frozen=True, kw_only=True):
    """Another cluster does not have the copy any more."""

    job_id: int
    cluster: str
    copy: int


class LockAnswered(Struct, frozen=True, kw_only=True):
    """The origin has answered a request for the lock."""

    job_id: int
    asked: int
    granted: bool = False
    unknown: bool = False


class LockUnused(Struct, frozen=True, kw_only=True):
    """A copy that holds the lock did not start in time."""

    job_id: int


class LockReturned(Struct, frozen=True, kw_only=True):
    """The origin has the lock again."""

    job_id: int
    asked: int


class ReportTaken(Struct, frozen=True, kw_only=True):
    """The origin knows this phase of a copy."""

    job_id: int
    copy: int
    phase: str
