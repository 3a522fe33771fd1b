"""Arithmetic on wait statuses (exit << 8 | signal).

Source: sacct(1) DerivedExitCode: the highest exit code of all steps; srun(1) EXIT CODE.
"""

from __future__ import annotations

#: Slurm shows the end of a job that was killed for memory as `0:125`
OOM_STATUS = 125


def signal_of(status: int) -> int:
    """The signal that ended the process, or 0."""
    return status & 0x7F


def exit_code_of(status: int) -> int:
    """The exit code, 0 to 255."""
    return (status >> 8) & 0xFF


def worse(first: int, second: int) -> int:
    """The worse of two tasks on one node: a signal outweighs an exit code, then the larger number counts.

    Of nodes of a step, and of steps of a job, the larger number counts, as in Slurm: any exit code outweighs a signal.
    """
    return max(first, second, key=_weight)


def _weight(status: int) -> tuple[bool, int]:
    return bool(status & 0x7F), status
