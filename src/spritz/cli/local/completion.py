"""Print tab completion for bash or zsh: `source <(spritz completion bash)`.

The words come from the option tables with which the commands parse their arguments.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from spritz.cli.administration.control.show.entities import ENTITIES
from spritz.cli.administration.control.verbs import VERBS
from spritz.cli.call.context import Context
from spritz.cli.call.options import REQUIRED
from spritz.cli.local.questions.runs import names
from spritz.cli.spritz import SUBCOMMANDS

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.cli.call.options import Row

#: commands with an option table
COMMANDS = (
    "sbatch",
    "srun",
    "salloc",
    "sattach",
    "sbcast",
    "sgather",
    "scancel",
    "squeue",
    "sinfo",
    "scontrol",
    "scrontab",
    "strigger",
)

_BASH = """\
_spritz_{name}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    case $before in
        -p|--partition) COMPREPLY=($(compgen -W "$(sinfo -h -o %R 2>/dev/null)" -- "$word")); return;;
        -w|--nodelist|-x|--exclude) COMPREPLY=($(compgen -W "$(sinfo -h -N -o %N 2>/dev/null)" -- "$word")); return;;
        {ids}) COMPREPLY=($(compgen -W "$(squeue -h -o %i 2>/dev/null)" -- "$word")); return;;
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "{options}" -- "$word"))
        [[ ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace
    else
        {words}
    fi
}}
complete -F _spritz_{name} {name}
"""

#: Options and words that job ids follow.
_JOB_OPTIONS = "-j|--job|--jobs|--jobid"
_JOB_WORDS = {
    "scontrol": "explain|hold|uhold|release|requeue|requeuehold|suspend|resume|top|notify|wait_job",
    "spritz": "why",
}

_WORDS = {
    "scancel": 'COMPREPLY=($(compgen -W "$(squeue -h -o %i 2>/dev/null)" -- "$word"))',
    "squeue": "COMPREPLY=()",
    "sinfo": "COMPREPLY=()",
    "scontrol": 'COMPREPLY=($(compgen -W "{words}" -- "$word"))',
}


#: Subcommands that take names of runs, and of other things. The word RUN says it of the others.
_BY_NAME = frozenset({"cancel", "remove"})
#: Those that take runs of other users too.
_READING = frozenset({"show", "diff", "compare", "branch", "logs", "files", "checkpoints", "rerun"})

#: Options of `spritz SUBCOMMAND` are looked up when the user presses Tab: importing all subcommands would delay each
#: new shell.
_ASK = '$(spritz completion words -- "${COMP_WORDS[1]}" "${COMP_WORDS[2]}" 2>/dev/null)'
_SUBCOMMANDS = """\
if ((COMP_CWORD == 1)); then COMPREPLY=($(compgen -W "{names}" -- "$word"))
        else COMPREPLY=($(compgen -W "$(grep -v '^-' <<< "{ask}")" -- "$word") $(compgen -f -- "$word")); fi"""


def add_arguments(parser: ArgumentParser) -> None:
    """`spritz completion bash|zsh`, and the look-up `spritz completion words` that the script uses."""
    parser.add_argument("shell", choices=["bash", "zsh", "words"])
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="with words: a subcommand, and its action if it has any"
    )


def words_of(name: str, action: str = "") -> list[str]:
    """Options and actions of `spritz NAME`, or options of its action `action`; names of runs, if it takes them."""
    if name not in SUBCOMMANDS:
        return []
    parser = argparse.ArgumentParser(prog=f"spritz {name}")
    import_module(SUBCOMMANDS[name][0]).add_arguments(parser)
    words: list[str] = []
    parsers = [parser]
    for current in parsers:
        for argument in current._actions:
            if isinstance(argument, argparse._SubParsersAction):
                if action in argument.choices:
                    parsers.append(argument.choices[action])
                else:
                    words += argument.choices
            elif argument.help != argparse.SUPPRESS:
                words += [word for word in argument.option_strings if word.startswith("--")]
                words += [str(word) for word in argument.choices or () if not argument.option_strings]
                if not argument.option_strings and (name in _BY_NAME or str(argument.metavar).startswith("RUN")):
                    words += names(of_others=name in _READING)
    return list(dict.fromkeys(words))


def run(arguments: Namespace, context: Context) -> int:
    """Print the completion script, or the words for one subcommand. Always 0."""
    if arguments.shell == "words":
        context.out("".join(f"{word}\n" for word in words_of(*[*arguments.words, ""][:2])))
        return 0
    if arguments.shell == "zsh":
        context.out("autoload -U +X bashcompinit && bashcompinit\n")
    for name in COMMANDS:
        if find_spec(f"spritz.cli.{name}") is None:
            continue  # not built yet
        rows: tuple[Row, ...] = import_module(f"spritz.cli.{name}").OPTIONS
        options = " ".join(
            f"--{row.name}{'=' if row.argument == REQUIRED else ''}" for row in rows if row.name and not row.refused
        )
        words = _WORDS.get(name, 'COMPREPLY=($(compgen -f -- "$word"))').format(words=" ".join(scontrol_words()))
        context.out(_BASH.format(name=name, options=options, words=words, ids=_ids_after(name)))

    words = _SUBCOMMANDS.format(names=" ".join(SUBCOMMANDS), ask=_ASK)
    context.out(_BASH.format(name="spritz", options=_ASK, words=words, ids=_ids_after("spritz")))
    return 0


def _ids_after(name: str) -> str:
    return "|".join(filter(None, (_JOB_OPTIONS, _JOB_WORDS.get(name, ""))))


def scontrol_words() -> list[str]:
    """Keywords and entities of scontrol that Spritz implements."""
    words = [verb.name for verb in VERBS if not verb.refused]
    words += [name.removesuffix("s") for name, entity in ENTITIES.items() if not entity.refused]
    return [*dict.fromkeys(words), "batch_script", "JobId=", "NodeName=", "PartitionName="]
