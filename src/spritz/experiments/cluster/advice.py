"""A run's use of its requested resources, and sufficient options: from accounting, on any Slurm.

Only fields that 22.05 and newer have: Elapsed, TimelimitRaw, TotalCPU, AllocTRES, MaxRSS and NTasks of steps. They do
not cover GPUs; samples of the run's own sampler (usage/) are used if they exist.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from spritz.experiments.cluster import slurm
from spritz.experiments.interface import clock

_FIELDS = "JobID,Elapsed,TimelimitRaw,TotalCPU,AllocTRES,MaxRSS,NTasks"
#: Seconds; shorter runs are not representative.
_SECONDS_MIN = 60.0
#: Advised amount as a multiple of the amount used.
_MARGIN = 1.25
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Use:
    """The usage of a whole job. 0 if accounting does not know: no usage gathered, or no time limit."""

    elapsed_seconds: float
    limit_seconds: float
    cpus: int
    nodes: int
    gpus: int
    cpu_seconds: float
    #: memory of the node with the highest usage, and as allocated on each node
    memory_bytes: float
    memory_asked_bytes: float
    #: mean over all GPUs; None if it was not sampled
    gpu_percent: float | None = None

    @property
    def cpus_busy(self) -> float:
        return self.cpu_seconds / self.elapsed_seconds if self.elapsed_seconds else 0.0


def measured(job_id: str, directory: Path) -> Use | None:
    """The usage of a job, from sacct; None if accounting does not know the job."""
    done = slurm.call(["sacct", "-nP", "-j", job_id, "-o", _FIELDS])
    if done.returncode:
        return None
    return parsed(done.stdout, gpu_use(directory))


def parsed(text: str, gpu_percent: float | None = None) -> Use | None:
    """Parse sacct's lines: the first is the job, the others are its steps."""
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == _FIELDS.count(",")]
    if not rows:
        return None
    _, elapsed, limit, total, allocated, _, _ = rows[0]
    tres = dict(part.partition("=")[::2] for part in allocated.split(","))
    nodes = int(tres.get("node") or 1)
    memory = 0.0
    for _, _, _, _, step_tres, rss, tasks in rows[1:]:
        step_nodes = int(dict(part.partition("=")[::2] for part in step_tres.split(",")).get("node") or 1)
        # MaxRSS is of the largest task, so the node's usage is at most this times its tasks.
        memory = max(memory, size(rss) * math.ceil(int(tasks or 1) / step_nodes))
    return Use(
        elapsed_seconds=seconds(elapsed),
        limit_seconds=60.0 * int(limit) if limit.isdecimal() else 0.0,
        cpus=int(tres.get("cpu") or 1),
        nodes=nodes,
        gpus=int(tres.get("gres/gpu") or 0),
        cpu_seconds=seconds(total),
        memory_bytes=memory,
        memory_asked_bytes=size(tres.get("mem", "")) / nodes,
        gpu_percent=gpu_percent,
    )


def seconds(text: str) -> float:
    """Parse [DAYS-][HOURS:]MINUTES:SECONDS[.FRACTION]; 0.0 for any other text."""
    days, dash, clock = text.rpartition("-")
    try:
        parts = [float(part) for part in clock.split(":")]
    except ValueError:
        return 0.0
    total = 0.0
    for part in parts:
        total = total * 60 + part
    return total + (86_400 * int(days) if dash else 0)


def size(text: str) -> float:
    """Parse 512M, 4G or 90144K into bytes; 0.0 for any other text."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    try:
        return float(text[:-1]) * units[text[-1]] if text[-1:] in units else float(text or 0)
    except ValueError:
        return 0.0


def gpu_use(directory: Path) -> float | None:
    """Mean GPU load in percent, over the samples of the run's sampler; None without samples."""
    values: list[float] = []
    for path in sorted((directory / "usage").glob("*.jsonl")):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            try:
                values += [float(row[0]) for row in json.loads(line).get("gpus", {}).values()]
            except (ValueError, TypeError, IndexError, AttributeError):
                continue
    return sum(values) / len(values) if values else None


def used(use: Use) -> str:
    """The usage as a line of text."""
    parts = []
    if use.cpu_seconds:
        parts.append(f"{use.cpus_busy:.1f} of {use.cpus} CPU{'s' if use.cpus > 1 else ''}")
    if use.memory_bytes:
        of = f" of {_bytes(use.memory_asked_bytes)}" if use.memory_asked_bytes else ""
        parts.append(f"{_bytes(use.memory_bytes)}{of} memory{' on a node' if use.nodes > 1 else ''}")
    if use.gpus and use.gpu_percent is not None:
        parts.append(f"{use.gpu_percent:.0f}% of {use.gpus} GPU{'s' if use.gpus > 1 else ''}")
    if use.limit_seconds:
        parts.append(f"{clock(use.elapsed_seconds)} of {clock(use.limit_seconds)}")
    return ", ".join(parts)


def advised(use: Use, *, state: str, tasks: int = 1) -> list[str]:
    """Corrected options for the next run; none for a short run, or one that used its request."""
    options: list[str] = []
    if state == "OUT_OF_MEMORY" and use.memory_asked_bytes:
        options.append(f"--mem={_mib(2 * use.memory_asked_bytes)} (it ran out of memory)")
    if state == "TIMEOUT" and use.limit_seconds:
        options.append(f"--time={math.ceil(use.limit_seconds / 60 * 1.5)} (it reached its time limit)")
    if use.elapsed_seconds < _SECONDS_MIN or state not in ("COMPLETED", "TIMEOUT"):
        return options
    enough = max(1, math.ceil(use.cpus_busy * _MARGIN / max(1, tasks)))
    if use.cpu_seconds and use.cpus_busy < 0.5 * use.cpus and enough * tasks < use.cpus:
        options.append(f"--cpus-per-task={enough}")
    if use.memory_bytes and use.memory_asked_bytes > 1024 * _MIB and use.memory_bytes < 0.5 * use.memory_asked_bytes:
        options.append(f"--mem={_mib(max(_MARGIN * use.memory_bytes, 256 * _MIB))}")
    if state == "COMPLETED" and use.limit_seconds > 1800 and use.elapsed_seconds < 0.4 * use.limit_seconds:
        options.append(f"--time={max(10, math.ceil(use.elapsed_seconds * 1.5 / 60))} (it would start sooner)")
    if use.gpus and use.gpu_percent is not None and use.gpu_percent < 30:
        fewer = f"--gpus={max(1, math.ceil(use.gpus * use.gpu_percent / 70))}, or " if use.gpus > 1 else ""
        options.append(f"{fewer}more CPUs or workers to load data (GPUs worked at {use.gpu_percent:.0f}%)")
    return options


def _mib(amount: float) -> str:
    """An amount in bytes for --mem, rounded up to 256 MiB; in G if it is a whole number."""
    steps = math.ceil(amount / (256 * _MIB))
    return f"{steps // 4}G" if steps % 4 == 0 else f"{steps * 256}M"


def _bytes(amount: float) -> str:
    return f"{amount / (1 << 30):.1f} GiB" if amount >= 1 << 30 else f"{amount / _MIB:.0f} MiB"


def lines(job_id: str, directory: Path, state: str, tasks: int) -> list[str]:
    """At most two lines: the usage, and options for the next run."""
    use = measured(job_id, directory)
    if use is None:
        return []
    usage = [text for text in [used(use)] if text]
    options = advised(use, state=state, tasks=tasks)
    return [*usage, *([f"next time: {', '.join(options)}"] if options else [])]
