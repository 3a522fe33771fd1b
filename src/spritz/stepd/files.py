"""A task's standard streams that are files: opened once per path, as the user.

Source: sbatch(1), srun(1) IO redirection.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from spritz.notation.octets import octets
from spritz.stepd.labels import Labels


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
            return os.open(octets(path), os.O_RDONLY | os.O_CLOEXEC)
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
                return os.open(name, self._flags, 0o666)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(name), exist_ok=True)
                return os.open(name, self._flags, 0o666)
        except (OSError, ValueError) as error:
            raise StreamError(f"Could not open {stream} file {path}: {_reason(error)}") from error


def labelled(descriptor: int, task_id: int, kind: int, labels: Labels) -> Callable[[bytes], None]:
    """Writes a task's stream to the file, with labels; closes the descriptor at the stream's end."""
    lost = False

    def write(data: bytes) -> None:
        nonlocal lost
        remaining = memoryview(labels.apply(task_id, kind, data))
        while remaining and not lost:
            try:
                remaining = remaining[os.write(descriptor, remaining) :]
            except OSError as error:
                lost = True
                os.write(2, f"slurmstepd: error: task {task_id}: output lost: {error.strerror}\n".encode())
        if not data:
            os.close(descriptor)

    return write


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
