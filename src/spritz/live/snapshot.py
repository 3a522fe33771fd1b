"""The picture at a moment, as text for users and as plain values for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from spritz.live.logs import plain
from spritz.live.picture import indexes
from spritz.notation.duration import format_elapsed
from spritz.notation.hostlist import compress
from spritz.notation.times import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.live.jobs import Job
    from spritz.live.nodes import Node
    from spritz.live.picture import Picture


def job_facts(job: Job, now: float) -> dict[str, Any]:
    """A job as JSON. Times are seconds since the epoch, null if unknown."""
    return {
        "job": job.label,
        "job_id": job.id,
        "name": job.name,
        "user": job.user,
        "account": job.account,
        "qos": job.qos,
        "partition": job.partition or ",".join(job.partitions),
        "state": job.state_name,
        "reason": job.why,
        "priority": job.priority,
        "submitted_at": job.submitted_at or None,
        "started_at": job.started_at or None,
        "ended_at": job.ended_at or None,
        "ends_at": job.ends_at or None,
        "time_limit_minutes": job.limit_minutes,
        "used_seconds": job.used_seconds(now),
        "nodes": compress(job.node_names) if job.allocation else "",
        "node_count": job.node_count,
        "cpus": job.cpu_count,
        "gpus": job.gpu_count,
        "exit_status": job.exit_status,
    }


def node_facts(node: Node, holders: dict[int, Job]) -> dict[str, Any]:
    """A node as JSON, with each GPU and the job that holds it."""
    return {
        "node": node.name,
        "state": node.state,
        "reason": node.reason,
        "cpus": node.cpus,
        "cpus_used": node.cpus_used,
        "cpu_load": node.cpu_load,
        "memory_mib": node.memory_mib,
        "memory_used_mib": node.memory_used_mib,
        "partitions": list(node.partitions),
        "jobs": list(node.jobs),
        "gpus": [
            {
                "index": index,
                "type": kind,
                "busy_percent": node.gpu_use.get(index),
                "job": holders[index].label if index in holders else None,
                "user": holders[index].user if index in holders else None,
            }
            for kind, mask in node.gpus
            for index in indexes(mask)
        ],
    }


def facts(picture: Picture, jobs: Sequence[Job]) -> dict[str, Any]:
    """The whole picture as JSON, with the given jobs."""
    holders = picture.holders()
    return {
        "now": picture.now,
        "cluster": picture.cluster,
        "sums": to_builtins(picture.sums()),
        "nodes": [node_facts(node, holders.get(node.name, {})) for node in picture.nodes.values()],
        "jobs": [job_facts(job, picture.now) for job in jobs],
    }


def lines(picture: Picture, jobs: Sequence[Job], occupancy: Sequence[tuple[str, str, str]], width: int) -> list[str]:
    """The picture as text: totals, GPUs by node, and jobs. No line is longer than `width`.

    `occupancy`: (node, a letter for each GPU, legend).
    """
    sums = picture.sums()
    counts = ", ".join(f"{count} {state}" for state, count in sorted(sums.jobs.items())) or "no jobs"
    text_lines = [
        f"{picture.cluster} at {format_time(picture.now)}: {sums.nodes} nodes ({sums.nodes_idle} idle, "
        f"{sums.nodes_closed} closed), CPUs {sums.cpus_used}/{sums.cpus}, GPUs {sums.gpus_used}/{sums.gpus}",
        f"jobs: {counts}",
    ]
    if occupancy:
        wide = max(len(node) for node, _, _ in occupancy)
        text_lines += ["", *(f"{node:<{wide}}  {strip}  {legend}" for node, strip, legend in occupancy)]
    rows = [("JOBID", "USER", "ST", "NAME", "TIME", "NODES", "CPUS", "GPUS", "PARTITION", "NODELIST(REASON)")]
    for job in jobs:
        where = compress(job.node_names) if job.allocation and job.state != "PENDING" else ""
        rows.append(
            (
                job.label,
                plain(job.user),
                job.state_code,
                plain(job.name)[:24],
                format_elapsed(job.used_seconds(picture.now)) if job.started_at else "-",
                str(job.node_count),
                str(job.cpu_count),
                str(job.gpu_count or "-"),
                plain(job.partition or ",".join(job.partitions)),
                where or (f"({plain(job.why)})" if job.why else ""),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = (4, 5, 6, 7)
    table = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        table.append(
            " ".join(cell.rjust(wide) if at in right else cell.ljust(wide) for at, (cell, wide) in enumerate(cells))
        )
    text_lines += ["", *table]
    return [line.rstrip() if len(line) <= width else line[: width - 1] + "…" for line in text_lines]
