"""The processes of a step in a version 2 cgroup of their own: for freezing, thawing and killing all of them atomically.

It needs no controller, so it also works if the controllers are version 1's. Processes are moved in when the group is
first needed, and their children start there: a step that is never suspended, and ends when ordered to, costs nothing.
Their supervisor stays outside.

Sources: cgroups(7); the kernel's admin-guide/cgroup-v2, cgroup.freeze and cgroup.kill (Linux 5.2 and 5.14).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.stepd import processes
from spritz.stepd.resources.usage import group_name

if TYPE_CHECKING:
    from collections.abc import Callable

#: The group of the tasks, in that of their supervisor. The node daemon removes both.
TASKS = "tasks"
#: next to it: sessions adopted from outside the job (`stepd.adopt`)
ADOPTED = "adopted"
#: rounds of moving processes that were forked meanwhile
_ROUNDS = 20


class Tree:
    """The group of one supervisor's tasks below `parent`, a directory that the node daemon has made ("": none)."""

    def __init__(self, parent: str) -> None:
        group = f"{parent}/{group_name(os.getpid())}"
        self._path = f"{group}/{TASKS}" if parent else ""
        self._adopted = f"{group}/{ADOPTED}" if parent else ""
        self._frozen = False

    def freeze(self, below: Callable[[], list[int]]) -> bool:
        """Freeze all processes of `below()`, whatever signals they get; False if that is not possible here."""
        self._frozen = self._gather(below) and self._write("cgroup.freeze", b"1")
        if self._adopted:
            _try_write(f"{self._adopted}/cgroup.freeze", b"1")
        return self._frozen

    def thaw(self) -> None:
        if self._frozen:
            self._write("cgroup.freeze", b"0")
            _try_write(f"{self._adopted}/cgroup.freeze", b"0")
            self._frozen = False

    def kill(self, below: Callable[[], list[int]]) -> bool:
        """SIGKILL to all of `below()` and what they fork meanwhile; False if that cannot be done here."""
        return self._gather(below) and self._write("cgroup.kill", b"1")

    def end_adopted(self) -> None:
        """SIGKILL to adopted sessions: the step is over."""
        if self._adopted:
            _try_write(f"{self._adopted}/cgroup.kill", b"1")

    def _gather(self, below: Callable[[], list[int]]) -> bool:
        """Move every process in. Each round finds what was forked outside during the one before."""
        if not self._path:
            return False
        try:
            os.makedirs(self._path, exist_ok=True)
            for _ in range(_ROUNDS):
                with open(f"{self._path}/cgroup.procs") as file:
                    inside = {int(word) for word in file.read().split()}
                outside = [pid for pid in below() if pid not in inside and processes.lives(pid)]
                if not outside:
                    return True
                for pid in outside:
                    self._enter(pid)
        except OSError:
            pass  # removed under us, or not permitted
        return False

    def _enter(self, pid: int) -> None:
        try:
            _write(f"{self._path}/cgroup.procs", b"%d" % pid)
        except ProcessLookupError:
            pass  # it has ended

    def _write(self, name: str, value: bytes) -> bool:
        return _try_write(f"{self._path}/{name}", value)


def is_frozen(group: str) -> bool:
    """Whether the tasks of the supervisor with this group are frozen, or are being frozen."""
    try:
        with open(f"{group}/{TASKS}/cgroup.freeze") as file:
            return file.read().strip() == "1"
    except OSError:  # nothing was ever frozen here
        return False


def _try_write(path: str, value: bytes) -> bool:
    try:
        _write(path, value)
    except OSError:
        return False
    return True


def _write(path: str, value: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value)
    finally:
        os.close(descriptor)
