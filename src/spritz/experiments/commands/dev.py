"""Work on a compute node: a shell, JupyterLab, or VS Code over ssh, in a job that ends when it is idle.

spritz dev --gpus 1                a shell; the session ends with it
spritz dev --gpus 1 --jupyter      JupyterLab: prints its address, forwards its port to this machine
spritz dev --gpus 1 --vscode       a host for VS Code's Remote-SSH, and for ssh and rsync
spritz dev list
spritz dev open NAME               a shell or JupyterLab of a running session
spritz dev forward NAME PORT       forward a port of its node to this machine
spritz dev extend NAME 2h          more time; also restarts the idle time
spritz dev stop NAME
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, replace
from pathlib import Path

from spritz.experiments.commands import exec as exec_command
from spritz.experiments.commands import run as run_command
from spritz.experiments.commands.runs import table
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interactive import attach, sessions
from spritz.experiments.interface import Terminal, reporting, tell_unfrozen
from spritz.experiments.job import containers, resuming, settings, states, submission
from spritz.experiments.records.store import Entry, Store
from spritz.notation import duration
from spritz.notation.names import nearest

#: Options about starting and restarting a program, which sessions do not have.
_OF_RUNS = ("template", "tasks_per_node", *resuming.OPTIONS)
#: action -> its arguments
_ACTIONS = {"list": "", "open": " NAME", "forward": " NAME PORT", "extend": " NAME TIME", "stop": " NAME"}
_USAGE = " | ".join(f"{action}{words}" for action, words in _ACTIONS.items())


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar=_USAGE)
    kind = parser.add_mutually_exclusive_group()
    for name, text in (
        ("shell", "a shell (the default)"),
        ("jupyter", "JupyterLab, with its port forwarded to this machine"),
        ("vscode", "an entry for VS Code's Remote-SSH in ~/.ssh"),
    ):
        kind.add_argument(f"--{name}", dest="kind", action="store_const", const=name, help=text)
    parser.add_argument("--idle", default="30m", metavar="TIME", help="end after this time without activity (0: never)")
    parser.add_argument("--port", type=int, default=0, help="local port for JupyterLab or a forwarded port")
    parser.add_argument("-d", "--detach", action="store_true", help="return when the job is queued")
    parser.add_argument("--json", action="store_true", help="with list: one JSON object")
    parser.add_argument("--proxy", metavar="NAME", help=argparse.SUPPRESS)
    run_command.add_options(parser, hidden=(*_OF_RUNS, "container_image", "container_mounts", "no_snapshot"))


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0, or the shell's exit status."""
    store = Store(home())
    if arguments.proxy:
        return subprocess.run(sessions.serving(_session(store, arguments.proxy)), env=attach.environment()).returncode
    if not arguments.words:
        return _start(arguments, store, terminal)
    action, *words = arguments.words
    if action not in _ACTIONS or len(words) != len(_ACTIONS[action].split()):
        near = nearest(action, _ACTIONS)
        raise ExperimentError(
            f"spritz dev {' '.join(arguments.words)}: "
            + (f"{action}{_ACTIONS[action]} is expected" if action in _ACTIONS else "no such action")
            + (f" (did you mean {near}?)" if near and action not in _ACTIONS else ""),
            hint=f"spritz dev {_USAGE}",
            exit_code=2,
        )
    if action == "list":
        entries = [entry for entry in store.open_runs(submission.user()) if sessions.is_session(entry)]
        states.refresh(store, entries)
        entries = [entry for entry in store.open_runs(submission.user()) if sessions.is_session(entry)]
        if arguments.json:
            terminal.out(json.dumps({"sessions": [asdict(entry) for entry in entries]}, indent=1) + "\n")
            return 0
        terminal.out(table(entries) if entries else "No dev sessions: `spritz dev --gpus 1` starts one.\n")
        return 0
    entry = store.get(words[0], submission.user())
    if action == "stop":
        if not sessions.is_session(entry):
            raise ExperimentError(f"{entry.name} is no dev session", hint=f"spritz cancel {entry.name}")
        ends = sessions.stop(entry)
        _tell(terminal, sessions.remove_host(entry.name))
        terminal.out(f"{entry.name} {'ends' if ends else 'has ended already'}\n")
        return 0
    entry = _session(store, words[0])
    if action == "extend":
        terminal.out(sessions.extend(entry, -(-_seconds(words[1]) // 60)) + "\n")
        return 0
    if action == "forward":
        if not words[1].isdecimal():
            raise ExperimentError(f"{words[1]}: a port number is expected", exit_code=2)
        return _forward(entry, int(words[1]), arguments.port, terminal, "")
    return _open(entry, arguments, terminal)


def _session(store: Store, name: str) -> Entry:
    entry = attach.running(store, name, submission.user())
    if not sessions.is_session(entry):
        raise ExperimentError(f"{entry.name} is no dev session", hint=f"spritz ssh {entry.name}")
    return entry


def _seconds(text: str) -> int:
    try:
        seconds = duration.parse_span(text)
    except duration.DurationError:
        seconds = duration.INFINITE
    if seconds == duration.INFINITE:
        raise ExperimentError(f"{text}: a time as 30m or 2h is expected", exit_code=2)
    return seconds


def _start(arguments: Namespace, store: Store, terminal: Terminal) -> int:
    directory = Path.cwd()
    project_settings = settings.read(directory)
    arguments.name = arguments.name or "dev"
    arguments.env = [*arguments.env, "SLURM_OVERLAP=1"]
    unsupported = [f"--{name.replace('_', '-')}" for name in _OF_RUNS if getattr(arguments, name)]
    if unsupported:
        raise ExperimentError(f"{unsupported[0]}: a dev session runs no program that this could shape", exit_code=2)
    # In spritz.yaml these options are for the project's runs.
    session_options = {name: value for name, value in project_settings.run.items() if name not in _OF_RUNS}
    project_settings = replace(project_settings, run=session_options)
    options_given = run_command.options_of(arguments, project_settings)
    containers.need_none(options_given, "dev sessions")
    kind = arguments.kind or "shell"
    request = submission.Request(
        command=sessions.COMMAND,
        shown=f"spritz dev --{kind}",
        directory=directory,
        options=options_given,
        settings=project_settings,
        take_snapshot=False,
        files=sessions.files(kind, _seconds(arguments.idle)),
    )
    queued = submission.launch(request, store)
    tell_unfrozen(queued.code, terminal)
    entry = store.get(queued.name, queued.user)
    terminal.err(f"spritz: session {entry.name}, job {entry.job_id}\n")
    if kind == "vscode":
        sessions.write_ssh(entry, Path(entry.directory), entry.job_id)
        lines = sessions.host_entry(entry, proxy=sessions.proxy_command(entry.name))
        _tell(terminal, sessions.add_host(entry.name, lines))
    if arguments.detach:
        terminal.out(f"{entry.name}\n")
        return 0
    try:
        sessions.wait_ready(entry, terminal.err)
    except KeyboardInterrupt:
        sessions.stop(entry)
        raise
    try:
        return _open(entry, arguments, terminal)
    finally:
        if kind == "shell":
            sessions.stop(entry)


def _open(entry: Entry, arguments: Namespace, terminal: Terminal) -> int:
    directory = Path(entry.directory)
    kind = sessions.kind_of(directory)
    if kind == "jupyter":
        port, path, token = sessions.jupyter_url(directory)
        return _forward(entry, port, arguments.port, terminal, f"{path}lab?token={token}")
    if kind == "vscode":
        name = sessions.host(entry.name)
        terminal.out(
            f"{name}\n"
            f"In VS Code: Remote-SSH: Connect to Host… {name}; or `ssh {name}` here.\n"
            f"From another machine: copy {directory}/ssh/key there, and put into its ~/.ssh/config this entry with\n"
            f"`ProxyCommand ssh LOGIN-HOST spritz dev --proxy {entry.name}`.\n"
            f"`spritz dev stop {entry.name}` ends the session and removes the entry.\n"
        )
        return 0
    person = exec_command.has_terminal()
    return exec_command.inside(entry, attach.shell() if person else ["bash"], terminal=person)


def _forward(entry: Entry, port: int, local: int, terminal: Terminal, path: str) -> int:
    def ready(number: int) -> None:
        terminal.out(f"http://127.0.0.1:{number}{path or '/'}\n")
        terminal.err(
            f"Ctrl-C closes this port; `spritz dev stop {entry.name}` ends the session\n"
            + (f"`spritz dev open {entry.name}` opens it again\n" if path else "")
        )
        sys.stdout.flush()

    try:
        asyncio.run(sessions.forward(entry, port, local, ready))
    except KeyboardInterrupt:
        return 0
    terminal.err(f"spritz: {entry.name} has ended, or its node cannot be reached\n")
    return 1


def _tell(terminal: Terminal, lines: list[str]) -> None:
    for line in lines:
        terminal.err(f"spritz: {line}\n")
