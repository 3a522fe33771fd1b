"""The present usage of jobs on this machine, for metrics: CPUs, memory and I/O, as the supervisors of their steps
measure them.

The supervisors' figures are those of sstat; CPUs are the time that was spent since the last look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.node.record import JobSample
from spritz.stepd import processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.model.node_daemon.reports import RunningStep
    from spritz.stepd.control import Measured

_MIB = 1024 * 1024


class JobUse:
    """`take` what was measured at one moment; the samples of each node are in `by_node`."""

    def __init__(self) -> None:
        self.by_node: Mapping[str, tuple[JobSample, ...]] = {}
        #: (node, step) -> when it was last measured (monotonic), and its CPU seconds up to then
        self._before: dict[tuple[str, RunningStep], tuple[float, float]] = {}

    def take(self, measured: Iterable[tuple[str, RunningStep, Measured]], now: float) -> None:
        """`now`: seconds that never go back. Reads /proc: to be called in a thread."""
        sums: dict[tuple[str, int], list[float]] = {}
        seen: dict[tuple[str, RunningStep], tuple[float, float]] = {}
        for node, step, sample in measured:
            usage = sample.usage
            spent = usage.cpu_user_seconds + usage.cpu_system_seconds
            seen[node, step] = now, spent
            then, before = self._before.get((node, step), (now, spent))
            busy = max(0.0, spent - before) / (now - then) if now > then else 0.0
            resident = sum(processes.memory_bytes(pid)[1] for pid in sample.pids)
            total = sums.setdefault((node, step.job_id), [0.0, 0.0, 0.0, 0.0])
            for place, figure in enumerate((busy, resident / _MIB, usage.read_mib, usage.written_mib)):
                total[place] += figure
        self._before = seen
        by_node: dict[str, list[JobSample]] = {}
        for (node, job_id), (busy, memory, read, written) in sums.items():
            by_node.setdefault(node, []).append(
                JobSample(
                    job_id=job_id,
                    cpus_used=round(busy * 100),
                    memory_used_mib=round(memory),
                    disk_read_mib=round(read),
                    disk_written_mib=round(written),
                )
            )
        self.by_node = {node: tuple(samples) for node, samples in by_node.items()}
