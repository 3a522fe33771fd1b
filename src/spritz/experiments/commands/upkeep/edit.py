"""Change tags, note and name of runs, at any time after their submission.

Tags and notes are searched by `spritz runs`. A run gets another name when it has ended; reruns of it follow, and its
directory stays where it is.
"""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

from spritz.experiments import calling
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import RUN_HELP, Terminal, reporting
from spritz.experiments.job import states, submission
from spritz.experiments.records import record
from spritz.experiments.records.store import Entry, Query, Store

_NAME = re.compile(r"\w[\w.-]*")
#: Job numbers, which name runs too.
_NUMBER = re.compile(r"\d+(?:_\d+)?")
_NAME_LENGTH_MAX = 200


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help=f"{RUN_HELP}; of a sweep or pipeline: all its runs up to now"
    )
    parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="add a tag; repeatable")
    parser.add_argument("--untag", action="append", default=[], metavar="TAG", help="remove a tag; repeatable")
    parser.add_argument("--note", metavar="TEXT", help="set the note (empty: none)")
    parser.add_argument("--rename", metavar="NAME", help="give the run, which has ended, another name")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    changes = arguments.tag or arguments.untag or arguments.note is not None
    if not changes and arguments.rename is None:
        raise ExperimentError("nothing to change", hint="--tag, --untag, --note or --rename", exit_code=2)
    if "" in (*arguments.tag, *arguments.untag):
        raise ExperimentError("--tag: a tag is not empty", exit_code=2)
    if both := sorted({*arguments.tag} & {*arguments.untag}):
        raise ExperimentError(f"--tag {both[0]} and --untag {both[0]}: which?", exit_code=2)
    store = Store(home())
    owner = submission.user()
    entries = list({entry.name: entry for word in arguments.runs for entry in _runs(store, word, owner)}.values())
    if arguments.rename is not None:
        if len(entries) != 1:
            raise ExperimentError(f"--rename: one run gets the name, not {len(entries)}", exit_code=2)
        states.refresh(store, entries)
        _check_rename(store, store.get(entries[0].name, owner), arguments.rename)
    if changes:
        _edit(store, entries, arguments)
    if arguments.rename is not None:
        _rename(store, entries[0], arguments.rename)
        terminal.out(f"{entries[0].name} is {arguments.rename} now\n")
    for name in [entry.name for entry in entries] if changes and arguments.rename is None else []:
        entry = store.get(name, owner)
        terminal.out("  ".join(filter(None, [name, ", ".join(entry.tags), entry.note])) + "\n")
    return 0


def _runs(store: Store, word: str, owner: str) -> list[Entry]:
    """The run of that name, or the runs of that group. Raises ExperimentError."""
    group = store.find(Query(owner=owner, group=word)) if word else []
    return group if group and all(entry.name != word for entry in group) else [store.get(word, owner)]


def _edit(store: Store, entries: list[Entry], arguments: Namespace) -> None:
    """Change tags and notes of all of them, or of none. Raises ExperimentError."""
    before: list[tuple[Path, record.Run]] = []
    try:
        with store.editing([entry.name for entry in entries], entries[0].owner) as change:
            for entry in entries:
                directory = Path(entry.directory)
                old = record.read(directory)
                tags = [tag for tag in dict.fromkeys([*old.tags, *arguments.tag]) if tag not in arguments.untag]
                values: dict[str, Any] = {"tags": tags}
                if arguments.note is not None:
                    values["note"] = arguments.note
                before.append((directory, old))
                record.edit(directory, **values)
                change(entry.name, values | {"tags": json.dumps(tags)})
    except (OSError, ExperimentError) as error:
        for directory, old in before:
            with suppress(OSError):  # what cannot be written now may not have been changed either
                record.edit(directory, tags=old.tags, note=old.note)
        if isinstance(error, ExperimentError):
            raise
        raise ExperimentError(f"nothing is changed: {error}") from error


def _check_rename(store: Store, entry: Entry, name: str) -> None:
    """Raises ExperimentError if the run cannot have that name."""
    directory = Path(entry.directory)
    if not _NAME.fullmatch(name) or len(name) > _NAME_LENGTH_MAX or _NUMBER.fullmatch(name):
        raise ExperimentError(
            f"--rename {name}: letters, digits, dots, hyphens and underscores, and no job's number", exit_code=2
        )
    if entry.run_group:
        raise ExperimentError(
            f"{entry.name} is part of {entry.run_group}, whose runs are known by their names", hint="--note, or --tag"
        )
    if (directory / calling.CALL).exists():
        raise ExperimentError(
            f"{entry.name} calls a Python function, whose program knows the run by its name", hint="--note, or --tag"
        )
    if entry.state not in states.ENDED:
        raise ExperimentError(
            f"{entry.name} is {entry.state}: its job knows it by its name", hint="it can be renamed when it has ended"
        )
    taken = [store.home / place / name for place in ("runs", "sweeps", "pipelines") if name != directory.name]
    if any(path.exists() for path in taken) or (name != entry.name and _is_run(store, name, entry.owner)):
        raise ExperimentError(f"--rename {name}: another run, sweep or pipeline has or had that name")


def _is_run(store: Store, name: str, owner: str) -> bool:
    return any(entry.name == name for entry in store.find(Query(owner=owner, text=name)))


def _rename(store: Store, entry: Entry, name: str) -> None:
    """Rename the run in the index, in its record and in those of its reruns. Raises ExperimentError."""
    edits = [(Path(entry.directory), "name", entry.name, name)]
    edits += [
        (Path(child.directory), "parent", entry.name, name)
        for child in store.find(Query(owner=entry.owner))
        if child.parent == entry.name
    ]
    done = []

    def write() -> None:
        for edit in edits:
            done.append(edit)
            record.edit(edit[0], **{edit[1]: edit[3]})

    try:
        store.rename(entry.name, name, entry.owner, write)
    except (OSError, ExperimentError) as error:
        for directory, key, old, _ in done:
            with suppress(OSError):
                record.edit(directory, **{key: old})
        if isinstance(error, ExperimentError):
            raise
        raise ExperimentError(f"{entry.name} keeps its name: {error}") from error
