"""Start, stop and find the MLflow server that tracks runs.

`spritz run --track` starts it as well. From its first start until `spritz track stop`, all runs are tracked.
"""

from __future__ import annotations

import json
import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from spritz.experiments import tracking
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import Terminal, reporting
from spritz.experiments.job import states, submission
from spritz.experiments.records.store import Store


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", default="status", choices=("status", "start", "stop", "env"),
        help="status (default): show the server's address; env: print shell commands that select it for MLflow clients",
    )  # fmt: skip
    parser.add_argument(
        "--address", metavar="ADDRESS",
        help="listen on this address (default: 127.0.0.1 if all nodes are this machine, else 0.0.0.0)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="stop the server even if runs log to it")
    parser.add_argument("--json", action="store_true", help="one JSON object")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0; status 1 if the server does not answer."""
    base = home()
    if arguments.action == "stop":
        busy = [] if arguments.force else _logging(base)
        if busy:
            raise ExperimentError(
                f"{', '.join(busy[:5])}{' …' if busy[5:] else ''} log{'s' if len(busy) == 1 else ''} to it",
                hint="--force stops it: what they log until `spritz track start` may fail",
            )
        stopped = tracking.stop(base)
        terminal.err("Stopped. Runs are not tracked any more.\n" if stopped else "No tracking server runs.\n")
        return 0
    server = tracking.start(base, arguments.address) if arguments.action == "start" else tracking.known(base)
    if server is None:
        terminal.err("No tracking server: `spritz track start`, or `spritz run --track`, starts one.\n")
        return 1
    alive = tracking.answers(server)
    if arguments.action == "env":
        for name, value in (("MLFLOW_TRACKING_URI", server.url), ("MLFLOW_TRACKING_TOKEN", server.token)):
            terminal.out(f"export {name}={shlex.quote(value)}\n")
    elif arguments.json:
        terminal.out(json.dumps({"url": server.url, "host": server.host, "answers": alive, "log": _log(base)}) + "\n")
    else:
        parts = urlsplit(server.url)
        page = urlunsplit(parts._replace(netloc=f"spritz:{server.token}@{parts.netloc}"))
        terminal.out(f"{page}\n")
        again = "" if alive else "; `spritz track start` starts it again"
        terminal.err(f"{'Runs' if alive else 'Does not answer'} on {server.host}{again}; data and log: {base}/mlflow\n")
        if server.address != "127.0.0.1":
            terminal.err("It listens on all interfaces, and asks for the token in the address above.\n")
    return 0 if alive else 1


def _logging(base: Path) -> list[str]:
    """Running runs that this server tracks."""
    store = Store(base)
    open_runs = store.open_runs(submission.user())
    states.refresh(store, open_runs)
    return [
        entry.name
        for entry in store.open_runs(submission.user())
        if entry.state == "RUNNING" and (Path(entry.directory) / "mlflow.json").exists()
    ]


def _log(base: object) -> str:
    return f"{base}/mlflow/server.log"
