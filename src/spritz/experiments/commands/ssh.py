"""Open a shell on a run's node: with the run's environment, directory and GPUs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from spritz.experiments.commands import exec as exec_command
from spritz.experiments.home import home
from spritz.experiments.interactive import attach
from spritz.experiments.interface import RUN_HELP, Terminal, reporting
from spritz.experiments.job import submission
from spritz.experiments.records.store import Store


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    exec_command.add_options(parser)


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """The shell's exit status. Without a terminal, commands are read from standard input."""
    entry = attach.running(Store(home()), arguments.run, submission.user())
    person = exec_command.has_terminal()
    words = attach.shell() if person else ["bash"]
    return exec_command.inside(entry, words, rank=arguments.rank, node=arguments.node, terminal=person)
