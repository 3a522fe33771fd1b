"""Ends processes left by a dead supervisor, or before a daemon's clean start. Source: slurmd(8) -c."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterable

from spritz.node import cgroup
from spritz.node import spool as spools
from spritz.notation.octets import octets
from spritz.stepd import control, epilogs, processes, spec

_PATIENCE_SECONDS = 10.0


def leftover_pids(directory: str) -> list[int]:
    """Processes of the step with this spool directory: by their mark, the sessions of its tasks, and its cgroup."""
    record = spools.read_record(directory)
    sessions = set(record.pids[1:]) if record is not None else set()
    pids = {*processes.marked(spec.marker(directory)), *processes.in_sessions(sessions)}
    if record is not None and record.pids:
        known = record.spec
        for group in {known.cgroup_memory, known.cgroup_devices, known.cgroup_cores, known.cgroup_tree}:
            pids.update(cgroup.left_in(group, record.pids[0]))
    return sorted(pids - {os.getpid()})


def end_containers(directory: str) -> list[str]:
    """Let the runtime end containers of a step whose supervisor was killed. Returns the errors.

    Blocks, for up to 30 seconds a task.
    """
    record = spools.read_record(directory)
    if record is None:
        return []
    known, problems = record.spec, []
    other = os.geteuid() == 0
    for task, pid in zip(known.tasks, record.pids[1:], strict=False):
        if not task.end:
            continue
        identity = known.identity
        try:
            subprocess.run(
                [*map(octets, task.end), str(pid).encode()],
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


def orphans(zygote_pid: int) -> list[int]:
    """Processes whose supervisor was killed, even if they hide: they are the zygote's children now.

    All of its children are supervisors otherwise; they bear its name until they have taken theirs.
    """
    pids = []
    for child in processes.children_of(zygote_pid) if zygote_pid else ():
        if not _is_supervisor(child):
            pids += [child, *processes.descendants(child)]
    return pids


def _is_supervisor(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm") as file:
            name = file.read().strip()
        return name in ("slurmstepd", "slurmd-zygote") and os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return True  # it is gone


def forget_all(paths: Iterable[str]) -> None:
    """Kill and forget every step in these spools (-c)."""
    for path in paths:
        spool = spools.Spool(path)
        if not os.path.isdir(path):
            continue
        spool.forget_identity()
        left = spool.scan()
        unsupported = [directory for directory, _ in left.unsupported]
        for directory in [*(step.directory for step in left.found), *left.unreadable, *unsupported]:
            end_and_forget(spool, directory)


def end_and_forget(spool: spools.Spool, directory: str) -> None:
    """Kill what runs of the step in `directory`, and remove that."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    connection = spools.connect(directory)
    if connection is not None:  # a living supervisor can end everything itself
        connection.sendall(control.encode(control.Terminate("", 0.0)))
    while leftover_pids(directory) and time.monotonic() < deadline:
        if connection is None:
            processes.send(leftover_pids(directory), 9)
        time.sleep(0.02)
    if connection is None:
        end_containers(directory)
    else:
        connection.sendall(control.encode(control.Forget()))
        connection.close()
    spool.remove(directory)
