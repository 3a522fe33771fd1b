"""`python -m spritz_testing.daemons` as its user calls it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spritz_testing.daemons.main import parser

_ROOT = Path(__file__).parents[3]


def call(
    *arguments: str, directory: Path, module: str = "spritz_testing.daemons", hash_seed: int = 17
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT / 'testing/src'}:{_ROOT}",
        "PYTHONHASHSEED": str(hash_seed),
    }
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


def test_seeds_are_a_number_or_a_range() -> None:
    assert parser().parse_args(["--seeds", "3"]).seeds == range(1, 4)
    assert parser().parse_args(["--seeds", "5-7"]).seeds == range(5, 8)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seeds", "many"],
        ["--seeds", "7-5"],
        ["--parts", "roof"],
        ["--scale", "huge"],
        ["--jobs", "0"],
        ["--seed", "1", "--seeds", "2"],
    ],
)
def test_mistakes_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parser().parse_args(arguments)
    assert raised.value.code == 2


def test_a_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    done = call("--replay", "run.json", directory=tmp_path)
    assert done.returncode == 2
    assert "run.json" in done.stderr


def test_a_failing_run_is_written_and_replays_to_the_byte(tmp_path: Path) -> None:
    violating = {"directory": tmp_path, "module": "tests.simulation.daemons.violating", "hash_seed": 0}
    done = call("--seed", "1", "--scale", "tiny", "--json", "out.json", **violating)  # type: ignore[arg-type]
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert (report["seed"], report["seeds"], report["rule"]) == (1, 1, "no fault happens")
    (action,) = report["replay"]["plan"]["actions"]
    assert action["kind"] == report["replay"]["text"]
    assert re.search(r"^\$ .* fault: ", done.stdout, re.MULTILINE)
    again = call("--replay", "build/simulate-1.json", **violating)  # type: ignore[arg-type]
    assert again.returncode == 1
    assert "The same, to the byte." in again.stdout


def test_the_hash_seed_is_set_for_a_new_start(tmp_path: Path) -> None:
    """Sets of texts have the same order in every run, whatever the environment says."""
    assert call("--help", directory=tmp_path).returncode == 0
