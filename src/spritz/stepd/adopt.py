"""Adopts sessions from outside (ssh) into a job of their user, or refuses them, like pam_slurm_adopt.

A step's record in the spool names its user. The session's process is moved into the cgroups of that step's supervisor,
where the step's limits apply, and it is ended with the step. Called as root, by `spritz adopt`. Source: Slurm's guide
to pam_slurm_adopt.
"""

from __future__ import annotations

import glob
import os

from spritz.model.errors import UnsupportedFormat
from spritz.model.ids import STEP_BATCH, STEP_EXTERN
from spritz.process_identity import Process, lives
from spritz.stepd import processes, record
from spritz.stepd.resources.usage import group_name
from spritz.stepd.spec import RECORD, SupervisorSpec
from spritz.stepd.tasks import namespaces
from spritz.stepd.tree import ADOPTED, is_frozen


class NotHeld(Exception):
    """The session could not be moved into the job's cgroups; the text says why."""


def steps_of(uid: int, spool: str) -> list[tuple[SupervisorSpec, Process]]:
    """(step, its supervisor) of the user's steps that run here. `spool` is a pattern of directories.

    Best step for a session first: of the newest job the `extern` step, else the batch script.
    """
    steps = []
    for path in glob.glob(f"{spool}/job*/{RECORD}") + glob.glob(f"{spool}/*/job*/{RECORD}"):
        try:
            known = record.read(path)
        except (OSError, UnsupportedFormat):
            continue
        if known is None or known.result is not None or not known.pids or known.spec.identity.uid != uid:
            continue
        if lives(supervisor := known.supervisor()):
            steps.append((known.spec, supervisor))
    order = {STEP_EXTERN: 2, STEP_BATCH: 1}
    return sorted(steps, key=lambda step: (step[0].job_id, order.get(step[0].step_id, 0)), reverse=True)


def is_suspended(step: SupervisorSpec, supervisor: Process) -> bool:
    """Whether the step is frozen: its CPUs may belong to another job now."""
    return bool(step.cgroup_tree) and is_frozen(f"{step.cgroup_tree}/{group_name(supervisor.pid)}")


def adopt(pid: int, step: SupervisorSpec, supervisor: Process) -> None:
    """Move a process, and so its later children, into the step's cgroups. Raises NotHeld."""
    if not step.cgroup_tree:
        raise NotHeld("slurmd can make no cgroup of version 2 here, and so could not end the session with its job")
    group = group_name(supervisor.pid)
    try:
        os.makedirs(f"{step.cgroup_tree}/{group}/{ADOPTED}", exist_ok=True)
        for directory in (step.cgroup_memory, step.cgroup_devices, step.cgroup_cores):
            # Of version 2 there is one group for all, and `adopted` is below it.
            listed = f"{directory}/{group}/cgroup.procs"
            if directory and directory != step.cgroup_tree and os.path.exists(listed):
                _write(listed, pid)
        _write(f"{step.cgroup_tree}/{group}/{ADOPTED}/cgroup.procs", pid)
    except OSError as error:
        raise NotHeld(f"{error.filename or step.cgroup_tree}: {error.strerror}") from error
    if not lives(supervisor):
        raise NotHeld("the job has ended meanwhile")


def held_by(pid: int, steps: list[tuple[SupervisorSpec, Process]]) -> tuple[SupervisorSpec, Process] | None:
    """The step, of these, whose groups contain the process."""
    with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
        groups = {line.rstrip("\n").rpartition(":")[2] for line in file}
    for step, supervisor in steps:
        if any(group.endswith(f"/{group_name(supervisor.pid)}/{ADOPTED}") for group in groups):
            return step, supervisor
    return None


def cover(pid: int, step: SupervisorSpec, supervisor: Process) -> None:
    """Replace the machine's directories by the job's private ones for the session of this process.

    Our mount namespace is that of the process, which must share it with neither its parent nor the job's supervisor.
    Raises NotHeld.
    """
    if not step.private_dirs:
        return
    try:
        ours, parents = os.readlink(f"/proc/{pid}/ns/mnt"), (processes.parent_of(pid), supervisor.pid)
        if ours != os.readlink("/proc/self/ns/mnt") or ours in {
            os.readlink(f"/proc/{parent}/ns/mnt") for parent in parents
        }:
            raise NotHeld("the session has no mount namespace of its own: pam_namespace must come before")
        namespaces.cover_here(step.private_dirs, shared=step.private_shared)
    except OSError as error:
        raise NotHeld(f"{error.filename}: {error.strerror}") from error


def _write(path: str, pid: int) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(str(pid))
