"""What a step used, and the end of its memory: reaped children are added up, living ones are sampled.

Source: slurm.conf(5) JobAcctGatherType, cgroup.conf(5) ConstrainRAMSpace.
"""

from __future__ import annotations

import contextlib
import os
import resource

from spritz.model.reports import Usage
from spritz.stepd import processes

_MIB = 1024 * 1024
_BLOCK_BYTES = 512


class Account:
    """Adds up what ended children used (`add`) and remembers peaks of living ones (`sample`)."""

    def __init__(self) -> None:
        self._user_seconds = 0.0
        self._system_seconds = 0.0
        self._peak_bytes = 0
        self._read_bytes = 0
        self._written_bytes = 0

    def add(self, used: resource.struct_rusage) -> None:
        """A child was reaped."""
        self._user_seconds += used.ru_utime
        self._system_seconds += used.ru_stime
        self._peak_bytes = max(self._peak_bytes, used.ru_maxrss * 1024)
        self._read_bytes += used.ru_inblock * _BLOCK_BYTES
        self._written_bytes += used.ru_oublock * _BLOCK_BYTES

    def sample(self, pids: list[int]) -> int:
        """Look at living processes; the memory that is theirs alone, all together, in bytes."""
        total = 0
        for pid in pids:
            private, resident = processes.private_memory_bytes(pid)
            total += private
            self._peak_bytes = max(self._peak_bytes, resident)
        return total

    def usage(self) -> Usage:
        """All of it so far."""
        return Usage(
            cpu_user_seconds=self._user_seconds,
            cpu_system_seconds=self._system_seconds,
            rss_peak_mib=self._peak_bytes / _MIB,
            read_mib=self._read_bytes / _MIB,
            written_mib=self._written_bytes / _MIB,
        )


class MemoryGroup:
    """A memory cgroup (v1 or v2) in which the kernel holds a step's limit. Made once per supervisor, used step by step.

    The supervisor is in it itself, so that tasks are born there: to move a process costs more than to start one. The
    node daemon removes the group when the supervisor is gone. Raises OSError if it cannot be made.
    """

    def __init__(self, parent: str) -> None:
        self.path = f"{parent}/{group_name(os.getpid())}"
        with contextlib.suppress(FileExistsError):  # of a process that had our number and was killed
            os.mkdir(self.path)
        self._unified = os.path.exists(f"{self.path}/memory.max")
        self._limits = (0, 0)
        self._write("cgroup.procs", os.getpid())
        protect_from_oom_killer()
        self._kills_before = self._all_kills()

    def begin(self, limit_mib: int, swap_mib: int) -> None:
        """A step begins: hold its limit (0: none), and so much swap beyond it (-1: any).

        Raises OSError if that cannot be.
        """
        if (limit_mib, swap_mib) == self._limits:
            return
        limit = (limit_mib + OWN_MIB) * _MIB if limit_mib else -1
        swap = swap_mib * _MIB if limit_mib and swap_mib >= 0 else -1
        if self._unified:
            self._write("memory.max", limit)
            with contextlib.suppress(OSError):  # without swap accounting there is no such file
                self._write("memory.swap.max", swap)
        else:
            # The kernel wants memory <= memory and swap at every moment: lift the second out of the way first.
            self._write_swap(-1)
            self._write("memory.limit_in_bytes", limit)
            self._write_swap(-1 if swap < 0 else limit + swap)
        self._limits = (limit_mib, swap_mib)

    def end(self) -> int:
        """A step ends: how many of its processes the kernel has killed for memory."""
        before, self._kills_before = self._kills_before, self._all_kills()
        return self._kills_before - before

    def _write_swap(self, value: int) -> None:
        with contextlib.suppress(OSError):  # without swap accounting there is no such file
            self._write("memory.memsw.limit_in_bytes", value)

    def kills(self) -> int:
        """Processes that the kernel has killed for memory since the step began."""
        return self._all_kills() - self._kills_before

    def _all_kills(self) -> int:
        name = "memory.events" if self._unified else "memory.oom_control"
        for line in self._read(name).splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
        return 0

    def _write(self, name: str, value: int) -> None:
        descriptor = os.open(f"{self.path}/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, b"max" if value < 0 and self._unified else b"%d" % value)
        finally:
            os.close(descriptor)

    def _read(self, name: str) -> str:
        try:
            with open(f"{self.path}/{name}") as file:
                return file.read()
        except OSError:
            return ""


#: Memory of the supervisor that is counted with its step's.
OWN_MIB = 8

_oom_score: bytes | None = None


def protect_from_oom_killer() -> None:
    """Let the kernel kill tasks and not their supervisor; only root may ask for that."""
    global _oom_score
    with contextlib.suppress(OSError):
        with open("/proc/self/oom_score_adj", "rb") as file:
            before = file.read()
        _set_oom_score(b"-1000")
        _oom_score = before


def oom_score_of_tasks() -> bytes | None:
    """What a task writes to its oom_score_adj; None: nothing, it has been left as it was."""
    return _oom_score


def expose_to_oom_killer() -> None:
    """In a task: be as killable as the daemon's environment had it."""
    if _oom_score is not None:
        _set_oom_score(_oom_score)


def _set_oom_score(value: bytes) -> None:
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    try:
        os.write(descriptor, value)
    finally:
        os.close(descriptor)


def group_name(supervisor_pid: int) -> str:
    """Name of a supervisor's cgroup."""
    return f"slurmstepd_{supervisor_pid}"
