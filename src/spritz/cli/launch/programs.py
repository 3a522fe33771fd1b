"""What tasks run: one command, or --multi-prog; and the launchers that --mpi may name.

Source: srun(1) --multi-prog, --mpi; texts as Slurm 22.05 prints them.
"""

from __future__ import annotations

import os

from spritz.model.errors import SpritzError
from spritz.notation import multiprog

#: what Slurm has and we do not, and why not
_NOT_BUILT = ("pmix", "cray_shasta", "openmpi", "pmix_v2", "pmix_v3", "pmix_v4", "pmix_v5")

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


def mpi_kind(given: str | None, default: str) -> str:
    """What serves the tasks: "pmi2" or "none". `default` is MpiDefault.

    Raises SpritzError for what was asked for and is not there; of MpiDefault the daemons warn.
    """
    if given is None:
        return "pmi2" if default.lower().removeprefix("mpi/") == "pmi2" else "none"
    kind = given.lower()
    if kind in ("", "none"):
        return "none"
    if kind == "pmi2":
        return kind
    if kind in _NOT_BUILT:
        raise SpritzError(
            f"option --mpi={given} is not supported by Spritz: there is no PMIx server; --mpi=pmi2 (MPICH and its "
            "kin), and torchrun or mpirun inside the job, work",
            code="ESLURM_NOT_SUPPORTED",
        )
    raise SpritzError(f"Invalid MPI type '{given[:80]}', --mpi=list for acceptable types")
