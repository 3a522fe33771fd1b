"""Records that are damaged, or that another user has written to do harm: an error names the file, and lists go on."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from spritz.experiments.access import others, rebuilding
from spritz.experiments.code import interpreters
from spritz.experiments.errors import ExperimentError
from spritz.experiments.records import events, record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Query, Store

CODE = {"tree": "a" * 40, "root": "/p", "directory": "."}
WHOLE: dict[str, Any] = {"name": "t-1", "user": "me", "created_at": 5.0, "command": ["python"], "job_id": "7"}


def put(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "run.json").write_text(text)
    return directory


@pytest.mark.parametrize(
    "text",
    ["", "[]", '"x"', "null", "3", "{}", "[" * 100_000, '{"a":' * 50_000, json.dumps(WHOLE)[:40], "\0" * 100],
)
def test_what_is_no_record_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ExperimentError, match=r"run\.json"):
        record.read(put(tmp_path, text))


@pytest.mark.parametrize(
    "values",
    [
        {"created_at": "x"}, {"created_at": float("nan")}, {"created_at": 1e300}, {"created_at": -1.0},
        {"command": "rm"}, {"command": [1]}, {"command": []}, {"command": None}, {"name": 5}, {"name": ""},
        {"user": []}, {"tags": "a"}, {"tags": [[1]]}, {"note": 5}, {"group": 5}, {"data": [5]}, {"parameters": [1]},
        {"job_id": 5}, {"job_id": "--version"}, {"job_id": "7 8"}, {"per_node": [1]}, {"shared": 5},
        {"options": []}, {"options": {"env": []}}, {"options": {"env": {"A": 5}}}, {"options": {"checkpoint_dir": {}}},
        {"options": {"nodes": 5}}, {"options": {"setup": "x"}},
        {"surroundings": []}, {"surroundings": {"python": []}}, {"surroundings": {"variables": [1]}},
        {"surroundings": {"conda": []}}, {"surroundings": {"python": {"packages": [5]}}},
        {"code": []}, {"code": {"tree": "x"}}, {"code": {**CODE, "tree": 5}}, {"code": {**CODE, "sources": [{}]}},
        {"code": {**CODE, "tree": "--output=x"}}, {"code": {**CODE, "commit": "--output=x"}},
        {"code": {**CODE, "submodules": {"a": "--x"}}}, {"code": {**CODE, "outward": [["x"]]}},
        {"code": {**CODE, "sources": [{"root": "/", "tree": "a", "name": "../x"}]}},
    ],
    ids=str,
)  # fmt: skip
def test_values_of_another_kind_are_an_error_that_names_the_file(tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(ExperimentError, match=r"run\.json"):
        record.read(put(tmp_path, json.dumps({**WHOLE, **values})))


def test_what_runs_have_is_read(tmp_path: Path) -> None:
    values = {**WHOLE, "code": CODE, "options": {"env": {"A": "b"}, "resumable": True, "setup": ["x"], "nodes": "2"}}
    run = record.read(put(tmp_path, json.dumps({**values, "later": [1]})))
    assert (run.name, run.code, run.options["nodes"]) == ("t-1", CODE, "2")


def test_a_damaged_edit_and_a_file_that_never_ends_are_errors(tmp_path: Path) -> None:
    put(tmp_path / "a", json.dumps(WHOLE))
    (tmp_path / "a" / "edits.json").write_text("[]")
    put(tmp_path / "b", json.dumps({**WHOLE, "shared": str(tmp_path / "pipe")}))
    os.mkfifo(tmp_path / "pipe")
    for name in ("a", "b"):
        with pytest.raises(ExperimentError):
            record.read(tmp_path / name)


@pytest.mark.parametrize(
    "line",
    [
        "[]", "5", "[" * 100_000, '{"event": 5, "at": 1}', '{"event": "started"}', '{"event": "x", "at": NaN}',
        '{"event": "started", "at": 1, "restart": "y"}', '{"event": "ended", "at": 1, "restart": 0}',
        '{"event": "ended", "at": 1, "restart": 0, "status": "x"}', '{"event": "ended", "at": 1e400, "status": 0}',
        '{"event": "idle", "at": 1, "action": "end"}', '{"event": ["x"], "at": 1}', '{"event": "x", "at": null}',
    ],
)  # fmt: skip
def test_lines_that_are_no_events_are_left_out(tmp_path: Path, line: str) -> None:
    good = '{"event": "started", "at": 1.0, "restart": 0}\n'
    (tmp_path / "events.n1.jsonl").write_text(f"{line}\n{good}{line}\n")
    assert [event["event"] for event in events.read(tmp_path)] == ["started"]


def test_damaged_runs_are_not_in_the_index_that_is_made_again(tmp_path: Path) -> None:
    put(tmp_path / "runs" / "t-0", "[]")
    put(tmp_path / "runs" / "t-1", json.dumps(WHOLE))
    put(tmp_path / "runs" / "t-2", json.dumps({**WHOLE, "created_at": "x"}))
    store = Store(tmp_path, f"sqlite:///{tmp_path}/runs.db")
    rebuilding.rebuild(store, "me", lambda done, whole: None)
    assert [entry.name for entry in store.find(Query())] == ["t-1"]


@pytest.mark.parametrize(
    "change",
    [
        "tags = '{bad'", "tags = '5'", "metrics = '[1]'", "metrics = '{\"a\": \"x\"}'", "created_at = 'x'",
        "started_at = 1e300", "exit_code = 'x'", "command = x'00ff'", "job_id = '--version'", "state = x'00'",
    ],
)  # fmt: skip
def test_rows_of_another_users_index_that_are_none_are_left_out(tmp_path: Path, change: str) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    run = Run(name="t-1", user="bob", created_at=5.0, command=["x"])
    Store(tmp_path, url).restore([(run, tmp_path / "t-1", {})])
    other = Run(name="u-1", user="bob", created_at=5.0, command=["x"])
    Store(tmp_path, url).restore([(other, tmp_path / "u-1", {})])
    with sqlite3.connect(tmp_path / "runs.db") as database:
        database.execute(f"UPDATE runs SET {change} WHERE name = 't-1'")
    theirs = Store(tmp_path, url, foreign=True)
    assert [entry.name for entry in theirs.find(Query(owner="bob"))] == ["u-1"]
    with pytest.raises(ExperimentError, match="no such run"):
        theirs.get("t-1", "bob")


def test_a_run_with_a_file_that_never_ends_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, json.dumps(WHOLE))
    (tmp_path / "log").mkdir()
    (tmp_path / "code").mkdir()
    os.mkfifo(tmp_path / "code" / "pipe")  # the program's own files are not read
    (tmp_path / "claim").symlink_to("7")
    assert others.unfit(tmp_path) == ""
    (tmp_path / "log" / "0-0.log").symlink_to("/dev/zero")
    assert others.unfit(tmp_path) == f"{tmp_path}/log/0-0.log is no plain file"
    (tmp_path / "log" / "0-0.log").unlink()
    os.mkfifo(tmp_path / "events.x.jsonl")
    assert "events.x.jsonl is no plain file" in others.unfit(tmp_path)
    (tmp_path / "events.x.jsonl").unlink()
    os.truncate(tmp_path / "run.json", 1 << 40)
    assert others.unfit(tmp_path) == f"{tmp_path}/run.json has 1048576 MiB"


def test_what_an_interpreter_wrote_down_may_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    for name, text in {"a": "[]", "b": '{"id": "x"}', "c": '{"id": 5, "executable": "p", "modules": "x"}'}.items():
        (tmp_path / "python" / f"{name}.json").write_text(text)
    assert interpreters.of_run(tmp_path, tmp_path) == {}
    (tmp_path / "python" / "d.json").write_text('{"id": "../secret", "executable": "p", "modules": 3}')
    (tmp_path / "secret.json").write_text('{"executable": "s"}')
    (tmp_path / "environments").mkdir()
    assert interpreters.of_run(tmp_path, tmp_path) == {"executable": "p"}
