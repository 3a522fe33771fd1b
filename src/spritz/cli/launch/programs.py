"""What tasks run: one command, or --multi-prog; and the launchers that --mpi may name.

Source: srun(1) --multi-prog, --mpi; texts as Slurm 22.05 prints them.
"""

from __future__ import annotations

import os

from spritz.model.errors import SpritzError
from spritz.notation import multiprog
from spritz.stepd.pmix import binding

#: what serves MPI programs here, and older words for nothing at all
_KINDS = {"": "none", "none": "none", "openmpi": "none", "pmi2": "pmi2", "pmix": "pmix"}
#: versions of libpmix that are spoken to
_PMIX_VERSIONS = (4, 5)
_KINDS |= {f"pmix_v{version}": "pmix" for version in _PMIX_VERSIONS}

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
    """What serves the tasks: "pmi2", "pmix" or "none". `default` is MpiDefault.

    Raises SpritzError for a requested but missing server; for MpiDefault the daemons warn.
    """
    asked = (default.removeprefix("mpi/") if given is None else given).lower()
    kind = _KINDS.get(asked)
    if kind == "pmix":
        _need_pmix(asked)
    if kind is not None:
        return kind
    if given is None:
        return "none"
    raise _invalid(given)


def mpi_list() -> str:
    """What --mpi=list prints."""
    text = "MPI plugin types are...\n\tnone\n\tpmi2\n"
    version = _pmix_version()[0]
    if version not in _PMIX_VERSIONS:
        return text
    return f"{text}\tpmix\nspecific pmix plugin versions available: pmix_v{version}\n"


def _need_pmix(asked: str) -> None:
    """Before a job waits for resources: the library that its nodes will want is here. Raises SpritzError."""
    version, trouble = _pmix_version()
    if version not in _PMIX_VERSIONS:
        found = trouble or f"version {version} is not among those that are supported: {_PMIX_VERSIONS}"
        raise _invalid(asked, f"mpi/pmix: {found}", "install OpenPMIx (Debian: libpmix2, Fedora: pmix)")
    if asked not in ("pmix", f"pmix_v{version}"):
        raise _invalid(asked, f"mpi/{asked}: the PMIx library is of version {version}")


def _pmix_version() -> tuple[int, str]:
    """Version of the PMIx library (0: none), and the error."""
    try:
        return binding.version(binding.load()), ""
    except binding.PmixError as error:
        return 0, str(error)


def _invalid(kind: str, detail: str = "", hint: str = "") -> SpritzError:
    return SpritzError(
        f"Invalid MPI type '{kind[:80]}', --mpi=list for acceptable types",
        hint=hint,
        details=(detail,) if detail else (),
    )
