"""Programs that run when a task has ended, as its user and without its files. Source: slurm.conf(5) TaskEpilog."""

from __future__ import annotations

import os

from spritz.notation.octets import octets
from spritz.stepd.reactor import close_in_child
from spritz.stepd.spec import NOTHING, SupervisorSpec
from spritz.stepd.start import become


def start_epilogs(spec: SupervisorSpec, task_id: int, pid: int) -> list[int]:
    """Their process ids. `pid` was the task's."""
    environment = {b"SLURM_PROCID": b"%d" % task_id, b"SLURM_TASK_PID": b"%d" % pid}
    for variable in spec.environment:
        name, _, value = variable.partition(b"=")
        environment.setdefault(name, value)
    return [_start(octets(program), spec, environment) for program in spec.task_epilogs]


def _start(program: bytes, spec: SupervisorSpec, environment: dict[bytes, bytes]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        close_in_child()
        os.setsid()
        become(spec.identity)
        nothing = os.open(NOTHING, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.execve(program, [program], environment)
    finally:
        os._exit(127)
