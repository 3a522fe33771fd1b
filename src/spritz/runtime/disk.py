"""Atomic writes that survive a crash, and private directories.

Each function blocks; on a loop call them through a `worker.Worker`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


class UnsafeDirectory(OSError):
    """A directory for private state belongs to another user, or other users may write to it."""


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Sync a directory, so that created, renamed or removed names in it are durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o600, sync: bool = True) -> None:
    """Replace the file's content: a reader, or a crash at any time, finds the old content or the new.

    With `sync` the new content is on disk on return. Raises OSError (a full disk, say); the old file is then untouched.
    """
    target = os.fspath(path)
    temporary = f"{target}.new.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        try:
            os.fchmod(descriptor, mode)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, target)
    except BaseException:
        try:
            os.unlink(temporary)
        except FileNotFoundError:
            pass
        raise
    if sync:
        sync_directory(os.path.dirname(target) or ".")


def append(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o600) -> None:
    """Append to a file, opened for each call: it may be rotated at any time. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def private_directory(path: str | os.PathLike[str], *, mode: int = 0o700) -> Path:
    """Create the directory, with its parents, if missing; it must be owned and writable by this process's user only.

    `mode` may let others read. Raises UnsafeDirectory if it belongs to another user, is a symbolic link or writable by
    others; OSError if it cannot be created.
    """
    directory = Path(path)
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode)
        directory.chmod(mode)
    except FileExistsError:
        pass
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeDirectory(20, "is not a directory", str(directory))
    if status.st_uid != os.geteuid():
        raise UnsafeDirectory(1, f"belongs to uid {status.st_uid}, not to us (uid {os.geteuid()})", str(directory))
    if status.st_mode & 0o022 & ~mode:
        raise UnsafeDirectory(1, f"is writable by others (mode {stat.S_IMODE(status.st_mode):o})", str(directory))
    return directory
