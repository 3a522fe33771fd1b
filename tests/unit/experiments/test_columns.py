"""Users choose and order the columns of listings by name: of the index, metrics, settings of the command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spritz.experiments.errors import ExperimentError
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
