"""Metrics come from lines that the program writes and from MLflow; what cannot be read is left out."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path

import pytest

from spritz.experiments.results import metrics
from spritz.experiments.results.metrics import Point
from spritz.experiments.sweeps import trials
from spritz.experiments.tracking import process_start
from tests.unit.experiments.mlflow_server import TOKEN, mlflow_server


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "r-1"
    path.mkdir(parents=True)
    return path


def test_numbers_of_each_line_are_points(directory: Path) -> None:
    (directory / "metrics.jsonl").write_text(
        '{"step": 1, "time": 5.0, "loss": 2, "note": "x", "done": true}\n'
        "no json\n[1]\n"
        '{"loss": NaN, "accuracy": 0.5, "step": "two"}\n'
        '{"loss": 0.1'
    )
    first, second, third = metrics.written(directory)
    assert first == Point("loss", 2.0, 1.0, 5.0)
    assert (second.name, second.step) == ("loss", None)
    assert third == Point("accuracy", 0.5)
    # What is no number cannot be searched for.
    assert metrics.latest(directory, [("r-1", directory, 0.0)], whole=True) == {"r-1": {"accuracy": 0.5}}


def test_numbers_beyond_those_of_floating_point_are_left_out(directory: Path) -> None:
    huge = "9" * 400
    (directory / "metrics.jsonl").write_text(
        f'{{"step": {huge}, "loss": 2}}\n{{"step": 3, "acc": {huge}, "loss": 1}}\n'
    )
    assert metrics.latest(directory, [("r-1", directory, 0.0)], whole=True) == {"r-1": {"loss": 1.0}}
    assert trials.Reports(directory, "loss").read() == {3: 1.0}
    assert math.isnan(trials.metrics_of(directory)["acc"])


def test_lines_that_a_decoder_or_an_encoder_refuses_end_no_listing(directory: Path) -> None:
    lines = ['{"deep": ' + "[" * 100_000, '{"half \\ud800": 4, "\\ud83d\\ude00": 5}', '{"loss": 1}']
    (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    measured = metrics.latest(directory, [("r-1", directory, 0.0)], whole=True)["r-1"]
    assert measured == {"half ?": 4.0, "\U0001f600": 5.0, "loss": 1.0}


def test_of_a_long_file_the_end_is_read_while_the_run_goes_on(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_TAIL_BYTES", 100)
    lines = [json.dumps({"step": step, "loss": 1000 - step}) for step in range(1000)]
    (directory / "metrics.jsonl").write_text('{"early": 1}\n' + "\n".join(lines) + "\n")
    assert metrics.latest(directory, [("r-1", directory, 0.0)], whole=False) == {"r-1": {"loss": 1.0}}
    assert metrics.latest(directory, [("r-1", directory, 0.0)], whole=True) == {"r-1": {"loss": 1.0, "early": 1.0}}


def serving(home: Path, directory: Path, url: str) -> None:
    """A state file, and a run that is tracked."""
    (home / "mlflow").mkdir()
    state = {"url": url, "host": os.uname().nodename, "address": "127.0.0.1", "token": TOKEN, "pid": os.getpid(),
             "started": process_start(os.getpid())}  # fmt: skip
    (home / "mlflow" / "server.json").write_text(json.dumps(state))
    (directory / "track.json").write_text(json.dumps({"state": "x"}))


def test_mlflows_runs_with_the_runs_tag_are_read_and_nested_ones_are_not(tmp_path: Path, directory: Path) -> None:
    with mlflow_server(TOKEN) as server:
        serving(tmp_path, directory, server.url)
        for number, tags in enumerate(
            ({"spritz.run": "r-1"}, {"spritz.run": "r-1", "mlflow.parentRunId": "0"}, {"spritz.run": "r-2"})
        ):
            created = {"experiment_id": "0", "run_name": "x", "tags": [{"key": k, "value": v} for k, v in tags.items()]}
            server.answer("/api/2.0/mlflow/runs/create", created)
            server.log(f"{number:032x}", loss=float(number), other=7.0)
        assert metrics.latest(tmp_path, [("r-1", directory, 0.0)], whole=True) == {"r-1": {"loss": 0.0, "other": 7.0}}
        second = shutil.copytree(directory, directory.with_name("r-2"))
        both = [("r-1", directory, 0.0), ("renamed", second, 0.0)]
        assert metrics.latest(tmp_path, both, whole=True)["renamed"] == {"loss": 2.0, "other": 7.0}
        assert Point("other", 7.0, 0.0, 1.0) in metrics.history(tmp_path, directory)


def test_of_a_name_that_two_sources_have_the_programs_own_lines_count(tmp_path: Path, directory: Path) -> None:
    (directory / "logged.jsonl").write_text('{"step": 1, "time": 5.0, "loss": 9.0, "other": 2.0}\n')
    (directory / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    assert metrics.history(tmp_path, directory) == [Point("loss", 0.5, 1.0), Point("other", 2.0, 1.0, 5.0)]
    assert metrics.latest(tmp_path, [("r-1", directory, 0.0)], whole=True) == {"r-1": {"loss": 0.5, "other": 2.0}}


def test_a_server_that_is_away_takes_nothing_else_away(tmp_path: Path, directory: Path) -> None:
    serving(tmp_path, directory, "http://127.0.0.1:9")
    (directory / "metrics.jsonl").write_text('{"loss": 1}\n')
    assert metrics.latest(tmp_path, [("r-1", directory, 0.0)], whole=True) == {"r-1": {"loss": 1.0}}
    assert metrics.history(tmp_path, directory) == [Point("loss", 1.0)]
