"""Start of a server. The launcher starts it in the background of the first call.

Source: docs/decisions/0168.
"""

from __future__ import annotations

import os
import stat
import sys
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import TYPE_CHECKING

from spritz.commandserver.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Callable

BACKLOG = 4096
#: seconds without a call after which a job's server ends and frees the job's memory
JOB_IDLE_SECONDS = "60"


def entry() -> None:
    """Called by the launcher: `--directory DIR --name NAME --lock DESCRIPTOR --installed FILE [--idle SECONDS] [--job
    yes]`.

    FILE may be relative to the caller's directory; the server uses nothing else of that directory.
    """
    words = sys.argv[1:]
    given = dict(zip(words[::2], words[1::2], strict=True))
    script = sys.argv[0] = os.path.abspath(given["--installed"])
    os.chdir("/")
    lock = int(given["--lock"])
    os.set_inheritable(lock, False)
    directory = open_directory(given["--directory"])
    in_job = "--job" in given
    if in_job:
        remove_left_over(directory)
    idle = given.get("--idle", "") or (JOB_IDLE_SECONDS if in_job else "")
    _serve(directory, given["--name"], lock, script, idle=idle, in_job=in_job)


def remove_left_over(directory: int) -> None:
    """Remove sockets and locks without a live server: a job's server is killed with its job."""
    from fcntl import LOCK_EX, LOCK_NB, flock

    for name in os.listdir(directory):
        if not name.endswith(".lock"):
            continue
        try:
            lock = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except OSError:
            continue
        try:
            flock(lock, LOCK_EX | LOCK_NB)
            for file_name in (name.removesuffix(".lock"), name):
                os.unlink(file_name, dir_fd=directory)
        except OSError:
            pass  # it is held, or another server was faster
        finally:
            os.close(lock)


def _serve(directory: int, name: str, lock: int, script: str, *, idle: str, in_job: bool) -> None:
    # before the first import that it must observe
    sources = Sources()
    is_installed = installation_check(script)

    from spritz.commandserver import preload
    from spritz.commandserver.parent import IDLE_SECONDS, Parent

    commands = preload.commands()
    sources.complete(preload.loaded_files())
    _name_process()
    path = f"/proc/self/fd/{directory}/{name}"
    listener = listen(path, mode=0o600)
    is_there = socket_check(directory, name)
    Parent(
        listener,
        directory,
        name,
        lock,
        commands,
        sources,
        is_current=lambda: is_installed() and is_there(),
        idle_seconds=float(idle or IDLE_SECONDS),
        tells_stops=not in_job,
    ).run()
    os._exit(0)


def open_directory(path: str) -> int:
    """A descriptor of the directory for the socket. Raises PermissionError if other users can enter the directory."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    info = os.fstat(directory)
    if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise PermissionError(1, "not a directory of this user alone", path)
    return directory


def listen(path: str, *, mode: int) -> socket:
    """A listening socket of that name; the holder of the lock may replace a dead one."""
    # No caller may find a socket that does not listen yet, or that is open to other users.
    beginning = f"{path}.new"
    try:
        os.unlink(beginning)
    except FileNotFoundError:
        pass
    listener = socket(AF_UNIX, SOCK_STREAM)
    listener.bind(beginning)
    os.chmod(beginning, mode)
    listener.listen(BACKLOG)
    os.rename(beginning, path)
    return listener


def installation_check(path: str) -> Callable[[], bool]:
    """A function: whether the file at `path` is still the same file as now."""

    def identity() -> tuple[int, int, int] | None:
        try:
            info = os.stat(path)
        except OSError:
            return None
        return info.st_dev, info.st_ino, info.st_mtime_ns

    first = identity()
    return lambda: identity() == first


def socket_check(directory: int, name: str) -> Callable[[], bool]:
    """A function: whether the socket under that name is still the same as now; another server may have replaced it."""

    def identity() -> tuple[int, int] | None:
        try:
            info = os.stat(name, dir_fd=directory)
        except OSError:
            return None
        return info.st_dev, info.st_ino

    first = identity()
    return lambda: identity() == first


def _name_process() -> None:
    """Set the name that ps and top show."""
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write("spritz-commands")
    except OSError:
        pass
