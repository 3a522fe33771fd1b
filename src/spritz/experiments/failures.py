"""The reason why a run failed, as text: from its logs and its state in Slurm."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path

from spritz.experiments import logs, record, watch
from spritz.experiments.errors import ExperimentError

#: Pattern in a log -> explanation with a remedy. The first match wins, so causes precede their effects.
_KNOWN: tuple[tuple[str, str], ...] = (
    (r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|HIP out of memory|CUDA_ERROR_OUT_OF_MEMORY",
     "a GPU ran out of memory: a smaller batch, gradient accumulation or checkpointing, or GPUs with more memory"),
    (r"(?:Out Of Memory|oom[_-]kill event|Detected \d+ oom_kill)",
     "the job ran out of main memory: ask for more with --mem"),
    (r"(?:NCCL|RCCL).*(?:[Tt]imeout|timed out)|Watchdog caught collective operation timeout",
     "a collective operation timed out: one rank hung, died or ran ahead; the first rank that failed is the cause"),
    (r"NCCL (?:error|WARN)|ncclSystemError|ncclUnhandledCudaError|ncclInternalError",
     "NCCL failed: NCCL_DEBUG=INFO in env: says why"),
    (r"ModuleNotFoundError: No module named '([^']+)'|ImportError: (.*)",
     "a Python module is missing or broken: is the environment the one that you tried it in?"),
    (r"device-side assert triggered|CUDA error: an illegal memory access",
     "a CUDA kernel failed; CUDA_LAUNCH_BLOCKING=1 names it"),
    (r"No CUDA GPUs are available|no CUDA-capable device", "no GPU in the job: ask with --gpus"),
    (r"No space left on device|Disk quota exceeded", "the file system is full"),
    (r"Address already in use", "the rendezvous port is taken: another job on this node uses it"),
    (r"PermissionError|Permission denied", "a file may not be read or written"),
    (r"FileNotFoundError: .*|No such file or directory",
     "a file is missing: only the snapshot of the code is in the job's directory"),
    (r"^\w*(?:Error|Exception)\b.*", "the program raised an exception"),
    (r"terminate called without an active exception",
     "a thread still ran when the program ended, at times one of PyTorch's gloo: `os._exit(0)` as last line avoids it"),
)  # fmt: skip
_PATTERNS = tuple((re.compile(pattern, re.MULTILINE), meaning) for pattern, meaning in _KNOWN)
_TAIL_BYTES = 64 << 10

_STATES = {
    "TIMEOUT": "it reached its time limit",
    "OUT_OF_MEMORY": "it ran out of main memory: ask for more with --mem",
    "NODE_FAIL": "a node failed",
    "PREEMPTED": "it was preempted by a job of higher priority",
    "CANCELLED": "it was cancelled",
    "DEADLINE": "it could not end before its deadline",
    "BOOT_FAIL": "a node did not boot",
    "LOST": "Slurm does not know the job any more, and it never said that it had ended",
}


def explain(directory: Path, state: str, exit_code: int | None) -> str:
    """The reason of the failure in one or two lines; "" if the run did not fail."""
    events = record.events(directory)
    life = max((event["restart"] for event in events if event["event"] == "started"), default=0)
    guard = [event for event in events if event["event"] == "idle" and event.get("action") == "end"]
    guard = [event for event in guard if event["restart"] == life]
    if guard and state != "COMPLETED" and (what := guard[-1].get("what")):
        return f"its guard ended it: the {what.upper()}s had been idle for {watch.span(guard[-1]['seconds'])}"
    if state == "COMPLETED" or state not in (*_STATES, "FAILED"):
        return ""
    if state == "FAILED" and not any(event["event"] == "started" for event in events):
        return (
            "its script could not begin: can its node write to the run's directory? A home that nodes do not share is "
            f"refused so\n  {directory} (SPRITZ_HOME names another); the log of the node's slurmd has the reason"
        )
    parts = [_STATES[state] if state in _STATES else ending(exit_code)]
    if state != "CANCELLED" and (cause := first_cause(directory)):
        parts.append(cause)
    return "; ".join(parts)


def ending(exit_code: int | None) -> str:
    """How a command ended, in words. `exit_code` is in the shell's form (128 + signal); None: not known."""
    if exit_code is None:
        return "it failed"
    if exit_code > 128:
        try:
            return f"it was killed by {signal.Signals(exit_code - 128).name}"
        except ValueError:
            pass
    known = {
        126: "its command could not be executed",
        127: "its command was not found",
        66: "its code or directory was missing",
        75: "it saved its state and exited, and could not be requeued (log/job.log has Slurm's words)",
        76: "it was restarted again and again without a new checkpoint",
        124: "its total time (--max-time) is used up",
    }
    return known.get(exit_code, f"it ended with exit status {exit_code}")


def first_cause(directory: Path) -> str:
    """The earliest known cause in the logs since the last restart, with its rank and line."""
    newest = max((restart for restart, _, _ in logs.files(directory)), default=0)
    for pattern, meaning in _PATTERNS:
        for rank, text in _tails(directory, newest):
            match = pattern.search(text)
            if match:
                line = text[text.rfind("\n", 0, match.start()) + 1 :].splitlines()[0].strip()
                where = f"rank {rank}: " if rank is not None else ""
                advice = _not_seen(directory, line)
                return f"{advice or meaning}\n  {where}{line[:300]}"
    return ""


def _not_seen(directory: Path, line: str) -> str:
    """Advice about a missing file that the working tree has; "" for others."""
    match = re.search(r"'([^']+)'", line)
    if match is None or "o such file" not in line:
        return ""
    try:
        code = record.read(directory).code
    except ExperimentError:
        return ""
    checkout = os.path.join(directory, "code", code.get("directory", ""))
    path = os.path.relpath(os.path.join(checkout, match[1]), checkout)
    if not code or path.startswith("..") or not os.path.exists(os.path.join(code["root"], code["directory"], path)):
        return ""
    return f"{path} is in the working tree, but git ignores it: `spritz run --link {path} …` lets the run see it"


def _tails(directory: Path, restart: int) -> Iterable[tuple[int | None, str]]:
    for life, rank, path in logs.files(directory):
        if rank is not None and life != restart:
            continue
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                yield rank, file.read().decode("utf-8", "replace")
        except OSError:
            continue
