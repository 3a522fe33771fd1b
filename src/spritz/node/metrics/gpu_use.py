"""Utilisation of the machine's GPUs, for metrics: NVIDIA's by NVML, AMD's by amdsmi if installed.

Drivers may be slow: call `read` in a thread. Source: NVML API reference; AMD SMI's Python library.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from spritz.model.node.record import GpuSample

if TYPE_CHECKING:
    from collections.abc import Iterator

_MIB = 1024 * 1024


class GpuUse:
    """`read` never raises. A failing driver is tried again; a missing library is searched only once."""

    def __init__(self) -> None:
        #: whether there is a driver to ask
        self.present = os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/kfd")
        self._nvml: Any = None
        self._amd: Any = None
        self._loaded = False

    def read(self) -> tuple[GpuSample, ...]:
        """Every GPU, in the order of the driver."""
        if not self._loaded:
            self._loaded = True
            self._nvml, self._amd = _nvml(), _amd()
        samples: list[GpuSample] = []
        for library, read in ((self._nvml, _read_nvidia), (self._amd, _read_amd)):
            if library is not None:
                try:
                    samples += read(library, len(samples))
                except Exception:
                    continue  # each library has errors of its own, and all mean that it tells nothing now
        return tuple(samples)


def _nvml() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return None  # no library, no driver, no device
    return pynvml


def _amd() -> Any:
    try:
        import amdsmi  # type: ignore[import-not-found,unused-ignore]  # from ROCm, where there is one

        amdsmi.amdsmi_init()
    except Exception:
        return None
    return amdsmi


def _read_nvidia(nvml: Any, first: int) -> Iterator[GpuSample]:
    for index in range(nvml.nvmlDeviceGetCount()):
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
        yield GpuSample(
            index=first + index,
            busy_percent=_reading(nvml, lambda device=device: nvml.nvmlDeviceGetUtilizationRates(device).gpu),
            memory_used_mib=memory.used // _MIB,
            memory_mib=memory.total // _MIB,
            milliwatts=_reading(nvml, lambda device=device: nvml.nvmlDeviceGetPowerUsage(device)),
            celsius=_reading(nvml, lambda device=device: nvml.nvmlDeviceGetTemperature(device, 0)),
        )


def _reading(nvml: Any, ask: Any) -> int:
    """A figure; -1 if the GPU does not report it (a slice, or an old model)."""
    try:
        return int(ask())
    except nvml.NVMLError:
        return -1


def _read_amd(amd: Any, first: int) -> Iterator[GpuSample]:
    for index, device in enumerate(amd.amdsmi_get_processor_handles()):
        memory = amd.amdsmi_get_gpu_vram_usage(device)
        yield GpuSample(
            index=first + index,
            busy_percent=int(amd.amdsmi_get_gpu_activity(device)["gfx_activity"]),
            memory_used_mib=int(memory["vram_used"]),
            memory_mib=int(memory["vram_total"]),
        )
