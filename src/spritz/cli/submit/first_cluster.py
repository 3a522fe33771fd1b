"""`sbatch -M a,b`: the cluster on which the job starts soonest.

Source: sbatch(1) --clusters; wording of 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli import clusters
from spritz.client.errors import ClientError
from spritz.client.sync import connect_controller
from spritz.model.commands.job import SubmitHetJob, WillRun
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.context import Context
    from spritz.client.locate import ControllerConfig
    from spritz.model.commands.job import SubmitJob


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


def in_federation(candidates: Sequence[ControllerConfig], request: SubmitJob | SubmitHetJob) -> SubmitJob | None:
    """The request for sibling jobs on these clusters, if all belong to this cluster's federation; else None.

    This cluster becomes the origin if it is among them, else the first of them does.
    """
    from spritz.client.locate import locate_controller
    from spritz.model.commands.job import SubmitJob
    from spritz.model.federation import may_have_siblings

    if len(candidates) < 2 or not isinstance(request, SubmitJob) or not may_have_siblings(request.spec):
        return None
    local, names = locate_controller(), [cluster.cluster_name for cluster in candidates]
    members = {cluster.cluster_name for cluster in clusters.federated()}
    if not members.issuperset(names):
        return None
    if local.cluster_name not in names:
        clusters.use(candidates[0])
    return replace(request, spec=replace(request.spec, clusters=tuple(names)))


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
