"""Pid files: one daemon per file, held by a lock that dies with its process.

The lock is a POSIX record lock, since children do not inherit it: a step that outlives its daemon must not look like
the daemon. Take it after `daemonize`, when the pid is final.

Source: slurm.conf(5) SlurmctldPidFile, SlurmdPidFile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from types import TracebackType


class AlreadyRunning(OSError):
    """Another process holds the pid file; `pid`: its number, 0 if the file has none."""

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(11, f"another daemon is running (pid {pid})" if pid else "another daemon is running", path)
        self.pid = pid


class PidFile:
    """Holds a pid file from `acquire` (or `with`) to `release`, which removes it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._descriptor: int | None = None

    def __enter__(self) -> PidFile:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self) -> None:
        """Write this process's pid. Raises AlreadyRunning if a living process holds the file, OSError if it cannot be
        written.
        """
        while self._descriptor is None:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # `release` would remove /dev/null
                os.close(descriptor)
                raise OSError(errno.EINVAL, "Not a regular file", self.path)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                pid = _number(os.read(descriptor, 32))
                os.close(descriptor)
                if error.errno == errno.ENOLCK:
                    raise OSError(
                        error.errno, f"{error.strerror}. Set it to a file of a local disk.", self.path
                    ) from error
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                raise AlreadyRunning(self.path, pid) from error
            # The daemon that held the file may have removed it between our open and our lock.
            if self._is_ours(descriptor):
                self._descriptor = descriptor
            else:
                os.close(descriptor)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Remove the file, if it is still ours, and release the lock."""
        if self._descriptor is None:
            return
        if self._is_ours(self._descriptor):
            try:
                os.unlink(self.path)
            except OSError:
                os.ftruncate(self._descriptor, 0)  # SlurmUser may not unlink in /run: leave the file empty
        os.close(self._descriptor)
        self._descriptor = None

    def _is_ours(self, descriptor: int) -> bool:
        try:
            named = os.stat(self.path)
        except FileNotFoundError:
            return False
        held = os.fstat(descriptor)
        return (named.st_ino, named.st_dev) == (held.st_ino, held.st_dev)


def _number(text: bytes) -> int:
    digits = text.strip()
    return int(digits) if digits.isdigit() else 0
