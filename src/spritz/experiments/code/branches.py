"""The code of a run as a branch of the user's repository."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from spritz.experiments.code import snapshot
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.errors import ExperimentError

#: What git says of the attribute `filter` where it names none.
_NO_FILTER = frozenset({"unspecified", "unset", "set"})


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
        tree = _as_stored(repository, code.tree)
        commit = _git(repository, *_identity(repository), "commit-tree", tree, *parent, "-m", message).strip()
    _git(repository, "branch", "--", name, commit)
    return commit


def _as_stored(repository: Path, tree: str) -> str:
    """The tree with the files as filters of the repository store them: pointers of Git LFS, encrypted texts. What is
    kept of a run are their contents.
    """
    at = snapshot.git_output(repository, "rev-parse", "--absolute-git-dir", check=True).rstrip("\n")
    with tempfile.TemporaryDirectory(prefix="branch-") as scratch:
        files = Path(scratch) / "files"
        files.mkdir()
        environment = {key: text for key, text in os.environ.items() if not key.startswith("GIT_")}
        environment |= {"GIT_DIR": at, "GIT_WORK_TREE": str(files), "GIT_INDEX_FILE": f"{scratch}/index"}

        def git(*words: str, names: Iterable[str] = ()) -> str:
            given = os.fsencode("".join(f"{name}\0" for name in names))
            done = subprocess.run(["git", *words], cwd=files, env=environment, input=given, capture_output=True)
            if done.returncode:
                raise ExperimentError(f"git: {os.fsdecode(done.stderr).strip()}")
            return os.fsdecode(done.stdout)

        git("read-tree", tree)
        every = git("ls-files", "-z").split("\0")[:-1]
        attributes = [name for name in every if os.path.basename(name) == ".gitattributes"]
        git("checkout-index", "-z", "--stdin", names=attributes)
        answers = git("check-attr", "-z", "--stdin", "filter", names=every).split("\0")[:-1]
        by_name = dict(zip(answers[::3], answers[2::3], strict=True))
        filtered = [name for name, filter_name in by_name.items() if filter_name not in _NO_FILTER]
        if not filtered:
            return tree
        keys = ("smudge=", "process=", "required=false")
        off = [f"filter.{by_name[name]}.{key}" for name in filtered for key in keys]
        git(*(word for setting in dict.fromkeys(off) for word in ("-c", setting)),
            "checkout-index", "-z", "--stdin", names=filtered)  # fmt: skip
        git("update-index", "-z", "--stdin", names=filtered)
        return git("write-tree").strip()


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
