"""Show a run's output: all ranks, live or after the end, starting with the failure."""

from __future__ import annotations

import json
import os
import re
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from spritz.experiments.access import others
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import ANY_RUN_HELP, Terminal, reporting
from spritz.experiments.job import states, submission
from spritz.experiments.records.store import Store
from spritz.experiments.results import failures, logs


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=ANY_RUN_HELP)
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the run ends")
    parser.add_argument("--rank", type=int, help="only this rank's output")
    parser.add_argument("--grep", metavar="PATTERN", help="lines that match this regular expression")
    parser.add_argument("-n", "--tail", type=int, metavar="N", help="the last N lines")
    parser.add_argument("--json", action="store_true", help="one JSON object a line: restart, rank, text")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0; with --grep 1 if nothing matches."""
    store, entry = others.find(Store(home()), arguments.run, submission.user())
    states.refresh(store, [entry])
    entry = store.get(entry.name, entry.owner)
    directory = Path(entry.directory)
    if store.foreign and not os.access(directory / "log", os.R_OK | os.X_OK):
        raise ExperimentError(
            f"the log of {arguments.run} is not shared yet: it may have secrets until its command ends",
            hint=f"{entry.owner} can share the run again then",
        )
    try:
        pattern = re.compile(arguments.grep) if arguments.grep else None
    except re.error as error:
        raise ExperimentError(f"--grep {arguments.grep}: {error}", exit_code=2) from error
    ranks = logs.ranks(directory)
    if arguments.rank is not None and entry.state in states.ENDED and ranks and arguments.rank not in ranks:
        raise ExperimentError(f"there is no rank {arguments.rank}: the run has {len(ranks)}")
    if reason := failures.explain(directory, entry.state, entry.exit_code):
        terminal.err(f"{entry.name} {entry.state}: {reason}\n")
    if later := store.later_attempt(entry):
        terminal.err(f"spritz: {later} is the latest attempt of this step\n")
    tail = logs.Tail(directory, arguments.rank)
    show = logs.printer(
        terminal.out,
        labels=lambda: arguments.rank is None and len(logs.ranks(directory)) > 1,
    )
    if arguments.json:

        def show(line: logs.Line) -> None:
            terminal.out(json.dumps({"restart": line.restart, "rank": line.rank, "text": line.text}) + "\n")

    lines = [line for line in tail.read(last=not arguments.follow) if pattern is None or pattern.search(line.text)]
    count = len(lines)
    if entry.state in ("PENDING", "CONFIGURING", "PAUSED") and not logs.ranks(directory):
        terminal.err(f"spritz: {entry.name} is {entry.state}: no output yet; `spritz show {entry.name}` says more\n")
    for line in lines[-arguments.tail :] if arguments.tail else lines:
        show(line)
    while arguments.follow and entry.state not in states.ENDED:
        asked_at = time.monotonic()
        while time.monotonic() - asked_at < 2.0:
            for line in tail.read():
                if pattern is None or pattern.search(line.text):
                    count += 1
                    show(line)
            time.sleep(0.1)
        states.refresh(store, [entry])
        entry = store.get(entry.name, entry.owner)
    for line in tail.read(last=True):
        if pattern is None or pattern.search(line.text):
            count += 1
            show(line)
    return 0 if count or pattern is None else 1
