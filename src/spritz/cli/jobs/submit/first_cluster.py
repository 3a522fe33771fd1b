"""The cluster to submit to: of `-M a,b` the one on which the job starts soonest; in a federation another one for a job
that this cluster cannot hold.

Source: sbatch(1) --clusters; wording of 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.call import clusters
from spritz.client.command.submission_retry import UNKNOWN
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.model.commands.job import SubmitHetJob, SubmitJob, WillRun
from spritz.model.errors import SpritzError
from spritz.model.federation import may_have_siblings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.cli.call.context import Context
    from spritz.client.errors import RemoteError
    from spritz.client.locate import ControllerConfig
    from spritz.model.commands.job import JobSubmitted

#: Refusals of what this cluster does not have, or does not allow, and another may.
CANNOT_HOLD = frozenset(
    (
        "ESLURM_ACCOUNTING_POLICY",
        "ESLURM_DEFAULT_PARTITION_NOT_SET",
        "ESLURM_INVALID_ACCOUNT",
        "ESLURM_INVALID_CPU_COUNT",
        "ESLURM_INVALID_FEATURE",
        "ESLURM_INVALID_GRES",
        "ESLURM_INVALID_GRES_TYPE",
        "ESLURM_INVALID_LICENSES",
        "ESLURM_INVALID_NODE_COUNT",
        "ESLURM_INVALID_NODE_NAME",
        "ESLURM_INVALID_PARTITION_NAME",
        "ESLURM_INVALID_QOS",
        "ESLURM_INVALID_TASK_MEMORY",
        "ESLURM_INVALID_TIME_LIMIT",
        "ESLURM_INVALID_WCKEY",
        "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP",
        "ESLURM_MAX_JOB_COUNT",
        "ESLURM_PARTITION_NOT_AVAIL",
        "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE",
        "ESLURM_REQUESTED_TOPO_CONFIG_UNAVAILABLE",
        "ESLURM_RESERVATION_ACCESS",
        "ESLURM_RESERVATION_INVALID",
    )
)


def use_first(candidates: Sequence[ControllerConfig], request: SubmitJob | SubmitHetJob, context: Context) -> str:
    """Select the cluster where `request` starts first, for all further calls; return its name.

    The first of `candidates` wins a tie. Raises SpritzError if no cluster accepts the request.
    """
    if len(candidates) == 1:
        clusters.use(candidates[0])
        return candidates[0].cluster_name
    best: tuple[float, int] | None = None
    for place, cluster in enumerate(candidates):
        clusters.use(cluster)
        start = _start(cluster, _trial(request), context)
        # Whole seconds: two idle clusters answer with slightly different times.
        if start is not None and (best is None or (float(int(start)), place) < best):
            best = float(int(start)), place
    if best is None:
        raise SpritzError("Can't run on any of the specified clusters")
    clusters.use(candidates[best[1]])
    return candidates[best[1]].cluster_name


def placed(
    candidates: Sequence[ControllerConfig], request: SubmitJob | SubmitHetJob, context: Context
) -> tuple[SubmitJob | SubmitHetJob, str]:
    """Select one of the clusters of --clusters for all further calls. Returns the request for it, and its name; "" if
    several clusters of a federation get a sibling.

    Raises SpritzError if no cluster accepts the request.
    """
    from spritz.client.locate import locate_controller

    names = tuple(cluster.cluster_name for cluster in candidates)
    if not isinstance(request, SubmitJob) or not may_have_siblings(request.spec):
        return request, use_first(candidates, request, context)
    limited = replace(request, spec=replace(request.spec, clusters=names))
    if len(candidates) == 1:
        return limited, use_first(candidates, request, context)
    if not {cluster.cluster_name for cluster in clusters.federated()}.issuperset(names):
        return request, use_first(candidates, request, context)
    if locate_controller().cluster_name not in names:
        clusters.use(candidates[0])
    return limited, ""


def taken_elsewhere(
    refusal: RemoteError, request: SubmitJob | SubmitHetJob, submit: Callable[[], JobSubmitted]
) -> JobSubmitted:
    """Submit a job that this cluster cannot hold to the others of its federation, one after the other. The first one
    that takes it becomes its origin, and stays selected for all further calls.

    Raises `refusal` if none does. Differs: Slurm refuses the job (docs/decisions/0197).
    """
    from spritz.client.locate import locate_controller

    if refusal.code not in CANNOT_HOLD or not isinstance(request, SubmitJob):
        raise refusal
    this_cluster = locate_controller()
    try:
        others = clusters.others_of_federation(request.spec)
    except SpritzError:
        raise refusal from None
    for cluster in others:
        clusters.use(cluster)
        try:
            return submit()
        except ClientError as error:
            if UNKNOWN in error.details:
                raise
    clusters.use(this_cluster)
    raise refusal


def _trial(request: SubmitJob | SubmitHetJob) -> SubmitJob | SubmitHetJob:
    if isinstance(request, SubmitHetJob):
        first, *others = request.components
        return SubmitHetJob(components=(replace(first, test_only=True), *others))
    return replace(request, test_only=True)


def _start(cluster: ControllerConfig, trial: SubmitJob | SubmitHetJob, context: Context) -> float | None:
    """When the job would start on a cluster; None, after a message, if the cluster refuses it or does not answer."""
    try:
        with connect_controller() as controller:
            return controller.call(trial, WillRun).start_at
    except ClientError as error:
        context.error(f"Problem with submit to cluster {cluster.cluster_name}: {error.message}")
        return None
