"""Run a command inside a running run: on its node, with its environment, directory and GPUs."""

from __future__ import annotations

import argparse
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interactive import attach
from spritz.experiments.interface import RUN_HELP, Terminal, reporting
from spritz.experiments.job import submission
from spritz.experiments.records.store import Entry, Store


def add_options(parser: ArgumentParser) -> None:
    """Add options that select a rank or node of the run."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--rank", type=int, metavar="N", help="with the environment of this task, on its node")
    where.add_argument("--node", default="", metavar="NODE", help="a node by its name or number (default: the first)")


def add_arguments(parser: ArgumentParser) -> None:
    add_options(parser)
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="RUN -- COMMAND …",
        help=f"{RUN_HELP}; then the command",
    )  # fmt: skip


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """Run a command in a step of the run's job. Returns the command's exit status."""
    name, *words = arguments.words or [""]
    # Parse options between RUN and the command, which argparse leaves with the command.
    parser = ArgumentParser(prog="spritz exec", add_help=False)
    add_options(parser)
    if "--" in words:
        place = words.index("--")
        parser.parse_args(words[:place], arguments)
        words = words[place + 1 :]
    if not name or not words:
        raise ExperimentError("no run or no command given", hint="spritz exec RUN -- nvidia-smi", exit_code=2)
    entry = attach.running(Store(home()), name, submission.user())
    return inside(entry, words, rank=arguments.rank, node=arguments.node)


def inside(entry: Entry, words: list[str], *, rank: int | None = None, node: str = "", terminal: bool = False) -> int:
    """Run a command as a step of the run's job, on our standard input and output; return its exit status."""
    nodes = attach.nodes_of(entry.job_id)
    directory = Path(entry.directory)
    place = attach.node_of(nodes, node=node, rank=rank, tasks_per_node=attach.tasks_per_node(directory))
    options = ("--pty",) if terminal else ()
    command = [
        *attach.step(entry.job_id, place, directory, *options),
        *attach.entering(entry, words, rank),
    ]
    sys.stdout.flush()
    try:
        done = subprocess.run(command, env=attach.environment())
    except FileNotFoundError as error:
        raise ExperimentError("srun: not found", hint="put Slurm's commands on PATH") from error
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def has_terminal() -> bool:
    """Whether standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()
