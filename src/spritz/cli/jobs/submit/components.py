"""Components of a heterogeneous job: a lone `:` between options on the command line, `#SBATCH hetjob` in a script.

Options about the size and placement of a component apply to it alone; all others also apply to the components after it.
Source: sbatch(1), salloc(1), srun(1); https://slurm.schedmd.com/heterogeneous_jobs.html; Slurm 22.05 for the options
that apply to later components.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.options import run_parse
from spritz.cli.jobs.submit import values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.call.context import Context
    from spritz.cli.call.options import Row
    from spritz.cli.jobs.submit.values import Values

SEPARATOR = ":"

#: Options that apply to a single component.
_SIZES = (
    "acctg-freq constraint contiguous core-spec cores-per-socket cpu-bind cpus-per-gpu cpus-per-task distribution "
    "error exclusive extra-node-info gpu-bind gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags "
    "het-group licenses mail-type mail-user mem-per-cpu mem-per-gpu mincpus multi-prog nodefile nodelist nodes ntasks "
    "ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket output overcommit oversubscribe partition prefer "
    "relative segment sockets-per-node spread-job switches threads-per-core tmp tres-per-task use-min-nodes"
)
_OWN = frozenset(_SIZES.split())
#: Options that apply to the whole command.
_COMMAND = "bell help ignore-pbs immediate kill-command no-bell no-shell parsable quiet test-only usage verbose version"
_OF_COMMAND = frozenset((*_COMMAND.split(), "wait", "wrap"))


def parse(rows: Sequence[Row], argv: list[str], context: Context) -> tuple[list[Values], list[str]] | int:
    """The options of each component, and the words after the last component's; or the exit status."""
    components: list[Values] = []
    remaining = argv
    while True:
        parsed = run_parse(rows, remaining, context, stop_early=True, exit_code=255)
        if isinstance(parsed, int):
            return parsed
        options, remaining = parsed
        components.append(values.from_parsed(options))
        if remaining[:1] != [SEPARATOR]:
            return components, remaining
        remaining = remaining[1:]


def programs(rows: Sequence[Row], argv: list[str], context: Context) -> list[tuple[Values, list[str]]] | int:
    """srun's form: (options, command) of each component; a component without command runs the next one's. Or the exit
    status.
    """
    components: list[tuple[Values, list[str]]] = []
    remaining = argv
    while True:
        parsed = run_parse(rows, remaining, context, stop_early=True, exit_code=255)
        if isinstance(parsed, int):
            return parsed
        options, words = parsed
        if SEPARATOR not in words:
            components.append((values.from_parsed(options), words))
            return components
        at = words.index(SEPARATOR)
        components.append((values.from_parsed(options), words[:at]))
        remaining = words[at + 1 :]


def carried_over(options: Values) -> Values:
    """The options of a component that also apply to the next one."""
    return {key: value for key, value in options.items() if key not in _OWN}


def merge_components(environment: Values, *sources: Sequence[Values]) -> list[Values]:
    """The options in force for each component. `sources`: options by component, the weakest source first.

    The environment applies to all components. It overrides all sources but the last (the command line), so the options
    of a script are weaker.
    """
    count = max(map(len, sources))
    chains = [_chain(source, count) for source in sources]
    weaker = chains[:-1]
    components: list[Values] = []
    for index in range(count):
        in_force: Values = {}
        for options in (*(chain[index] for chain in weaker), environment, chains[-1][index]):
            in_force = values.merge(in_force, options)
        components.append(in_force)
    return components


def _chain(source: Sequence[Values], count: int) -> list[Values]:
    """The options of a source for `count` components, each with those that carry over from the component before."""
    components: list[Values] = []
    for index in range(count):
        before = carried_over(components[-1]) if components else {}
        components.append(values.merge(before, source[index]) if index < len(source) else before)
    return components


def command_options(parts: Sequence[Values]) -> Values:
    """The first component's options, and options of the command itself (--parsable, --wrap …) from any component."""
    merged = dict(parts[0])
    for part in parts[1:]:
        for key in _OF_COMMAND & part.keys():
            merged.setdefault(key, part[key])
    return merged
