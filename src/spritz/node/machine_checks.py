"""Faults of a machine that jobs would meet: GPUs, the kernel's log, disks, network links.

Each check returns its faults as (name of the check, what is wrong). What cannot be looked at is no fault: a machine
without a GPU has no GPU that fails.

Source: NVML API reference; NVIDIA, "XID Errors" (which of them the hardware causes, and what resets them);
Documentation/ABI/testing/sysfs-class-net, sysfs-class-infiniband.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Fault = tuple[str, str]

#: Xids after which a GPU must be reset or replaced. Others come from programs (13, 31, 43, 45), or mend themselves.
HARDWARE_XIDS = frozenset({46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 158})

#: `NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.`
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+), ?(.*)")
#: A disk that has gone. (Single I/O errors pass, and stand in the log until the machine starts again.)
_DISK = re.compile(r"([^;:]*: Remounting filesystem read-only|nvme \S+: Disabling device after reset failure)")

#: Bytes of the kernel's log that are read.
_LOG_BYTES = 16 * 1024 * 1024


def log_faults(lines: Iterable[str]) -> list[Fault]:
    """Faults in the kernel's log since the machine started: each GPU's last Xid and the first failure of a disk."""
    xids: dict[str, str] = {}
    disk = ""
    for line in lines:
        xid = _XID.search(line)
        if xid is not None and int(xid[2]) in HARDWARE_XIDS:
            words = re.sub(r"(?:pid|name)=[^,]*, ?", "", xid[3]).strip().rstrip(".")
            xids[xid[1]] = f"Xid {xid[2]} on GPU {xid[1]}" + (f" ({words[:80]})" if words else "")
        elif not disk and (failure := _DISK.search(line)) is not None:
            disk = failure[1]
    faults: list[Fault] = [("gpu-xid", text) for text in xids.values()]
    return faults + ([("disk", disk)] if disk else [])


def kernel_log(path: str) -> Iterator[str]:
    """Lines of a file, or of /dev/kmsg as far as it is there now; none if this process may not read it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        remaining = _LOG_BYTES
        unfinished = b""
        while remaining > 0:
            try:
                piece = os.read(file, 8192)
            except BrokenPipeError:
                continue  # /dev/kmsg: messages were overwritten before they were read
            except BlockingIOError:
                break
            if not piece:
                break
            remaining -= len(piece)
            *lines, unfinished = (unfinished + piece).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines)
        if unfinished:
            yield unfinished.decode("utf-8", "replace")
    finally:
        os.close(file)


def gpu_faults(nvml: Any) -> list[Fault]:
    """Faults of GPUs according to NVML. `nvml`: the module pynvml, initialised."""
    faults: list[Fault] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            faults += [(check, f"GPU {index}: {words}") for check, words in _gpu(nvml, gpu)]
        except nvml.NVMLError as error:
            faults.append(("gpu", f"GPU {index}: {error}"))
    return faults


def _gpu(nvml: Any, gpu: Any) -> Iterator[Fault]:
    # Raises where the GPU is lost; what follows is not known of every model.
    nvml.nvmlDeviceGetMemoryInfo(gpu)
    with contextlib.suppress(nvml.NVMLError):
        errors = nvml.nvmlDeviceGetTotalEccErrors(gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        if errors:
            yield "gpu-ecc", f"{errors} uncorrected ECC errors"
    with contextlib.suppress(nvml.NVMLError):
        _corrected, _uncorrected, pending, failed = nvml.nvmlDeviceGetRemappedRows(gpu)
        if failed:
            yield "gpu-ecc", "a row of its memory could not be remapped"
        elif pending:
            yield "gpu-ecc", "a row of its memory is remapped by the next reset"


def nvidia_faults() -> list[Fault]:
    """GPUs of this machine; none without a driver."""
    if not os.path.exists("/dev/nvidiactl"):
        return []
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [("gpu", f"NVML: {error}")]
    try:
        return gpu_faults(pynvml)
    except pynvml.NVMLError as error:
        return [("gpu", f"NVML: {error}")]
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def disk_faults(directories: Iterable[str], free_percent: float) -> list[Fault]:
    """Directories that cannot be written, or whose disk is full."""
    faults: list[Fault] = []
    for directory in directories:
        try:
            # Under no name that users could foresee: root would write through their link.
            with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
                file.write(b"\0" * 4096)
                os.fsync(file.fileno())
            space = os.statvfs(directory)
        except OSError as error:
            faults.append(("disk", f"{directory}: {error.strerror}"))
            continue
        free = 100.0 * space.f_bavail / max(space.f_blocks, 1)
        if free < free_percent:
            faults.append(("disk", f"{directory}: {free:.1f} % free"))
    return faults


def link_faults(names: Sequence[str], root: Path = Path("/sys/class")) -> list[Fault]:
    """Network interfaces and InfiniBand devices that are not up."""
    faults: list[Fault] = []
    for name in names:
        ports = sorted((root / "infiniband" / name / "ports").glob("*/state"))
        if ports:
            # `4: ACTIVE`
            states = [port.read_text().partition(":")[2].strip() for port in ports]
            up = all(state == "ACTIVE" for state in states)
            words = ", ".join(states)
        else:
            try:
                words = (root / "net" / name / "operstate").read_text().strip()
            except OSError as error:
                words = "is not there" if error.errno == errno.ENOENT else str(error.strerror)
            # Interfaces without a carrier of their own, such as a loopback, say `unknown`.
            up = words in ("up", "unknown")
        if not up:
            faults.append(("network", f"{name}: {words}"))
    return faults
