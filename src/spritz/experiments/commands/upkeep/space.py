"""Show how much disk space and how many files your runs take, the largest first, and how to free them.

Sizes are allocated blocks, and files include directories, as quotas count both. A sweep or pipeline is a line, since
its runs are removed together. Checkpoints elsewhere (--checkpoint-dir) are counted; `spritz remove` leaves them.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spritz.experiments.code import trimming
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import Terminal, reporting, size
from spritz.experiments.job import resuming, states, submission
from spritz.experiments.records import record, space
from spritz.experiments.records.space import Space
from spritz.experiments.records.store import Entry, Query, Store

_LIMIT = 20
#: Runs whose files are counted at the same time, since a network file system answers each question late.
_AT_ONCE = 8
#: The files of the home directory that are counted with runs.
_OF_RUNS = ("runs", "sweeps", "pipelines")
_ELSEWHERE = "checkpoints elsewhere"


@dataclass
class Line:
    """A run, or a sweep or pipeline with its runs."""

    name: str
    runs: int = 0
    #: of these, ones that have not ended
    open: int = 0
    space: Space = field(default_factory=Space)
    #: part of a run's directory -> its space
    parts: dict[str, Space] = field(default_factory=lambda: defaultdict(Space))

    def add(self, parts: dict[str, Space]) -> None:
        for name, taken in parts.items():
            self.parts[name].add(taken)
            self.space.add(taken)

    @property
    def command(self) -> str:
        """What frees it."""
        return f"spritz {'cancel' if self.open else 'remove'} {self.name}"

    def shown(self) -> tuple[str, ...]:
        largest = max(self.parts, key=lambda name: self.parts[name].bytes, default="")
        return (
            self.name,
            str(self.runs),
            size(self.space.bytes),
            f"{self.space.files:,}",
            f"{largest or 'records'} {size(self.parts[largest].bytes)}",
            self.command,
        )

    def as_json(self) -> dict[str, Any]:
        parts = {name or "records": asdict(taken) for name, taken in self.parts.items()}
        return {
            "name": self.name, "runs": self.runs, "open": self.open, **asdict(self.space), "parts": parts,
            "command": self.command,
        }  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-n", "--limit", type=int, default=_LIMIT, help="show at most this many (0: all; default: 20)")
    parser.add_argument(
        "--trim",
        action="store_true",
        help="first remove files of the code that runs which have ended left unchanged; jobs that end by themselves do",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, with all lines")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    store = Store(home())
    states.refresh_or_tell(store, store.open_runs(submission.user()), terminal)
    entries = store.find(Query(owner=submission.user()))
    whole = [entry for entry in entries if _is_trimmable(entry)]
    if arguments.trim:
        _trim(store.home, whole, terminal)
        whole = []
    lines = _lines(store.home, entries)
    shared = _shared(store, entries)
    total = Space()
    for taken in [*(line.space for line in lines), *shared.values()]:
        total.add(taken)
    if arguments.json:
        values = {
            "home": str(store.home), **asdict(total), "lines": [line.as_json() for line in lines],
            "shared": {name: asdict(taken) for name, taken in shared.items()}, "untrimmed": len(whole),
        }  # fmt: skip
        terminal.out(json.dumps(values, indent=1) + "\n")
        return 0
    shown = lines[: arguments.limit] if arguments.limit > 0 else lines
    rows = [("RUN", "RUNS", "SIZE", "FILES", "MOSTLY", "FREE IT BY"), *(line.shown() for line in shown)]
    if hidden := lines[len(shown) :]:
        remainder = Space()
        for line in hidden:
            remainder.add(line.space)
        rows.append((f"{len(hidden)} more", str(sum(line.runs for line in hidden)), *_columns(remainder)))
    rows += [(name, "", *_columns(taken)) for name, taken in shared.items()]
    terminal.out(_table([*rows, ("total", str(len(entries)), *_columns(total))]))
    if whole:
        terminal.err(
            f"spritz: of runs that have ended, {len(whole)} hold all of their code: `spritz space --trim` leaves what "
            "they wrote or changed\n"
        )
    return 0


def _columns(taken: Space) -> tuple[str, str, str, str]:
    return size(taken.bytes), f"{taken.files:,}", "", ""


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = {1, 2, 3}
    return "".join(
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        + "\n"
        for row in rows
    )


def _lines(base: Path, entries: Sequence[Entry]) -> list[Line]:
    """The lines of these runs, the largest first."""
    groups = {path.parent.name: path.parent for path in base.glob("sweeps/*/sweep.json")}
    groups |= {path.parent.name: path.parent for path in base.glob("pipelines/*/pipeline.json")}
    lines: dict[str, Line] = {}
    shared: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        taken = list(pool.map(lambda entry: _parts(entry, shared), entries))
    for entry, parts in zip(entries, taken, strict=True):
        name = entry.run_group if entry.run_group in groups else entry.name
        if name not in lines:
            lines[name] = Line(name)
            if name in groups:
                lines[name].add({"": space.below(groups[name])})
        line = lines[name]
        line.runs += 1
        line.open += entry.state not in states.ENDED
        line.add(parts)
    return sorted(lines.values(), key=lambda line: (-line.space.bytes, line.name))


def _parts(entry: Entry, shared: dict[str, dict[str, Any]]) -> dict[str, Space]:
    """The space of a run by the parts of its directory."""
    parts = space.parts(Path(entry.directory))
    if (elsewhere := _checkpoints_elsewhere(Path(entry.directory), shared)) is not None:
        parts[_ELSEWHERE] = space.below(elsewhere)
    return parts


def _checkpoints_elsewhere(directory: Path, shared: dict[str, dict[str, Any]]) -> Path | None:
    try:
        text = (directory / "run.json").read_bytes()
        # Decoding the record, which lists the packages of the environment, takes much longer than this.
        if b'"checkpoint_dir": "' not in text and b'"shared": "/' not in text:
            return None
        options = record.read(directory, shared).options
    except (OSError, ExperimentError):
        return None
    return resuming.kept_elsewhere(directory, options)


def _shared(store: Store, entries: Iterable[Entry]) -> dict[str, Space]:
    """What is not of a single run of these, by its name in the home directory, the largest first."""
    counted = {Path(entry.directory) for entry in entries}
    groups = {entry.run_group for entry in entries}
    spaces = {path.name: space.below(path) for path in store.home.iterdir() if path.name not in _OF_RUNS}
    for name in _OF_RUNS:
        others = [path for path in store.home.glob(f"{name}/*") if path not in counted and path.name not in groups]
        for path in others:
            spaces.setdefault(f"{name} of others, or not in the index", Space()).add(space.below(path))
    return dict(sorted(spaces.items(), key=lambda pair: -pair[1].bytes))


def _is_trimmable(entry: Entry) -> bool:
    # A job that Slurm does not know any more may be running.
    return entry.state in states.ENDED - {"LOST"} and trimming.is_whole(Path(entry.directory) / "code")


def _trim(base: Path, entries: Sequence[Entry], terminal: Terminal) -> None:
    freed = Space()
    shared: dict[str, dict[str, Any]] = {}
    for entry in entries:
        directory = Path(entry.directory)
        code = record.read(directory, shared).code
        before = space.below(directory)
        trimming.trim(base / "snapshots.git", code.get("tree", ""), directory / "code")
        for source in code.get("sources", ()):
            trimming.trim(base / "snapshots.git", source["tree"], directory / "sources" / source["name"])
        after = space.below(directory)
        freed.add(Space(before.bytes - after.bytes, before.files - after.files))
    terminal.err(
        f"spritz: removed {freed.files:,} files ({size(freed.bytes)}), of {len(entries)} that held all of their code\n"
    )
    if untouched := [entry.name for entry in entries if _is_trimmable(entry)]:
        terminal.err(
            f"spritz: the code of {len(untouched)} is left as it is, since git or a write failed: {untouched[0]}\n"
        )
