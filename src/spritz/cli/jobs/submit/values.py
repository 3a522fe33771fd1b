"""Options as text, and their precedence: the command line overrides the environment, which overrides #SBATCH lines.

`Values` maps an option's long name to its text; an option without argument has the text "". Of options that exclude
each other (`--mem` and `--mem-per-cpu`, `--requeue` and `--no-requeue`), the one from the stronger source displaces the
other, and within a source the later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.options import Fatal
from spritz.cli.jobs.submit.refusals import Source
from spritz.model.errors import SpritzError
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from spritz.cli.call.context import Context

Values = dict[str, str]

#: Options that read files of the caller: displaced values are not checked.
_READING = frozenset({"chdir", "exclude", "nodefile", "nodelist"})

_MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
_RIVALS: tuple[frozenset[str], ...] = (
    _MEMORY,
    frozenset({"requeue", "no-requeue"}),
    frozenset({"exclusive", "oversubscribe"}),
    frozenset({"nodelist", "nodefile"}),
)

#: Options that may be repeated; their values are joined.
_COUNTED = frozenset({"verbose", "quiet"})


def put(values: Values, key: str, value: str | None) -> None:
    """Set one option, displacing its rivals. Raises Fatal or SpritzError for options that exclude each other."""
    if key in _MEMORY and any(rival in values for rival in _MEMORY - {key}):
        raise Fatal("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")
    if {key, *values} >= {"gpus-per-task", "ntasks-per-gpu"}:
        raise Fatal("--gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU")
    if {key, *values} >= {"exclusive", "overlap"}:
        raise SpritzError("--exclusive and --overlap are mutually exclusive")
    for rivals in _RIVALS:
        if key in rivals:
            for rival in rivals:
                values.pop(rival, None)
    if key in _COUNTED:
        value = values.get(key, "") + "1"
    values[key] = value or ""


def from_parsed(parsed: Iterable[tuple[str, str | None]]) -> Values:
    """The values of one source, in their order: the last value of an option wins.

    Raises SpritzError or NotationError even for a bad value that a later one displaces.
    """
    values: Values = {}
    for key, value in parsed:
        _check_displaced(key, values.get(key), value)
        put(values, key, value)
    return values


def merge(weaker: Values, stronger: Values) -> Values:
    """`weaker`, overridden by `stronger`. Raises SpritzError or NotationError for a bad displaced value."""
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
    """Parse a displaced value, as Slurm does, so that a bad one is refused."""
    if before is None or before == value or key in _READING:
        return
    from spritz.cli.jobs.submit.setters import SETTERS

    setter = SETTERS.get(key)
    if setter is not None:
        setter({}, before, Source(say=lambda line: None))


def run_main(main: Callable[[list[str], Context], int], argv: list[str], context: Context) -> int:
    """Run `main` of sbatch, salloc or srun; return its exit status. Raises SpritzError with the exit code to use."""
    try:
        try:
            return main(argv, context)
        except NotationError as error:
            raise SpritzError(str(error)) from error
    except SpritzError as error:
        apply_exit_code(error, context.environ)

        if isinstance(error, AlreadyReported):
            return error.exit_code
        raise


def apply_exit_code(error: SpritzError, environ: Mapping[str, str]) -> None:
    """Set the error's exit code from SLURM_EXIT_ERROR or SLURM_EXIT_IMMEDIATE, if they are set."""
    name = "SLURM_EXIT_IMMEDIATE" if error.code in IMMEDIATE else "SLURM_EXIT_ERROR"
    text = environ.get(name) or ""
    if text.isascii() and text.isdigit() and len(text) < 4:
        error.exit_code = int(text) & 0xFF


#: Error codes of a request that cannot start at once (--immediate).
IMMEDIATE = frozenset(
    ("ESLURM_CAN_NOT_START_IMMEDIATELY", "ESLURM_NOT_TOP_PRIORITY", "ESLURM_NODES_BUSY", "ESLURM_FRAGMENTATION")
)
