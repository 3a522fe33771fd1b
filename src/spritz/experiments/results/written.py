"""The files that a run wrote into its directory: results beside the code of its snapshot.

The directory of a run may have a million files. It is walked once after the run's end, and what was there is kept in
`written.json`, so that showing a run costs the same for any of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from spritz.experiments.code import snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.interface import size
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Query, Store

#: Directories that programs fill by the way.
_CACHES = frozenset({"__pycache__", ".ipynb_checkpoints", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git"})
#: Names in a summary, and names that are kept.
_SHOWN, _KEPT = 3, 100
_FILE = "written.json"
#: Suffixes of files from which programs continue.
_STATE = (".pt", ".pth", ".ckpt", ".safetensors", ".pkl", ".h5", ".keras", ".db", ".sqlite", ".sqlite3")
_MARK = ".git-snapshot-done"


@dataclass(frozen=True)
class Written:
    """`path` is relative to the checkout."""

    path: str
    size: int
    changed_at: float


@dataclass(frozen=True)
class Totals:
    """How much a run wrote: number and bytes of its files, and the first of their paths."""

    count: int = 0
    size: int = 0
    paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, files_written: Sequence[Written]) -> Totals:
        total = sum(file.size for file in files_written)
        # A name may have bytes that are no text.
        paths = (os.fsencode(file.path).decode("utf-8", "replace") for file in files_written[:_KEPT])
        return cls(len(files_written), total, tuple(paths))

    @property
    def text(self) -> str:
        """The totals in words, with the first names."""
        count = f"{self.count} file{'s' if self.count > 1 else ''}"
        names = ", ".join(self.paths[:_SHOWN]) + (" …" if self.count > _SHOWN else "")
        return f"{count} ({size(self.size)}): {names}"


def totals(home: Path, directory: Path, run: Run) -> Totals:
    """What a run that has ended wrote, as counted after its end; again if it was started again since then."""
    if (kept := _counted(directory)) is not None:
        return kept
    totals_now = Totals.of(files(home, directory, run))
    with suppress(OSError):  # a run of another user, or a full disk
        values = {"last_event": _last_event(directory), **asdict(totals_now)}
        record.write_json(directory / _FILE, values, durable=False)
    return totals_now


def _counted(directory: Path) -> Totals | None:
    """What was counted after the run's last event; None if nothing was."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads((directory / _FILE).read_text(encoding="utf-8"))
        if kept["last_event"] == _last_event(directory):
            return Totals(int(kept["count"]), int(kept["size"]), tuple(kept["paths"]))
    return None


def _last_event(directory: Path) -> float:
    events = record.events(directory)
    return float(events[-1]["at"]) if events else 0.0


def left_by_the_first(store: Store, run: Run) -> str:
    """For the second run of a command: which state the first one left in its own directory, in words; else "".

    Said once, since whoever wants to start afresh does not want to hear it each time.
    """
    if run.runs_in_place or run.group or run.options.get("resumable"):
        return ""
    query = Query(owner=run.user, text=run.command_line, limit=_SHOWN)
    same = [entry for entry in store.find(query) if entry.command == run.command_line and entry.name != run.name]
    if len(same) != 1:
        return ""
    directory = Path(same[0].directory)
    try:
        earlier = record.read(directory)
    except ExperimentError:
        return ""
    totals_then = _counted(directory)
    if totals_then is None or earlier.code.get("root") != run.code["root"]:
        return ""
    paths = (os.path.relpath(path, run.code["directory"]) for path in totals_then.paths if path.endswith(_STATE))
    path = next((path for path in paths if not path.startswith("..")), "")
    if not path:
        return ""
    return (
        f"{same[0].name} wrote {path} to its own directory, and {run.name} starts without it; `outputs: "
        f"[{path.partition(os.sep)[0]}]` under `run:` in spritz.yaml keeps it"
    )


def files(home: Path, directory: Path, run: Run) -> list[Written]:
    """Files that the run made or changed in its checkout, by path; none without a snapshot. Links are not followed."""
    code = directory / "code"
    try:
        begun = (code / _MARK).stat().st_mtime_ns
    except OSError:
        return []
    known = set(snapshot.names(home / "snapshots.git", run.code.get("tree", "")))
    files_written = []
    for place, folders, names in os.walk(code):
        folders[:] = sorted(name for name in folders if name not in _CACHES)
        for name in sorted(names):
            path = os.path.join(place, name)
            relative = os.path.relpath(path, code)
            try:
                status = os.lstat(path)
            except OSError:
                continue  # removed meanwhile
            is_file = not os.path.islink(path) and os.path.isfile(path)
            if is_file and relative != _MARK and (relative not in known or status.st_mtime_ns > begun):
                files_written.append(Written(relative, status.st_size, status.st_mtime))
    return sorted(files_written, key=lambda file: file.path)
