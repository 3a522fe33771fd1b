"""The machine's hardware: CPUs and their topology, memory, disk, GPUs. Printed by `slurmd -C`.

Reads /sys and /proc (their root is an argument) and asks NVML, if there is one. Source: slurmd(8) -C.
"""

from __future__ import annotations

import os
import time

from msgspec import Struct

from spritz.model.resources import GresCapacity
from spritz.node.hardware.gpu_detection import by_model, nvml_devices
from spritz.node.launch.affinity import Topology

_MIB = 1024 * 1024
#: The kernel's number of the first pid namespace (PROC_PID_INIT_INO), which lives as long as the machine runs.
_FIRST_NAMESPACE = "pid:[4026531836]"


class Hardware(Struct, frozen=True, kw_only=True):
    """One machine. Memory and disk in MiB, `uptime_seconds` since it was booted at `booted_at`."""

    topology: Topology
    memory_mib: int
    tmp_mib: int
    uptime_seconds: float
    booted_at: float
    #: another one after each boot, or each start of the container that this is; "" where the kernel has none
    boot_id: str = ""
    gpus: tuple[GresCapacity, ...] = ()

    @property
    def cpus(self) -> int:
        """Number of hardware threads, which Slurm calls CPUs."""
        return len(self.topology.order)


def detect(now: float, *, root: str = "", tmp: str = "/tmp", gpus: bool = True) -> Hardware:
    """Detect the hardware. `root` is prefixed to /sys and /proc (for tests)."""
    uptime = uptime_seconds(root)
    return Hardware(
        topology=_topology(root),
        memory_mib=_memory_mib(root),
        tmp_mib=disk_mib(tmp),
        uptime_seconds=uptime,
        booted_at=now - uptime,
        boot_id=_boot_id(root),
        gpus=by_model(nvml_devices()) if gpus else (),
    )


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def uptime_seconds(root: str = "") -> float:
    """Since the machine was booted, or the container that this is was started."""
    uptime = float(_read(f"{root}/proc/uptime").split()[0] or 0)
    ticks = _container_start(root)
    if not ticks:
        return uptime
    # Some containers have an /proc/uptime of their own; the ticks count from the kernel's boot in any case.
    alive = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return max(0.0, min(uptime, alive))


def _boot_id(root: str) -> str:
    """Source: random(4), boot_id. Containers of one kernel share its id: theirs has their start behind a `+`."""
    try:
        kernel = _read(f"{root}/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return ""
    ticks = _container_start(root)
    return f"{kernel}+{ticks}" if kernel and ticks else kernel


def _container_start(root: str) -> int:
    """When the first process of this pid namespace started, in ticks after the kernel's boot; 0 outside of containers.

    All processes of a pid namespace end with that one: to the steps of a node, its start is what a boot is to those of
    a machine. Containers that share the machine's pid namespace cannot be told apart.
    """
    try:
        if os.readlink(f"{root}/proc/self/ns/pid") == _FIRST_NAMESPACE:
            return 0
        # The program's name, in brackets, may hold anything.
        return int(_read(f"{root}/proc/1/stat").rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):  # /proc may hide other users' processes
        return 0


def _topology(root: str) -> Topology:
    """Sockets, cores and threads. A machine with unequal sockets is shown as single-threaded cores."""
    places = []
    base = f"{root}/sys/devices/system/cpu"
    for cpu in _cpu_list(_read(f"{base}/online")):
        topology = f"{base}/cpu{cpu}/topology"
        try:
            package = int(_read(f"{topology}/physical_package_id"))
            core = int(_read(f"{topology}/core_id"))
        except (OSError, ValueError):
            package, core = 0, cpu
        places.append((package, core, cpu))
    places.sort()
    sockets = len({package for package, _, _ in places})
    cores = len({(package, core) for package, core, _ in places})
    order = tuple(cpu for _, _, cpu in places)
    if cores % sockets or len(order) % cores:
        return Topology(sockets=1, cores_per_socket=len(order), threads_per_core=1, order=order)
    return Topology(
        sockets=sockets, cores_per_socket=cores // sockets, threads_per_core=len(order) // cores, order=order
    )


def _cpu_list(text: str) -> list[int]:
    """`0-3,8` -> [0, 1, 2, 3, 8]."""
    cpus: list[int] = []
    for word in text.strip().split(","):
        low, _, high = word.partition("-")
        cpus += range(int(low), int(high or low) + 1)
    return cpus


def _memory_mib(root: str) -> int:
    for line in _read(f"{root}/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return 1


def disk_mib(path: str) -> int:
    """Size of the file system that holds `path`; 0 if there is none."""
    try:
        status = os.statvfs(path)
    except OSError:
        return 0
    return status.f_blocks * status.f_frsize // _MIB


def describe(hardware: Hardware, hostname: str) -> str:
    """The two lines of `slurmd -C`."""
    shape = hardware.topology
    words = [
        f"NodeName={hostname}",
        f"CPUs={hardware.cpus}",
        "Boards=1",
        f"SocketsPerBoard={shape.sockets}",
        f"CoresPerSocket={shape.cores_per_socket}",
        f"ThreadsPerCore={shape.threads_per_core}",
        f"RealMemory={hardware.memory_mib}",
    ]
    if hardware.gpus:
        words.append("Gres=" + ",".join(f"gpu:{line.type}:{line.count}" for line in hardware.gpus))
    minutes, seconds = divmod(int(hardware.uptime_seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{' '.join(words)}\nUpTime={days}-{hours:02}:{minutes:02}:{seconds:02}\n"
