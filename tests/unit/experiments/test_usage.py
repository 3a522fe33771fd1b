"""Samples, metrics, events and log lines stand on one time axis, in the terminal and on a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spritz.experiments.records import record
from spritz.experiments.results import usage
from spritz.experiments.results.metrics import Point

T = 1_700_000_000.0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "usage").mkdir()
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "0-0.log").write_text("step 1\nWarning: <b>slow</b> hf_abcdefghijklmnopqrstuvwx\nstep 2\n")
    lines = [
        {"at": T + second, "node": "n1", "ranks": {"0": [second % 2, 1 << 30, 0, 1024]},
         "gpus": {"0": [second * 10, 100, 200]}, "log": {"0-0.log": 7 if second < 4 else 200}}
        for second in range(8)
    ]  # fmt: skip
    (tmp_path / "usage" / "0-0.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\nhalf a li\n{"at": "x"}\n[]')
    record.append(tmp_path, "started", T, restart=0, nodes="n1")
    return tmp_path


def test_series_and_marks(directory: Path) -> None:
    found = usage.collect(directory, [Point("loss", 2.0, 0.0, T), Point("loss", 1.0, 1.0, T + 7), Point("x", 1.0)])
    assert [(item.owner, item.what) for item in found.series] == [
        ("rank 0 (n1)", "CPUs"), ("rank 0 (n1)", "memory"), ("rank 0 (n1)", "read"), ("rank 0 (n1)", "written"),
        ("GPU 0 (n1)", "GPU"), ("GPU 0 (n1)", "GPU memory"), ("loss", "metric"),
    ]  # fmt: skip
    assert found.span == (T, T + 7)
    # The line was in the log when it was first seen to be so long, and its secret is masked.
    assert [(mark.at, mark.text) for mark in found.marks] == [
        (T, "started n1"), (T + 4, "rank 0: Warning: <b>slow</b> ********"),
    ]  # fmt: skip


def test_the_chart_has_a_line_for_each_series(directory: Path) -> None:
    text = usage.chart("r-1", usage.collect(directory, [Point("loss", 2.0, 0.0, T), Point("loss", 1.0, 1.0, T + 7)]))
    rows = {line[:28].split("  ")[0].strip(): line for line in text.splitlines()}
    assert "0.5, 1" in next(line for line in text.splitlines() if "CPUs" in line)
    assert "1 GiB, 1 GiB" in text
    assert "last 1" in rows["loss"]
    gpu = next(line for line in text.splitlines() if line.startswith("GPU 0"))
    assert "▁" in gpu
    assert gpu.rstrip().endswith("█  35 %, 70 %")


def test_a_pause_of_the_samples_is_blank() -> None:
    item = usage.Series("0", "CPUs", "", [0.0, 1.0, 2.0, 50.0, 51.0], [1.0] * 5)
    drawn = usage.bars(item, 0.0, 52.0, 52)
    assert drawn == "███" + " " * 47 + "██"


def test_no_samples_are_told(tmp_path: Path) -> None:
    assert usage.chart("r-1", usage.collect(tmp_path, [])).startswith("No samples of r-1: ")


def test_the_page_needs_nothing_from_outside(directory: Path) -> None:
    pytest.importorskip("plotly")
    page = usage.html("r-1", usage.collect(directory, [Point("loss", 2.0, 0.0, T)]))
    assert "rank 0 (n1)" in page
    assert "<b>slow" not in page
    assert 'src="http' not in page
