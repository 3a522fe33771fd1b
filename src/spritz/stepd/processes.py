"""Processes of a step: find them, kill them all, and read their usage. Source: proc(5), prctl(2)."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Iterable

from spritz.process_identity import Process, exists, identify, send_below, status_of

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NAME = 15
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")

#: our children that do not belong to the step: never among `descendants`, so never signalled with them
spared: set[int] = set()


def become_subreaper(name: str) -> None:
    """Every orphan among our descendants becomes our child; `name` (15 bytes) is what ps shows."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    name_process(name)


def name_process(name: str) -> None:
    """Set the name that ps shows of this process (15 bytes)."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def children_of(pid: int) -> list[int]:
    """Children of all threads of a process; none if it is gone."""
    pids: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return pids
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids.extend(map(int, file.read().split()))
        except OSError:
            continue
    return pids


def parent_of(pid: int) -> int:
    """Process id of its parent. Raises OSError if it is gone."""
    status = status_of(pid)
    if status is None:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return status.parent


def descendants(pid: int) -> list[int]:
    """All processes below `pid` but the `spared`, parents before children.

    Processes forked meanwhile may be missed: call it again.
    """
    pids: list[int] = []
    queue = [child for child in children_of(pid) if child not in spared]
    seen = set(queue)
    while queue:
        pids.extend(queue)
        below = [child for parent in queue for child in children_of(parent) if child not in seen]
        seen.update(below)
        queue = below
    return pids


def send(pids: list[int], number: int) -> None:
    """Signal each of these `descendants` of ours; those that are gone, or not permitted, are skipped."""
    send_below(os.getpid(), pids, number)


def minds(pid: int, number: int) -> bool:
    """Whether the process catches or ignores the signal; False if it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith((b"SigIgn:", b"SigCgt:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def kill_descendants(pid: int) -> int:
    """SIGKILL everything below `pid`. Stopped first, so that none can fork on. Returns how many were found."""
    pids = descendants(pid)
    # A list of processes is old as soon as it is read: a fork may add one to it. Stopped processes cannot fork, so
    # after SIGSTOP the second list misses at most children of what was not in the first; callers repeat until none is
    # left.
    if len(pids) > 1:
        send_below(pid, pids, signal.SIGSTOP)
        pids = descendants(pid)
    send_below(pid, pids, signal.SIGKILL)
    return len(pids)


def lives(pid: int) -> bool:
    """Whether a process with this number exists and is no zombie. It may be another than the one meant."""
    status = status_of(pid)
    return status is not None and status.state not in ("Z", "X")


def name_of(pid: int) -> str:
    """The name that ps shows of the process; "" if it is gone."""
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


def described(pid: int) -> str:
    """Process id, name and state, as `123 cat D`; "" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            before, _, after = file.read().rpartition(b")")
    except OSError:
        return ""
    name = before.partition(b"(")[2].decode(errors="replace")
    return f"{pid} {name} {after.split()[0].decode()}"


def marked(marker: bytes) -> list[Process]:
    """All processes that have `marker` (`NAME=value`) in the environment they were started with.

    Slow (reads all of /proc): only for cleaning up after a supervisor that was killed.
    """
    processes = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        process = identify(
            int(entry)
        )  # before its environment: a number that is given out between them matches nothing
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if marker in file.read().split(b"\0"):
                    processes.append(process)
        except OSError:
            continue
    return processes


def in_sessions(leaders: Iterable[Process]) -> list[Process]:
    """All processes in the sessions of these leaders: tasks lead sessions of their own.

    Of a leader that is gone, none: once its session is empty the number may be another's, who makes a session with it.
    """
    sessions = {leader.pid: leader for leader in leaders if exists(leader)}
    processes: list[tuple[Process, int]] = []
    for entry in os.listdir("/proc") if sessions else ():
        if entry.isdecimal():
            process = identify(int(entry))
            try:
                if (session := os.getsid(process.pid)) in sessions:
                    processes.append((process, session))
            except OSError:
                continue
    # A leader that is still there was there all the time.
    return [process for process, session in processes if exists(sessions[session])]


def memory_bytes(pid: int) -> tuple[int, int, int]:
    """(memory that only this process accounts for, resident memory, size), in bytes; zeros if it is gone.

    File pages are left out of the first: as in a cgroup, many processes of one program must not count it many times.
    """
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
    except OSError:
        return 0, 0, 0
    size, resident, shared = int(fields[0]), int(fields[1]), int(fields[2])
    return (resident - shared) * _PAGE_BYTES, resident * _PAGE_BYTES, size * _PAGE_BYTES


def cpu_seconds(pid: int) -> tuple[float, float]:
    """User and system time of a process and of the children that it has waited for; zeros if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The program's name, in brackets, may hold anything.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0, 0.0
    user, system, waited_user, waited_system = (int(field) for field in fields[11:15])
    return (user + waited_user) / _TICKS, (system + waited_system) / _TICKS


def proportional_bytes(pid: int) -> int:
    """Resident memory with a share of each page that several processes have; 0 if that cannot be known."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:")), 0)


def disk_bytes(pid: int) -> tuple[int, int]:
    """The bytes read and written by the process's system calls, as Slurm counts; zeros if they are unknown."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            lines = file.read().split()
    except OSError:
        return 0, 0
    return int(lines[1]), int(lines[3])
