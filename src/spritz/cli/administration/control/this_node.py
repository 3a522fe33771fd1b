"""This machine: `show slurmd`, and `getent`, the users and groups of its steps.

A node's daemon answers only its controller, so its data is read from this machine and from its registration. Source:
scontrol(1); what 22.05 prints.
"""

from __future__ import annotations

import grp
import os
import pwd
from typing import TYPE_CHECKING

from spritz.cli.administration.control.local import processes
from spritz.model.queries.configuration import ConfigText, ShowConfig
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.presentation.record import moment
from spritz.presentation.users import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.administration.control.local import Process
    from spritz.cli.administration.control.session import Session
    from spritz.model.queries.nodes import NodeView

_REFUSED = "Connection refused"

#: SlurmdDebug's words, in the order of their numbers
_LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")


def getent(session: Session, words: list[str]) -> int:
    """`getent [NODE]`: print passwd and group lines of the users with steps on this machine."""
    steps = _steps(words[0] if words else "")
    if not steps:
        session.out("No steps found on this node\n")
    for process in steps:
        uid, groups = _owner(process.pid)
        lines = [f"JobId={process.job}.{process.step}:", "User:", *_user_line(uid)]
        lines += ["Groups:", *_group_lines(uid, groups)]
        session.out("\n".join(lines) + "\n\n")
    return 0


def _steps(node: str) -> list[Process]:
    """A process of each step of the node ("": of any), a job's script first."""
    steps: dict[tuple[int, bool, int], Process] = {}
    for process in processes():
        if not node or process.node == node:
            number = int(process.step) if process.step.isdecimal() else 0
            steps.setdefault((int(process.job), process.step.isdecimal(), number), process)
    return [process for _, process in sorted(steps.items(), key=lambda item: item[0])]


def _owner(pid: int) -> tuple[int, list[int]]:
    """User and supplementary groups of a process; -1 for one that has just ended."""
    uid, groups = -1, []
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key == "Uid":
                    uid = int(value.split()[0])
                elif key == "Groups":
                    groups = [int(word) for word in value.split()]
    except OSError:
        pass
    return uid, groups


def _user_line(uid: int) -> list[str]:
    try:
        user = pwd.getpwuid(uid)
    except (KeyError, OverflowError):
        return [f":x:{uid}::::"] if uid >= 0 else []
    return [
        f"{user.pw_name}:{user.pw_passwd}:{user.pw_uid}:{user.pw_gid}:{user.pw_gecos}:{user.pw_dir}:{user.pw_shell}"
    ]


def _group_lines(uid: int, groups: Sequence[int]) -> list[str]:
    lines = []
    for gid in groups:
        try:
            group = grp.getgrgid(gid)
        except KeyError:
            continue
        lines.append(f"{group.gr_name}:{group.gr_passwd}:{group.gr_gid}:{name_of(uid)}")
    return lines


def show_slurmd(session: Session, words: list[str]) -> int:
    """show slurmd [NODE]: the daemon on this machine; SLURMD_NODENAME says which, where there are several."""
    view = _own_view(session, words[0] if words else "")
    config = dict(session.call(ShowConfig(), ConfigText).pairs)
    name = view.node.name if view else ""
    pid = _daemon_pid(_filled(config.get("SlurmdPidFile", ""), name)) if view else 0
    if view is None or not pid:
        session.context.err(f"scontrol: error: slurm_slurmd_info: {_REFUSED}\nslurm_load_slurmd_status: {_REFUSED}\n")
        return 1
    node, cpus, sockets, cores = view.node, os.cpu_count() or 1, *_geometry()
    steps = _steps(name)
    active = [step.job if step.step == "batch" else f"{step.job}.{step.step}" for step in steps]
    disk = os.statvfs(config.get("TmpFS") or "/tmp")
    heard = max(node.registered_at, view.sample.sampled_at if view.sample else 0.0)
    level = config.get("SlurmdDebug", "info")
    rows = (
        ("Active Steps", ", ".join(active) or "NONE"),
        ("Actual CPUs", cpus),
        ("Actual Boards", 1),
        ("Actual sockets", sockets),
        ("Actual cores", max(1, cores // sockets)),
        ("Actual threads per core", max(1, cpus // cores)),
        ("Actual real memory", f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 2**20} MB"),
        ("Actual temp disk space", f"{disk.f_blocks * disk.f_frsize // 2**20} MB"),
        ("Boot time", moment(node.daemon_started_at)),
        ("Hostname", name),
        ("Last slurmctld msg time", moment(heard)),
        ("Slurmd PID", pid),
        ("Slurmd Debug", _LEVELS.index(level) if level in _LEVELS else level),
        ("Slurmd Logfile", _filled(config.get("SlurmdLogFile", ""), name) or "NONE"),
        ("Version", node.version),
    )
    session.out("".join([f"{label:<24} = {value}\n" for label, value in rows]))
    return 0


def _own_view(session: Session, wanted: str) -> NodeView | None:
    """The node of this machine: the one that is named, or the first one of its host."""
    answer = session.joined(ListNodes(all=True, pieces=True), Nodes, "nodes")
    host = os.uname().nodename
    wanted = session.context.environ.get("SLURMD_NODENAME", "") or wanted
    here = [
        view
        for view in answer.nodes
        if view.node.name == wanted
        or (not wanted and {view.node.hostname, view.node.name} & {host, host.partition(".")[0], "localhost"})
    ]
    return here[0] if here else None


def _filled(pattern: str, node: str) -> str:
    """A path of slurm.conf with %n and %h."""
    return pattern.replace("%n", node).replace("%h", os.uname().nodename.partition(".")[0]).removeprefix("(null)")


def _daemon_pid(path: str) -> int:
    """The process id in the pid file, if such a process exists."""
    try:
        with open(path, encoding="ascii") as file:
            pid = int(file.read(32))
        os.stat(f"/proc/{pid}")
    except (OSError, ValueError):
        return 0
    return pid


def _geometry() -> tuple[int, int]:
    """Sockets and cores of this machine; 1 and its CPUs if the kernel reports none."""
    base, cores = "/sys/devices/system/cpu", set()
    for name in os.listdir(base) if os.path.isdir(base) else ():
        try:
            with open(f"{base}/{name}/topology/physical_package_id", encoding="ascii") as package:
                with open(f"{base}/{name}/topology/core_id", encoding="ascii") as core:
                    cores.add((package.read(), core.read()))
        except OSError:
            continue
    if not cores:
        return 1, os.cpu_count() or 1
    return len({package for package, _ in cores}), len(cores)
