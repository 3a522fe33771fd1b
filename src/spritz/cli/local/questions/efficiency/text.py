"""Text of `spritz eff`: what a job used, next to what it requested, and advice. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.local.questions.efficiency.advice import SHORT_SECONDS, advise, size
from spritz.notation.duration import format_duration
from spritz.notation.memory import format_mib
from spritz.notation.oneline import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.local.questions.efficiency.advice import Advice
    from spritz.cli.local.questions.efficiency.measure import Efficiency

#: Nodes that are listed one by one.
NODES_MAX = 20


def text_lines(jobs: Sequence[Efficiency]) -> list[str]:
    """Lines: for a single job, or a table of several with a common suggestion."""
    if len(jobs) == 1:
        (job,) = jobs
        return [*_one(job), *(_next_time(advise(jobs), of="it") if _known(job) else ())]
    lines = _table([["JOBID", "STATE", "ELAPSED", "CPU", "MEMORY", "GPU", "NODES"], *map(_cells, jobs)])
    known = [job for job in jobs if _known(job)]
    if not known:
        return lines
    if len({job.job.split("_")[0] for job in jobs}) == 1:
        return [*lines, *_next_time(advise(jobs), of="all of them" if len(known) == len(jobs) else "those that ran")]
    # Each has lines of its own: jobs of several scripts, or components of a heterogeneous one.
    for job in known:
        lines += _next_time(advise([job]), of=job.job, to=f" for {job.job}")
    return lines


def _known(job: Efficiency) -> bool:
    return job.out_of_memory or (job.sampled and job.elapsed_seconds > 0)


def _cells(job: Efficiency) -> list[str]:
    known = _known(job)
    requested = job.memory_asked_per_node_mib
    return [
        job.job,
        job.state,
        format_duration(job.elapsed_seconds),
        _share(job.cpus_busy, job.cpus) if known else "-",
        _share(job.memory_mib, requested) if known and requested else size(job.memory_mib) if known else "-",
        f"{job.gpu_percent}%" if job.gpus and job.gpus_known else "-",
        job.nodes or "-",
    ]


def _one(job: Efficiency) -> list[str]:
    title = f"Job {job.job} ({one_line(job.name)}) of {job.user}: {job.state}"
    if not job.elapsed_seconds and not job.nodes:
        return [title, "It has not run: nothing was used."]
    where = f"{format_duration(job.elapsed_seconds)} on {job.nodes}"
    lines = [title, f"{'It has run' if job.running else 'It ran'} for {where}.", ""]
    rows = [["", "ASKED", "USED", ""]]
    limit = "no limit" if job.limit_seconds is None else format_duration(job.limit_seconds)
    rows.append(["Time", limit, format_duration(job.elapsed_seconds), _share(job.elapsed_seconds, job.limit_seconds)])
    if job.sampled:
        rows.append(["CPUs", str(job.cpus), f"{job.cpus_busy:.1f} busy on average", _share(job.cpus_busy, job.cpus)])
        requested = job.memory_asked_per_node_mib
        text = "not limited" if requested is None else format_mib(requested) + (" a node" if job.node_count > 1 else "")
        if job.memory_mib:
            rows.append(["Memory", text, f"{size(job.memory_mib)} at most", _share(job.memory_mib, requested)])
        else:
            rows.append(["Memory", text, "not sampled: too short", ""])
    if job.gpus:
        rows.append(
            ["GPUs", str(job.gpus), _gpus(job), _share(job.gpu_percent / 100, job.gpus) if job.gpus_known else ""]
        )
    lines += _table(rows)
    if not job.sampled:
        lines += ["", _unknown(job)]
    elif job.node_count > 1 and job.by_node:
        lines += ["", *_nodes(job)]
    return lines


def _gpus(job: Efficiency) -> str:
    if not job.gpus_known:
        return "not sampled: too short" if job.elapsed_seconds < SHORT_SECONDS else "not measured: NVML did not tell"
    if not job.gpu_memory_mib and not job.gpu_percent:
        return "not seen in use"
    return f"{job.gpu_percent}% at most, {size(job.gpu_memory_mib)} of memory"


def _unknown(job: Efficiency) -> str:
    if job.running:
        return "Nothing is known yet of what it uses; only the job's owner and administrators may see it."
    return (
        "Nothing was sampled of what it used: it ran no step, its nodes were lost, or JobAcctGatherType=none. "
        "Commands that are started with srun are measured."
    )


def _nodes(job: Efficiency) -> list[str]:
    rows = [["NODE", "CPUS BUSY", "MEMORY"] + (["GPU", "GPU MEMORY"] if job.gpus_known else [])]
    for use in job.by_node[:NODES_MAX]:
        busy = use.cpu_seconds / job.elapsed_seconds if job.elapsed_seconds else 0.0
        row = [use.node, f"{busy:.1f}", size(use.memory_mib)]
        rows.append(row + ([f"{use.gpu_percent}%", size(use.gpu_memory_mib)] if job.gpus_known else []))
    hidden = len(job.by_node) - NODES_MAX
    return _table(rows) + ([f"and {hidden} more nodes (--json has them all)"] if hidden > 0 else [])


def _next_time(advice: list[Advice], *, of: str, to: str = "") -> list[str]:
    if not advice:
        return ["", f"Nothing to change: what was asked for suits {of}, as far as it is known."]
    lines = ["", f"Next time{to}, in place of what it asks for now:"]
    width = max(len(suggestion.line) for suggestion in advice)
    for suggestion in advice:
        lines.append(
            f"  {suggestion.line.ljust(width)}   # {suggestion.why}" if suggestion.line else f"  # {suggestion.why}"
        )
    return lines


def _share(used: float, requested: float | None) -> str:
    return f"{100.0 * used / requested:.0f}%" if requested else ""


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
