"""The code of a run as a branch of the user's repository."""

from __future__ import annotations

import os
from pathlib import Path

from spritz.experiments.code import snapshot
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.errors import ExperimentError


def repository_for(code: Snapshot, here: Path) -> Path:
    """The repository at `here`, or the one that the run's code came from: the first that has the code's commit.

    Raises ExperimentError if there is none.
    """
    candidates = [here, Path(code.root)]
    repositories = [Path(top) for place in candidates if os.path.isdir(place) and (top := _top(place))]
    for repository in repositories:
        if not code.commit or _has(repository, code.commit):
            return repository
    if not repositories:
        raise ExperimentError(
            f"neither {here} nor {code.root} is in a git repository", hint="go to a clone of the project"
        )
    raise ExperimentError(
        f"{repositories[0]} does not have commit {code.commit[:12]}, which the code was based on",
        hint="fetch it, or go to a clone that has it",
    )


def make(store: Path, code: Snapshot, repository: Path, name: str, message: str) -> str:
    """A branch whose files are the run's; returns its commit: the code's own, or one after it with what differed.

    Raises ExperimentError, as when the branch exists.
    """
    commit = code.commit
    if code.dirty or not commit:
        _git(repository, "fetch", "-q", "--no-tags", "--no-write-fetch-head", str(store), f"refs/snapshots/{code.tree}")
        parent = ("-p", commit) if commit else ()
        commit = _git(repository, *_identity(repository), "commit-tree", code.tree, *parent, "-m", message).strip()
    _git(repository, "branch", "--", name, commit)
    return commit


def worktree(repository: Path, name: str, directory: Path) -> None:
    """Check the branch out into a new working tree; without one, the branch goes too. Raises ExperimentError."""
    try:
        _git(repository, "worktree", "add", "-q", str(directory), name)
    except ExperimentError:
        _git(repository, "branch", "-q", "-D", "--", name)
        raise


def _identity(repository: Path) -> tuple[str, ...]:
    """Options for a commit by a user who has told git no name."""
    if snapshot.git_output(repository, "config", "user.email"):
        return ()
    return ("-c", "user.name=spritz", "-c", f"user.email=spritz@{os.uname().nodename}")


def _top(place: Path) -> str:
    return snapshot.git_output(place, "rev-parse", "--show-toplevel").strip()


def _has(repository: Path, commit: str) -> bool:
    return bool(snapshot.git_output(repository, "rev-parse", "-q", "--verify", f"{commit}^{{commit}}"))


def _git(repository: Path, *words: str) -> str:
    return snapshot.git_output(repository, *words, check=True)
