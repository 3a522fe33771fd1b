"""Queries of commands that wait for an allocation (salloc, srun)."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.job.record import Component, Job


class AwaitAllocation(Struct, frozen=True, kw_only=True):
    """Answered when the job runs or has ended (srun, salloc, `wait_job`). Reply: `AllocationGranted`.

    A federated job's origin answers with its own record, whose `federation.runs_on` is the cluster to ask next.
    A closed connection while an *interactive* job waits cancels it.
    """

    job_id: int
    #: seconds to wait (None: for ever); the reply then has a pending job
    timeout_seconds: float | None = None


class AllocationGranted(Struct, frozen=True, kw_only=True):
    """The job as it is now; running unless it ended or the wait timed out."""

    job: Job
    settings: ClusterSettings
    node_addresses: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    #: the components of a heterogeneous job, the leader first
    components: tuple[Component, ...] = ()
