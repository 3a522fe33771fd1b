"""Repeat a run with the same code, command and options, or with some of them changed."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from spritz.experiments import calling, secrets
from spritz.experiments.access import others
from spritz.experiments.code import datasets, restoring, snapshot
from spritz.experiments.commands import diff
from spritz.experiments.commands import run as run_command
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import ANY_RUN_HELP, Terminal, reporting, tell_unfrozen
from spritz.experiments.job import settings, submission
from spritz.experiments.records import record
from spritz.experiments.records.store import Store

#: Differences of the environment, and files, that are named.
_SHOWN = 5


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=ANY_RUN_HELP)
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="NAME=VALUE",
                        help="change --NAME VALUE or NAME=VALUE of the command, or add it in its form")  # fmt: skip
    parser.add_argument("--new-code", action="store_true", help="use the code that is in this directory now")
    parser.add_argument(
        "--environment",
        choices=("current", "recorded"),
        default="current",
        help="packages that are installed now (default), or those that RUN had, made again by uv or pip",
    )
    parser.add_argument("-d", "--detach", action="store_true", help="return when the job is queued")
    run_command.add_options(parser)


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """The command's exit status; with -d 0."""
    store = Store(home())
    theirs, entry = others.find(store, arguments.run, submission.user(), need_code=not arguments.new_code)
    old, differs = others.as_ours(record.read(Path(entry.directory)), entry.owner, submission.user())
    for line in differs:
        terminal.err(f"spritz: {line}\n")
    files = _files(old, Path(entry.directory), arguments.changes)
    if any(secrets.MASK in word for word in old.command):
        raise ExperimentError(
            f"{old.name} had secrets in its arguments, which are not kept",
            hint="`spritz show` has the command; run it again with `spritz run`",
        )
    before: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in old.options.items()
    }
    if unknown := sorted(set(old.options) - set(settings.RunOptions.__dataclass_fields__)):
        raise ExperimentError(
            f"{old.name} has options that this release does not know: {', '.join(unknown)}", hint="upgrade spritz"
        )
    masked = [name for name, value in old.options.get("env", {}).items() if not secrets.is_kept(value)]
    before["env"] = {name: value for name, value in old.options.get("env", {}).items() if name not in masked}
    before["env"] |= {name: os.environ[name] for name in masked if name in os.environ}
    if old.parameters:
        from spritz.experiments.sweeps import space

        # A trial's command may read its parameters from the environment only.
        before["env"] |= {space.variable(name): space.written(value) for name, value in old.parameters.items()}
    if missing := [name for name in masked if name not in os.environ]:
        terminal.err(
            f"spritz: {', '.join(missing)} of {old.name} was secret and is not kept: set it here, or with --env\n"
        )
    code = None if arguments.new_code else submission.snapshot_of(old)
    if arguments.no_snapshot and not arguments.new_code:
        raise ExperimentError(
            f"--no-snapshot: a rerun has the code of {old.name}",
            hint="--new-code --no-snapshot runs in this directory",
            exit_code=2,
        )
    if not old.code and not arguments.new_code:
        raise ExperimentError(
            f"{old.name} ran in place, without a snapshot of its code",
            hint="--new-code runs with the code in this directory",
        )
    options = run_command.options_of(arguments, settings.Settings(run=before))
    is_in_place = arguments.no_snapshot if arguments.new_code else old.runs_in_place
    directory = Path.cwd() if arguments.new_code else Path(old.code["root"]) / old.code["directory"]
    if is_in_place and not directory.is_dir():
        raise ExperimentError(f"{old.name} ran in {directory}, which is gone", hint="--new-code runs in this directory")
    around = record.surroundings(theirs.home, Path(entry.directory), old)
    request = submission.Request(
        command=tuple(changed(old.command, arguments.changes)),
        directory=directory,
        take_snapshot=not is_in_place,
        record_code=is_in_place,
        options=options,
        settings=settings.read(Path.cwd()),
        parent=old.name,
        code=code,
        shown=old.shown,
        files=files,
        python=_interpreter(old, around),
    )
    if arguments.environment == "recorded":
        request = _restored(request, old, Path(entry.directory), around, terminal)
    queued = submission.launch(request, store)
    tell_unfrozen(queued.code, terminal)
    run_command.tell_shared_outputs(queued, store, terminal)
    if is_in_place and not arguments.new_code:
        differing_files = _differing(store.home, old, queued)
        terminal.err(f"spritz: {old.name} ran in place: this runs the directory as it is now; {differing_files}\n")
    if moved := datasets.changed(directory, old.data):
        gone = [path for path in moved if not os.path.exists(directory / os.path.expanduser(path))]
        if still := [path for path in moved if path not in gone]:
            terminal.err(f"spritz: {', '.join(still)} changed since {old.name}\n")
        if gone:
            terminal.err(f"spritz: the data of {old.name} is not there any more: {', '.join(gone)}\n")
    if differing := diff.installed_since(around, queued.surroundings):
        shown = ", ".join(change.line for change in differing[:_SHOWN])
        more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
        terminal.err(f"spritz: the environment is not that of {old.name}: {shown}{more}\n")
    if arguments.detach:
        terminal.out(f"{queued.name}\n")
        terminal.err(f"Submitted batch job {queued.job_id}; `spritz logs -f {queued.name}` shows its output\n")
        return 0
    return run_command.follow(queued, store, terminal)


def _interpreter(old: record.Run, around: dict[str, Any]) -> str:
    """The interpreter that ran, if another was expected from the command's words, as with `setup:` lines that activate
    an environment; "" if the words show it.
    """
    expected, ran = old.surroundings.get("python", {}), around.get("python", {})
    executable = str(ran.get("executable", ""))
    if not ran or not expected or expected.get("executable") == executable or not os.path.exists(executable):
        return ""
    prefixes = [os.path.realpath(python.get("prefix", "")) for python in (expected, ran)]
    return "" if prefixes[0] == prefixes[1] else executable


def _restored(
    request: submission.Request, old: record.Run, directory: Path, around: dict[str, Any], terminal: Terminal
) -> submission.Request:
    """The request with the environment of the old run, which is made if it is not there. Raises ExperimentError."""
    restoring.need_command(old.name, request.command, request.options.container_image)
    facts = around.get("python", {})
    wanted = restoring.recipe(old.name, facts)
    earlier = restoring.of_run(directory)
    prefixes = (os.path.realpath(facts["prefix"]), *(earlier.prefixes if earlier else ()))
    given = {**request.environment, **request.options.env}

    def tell(line: str) -> None:
        terminal.err(f"spritz: {line}\n")

    venv = restoring.make(old.name, wanted, home(), request.directory, given, tell)
    restored = restoring.Restored(old.name, venv, tuple(dict.fromkeys(prefixes)))
    variables = restored.variables(request.command, request.environment)
    restored.need_use(request.command, request.directory, {**given, **variables})
    request = replace(request, python=restored.python)
    # The files of today do not determine what is installed there; and the shell's variables are still the user's.
    lock_files = old.surroundings.get("lock_files", {})
    surroundings = {**submission.collected(home(), request), "lock_files": lock_files}
    return replace(
        request, environment={**request.environment, **variables}, restored=restored, surroundings=surroundings
    )


def _differing(base: Path, old: record.Run, new: record.Run) -> str:
    """Which files differ between two runs in place, in words."""
    trees = old.code["tree"], new.code["tree"]
    if not all(trees):
        return f"what has changed is not known, as the code of {(old if not trees[0] else new).name} is not recorded"
    names = snapshot.diff(base / "snapshots.git", *trees, "--name-only").splitlines()
    if not names:
        return "no files differ"
    shown = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
    return f"{len(names)} file{' differs' if len(names) == 1 else 's differ'}: {shown}"


def _files(old: record.Run, directory: Path, changes: list[str]) -> dict[str, str | bytes]:
    """The files that Spritz's own programs need in the new run's directory. Raises ExperimentError for runs that cannot
    be repeated this way.
    """
    if (directory / "session.json").exists():
        raise ExperimentError(f"{old.name} is a dev session", hint="`spritz dev` starts another")
    if old.shown and old.group and (directory.parent.parent / "pipelines" / old.group).is_dir():
        raise ExperimentError(
            f"{old.name} is a step of the pipeline {old.group}",
            hint=f"`spritz pipeline retry {old.group}` runs it again",
        )
    call = directory / calling.CALL
    if not call.exists():
        if old.shown:
            raise ExperimentError(
                f"{old.name} was a step of a pipeline or a call of a Python function, whose values are not here",
                hint="run the pipeline or program itself",
            )
        return {}
    if changes:
        raise ExperimentError(f"--set: {old.name} runs a Python function, whose arguments are not words of a command")
    return {calling.CALL: call.read_bytes()}


def changed(command: list[str], changes: list[str]) -> list[str]:
    """The command with changed settings (NAME=VALUE). Raises ExperimentError for a change without a name."""
    words = list(command)
    for change in changes:
        name, equals, value = change.partition("=")
        name = name.lstrip("-")
        if not equals or not name:
            raise ExperimentError(f"--set {change}: NAME=VALUE is expected", exit_code=2)
        forms = {f"--{name}", f"-{name}", f"--{name.replace('_', '-')}"}
        for place, word in enumerate(words):
            key, has_value, _ = word.partition("=")
            if has_value and (key in forms or name in (key, key.lstrip("+"))):
                words[place] = f"{key}={value}"
                break
            if word in forms and place + 1 < len(words) and not words[place + 1].startswith("--"):
                words[place + 1] = value
                break
        else:
            words.append(f"{name}={value}" if _has_plain_settings(command) else f"--{name}={value}")
    return words


def _has_plain_settings(command: list[str]) -> bool:
    """Whether a program like Hydra's gets its settings as NAME=VALUE: there is one, and no option after the program."""
    plain = [word for word in command[1:] if re.match(r"[+~]*[\w.@/]+=", word)]
    return bool(plain) and not any(word.startswith("--") for word in command[1:])
