"""Restricts tasks of a step to its devices and cores, through the kernel. The node daemon removes the groups.

The supervisor is in the groups itself, as in the memory group, so that tasks start there; it opens no denied files.
Only devices that gres.conf names are ever denied. Sources: cgroup.conf(5) ConstrainDevices, ConstrainCores; cgroups(7),
cpuset(7), the kernel's v1 `devices` controller, `devicefilter` for version 2.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable

from spritz.stepd.notes import note
from spritz.stepd.resources.usage import group_name
from spritz.stepd.spec import SupervisorSpec

#: attempts to create a group
_TRIES = 5


class Confinement:
    """Groups of one supervisor, created when a step first needs them and set again for every further step."""

    def __init__(self) -> None:
        self._devices: dict[str, DeviceGroup] = {}
        self._cores: dict[str, CoreGroup] = {}

    def begin(self, spec: SupervisorSpec) -> None:
        """Apply a step's restrictions. Raises OSError if devices cannot be denied; a failure for cores is
        only logged.
        """
        if spec.cgroup_devices and spec.cgroup_devices not in self._devices:
            self._devices[spec.cgroup_devices] = DeviceGroup(spec.cgroup_devices)
        for parent, devices in self._devices.items():
            mine = parent == spec.cgroup_devices
            devices.deny(device_numbers(spec.devices_denied) - device_numbers(spec.devices_given) if mine else set())
        try:
            if spec.cgroup_cores and spec.cgroup_cores not in self._cores:
                self._cores[spec.cgroup_cores] = CoreGroup(spec.cgroup_cores)
            for parent, cores in self._cores.items():
                cores.hold(spec.cores if parent == spec.cgroup_cores else ())
        except OSError as error:
            note(
                f'slurmstepd: error: step.uncontained label={spec.label} error="{error}" '
                'detail="it may leave its cores"'
            )


class DeviceGroup:
    """A group of the v1 controller `devices`, or of version 2 with a program. Raises OSError if it cannot be made."""

    def __init__(self, parent: str) -> None:
        self.path = _join(parent, prepare=_allow_all)
        self._denied: set[str] = set()
        self._listed = os.path.exists(f"{self.path}/devices.deny")
        self._program = -1

    def deny(self, wanted: set[str]) -> None:
        """Deny exactly these devices (`c 195:0`) to its processes. Raises OSError."""
        if wanted == self._denied:
            return
        if not self._listed:
            from spritz.stepd.resources.devicefilter import attach

            self._program = attach(self.path, wanted, self._program)
            self._denied = set(wanted)
            return
        for device in sorted(wanted - self._denied):
            _write(f"{self.path}/devices.deny", f"{device} rwm")
            self._denied.add(device)
        for device in sorted(self._denied - wanted):
            _write(f"{self.path}/devices.allow", f"{device} rwm")
            self._denied.discard(device)


class CoreGroup:
    """A group of the controller cpuset, of either version. Raises OSError if it cannot be made."""

    def __init__(self, parent: str) -> None:
        self._held: tuple[int, ...] = ()
        self.path = _join(parent, prepare=inherit_cpuset)

    def hold(self, cores: tuple[int, ...]) -> None:
        """Restrict its processes to these CPUs, or allow all of its parent's. Raises OSError."""
        if cores == self._held:
            return
        if cores:
            _write(f"{self.path}/cpuset.cpus", ",".join(map(str, cores)))
        else:
            inherit_cpuset(self.path)
        self._held = cores


def inherit_cpuset(path: str) -> None:
    """Copy the parent's sets: version 1 accepts no process into an empty set; version 2 does this by itself.

    Raises OSError.
    """
    # Nor can what has processes be emptied again in version 2: what is above is named there too.
    suffix = ".effective" if os.path.exists(f"{path}/cgroup.controllers") else ""
    for name in ("cpuset.cpus", "cpuset.mems"):
        with open(f"{os.path.dirname(path)}/{name}{suffix}") as file:
            _write(f"{path}/{name}", file.read().strip())


def device_numbers(paths: tuple[str, ...]) -> set[str]:
    """`c 195:0` for each path that is a device; other paths are skipped."""
    numbers = set()
    for path in paths:
        try:
            seen = os.stat(path)
        except (OSError, ValueError):
            continue
        kind = "c" if stat.S_ISCHR(seen.st_mode) else "b" if stat.S_ISBLK(seen.st_mode) else ""
        if kind:
            numbers.add(f"{kind} {os.major(seen.st_rdev)}:{os.minor(seen.st_rdev)}")
    return numbers


def _allow_all(path: str) -> None:
    """Allow all devices that have not been denied before."""
    if os.path.exists(f"{path}/devices.allow"):
        _write(f"{path}/devices.allow", "a")


def _join(parent: str, prepare: Callable[[str], None] = lambda _: None) -> str:
    """Create a group and join it. Daemons remove empty groups, which it is for a moment: then it retries."""
    path = f"{parent}/{group_name(os.getpid())}"
    for tries_after in reversed(range(_TRIES)):
        try:
            for directory in (parent, path):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(directory)
                    prepare(directory)
            prepare(path)  # it may belong to a killed process with the same number
            _write(f"{path}/cgroup.procs", str(os.getpid()))
            break
        except OSError as error:
            if not tries_after or error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
    return path


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
