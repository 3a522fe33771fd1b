"""A run on disk: its record, and the events that its job reports.

The user's later words about a run, such as tags and a new name, are in `edits.json`, so that a process which still has
the record as it was cannot overwrite them.

`run.json` is written before the job is queued, and again once the job's id is known. The job appends to its events
(`records.events`). These are files instead of a database because the job may run without Spritz.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from spritz.experiments.code import interpreters
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import directory_mode
from spritz.experiments.records import events as run_events
from spritz.experiments.records import lives
from spritz.experiments.records.events import JOB_ID, YEAR_9999

#: Version of run.json; a newer version is refused.
FORMAT = 1


class Unreadable(ExperimentError):
    """The modes of another user's run do not let us read it."""


@dataclass(kw_only=True)
class Run:
    """A run's record. Secrets are masked in all of it."""

    name: str
    user: str
    created_at: float
    command: list[str]
    options: dict[str, Any] = field(default_factory=dict)
    #: `Snapshot` as a mapping; empty if the run uses its directory in place, and that is not recorded
    code: dict[str, Any] = field(default_factory=dict)
    surroundings: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    parent: str = ""
    group: str = ""
    job_id: str = ""
    #: parameters of a sweep's trial
    parameters: dict[str, Any] = field(default_factory=dict)
    #: file with the values that all runs of a group share; `read` inserts them
    shared: str = ""
    #: `tasks` of Slurm, `processes` of a launcher, and `gpus` of each node, where they are known
    per_node: dict[str, int] = field(default_factory=dict)
    #: text shown instead of the command, if the command is a program of Spritz
    shown: str = ""
    note: str = ""
    format: int = FORMAT

    @property
    def runs_in_place(self) -> bool:
        """Whether the run uses the working tree in place of a checkout."""
        return not self.code or bool(self.code.get("in_place"))

    @property
    def command_line(self) -> str:
        """The command as text for users."""
        return self.shown or shlex.join(self.command)


def directory_of(home: Path, name: str) -> Path:
    return home / "runs" / name


class _Options(TypedDict, total=False):
    slurm: list[str]
    setup: list[str]
    env: dict[str, str]
    tags: list[str]
    data: list[str]
    link: list[str]
    outputs: list[str]
    checkpoint_dir: str
    resumable: bool


class _Conda(TypedDict, total=False):
    explicit: list[str]


class _Surroundings(TypedDict, total=False):
    host: str
    python: interpreters.Facts
    variables: dict[str, str]
    conda: _Conda
    container: str
    lock_files: dict[str, str]


#: What commands rely on in values that are mappings.
_NESTED: tuple[tuple[str, Any], ...] = (
    ("options", dict[str, str | bool | list[str] | dict[str, str]]),
    ("options", _Options),
    ("surroundings", _Surroundings),
)
#: Most bytes of a file that is read at once.
BYTES_MAX = 256 << 20

#: Fields that runs of a group share.
SHARED = ("options", "code", "surroundings", "tags", "data")


#: The user's later words, and a copy of what a run of a group shares, for others (`sharing`).
EDITS, COPY = "edits.json", "shared.json"
#: Fields that may be edited.
EDITED = ("name", "parent", "tags", "note")


def make(home: Path, name: str) -> Path:
    """Make the run's directory, with one for logs, unless they are there."""
    directory = directory_of(home, name)
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=directory_mode(home), exist_ok=True)
    (directory / "log").mkdir(exist_ok=True)
    return directory


def edit(directory: Path, **values: Any) -> None:
    """Set fields of the record (`EDITED`) for good. Raises OSError."""
    write_json(directory / EDITS, {**_edits(directory), **values})


def _edits(directory: Path) -> dict[str, Any]:
    """Raises OSError and ValueError."""
    try:
        edits = read_object(directory / EDITS)
    except FileNotFoundError:
        return {}
    return {key: edits[key] for key in EDITED if key in edits}


def write(directory: Path, run: Run, *, durable: bool = True) -> None:
    """Replace the record atomically, without the values in its shared file."""
    values = {name: getattr(run, name) for name in Run.__dataclass_fields__ if not (run.shared and name in SHARED)}
    write_json(directory / "run.json", values, durable=durable)


def dumps(data: Any) -> str:
    """Values as JSON text, for a file or a column."""
    return _encoded(json.dumps(data, ensure_ascii=False)).decode()


def _encoded(text: str) -> bytes:
    """The JSON text in UTF-8. Bytes of a word that are no text are lone surrogates, which JSON escapes."""
    return text.encode("utf-8", "backslashreplace")


def write_json(path: Path, data: Any, *, durable: bool = True) -> None:
    """Replace a file atomically; without `durable`, a crash of the machine may lose it. Who may list the directory may
    read the file: records have no secrets.
    """
    text = json.dumps(data, indent=1, ensure_ascii=False)
    descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(_encoded(text))
        os.fchmod(file.fileno(), 0o600 | path.parent.stat().st_mode & 0o044)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(scratch, path)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises OSError, and ValueError if it is none."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > BYTES_MAX:
        raise ValueError(f"it is no plain file of at most {BYTES_MAX >> 20} MiB")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("its values are nested too deep") from None
    if not isinstance(values, dict):
        raise ValueError("a JSON object is expected")
    return values


def read(directory: Path, shared: dict[str, dict[str, Any]] | None = None) -> Run:
    """The record. `shared`: contents of shared files, for a caller who reads many records.

    Raises ExperimentError if it is damaged, or of a later release.
    """
    path = directory / "run.json"
    try:
        data = read_object(path)
        edits = _edits(directory)
    except FileNotFoundError:
        raise ExperimentError(f"{directory.name}: no such run") from None
    except PermissionError as error:
        raise Unreadable(
            f"{directory} is not readable for you", hint="its user can share it: `spritz share --help`"
        ) from error
    except (OSError, ValueError) as error:
        raise ExperimentError(f"{path}: {error}") from error
    if isinstance(number := data.get("format", 0), int) and number > FORMAT:
        raise ExperimentError(f"{path} was written by a later release of spritz", hint="use that release, or upgrade")
    known = Run.__dataclass_fields__
    if data.get("shared"):
        kept = {} if shared is None else shared
        if not isinstance(data["shared"], str):
            raise ExperimentError(f"{path}: shared: text is expected")
        try:
            if data["shared"] not in kept:
                kept[data["shared"]] = _shared(directory, Path(data["shared"]))
            data = {**kept[data["shared"]], **data}
        except (OSError, ValueError) as error:
            raise ExperimentError(f"{data['shared']}: {error}") from error
    return _checked(path, {key: value for key, value in {**data, **edits}.items() if key in known})


def _checked(path: Path, values: dict[str, Any]) -> Run:
    """The record of these values. It may be damaged, or written by another user to do harm. Raises ExperimentError."""
    try:
        run = msgspec.convert(values, Run)
        for name, schema in _NESTED:
            msgspec.convert(values.get(name, {}), schema)
        if run.code:
            Snapshot.of(run.code)
    except (msgspec.ValidationError, TypeError) as error:
        raise ExperimentError(f"{path} is damaged: {error}") from error
    if not (run.name and run.command and 0 <= run.created_at < YEAR_9999 and JOB_ID.fullmatch(run.job_id)):
        raise ExperimentError(f"{path} is damaged: it has no name, command, time or number of a job")
    return run


def _shared(directory: Path, path: Path) -> dict[str, Any]:
    """What the run shares with its group, from its copy if the original is closed. Raises OSError and ValueError."""
    try:
        return read_object(path)
    except PermissionError:
        return read_object(directory / COPY)


def surroundings(home: Path, directory: Path, run: Run) -> dict[str, Any]:
    """The run's surroundings, with the interpreter that ran in place of the one that was expected at submission."""
    expected = run.surroundings.get("python", {})
    ran: dict[str, Any] = {}
    for place in (home, directory):  # a shared run has a copy of the list of packages
        if "packages" not in ran:
            ran = interpreters.of_run(place, directory, run.command, expected.get("prefix", ""))
    if "packages" not in ran and ran.get("executable") == expected.get("executable"):
        return run.surroundings  # what is known of it was removed, but is in the record
    return {**run.surroundings, "python": ran} if ran else run.surroundings


def data_of(directory: Path, run: Run) -> list[str]:
    """The run's data with its state at the submission and, where it was another one at the run's end, with that."""
    ends: dict[str, str] = {}
    for event in lives.current(run_events.read(directory)):
        if event["event"] == "data" and isinstance(changed := event.get("changed"), dict):
            ends |= {str(path): str(state) for path, state in changed.items()}
    entries = ((entry, ends.get(entry.rpartition("@")[0], "")) for entry in run.data)
    return [f"{entry} ({end} at its end)" if end else entry for entry, end in entries]


def append(directory: Path, event: str, at: float, **values: Any) -> None:
    """Add a line to the run's events. Raises ExperimentError."""
    try:
        run_events.append(directory, event, at, **values)
    except OSError as error:
        raise ExperimentError(f"{directory}: cannot record that the run is {event}: {error.strerror}") from error


events = run_events.read
is_events = run_events.is_events
