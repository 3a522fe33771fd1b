"""`scontrol explain` on real daemons: what it says is what then happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from spritz.model.job.record import Dependency
from tests.e2e.cluster import Cluster, until
from tests.e2e.test_looking_commands import out, run

PARTITIONS = (
    "PartitionName=main Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP\n"
    "PartitionName=side Nodes=n4 MaxTime=INFINITE State=UP"
)


@pytest.fixture
def busy(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Four nodes; jobs 1, 2 and 3 fill the three of partition main for 10, 20 and 30 minutes; n4 is idle."""
    cluster = make_cluster(nodes=4, partition_lines=PARTITIONS).start()
    for number in (1, 2, 3):
        job = cluster.submit("sleep 600", nodes_min=1, tasks=8, tasks_given=True, time_limit_minutes=10 * number)
        assert job == number
        cluster.wait_state(job, "RUNNING")
    return cluster


def explained(cluster: Cluster, job: int | str) -> dict[str, Any]:
    """The one explanation."""
    (found,) = json.loads(out(cluster, "scontrol", "--json", "explain", str(job)))["explanations"]
    assert isinstance(found, dict)
    return found


@pytest.mark.timeout(240)
def test_blocking_jobs_are_named_and_once_they_have_ended_the_job_starts(busy: Cluster) -> None:
    job = busy.submit("sleep 600", name="wide", nodes_min=2, tasks=16, tasks_given=True)
    told = explained(busy, job)
    assert (told["verdict"], told["reason"], told["summary"]) == (
        "waits", "Resources", "It is next in line; CPUs are short.",
    )  # fmt: skip
    assert [item["job"] for item in told["blockers"]] == ["1", "2"]
    assert {test["test"]: test["count"] for test in told["partitions"][0]["tests"]} == {"partition": 1, "busy": 3}
    expected = told["expected"]
    assert (expected["sure"], expected["nodes"]) == ("promise", "n[1-2]")
    assert abs(expected["start_at"] - busy.job(2).ends_at) < 1
    # squeue tells the same.
    until(lambda: busy.job(job).expected_start_at > 0, "a full cycle has run")
    assert abs(busy.job(job).expected_start_at - expected["start_at"]) < 1
    busy.cancel(1)
    busy.wait_state(1, "CANCELLED")
    assert [item["job"] for item in explained(busy, job)["blockers"]] == ["2"]
    busy.cancel(2)
    assert busy.wait_state(job, "RUNNING").allocation is not None


@pytest.mark.timeout(240)
def test_what_would_start_sooner_does_once_the_job_is_updated_as_it_says(busy: Cluster) -> None:
    ahead = busy.submit("true", nodes_min=3, time_limit_minutes=100)
    job = busy.submit("sleep 600", name="train", nodes_min=1, time_limit_minutes=60)
    text = out(busy, "scontrol", "explain", str(job))
    assert text.startswith(f"Job {job} (train) of ")
    assert "  1 job wants the same nodes and goes first; " in text
    assert f"{ahead:>15}  " in text, "who is ahead"
    told = explained(busy, job)
    (change,) = [item for item in told["alternatives"] if item["now"]]
    assert change["update"] == f"JobId={job} Partition=side"
    assert f"scontrol update {change['update']}" in text
    out(busy, "scontrol", "update", *change["update"].split())
    busy.wait_state(job, "RUNNING")


@pytest.mark.timeout(240)
def test_every_kind_of_job_is_told_of_in_its_own_words(busy: Cluster) -> None:
    held = busy.submit("true", hold=True)
    array = busy.submit("true", array="0-4%1", nodes_min=1, tasks=8, tasks_given=True)
    assert "runs" in explained(busy, 1)["verdict"]
    assert out(busy, "scontrol", "explain", "1").startswith("Job 1 (job) of ")
    assert explained(busy, held)["summary"] == f"Held: `scontrol release {held}` lets it go on."
    assert explained(busy, held)["once_free"]["sure"] == "promise"
    assert explained(busy, f"{array}_[3]")["job"] == f"{array}_[0-4]"
    busy.cancel(held)
    assert "never ran: CANCELLED" in out(busy, "scontrol", "explain", str(held))
    # Several at once, by the other name of the command.
    both = out(busy, "spritz", "why", "1", str(array))
    assert both.count("Job ") >= 2
    missing = run(busy, "scontrol", "explain", "999")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "slurm_load_jobs error: Invalid job id specified\n"
    wrong = run(busy, "scontrol", "explain", "x")
    assert (wrong.returncode, wrong.stderr) == (1, "scontrol_print_job error: Invalid job id specified\n")
    assert run(busy, "scontrol", "explain").stderr == "too few arguments for keyword:explain\n"


@pytest.mark.timeout(240)
def test_lines_fit_the_width_that_is_asked_for_and_have_no_colour(busy: Cluster) -> None:
    busy.submit("true", nodes_min=3, time_limit_minutes=100)
    job = busy.submit("true", nodes_min=1, tasks=8, tasks_given=True, time_limit_minutes=60)
    for width in (60, 80, 140):
        text = run(busy, "scontrol", "explain", str(job), COLUMNS=str(width)).stdout
        assert max(map(len, text.splitlines())) <= width
        assert "\033" not in text


@pytest.mark.timeout(240)
def test_squeue_has_the_start_of_a_job_that_waits_for_another_worked_out(busy: Cluster) -> None:
    job = busy.submit("true", nodes_min=1, dependencies=(Dependency(kind="afterany", job_id=1),))
    assert out(busy, "squeue", "--start", "-h", "-j", str(job), "-o", "%S") != "N/A\n"
    assert abs(busy.job(job).expected_start_at - busy.job(1).ends_at) < 1
