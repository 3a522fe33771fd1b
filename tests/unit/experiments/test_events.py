"""A run's events are read in order, whatever machines wrote them and whatever became of a write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.experiments.job import states
from spritz.experiments.records import events


def on(node: str, directory: Path, *lines: str) -> None:
    (directory / f"events.{node}.jsonl").write_text("".join(lines))


def line(event: str, at: float, restart: int | None = None) -> str:
    life = "" if restart is None else f', "restart": {restart}'
    life += ', "status": 0' if event == "ended" else ""
    return f'{{"event": "{event}", "at": {at}{life}}}\n'


def names(directory: Path) -> list[str]:
    return [event["event"] for event in events.read(directory)]


def test_lives_on_two_nodes_are_in_their_order_although_the_clocks_differ(tmp_path: Path) -> None:
    on("b", tmp_path, line("first", 500.0, 0), line("lost", 510.0, 0))
    on("a", tmp_path, line("second", 480.0, 1), line("ended", 490.0, 1))
    assert names(tmp_path) == ["first", "lost", "second", "ended"]
    on("c", tmp_path, line("third", 505.0, 2))
    on("login.commands", tmp_path, line("paused", 495.0), line("resumed", 504.0))
    assert names(tmp_path)[-1] == "third"


def test_an_older_life_that_ends_on_another_node_is_not_the_end_of_the_newer_one(tmp_path: Path) -> None:
    """Both are the first lives of their jobs, as when a trial continues in another job."""
    for node, life, at in (("a", 1, 1.0), ("b", 2, 2.0)):
        on(node, tmp_path, f'{{"event": "started", "at": {at}, "restart": 0, "life": {life}}}\n')
    with (tmp_path / "events.a.jsonl").open("a") as file:
        file.write('{"event": "ended", "at": 3.0, "restart": 0, "life": 1, "status": 0}\n')
    assert [event["life"] for event in events.read(tmp_path)] == [1, 1, 2]
    assert states.from_events(events.read(tmp_path)) == {"started_at": 1.0}


def test_commands_are_among_the_jobs_events_by_their_time(tmp_path: Path) -> None:
    on("a", tmp_path, line("started", 1.0, 0), line("requeued", 3.0, 0), line("started", 5.0, 1))
    on("login.commands", tmp_path, line("paused", 2.0), line("resumed", 4.0))
    assert names(tmp_path) == ["started", "paused", "requeued", "resumed", "started"]


def test_a_clock_that_was_set_back_does_not_change_the_order_of_a_machine(tmp_path: Path) -> None:
    on("a", tmp_path, line("started", 9.0, 0), line("retried", 2.0, 0), line("started", 3.0, 1), line("ended", 4.0, 1))
    on("login.commands", tmp_path, line("paused", 1.0))
    assert names(tmp_path) == ["paused", "started", "retried", "started", "ended"]


def test_each_machine_and_each_role_has_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    events.append(tmp_path, "pruned", 1.0, restart=0)
    events.append(tmp_path, "paused", 2.0)
    host = os.uname().nodename
    assert sorted(os.listdir(tmp_path)) == sorted([f"events.{host}.commands.jsonl", "events.n7.jsonl"])
    assert names(tmp_path) == ["pruned", "paused"]


def test_events_of_an_earlier_release_are_read_with_those_of_this(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(line("started", 1.0, 0) + line("paused", 2.0))
    events.append(tmp_path, "resumed", 3.0)
    assert names(tmp_path) == ["started", "paused", "resumed"]


@pytest.mark.parametrize("torn", ['{"event": "idle", "at": 2', '{"ev', "\0\0\0", '{"event": "lost", "nodes": "', "é"])
def test_a_torn_line_loses_no_other(tmp_path: Path, torn: str) -> None:
    on("a", tmp_path, line("started", 1.0, 0), torn, line("ended", 3.0, 0), torn)
    assert names(tmp_path) == ["started", "ended"]
    assert events.read(tmp_path)[-1] == {"event": "ended", "at": 3.0, "restart": 0, "status": 0}


def test_what_is_no_event_is_left_out(tmp_path: Path) -> None:
    on("a", tmp_path, "17\n", "null\n", '["event"]\n', "{}\n", "\n", line("started", 1.0, 0))
    assert names(tmp_path) == ["started"]
    assert events.read(tmp_path / "none") == []


def test_a_write_that_is_cut_short_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
    with pytest.raises(OSError, match="No space left"):
        events.append(tmp_path, "paused", 1.0)
    monkeypatch.undo()
    events.append(tmp_path, "paused", 2.0)
    assert [event["at"] for event in events.read(tmp_path)] == [2.0]
