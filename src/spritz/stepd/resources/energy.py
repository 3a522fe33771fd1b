"""Energy use by hardware counters: of processors (RAPL, through powercap), or of NVIDIA GPUs.

RAPL counts whole sockets: a step is charged for its whole node while it runs, including other jobs, as in Slurm. If the
counters cannot be read (only by root, on most systems), the use is unknown. A GPU counts for the steps that have it.

Source: slurm.conf(5) AcctGatherEnergyType=acct_gather_energy/rapl and gpu; Linux power capping framework; NVML API
reference, nvmlDeviceGetTotalEnergyConsumption (millijoules since the driver was loaded; Volta and later).
"""

from __future__ import annotations

import os
from typing import Any, Protocol

ROOT = "/sys/class/powercap"


class Energy(Protocol):
    """Hardware counters of energy on the node."""

    def read(self) -> int:
        """Joules so far; the first call may be what it counts from."""


def counters(kind: str, devices: tuple[str, ...], *, gpus: bool) -> Energy | None:
    """For a step: "rapl", "gpu" or "" (none). `devices`: files that it has; `gpus`: it has GPUs of NVIDIA's."""
    if kind == "rapl":
        return Rapl()
    return NvidiaGpus(devices) if kind == "gpu" and gpus else None


class NvidiaGpus:
    """Sums up from the first `read` on, which loads NVML: not before the tasks have been started.

    `devices`: those of the step, of which `/dev/nvidia3` is a GPU; without such, all that there are. `read` never
    raises: a GPU without a counter, and a failing driver, count as 0 from then on.
    """

    def __init__(self, devices: tuple[str, ...]) -> None:
        names = (path.removeprefix("/dev/nvidia") for path in devices if path.startswith("/dev/nvidia"))
        self._minors = frozenset(int(name) for name in names if name.isascii() and name.isdigit())
        self._nvml: Any = None
        self._tried = False
        #: by GPU: its counter when it was read last
        self._last: dict[int, int] = {}
        self._millijoules = 0

    def read(self) -> int:
        """Joules so far, of all GPUs of the step."""
        if not self._tried:
            self._tried = True
            self._load()
        if self._nvml is not None:
            for index, known in self._last.items():
                now = self._counter(index)
                if now is not None:
                    # A reloaded driver starts from zero.
                    self._millijoules += now - known if now >= known else now
                    self._last[index] = now
        return round(self._millijoules / 1e3)

    def _load(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            for index in range(pynvml.nvmlDeviceGetCount()):
                if not self._minors or self._minor(index) in self._minors:
                    now = self._counter(index)
                    if now is not None:
                        self._last[index] = now
        except Exception:
            # No library, no driver, no device: each has an error of its own, and all mean that there is nothing to ask.
            self._nvml = None

    def _minor(self, index: int) -> int:
        return int(self._nvml.nvmlDeviceGetMinorNumber(self._nvml.nvmlDeviceGetHandleByIndex(index)))

    def _counter(self, index: int) -> int | None:
        nvml = self._nvml
        try:
            return int(nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByIndex(index)))
        except nvml.NVMLError:
            return None


class Rapl:
    """Sums up from its creation. Call `read` more often than a counter overflows: every minute."""

    def __init__(self, root: str = ROOT) -> None:
        self._sockets: list[tuple[str, int]] = []
        self._last: dict[str, int] = {}
        self._microjoules = 0
        for directory in _packages(root):
            now, span = _number(f"{directory}/energy_uj"), _number(f"{directory}/max_energy_range_uj")
            if now is not None:
                self._sockets.append((directory, span or 0))
                self._last[directory] = now

    @property
    def known(self) -> bool:
        return bool(self._sockets)

    def read(self) -> int:
        """Joules so far, of all sockets."""
        for directory, span in self._sockets:
            now = _number(f"{directory}/energy_uj")
            if now is not None:
                used = now - self._last[directory]
                self._microjoules += used if used >= 0 else used + span
                self._last[directory] = now
        return round(self._microjoules / 1e6)


def _packages(root: str) -> list[str]:
    """`intel-rapl:0`, `intel-rapl:1`: what is below them (`intel-rapl:0:0`) is counted in them."""
    try:
        names = os.listdir(root)
    except OSError:
        return []
    return [f"{root}/{name}" for name in sorted(names) if name.startswith("intel-rapl:") and name.count(":") == 1]


def _number(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
