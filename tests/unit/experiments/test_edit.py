"""Tags, notes and names of runs change after the fact: in the record and the index, and in all that refers to a run."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.experiments import calling
from spritz.experiments.access import rebuilding
from spritz.experiments.cluster import slurm
from spritz.experiments.commands.upkeep import edit
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import submission
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Query, Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.delenv("SPRITZ_RUN_STORE", raising=False)
    monkeypatch.setenv("SPRITZ_HOME", str(tmp_path))
    monkeypatch.setattr(submission, "user", lambda: "me")
    monkeypatch.setattr(slurm, "queued", lambda ids: {})
    monkeypatch.setattr(slurm, "accounted", lambda ids: {})
    return Store(tmp_path)


def add(store: Store, base: str = "train", *, ended: bool = True, **values: object) -> str:
    """A run with its record, as submission leaves it, and its end."""
    name = store.reserve(base, "me", 1.0, store.home / "runs", "python train.py")
    run = Run(name=name, user="me", created_at=1.0, command=["python", "train.py"], job_id="7", **values)  # type: ignore[arg-type]  # by name
    directory = record.make(store.home, name)
    record.write(directory, run)
    store.queued(run)
    if ended:
        record.append(directory, "started", 2.0, restart=0)
        record.append(directory, "ended", 3.0, restart=0, status=0)
        store.change(name, "me", state="COMPLETED")
    return name


def called(command: Any, *words: str) -> tuple[int, str]:
    """The exit status of `spritz COMMAND WORDS`, and what it printed."""
    parser = ArgumentParser()
    command.add_arguments(parser)
    printed: list[str] = []
    terminal = SimpleNamespace(out=printed.append, err=printed.append, error=printed.append)
    return command.run(parser.parse_args(words), terminal), "".join(printed)


def spritz_edit(*words: str) -> tuple[int, str]:
    return called(edit, *words)


def rebuilt(store: Store) -> Store:
    store.close()
    (store.home / "runs.db").unlink()
    later = Store(store.home)
    rebuilding.rebuild(later, "me", lambda done, whole: None)
    return later


def test_tags_and_notes_are_found_and_outlive_the_index(store: Store) -> None:
    name = add(store, tags=["old", "keep"])
    other = add(store)
    assert spritz_edit(name, "--tag", "größe", "--untag", "old", "--note", "Über 90 % in 5_0") == (
        0, "train-1  keep, größe  Über 90 % in 5_0\n",
    )  # fmt: skip
    for index in (store, rebuilt(store)):
        for query in (
            *(Query(tag=tag) for tag in ("keep", "größe")),
            *(Query(text=text) for text in ("über 9", "Über", "0 % i", "5_0", "größe")),
        ):
            assert [entry.name for entry in index.find(query)] == [name], query
        assert index.find(Query(tag="old")) == index.find(Query(text="0_i")) == []
        assert index.get(other, "me").note == ""
    assert record.read(store.home / "runs" / name).note == "Über 90 % in 5_0"
    assert spritz_edit(name, "--note", "", "--untag", "keep")[0] == 0
    assert (Store(store.home).get(name, "me").note, Store(store.home).get(name, "me").tags) == ("", ("größe",))


def test_a_process_that_has_the_record_as_it_was_overwrites_nothing(store: Store) -> None:
    name = add(store)
    before = record.read(store.home / "runs" / name)
    spritz_edit(name, "--tag", "later")
    record.write(store.home / "runs" / name, before)
    assert record.read(store.home / "runs" / name).tags == ["later"]


def test_a_trial_has_tags_beside_those_that_its_sweep_shares(store: Store) -> None:
    shared = store.home / "shared.json"
    record.write_json(shared, {"tags": ["grid"]})
    names = [add(store, group="s-1", shared=str(shared)) for _ in range(2)]
    assert spritz_edit(names[0], "--tag", "best")[0] == 0
    assert [record.read(store.home / "runs" / name).tags for name in names] == [["grid", "best"], ["grid"]]
    assert spritz_edit("s-1", "--tag", "all")[0] == 0
    assert [record.read(store.home / "runs" / name).tags for name in names] == [
        ["grid", "best", "all"],
        ["grid", "all"],
    ]


def test_a_renamed_run_is_known_by_its_name_everywhere(store: Store) -> None:
    name = add(store)
    child = add(store, parent=name)
    assert spritz_edit(name, "--rename", "Größer.best") == (0, "train-1 is Größer.best now\n")
    for index in (store, rebuilt(store)):
        entry = index.get("Größer.best", "me")
        assert entry.directory == str(store.home / "runs" / name)
        assert index.get(child, "me").parent == "Größer.best"
        assert record.read(Path(index.get(child, "me").directory)).parent == "Größer.best"
        assert [found.name for found in index.find(Query())] == [child, "Größer.best"]
        with pytest.raises(ExperimentError, match="train-1 has another name now: Größer.best"):
            index.get(name, "me")
    assert add(store) == "train-3"
    assert spritz_edit("Größer.best", "--rename", name)[0] == 0
    assert store.get(name, "me").name == name


@pytest.mark.parametrize("name", ["7", "7_1", "a/b", "-x", "", "a b", "x" * 300])
def test_what_is_no_name_is_refused(store: Store, name: str) -> None:
    add(store)
    assert spritz_edit("train-1", f"--rename={name}")[0] == 2


def _member(store: Store) -> str:
    return add(store, group="s-1")


def _function(store: Store) -> str:
    name = add(store)
    (store.home / "runs" / name / calling.CALL).touch()
    return name


@pytest.mark.parametrize(("make", "words"), [(_member, "part of s-1"), (_function, "calls a Python function")])
def test_runs_that_others_know_by_their_names_keep_them(store: Store, make: Callable[[Store], str], words: str) -> None:
    status, printed = spritz_edit(make(store), "--rename", "x")
    assert (status, words in printed) == (1, True), printed


def test_a_run_is_renamed_when_it_has_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    name = add(store, ended=False)
    monkeypatch.setattr(slurm, "queued", lambda ids: {"7": slurm.JobState("7", "RUNNING", "")})
    assert "its job knows it by its name" in spritz_edit(name, "--rename", "x")[1]
    assert spritz_edit(name, "--tag", "x")[0] == 0


@pytest.mark.parametrize("place", ["runs", "sweeps", "pipelines"])
def test_a_name_that_something_has_or_had_is_not_given_again(store: Store, place: str) -> None:
    name = add(store)
    (store.home / place / "taken").mkdir(parents=True)
    assert "has or had that name" in spritz_edit(name, "--rename", "taken")[1]
    assert store.get(name, "me").name == name


def test_all_of_a_change_or_nothing_of_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second record cannot be written."""
    names = [add(store), add(store, parent="train-1")]
    write = record.write_json

    def failing(path: Path, data: object, *, durable: bool = True) -> None:
        if path.parent.name == names[1]:
            raise OSError(28, "No space left on device")
        write(path, data, durable=durable)

    with monkeypatch.context() as full:
        full.setattr(record, "write_json", failing)
        for words in ((*names, "--tag", "x"), (names[0], "--rename", "y")):
            status, printed = spritz_edit(*words)
            assert status == 1
            assert "No space left" in printed
    for index in (store, rebuilt(store)):
        assert [(entry.name, entry.tags) for entry in index.find(Query())] == [("train-2", ()), ("train-1", ())]


@pytest.mark.parametrize(("words", "step"), [(("--rename", "late"), "_rename"), (("--tag", "late"), "_edit")])
@pytest.mark.parametrize("is_renamed", [True, False])
def test_a_run_that_was_renamed_or_removed_meanwhile_is_not_changed(
    store: Store, monkeypatch: pytest.MonkeyPatch, words: tuple[str, str], step: str, is_renamed: bool
) -> None:
    name = add(store)
    change = getattr(edit, step)

    def changed_late(*arguments: object) -> None:
        monkeypatch.setattr(edit, step, change)
        if is_renamed:
            assert spritz_edit(name, "--rename", "early")[0] == 0
        else:
            Store(store.home).remove(name, "me")
        change(*arguments)

    monkeypatch.setattr(edit, step, changed_late)
    assert spritz_edit(name, *words) == (1, "train-1 has another name now, or was removed")
    read = record.read(store.home / "runs" / name)
    assert (read.name, read.tags) == ("early" if is_renamed else name, [])


def test_edits_at_the_same_moment_are_all_kept(store: Store) -> None:
    """Other processes that edit a run wait for each other."""
    name = add(store)
    program = "from spritz.cli.spritz import entry; entry()"
    words = [sys.executable, "-c", program, "edit", name, "--tag"]
    mine = {**os.environ, "LOGNAME": "me", "SPRITZ_NO_SERVER": "1"}
    processes = [subprocess.Popen([*words, f"t{number}"], stdout=subprocess.DEVNULL, env=mine) for number in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert sorted(record.read(store.home / "runs" / name).tags) == [f"t{number}" for number in range(4)]


@pytest.mark.parametrize("words", [(), ("--tag", ""), ("--tag", "a", "--untag", "a"), ("train-2", "--rename", "x")])
def test_a_command_that_makes_no_sense_is_refused(store: Store, words: tuple[str, ...]) -> None:
    add(store)
    add(store)
    assert spritz_edit("train-1", *words)[0] == 2


def test_a_tag_with_any_characters_is_found(store: Store) -> None:
    name = add(store)
    spritz_edit(name, "--tag", 'a"b%')
    assert [entry.name for entry in store.find(Query(tag='a"b%'))] == [name]
    assert store.find(Query(tag='a"b!')) == []
