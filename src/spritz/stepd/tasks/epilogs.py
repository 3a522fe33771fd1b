"""Programs that run after a task, as its user and without its files: epilogs, and the end of its container.

Source: slurm.conf(5) TaskEpilog, srun(1) --task-epilog; the time they have and what is said as in Slurm 22.05, where
their standard error is the step's, and their standard output goes nowhere.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

from spritz.notation.octets import octets
from spritz.stepd.reactor import close_in_child
from spritz.stepd.spec import NOTHING, SupervisorSpec, TaskSpec
from spritz.stepd.tasks import namespaces
from spritz.stepd.tasks.start import become

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: How long one may take.
EPILOG_SECONDS = 5.0
#: Bytes kept of the end of an epilog's output.
_SAID_BYTES = 4096


def start_epilogs(spec: SupervisorSpec, task_id: int, pid: int, say: Callable[[str], None]) -> dict[int, int]:
    """Process ids of the started epilogs, each with a file in memory for its standard error. `pid` was the task's."""
    environment = {
        b"SLURM_PROCID": b"%d" % task_id,
        b"SLURM_TASK_PID": b"%d" % pid,
        b"SLURM_SCRIPT_CONTEXT": b"epilog_task",
    }
    for variable in spec.environment:
        name, _, value = variable.partition(b"=")
        environment.setdefault(name, value)
    started = {}
    for program in map(octets, spec.task_epilogs):
        if os.access(program, os.X_OK):
            output = os.memfd_create("said")
            started[_start(program, spec, environment, output)] = output
        else:
            say(f"error: Could not run user task_epilog [{os.fsdecode(program)}]: access denied")
            say(failed(-1))
    return started


def start_end(spec: SupervisorSpec, task: TaskSpec, pid: int) -> tuple[int, int]:
    """(its process id, a file in memory for what it says). It sees the machine as the task did, whose id `pid` was."""
    environment = end_environment(spec, task)
    words = [octets(word) for word in (*task.end, str(pid))]
    output = os.memfd_create("said")
    started = os.fork()
    if started:
        return started, output
    try:
        close_in_child()
        os.setsid()
        if spec.hosts_file:
            namespaces.enter(spec.hosts_file, spec.node)
        if spec.private_dirs:
            namespaces.cover(spec.private_dirs, shared=spec.private_shared)
        become(spec.identity)
        os.chdir("/")
        nothing = os.open(NOTHING, os.O_RDWR)
        for descriptor, source in enumerate((nothing, nothing, output)):
            os.dup2(source, descriptor)
        os.execve(words[0], words, environment)
    finally:
        os._exit(127)


def ending(output: int) -> bytes:
    """The end of what that file holds. Closes it."""
    with open(output, "rb") as file:
        file.seek(max(0, os.fstat(output).st_size - _SAID_BYTES))
        return file.read()


def last_line(output: int) -> str:
    """The last line in that file, which is closed."""
    lines = ending(output).decode(errors="replace").splitlines()
    return lines[-1].removeprefix("slurmstepd: error: ") if lines else ""


def end_environment(spec: SupervisorSpec, task: TaskSpec) -> dict[bytes, bytes]:
    """The environment that the task had, for programs that run after it."""
    pairs = (text.partition(b"=") for text in (*spec.environment, *map(octets, task.environment)))
    return {name: value for name, _, value in pairs}


def end_late(running: Iterable[int]) -> None:
    """Kill those that have not ended, with their process groups."""
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def failed(status: int) -> str:
    """The text for a wait status."""
    return f"error: TaskEpilog failed status={status}"


def _start(program: bytes, spec: SupervisorSpec, environment: dict[bytes, bytes], output: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        close_in_child()
        os.setsid()
        become(spec.identity)
        nothing = os.open(NOTHING, os.O_RDWR)
        for descriptor, source in enumerate((nothing, nothing, output)):
            os.dup2(source, descriptor)
        os.execve(program, [program], environment)
    finally:
        os._exit(127)
