"""Niceness of tasks: the node daemon's, or that of the submitting command.

sbatch, srun and salloc write theirs into SLURM_PRIO_PROCESS. Source: slurm.conf(5) PropagatePrioProcess.
"""

from __future__ import annotations

_NAME = b"SLURM_PRIO_PROCESS="


def submitted(environment: tuple[bytes, ...]) -> int:
    """The command's niceness, -20 to 19; 0 if its environment does not have it."""
    value = next((entry[len(_NAME) :] for entry in reversed(environment) if entry.startswith(_NAME)), b"0")
    try:
        return max(-20, min(int(value), 19))
    except ValueError:
        return 0


def increment(propagate: int, asked: int, current: int, *, privileged: bool) -> int:
    """The addition to the daemon's `current` niceness for a task of a command with `asked`.

    `propagate`: PropagatePrioProcess, 0 to 2. `privileged`: root asked, and we are root.
    """
    if propagate == 0:
        return 0
    if propagate == 2:
        return max(asked - current, 1)
    return asked - current if privileged else max(asked - current, 0)
