"""The real daemons under faults drawn from a seed: some fresh seeds, and those that failed once.

A failure prints its seed and what happened; `python -m spritz_testing.daemons --seed S` makes it smaller.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.daemons.seeds import FRESH, Group, Known, known, result_of, simulate


@pytest.mark.parametrize("group", FRESH, ids=str)
def test_fresh_seeds_violate_no_rule(group: Group, tmp_path_factory: pytest.TempPathFactory) -> None:
    result = result_of(group, tmp_path_factory)
    assert not result["failures"], result["printed"]
    assert result["faults"] > 0


@pytest.mark.parametrize("line", known(), ids=lambda line: f"{line.seed}-{line.scale}-{line.parts}")
def test_seeds_that_failed_once_violate_no_rule(line: Known, tmp_path: Path) -> None:
    if line.seed.startswith("plans/"):
        arguments = ["--replay", str(Path(__file__).parent / line.seed)]
    else:
        arguments = ["--seed", line.seed, "--scale", line.scale]
        arguments += [] if line.parts == "-" else ["--parts", line.parts]
    done = simulate(*arguments, output=tmp_path / "result.json")
    assert done.returncode == 0, f"{line.why}\n{done.stdout}{done.stderr}"
