"""Several runs side by side: what differs is a column, metrics are drawn on the same axes."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path

import pytest

from spritz.experiments.commands import compare
from spritz.experiments.job import submission
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Store
from spritz.experiments.results import comparison, curve_page
from spritz.experiments.results.metrics import Point


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "t.py", "--lr", "0.1"], {"word 1": "python", "word 2": "t.py", "lr": "0.1"}),
        (["t", "--lr=0.1", "--fast"], {"word 1": "t", "lr": "0.1", "fast": "yes"}),
        (["t", "model.size=3", "+extra=1"], {"word 1": "t", "model.size": "3", "+extra": "1"}),
        (["t", "--shift", "-0.5", "--no"], {"word 1": "t", "shift": "-0.5", "no": "yes"}),
        (["t", "-x", "1", "-x", "2"], {"word 1": "t", "x": "1 2"}),
        (["sh", "-c", "a b = c"], {"word 1": "sh", "c": "a b = c"}),
        (["t", "a/b=c", "--", "--"], {"word 1": "t", "word 2": "a/b=c", "--": "yes yes"}),
        ([], {}),
    ],
)
def test_a_command_is_settings(command: list[str], expected: dict[str, str]) -> None:
    assert comparison.settings(command, {}) == expected


def _run(name: str, value: str, **metrics: float) -> comparison.Run:
    return comparison.Run(name, "COMPLETED", 1.0, {"command": {"lr": value, "size": "3"}}, metrics)


def test_what_is_the_same_in_all_runs_is_no_column_but_every_metric_is() -> None:
    first, second = comparison.columns([_run("a", "1", loss=2.0), _run("b", "2", loss=2.0)])
    assert (first.name, first.values) == ("lr", ("1", "2"))
    assert (second.name, second.values) == ("loss", ("2", "2"))


def test_numbers_come_in_order_of_size_and_runs_without_a_value_last() -> None:
    runs = [_run("a", "10", loss=float("nan")), _run("b", "9", loss=-1e3), _run("c", "auto"), _run("d", "", loss=5.0)]
    assert [run.name for run in comparison.ordered(runs, "lr", largest_first=False)] == ["b", "a", "c", "d"]
    assert [run.name for run in comparison.ordered(runs, "lr", largest_first=True)] == ["a", "b", "c", "d"]
    assert [run.name for run in comparison.ordered(runs, "loss", largest_first=False)] == ["b", "d", "a", "c"]


def test_curves_of_the_largest_numbers_are_drawn() -> None:
    points = [Point("loss", value, step) for step, value in ((-1e308, -1.7e308), (0.0, 1.7e308), (1e308, 1.7e308))]
    _, line = comparison.curves("loss", {"huge": points})
    assert {"▁", "█"} < set(line)


def test_curves_share_their_axes_and_a_step_computed_again_counts_once() -> None:
    long = [Point("loss", 4.0 - step, float(step)) for step in range(5)]
    short = [Point("loss", 9.0, 0.0), Point("loss", 2.0, 0.0), Point("loss", float("nan"), 1.0)]
    title, first, second, third = comparison.curves("loss", {"long": long, "short": short, "none": []})
    assert title == "loss: 0 to 4, steps 0 to 4"
    assert first == f"long   {'█' * 12}{'▇' * 12}{'▅' * 12}{'▃' * 11}▁  last 0, 0 to 4"
    assert second == f"short  ▅{' ' * 47}  last 2, 2 to 2"
    assert third == "none   no values"


class _Output:
    def __init__(self) -> None:
        self.text = self.errors = ""

    def out(self, text: str) -> None:
        self.text += text

    def err(self, text: str) -> None:
        self.errors += text

    error = err


def _compare(*words: str) -> tuple[int, _Output]:
    parser = ArgumentParser()
    compare.add_arguments(parser)
    output = _Output()
    return compare.run(parser.parse_args(list(words)), output), output


def test_a_run_has_one_colour_and_one_label_in_all_diagrams_of_a_page() -> None:
    points = {"a": [Point("acc", 1.0), Point("loss", 1.0)], "b": [Point("loss", 2.0)]}
    page = curve_page.page(points)
    curves = json.JSONDecoder().raw_decode(page[page.index('[{"legendgroup"') :])[0]
    described = [(curve["name"], curve["line"]["color"], curve["showlegend"]) for curve in curves]
    first, second = described[0][1], described[2][1]
    assert described == [("a", first, True), ("a", first, False), ("b", second, True)]
    assert first != second


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPRITZ_HOME", str(tmp_path))
    monkeypatch.delenv("SPRITZ_RUN_STORE", raising=False)
    store = Store(tmp_path)
    for number, (rate, version) in enumerate((("0.1", "2.0"), ("0.3", "2.1"), ("0.2", "2.1")), 1):
        directory = tmp_path / "runs" / f"t-{number}"
        directory.mkdir(parents=True)
        run = Run(
            name=f"t-{number}", user=submission.user(), created_at=float(number), group="g" if number > 1 else "",
            command=["python", "t.py", "--lr", rate],
            code={"commit": "c" * 40, "tree": str(number) * 40, "dirty": True, "root": "/", "directory": "."},
            surroundings={"python": {"python": "3.12", "packages": [f"torch=={version}", "numpy==2"]}},
        )  # fmt: skip
        record.write(directory, run)
        (directory / "metrics.jsonl").write_text(
            "".join(f'{{"step": {step}, "loss": {step * number}}}\n' for step in (1, 2))
        )
        store.add([(run, str(directory))])
        store.change(run.name, run.user, state="COMPLETED", metrics=f'{{"loss": {2 * number}}}')
    store.close()
    return tmp_path


def test_the_table_has_what_differs(home: Path) -> None:
    status, output = _compare("t-1", "--group", "g", "--sort", "lr:desc")
    assert status == 0
    lines = output.text.splitlines()
    assert lines[0].split() == ["RUN", "STATE", "TIME", "lr", "code", "torch", "loss"]
    assert [line.split()[0] for line in lines[1:]] == ["t-2", "t-3", "t-1"]
    assert lines[3].split() == ["t-1", "COMPLETED", "-", "0.1", "cccccccc+11111111", "2.0", "2"]


def test_a_metric_with_a_line_break_in_its_name_breaks_no_table() -> None:
    runs = [comparison.Run(name, "COMPLETED", 1.0, {}, {"a\nb": 2.0}) for name in "xy"]
    assert len(compare.table(runs, comparison.columns(runs)).splitlines()) == 3


def test_columns_are_chosen_by_name_and_an_unknown_name_is_an_error(home: Path) -> None:
    status, output = _compare("t-1", "t-2", "--columns", "num*,lr")
    assert status == 0
    assert output.text.splitlines()[0].split()[3:] == ["numpy", "lr"]
    status, output = _compare("t-1", "t-2", "--columns", "torhc")
    assert (status, output.text) == (2, "")
    assert "did you mean torch?" in output.errors
    for words in (("t-1",), ("t-1", "t-1"), ("t-1", "t-2", "--sort", "lr:down"), ("t-1", "t-2", "--sort", "xyz")):
        assert _compare(*words)[0] == 2
    assert _compare("--group", "nothing")[0] == 1


def test_curves_are_drawn_from_the_metrics_files(home: Path) -> None:
    status, output = _compare("t-1", "t-3", "--plot", "loss")
    assert status == 0
    assert output.text.splitlines()[0] == "loss: 1 to 6, steps 1 to 2"
    assert output.text.splitlines()[2].endswith("last 6, 3 to 6")
    page = home / "page.html"
    assert _compare("t-1", "t-3", "--html", str(page))[0] == 0
    assert '"name":"t-3"' in page.read_text()
