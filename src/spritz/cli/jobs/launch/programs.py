"""Programs of tasks (--multi-prog), and the process-management interfaces of --mpi.

Source: srun(1) --multi-prog, --mpi; texts of Slurm 22.05.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.notation.lines import multiprog
from spritz.stepd.pmix import binding

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Values of --mpi that Spritz serves, and old names for "none".
_KINDS = {"": "none", "none": "none", "openmpi": "none", "pmi2": "pmi2", "pmix": "pmix"}
#: Supported versions of libpmix.
_PMIX_VERSIONS = (4, 5)
_KINDS |= {f"pmix_v{version}": "pmix" for version in _PMIX_VERSIONS}

MultiProg = tuple[tuple[str, tuple[str, ...]], ...]


def read_multi_prog(path: str, arguments: Sequence[str], tasks: int | None, cwd: str) -> tuple[MultiProg, int]:
    """((hexadecimal mask with a single task, its command) for each task, number of tasks). Raises SpritzError.

    `arguments`: those behind the file's name; each command gets them too, as they are.
    """
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
    commands = []
    for task in range(total):
        # Differs: expands `%t` and `%o` here, where quotes and backslashes are known; Slurm does so on the nodes.
        command = multiprog.command(rules, task)
        assert command is not None, "the parser requires a line for each task"
        commands.append((format(1 << task, "x"), (*command, *arguments)))
    return tuple(commands), total


def mpi_kind(option: str | None, default: str) -> str:
    """The interface for the tasks: "pmi2", "pmix" or "none". `option`: value of --mpi; `default`: MpiDefault.

    Raises SpritzError if --mpi names an unknown or missing interface; for MpiDefault, the daemons warn instead.
    """
    requested = (default.removeprefix("mpi/") if option is None else option).lower()
    kind = _KINDS.get(requested)
    if kind == "pmix":
        _need_pmix(requested)
    if kind is not None:
        return kind
    if option is None:
        return "none"
    raise _invalid(option)


def mpi_list() -> str:
    """The text of --mpi=list; PMIx is listed only if a library of a supported version is installed."""
    text = "MPI plugin types are...\n\tnone\n\tpmi2\n"
    version = _pmix_version()[0]
    if version not in _PMIX_VERSIONS:
        return text
    return f"{text}\tpmix\nspecific pmix plugin versions available: pmix_v{version}\n"


def _need_pmix(requested: str) -> None:
    """Check for the library before the job waits for resources. Raises SpritzError."""
    version, trouble = _pmix_version()
    if version not in _PMIX_VERSIONS:
        problem = trouble or f"version {version} is not among those that are supported: {_PMIX_VERSIONS}"
        raise _invalid(requested, f"mpi/pmix: {problem}", "install OpenPMIx (Debian: libpmix2, Fedora: pmix)")
    if requested not in ("pmix", f"pmix_v{version}"):
        raise _invalid(requested, f"mpi/{requested}: the PMIx library is of version {version}")


def _pmix_version() -> tuple[int, str]:
    """(version of the PMIx library or 0, error message)."""
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
