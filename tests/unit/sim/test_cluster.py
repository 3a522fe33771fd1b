"""Whole clusters: the production core and cycle on virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spritz.config.load import load
from spritz.sim.cluster.requests import arrivals
from spritz.sim.cluster.world import replay_cluster
from spritz.sim.trace.workload import Workload
from spritz_testing.studies.processors.policies import run_policy
from tests.unit.sim.test_processors import jobs
from tests.unit.sim.test_simulate_command import simulate

if TYPE_CHECKING:
    from spritz.sim.cluster.world import Replay

CONF = """\
ClusterName=sim
SlurmctldHost=localhost
SlurmUser=root
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
PriorityType=priority/basic
{more}
NodeName=n[1-10] CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n[1-10] Default=YES State=UP MaxTime=INFINITE
"""

EASY = "SchedulerParameters=bf_policy=easy,bf_window=43200"

#: submit, run, limit (whole minutes), processors
ROWS = [
    (0, 600, 600, 6),
    (1, 300, 300, 8),
    (2, 120, 540, 4),
    (3, 900, 900, 2),
    (10, 60, 60, 4),
    (20, 45, 120, 10),
    (700, 60, 600, 3),
    (701, 500, 600, 7),
    (702, 90, 120, 9),
    (703, 30, 60, 1),
]


def conf(directory: Path, more: str = EASY, name: str = "slurm.conf") -> str:
    path = directory / name
    path.write_text(CONF.format(more=more))
    return str(path)


def run(path: str, workload: Workload) -> Replay:
    config = load(path, check_users=False)
    return replay_cluster(config, arrivals(workload, config))


def test_production_easy_starts_jobs_when_the_fast_replay_does(tmp_path: Path) -> None:
    workload = jobs(*ROWS)
    replay = run(conf(tmp_path), workload)
    assert replay.start == run_policy(workload, 10, "easy").start
    assert not replay.refused
    assert not replay.waiting


def test_production_never_allocates_more_than_there_is(tmp_path: Path) -> None:
    workload = jobs(*ROWS)
    for more in (EASY, ""):
        start = run(conf(tmp_path, more), workload).start
        for now in start:
            running = (
                size
                for begun, ran, size in zip(start, workload.run, workload.processors, strict=True)
                if begun <= now < begun + ran
            )
            assert sum(running) <= 10


@pytest.mark.parametrize("option", ["bf_policy=easy", "bf_predict", "bf_predict=slowdown"])
def test_reserved_starts_are_counted_and_kept(tmp_path: Path, option: str) -> None:
    replay = run(conf(tmp_path, f"SchedulerParameters={option}"), jobs(*ROWS))
    assert replay.reserved > 0
    assert replay.broken == 0


def test_a_start_that_a_job_of_higher_priority_put_off_is_counted(tmp_path: Path) -> None:
    more = "PriorityWeightJobSize=1000\nSchedulerParameters=bf_policy=easy"
    path = conf(tmp_path, more)
    text = Path(path).read_text().replace("priority/basic", "priority/multifactor")
    Path(path).write_text(text)
    replay = run(path, jobs((0, 600, 600, 10), (1, 60, 60, 4), (2, 600, 600, 10)))
    assert (replay.reserved, replay.broken) == (2, 1)


def test_a_job_that_no_cluster_could_run_is_refused_and_named(tmp_path: Path) -> None:
    replay = run(conf(tmp_path), jobs((0, 60, 60, 11), (1, 60, 60, 2)))
    assert list(replay.refused) == [0]
    assert replay.start == [-1.0, 1.0]


def test_a_job_runs_until_its_time_limit_and_no_longer(tmp_path: Path) -> None:
    workload = jobs((0, 60, 60, 10), (1, 60, 60, 10))
    workload.run[0] = 500.0  # a trace's rows are cut to their limits; here the core must do it
    replay = run(conf(tmp_path), workload)
    assert 60 <= replay.start[1] < 500


def test_the_command_puts_two_configurations_side_by_side(tmp_path: Path) -> None:
    trace = tmp_path / "t.swf"
    trace.write_text(
        "".join(
            f"{index} {submit} -1 {ran} {size} -1 -1 {size} {limit} -1 1 {index % 2} 1 -1 0 -1 -1 -1\n"
            for index, (submit, ran, limit, size) in enumerate(ROWS, 1)
        )
    )
    starts = tmp_path / "starts.csv"
    words = (str(trace), "--config", conf(tmp_path), "--against", conf(tmp_path, "", "b.conf"))
    status, out, err = simulate(*words, "--json", "--starts", str(starts))
    assert status == 0, err
    figures = json.loads(out)
    assert figures["jobs"] == figures["against"]["jobs"] == len(ROWS)
    assert figures["utilization"] > 0
    assert len(starts.read_text().splitlines()) == len(ROWS) + 1
    status, out, _ = simulate(*words, "--by", "user")
    assert status == 0
    assert "in use" in out
    assert out.count("CPU hours") == 2


def test_a_configuration_with_mistakes_is_refused_with_all_of_them(tmp_path: Path) -> None:
    trace = tmp_path / "t.swf"
    trace.write_text("1 0 -1 5 1 -1 -1 1 60 -1 1 1 1 -1 0 -1 -1 -1\n")
    status, _, err = simulate(str(trace), "--config", conf(tmp_path, "SelectType=select/none\nNoSuchKey=1"))
    assert status == 1
    assert "NoSuchKey" in err


@pytest.mark.parametrize("words", [("--policy", "easy"), ("--processors", "4")])
def test_options_of_the_plain_replay_are_refused_with_a_configuration(tmp_path: Path, words: tuple[str, str]) -> None:
    status, _, err = simulate("t.swf", "--config", conf(tmp_path), *words)
    assert status == 2
    assert f"{words[0]} has no meaning for --config" in err


def test_against_needs_a_configuration(tmp_path: Path) -> None:
    assert simulate("t.swf", "--against", conf(tmp_path))[0] == 2


def test_accounts_are_not_asked_for(tmp_path: Path) -> None:
    """They are in a database that a simulation does not have, and most sites enforce them."""
    enforced = run(conf(tmp_path, "AccountingStorageEnforce=associations,limits,qos"), jobs(*ROWS))
    assert not enforced.refused
    assert enforced.start == run(conf(tmp_path, ""), jobs(*ROWS)).start


def test_the_machine_of_the_trace_is_no_bound_on_a_configuration(tmp_path: Path) -> None:
    trace = tmp_path / "small.swf"
    trace.write_text("; MaxProcs: 4\n1 0 -1 100 6 -1 -1 6 100 -1 1 7 1 -1 0 -1 -1 -1\n")
    status, out, _err = simulate(str(trace), "--config", conf(tmp_path), "--json")
    assert status == 0
    assert json.loads(out)["jobs"] == 1
