"""Users choose and order the columns of listings by name: of the index, metrics, settings of the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spritz.experiments.errors import ExperimentError
from spritz.experiments.records import record
from spritz.experiments.records.store import Entry
from spritz.experiments.results import columns

BASE = Entry(
    name="t-1", owner="ann", created_at=1.0, job_id="7", state="COMPLETED", exit_code=0, started_at=100.0,
    ended_at=161.0, branch="main", commit_id="c" * 40, tree="t" * 40, parent="", run_group="",
    command="python t.py --lr 0.1 'x y'", tags=("a", "b"), metrics={"loss": 2.0}, directory="/d", changed=True,
    note="best\nso far",
)  # fmt: skip
RUNS = [
    BASE,
    replace(BASE, name="t-2", metrics={"loss": 10.0}, command="python t.py --lr 1e-3", started_at=None, ended_at=None),
    replace(BASE, name="t-3", metrics={}, command="python 'unclosed", started_at=100.0, ended_at=101.0),
]


@pytest.mark.parametrize(
    ("name", "largest_first", "expected"),
    [
        ("loss", False, "t-1 t-2 t-3"),
        ("loss", True, "t-2 t-1 t-3"),
        ("lr", False, "t-2 t-1 t-3"),
        ("time", False, "t-3 t-1 t-2"),
        ("name", True, "t-3 t-2 t-1"),
        ("state", False, "t-1 t-2 t-3"),
    ],
)
def test_runs_are_ordered(name: str, largest_first: bool, expected: str) -> None:
    assert " ".join(entry.name for entry in columns.ordered(RUNS, name, largest_first)) == expected


def test_columns_are_shown_in_the_order_of_their_names() -> None:
    lines = columns.table({entry.name: entry for entry in RUNS}, ["loss", "time", "lr", "tags", "note", "code"])
    assert [line.split("  ")[0] for line in lines.splitlines()] == ["RUN", "t-1", "t-2", "t-3"]
    assert lines.splitlines()[0].split() == ["RUN", "loss", "TIME", "lr", "TAGS", "NOTE", "CODE"]
    assert lines.splitlines()[1].split() == [
        "t-1",
        "2",
        "0:01:01",
        "0.1",
        "a,",
        "b",
        "best",
        "so",
        "far",
        "main@cccccccc+",
    ]
    assert lines.splitlines()[3].split()[:3] == ["t-3", "-", "0:00:01"]


def test_an_unknown_name_is_refused_with_the_one_that_was_meant() -> None:
    columns.need(RUNS, ["state", "loss", "lr"])
    columns.need([], ["anything"])
    with pytest.raises(ExperimentError, match=r"lss: .*did you mean loss\?"):
        columns.need(RUNS, ["lss"])


def test_parameters_of_trials_are_known_wherever_the_command_has_them(tmp_path: Path) -> None:
    trials = []
    for number, rate in enumerate((0.1, 1e-4, 20), 1):
        directory = tmp_path / f"s-1.{number}"
        directory.mkdir()
        record.write_json(directory / "run.json", {"parameters": {"rate": rate}})
        trials.append(replace(
            BASE, name=directory.name, run_group="s-1", directory=str(directory), command=f"python t.py {rate}"
        ))  # fmt: skip
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text('{"parameters": [1]}')
    runs = [*trials, replace(BASE, name="o-1", run_group="o", directory=str(tmp_path / "damaged")), RUNS[1]]
    columns.need(runs, ["rate", "lr"])
    order = columns.ordered(runs, "rate", True)
    assert [entry.name for entry in order] == ["s-1.3", "s-1.1", "s-1.2", "o-1", "t-2"]
    lines = columns.table({entry.name: entry for entry in runs}, ["rate", "lr"]).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["s-1.1", "0.1", "-"], ["s-1.2", "0.0001", "-"], ["s-1.3", "20", "-"],
        ["o-1", "-", "0.1"], ["t-2", "-", "1e-3"],
    ]  # fmt: skip
    with pytest.raises(ExperimentError, match=r"rte: .*did you mean rate\?"):
        columns.need(trials, ["rte"])
