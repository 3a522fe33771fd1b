"""Usage of a step, and its memory limit: adds up reaped children and samples living ones.

Source: slurm.conf(5) JobAcctGatherType, cgroup.conf(5) ConstrainRAMSpace.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator

from spritz.model.node_daemon.reports import Metric, Usage
from spritz.stepd import processes
from spritz.stepd.resources.energy import Energy
from spritz.stepd.resources.gpu import Gpus

_MIB = 1024 * 1024
_BLOCK_BYTES = 512


_FIRST_SAMPLE_SECONDS = 0.1


def sample_intervals(longest_seconds: float) -> Iterator[float]:
    """Seconds before each sample of a step: a tenth, then doubling up to `longest_seconds` (0: without a limit).

    A step of some seconds is thereby seen at work: the kernel keeps no peaks of GPU use, and a program that is sampled
    after a tenth of a second, then after JobAcctGatherFrequency (30 s), may have ended before the second sample.
    """
    interval = _FIRST_SAMPLE_SECONDS
    while True:
        if longest_seconds > 0:
            interval = min(interval, longest_seconds)
        yield interval
        interval *= 2


class _TaskUse:
    """One task with its descendants. Peaks are sums over its processes at one time.

    `user` and `system` are of ended processes, `live` of those running at the last sample.
    """

    __slots__ = ("gpu_bytes", "gpu_percent", "live", "pages", "read", "rss", "system", "user", "vm", "written")

    def __init__(self) -> None:
        self.user = self.system = 0.0
        self.live = (0.0, 0.0)
        self.rss = self.vm = self.read = self.written = self.pages = 0
        self.gpu_bytes = self.gpu_percent = 0


class StepUsage:
    """Adds up the usage of ended children (`add`) and records peaks of living ones (`sample`), by task."""

    def __init__(self, *, gpus: bool = False, memory: str = "rss", energy: Energy | None = None) -> None:
        """`memory`: as `SupervisorSpec.memory_counted`."""
        self._energy = energy
        self._gpus = Gpus() if gpus else None
        self._memory = memory
        self._tasks: dict[int, _TaskUse] = {}
        #: orphans of tasks, and other reaped processes
        self._rest = _TaskUse()

    def begin(self) -> None:
        """The tasks have been started: energy is counted from now on."""
        if self._energy is not None:
            self._energy.read()

    def add(self, used: resource.struct_rusage, task_id: int | None = None) -> None:
        """A child was reaped: a task with the children that it waited for, or an orphan (None)."""
        use = self._rest if task_id is None else self._of(task_id)
        use.user += used.ru_utime
        use.system += used.ru_stime
        use.live = (0.0, 0.0)  # it was a part of what has ended now
        # Until its exec a child had our memory, and the kernel counts that, too: a peak below ours may be just that.
        is_above_ours = used.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if is_above_ours and (
            self._memory == "rss" or not use.rss
        ):  # what the kernel has counted has shared pages in it
            use.rss = max(use.rss, used.ru_maxrss * 1024)
        use.read = max(use.read, used.ru_inblock * _BLOCK_BYTES)
        use.written = max(use.written, used.ru_oublock * _BLOCK_BYTES)
        use.pages += used.ru_majflt

    def sample(self, tasks: list[tuple[int, int]]) -> int:
        """Sample living processes below our children. `tasks`: their (global rank, process id).

        Returns the memory that is theirs alone, all together, in bytes.
        """
        total = 0
        seen: set[int] = set()
        if self._energy is not None:
            self._energy.read()
        on_gpus = {} if self._gpus is None else self._gpus.read()
        for task_id, pid in tasks:
            tree = [pid, *processes.descendants(pid)]
            seen.update(tree)
            use = self._of(task_id)
            total += self._look(use, tree)
            if on_gpus:
                used = [on_gpus[process_id] for process_id in tree if process_id in on_gpus]
                use.gpu_percent = max(use.gpu_percent, sum(percent for percent, _ in used))
                use.gpu_bytes = max(use.gpu_bytes, sum(size for _, size in used))
        # Orphans are our children.
        return total + self._look(self._rest, [pid for pid in processes.descendants(os.getpid()) if pid not in seen])

    def _of(self, task_id: int) -> _TaskUse:
        use = self._tasks.get(task_id)
        if use is None:
            use = self._tasks[task_id] = _TaskUse()
        return use

    def _look(self, use: _TaskUse, pids: list[int]) -> int:
        private = resident = virtual = read = written = 0
        user = system = 0.0
        for pid in pids:
            spent = processes.cpu_seconds(pid)
            user, system = user + spent[0], system + spent[1]
            private_rss, rss, size = processes.memory_bytes(pid)
            if self._memory == "private":
                rss = private_rss
            elif self._memory == "pss":
                rss = processes.proportional_bytes(pid) or rss
            private, resident, virtual = private + private_rss, resident + rss, virtual + size
            taken, given = processes.disk_bytes(pid)
            read, written = read + taken, written + given
        use.live = (user, system)
        use.rss, use.vm = max(use.rss, resident), max(use.vm, virtual)
        use.read, use.written = max(use.read, read), max(use.written, written)
        return private

    def usage(self) -> Usage:
        """Usage of all tasks so far, ended ones included."""
        every = [*self._tasks.values(), self._rest]
        return Usage(
            cpu_user_seconds=sum(use.user + use.live[0] for use in every),
            cpu_system_seconds=sum(use.system + use.live[1] for use in every),
            rss_peak_mib=max(use.rss for use in every) / _MIB,
            vm_peak_mib=max(use.vm for use in every) / _MIB,
            read_mib=sum(use.read for use in every) / _MIB,
            written_mib=sum(use.written for use in every) / _MIB,
            pages=sum(use.pages for use in every),
            energy_joules=0 if self._energy is None else self._energy.read(),
            metrics=self._metrics() if self._need_metrics() else (),
        )

    def _need_metrics(self) -> bool:
        return bool(self._tasks) and (len(self._tasks) > 1 or any(self._tasks) or self._gpus_known)

    @property
    def _gpus_known(self) -> bool:
        """Distinguishes unused GPUs from unknown use."""
        return self._gpus is not None and self._gpus.known

    def _metrics(self) -> tuple[Metric, ...]:
        metrics = []
        for name, measure in _MEASURES:
            values = sorted((measure(use), task_id) for task_id, use in self._tasks.items())
            largest, least = values[-1][0], values[0][0]
            if largest or name in ("cpu", "mem") or (self._gpus_known and name.startswith("gres/gpu")):
                which = min(task_id for value, task_id in values if value == largest)
                metrics.append(Metric(name, sum(value for value, _ in values), largest, which, least, values[0][1]))
        return tuple(metrics)


_MEASURES: tuple[tuple[str, Callable[[_TaskUse], int]], ...] = (
    ("cpu", lambda use: round((use.user + use.system + sum(use.live)) * 1000)),
    ("fs/disk", lambda use: use.read),
    ("mem", lambda use: use.rss),
    ("pages", lambda use: use.pages),
    ("vmem", lambda use: use.vm),
    ("gres/gpumem", lambda use: use.gpu_bytes),
    ("gres/gpuutil", lambda use: use.gpu_percent),
    ("out/fs/disk", lambda use: use.written),
)


class MemoryGroup:
    """A memory cgroup (v1 or v2) in which the kernel enforces a step's limit. A supervisor makes one for each `parent`,
    the directory of a job or of the daemon, and uses it for the job's steps that follow.

    The supervisor is in it itself, so that tasks are born there: to move a process costs more than to start one. The
    node daemon removes the groups when the supervisor is gone, and the job's with the last of them. Raises OSError if
    it cannot be made.
    """

    def __init__(self, parent: str, job_limit_mib: int = 0, job_swap_mib: int = 0) -> None:
        """`job_limit_mib`: what all groups in `parent` may have together, as `begin` has it for one step."""
        self.parent = parent
        self.path = f"{parent}/{group_name(os.getpid())}"
        self._make()
        self._unified = os.path.exists(f"{self.path}/memory.max")
        self._limits = (0, 0)
        if job_limit_mib:
            # Each supervisor of the job adds its own needs.
            supervisors = sum(entry.is_dir() for entry in os.scandir(parent))
            self._hold(parent, job_limit_mib + OWN_MIB * supervisors, job_swap_mib)
        self._write(f"{self.path}/cgroup.procs", os.getpid())
        protect_from_oom_killer()
        self._kills_before = self._all_kills()

    def _make(self) -> None:
        for tries_after in reversed(range(_TRIES)):
            try:
                os.mkdir(self.path)
            except FileExistsError:  # of a process that had our number and was killed
                return
            except FileNotFoundError:  # the job's first step here, or the daemon has removed an empty directory
                if not tries_after:
                    raise
                _restore(self.parent)
            else:
                return

    def begin(self, limit_mib: int, swap_mib: int) -> None:
        """A step begins: hold its limit (0: none), and so much swap beyond it (-1: any).

        Raises OSError if that cannot be.
        """
        if (limit_mib, swap_mib) == self._limits:
            return
        self._hold(self.path, limit_mib + OWN_MIB if limit_mib else 0, swap_mib)
        self._limits = (limit_mib, swap_mib)

    def _hold(self, path: str, limit_mib: int, swap_mib: int) -> None:
        """Set the limits of a directory."""
        limit = limit_mib * _MIB if limit_mib else -1
        swap = swap_mib * _MIB if limit_mib and swap_mib >= 0 else -1
        if self._unified:
            self._write(f"{path}/memory.max", limit)
            with contextlib.suppress(OSError):  # without swap accounting there is no such file
                self._write(f"{path}/memory.swap.max", swap)
        else:
            # The kernel requires memory <= memory and swap at all times: first raise the second.
            self._write_swap(path, -1)
            self._write(f"{path}/memory.limit_in_bytes", limit)
            self._write_swap(path, -1 if swap < 0 else limit + swap)

    def end(self) -> int:
        """A step ends: how many of its processes the kernel has killed for memory."""
        before, self._kills_before = self._kills_before, self._all_kills()
        return self._kills_before - before

    def _write_swap(self, path: str, value: int) -> None:
        with contextlib.suppress(OSError):  # without swap accounting there is no such file
            self._write(f"{path}/memory.memsw.limit_in_bytes", value)

    def remove(self) -> None:
        """The supervisor has moved to another; the daemon removes what cannot be removed now."""
        with contextlib.suppress(OSError):
            os.rmdir(self.path)
            if os.path.basename(self.parent).startswith(JOB_GROUP):
                os.rmdir(self.parent)

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

    def _write(self, file: str, value: int) -> None:
        descriptor = os.open(file, os.O_WRONLY)
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


def _restore(parent: str) -> None:
    """Create a directory for groups, with the controllers that are on in the directory above it."""
    above = os.path.dirname(parent)
    if not os.path.isdir(above):
        _restore(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(parent)
    try:
        with open(f"{above}/cgroup.subtree_control") as file:
            controllers = {*file.read().split(), "memory"}
    except FileNotFoundError:  # version 1
        with contextlib.suppress(OSError):  # newer kernels know no other way
            _write_text(f"{parent}/memory.use_hierarchy", "1")
        return
    _write_text(f"{parent}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(controllers)))


def _write_text(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


#: MiB of the supervisor that count towards its step.
OWN_MIB = 8

#: Attempts to make a group in a directory that the daemon removes when it is empty.
_TRIES = 5

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
    """The value that a task writes to its oom_score_adj; None: nothing, as it was not changed."""
    return _oom_score


def expose_to_oom_killer() -> None:
    """In a task: restore the daemon's original OOM score."""
    if _oom_score is not None:
        _set_oom_score(_oom_score)


def _set_oom_score(value: bytes) -> None:
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    try:
        os.write(descriptor, value)
    finally:
        os.close(descriptor)


def group_name(supervisor_pid: int) -> str:
    return f"slurmstepd_{supervisor_pid}"


#: how names of directories for the steps of one job begin
JOB_GROUP = "job_"


def job_group_name(node: str, job_id: int, restart_count: int) -> str:
    """With the node's name: one daemon may serve several nodes."""
    return f"{JOB_GROUP}{node}_{job_id}.{restart_count}"
