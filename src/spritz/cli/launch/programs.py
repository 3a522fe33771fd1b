"""What tasks run: one command, or --multi-prog; and the launchers that --mpi may name.

Source: srun(1) --multi-prog, --mpi; texts as Slurm 22.05 prints them.
"""

from __future__ import annotations

import os

from spritz.model.errors import SpritzError
from spritz.notation import multiprog

#: what Slurm has and we do not, and why not
_NOT_BUILT = ("pmi2", "pmix", "cray_shasta", "openmpi", "pmix_v2", "pmix_v3", "pmix_v4", "pmix_v5")

MultiProg = tuple[tuple[str, tuple[str, ...]], ...]


def read_multi_prog(path: str, tasks: int | None, cwd: str) -> tuple[MultiProg, int]:
    """(mask of one task in hexadecimal, its command) for each task, and how many tasks. Raises SpritzError."""
    try:
        with open(os.path.join(cwd, path), encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        raise SpritzError(f"Could not open multi_prog config file {path}", hint=str(error)) from error
    try:
        rules, total = multiprog.parse(text, path, tasks)
    except multiprog.MultiProgError as error:
        *before, last = error.lines
        raise SpritzError(last, details=tuple(before)) from error
    found = []
    for task in range(total):
        # Differs: `%t` and `%o` are put in here, where quotes and backslashes are known, and not on the nodes.
        command = multiprog.command(rules, task)
        assert command is not None, "the parser saw a line for every task"
        found.append((format(1 << task, "x"), tuple(command)))
    return tuple(found), total


def check_mpi(value: str) -> None:
    """Raises SpritzError for anything but none."""
    kind = value.lower()
    if kind in ("", "none"):
        return
    if kind in _NOT_BUILT:
        raise SpritzError(
            f"option --mpi={value} is not supported by Spritz: there is no PMI server yet; --mpi=none, and torchrun "
            "or mpirun inside the job, work",
            code="ESLURM_NOT_SUPPORTED",
        )
    raise SpritzError(f"Invalid MPI type '{value[:80]}', --mpi=list for acceptable types")
