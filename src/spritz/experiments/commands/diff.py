"""Show how two runs differ: command, options, code, environment and results."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spritz.experiments.access import others
from spritz.experiments.code import in_place, interpreters, snapshot
from spritz.experiments.home import home
from spritz.experiments.interface import ANY_RUN_HELP, Terminal, reporting
from spritz.experiments.job import states, submission
from spritz.experiments.records import record
from spritz.experiments.records.store import Store

#: Variables that differ between any two shells, and are not shown.
_PASSING = ("SSH_", "XDG_", "TERM", "SHLVL", "OLDPWD", "_", "WINDOWID", "DBUS_", "TMUX")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("old", metavar="RUN", help=ANY_RUN_HELP)
    parser.add_argument("new", metavar="RUN", help=ANY_RUN_HELP)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--stat", action="store_true", help="list files and line counts instead of the code's changes")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    base = home()
    entries, homes = [], []
    for name in (arguments.old, arguments.new):
        store, entry = others.find(Store(base), name, submission.user())
        states.refresh_or_tell(store, [entry], terminal)
        entries.append(store.get(entry.name, entry.owner))
        homes.append(store.home)
    directories = [Path(entry.directory) for entry in entries]
    old, new = (record.read(directory) for directory in directories)
    parts: list[tuple[str, list[Change]]] = [
        ("Command", _changed({"": old.command_line}, {"": new.command_line})),
        ("Options", _changed(_flat(old.options), _flat(new.options))),
        (
            "Environment",
            _environment(
                record.surroundings(homes[0], directories[0], old), record.surroundings(homes[1], directories[1], new)
            ),
        ),
        ("Sources", _changed(_sources(old), _sources(new))),
        ("Unfrozen", _changed(*(_outside(directory) for directory in directories))),
        ("Data", _changed(*({"": ", ".join(record.data_of(*of))} for of in zip(directories, (old, new), strict=True)))),
        ("Result", _changed(_result(entries[0]), _result(entries[1]))),
    ]
    trees = old.code.get("tree", ""), new.code.get("tree", "")
    options = ("--stat",) if arguments.stat else ()
    code = snapshot.diff(base / "snapshots.git", *trees, *options) if all(trees) and trees[0] != trees[1] else ""
    if arguments.json:
        changes = {
            title.lower(): [{"name": change.name, "old": change.old, "new": change.new} for change in difference]
            for title, difference in parts
        }
        same = trees[0] == trees[1] if all(trees) else None
        names = dict(zip(("old", "new"), map(submission.shown_name, entries), strict=True))
        answer = {**names, "changes": changes, "same_code": same, "code": code}
        terminal.out(json.dumps(answer, indent=1) + "\n")
        return 0
    terminal.out(" → ".join(map(submission.shown_name, entries)) + "\n")
    for title, difference in parts:
        if difference:
            terminal.out(f"\n{title}\n" + "".join(f"  {change.line}\n" for change in difference))
    for run, directory, tree in zip((old, new), directories, trees, strict=True):
        if run.code and not tree:
            patch = directory / in_place.PATCH
            more = f"; changes of tracked files are in {patch}" if patch.exists() else ""
            terminal.out(f"\n{run.name} ran in place at {run.code['commit'][:12] or 'no commit'}{more}\n")
    if trees[0] == trees[1]:
        terminal.out("\nThe code is the same.\n" if trees[0] else "")
    elif all(trees):
        terminal.out("\nCode\n" + code)
    return 0


@dataclass(frozen=True)
class Change:
    """Names with the differing values of both runs; "" if a run has no value."""

    name: str
    old: str
    new: str

    @property
    def line(self) -> str:
        """The change as text, such as `lr: 1 → 2`; an absent value is `(none)`."""
        return f"{f'{self.name}: ' if self.name else ''}{self.old or '(none)'} → {self.new or '(none)'}"


def _result(entry: Any) -> dict[str, str]:
    taken = f"{entry.ended_at - entry.started_at:.0f} s" if entry.ended_at and entry.started_at else ""
    return {"state": entry.state, "time": taken, **{name: f"{value:g}" for name, value in entry.metrics.items()}}


def _sources(run: record.Run) -> dict[str, str]:
    """Working trees beside the project -> their trees."""
    return {source["root"]: source["tree"][:12] for source in run.code.get("sources", ())}


def _outside(directory: Path) -> dict[str, str]:
    return {path: digest[:12] for path, digest in interpreters.imported_from_outside(directory).items()}


def _flat(options: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if name != "name"}


def _environment(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    packages = [_packages(side) for side in (old, new)]
    variables = [
        {name: value for name, value in side.get("variables", {}).items() if not name.startswith(_PASSING)}
        for side in (old, new)
    ]
    simple = [
        {key: str(value) for key, value in side.items() if key in ("host", "driver", "container", "modules")}
        | {"python": side.get("python", {}).get("python", ""), "conda": side.get("conda", {}).get("prefix", "")}
        for side in (old, new)
    ]
    return [*_changed(*simple), *_lock_files(old, new), *_changed(*packages), *_changed(*variables)]


def _lock_files(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """Lock files that differ, with the beginnings of their digests; nothing where they were not recorded."""
    if not all("lock_files" in side for side in (old, new)):
        return []
    digests = [{f"lock file {path}": digest[:12] for path, digest in side["lock_files"].items()} for side in (old, new)]
    return _changed(*digests)


def _packages(surroundings: dict[str, Any]) -> dict[str, str]:
    """Package -> version."""
    conda = map(_conda, surroundings.get("conda", {}).get("explicit", []))
    return interpreters.versions(surroundings.get("python", {})) | {f"conda {name}": version for name, version in conda}


def installed_since(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """How lock files, the image, the interpreter and its packages differ; nothing where either is not known."""
    images = [{"container": side.get("container", "")} for side in (old, new)]
    changes = [*_lock_files(old, new), *_changed(*images)]
    pythons = [side.get("python", {}) for side in (old, new)]
    if all("packages" in python for python in pythons):
        versions = [{"python": python.get("python", "")} for python in pythons]
        changes += [*_changed(*versions), *_changed(_packages(old), _packages(new))]
    return changes


def _conda(line: str) -> tuple[str, str]:
    """(name, version-build) from a package's URL …/numpy-2.1.0-py312_0.conda#MD5."""
    name, version, build = [*line.partition("#")[0].rpartition("/")[2].rsplit("-", 2), "", ""][:3]
    return name, f"{version}-{build.partition('.')[0]}"


def _changed(old: dict[str, str], new: dict[str, str]) -> list[Change]:
    every = [Change(name, old.get(name, ""), new.get(name, "")) for name in sorted({*old, *new})]
    return [change for change in every if change.old != change.new]
