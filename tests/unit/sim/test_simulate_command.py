"""`spritz simulate` as people and programs call it."""

from __future__ import annotations

import json
import sys
from io import StringIO
from typing import TYPE_CHECKING

import pytest

from spritz.cli.call.context import Context
from spritz.cli.call.entry import call
from spritz.cli.spritz import main
from spritz.extras import pip_install

if TYPE_CHECKING:
    from pathlib import Path

TRACE = """\
; MaxProcs: 10
1 0 -1 100 6 -1 -1 6 100 -1 1 7 1 -1 0 -1 -1 -1
2 1 -1 50 6 -1 -1 6 50 -1 1 7 1 -1 0 -1 -1 -1
3 2 -1 10 2 -1 -1 2 10 -1 1 8 1 -1 0 -1 -1 -1
4 -9 -1 10 2 -1 -1 2 10 -1 1 8 1 -1 0 -1 -1 -1
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "small.swf"
    path.write_text(TRACE)
    return str(path)


def simulate(*words: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    context = Context("spritz", {}, "/", StringIO(), out, err)
    status = call(main, ["simulate", *words], context)
    return status, out.getvalue(), err.getvalue()


def test_json_has_what_programs_rely_on(trace: str, tmp_path: Path) -> None:
    starts = tmp_path / "starts.csv"
    status, out, err = simulate(trace, "--processors", "10", "--policy", "fcfs", "--json", "--starts", str(starts))
    assert status == 0
    figures = json.loads(out)
    assert figures["jobs"] == 3
    assert figures["mean_wait_seconds"] == pytest.approx((0 + 99 + 98) / 3)
    assert figures["mean_bounded_slowdown"] == pytest.approx((1 + 149 / 50 + 108 / 10) / 3)
    assert figures["makespan_seconds"] == 150
    assert figures["utilization"] == pytest.approx((600 + 300 + 20) / 1500)
    assert figures["events"] == 6
    assert figures["elapsed_seconds"] >= 0
    assert starts.read_text() == "job,start_seconds\n1,0\n2,100\n3,100\n"
    assert "skipped 1 row: submitted at a negative time" in err


def test_people_get_a_table(trace: str) -> None:
    status, out, _ = simulate(trace, "--by", "user")
    assert status == 0
    assert out.startswith("easy on 10 processors\n")
    assert "mean_bounded_slowdown" in out
    assert "CPU hours" in out


@pytest.mark.parametrize("word", ["0", "-3", "ten", "1.5"])
def test_a_wrong_number_of_processors_is_refused(trace: str, word: str) -> None:
    status, out, err = simulate(trace, f"--processors={word}")
    assert (status, out) == (2, "")
    assert "--processors" in err


def test_errors_are_one_line(tmp_path: Path) -> None:
    status, out, err = simulate(str(tmp_path / "absent.swf"), "--processors", "4")
    assert (status, out) == (1, "")
    assert err.splitlines() == [f"spritz: error: {tmp_path}/absent.swf: No such file or directory"]


@pytest.mark.parametrize(
    ("option", "file", "why"),
    [
        ("--starts", "no/where.csv", "No such file or directory"),
        ("--starts", "", "Is a directory"),
        ("--plot", "course.png", "--plot needs matplotlib"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_simulated(
    trace: str, tmp_path: Path, option: str, file: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spritz.sim.files.find_spec", lambda name: None)
    status, out, err = simulate(trace, option, str(tmp_path / file))
    assert (status, out) == (1, "")
    assert why in err.splitlines()[0]


def test_a_picture_has_a_form_that_is_known(trace: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    _, out, err = simulate(trace, "--plot", str(tmp_path / "course.txt"))
    assert (out, "--plot writes png, pdf, svg" in err) == ("", True)


@pytest.mark.parametrize("words", [["TRACE"], ["--gang", "x.csv"], ["--pods", "x.csv", "--node-list", "y.csv"]])
def test_without_the_studies_the_distribution_that_has_them_is_named(
    words: list[str], trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("spritz_testing.studies")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "spritz_testing", None)
    status, out, err = simulate(*(trace if word == "TRACE" else word for word in words))
    assert (status, out) == (1, "")
    assert err.splitlines()[0].endswith("is not part of Spritz")
    assert "pip install spritz-testing" in err


def test_a_cluster_needs_the_controllers_packages(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spritz.runtime.daemon.daemon_command.missing", lambda extra: "numpy")
    status, out, err = simulate(trace, "--config", "slurm.conf")
    assert (status, out) == (1, "")
    assert err.startswith("spritz: error: spritz simulate --config needs numpy, not installed here\n")
    assert pip_install("controller") in err
