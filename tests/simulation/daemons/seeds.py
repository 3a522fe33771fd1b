"""The seeds that CI runs: each group once, whichever test or worker wants its results first."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]


class Group(NamedTuple):
    """Seeds of one size that run one after the other."""

    seeds: str
    scale: str = "small"
    parts: str = ""

    def __str__(self) -> str:
        return f"{self.seeds} {self.scale} {self.parts or '-'}"


#: Fresh seeds: so many as take about 45 seconds of one CPU. Groups of about the same size share well among workers.
FRESH = (
    Group("31-34"),
    Group("101-101", parts="accounting"),
    Group("7-7", "every", parts="accounting"),
    Group("10-10", "every", parts="accounting"),
    Group("1-1", parts="standby"),
)


class Known(NamedTuple):
    """A line of seeds.txt."""

    seed: str
    scale: str
    parts: str
    why: str


def known() -> list[Known]:
    """The table of seeds that failed once."""
    lines = (line.split(maxsplit=3) for line in (_HERE / "seeds.txt").read_text().splitlines())
    return [Known(*words) for words in lines if words and not words[0].startswith("#")]


def simulate(*arguments: str, output: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line, with its result in a file."""
    command = [sys.executable, "-m", "spritz_testing.daemons", *arguments, "--jobs", "1", "--no-shrink"]
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT / 'testing/src'}", "PYTHONHASHSEED": "0"}
    return subprocess.run(
        [*command, "--json", str(output)],
        cwd=output.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )


def result_of(group: Group, factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `--json` says of a group, from the run that another test or worker has made, if there is one."""
    result = _result_of(group, factory, fcntl.LOCK_EX)
    assert result is not None, "the lock was waited for"
    return result


def results(groups: Sequence[Group], factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """As `result_of`, for several: what another worker runs at the moment is left for the end, and not waited for."""
    found = [_result_of(group, factory, fcntl.LOCK_EX | fcntl.LOCK_NB) for group in groups]
    return [result or result_of(group, factory) for group, result in zip(groups, found, strict=True)]


def _result_of(group: Group, factory: pytest.TempPathFactory, how: int) -> dict[str, Any] | None:
    """None if the lock is not to be waited for, and another worker has it."""
    directory = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent
    output = directory / f"seeds {group}.json".replace(" ", "_").replace(",", "+")
    with open(output.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, how)
        except BlockingIOError:
            return None
        if not output.exists():
            parts = ("--parts", group.parts) if group.parts else ()
            done = simulate("--seeds", group.seeds, "--scale", group.scale, *parts, output=output)
            assert output.exists(), done.stdout + done.stderr
            output.with_suffix(".txt").write_text(done.stdout)
    result: dict[str, Any] = json.loads(output.read_text())
    result["printed"] = output.with_suffix(".txt").read_text()
    return result
