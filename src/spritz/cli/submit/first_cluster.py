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


def use_first(found: Sequence[ControllerConfig], request: SubmitJob | SubmitHetJob, context: Context) -> str:
    """Have this call speak to the one of `found` where `request` starts first; its name. Raises SpritzError if none
    takes it. The first one named is taken where several start it at once."""
    if len(found) == 1:
        clusters.use(found[0])
        return found[0].cluster_name
    best: tuple[float, int] | None = None
    for place, cluster in enumerate(found):
        clusters.use(cluster)
        start = _start(cluster, _trial(request), context)
        # In whole seconds: clusters that are both idle answer a moment apart.
        if start is not None and (best is None or (float(int(start)), place) < best):
            best = float(int(start)), place
    if best is None:
        raise SpritzError("Can't run on any of the specified clusters")
    clusters.use(found[best[1]])
    return found[best[1]].cluster_name


def in_federation(found: Sequence[ControllerConfig], request: SubmitJob | SubmitHetJob) -> SubmitJob | None:
    """The request for siblings on these clusters, if they are several of this cluster's federation: this one is the
    origin if it is named, else the first. None: they are not.
    """
    from spritz.client.locate import locate_controller
    from spritz.model.commands.job import SubmitJob
    from spritz.model.federation import may_have_siblings

    if len(found) < 2 or not isinstance(request, SubmitJob) or not may_have_siblings(request.spec):
        return None
    own, names = locate_controller(), [cluster.cluster_name for cluster in found]
    members = {cluster.cluster_name for cluster in clusters.federated()}
    if not members.issuperset(names):
        return None
    if own.cluster_name not in names:
        clusters.use(found[0])
    return replace(request, spec=replace(request.spec, clusters=tuple(names)))


def _trial(request: SubmitJob | SubmitHetJob) -> SubmitJob | SubmitHetJob:
    if isinstance(request, SubmitHetJob):
        first, *others = request.components
        return SubmitHetJob(components=(replace(first, test_only=True), *others))
    return replace(request, test_only=True)


def _start(cluster: ControllerConfig, trial: SubmitJob | SubmitHetJob, context: Context) -> float | None:
    """When it would start there; None if that cluster does not take it, or does not answer, which is told."""
    try:
        with connect_controller() as controller:
            return controller.call(trial, WillRun).start_at
    except ClientError as error:
        context.error(f"Problem with submit to cluster {cluster.cluster_name}: {error.message}")
        return None
