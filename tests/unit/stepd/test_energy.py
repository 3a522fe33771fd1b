"""Energy by the processors' counters. Source: Linux power capping framework."""

from __future__ import annotations

from pathlib import Path

from spritz.model import step_usage
from spritz.model.accounting import StepRecord
from spritz.model.reports import Usage
from spritz.stepd.account import Account
from spritz.stepd.energy import Rapl


def put(root: Path, name: str, microjoules: int, most: int = 1_000_000_000) -> None:
    directory = root / name
    directory.mkdir(exist_ok=True)
    (directory / "energy_uj").write_text(f"{microjoules}\n")
    (directory / "max_energy_range_uj").write_text(f"{most}\n")


def test_sockets_are_added_up_and_their_parts_are_not(tmp_path: Path) -> None:
    for name in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"):
        put(tmp_path, name, 5_000_000)
    counters = Rapl(str(tmp_path))
    assert (counters.known, counters.read()) == (True, 0)
    put(tmp_path, "intel-rapl:0", 25_000_000)
    put(tmp_path, "intel-rapl:0:0", 900_000_000)
    put(tmp_path, "intel-rapl:1", 6_000_000)
    assert counters.read() == 21


def test_a_counter_that_has_run_over_goes_on(tmp_path: Path) -> None:
    put(tmp_path, "intel-rapl:0", 990_000_000)
    counters = Rapl(str(tmp_path))
    put(tmp_path, "intel-rapl:0", 20_000_000)
    assert counters.read() == 30


def test_where_nothing_counts_nothing_is_known(tmp_path: Path) -> None:
    assert not Rapl(str(tmp_path / "none")).known
    account = Account(energy=Rapl(str(tmp_path / "none")))
    assert account.usage().energy_joules == 0


def test_what_nodes_used_is_added_up(tmp_path: Path) -> None:
    step = StepRecord(number=1, step_id=0, job_id=1, node_count=2, tasks=2)
    for node, joules in (("n1", 100), ("n2", 50)):
        step_usage.add(step, node, Usage(cpu_user_seconds=1.0, energy_joules=joules))
    assert step_usage.parse(step.usage_in_tot)["energy"] == "150"
    assert step_usage.parse(step.usage_in_max_node)["energy"] == "n1"
