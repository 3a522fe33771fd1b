"""`spritz simulate --gang TRACE.csv --nodes N --gpus-per-node G --policy P`: gang jobs of a GPU cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.names import nearest
from spritz.runtime.clock import SystemClock
from spritz.sim.progress import progress
from spritz.sim.report import Report, write_starts
from spritz.sim.trace.workload import TraceError
from spritz_testing.studies.gang.preemptive import replay_preemptive
from spritz_testing.studies.gang.queued import replay_queued
from spritz_testing.studies.gang.trace import read_gang

if TYPE_CHECKING:
    from argparse import Namespace

    from spritz.cli.call.context import Context

GANG_POLICIES = ("fifo", "backfill", "srtf", "srsf")


def run_gang(arguments: Namespace, context: Context) -> Report:
    """Replay a trace of gang jobs (all GPUs at once), and print its measures."""
    clock = SystemClock()
    began = clock.monotonic()
    policy = arguments.policy or "fifo"
    if policy not in GANG_POLICIES:
        near = nearest(policy, GANG_POLICIES)
        raise TraceError(
            f"no such policy for gangs: {policy}" + (f" (did you mean {near}?)" if near else ""),
            f"known: {', '.join(GANG_POLICIES)}",
        )
    nodes, per_node = arguments.nodes, arguments.gpus_per_node
    jobs = read_gang(arguments.gang, nodes * per_node)
    for remark in jobs.remarks():
        context.warn(remark)
    with progress(context, "replaying", len(jobs)) as tick:
        if policy in ("srtf", "srsf"):
            replayed = replay_preemptive(jobs, nodes, per_node, by_gpus=policy == "srsf", tick=tick)
        else:
            replayed = replay_queued(jobs, nodes, per_node, backfill=policy == "backfill", tick=tick)
    if arguments.starts:
        write_starts(arguments.starts, jobs.job, replayed.start)
    completion = sorted(end - submit for end, submit in zip(replayed.end, jobs.submit, strict=True))
    waits = [start - submit for start, submit in zip(replayed.start, jobs.submit, strict=True)]
    span = max(replayed.end) - min(jobs.submit)
    used = sum(i * u * g for i, u, g in zip(jobs.iterations, jobs.unit, jobs.gpus, strict=True))
    figures: dict[str, object] = {
        "policy": policy,
        "nodes": nodes,
        "gpus_per_node": per_node,
        "jobs": len(jobs),
        "skipped": sum(count.count for count in jobs.skipped.values()),
        "mean_completion_seconds": sum(completion) / len(completion),
        "median_completion_seconds": completion[(len(completion) - 1) // 2],
        "p99_completion_seconds": completion[min(len(completion) - 1, int(0.99 * len(completion)))],
        "mean_wait_seconds": sum(waits) / len(waits),
        "utilization": used / (nodes * per_node * span) if span > 0 else 0.0,
        "makespan_seconds": span,
        "preemptions": replayed.preemptions,
        "events": replayed.events,
        "elapsed_seconds": round(clock.monotonic() - began, 3),
    }
    return Report(title=f"{policy} on {nodes:,} nodes of {per_node} GPUs", figures=figures)
