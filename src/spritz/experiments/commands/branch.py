"""Make a branch with the code of a run in your repository, to look at it, or to go on from it."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path

from spritz.experiments import imports
from spritz.experiments.access import others
from spritz.experiments.code import branches
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import ANY_RUN_HELP, Terminal, reporting
from spritz.experiments.job import submission
from spritz.experiments.records import record
from spritz.experiments.records.store import Store


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=ANY_RUN_HELP)
    parser.add_argument("branch", nargs="?", default="", metavar="BRANCH", help="its name (default: the run's)")
    parser.add_argument("--worktree", metavar="DIR", help="check it out into a new working tree, DIR")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """Your own working tree and its branch stay as they are."""
    base = home()
    _, entry = others.find(Store(base), arguments.run, submission.user(), need_code=True)
    ran = record.read(Path(entry.directory))
    if not ran.code.get("tree"):
        raise ExperimentError(f"{ran.name} ran in place, without a snapshot of its code")
    code = Snapshot.of(ran.code)
    repository = branches.repository_for(code, Path.cwd())
    branch = arguments.branch or ran.name
    message = f"Code of the run {ran.name}\n\n{ran.command_line}\n"
    commit = branches.make(base / "snapshots.git", code, repository, branch, message)
    if arguments.worktree:
        branches.worktree(repository, branch, Path(arguments.worktree).absolute())
        terminal.out(f"{branch} {commit[:12]} in {arguments.worktree}\n")
    else:
        terminal.out(f"{branch} {commit[:12]}\n")
        # Another repository has the code's commit.
        there = "" if imports.is_below(os.getcwd(), str(repository)) else f"-C {shlex.quote(str(repository))} "
        terminal.err(
            f"`git {there}switch {shlex.quote(branch)}` goes there; `--worktree DIR` makes a working tree beside"
            f"{' its own' if there else ' yours'}.\n"
        )
    if code.dirty and code.submodules:
        terminal.err(f"spritz: files of submodules are part of the commit: {', '.join(code.submodules)}\n")
    for source in code.sources:
        terminal.err(f"spritz: the run also imported from {source.root}, which is not in the branch\n")
    return 0
