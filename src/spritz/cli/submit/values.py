"""Who said what: command line over environment over #SBATCH lines.

Values stay text, keyed by the option's long name; an option without argument has the value "". Options that cancel one
another
(`--mem` and `--mem-per-cpu`, `--requeue` and `--no-requeue`) displace those of a weaker source, and of the same source
if given earlier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.already_reported import AlreadyReported
from spritz.cli.options import Fatal
from spritz.cli.submit.refusals import Source
from spritz.model.errors import SpritzError
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from spritz.cli.context import Context

Values = dict[str, str]

#: read files and directories of the caller's: only what counts is looked at
_READING = frozenset({"chdir", "exclude", "nodefile", "nodelist"})

_MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
_RIVALS: tuple[frozenset[str], ...] = (
    _MEMORY,
    frozenset({"requeue", "no-requeue"}),
    frozenset({"exclusive", "oversubscribe"}),
    frozenset({"nodelist", "nodefile"}),
)

#: may be given several times; the values are joined
_COUNTED = frozenset({"verbose", "quiet"})


def put(values: Values, key: str, value: str | None) -> None:
    """Set one option, displacing its rivals. Raises Fatal for options that exclude each other."""
    if key in _MEMORY and any(rival in values for rival in _MEMORY - {key}):
        raise Fatal("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")
    if {key, *values} >= {"gpus-per-task", "ntasks-per-gpu"}:
        raise Fatal("--gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU")
    for rivals in _RIVALS:
        if key in rivals:
            for rival in rivals:
                values.pop(rival, None)
    if key in _COUNTED:
        value = values.get(key, "") + "1"
    values[key] = value or ""


def from_parsed(parsed: Iterable[tuple[str, str | None]]) -> Values:
    """Values of one source in the order given: the last one counts.

    Raises SpritzError or NotationError for earlier ones that make no sense.
    """
    values: Values = {}
    for key, value in parsed:
        _check_displaced(key, values.get(key), value)
        put(values, key, value)
    return values


def merge(weaker: Values, stronger: Values) -> Values:
    """`stronger` laid over `weaker`. Raises SpritzError or NotationError for what makes no sense in `weaker`."""
    merged = dict(weaker)
    for key, value in stronger.items():
        _check_displaced(key, merged.get(key), value)
        for rivals in _RIVALS:
            if key in rivals:
                for rival in rivals:
                    merged.pop(rival, None)
        merged[key] = value
    return merged


def _check_displaced(key: str, before: str | None, value: str | None) -> None:
    """Slurm reads every value that it is given, also those that give way to others."""
    if before is None or before == value or key in _READING:
        return
    from spritz.cli.submit.setters import SETTERS

    setter = SETTERS.get(key)
    if setter is not None:
        setter({}, before, Source(say=lambda line: None))


def answered(main: Callable[[list[str], Context], int], argv: list[str], context: Context) -> int:
    """The exit status of `main` of sbatch, salloc or srun. Raises SpritzError with the status it is to end with."""
    try:
        try:
            return main(argv, context)
        except NotationError as error:
            raise SpritzError(str(error)) from error
    except SpritzError as error:
        own_exit_code(error, context.environ)

        if isinstance(error, AlreadyReported):
            return error.exit_code
        raise


def own_exit_code(error: SpritzError, environ: Mapping[str, str]) -> None:
    """SLURM_EXIT_ERROR and SLURM_EXIT_IMMEDIATE choose what a failure exits with."""
    name = "SLURM_EXIT_IMMEDIATE" if error.code in IMMEDIATE else "SLURM_EXIT_ERROR"
    text = environ.get(name) or ""
    if text.isascii() and text.isdigit() and len(text) < 4:
        error.exit_code = int(text) & 0xFF


#: errors that mean: not at once
IMMEDIATE = frozenset(
    ("ESLURM_CAN_NOT_START_IMMEDIATELY", "ESLURM_NOT_TOP_PRIORITY", "ESLURM_NODES_BUSY", "ESLURM_FRAGMENTATION")
)
