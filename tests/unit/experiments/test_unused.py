"""What no run refers to goes, and what one refers to, or is about to, stays."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from spritz.experiments.code import snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import file_time, locked
from spritz.experiments.records import unused
from spritz.experiments.records.store import Store


class Took(Protocol):
    def __call__(self, text: str, *, old: bool = True) -> str: ...


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.delenv("SPRITZ_RUN_STORE", raising=False)
    home = tmp_path / "home"
    home.mkdir()
    return Store(home)


@pytest.fixture
def took(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Took:
    """Takes a snapshot, long ago, of a project without git whose program is the text; its tree."""
    project = tmp_path / "project"
    project.mkdir()

    def take(text: str, *, old: bool = True) -> str:
        (project / "train.py").write_text(text)
        with monkeypatch.context() as then:
            if old:
                then.setattr(snapshot._Git, "__call__", _long_ago(snapshot._Git.__call__))
            return snapshot.take(project, store.home / "snapshots.git").tree

    return take


def _long_ago(call: Callable[..., str]) -> Callable[..., str]:
    def called(self: snapshot._Git, *words: str, **named: str) -> str:
        if words[:1] == ("commit-tree",):
            self._environment = {**self._environment, "GIT_COMMITTER_DATE": "1700000000 +0000"}
        return call(self, *words, **named)

    return called


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Advances the clock of the file system by hours."""

    def advance(hours: float) -> None:
        monkeypatch.setattr(unused, "file_time", lambda place: file_time(place) + hours * 3600)

    return advance


def trees(store: Store) -> set[str]:
    """Trees of the snapshots in use."""
    words = ("git", "--git-dir", store.home / "snapshots.git", "for-each-ref", "--format=%(refname:lstrip=2)")
    listed = subprocess.run([*words, "refs/snapshots"], check=True, capture_output=True, text=True)
    return set(listed.stdout.split())


def checked_out(store: Store, tree: str, target: Path) -> str:
    """The program of the snapshot, as a job has it."""
    lines = snapshot.checkout_lines(store.home / "snapshots.git", tree, str(target))
    subprocess.run(["bash", "-euc", lines], check=True)
    return (target / "train.py").read_text()


def has(store: Store, name: str) -> bool:
    command = ["git", "--git-dir", str(store.home / "snapshots.git"), "cat-file", "-e", name]
    return subprocess.run(command, capture_output=True).returncode == 0


def test_code_that_no_run_uses_goes_with_its_objects_in_two_steps(
    store: Store, took: Took, tmp_path: Path, later: Callable[[float], None]
) -> None:
    of_a_run, of_none, of_a_pipeline, of_a_lost_run = map(took, ("run", "none", "pipeline", "lost"))
    fresh = took("fresh", old=False)
    name = store.reserve("train", "other", 1.0, store.home / "runs", "python train.py")
    store.change(name, "other", tree=of_a_run)
    for place, tree in (("pipelines/p/pipeline.json", of_a_pipeline), ("runs/lost-1/run.json", of_a_lost_run)):
        path = store.home / place
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"code": {"tree": tree}}))
    for hours in (0, 0.9):
        later(hours)
        unused.remove(store)
        assert trees(store) == {of_a_run, of_a_pipeline, of_a_lost_run, fresh}
        assert has(store, of_none)
    later(2)
    unused.remove(store)
    assert trees(store) == {of_a_run, of_a_pipeline, of_a_lost_run}
    assert has(store, of_a_run)
    assert not has(store, of_none)
    # The same code once more: nothing that git remembers of it may be taken for granted.
    assert took("none") == of_none
    assert checked_out(store, of_none, tmp_path / "code") == "none"


def test_code_that_is_set_aside_is_back_when_a_rerun_refers_to_it(
    store: Store, took: Took, tmp_path: Path, later: Callable[[float], None]
) -> None:
    """The rerun's record comes after a cleaner has read all records: nothing keeps these two apart."""
    tree = took("x")
    unused.remove(store)
    assert trees(store) == set()
    store.change(store.reserve("train", "me", 1.0, store.home / "runs", "python train.py"), "me", tree=tree)
    later(2)
    unused.remove(store)
    assert trees(store) == {tree}
    assert checked_out(store, tree, tmp_path / "code") == "x"


@pytest.mark.parametrize("with_git", [True, False])
@pytest.mark.parametrize("set_aside_before", [True, False])
@pytest.mark.parametrize("command", ["write-tree", "update-ref"])
def test_a_snapshot_without_a_lock_keeps_objects_that_are_being_removed(
    store: Store, took: Took, tmp_path: Path, later: Callable[[float], None], with_git: bool, set_aside_before: bool,
    command: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Cleanings, on a machine whose locks this one does not see, happen before git's command in a snapshot that uses
    objects of an unused one: the first step, or the second.
    """
    project = tmp_path / "project"
    (project / "common.py").write_text("in both")
    os.utime(project / "common.py", (1.6e9, 1.6e9))  # git's index need not read it again
    if with_git:
        for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm1"]):
            subprocess.run(["git", *words], cwd=project, check=True)
    unused_tree = took("first")
    repository = store.home / "snapshots.git"
    for path in (repository / "objects").rglob("*"):  # all that the store has is old
        os.utime(path, (1.7e9, 1.7e9))
    if set_aside_before:
        later(-2)
        unused.remove(store)
    monkeypatch.setattr(fcntl, "flock", lambda *words: None)
    call = snapshot._Git.__call__
    cleaned: list[tuple[str, ...]] = []

    def clean_and_call(self: snapshot._Git, *words: str, **named: str) -> str:
        if words[0] == command and not cleaned:
            cleaned.append(words)
            for hours in (0.0, 0.5):
                later(hours)
                unused.remove(store)
        return call(self, *words, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot._Git, "__call__", clean_and_call)
    (project / "train.py").write_text("second")
    taken = snapshot.take(project, repository).tree
    for hours in (0.9, 1.8):
        later(hours)
        store.change(store.reserve("train", "me", 1.0, store.home / "runs", "python train.py"), "me", tree=taken)
        unused.remove(store)
    assert not has(store, unused_tree)
    assert checked_out(store, taken, tmp_path / "code") == "second"
    assert (tmp_path / "code" / "common.py").read_text() == "in both"


def test_code_that_is_submitted_again_is_young_again(store: Store, took: Took) -> None:
    tree = took("x")
    assert took("x", old=False) == tree
    unused.remove(store)
    assert trees(store) == {tree}


def test_no_code_goes_while_a_record_cannot_be_read(store: Store, took: Took) -> None:
    """What the record says may be in use."""
    tree = took("lost")
    record = store.home / "runs/lost-1/run.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"code": {"tree": tree}})[:-4])
    with pytest.raises(ExperimentError, match=r"runs/lost-1/run\.json is damaged"):
        unused.remove(store)
    assert trees(store) == {tree}


def test_nothing_goes_while_a_snapshot_is_taken(store: Store, took: Took) -> None:
    tree = took("x")
    with locked(store.home / "snapshots.git" / "lock", fcntl.LOCK_SH):
        unused.remove(store)
        assert trees(store) == {tree}
    unused.remove(store)
    assert trees(store) == set()


def test_the_descriptors_of_both_locks_are_those_that_nfs_accepts(
    store: Store, took: Took, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS makes byte-range locks of flock's; the kernel has the same rules for these on any file system."""
    calls: list[int] = []

    def flock(descriptor: int, how: int) -> None:
        fcntl.lockf(descriptor, how)
        calls.append(how & ~fcntl.LOCK_NB)

    monkeypatch.setattr(fcntl, "flock", flock)
    took("x")
    unused.remove(store)
    assert calls == [fcntl.LOCK_SH, fcntl.LOCK_EX]
    assert trees(store) == set()


@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO, errno.ESTALE])
def test_nothing_goes_where_locks_are_refused_and_snapshots_are_taken(
    store: Store, took: Took, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    tree = took("x")
    with pytest.raises(ExperimentError, match=os.strerror(number)):
        unused.remove(store)
    assert trees(store) == {tree}


def test_scripts_of_arrays_and_cached_values_go_when_nothing_uses_them(store: Store) -> None:
    def make(place: str, text: str = "", *, old: bool = True) -> Path:
        path = store.home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if old:
            os.utime(path, (1.0, 1.0))
        return path

    make("runs/double-1-0/run.json", "{}")
    make("pipelines/p/values/load/all.json", json.dumps({"digest": "used"}))
    kept = [
        make("arrays/double-1-0.sh"),
        make("arrays/double-1-0.shared", "{}"),
        make("arrays/double-2-0.sh", old=False),
        make("values/a.json", json.dumps({"digest": "used"})),
        make("values/a.pkl"),
        make("values/b.json", json.dumps({"digest": "new"}), old=False),
        make("values/b.pkl", old=False),
    ]
    gone = [
        make("arrays/double-3-1000.sh"),
        make("arrays/double-3-1000.shared"),
        make("values/c.json", json.dumps({"digest": "of a pipeline that was removed"})),
        make("values/c.pkl"),
    ]
    unused.remove(store)
    assert [path.exists() for path in kept] == [True] * len(kept)
    assert [path.exists() for path in gone] == [False] * len(gone)


def test_a_repository_that_is_damaged_is_named(store: Store, took: Took) -> None:
    took("x")
    (store.home / "snapshots.git" / "HEAD").write_text("nonsense")
    with pytest.raises(ExperimentError, match="git"):
        unused.remove(store)
