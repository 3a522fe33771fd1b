"""The reason why a run failed, as text: from its logs and its state in Slurm."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spritz.experiments import watch
from spritz.experiments.code import snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.records import lives, record
from spritz.experiments.results import logs, places

#: Before a line: the rank by torchrun (`[rank3]:`, `[default0]:`), Lightning (`[rank: 3]`) or `srun --label`.
_PREFIX = re.compile(r"(?:\[(?:rank|default): ?(\d+)\]:? ?|\[(?:rank|default)(\d+)\]:? ?|(\d+): )")

#: Pattern in a line -> explanation with a remedy. The first pattern that any rank's log has wins, so causes precede
#: their effects.
_KNOWN: tuple[tuple[str, str], ...] = (
    (r"torch\.(?:cuda\.)?OutOfMemoryError|(?:CUDA|HIP) out of memory|CUDA_ERROR_OUT_OF_MEMORY"
     r"|RESOURCE_EXHAUSTED: Out of memory|CUBLAS_STATUS_ALLOC_FAILED",
     "a GPU ran out of memory: a smaller batch, gradient accumulation or checkpointing, or GPUs with more memory"),
    (r"(?:Out Of Memory|oom[_-]kill event|Detected \d+ oom_kill|[Ee]xceeded (?:job |step )?memory limit)"
     r"|std::bad_alloc|^MemoryError(?::|$)|Cannot allocate memory",
     "the job ran out of main memory: ask for more with --mem"),
    (r"unable to (?:mmap|write to file </torch|open shared memory object)|insufficient shared memory|^Bus error|SIGBUS",
     "/dev/shm is full or too small for the workers of a DataLoader: fewer workers, or more memory for the job"),
    (r"^spritz: .* (?:has the checkpoints of another run|cannot be written$)",
     "its checkpoint directory (--checkpoint-dir) is not its own"),
    (r"CUDA driver version is insufficient|The NVIDIA driver on your system is too old|CUDA error: no kernel image",
     "this build of the framework does not fit the node's driver or GPU: another build, or nodes by --constraint"),
    (r"No CUDA GPUs are available|no CUDA-capable device|Found no NVIDIA driver|Torch not compiled with CUDA",
     "no GPU in the job, or a framework without CUDA: ask with --gpus"),
    (r"uncorrectable ECC error|fallen off the bus|NVRM: Xid|CUDA error: unspecified launch failure|unknown error.*CUDA",
     "a GPU failed: run again on another node (--slurm=--exclude=NODE), and tell the administrator"),
    (r"device-side assert triggered|illegal memory access|Assertion `.*` failed\.",
     "a CUDA kernel failed; CUDA_LAUNCH_BLOCKING=1 names it"),
    (r"Cannot re-initialize CUDA in forked subprocess",
     "CUDA was used before the program forked: start workers by `spawn`, or use CUDA after the fork only"),
    (r"Expected all tensors to be on the same device", "a tensor is on another device than the others"),
    (r"cannot open shared object file|version `\w+_[\d.]+' not found",
     "a shared library is missing or another version: load the module (setup: in spritz.yaml) that you tried it with"),
    (r"^(?:\w+\.)*ModuleNotFoundError\b|No module named \S+$|^ImportError: (.*)",
     "a Python module is missing or broken: is the environment the one that you tried it in?"),
    (r"^\w*(?:SyntaxError|IndentationError|TabError): ", "the program cannot be read by this Python"),
    (r"error: (?:unrecognized arguments|the following arguments are required|argument \S+: )"
     r"|Could not override|Key '.*' is not in struct|ConfigCompositionException",
     "the program does not take these arguments"),
    (r"No space left on device|Disk quota exceeded", "the file system is full"),
    (r"Too many open files", "too many files are open at once: fewer workers, or raise `ulimit -n`"),
    (r"Address already in use|EADDRINUSE", "the rendezvous port is taken: another job on this node uses it"),
    (r"(?:401 Client Error|403 Client Error|GatedRepoError|Unauthorized for url|Invalid user token)",
     "a server refused access: is the token in the job (--env), and has it the rights?"),
    (r"Temporary failure in name resolution|Name or service not known|Network is unreachable|Max retries exceeded"
     r"|couldn't connect to '?https?://",
     "a server could not be reached: the nodes may have no way out; download before the run, and --link the files"),
    (r"version https://git-lfs|unpickling stack underflow|invalid load key, 'v'",
     "a file is a pointer of Git LFS: `git lfs pull` fetches its content"),
    (r"size mismatch for |(?:Missing|Unexpected) key\(s\) in state_dict: \"",
     "the checkpoint is not of this model"),
    (r"(?:loss|grad\w*)\b.* (?:is|became|=) ?nan\b(?!\?)|FloatingPointError|returned nan values",
     "the computation diverged: a smaller learning rate, clipped gradients, or bf16 in place of fp16"),
    (r"PermissionError|Permission denied", "a file may not be read or written"),
    (r"FileNotFoundError: .*|No such file or directory",
     "a file is missing: only the snapshot of the code is in the job's directory"),
)  # fmt: skip
#: Ends without a Python exception.
_KILLED: tuple[tuple[str, str], ...] = (
    (r"Segmentation fault|SIGSEGV|Signal 11\b", "a compiled part crashed: `python -X faulthandler` names where"),
    (r"^Killed$|killed by signal: Killed|\(SIGKILL\)|Signal 9\b",
     "a process was killed, most often for want of memory: `spritz show` has what it used"),
    (r"Illegal instruction|SIGILL", "a program was built for other processors than the node's"),
    (r"SIGABRT|Aborted \(core dumped\)", "a compiled part aborted"),
    (r"terminate called without an active exception",
     "a thread still ran when the program ended, at times one of PyTorch's gloo: `os._exit(0)` as last line avoids it"),
)  # fmt: skip
#: What ranks say whose peer has failed: never the cause, if any other line tells it.
_EFFECTS: tuple[tuple[str, str], ...] = (
    (r"(?:NCCL|RCCL|ProcessGroup\w*).*(?:[Tt]imeout|timed out)|Watchdog caught collective operation timeout",
     "a collective operation timed out: one rank hung, died or ran ahead; the first rank that failed is the cause"),
    (r"NCCL (?:error|WARN)|ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError",
     "NCCL failed: NCCL_DEBUG=INFO in env: says why"),
    (r"[Cc]onnection (?:reset|closed|refused)|Broken pipe|recvValue failed|Socket ?Timeout|ChildFailedError"
     r"|connectFullMesh|DistNetworkError|DistStoreError|remote process exited"
     r"|stopped sending heartbeats|JAX distributed service detected fatal errors",
     "a rank lost its peer, and none says why: the first one that ended has the cause"),
)  # fmt: skip
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Failed|Refused)\b(?::|$)")


def _compiled(table: tuple[tuple[str, str], ...]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), meaning) for pattern, meaning in table)


_CAUSES, _ENDS, _LOST = _compiled(_KNOWN), _compiled(_KILLED), _compiled(_EFFECTS)
#: Any of the causes: most lines have none, and need a single search.
_ANY_CAUSE = re.compile("|".join(pattern for pattern, _ in _KNOWN))
_TAIL_BYTES = 64 << 10

#: Exceptions that say all themselves: nothing that was logged before is their cause.
_OWN = re.compile(
    r"(?:Key|Value|Type|Index|Attribute|Name|UnboundLocal|ZeroDivision|Assertion|NotImplemented|Recursion)Error\b"
)
#: What programs also say of what they go on without, unless it is among the last lines.
_PASSING = re.compile(
    r"o such file|ermission denied|cannot open shared object|Address already in use|EADDRINUSE"
    r"|Temporary failure in name|Name or service not known|Network is unreachable|Max retries|couldn't connect"
    r"|No space left|quota exceeded|Too many open files|is ?nan"
)
_LAST_LINES = 30
#: Said where the directory of the submission is gone; the job's script goes to its own.
_ELSEWHERE = re.compile(r"slurmstepd\S*: error: couldn't chdir to .*: going to /tmp instead$")

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
    events = lives.current(record.events(directory))
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
    by_itself = state in ("FAILED", "OUT_OF_MEMORY", "LOST")
    if state != "CANCELLED" and (cause := first_cause(directory, by_itself=by_itself)):
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


@dataclass(frozen=True)
class _Line:
    """A line without its prefix; `rank` by the prefix, else by the file."""

    rank: int | None
    text: str
    #: below a traceback, and its last line
    raised: bool
    ends: bool
    prefixed: bool


def first_cause(directory: Path, *, by_itself: bool = True) -> str:
    """The cause in the logs since the last restart, with its rank and line: a known one that ended a program, or that
    was logged if no exception says all itself, else the first exception of a rank, else a signal, else what ranks say
    that have lost a peer. `by_itself`: the program ended so; else what it merely logged is no cause.
    """
    newest = max((restart for restart, _, _ in logs.files(directory)), default=0)
    tails = [list(_lines(rank, text)) for rank, text in _tails(directory, newest)]
    lost: list[_Line] = []
    others: list[_Line] = []
    for line in (line for tail in tails for line in tail):
        (others if _first(_LOST, (line,)) is None else lost).append(line)
    ended = [line for tail in tails for line in _since_traceback(tail)]
    cause = _first(_CAUSES, [line for line in ended if _ANY_CAUSE.search(line.text)])
    if cause is None and by_itself and not any(line.ends and _OWN.match(line.text) for line in ended):
        last = {id(line) for tail in tails for line in tail[-_LAST_LINES:]}
        logged = [line for line in others if id(line) in last or not _PASSING.search(line.text)]
        cause = _first(_CAUSES, [line for line in logged if _ANY_CAUSE.search(line.text)])
    if cause is None:
        exceptions = [line for line in others if _EXCEPTION.match(line.text)]
        last_raised = [line for line in ended if line.ends and _EXCEPTION.match(line.text)]
        raised = last_raised or [line for line in exceptions if line.raised] or exceptions
        signal_line = _first(_ENDS, others)
        cause = ("the program raised an exception", raised[0]) if raised else signal_line or _first(_LOST, lost)
    if cause is None:
        return ""
    meaning, line = cause
    where = (
        ""
        if line.rank is None
        else f"rank {line.rank}{places.named(directory, line.rank, by_launcher=line.prefixed)}: "
    )
    return f"{_not_seen(directory, line.text) or meaning}\n  {where}{line.text[:300]}"


def _first(table: Iterable[tuple[re.Pattern[str], str]], lines: Sequence[_Line]) -> tuple[str, _Line] | None:
    """The meaning of the first pattern that a line has, and the line."""
    for pattern, meaning in table:
        for line in lines:
            if pattern.search(line.text):
                return meaning, line
    return None


def _since_traceback(tail: Sequence[_Line]) -> list[_Line]:
    """Of each rank in a log what follows the last traceback of its own, with that; without one nothing. What srun says,
    which has no rank, counts whole. Tracebacks of ranks that lost their peer, and of launchers, tell no cause.
    """
    since: list[_Line] = []
    by_rank: dict[tuple[int | None, bool], list[_Line]] = {}
    for line in tail:
        by_rank.setdefault((line.rank, line.prefixed), []).append(line)
    for (rank, _), lines in by_rank.items():
        begin = chain = None if rank is not None else 0
        caused = False
        for place, line in enumerate(lines):
            if "was the direct cause of the following exception" in line.text:
                caused = True
            elif line.text.startswith("Traceback (most recent call last)"):
                chain = chain if caused else place
                caused = False
            elif line.ends and _first(_LOST, (line,)) is None:
                begin = chain
        if begin is not None:
            since += [line for line in lines[begin:] if _first(_LOST, (line,)) is None]
    return since


def _lines(rank: int | None, text: str) -> Iterator[_Line]:
    raised = False
    for whole in text.splitlines():
        if _ELSEWHERE.match(whole):
            continue
        match = _PREFIX.match(whole)
        written = next((int(number) for number in match.groups() if number), None) if match else None
        line = whole[match.end() :] if match else whole
        if line.startswith("Traceback (most recent call last)"):
            raised = True
        ends = raised and bool(line[:1].strip()) and not line.startswith("Traceback")
        yield _Line(rank if written is None else written, line.strip(), raised, ends, written is not None)
        if ends:
            raised = False


def _not_seen(directory: Path, line: str) -> str:
    """Advice about a missing file that the working tree has; "" for others."""
    match = re.search(r"'([^']+)'", line)
    if match is None or "o such file" not in line:
        return ""
    try:
        run = record.read(directory)
    except ExperimentError:
        return ""
    if run.runs_in_place:
        return ""
    code = run.code
    checkout = os.path.join(directory, "code", code.get("directory", ""))
    path = os.path.relpath(os.path.join(checkout, match[1]), checkout)
    if path.startswith("..") or not os.path.exists(os.path.join(code["root"], code["directory"], path)):
        return ""
    below = os.path.normpath(os.path.join(code["directory"], path))
    try:
        if not snapshot.missing(directory.parent.parent / "snapshots.git", code["tree"], [below]):
            return ""
        is_ignored = bool(snapshot.ignored(Path(code["root"]), [below]))
    except ExperimentError:
        return ""
    if is_ignored:
        link = f"`spritz run --link {shlex.quote(path)} …` lets the run see it"
        return f"{path} is in the working tree, but git ignores it: {link}"
    return f"{path} is in the working tree, but not in the snapshot: it is newer, or a directory without files"


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
