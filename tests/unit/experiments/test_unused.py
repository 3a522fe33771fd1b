"""What no run refers to goes, and what one refers to, or is about to, stays."""

from __future__ import annotations

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


def trees(store: Store) -> set[str]:
    listed = subprocess.run(
        ["git", "--git-dir", store.home / "snapshots.git", "for-each-ref", "--format=%(refname:lstrip=2)"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return set(listed.stdout.split())


def has(store: Store, name: str) -> bool:
    command = ["git", "--git-dir", str(store.home / "snapshots.git"), "cat-file", "-e", name]
    return subprocess.run(command, capture_output=True).returncode == 0


def test_code_that_no_run_uses_goes_with_its_objects(store: Store, took: Took, tmp_path: Path) -> None:
    of_a_run, of_none, of_a_pipeline, of_a_lost_run = map(took, ("run", "none", "pipeline", "lost"))
    fresh = took("fresh", old=False)
    name = store.reserve("train", "other", 1.0, store.home / "runs", "python train.py")
    store.change(name, "other", tree=of_a_run)
    for place, tree in (("pipelines/p/pipeline.json", of_a_pipeline), ("runs/lost-1/run.json", of_a_lost_run)):
        path = store.home / place
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"code": {"tree": tree}}))
    unused.remove(store)
    assert trees(store) == {of_a_run, of_a_pipeline, of_a_lost_run, fresh}
    assert has(store, of_a_run)
    assert not has(store, of_none)
    # The same code once more: nothing that git remembers of it may be taken for granted.
    assert took("none") == of_none
    target = tmp_path / "code"
    subprocess.run(
        ["bash", "-euc", snapshot.checkout_lines(store.home / "snapshots.git", of_none, str(target))], check=True
    )
    assert (target / "train.py").read_text() == "none"


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
    with open(store.home / "snapshots.git" / "lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        unused.remove(store)
        assert trees(store) == {tree}
    unused.remove(store)
    assert trees(store) == set()


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
