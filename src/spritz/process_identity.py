"""A process as more than its number, and signals that reach that process or none.

The kernel gives a number out again once its process is gone, after a boot from the start. So what is stored, or kept
over a moment in which the process may end, is a `Process`: the number with the time at which the process started.
`send` opens a pidfd, which stays that of one process, compares the start, and only then sends the signal.

Two kinds of numbers need none of this: that of our own child, until we have waited for it, and our own.

Sources: proc_pid_stat(5) starttime; pidfd_open(2), pidfd_send_signal(2).
"""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

_PROC = "/proc"
_STAT_BYTES = 4096


class Process(NamedTuple):
    """`started`: clock ticks from the machine's boot; negative for no process, as one that ended before it was asked.

    A sandbox that emulates a kernel may have 0 for all: then a process is its number alone.
    """

    pid: int
    started: int


class Status(NamedTuple):
    """`state` as ps shows it: Z for a process that has ended and was not waited for, whose number is still its own."""

    state: str
    parent: int
    started: int


def status_of(pid: int, *, proc: str = _PROC) -> Status | None:
    """The process's status; None if there is no such process."""
    try:
        # Not `open`, which takes twice as long: each step's supervisor asks for each task.
        descriptor = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The program's name, in brackets, may hold anything.
            fields = os.read(descriptor, _STAT_BYTES).rpartition(b")")[2].split(None, 20)
        finally:
            os.close(descriptor)
        return Status(fields[0].decode(), int(fields[1]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def identify(pid: int, *, proc: str = _PROC) -> Process:
    """The process that has this number now."""
    status = status_of(pid, proc=proc)
    return Process(pid, -1 if status is None else status.started)


def exists(process: Process, *, proc: str = _PROC) -> bool:
    """Whether the number is still this process's, which may have ended and not been waited for."""
    status = status_of(process.pid, proc=proc)
    return status is not None and status.started == process.started


def lives(process: Process, *, proc: str = _PROC) -> bool:
    """Whether this process runs; False for one that has ended and was not waited for."""
    status = status_of(process.pid, proc=proc)
    return status is not None and status.started == process.started and status.state not in ("Z", "X")


def send(process: Process, number: int, *, proc: str = _PROC) -> bool:
    """Signal this process, and never another with its number. False if it is gone, or we may not signal it."""
    try:
        handle = os.pidfd_open(process.pid)
    except (OSError, ValueError):
        return False
    try:
        if not exists(process, proc=proc):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def send_group(leader: Process, number: int) -> None:
    """Signal the process group that this process leads. Of a leader that was waited for, none: see `send`."""
    if exists(leader):
        try:
            os.killpg(leader.pid, number)
        except OSError:
            pass


def send_below(root: int, pids: list[int], number: int, *, proc: str = _PROC) -> None:
    """Signal these processes, all below `root`; those that are gone, or not permitted, are skipped.

    A number that was given to another process meanwhile has a parent outside: neither `root` nor one of `pids`. A
    process whose parent has died is `root`'s, the nearest process that takes in orphans.
    """
    parents = {root, *pids}
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except (OSError, ValueError):
            continue
        try:
            status = status_of(pid, proc=proc)
            if status is not None and status.parent in parents:
                signal.pidfd_send_signal(handle, number)
        except OSError:
            pass
        finally:
            os.close(handle)


def boot_id(*, proc: str = _PROC) -> str:
    """The machine's last boot; "" if unknown."""
    try:
        with open(f"{proc}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""
