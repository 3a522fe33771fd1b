"""Option tables of the commands and their parser. An option works, or is refused by name: it is never accepted and
ignored. The exception are options for hardware without which Slurm runs the job all the same: a warning names them.

A command has one table, `OPTIONS`: a row for *every* option that Slurm's command of that name has. From it come the
parser, `--help`, `--usage`, tab completion and `docs/compatibility/options.md`.

Source: sbatch(1), srun(1), salloc(1), squeue(1), sinfo(1), scancel(1), scontrol(1); getopt(3) for the grammar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz import SLURM_VERSION
from spritz.model.errors import SpritzError
from spritz.notation import getopt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.cli.call.context import Context

#: the argument that follows an option
NONE, REQUIRED, OPTIONAL = getopt.NONE, getopt.REQUIRED, getopt.OPTIONAL


class Row:
    """One option.

    `name` long name ("" if none), `short` letter ("" if none), `metavar` names the argument ("" means none; `[=X]` in
    brackets: optional). `help` is one line. `refused` says why the option is not built; "" means that it works.
    `no_effect` says why it is taken and changes nothing, in a warning. `env` is the input variable after the command's
    prefix (`SBATCH_`, `SQUEUE_` …) or a whole name. `alias` is the long name of the option that this one is another
    spelling of.
    """

    __slots__ = ("alias", "argument", "env", "help", "metavar", "name", "no_effect", "refused", "short")

    def __init__(
        self,
        name: str,
        short: str = "",
        metavar: str = "",
        help: str = "",
        *,
        refused: str = "",
        no_effect: str = "",
        env: str = "",
        alias: str = "",
    ) -> None:
        self.name = name
        self.short = short
        self.metavar = metavar
        self.argument = NONE if not metavar else OPTIONAL if metavar.startswith("[=") else REQUIRED
        self.help = help
        self.refused = refused
        self.no_effect = no_effect
        self.env = env
        self.alias = alias

    @property
    def key(self) -> str:
        """The option's key in parsed results: the alias, else the long name, else the letter."""
        return self.alias or self.name or self.short


#: completes a word for a shell in Slurm 26.05
AUTOCOMPLETE = Row("autocomplete", "", "WORD", refused="`spritz completion` prints a script that completes words")


class UsageError(SpritzError):
    """A wrong command line. Slurm's commands print getopt's own words and `Try "x --help" for more information`."""


class Fatal(SpritzError):
    """An error that Slurm's commands call fatal: printed as `srun: fatal: …`."""


def parse(
    rows: Sequence[Row], argv: Sequence[str], *, stop_early: bool = False
) -> tuple[list[tuple[str, str | None]], list[str]]:
    """(key, value) in the order given, and the words that are no options.

    `stop_early`: options end at the first word that is none (sbatch, srun, salloc). Raises UsageError for what getopt
    refuses and
    SpritzError naming a refused option.
    """
    options, by_key = _indexed(rows)
    try:
        parsed, operands = getopt.parse(argv, options, stop_early=stop_early)
    except getopt.GetoptError as error:
        raise UsageError(str(error)) from error
    results = []
    for key, value in parsed:
        row = by_key[key]
        if row.refused:
            raise refusal(row)
        results.append((row.key, value))
    return results, operands


_Index = tuple[getopt.Options, dict[str, Row]]
#: by identity of a command's table, which is kept too; the command server fills this beforehand
_indexes: dict[int, tuple[Sequence[Row], _Index]] = {}


def _indexed(rows: Sequence[Row]) -> _Index:
    known = _indexes.get(id(rows))
    if known is not None and known[0] is rows:
        return known[1]
    table = getopt.Options([getopt.Option(row.name, row.short, row.argument, row.name or row.short) for row in rows])
    index = (table, {row.name or row.short: row for row in rows})
    if isinstance(rows, tuple):
        _indexes[id(rows)] = (rows, index)
    return index


def refusal(row: Row) -> SpritzError:
    """The error for an option that is not built."""
    spelling = f"--{row.name}" if row.name else f"-{row.short}"
    return SpritzError(f"option {spelling} is not supported by Spritz: {row.refused}", code="ESLURM_NOT_SUPPORTED")


def run_parse(
    rows: Sequence[Row], argv: Sequence[str], context: Context, *, stop_early: bool = False, exit_code: int = 1
) -> tuple[list[tuple[str, str | None]], list[str]] | int:
    """`parse` with getopt's complaints printed as C programs print them; an int is the exit status to return."""
    try:
        return parse(rows, argv, stop_early=stop_early)
    except UsageError as error:
        context.err(f"{context.program}: {error.message}\n")
        if context.program not in _WITHOUT_ADVICE:
            context.err(f'Try "{context.program} --help" for more information\n')
        return exit_code


#: commands that say no more than what is wrong
_WITHOUT_ADVICE = ("sacct", "sstat")


#: commands whose help begins with their name and a list of options, without groups
_LISTS = ("scontrol", "sacct", "sacctmgr", "sreport", "sstat")
#: commands whose options have groups with headings
_LAUNCHERS = ("sbatch", "srun", "salloc")


#: sections of sbatch, salloc and srun between the first and the last ones, as Slurm has them
_LAUNCHER_SECTIONS: dict[str, tuple[str, ...]] = {
    "Constraint options:": (
        "constraint",
        "contiguous",
        "exclude",
        "mem",
        "mincpus",
        "nodelist",
        "prefer",
        "reservation",
        "tmp",
    ),
    "Consumable resources related options:": ("exact", "exclusive", "mem-per-cpu"),
    "Affinity/Multi-core options:": (
        "cores-per-socket",
        "cpu-bind",
        "extra-node-info",
        "hint",
        "mem-bind",
        "ntasks-per-core",
        "ntasks-per-socket",
        "sockets-per-node",
        "threads-per-core",
    ),
    "GPU scheduling options:": (
        "cpus-per-gpu",
        "gpu-bind",
        "gpus",
        "gpus-per-node",
        "gpus-per-socket",
        "gpus-per-task",
        "mem-per-gpu",
        "ntasks-per-gpu",
    ),
}


def help_text(program: str, synopsis: str, rows: Iterable[Row], footer: str = "") -> str:
    """What `--help` prints: only options that work, aligned. The words are ours, the layout is that of Slurm's command,
    which completion scripts read."""
    rows = [row for row in rows if row.help and not row.refused and not row.alias]
    if program in _LISTS:
        lines = [f"{program} {synopsis}", "    Valid <OPTION> values are:"]
        lines += ["   " + line for row in rows for line in _help_lines(row)]
        return "\n".join([*lines, *(["", footer] if footer else [])]) + "\n"
    last: dict[str, tuple[str, ...]] = {"Help options:": ("help", "usage")}
    lines = [f"Usage: {program} {synopsis}"]
    if program in _LAUNCHERS:
        last = {**_LAUNCHER_SECTIONS, **last, "Other options:": ("version",)}
        lines += ["", "Parallel run options:"]
    apart = [name for names in last.values() for name in names]
    lines += [line for row in rows if row.name not in apart for line in _help_lines(row)]
    for heading, names in last.items():
        lines += ["", heading, *(line for row in rows if row.name in names for line in _help_lines(row))]
    return "\n".join([*lines, *(["", footer] if footer else [])]) + "\n"


def _help_lines(row: Row) -> list[str]:
    short = f"-{row.short}" if row.short else "  "
    comma = ", " if row.short and row.name else "  "
    long = ""
    if row.name:
        long = f"--{row.name}"
        if row.argument == REQUIRED:
            long += f"={row.metavar}"
        elif row.argument == OPTIONAL:
            long += row.metavar
    elif row.metavar:
        short += f" {row.metavar}"
    spelling = f"  {short}{comma}{long}"
    return [f"{spelling:<32} {row.help}"] if len(spelling) < 32 else [spelling, f"{'':<32} {row.help}"]


def about(option_keys: set[str], program: str, synopsis: str, rows: Iterable[Row], usage: str, context: Context) -> int:
    """`--version`, `--help` or `--usage`, whichever was said. The exit status."""
    if "version" in option_keys:
        context.out(version_text())
    elif "help" in option_keys:
        context.out(help_text(program, synopsis, rows))
    else:
        context.out(usage)
    return 0


def version_text() -> str:
    """What every command prints for `-V`."""
    return f"slurm {SLURM_VERSION}\n"


def split_ids(text: str) -> list[str]:
    """Items of a value with ids of jobs or steps, such as `12_[1,3],14`: split at commas outside brackets."""
    items: list[str] = []
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            items.append(text[start:position])
            start = position + 1
    items.append(text[start:])
    return [item for item in items if item]
