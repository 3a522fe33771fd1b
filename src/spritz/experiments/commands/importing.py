"""Make a run of a file that `spritz export` wrote, to look at it and to run it again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from spritz.experiments import bundles
from spritz.experiments.home import home
from spritz.experiments.interface import Terminal, reporting
from spritz.experiments.job import submission
from spritz.experiments.records.store import Store


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the archive")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    added = bundles.unpack(Store(home()), Path(arguments.file), submission.user())
    terminal.out(f"{added.name}\n")
    again = "" if added.shown else f"`spritz rerun {added.name}` runs it again; "
    terminal.err(f"{again}`spritz show {added.name}` shows it\n")
    return 0
