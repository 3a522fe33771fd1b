"""List the files that a run wrote, and fetch them."""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from spritz.experiments import tracking
from spritz.experiments.access import others
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import ANY_RUN_HELP, Terminal, reporting, size
from spritz.experiments.job import submission
from spritz.experiments.records import record
from spritz.experiments.records.store import Store
from spritz.experiments.results import written


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=ANY_RUN_HELP)
    parser.add_argument(
        "pattern", nargs="?", default="*", metavar="PATTERN", help="only paths that match, as 'out/*.pt'"
    )
    parser.add_argument("--get", metavar="DIR", help="copy them into this directory")
    parser.add_argument("--force", action="store_true", help="with --get: replace files that are there")
    parser.add_argument("--artifacts", action="store_true", help="store them as artifacts of the run in MLflow")
    parser.add_argument("--limit", type=int, metavar="N", help="list the first N only")
    parser.add_argument("--json", action="store_true", help="one JSON object")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0; 1 if no file matches."""
    if arguments.limit is not None and arguments.limit < 0:
        raise ExperimentError("--limit: a whole number from 0 is expected", exit_code=2)
    base = home()
    _, entry = others.find(Store(base), arguments.run, submission.user())
    directory = Path(entry.directory)
    known = record.read(directory)
    if known.runs_in_place:
        raise ExperimentError(f"{entry.name} ran in place: its files are where its command was called")
    if os.path.isdir(directory / "code") and not os.access(directory / "code", os.R_OK | os.X_OK):
        raise ExperimentError(
            f"{directory}/code is not readable for you", hint=f"{entry.owner} can open it: its files keep their modes"
        )
    changed = [
        file
        for file in written.files(base, directory, known)
        if fnmatch.fnmatchcase(file.path, arguments.pattern)
        or fnmatch.fnmatchcase(os.path.basename(file.path), arguments.pattern)
    ]
    if arguments.get:
        _copy(directory / "code", changed, Path(arguments.get), force=arguments.force)
    run_id = ""
    if arguments.artifacts and changed:
        run_id = tracking.store_artifacts(base, directory, directory / "code", [file.path for file in changed])
    total = sum(file.size for file in changed)
    listed = changed if arguments.limit is None else changed[: arguments.limit]
    if arguments.json:
        rows = [asdict(file) for file in listed]
        answer = {"run": entry.name, "count": len(changed), "size": total, "files": rows}
        terminal.out(json.dumps(answer, indent=1) + "\n")
        return 0
    for file in listed:
        at = datetime.fromtimestamp(file.changed_at).strftime("%m-%d %H:%M")
        terminal.out(f"{size(file.size):>6}  {at}  {file.path}\n")
    if len(listed) < len(changed):
        terminal.err(f"spritz: {len(changed) - len(listed)} more; {len(changed)} files have {size(total)}\n")
    if not changed:
        what = "nothing" if arguments.pattern == "*" else f"no file like {arguments.pattern}"
        if (directory / "code").is_dir():
            terminal.err(f"spritz: {entry.name} wrote {what} into its directory {directory}/code\n")
        else:
            terminal.err(
                f"spritz: {entry.name} has no files here: it has not begun, or came without them (export --files)\n"
            )
        return 1
    if arguments.artifacts:
        terminal.err(f"spritz: {len(changed)} files, {size(total)}, are artifacts of the MLflow run {run_id}\n")
    if arguments.get:
        terminal.err(f"spritz: {len(changed)} files, {size(total)}, are in {arguments.get}\n")
    return 0


def _copy(code: Path, changed: list[written.Written], target: Path, *, force: bool) -> None:
    """Copy the files with their directories; all that can be, unless one is there already. Raises ExperimentError."""
    there = [file.path for file in changed if os.path.lexists(target / file.path)]
    if there and not force:
        raise ExperimentError(
            f"{target / there[0]} is there already" + (f", and {len(there) - 1} more" if len(there) > 1 else ""),
            hint="--force replaces them",
        )
    for file in changed:
        place = target / file.path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(code / file.path, place)
        except OSError as error:
            raise ExperimentError(f"{place}: {error.strerror}") from error
