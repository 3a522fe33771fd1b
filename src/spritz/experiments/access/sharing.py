"""Who may see a run: the modes of its directory.

The home stays closed to others but for the way to shared runs: others may pass through it and `runs/` without listing
them, and all that lies there is closed, except the list of shared names and the directories of shared runs. In these,
what Spritz writes about the run is readable, with a copy of what lies elsewhere in the home: the code as a pack of git,
lists of packages. Files that may hold secrets stay closed: the script with its variables, pickled arguments, sessions,
and the log until secrets in it are masked. What the program wrote keeps the modes that it has.

The directory's mode is changed last, and first when the sharing ends.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spritz.experiments import calling, secrets
from spritz.experiments.code import snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import SHARED_RUNS, close_entries, is_passage
from spritz.experiments.job import states
from spritz.experiments.records import record
from spritz.experiments.records.record import Run

#: What Spritz writes about a run, and the measurements that its program writes for it.
_OPENED = frozenset({
    "run.json", record.EDITS, record.COPY, "metrics.jsonl", "logged.jsonl", "sources.list",
    "environment.json", "log", "python", "imports", "usage", "objects", "environments",
})  # fmt: skip
#: Files of projects that often hold secrets, and the assignments in them.
_SECRET_FILE = re.compile(
    r"\.env(?:\..*|rc)?|.*\.(?:pem|key|env)|id_[a-z0-9]+|\.(?:netrc|npmrc|pypirc|pgpass)"
    r"|(?:.*[._-])?(?:secrets?|credentials?)(?:\.(?:json|ya?ml|toml|ini|cfg|txt))?",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(r"""^\s*(?:export\s+)?["']?([\w.-]+)["']?\s*[=:]\s*["']?[^\s"']""", re.MULTILINE)
#: What may hold secrets, or leads to a server.
_CLOSED = frozenset({
    "job.sh", "params.sh", "session.json", "track.json", "mlflow.json", calling.CALL, os.path.join("log", "notify.log"),
})  # fmt: skip


@dataclass(frozen=True)
class Audience:
    """Who may see a run: the members of a group, or with None everyone."""

    group: int | None

    @property
    def _read(self) -> int:
        return 0o044 if self.group is None else 0o040

    def open(self, path: str | Path) -> None:
        """Let them read a file or list a directory. Links are left alone."""
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return
        self.take(path)
        # New files in a directory of the group get the group.
        more = self._read >> 2 | (stat.S_ISGID if self.group is not None else 0) if stat.S_ISDIR(mode) else 0
        os.chmod(path, stat.S_IMODE(mode) | self._read | more)

    def take(self, path: str | Path) -> None:
        """Give a file or directory to the group, with the modes that it has."""
        if self.group is not None:
            os.chown(path, -1, self.group, follow_symlinks=False)

    def gate(self, path: Path) -> None:
        """Let them, and only them, enter the directory of a run."""
        self.take(path)
        os.chmod(path, 0o755 if self.group is None else 0o2750)


def share(home: Path, directory: Path, audience: Audience) -> str:
    """Let others see the run in the directory. Returns what stays closed, as text.

    Raises ExperimentError and OSError; then they do not see it.
    """
    run = record.read(directory)
    _need_no_secrets(home, run)
    _open_passage(home)
    _copy_what_lies_elsewhere(home, directory, run)
    logs = _logs_are_masked(directory, run)
    _set_modes(directory, audience, logs=logs)
    with open(home / SHARED_RUNS, "a", encoding="utf-8") as file:
        file.write(f"{directory.name}\n")
    os.chmod(home / SHARED_RUNS, 0o644)
    audience.gate(directory)
    return "" if logs else "its log stays closed: secrets in it are masked when its command ends; share it again then"


def _set_modes(directory: Path, audience: Audience, *, logs: bool) -> None:
    """Open and close what the directory has, by its place there."""
    for place, folders, files in os.walk(directory):
        for name in [*folders, *files]:
            path = os.path.join(place, name)
            inside = os.path.relpath(path, directory)
            with suppress(FileNotFoundError):
                if inside in _CLOSED or (inside == "log" and not logs):
                    os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) & 0o700)
                elif inside.partition(os.sep)[0] in _OPENED or record.is_events(inside):
                    audience.open(path)
                else:
                    audience.take(path)


def stop(home: Path, directory: Path) -> None:
    """Close a run to others again."""
    with suppress(FileNotFoundError):
        os.chmod(directory, 0o700)
    kept = [name for name in shared(home) if name != directory.name]
    scratch = home / f".{SHARED_RUNS}.{os.getpid()}"
    scratch.write_text("".join(f"{name}\n" for name in kept), encoding="utf-8")
    os.chmod(scratch, 0o644)
    os.replace(scratch, home / SHARED_RUNS)
    shutil.rmtree(directory / "objects", ignore_errors=True)


def shared(home: Path) -> list[str]:
    """Names of the directories of shared runs; a removed run may have left its name to another."""
    try:
        text = (home / SHARED_RUNS).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    names = dict.fromkeys(text.splitlines())
    return [name for name in names if (place := home / "runs" / name).is_dir() and place.stat().st_mode & 0o044]


def closed_parent(home: Path, audience: Audience) -> Path | None:
    """The first directory on the way to runs that others cannot pass."""
    for parent in (*reversed(home.parents), home, home / "runs"):
        status = parent.stat()
        grouped = audience.group is not None and status.st_gid == audience.group
        if not status.st_mode & (stat.S_IXGRP if grouped else stat.S_IXOTH):
            return parent
    return None


def _need_no_secrets(home: Path, run: Run) -> None:
    """Raises ExperimentError if the run's code has a file for secrets with some in it."""
    trees = [run.code["tree"], *(source["tree"] for source in run.code.get("sources", ()))] if run.code else []
    for tree in trees:
        for name in snapshot.names(home / "snapshots.git", tree):
            if not _SECRET_FILE.fullmatch(os.path.basename(name)):
                continue
            text = snapshot.git_output(
                home, "--git-dir", str(home / "snapshots.git"), "cat-file", "blob", f"{tree}:{name}"
            )
            assigned = [match[1] for match in _ASSIGNED.finditer(text) if secrets.is_secret_name(match[1])]
            if assigned or secrets.masked_text(text) != text:
                raise ExperimentError(
                    f"{run.name} is not shared: its code has {name}, with secrets"
                    + (f" ({assigned[0]})" if assigned else ""),
                    hint="name the file in .gitignore or .spritzignore; runs without it can be shared",
                )


def _open_passage(home: Path) -> None:
    """Let others pass the home, after all in it is closed to them; a team's home is open to its group as it is."""
    if is_passage(home) or home.stat().st_mode & 0o044:
        return
    kept = shared(home)
    with os.scandir(home / "runs") as entries:
        for entry in entries:
            if entry.name not in kept and entry.is_dir():
                os.chmod(entry.path, 0o700)
    close_entries(home)
    os.chmod(home / "runs", 0o711)
    os.chmod(home, 0o711)


def _copy_what_lies_elsewhere(home: Path, directory: Path, run: Run) -> None:
    if run.code and not (directory / "objects").exists():
        trees = [run.code["tree"], *(source["tree"] for source in run.code.get("sources", ()))]
        try:
            snapshot.pack(home / "snapshots.git", trees, directory / "objects")
        except ExperimentError:
            shutil.rmtree(directory / "objects", ignore_errors=True)
            raise
    if run.shared:
        record.write_json(directory / record.COPY, json.loads(Path(run.shared).read_text(encoding="utf-8")))
    for path in (directory / "python").glob("*.json"):
        with suppress(OSError, ValueError, KeyError):
            listed = home / "environments" / f"{json.loads(path.read_text(encoding='utf-8'))['id']}.json"
            if listed.exists():
                (directory / "environments").mkdir(exist_ok=True)
                shutil.copyfile(listed, directory / "environments" / listed.name)


def _logs_are_masked(directory: Path, run: Run) -> bool:
    """Whether no secret can be in the logs: the run had none, or its script has masked them at its end."""
    had_secrets = secrets.MASK in record.dumps([run.command, run.options, run.surroundings])
    return not had_secrets or "state" in states.from_events(record.events(directory))
