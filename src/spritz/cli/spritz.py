"""`spritz`: a cluster of one's own with one command, and what Slurm has no command for.

Each subcommand lives in a module of its own with `add_arguments(parser)` and `run(arguments, context) -> int`; only
the one that is called is imported.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import NoReturn

from spritz import __version__
from spritz.cli.call.context import Context
from spritz.notation.names import nearest

#: name -> (module, one line of help)
SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "up": ("spritz.cli.local.up", "start a cluster on this machine (or the one in --dir)"),
    "join": ("spritz.cli.local.join", "join this machine to another machine's cluster, as a node or login host"),
    "token": ("spritz.cli.local.token", "create, list and revoke tokens that let machines join"),
    "down": ("spritz.cli.local.down", "stop the cluster; running jobs end, queued jobs stay for the next `spritz up`"),
    "status": ("spritz.cli.local.status", "show daemons, nodes, CPUs, GPUs and jobs at a glance"),
    "dashboard": (
        "spritz.cli.local.dashboard",
        "start the dashboard and print a link to it",
    ),
    # By name alone: these have packages of their own (docs/decisions/0191).
    "top": ("spritz.tui.command", "live view in a terminal: queue, output, nodes, GPUs, history, actions"),
    "doctor": ("spritz.cli.local.doctor.command", "find problems and suggest remedies"),
    "why": ("spritz.cli.local.questions.why", "explain why a job waits and when it starts (scontrol explain)"),
    "eff": (
        "spritz.cli.local.questions.eff",
        "compare what jobs used with what they requested, and suggest better requests",
    ),
    "history": ("spritz.cli.local.questions.history", "show what happened to a job since its submission"),
    "config": ("spritz.cli.local.config", "check FILE: list all mistakes in a slurm.conf, with file, line and hint"),
    # By name alone: the simulator stands above the commands (docs/decisions/0020).
    "simulate": ("spritz.sim.command", "replay a trace of jobs under a policy or a slurm.conf, on virtual time"),
    "usage": ("spritz.cli.local.questions.usage", "compare usage in the controller with the accounting records"),
    "shares": (
        "spritz.cli.local.questions.shares",
        "show guarantees of accounts, what they use, borrow and lend, and their order",
    ),
    "gpus": ("spritz.cli.local.questions.gpus", "show free GPUs by type and node, and when more become free"),
    # These speak only Slurm's public commands, and serve any cluster (docs/decisions/0170).
    "run": ("spritz.experiments.commands.run", "run a command as a job, from a snapshot of the code as it is now"),
    "runs": ("spritz.experiments.commands.runs", "list and search runs"),
    "show": ("spritz.experiments.commands.show", "show a run: code, environment, state, result"),
    "diff": ("spritz.experiments.commands.diff", "compare two runs: command, code, environment, result"),
    "compare": ("spritz.experiments.commands.compare", "compare several runs: what differs, metrics, curves"),
    "rerun": ("spritz.experiments.commands.rerun", "repeat a run, exactly or with changes"),
    "branch": ("spritz.experiments.commands.branch", "make a git branch with the code of a run"),
    "export": ("spritz.experiments.commands.export", "write a run into a file that reproduces it elsewhere"),
    "import": ("spritz.experiments.commands.importing", "make a run of a file that `spritz export` wrote"),
    "logs": ("spritz.experiments.commands.logs", "show a run's output: all ranks, live or after the end"),
    "files": ("spritz.experiments.commands.files", "list and fetch the files that a run wrote"),
    "cancel": ("spritz.experiments.commands.cancel", "cancel runs, sweeps and pipelines by name"),
    "edit": ("spritz.experiments.commands.upkeep.edit", "change tags, note and name of runs"),
    "share": ("spritz.experiments.commands.upkeep.share", "let other users see runs, as USER/RUN"),
    "remove": ("spritz.experiments.commands.remove", "remove old runs: records, logs, code and checkpoints"),
    "space": ("spritz.experiments.commands.upkeep.space", "show the disk space and files of your runs"),
    "exec": ("spritz.experiments.commands.exec", "run a command in a running run, with its environment and GPUs"),
    "ssh": ("spritz.experiments.commands.ssh", "open a shell on a run's node"),
    "dev": ("spritz.experiments.commands.dev", "work on a compute node: shell, JupyterLab or VS Code over ssh"),
    "quota": ("spritz.experiments.commands.quota", "show your limits and how much of them is used"),
    "track": ("spritz.experiments.commands.track", "start, stop and find the MLflow server that tracks runs"),
    "checkpoints": ("spritz.experiments.commands.checkpoints", "list and prune a run's checkpoints"),
    "pause": ("spritz.experiments.commands.pause", "save a run's state and release its nodes"),
    "resume": ("spritz.experiments.commands.resume", "continue a paused run"),
    "sweep": ("spritz.experiments.commands.sweep", "run a command with many parameters: grid, random, TPE"),
    "sweeps": ("spritz.experiments.commands.sweeps", "list sweeps and their best trials"),
    "pipeline": ("spritz.experiments.commands.pipeline", "run steps that use each other's results, as jobs"),
    # By name alone: it stands above the commands, which it runs.
    "mcp": ("spritz.agents.command", "serve this cluster to AI agents (Model Context Protocol)"),
    "adopt": ("spritz.cli.local.adopt", "for pam_exec: admit only ssh users with a job on this node"),
    "env": ("spritz.cli.local.env", "print shell commands that select the cluster in --dir"),
    "completion": ("spritz.cli.local.completion", "print tab completion for bash or zsh"),
}


def main(argv: list[str], context: Context) -> int:
    """Dispatch to a subcommand; 0, or 2 for a wrong command line."""
    if argv and argv[0] in ("--version", "-V"):
        context.out(f"spritz {__version__}\n")
        return 0
    if not argv or argv[0] in ("--help", "-h", "help"):
        context.out(_usage())
        return 0
    name = argv[0]
    if name not in SUBCOMMANDS:
        near = nearest(name, SUBCOMMANDS)
        context.error(f"no such command: {name}" + (f" (did you mean {near}?)" if near else ""))
        context.err("Try 'spritz --help'.\n")
        return 2

    class Help(argparse.HelpFormatter):
        """The layout of Python 3.13 on all Pythons: `-n, --nodes N`, the value once."""

        def _format_action_invocation(self, action: argparse.Action) -> str:
            if not action.option_strings or action.nargs == 0:
                return super()._format_action_invocation(action)
            value = self._format_args(action, self._get_default_metavar_for_optional(action))
            return f"{', '.join(action.option_strings)} {value}"

    class Parser(argparse.ArgumentParser):
        """Prints errors alone, without the usage, which is long, and with the option that was probably meant."""

        def error(self, message: str) -> NoReturn:
            context.error(_with_suggestion(message, self))
            if passed_on := _for_sbatch(message, self):
                context.err(f"{passed_on} passes it to sbatch.\n")
            context.err(f"Try '{self.prog} --help'.\n")
            raise SystemExit(2)

    module = import_module(SUBCOMMANDS[name][0])
    description = (module.__doc__ or "").split("\n\n")[0]
    parser = Parser(prog=f"spritz {name}", description=description, formatter_class=Help)
    module.add_arguments(parser)
    try:
        arguments = _parse(parser, argv[1:])
    except SystemExit as stop:  # argparse has printed help or the error
        return int(stop.code or 0)
    status: int = module.run(arguments, context)
    return status


def _parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """The arguments. Words that may be missing can also come after options: `export RUN --files FILE`."""
    counts = [action.nargs for action in parser._actions if not action.option_strings]
    # What follows `--` is a command's own, and some parsers take all that follows a word.
    if "--" not in words and set(counts) <= {None, "?", "*", "+"} and {"?", "*", "+"} & set(counts):
        return parser.parse_intermixed_args(words)
    return parser.parse_args(words)


def _with_suggestion(message: str, parser: argparse.ArgumentParser) -> str:
    """argparse's message; of unknown words the first, which the others may belong to."""
    begin, _, words = message.partition(": ")
    if begin != "unrecognized arguments":
        return message
    word = (words.split() or ["''"])[0]
    if not word.startswith("-"):
        return f"unexpected argument: {word}"
    option = word.partition("=")[0]
    near = nearest(option, _options(parser)) if option.startswith("--") else None
    return f"no such option: {option}" + (f" (did you mean {near}?)" if near else "")


def _for_sbatch(message: str, parser: argparse.ArgumentParser) -> str:
    """How a subcommand that submits jobs takes the option of sbatch that it does not have; "" if that is not it."""
    begin, _, words = message.partition(": ")
    if begin != "unrecognized arguments" or "--slurm" not in _options(parser):
        return ""
    from spritz.cli.call.options import REQUIRED
    from spritz.cli.jobs.submit.rows import rows_of

    word, equals, value = (words.split() or [""])[0].partition("=")
    for row in rows_of("b"):
        if word in (f"--{row.name}", f"-{row.short}"):
            if not equals and row.argument == REQUIRED:
                value = row.metavar
            return f"--slurm=--{row.name}" + (f"={value}" if value else "")
    return ""


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Long options of the parser and its subcommands."""
    for action in parser._actions:
        yield from (option for option in action.option_strings if option.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                yield from _options(choice)


def _usage() -> str:
    lines = [
        "usage: spritz COMMAND [options]",
        "",
        "A Slurm-compatible cluster that starts by itself.",
        "",
        "commands:",
    ]
    lines += [f"  {name:<12} {text}" for name, (_, text) in SUBCOMMANDS.items()]
    lines += [
        "",
        "Slurm's own commands (sbatch, srun, squeue, sinfo, scancel, scontrol …) work as they do on any cluster.",
        "`spritz COMMAND --help` shows its options; `spritz --version` prints the version.",
    ]
    return "\n".join(lines) + "\n"


def entry() -> None:
    from spritz.cli.call.entry import run

    run("spritz", main)
