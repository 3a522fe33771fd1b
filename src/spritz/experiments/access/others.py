"""Runs of other users: OWNER/RUN as a name, in an index that users share or in the owner's home.

What can be read there depends on the modes of files alone (`sharing`). Nothing is written there: what is found out
about such a run stays in the process, and its code is copied into our repository of snapshots.
"""

from __future__ import annotations

import glob
import json
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from spritz.experiments.access import rebuilding
from spritz.experiments.code import snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import SHARED_RUNS, home
from spritz.experiments.job import submission
from spritz.experiments.records import record
from spritz.experiments.records.database import READ_ONLY
from spritz.experiments.records.record import Run, Unreadable
from spritz.experiments.records.store import Entry, Query, Store
from spritz.experiments.results import metrics

#: Directories in that of a run whose files are read.
_READ = ("log", "python", "imports", "usage", "objects", "environments")


def find(store: Store, name: str, user: str, *, need_code: bool = False) -> tuple[Store, Entry]:
    """The run RUN of the user, or OWNER/RUN of another; and the index that has it, with its home.

    The code of another's run is in the user's own repository afterwards, if it can be read. Raises ExperimentError if
    the run does not exist or cannot be read; with `need_code` also if that is so of its code.
    """
    owner, slash, run_name = name.partition("/")
    if not slash or not owner or owner == user:
        return store, store.get(name, user)
    theirs = store_of(store, owner, user)
    try:
        entry = theirs.get(run_name, owner)
    except ExperimentError:
        directory = theirs.home / "runs" / run_name
        if theirs.home != store.home and os.path.isdir(directory):
            raise _unreadable(owner, directory) from None
        raise
    if odd := unfit(Path(entry.directory)):
        raise ExperimentError(f"{owner}/{entry.name} cannot be read: {odd}")
    try:
        run = record.read(Path(entry.directory))
    except Unreadable:
        raise _unreadable(owner, Path(entry.directory)) from None
    place = Path(entry.directory).parents[1]
    if place != theirs.home:
        theirs = Store(place, theirs.url, foreign=True)
    if run.code:
        try:
            places = [Path(entry.directory) / "objects", place / "snapshots.git" / "objects"]
            snapshot.receive(store.home / "snapshots.git", snapshot.Snapshot.of(run.code), places)
        except (ExperimentError, OSError) as error:
            if need_code:
                why = error.message if isinstance(error, ExperimentError) else str(error)
                raise ExperimentError(
                    f"the code of {name} is not readable for you: {why}",
                    hint=f"{owner} can share it: spritz share {run_name}",
                ) from error
    return theirs, entry


def as_ours(run: Run, owner: str, user: str) -> tuple[Run, list[str]]:
    """A run of `owner` as one that `user` may repeat, and what differs then, as text. Raises ExperimentError.

    Also a run of the user's may be a repeated one of another, whose project has been closed since.
    """
    name = run.name if owner == user else f"{owner}/{run.name}"
    if owner != user and run.shown:
        raise ExperimentError(
            f"{name} is a step of a pipeline or calls a Python function, whose values are not shared",
            hint="run the pipeline or program yourself",
        )
    differences = []
    options, code = dict(run.options), dict(run.code)
    if owner != user and (place := options.pop("checkpoint_dir", "")):
        differences.append(f"checkpoints do not go to {place} of {owner}: --checkpoint-dir names another directory")
    if code and _is_closed(os.path.join(code["root"], code["directory"])):
        differences.append(f"{code['root']} is not readable for you: environments and data come from this directory")
        code["root"] = os.getcwd()
        if not os.path.isdir(os.path.join(code["root"], code["directory"])):
            raise ExperimentError(
                f"{name} ran in {code['directory']} of its project, which this directory does not have",
                hint="call `spritz rerun` in your checkout of the project",
            )
    return replace(run, name=name, options=options, code=code), differences


def _is_closed(directory: str) -> bool:
    """Whether the directory is, or may be, there but cannot be read."""
    try:
        os.stat(directory)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    return not os.access(directory, os.R_OK | os.X_OK)


def store_of(store: Store, owner: str, user: str) -> Store:
    """The index that has the owner's runs. Raises ExperimentError if none can be read."""
    if store.find(Query(owner=owner, limit=1)):
        return Store(store.home, store.url, foreign=True)
    try:
        uid = pwd.getpwnam(owner).pw_uid
    except KeyError:
        raise ExperimentError(f"{owner}: no such user", hint="names of another's runs are USER/RUN") from None
    places = _homes(store.home, owner, user)
    for place in places:
        with suppress(OSError):
            # A directory that a third user has put there says nothing of this one.
            if os.stat(place).st_uid == uid and (theirs := _index(place, owner)) is not None:
                return theirs
    raise _unreadable(owner, places[0])


def stores(store: Store, user: str) -> Iterator[tuple[Store, str]]:
    """(index, owner) of all other users whose runs can be read."""
    owners = store.owners()
    for owner in owners:
        if owner != user:
            yield Store(store.home, store.url, foreign=True), owner
    patterns = [str(place) for place in _homes(store.home, "*", user)]
    for place in dict.fromkeys(path for pattern in patterns for path in sorted(glob.glob(pattern))):
        with suppress(OSError, KeyError):
            owner = pwd.getpwuid(os.stat(place).st_uid).pw_name
            if owner not in (user, *owners) and (theirs := _index(Path(place), owner)) is not None:
                owners.append(owner)
                yield theirs, owner


def newest_names(count: int = 100) -> list[str]:
    """OWNER/RUN of the newest runs of each other user, for tab completion; none if the index cannot be read."""
    try:
        return [
            f"{owner}/{entry.name}"
            for theirs, owner in stores(Store(home()), submission.user())
            for entry in theirs.find(Query(owner=owner, limit=count))
        ]
    except ExperimentError:
        return []


def _homes(home: Path, owner: str, user: str) -> list[Path]:
    """Where the owner's home of runs may be: at the place of ours with the other name, and at the default place.

    `owner`: "*" makes patterns.
    """
    alike = Path(*(owner if part == user else part for part in home.parts))
    base = Path(pwd.getpwuid(os.getuid()).pw_dir).parent / "*" if owner == "*" else Path(pwd.getpwnam(owner).pw_dir)
    return list(dict.fromkeys([*([alike] if user in home.parts else []), base / ".local" / "share" / "spritz"]))


def _index(home: Path, owner: str) -> Store | None:
    """The index of that home, or one in memory of the runs that can be read; None if there is none."""
    if os.access(home / "runs.db", os.R_OK):
        theirs = Store(home, f"sqlite:///{home}/runs.db{READ_ONLY}", foreign=True)
        with suppress(ExperimentError):  # of an earlier release, for example
            theirs.find(Query(owner=owner, limit=1))
            return theirs
    try:
        directories = [home / "runs" / name for name in _shared(home)]
    except (OSError, ValueError):
        return None
    directories = [directory for directory in directories if not unfit(directory)]
    theirs = Store(home, "sqlite:///:memory:", foreign=True)
    rows = list(rebuilding.rows(directories, owner, {}))
    for _, _, values in rows:
        if values.get("state") == "PENDING" and "started_at" in values:
            values["state"] = "RUNNING"
    measured = metrics.latest(home, [(run.name, place, run.created_at) for run, place, _ in rows], whole=False)
    theirs.restore(
        [(run, place, {**values, "metrics": json.dumps(measured.get(run.name, {}))}) for run, place, values in rows]
    )
    return theirs


def _shared(home: Path) -> list[str]:
    """Names of the directories of runs that may be readable. Raises OSError."""
    path = home / SHARED_RUNS
    try:
        if _odd(path):
            return []
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return sorted(os.listdir(home / "runs"))
    return [name for name in dict.fromkeys(text.splitlines()) if name and "/" not in name]


def unfit(directory: Path) -> str:
    """What in another's run would not be read to an end, as a pipe, a device or a file without bound; "" if nothing."""
    try:
        for place, folders, names in os.walk(directory):
            if Path(place) == directory:
                folders[:] = [name for name in folders if name in _READ]
            for name in names:
                if what := _odd(Path(place, name)):
                    return what
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _odd(path: Path) -> str:
    """Why the file is not for reading; "" if it is. Raises OSError."""
    try:
        status = path.stat()
    except OSError as error:
        if path.is_symlink() and not isinstance(error, PermissionError):
            return ""  # to nothing
        raise
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        return f"{path} is no plain file"
    if status.st_size > record.BYTES_MAX and path.parent.name != "log" and path.name not in metrics.FILES:
        return f"{path} has {status.st_size >> 20} MiB"
    return ""


def _unreadable(owner: str, place: Path) -> Unreadable:
    return Unreadable(
        f"{owner}'s runs are not readable for you ({place})",
        hint=f"{owner} can share them: `spritz share RUN --group GROUP`, or `spritz share --all --group GROUP`",
    )
