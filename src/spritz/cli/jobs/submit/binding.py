"""Options that bind tasks to CPUs, GPUs and memory, and that distribute tasks. Imported only when one is used.

Source: srun(1) and sbatch(1) --cpu-bind, --distribution, --gpu-bind, --gres-flags, --hint, --mem-bind, --tres-bind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.options import Fatal
from spritz.cli.jobs.submit.refusals import PARSE_STATUS, Fields, Source, invalid, not_built
from spritz.model.errors import SpritzError
from spritz.notation.errors import NotationError, shown
from spritz.notation.layout import cpubind, distribution

if TYPE_CHECKING:
    from collections.abc import Callable


def _hint(fields: Fields, value: str, source: Source) -> None:
    for word in value.split(","):
        if word in ("nomultithread", "compute_bound"):
            fields["threads_per_core"] = 1
        elif word == "memory_bound":
            fields["cores_per_socket"] = fields["threads_per_core"] = 1
        elif word != "multithread":
            raise SpritzError(f'unrecognized --hint argument "{shown(word)}", see --hint=help')


_GRES_FLAGS = (
    "allow-task-sharing",
    "disable-binding",
    "enforce-binding",
    "multiple-tasks-per-sharing",
    "one-task-per-sharing",
)


def _gres_flags(fields: Fields, value: str, source: Source) -> None:
    words = tuple(word.lower() for word in value.split(","))
    for word in words:
        if word not in _GRES_FLAGS:
            raise invalid("gres-flags")
    fields["gres_flags"] = words


def _gpu_bind(fields: Fields, value: str, source: Source) -> None:
    try:
        cpubind.parse_gpu_bind(value)
    except NotationError as error:
        raise SpritzError(str(error), exit_code=PARSE_STATUS) from error
    fields["gpu_bind"] = value


def _tres_bind(fields: Fields, value: str, source: Source) -> None:
    """`gres/gpu:closest`; `+` separates the bindings of several resources. Raises SpritzError for others than GPUs."""
    for part in value.split("+"):
        name, _, bind = part.removeprefix("gres/").partition(":")
        if not part.startswith("gres/") or not bind:
            raise invalid("tres-bind")
        if name != "gpu":
            raise not_built(f"tres-bind=gres/{shown(name, 40)}", "only GPUs are bound to tasks")
        _gpu_bind(fields, bind, source)


def _memory_bind(fields: Fields, value: str, source: Source) -> None:
    try:
        binding = cpubind.parse_mem_bind(value)
    except NotationError as error:
        raise SpritzError(str(error), exit_code=PARSE_STATUS) from error
    if binding.type not in ("", "none", "local"):  # the kernel's default is local
        source.warn(f"--mem-bind={binding.type} has no effect: memory is not bound to NUMA nodes")
        return
    fields["memory_bind"] = value


def _cpu_bind(fields: Fields, value: str, source: Source) -> None:
    try:
        cpubind.parse_cpu_bind(value)
    except NotationError as error:
        raise Fatal("Failed to parse --cpu-bind= values.", details=(str(error),)) from error
    fields["cpu_bind"] = value


def _distribution(fields: Fields, value: str, source: Source) -> None:
    if value == "plane" and source.environ.get("SLURM_DIST_PLANESIZE"):
        value = f"plane={source.environ['SLURM_DIST_PLANESIZE']}"
    try:
        distribution.parse(value)
    except distribution.DistributionError as error:
        details = (error.detail,) if error.detail else ()
        raise invalid("distribution", details=details) from error
    fields["distribution"] = distribution.without_stars(value)


SETTERS: dict[str, Callable[[Fields, str, Source], None]] = {
    "cpu-bind": _cpu_bind,
    "distribution": _distribution,
    "gpu-bind": _gpu_bind,
    "gres-flags": _gres_flags,
    "hint": _hint,
    "mem-bind": _memory_bind,
    "tres-bind": _tres_bind,
}
