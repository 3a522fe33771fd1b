"""Starts a task with the compiled code, if it is installed and the task needs nothing that only Python does.

Makes the choice and the error messages; the child's code is `_spawn.c` or, in Python, `start`, with the same result.
See docs/decisions/0031.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

from spritz.notation.octets import octets
from spritz.stepd.resources import usage
from spritz.stepd.spec import SupervisorSpec, TaskSpec
from spritz.stepd.tasks import start

#: the compiled code; None if it was installed without a C compiler
quick: Callable[..., tuple[int, int, int, int]] | None
try:
    from spritz.stepd import _spawn

    quick = _spawn.spawn
except ImportError:
    quick = None


def start_task(
    spec: SupervisorSpec,
    task: TaskSpec,
    environment: dict[bytes, bytes],
    streams: start.Streams,
    say: Callable[[str], None],
    kept: int = -1,
) -> int:
    """The task's process id; `start.start_task` says the rest. Raises OSError if no process can be made.

    `say` writes a line to the task's standard error, for one that could not be started.
    """
    if kept >= 0:
        return start.start_task(spec, task, environment, streams, kept)
    if quick is None or spec.task_prologs or spec.private_dirs or not task.argv or not start.may_become(spec.identity):
        return start.start_task(spec, task, environment, streams)
    programs = candidates(task.argv[0], environment)
    environment.pop(b"SLURM_TASK_PID", None)
    identity = spec.identity
    try:
        pid, error, in_execve, which = quick(
            programs,
            len(programs) > 1,
            tuple([octets(argument) for argument in task.argv]),
            tuple(map(b"=".join, environment.items())),
            streams,
            spec.pty and os.isatty(streams[0]),
            usage.oom_score_of_tasks(),
            task.cpus,
            spec.nice,
            _limits(spec.limits),
            (identity.uid, identity.gid, identity.groups) if os.geteuid() == 0 else None,
            spec.umask,
            spec.hosts_file,
            spec.node,
        )
    except ValueError:  # a NUL byte in an argument or variable: the slow way says which
        return start.start_task(spec, task, environment, streams)
    if error:
        # The child is gone; its standard error is still open here.
        if in_execve:
            with start.AsUser(identity):  # it looks into the file
                text = start.execve_failed(programs[which], error)
        else:
            text = f"slurmstepd: error: task {task.task_id} could not be started: {OSError(error, os.strerror(error))}"
        say(text)
    return pid


def candidates(name: str, environment: dict[bytes, bytes]) -> tuple[bytes, ...]:
    """Paths at which a shell looks for the program, and the name itself if it is at none of them."""
    wanted = octets(name)
    if b"/" in wanted:
        return (os.path.join(os.getcwdb(), wanted),)
    places = start.path_of(environment)
    return (*[b"%s/%s" % (place or b".", wanted) for place in places], wanted)


_made: dict[tuple[tuple[str, int], ...], tuple[tuple[int, int, bytes], ...]] = {}


def _limits(limits: tuple[tuple[str, int], ...]) -> tuple[tuple[int, int, bytes], ...]:
    """Numbers of the limits, soft values, and what to say where one cannot be set. Steps of a job have the same."""
    parsed = _made.get(limits)
    if parsed is None:
        _made.clear()
        parsed = _made[limits] = tuple(
            (number, soft, octets(start.limit_refused(name, soft) + "\n"))
            for name, soft in limits
            if (number := getattr(resource, f"RLIMIT_{name}", None)) is not None
        )
    return parsed
