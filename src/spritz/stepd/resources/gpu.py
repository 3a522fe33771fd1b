"""Use of NVIDIA GPUs by process: memory and utilisation, from NVML. Nothing without NVML.

Read when processes are sampled, never at a launch: loading NVML takes longer than starting a task. NVML names processes
by the machine's numbers; in a container with numbers of its own none of ours is among them.

Source: slurm.conf(5) AccountingStorageTRES gres/gpuutil, gres/gpumem; NVML API reference.
"""

from __future__ import annotations

from typing import Any

#: Percent and bytes by process id.
Usage = dict[int, tuple[int, int]]


def visible_in(environment: tuple[bytes, ...]) -> bool:
    """Whether tasks with this environment may see GPUs."""
    return b"\0CUDA_VISIBLE_DEVICES=" in b"\0".join((b"", *environment))


class Gpus:
    """Reads all GPUs of the machine. `read` never raises: a driver that fails is not asked again.

    `known`: NVML has reported the use of processes, possibly none.
    """

    def __init__(self) -> None:
        self.known = False
        self._nvml: Any = None
        self._tried = False
        self._since: dict[int, int] = {}

    def read(self) -> Usage:
        """(utilisation in percent, memory in bytes) of every process that computes, added up over GPUs."""
        nvml = self._load()
        if nvml is None:
            return {}
        usage: Usage = {}
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                self._read_one(nvml, index, usage)
        except nvml.NVMLError:
            self._nvml = None
        else:
            self.known = True
        return usage

    def _read_one(self, nvml: Any, index: int, usage: Usage) -> None:
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(device):
            percent, size = usage.get(process.pid, (0, 0))
            usage[process.pid] = percent, size + (process.usedGpuMemory or 0)
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(device, self._since.get(index, 0))
        except nvml.NVMLError:
            return  # none since the last time, or a GPU that does not tell
        newest: dict[int, tuple[int, int]] = {}
        for sample in samples:
            if sample.timeStamp > newest.get(sample.pid, (0, 0))[0]:
                newest[sample.pid] = sample.timeStamp, sample.smUtil
            self._since[index] = max(self._since.get(index, 0), sample.timeStamp)
        for pid, (_, busy) in newest.items():
            percent, size = usage.get(pid, (0, 0))
            usage[pid] = percent + busy, size

    def _load(self) -> Any:
        if self._tried:
            return self._nvml
        self._tried = True
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:
            # No library, no driver, no device: each has an error of its own, and all mean that there is nothing to ask.
            return None
        self._nvml = pynvml
        return pynvml
