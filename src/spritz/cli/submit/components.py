"""Components of a heterogeneous job: a lone `:` between options on the command line, `#SBATCH hetjob` in a script.

Options that say how large a component is, and where it goes, hold for one component; all others go on to those after
it. Source: sbatch(1), salloc(1), srun(1); https://slurm.schedmd.com/heterogeneous_jobs.html; which options go on as
Slurm 22.05 has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.options import run_parse
from spritz.cli.submit import values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.context import Context
    from spritz.cli.options import Row
    from spritz.cli.submit.values import Values

SEPARATOR = ":"

#: options of one component
_SIZES = (
    "acctg-freq constraint contiguous core-spec cores-per-socket cpu-bind cpus-per-gpu cpus-per-task distribution "
    "error exclusive extra-node-info gpu-bind gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags "
    "het-group licenses mail-type mail-user mem-per-cpu mem-per-gpu mincpus multi-prog nodefile nodelist nodes ntasks "
    "ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket output overcommit oversubscribe partition prefer "
    "relative segment sockets-per-node spread-job switches threads-per-core tmp tres-per-task use-min-nodes"
)
_OWN = frozenset(_SIZES.split())
#: options of the whole command
_COMMAND = "bell help ignore-pbs immediate kill-command no-bell no-shell parsable quiet test-only usage verbose version"
_OF_COMMAND = frozenset((*_COMMAND.split(), "wait", "wrap"))


def parse(rows: Sequence[Row], argv: list[str], context: Context) -> tuple[list[Values], list[str]] | int:
    """Options of each component as given, and the words after the last; an int is the exit status."""
    found: list[Values] = []
    rest = argv
    while True:
        parsed = run_parse(rows, rest, context, stop_early=True, exit_code=255)
        if isinstance(parsed, int):
            return parsed
        options, rest = parsed
        found.append(values.from_parsed(options))
        if rest[:1] != [SEPARATOR]:
            return found, rest
        rest = rest[1:]


def programs(rows: Sequence[Row], argv: list[str], context: Context) -> list[tuple[Values, list[str]]] | int:
    """srun's form: options and command of each component; a component without a command has that of the next."""
    found: list[tuple[Values, list[str]]] = []
    rest = argv
    while True:
        parsed = run_parse(rows, rest, context, stop_early=True, exit_code=255)
        if isinstance(parsed, int):
            return parsed
        options, words = parsed
        if SEPARATOR not in words:
            found.append((values.from_parsed(options), words))
            return found
        at = words.index(SEPARATOR)
        found.append((values.from_parsed(options), words[:at]))
        rest = words[at + 1 :]


def going_on(given: Values) -> Values:
    """What holds for the next component as well."""
    return {key: value for key, value in given.items() if key not in _OWN}


def laid_over(environment: Values, *sources: Sequence[Values]) -> list[Values]:
    """Options in force for each component. Of each source, weakest first, with what goes on from the component before;
    the environment is stronger than the first of several sources (a script), and says the same of all components.
    """
    count = max(map(len, sources))
    chains = [_chain(source, count) for source in sources]
    weaker = chains[:-1]
    found: list[Values] = []
    for index in range(count):
        in_force: Values = {}
        for values_of_one in (*(chain[index] for chain in weaker), environment, chains[-1][index]):
            in_force = values.merge(in_force, values_of_one)
        found.append(in_force)
    return found


def _chain(source: Sequence[Values], count: int) -> list[Values]:
    found: list[Values] = []
    for index in range(count):
        before = going_on(found[-1]) if found else {}
        found.append(values.merge(before, source[index]) if index < len(source) else before)
    return found


def of_all(parts: Sequence[Values]) -> Values:
    """The first component's options, with those of the command itself (--parsable, --wrap …) wherever they stand."""
    merged = dict(parts[0])
    for part in parts[1:]:
        for key in _OF_COMMAND & part.keys():
            merged.setdefault(key, part[key])
    return merged
