"""The events of a run: lines such as {"event": "started", "at": 1700000000.0, "restart": 0, …} in its directory.

    events.NODE.jsonl             by its job, on the node of its script; `restart` counts the job's lives
    events.HOST.commands.jsonl    by commands, as `spritz pause`
    events.jsonl                  by jobs and commands of earlier releases

Each machine has files of its own: NFS appends where a machine last saw the end of the file, so that two machines would
write over each other's lines.

Imports only the standard library, because jobs import it too.
"""

from __future__ import annotations

import errno
import heapq
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_COMMANDS = ".commands.jsonl"
#: Seconds since the epoch: later times cannot be shown.
YEAR_9999 = 253_370_764_800.0
#: Number of a job or of an array's task; "" before there is one. It becomes a word of Slurm's commands.
JOB_ID = re.compile(r"[0-9]*(?:[_+][0-9]+)?")


def append(directory: Path, event: str, at: float, **values: Any) -> None:
    """Add a line to the run's events; with `restart`, to those of its job on this node.

    Raises OSError, also if only a part of the line could be written.
    """
    host = os.uname().nodename
    # Jobs name a node as job.sh does.
    name = (
        f"events.{os.environ.get('SLURMD_NODENAME') or host}.jsonl"
        if "restart" in values
        else f"events.{host}{_COMMANDS}"
    )
    line = (json.dumps({"event": event, "at": at, **values}) + "\n").encode()
    try:
        mode = (directory / "run.json").stat().st_mode & 0o644  # the run may be shared with others
    except OSError:
        mode = 0o600
    descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
    try:
        if os.write(descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory / name))
    finally:
        os.close(descriptor)


def is_events(name: str) -> bool:
    """Whether the file of that name in a run's directory has events."""
    return name.startswith("events.") and name.endswith(".jsonl")


def read(directory: Path) -> list[dict[str, Any]]:
    """The run's events so far, in order: those of one machine as it wrote them, those of the job's lives by their
    number, and all others by their time.
    """
    try:
        names = sorted(filter(is_events, os.listdir(directory)))
    except OSError:
        return []
    files = {name: _lines(directory / name) for name in names}
    if len(files) == 1:
        return next(iter(files.values()))
    # The clocks of two nodes may differ by more than the time between two lives.
    lives = heapq.merge(
        *(_by_life(lines) for name, lines in files.items() if not name.endswith(_COMMANDS)),
        key=lambda placed: placed[:2],
    )
    commands = (_by_time(lines) for name, lines in files.items() if name.endswith(_COMMANDS))
    timed = heapq.merge(_by_time(line for _, _, line in lives), *commands, key=lambda placed: placed[0])
    return [line for _, line in timed]


def whole(line: str, begin: str) -> dict[str, Any] | None:
    """The JSON object that is the line, or that ends it and begins so, after one whose end is missing; else None."""
    for part in (line, line[max(0, line.rfind(begin)) :]):
        try:
            values = json.loads(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict):
            return values
    return None


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [values for line in text.split("\n") if (values := whole(line, '{"event": ')) and _is_event(values)]


#: Events that decide a run's state -> whole numbers that they must have.
_NUMBERS = {"started": ("restart",), "ended": ("restart", "status"), "idle": ("restart",), "pruned": ("restart",)}


def _is_event(values: dict[str, Any]) -> bool:
    """Whether the line, which may be damaged or another user's, is what readers take it for."""
    at = values.get("at")
    if not (isinstance(values.get("event"), str) and isinstance(at, int | float) and 0 <= at < YEAR_9999):
        return False
    return all(_is_whole(values.get(name)) for name in _NUMBERS.get(values["event"], ()))


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and abs(number) < 1 << 31


def _by_time(lines: Iterable[dict[str, Any]]) -> Iterator[tuple[float, dict[str, Any]]]:
    """Each line with its time, or an earlier line's if the clock was set back."""
    at = 0.0
    for line in lines:
        at = max(at, _number(line.get("at")))
        yield at, line


def _by_life(lines: Iterable[dict[str, Any]]) -> Iterator[tuple[tuple[float, float], float, dict[str, Any]]]:
    life = (0.0, 0.0)
    for at, line in _by_time(lines):
        life = max(life, (_number(line.get("restart")), _number(line.get("life"))))
        yield life, at, line


def _number(field: Any) -> float:
    return float(field) if isinstance(field, int | float) else 0.0
