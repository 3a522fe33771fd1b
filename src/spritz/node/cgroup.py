"""Directories for the cgroups of steps, if this daemon may create any. Each supervisor creates one in them.

Sources: cgroup.conf(5), slurm.conf(5) ProctrackType; cgroups(7) for both versions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from zlib import crc32

from spritz.process_identity import Process, identify
from spritz.stepd import processes
from spritz.stepd.resources import devicefilter
from spritz.stepd.resources.confine import inherit_cpuset
from spritz.stepd.resources.usage import JOB_GROUP, group_name
from spritz.stepd.tree import ADOPTED, TASKS

#: Types of file systems: cgroups of version 1 and 2.
Kinds = frozenset[str]
EITHER: Kinds = frozenset({"cgroup", "cgroup2"})
_V1_LACKS = "only cgroup/v1 is mounted here: it cannot freeze, kill at once, or take sessions by ssh"
#: CgroupPlugin -> usable versions
KINDS: dict[str, Kinds] = {
    "autodetect": EITHER,
    "cgroup/v1": frozenset({"cgroup"}),
    "cgroup/v2": frozenset({"cgroup2"}),
    "disabled": frozenset(),
}


def directory_name(spool: str) -> str:
    """The name of the directories of the daemon with this spool; it removes them when it ends."""
    return f"spritz_{os.geteuid()}_{crc32(os.fsencode(os.path.realpath(spool))):08x}"


def prepare_memory(name: str, kinds: Kinds = EITHER, *, root: str = "") -> str:
    """Directory for memory cgroups, created if missing; "" if none may be created. `root` is prefixed to /proc (for
    tests).
    """
    parent = _parent("memory", kinds, root)
    if not parent:
        return ""
    directory = f"{parent}/{name}"
    try:
        os.makedirs(directory, exist_ok=True)
        probe = f"{directory}/probe_{os.getpid()}"
        if not _is_version_1(directory):
            _write(f"{directory}/cgroup.subtree_control", "+memory")
        os.mkdir(probe)
    except OSError:
        return ""
    usable = any(os.path.exists(f"{probe}/{limit}") for limit in ("memory.max", "memory.limit_in_bytes"))
    os.rmdir(probe)
    return directory if usable else ""


def prepare_devices(name: str, kinds: Kinds = EITHER, *, root: str = "") -> str:
    """Prepare the controller `devices`, as `prepare_memory` does; version 2 has no such controller, and a program in
    the kernel does its work.

    Returns "" also for a group that has a list of what it may open, and not of what it may not: such a group cannot be
    kept from more devices.
    """
    parent = _parent("devices", kinds, root)
    try:
        if parent:
            with open(f"{parent}/devices.list") as file:
                if file.read().split() != ["a", "*:*", "rwm"]:
                    return ""
        else:
            parent = _unified(kinds, root)
            if not parent:
                return ""
        directory = f"{parent}/{name}"
        os.makedirs(directory, exist_ok=True)
        probe = f"{directory}/probe_{os.getpid()}"
        os.mkdir(probe)
    except OSError:
        return ""
    try:
        if not os.path.exists(f"{probe}/devices.deny"):
            os.close(devicefilter.attach(probe, ()))
    except OSError:
        return ""
    finally:
        os.rmdir(probe)
    return directory


def prepare_cores(name: str, kinds: Kinds = EITHER, *, root: str = "") -> str:
    """As `prepare_memory`, of the controller `cpuset`."""
    parent = _parent("cpuset", kinds, root)
    if not parent:
        return ""
    directory = f"{parent}/{name}"
    try:
        os.makedirs(directory, exist_ok=True)
        inherit_cpuset(directory)
        if os.path.exists(f"{directory}/cgroup.controllers"):
            _write(f"{directory}/cgroup.subtree_control", "+cpuset")
        probe = f"{directory}/probe_{os.getpid()}"
        os.mkdir(probe)
    except OSError:
        return ""
    usable = os.access(f"{probe}/cpuset.cpus", os.W_OK)
    os.rmdir(probe)
    return directory if usable else ""


def prepare_tree(name: str, kinds: Kinds = EITHER, *, root: str = "") -> str:
    """As `prepare_memory`, for freezing and killing, which take version 2 and none of its controllers."""
    for where, type_name, _ in _mounts(root, kinds):
        if type_name != "cgroup2":
            continue
        directory = f"{where}/{name}"
        probe = f"{directory}/probe_{os.getpid()}"
        try:
            os.makedirs(probe, exist_ok=True)
            usable = os.access(f"{probe}/cgroup.freeze", os.W_OK)
            os.rmdir(probe)
        except OSError:
            continue
        if usable:
            return directory
    return ""


def version(kinds: Kinds = EITHER, *, root: str = "") -> str:
    """The mounted version: "v2", "v1", "hybrid" (v1's controllers, and v2 without memory or cpuset) or ""."""
    mounted = {type_name for _, type_name, _ in _mounts(root, kinds)}
    if "cgroup2" in mounted:
        return "hybrid" if "cgroup" in mounted else "v2"
    return "v1" if "cgroup" in mounted else ""


def missing(plugin: str, controllers: tuple[str, ...], *, root: str = "") -> str:
    """Why this machine lacks what CgroupPlugin and the configuration require; "" if it does not.

    Source: cgroup.conf(5) CgroupPlugin. slurmd of Slurm does not start then either.
    """
    if plugin == "disabled":
        return ""
    if plugin == "autodetect":
        asked = ", ".join(controllers)
        return f"{asked} asked for, and {_V1_LACKS}" if asked and version(root=root) == "v1" else ""
    mounts = list(_mounts(root, KINDS[plugin]))
    if not mounts:
        return f"no {plugin} is mounted here"
    lacking = [
        name
        for name in controllers
        if not any(name in options if type_name == "cgroup" else _has(name, at) for at, type_name, options in mounts)
    ]
    return f"{plugin} has no controller {', '.join(lacking)} here" if lacking else ""


def _parent(controller: str, kinds: Kinds, root: str) -> str:
    """Where groups may be created: in version 1 next to this process's group; else below the root."""
    try:
        with open(f"{root}/proc/self/cgroup") as file:
            places = dict(line.split(":", 2)[1:] for line in file.read().splitlines())
    except (OSError, ValueError):
        return ""
    for where, type_name, options in _mounts(root, kinds):
        if type_name == "cgroup" and controller in options:
            # One that mounts several controllers names them all together.
            key = next((key for key in places if controller in key.split(",")), "")
            return where + places.get(key, "/").rstrip("/")
        if type_name == "cgroup2" and _has(controller, where):
            # A group with processes cannot have groups with controllers below it; only the root is exempt.
            with contextlib.suppress(OSError):
                _write(f"{where}/cgroup.subtree_control", f"+{controller}")
            return where
    return ""


def _unified(kinds: Kinds, root: str) -> str:
    """Where version 2 is mounted, and version 1 is not mounted; "" for nowhere."""
    mounts = list(_mounts(root, kinds))
    if any(type_name == "cgroup" and "devices" in options for _, type_name, options in mounts):
        return ""
    return next((where for where, type_name, _ in mounts if type_name == "cgroup2"), "")


def _mounts(root: str, kinds: Kinds = EITHER) -> Iterator[tuple[str, str, list[str]]]:
    """(directory, type, options) of every file system of these types that is mounted here."""
    try:
        with open(f"{root}/proc/self/mountinfo") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        fields, _, kind = line.partition(" - ")
        type_name, _, options = kind.partition(" ")
        if type_name in kinds:
            yield fields.split()[4], type_name, options.split()[-1].split(",")


def _has(controller: str, where: str) -> bool:
    try:
        with open(f"{where}/cgroup.controllers") as file:
            return controller in file.read().split()
    except OSError:
        return False


def _is_version_1(directory: str) -> bool:
    return os.path.exists(f"{directory}/memory.limit_in_bytes")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def left_in(directory: str, supervisor_pid: int) -> list[Process]:
    """Processes in the cgroup of a dead supervisor; an empty group is removed."""
    if not directory:
        return []
    path = f"{directory}/{group_name(supervisor_pid)}"
    processes_left: list[Process] = []
    for group in (f"{path}/{TASKS}", f"{path}/{ADOPTED}", path):
        try:
            listed = [identify(pid) for pid in _inside(group)]
            # Once more: a number that was given out between the two readings is that of a process outside.
            inside = _inside(group)
        except OSError:
            continue
        processes_left += [process for process in listed if process.pid in inside]
        if not processes_left and not inside:
            with contextlib.suppress(OSError):
                os.rmdir(group)
    return processes_left


def _inside(group: str) -> set[int]:
    with open(f"{group}/cgroup.procs") as file:
        return {int(word) for word in file.read().split()}


def remove(directory: str) -> None:
    """Remove the directory, unless steps are running. Idle supervisors need a moment to leave."""
    for _ in range(10):
        sweep(directory)
        try:
            if directory:
                os.rmdir(directory)
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
        time.sleep(0.02)


def sweep(directory: str) -> None:
    """Remove groups that dead supervisors left; those in use stay.

    So do empty ones whose maker lives: a supervisor is about to move in, or another daemon tries what it may do.
    """
    if not directory:
        return
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            if entry.name.startswith(JOB_GROUP):
                sweep(entry.path)
                with contextlib.suppress(OSError):
                    os.rmdir(entry.path)
            elif entry.is_dir() and not _is_alive(entry.name.rpartition("_")[2]):
                for group in (f"{entry.path}/{TASKS}", f"{entry.path}/{ADOPTED}", entry.path):
                    with contextlib.suppress(OSError):
                        os.rmdir(group)


def _is_alive(pid: str) -> bool:
    """Whether the process runs; False for a zombie. Another process with the same number only delays the removal of a
    group.
    """
    return pid.isdecimal() and processes.lives(int(pid))
