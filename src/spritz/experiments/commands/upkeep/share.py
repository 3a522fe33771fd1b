"""Let other users see runs, which they name USER/RUN: show, compare, read logs, and run again as theirs.

A run's record, log, measurements and code become readable for a group or for everyone; its script, which has the
values of variables, does not. Files that its program wrote keep their modes. Without names: list what is shared.
"""

from __future__ import annotations

import grp
import os
import stat
from argparse import ArgumentParser, Namespace
from pathlib import Path

from spritz.experiments.access import sharing
from spritz.experiments.access.sharing import Audience
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import RUN_HELP, Terminal, reporting
from spritz.experiments.job import states, submission
from spritz.experiments.records.store import Entry, Query, Store


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help=f"{RUN_HELP}; of a sweep or pipeline: all its runs up to now"
    )
    parser.add_argument("-a", "--all", action="store_true", help="all runs up to now")
    parser.add_argument("--group", metavar="GROUP", help="members of this group may see them")
    parser.add_argument("--everyone", action="store_true", help="all users may see them")
    parser.add_argument("--stop", action="store_true", help="close them again; copies that others made stay theirs")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    base = home()
    store = Store(base)
    if not arguments.runs and not arguments.all:
        if arguments.group or arguments.everyone or arguments.stop:
            raise ExperimentError("which runs? names, or --all", exit_code=2)
        _list(store, terminal)
        return 0
    if arguments.runs and arguments.all:
        raise ExperimentError("either names or --all is expected", exit_code=2)
    if bool(arguments.group) + arguments.everyone + arguments.stop != 1:
        raise ExperimentError(
            "with whom? --group GROUP, --everyone, or --stop",
            hint=f"your groups: {', '.join(sorted(map(_group_name, _groups())))}",
            exit_code=2,
        )
    audience = None if arguments.stop else Audience(_group(arguments.group) if arguments.group else None)
    entries = _entries(store, arguments.runs)
    states.refresh_or_tell(store, [entry for entry in entries if entry.state not in states.ENDED], terminal)
    count = 0
    for entry in entries:
        directory = Path(entry.directory)
        if arguments.all and not (directory / "run.json").exists():
            continue  # a submission that was cut short
        try:
            if audience is None:
                sharing.stop(directory.parents[1], directory)
            elif closed := sharing.share(directory.parents[1], directory, audience):
                terminal.err(f"spritz: {entry.name}: {closed}\n")
        except OSError as error:
            raise ExperimentError(f"{entry.name}: {error}", hint=f"{count} runs before it are changed") from error
        count += 1
    names = entries[0].name if len(entries) == 1 else f"{count} runs"
    if audience is None:
        terminal.out(f"{names} closed\n")
        return 0
    whom = f"group {arguments.group}" if arguments.group else "everyone"
    terminal.out(f"{names} shared with {whom}: `spritz show {submission.user()}/{entries[0].name}`\n")
    if parent := sharing.closed_parent(base, audience):
        terminal.err(
            f"spritz: but {parent} is closed to them: `chmod o+x {parent}` lets them pass, or SPRITZ_HOME names a "
            "directory that they reach\n"
        )
    return 0


def _entries(store: Store, words: list[str]) -> list[Entry]:
    """The runs of these names and groups, or all. Raises ExperimentError if there are none."""
    owner = submission.user()
    every: dict[str, Entry] = {}
    for word in words or [""]:
        named = store.find(Query(owner=owner, group=word)) or ([store.get(word, owner)] if word else [])
        every |= {entry.name: entry for entry in named}
    if not every:
        raise ExperimentError("no runs yet", hint="`spritz run -- python train.py` starts one")
    return list(every.values())


def _groups() -> set[int]:
    return {os.getegid(), *os.getgroups()}


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _group(name: str) -> int:
    """The number of a group of which the user is a member. Raises ExperimentError."""
    try:
        number = int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise ExperimentError(f"--group {name}: no such group", exit_code=2) from None
    if number not in _groups() and os.geteuid() != 0:
        raise ExperimentError(
            f"--group {name}: you are not a member",
            hint=f"your groups: {', '.join(sorted(map(_group_name, _groups())))}",
        )
    return number


def _list(store: Store, terminal: Terminal) -> None:
    directories = {str(store.home / "runs" / name) for name in sharing.shared(store.home)}
    entries = [entry for entry in store.find(Query(owner=submission.user())) if entry.directory in directories]
    for entry in entries:
        status = os.stat(entry.directory)
        everyone = status.st_mode & stat.S_IROTH
        terminal.out(f"{entry.name}  {'everyone' if everyone else f'group {_group_name(status.st_gid)}'}\n")
    if not entries:
        terminal.out("No run is shared: `spritz share RUN --group GROUP` shares one.\n")
