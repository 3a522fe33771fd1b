"""Write a run into one file that reproduces it elsewhere: code, environment, record, logs and metrics."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from spritz.experiments import bundles
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import RUN_HELP, Terminal, reporting, size
from spritz.experiments.job import states, submission
from spritz.experiments.records.store import Store


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("file", metavar="FILE", nargs="?", default="", help="the archive (default: RUN.tar.gz)")
    parser.add_argument("--files", action="store_true", help="with the files that the run wrote")
    parser.add_argument("--force", action="store_true", help="replace FILE")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    store = Store(home())
    entry = store.get(arguments.run, submission.user())
    states.refresh_or_tell(store, [entry], terminal)
    entry = store.get(entry.name, entry.owner)
    target = Path(arguments.file or f"{entry.name}.tar.gz")
    if target.is_dir():
        raise ExperimentError(f"{target} is a directory", hint=f"name the file: {target / entry.name}.tar.gz")
    if target.exists() and not arguments.force:
        raise ExperimentError(f"{target} exists", hint="--force replaces it")
    count = bundles.pack(store, entry, target, with_files=arguments.files)
    terminal.out(f"{target}\n")
    terminal.err(f"Wrote {size(count)}; `spritz import {target.name}` makes a run of it elsewhere\n")
    return 0
