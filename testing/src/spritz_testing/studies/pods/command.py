"""`spritz simulate --pods PODS.csv --node-list NODES.csv --demand 1.3 --placement fgd`: GPU shares and fragments."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from spritz.notation.names import nearest
from spritz.runtime.clock import SystemClock
from spritz.scheduling.view.sharing.fragmentation import fragments
from spritz.sim.progress import progress
from spritz.sim.report import Report
from spritz.sim.trace.workload import TraceError, remark_lines
from spritz_testing.studies.pods.cluster import PodCluster
from spritz_testing.studies.pods.demand import sequence, typical_tasks
from spritz_testing.studies.pods.placement import (
    PLACEMENTS,
    BestFitPlacement,
    FragmentPlacement,
    Placement,
    RandomPlacement,
)
from spritz_testing.studies.pods.production import ProductionPlacement
from spritz_testing.studies.pods.trace import read_nodes, read_pods

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from spritz.cli.call.context import Context
    from spritz_testing.studies.pods.trace import Pod


def run_pods(arguments: Namespace, context: Context) -> Report:
    """Draw pods from a trace, place them, and print the measures."""
    clock = SystemClock()
    began = clock.monotonic()
    name = arguments.placement
    _check_placement(name)
    pods, skipped = read_pods(arguments.pods)
    for remark in remark_lines(skipped):
        context.warn(remark)
    nodes = read_nodes(arguments.node_list)
    random = Random(arguments.seed)
    nodes.sort(key=lambda node: node.name)
    random.shuffle(nodes)
    cluster = PodCluster(nodes)
    coming = sequence(pods, cluster.capacity, arguments.demand, random)
    typical = typical_tasks(pods, cluster.models)
    placement: Placement
    if name == "fgd":
        placement = FragmentPlacement(cluster, typical)
    elif name == "bestfit":
        placement = BestFitPlacement(cluster)
    elif name in ("production", "gpu_fragmentation"):
        placement = ProductionPlacement(nodes, () if name == "production" else (name,))
    else:
        placement = RandomPlacement(cluster, random)
    with progress(context, "placing", len(coming)) as tick:
        failed = _place_all(coming, cluster, placement, tick)
    idle = int(cluster.gpus.sum())
    fragment = float(fragments(cluster.cpu, cluster.gpus, cluster.model, typical).sum())
    figures: dict[str, object] = {
        "placement": name,
        "demand": arguments.demand,
        "seed": arguments.seed,
        "nodes": len(nodes),
        "gpus": cluster.capacity / 1000,
        "pods": len(coming),
        "pods_failed": failed,
        "skipped": sum(row_count.count for row_count in skipped.values()),
        "gpus_asked_percent": 100 * sum(pod.gpus * pod.milli for pod in coming) / cluster.capacity,
        "gpus_allocated_percent": 100 * (cluster.capacity - idle) / cluster.capacity,
        "fragmentation_percent": 100 * fragment / idle if idle else 0.0,
        "fragmented_gpus": fragment / 1000,
        "elapsed_seconds": round(clock.monotonic() - began, 3),
    }
    return Report(title=f"{name} on {len(nodes):,} nodes", figures=figures)


def _check_placement(name: str) -> None:
    """Raises TraceError for a name that no placement has."""
    if name in PLACEMENTS:
        return
    near = nearest(name, PLACEMENTS)
    raise TraceError(
        f"no such placement: {name}" + (f" (did you mean {near}?)" if near else ""),
        f"known: {', '.join(PLACEMENTS)}",
    )


def _place_all(
    pods: Sequence[Pod], cluster: PodCluster, placement: Placement, tick: Callable[[int], None] | None
) -> int:
    """Place the pods in turn. Returns how many did not fit; a pod that does not fit is not tried again."""
    failed = 0
    for count, pod in enumerate(pods):
        feasible = cluster.feasible(pod)
        chosen = placement.choose(pod, feasible) if len(feasible) else None
        if chosen is None:
            failed += 1
            continue
        node, gpus = chosen
        cluster.take(node, pod, gpus)
        if isinstance(placement, FragmentPlacement):
            placement.placed(node)
        if tick is not None and count % 100 == 0:
            tick(count)
    return failed
