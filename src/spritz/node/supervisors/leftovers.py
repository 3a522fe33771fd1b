"""Ends processes left by a dead supervisor, or before a daemon's clean start.

A number alone names no process: it may be a stranger's by now. A process counts as a step's if it bears the step's
mark, is in the step's cgroup, is in the session of a task that still exists (`stepd.record` has when that started), or
has become the zygote's child. It is signalled as that process (`process_identity`).

Source: slurmd(8) -c.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable

from spritz.node import cgroup
from spritz.node import spool as spools
from spritz.notation.octets import octets
from spritz.process_identity import Process, exists, identify, send, status_of
from spritz.stepd import control, processes, spec
from spritz.stepd.tasks import epilogs

_PATIENCE_SECONDS = 10.0


def leftovers(directory: str) -> list[Process]:
    """Processes of the step with this spool directory: by their mark, the sessions of its tasks, and its cgroup."""
    record = spools.read_record(directory)
    processes_left = set(processes.marked(spec.marker(directory)))
    if record is not None and record.pids:
        known = record.processes()
        processes_left.update(processes.in_sessions(known[1:]))
        if not _is_replaced(record.pids[0], known):
            step = record.spec
            for group in {step.cgroup_memory, step.cgroup_devices, step.cgroup_cores, step.cgroup_tree}:
                processes_left.update(cgroup.left_in(group, record.pids[0]))
    return sorted(process for process in processes_left if process.pid != os.getpid())


def end(survivors: Iterable[Process]) -> None:
    """SIGKILL to each of them."""
    for process in survivors:
        send(process, signal.SIGKILL)


def _is_replaced(pid: int, known: tuple[Process, ...]) -> bool:
    """Whether a later supervisor has this number, and with it the cgroup of that name."""
    if known and exists(known[0]):
        return False
    return processes.name_of(pid) == "slurmstepd"


def end_containers(directory: str) -> list[str]:
    """Let the runtime end containers of a step whose supervisor was killed. Returns the errors.

    Blocks, for up to 30 seconds a task.
    """
    record = spools.read_record(directory)
    if record is None:
        return []
    known, problems = record.spec, []
    other = os.geteuid() == 0
    tasks = record.processes()[1:] or tuple(Process(0, 0) for _ in known.tasks)
    for task, process in zip(known.tasks, tasks, strict=False):
        if not task.end:
            continue
        identity = known.identity
        try:
            subprocess.run(
                [*map(octets, task.end), b"%d" % (process.pid if exists(process) else 0)],
                env=epilogs.end_environment(known, task),
                cwd="/",
                user=identity.uid if other else None,
                group=identity.gid if other else None,
                extra_groups=identity.groups if other else None,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                timeout=min(known.end_seconds, _PATIENCE_SECONDS * 3),
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            problems.append(f"task {task.task_id}: {error}")
    if known.oci_directory:
        with contextlib.suppress(OSError):
            os.rmdir(known.oci_directory)
    return problems


def orphans(zygote_pid: int) -> list[Process]:
    """Processes whose supervisor was killed, even if they hide: they are the zygote's children now.

    All of its children are supervisors otherwise; they bear its name until they have taken theirs.
    """
    pids: list[int] = []
    for child in processes.children_of(zygote_pid) if zygote_pid else ():
        if not _is_supervisor(child):
            pids += [child, *processes.descendants(child)]
    parents = {zygote_pid, *pids}
    # The parent is asked for last: a number that was given out meanwhile has another one.
    named = [(identify(pid), status_of(pid)) for pid in pids]
    return [process for process, status in named if status is not None and status.parent in parents]


def _is_supervisor(pid: int) -> bool:
    try:
        return processes.name_of(pid) in ("slurmstepd", "slurmd-zygote", "") and (
            os.stat(f"/proc/{pid}").st_uid == os.geteuid()
        )
    except OSError:
        return True  # it is gone


def forget_all(paths: Iterable[str]) -> None:
    """Kill and forget every step in these spools (-c)."""
    for path in paths:
        spool = spools.Spool(path)
        if not os.path.isdir(path):
            continue
        spool.forget_identity()
        scanned = spool.scan()
        unsupported = [directory for directory, _ in scanned.unsupported]
        for directory in [*(step.directory for step in scanned.found), *scanned.unreadable, *unsupported]:
            end_and_forget(spool, directory)


def end_and_forget(spool: spools.Spool, directory: str) -> None:
    """Kill what runs of the step in `directory`, and remove that."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    connection = spools.connect(directory)
    if connection is not None:  # a living supervisor can end everything itself
        connection.sendall(control.encode(control.Terminate("", 0.0)))
    while (survivors := leftovers(directory)) and time.monotonic() < deadline:
        if connection is None:
            end(survivors)
        time.sleep(0.02)
    if connection is None:
        end_containers(directory)
    else:
        connection.sendall(control.encode(control.Forget()))
        connection.close()
    spool.remove(directory)
