"""A task's standard streams that are files: opened once per path, as the user.

Source: sbatch(1), srun(1) IO redirection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time

from spritz.notation.octets import octets

#: Pauses in which the holder of a lease of the file, as an NFS server has for its clients, is asked to give it up.
_LEASE_PAUSES, _LEASE_PAUSE_SECONDS = 50, 0.1


class StreamError(Exception):
    """A file cannot be opened; the text is Slurm's, for the step's standard error or the log."""


class StreamFiles:
    """Opens files for tasks. Tasks that share a path share one open file, so that none overwrites another's output.

    Must be used while the process is the user.
    """

    def __init__(self, *, append: bool) -> None:
        # Always O_APPEND, as Slurm: several nodes may share a file, and the user may empty it while the job runs.
        self._flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND | (0 if append else os.O_TRUNC)
        self._open: dict[str, int] = {}

    def output(self, path: str, stream: str) -> int:
        """Descriptor for writing; directories on the way are created. `stream` is stdout or stderr, for the message."""
        descriptor = self._open.get(path)
        if descriptor is None:
            descriptor = self._open[path] = self._create(path, stream)
        return descriptor

    def input(self, path: str) -> int:
        """Descriptor for reading, one per call: every task reads the whole file."""
        try:
            return open_at_once(octets(path), os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise StreamError(f"Could not open stdin file {path}: {_reason(error)}") from error

    def close(self) -> None:
        """Close what was opened for writing; the tasks have theirs."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _create(self, path: str, stream: str) -> int:
        name = octets(path)
        try:
            try:
                return open_at_once(name, self._flags)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(name), exist_ok=True)
                return open_at_once(name, self._flags)
        except (OSError, ValueError) as error:
            raise StreamError(f"Could not open {stream} file {path}: {_reason(error)}") from error


def open_at_once(name: bytes, flags: int) -> int:
    """Open a file without waiting for the other end of a FIFO. Raises OSError.

    Else any user could hold up a supervisor, which hears no order meanwhile: its step could not be ended, and the node
    would be drained for that. So a FIFO without a writer is at its end, and without a reader there is an error.
    """
    for _ in range(_LEASE_PAUSES):
        with contextlib.suppress(BlockingIOError):  # another process has a lease of the file
            descriptor = os.open(name, flags | os.O_NONBLOCK, 0o666)
            os.set_blocking(descriptor, True)
            return descriptor
        time.sleep(_LEASE_PAUSE_SECONDS)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
