"""Detects changes of source files after their import, for installations from a checkout.

A normal installation is replaced as a whole, which the launcher notices. With a checkout, a server must not serve after
its sources were edited: the kernel reports every write to their directories (inotify(7)); if it cannot, the files'
times are compared at each call.
"""

from __future__ import annotations

import os
import select

import spritz

_IN_NONBLOCK, _IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
#: IN_MODIFY, IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO, IN_DELETE
_CHANGES = 0x2 | 0x8 | 0x40 | 0x80 | 0x200


class Sources:
    """Create it before the first import, call `complete` after the last one.

    `descriptor` becomes readable after a change, and is never read; -1: call `changed`, or nothing can change.
    """

    def __init__(self) -> None:
        (self._root,) = spritz.__path__
        self._editable = "-packages" not in self._root
        self._times: dict[str, int] = {}
        self.descriptor = -1
        self._poll = select.poll()
        if self._editable:
            self.descriptor = _watch(self._directories())
        if self.descriptor >= 0:
            self._poll.register(self.descriptor, select.POLLIN)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def _directories(self) -> list[str]:
        return [path for path, _, _ in os.walk(self._root) if not path.endswith("__pycache__")]

    def complete(self, files: list[str]) -> None:
        """Note the times of all imported source files, which later checks compare with."""
        if self._editable and self.descriptor < 0:
            self._times = {path: _time_of(path) for path in files}

    def changed(self) -> bool:
        """Whether a file changed since creation, or since `complete`."""
        if self.descriptor >= 0:
            return bool(self._poll.poll(0))
        return any(_time_of(path) != time for path, time in self._times.items())


def _time_of(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _watch(directories: list[str]) -> int:
    """A descriptor that reports changes in these directories; -1 if the kernel has none."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor: int = library.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    except AttributeError:
        return -1
    if descriptor < 0:
        return -1
    for path in directories:
        if library.inotify_add_watch(descriptor, os.fsencode(path), _CHANGES) < 0:
            os.close(descriptor)
            return -1
    return descriptor
