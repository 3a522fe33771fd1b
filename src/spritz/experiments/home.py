"""The directory of runs, which login and compute nodes share.

    runs.db            the index (`store`); or another database by SPRITZ_RUN_STORE
    snapshots.git      snapshots of code (`snapshot`)
    runs/NAME/         a run: run.json, job.sh, events.NODE.jsonl, log/, code/
    shared-runs        names of runs that others may see (`sharing`)
    environments/      what is known of interpreters (`interpreters`)
    venvs/             environments of earlier runs, made again (`restoring`)

It is $SPRITZ_HOME, else $XDG_DATA_HOME/spritz, else ~/.local/share/spritz.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spritz.experiments.errors import ExperimentError

#: Runs are refused if fewer bytes are free: the record and the first checkpoint would fail half-way.
FREE_BYTES_MIN = 64 << 20
#: Names of the directories of runs that others may see, a line each.
SHARED_RUNS = "shared-runs"
_LOCK_POLL_SECONDS = 0.02


def home() -> Path:
    """The directory, which is created if necessary. Raises ExperimentError if it cannot be used."""
    configured = os.environ.get("SPRITZ_HOME")
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    path = Path(configured) if configured else Path(base) / "spritz"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ExperimentError(
            f"cannot make {path}: {error.strerror}", hint="SPRITZ_HOME names another directory for runs"
        ) from error
    if is_passage(path):
        close_entries(path)
    return path.absolute()


def directory_mode(path: Path) -> int:
    """The mode for a run's directory in this home: others get what they have of the home.

    A home that others may only pass (`sharing`) has runs that are closed to them until each is shared.
    """
    mode = path.stat().st_mode
    return 0o700 | (0o070 if mode & stat.S_IRGRP else 0) | (0o007 if mode & stat.S_IROTH else 0)


def is_passage(path: Path) -> bool:
    """Whether others can reach shared runs in this home, and nothing else."""
    mode = path.stat().st_mode
    return bool(mode & 0o011) and not mode & 0o044


def close_entries(path: Path) -> None:
    """Close to others all that the home has, but the way to shared runs."""
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name in ("runs", SHARED_RUNS) or entry.is_symlink():
                continue
            with suppress(OSError):  # removed meanwhile, or another user's
                mode = entry.stat().st_mode
                if mode & 0o077:
                    os.chmod(entry.path, mode & 0o700)


def need_space(path: Path, more: int = 0) -> None:
    """Raises ExperimentError unless the directory can be written, and has room for `more` bytes and a margin."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise ExperimentError(f"{path} is not writable", hint="SPRITZ_HOME names another directory for runs")
    free = shutil.disk_usage(path).free
    if free < FREE_BYTES_MIN + more:
        raise ExperimentError(
            f"{path} has {free >> 20} MiB free; a run needs {(FREE_BYTES_MIN + more) >> 20}",
            hint="`spritz remove --before 30d` removes old runs; or set SPRITZ_HOME to another file system",
        )


@contextmanager
def locked(path: Path, how: int, *, wait_seconds: float = 0.0) -> Iterator[bool]:
    """Hold a lock on the file, LOCK_SH or LOCK_EX of `fcntl`; False if others had it for the whole time.

    The file is opened for reading and writing: NFS wants the one for LOCK_SH and the other for LOCK_EX, since it makes
    byte-range locks of them. Raises ExperimentError if the file system refuses locks. Source: flock(2), NFS details.
    """
    until = time.monotonic() + wait_seconds
    with _opened(path) as descriptor:
        while True:
            try:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            except OSError as error:
                if not is_held(error):
                    raise lock_refused(path, error) from error
                if time.monotonic() >= until:
                    yield False
                    return
                time.sleep(_LOCK_POLL_SECONDS)
            else:
                yield True
                return


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise lock_refused(path, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_held(error: OSError) -> bool:
    """Whether the error of a lock means that another process holds it; all others mean that there are no locks."""
    return error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def file_time(directory: Path) -> float:
    """The present time by the clock of the directory's file system, in seconds since the epoch.

    Ages of files are compared with it: on a network file system their times are the server's, and the clocks of two
    machines may differ by more than an age that is asked for.
    """
    path = tempfile.mkdtemp(dir=directory, prefix=".time-")
    try:
        return os.stat(path).st_mtime
    finally:
        os.rmdir(path)


def lock_refused(path: Path, error: OSError) -> ExperimentError:
    """The error for a lock that cannot be acquired although no process holds it."""
    return ExperimentError(
        f"{path}: {error.strerror}",
        hint="its file system refuses locks (NFS: see the mount's options nolock and local_lock); SPRITZ_HOME names "
        "another directory for runs, which nodes must see",
    )


def copied_by_content(source: Path, directory: Path, name: str) -> Path:
    """A copy of `source` that compute nodes can read; `{digest}` in its name is replaced by that of its content.

    The name depends on the content, so that a queued run keeps its copy after an upgrade.
    """
    data = source.read_bytes()
    target = directory / name.format(digest=hashlib.sha256(data).hexdigest()[:16])
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, path = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(path, target)
    return target
