"""List sweeps, newest first: states of their trials, and the best trial."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import Counter

from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import Terminal, reporting
from spritz.experiments.records.store import Store
from spritz.experiments.results import codes
from spritz.experiments.sweeps import queue, report
from spritz.experiments.sweeps import sweep as sweeps


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-n", "--limit", type=int, default=20, help="show at most this many (0: all; default: 20)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    base = home()
    store = Store(base)
    known, damaged = [], []
    for name in sweeps.names(base):
        try:
            known.append(sweeps.read(base, name))
        except ExperimentError as error:
            damaged.append(error.message)
    known.sort(key=lambda sweep: sweep.created_at, reverse=True)
    table = [("SWEEP", "METHOD", "TRIALS", "STATES", "BEST", "")]
    described = []
    for sweep in known[: arguments.limit or None]:
        rows = report.rows(sweep, queue.entries_of(sweep, store))
        winner = report.best(rows)
        count = Counter(row.state for row in rows)
        states = ", ".join(f"{number} {state.lower()}" for state, number in sorted(count.items()))
        value = f"{winner.entry.name} {sweep.plan.metric} {winner.trial.value:g}" if winner else "-"
        differences = codes.differences((row.entry for row in rows), "trial")
        table.append((sweep.name, sweep.plan.method, str(sweep.size), states, value, differences))
        described.append({key: item for key, item in report.as_json(sweep, rows).items() if key != "trials"})
    for message in damaged:
        terminal.err(f"{message}\n")
    if arguments.json:
        terminal.out(json.dumps({"sweeps": described}, indent=1) + "\n")
    elif len(table) == 1:
        terminal.out("No sweeps yet: `spritz sweep sweep.yaml` starts one.\n")
    else:
        widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
        for line in table:
            terminal.out("  ".join(map(str.ljust, line, widths)).rstrip() + "\n")
    return 0
