"""Preemption and time slices with real daemons and processes. Source: slurm.conf(5) PreemptMode, GraceTime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.commands import run

MakeCluster = Callable[..., Cluster]
HOLD = "touch began.$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}; exec sleep 1000"
COUNT = "exec 3>>count.$SLURM_JOB_ID; while :; do echo x >&3; sleep 0.05; done"


def cluster_of(make_cluster: MakeCluster, mode: str, *, low: str = "", both: str = "", extra: str = "") -> Cluster:
    """Two nodes of two CPUs; jobs of high may preempt those of low."""
    return make_cluster(
        nodes=2,
        cpus=2,
        extra=f"PreemptType=preempt/partition_prio\nPreemptMode={mode}\nDefMemPerCPU=10\n{extra}",
        partition_lines=(
            f"PartitionName=low Nodes=ALL Default=YES PriorityTier=1 {both} {low}\n"
            f"PartitionName=high Nodes=ALL PriorityTier=10 {both}"
        ),
    ).start()


def submit(cluster: Cluster, script: str, partition: str, tasks: int, **fields: object) -> int:
    return cluster.submit(script, partitions=(partition,), tasks=tasks, tasks_given=True, **fields)


def test_a_lower_job_is_requeued_and_the_higher_one_starts_on_its_nodes(make_cluster: MakeCluster) -> None:
    cluster = cluster_of(make_cluster, "REQUEUE")
    low = submit(cluster, HOLD, "low", 4, nodes_min=2)
    until(lambda: (cluster.work / f"began.{low}.0").exists(), "the lower job runs")
    high = submit(cluster, HOLD, "high", 2)
    cluster.wait_state(high, "RUNNING")
    job = cluster.job(low)
    assert (job.state.value, job.restart_count) == ("PENDING", 1)
    until(lambda: "DUE TO PREEMPTION" in cluster.output(low), "the job is told why")
    until(lambda: "job.preempted" in cluster.controller_log(), "the administrator can read of it")
    cluster.cancel(high)
    cluster.wait_state(low, "RUNNING", seconds=60)
    until(lambda: (cluster.work / f"began.{low}.1").exists(), "it runs again, and knows that it does")


def test_a_job_that_may_not_queue_again_is_cancelled(make_cluster: MakeCluster) -> None:
    cluster = cluster_of(make_cluster, "REQUEUE")
    low = submit(cluster, HOLD, "low", 4, requeue=False)
    cluster.wait_state(low, "RUNNING")
    high = submit(cluster, "true", "high", 2)
    job = cluster.wait_state(low, "PREEMPTED")
    assert job.exit_status == 15
    cluster.wait_state(high, "COMPLETED")


def test_a_grace_time_lets_steps_clean_up(make_cluster: MakeCluster) -> None:
    """The warning goes to the steps; the script goes on until it ends by itself, and the job is queued again."""
    cluster = cluster_of(make_cluster, "REQUEUE", low="GraceTime=1000")
    script = "touch began; while ! test -e warned; do sleep 0.05; done; exit 3"
    low = submit(cluster, script, "low", 4)
    until(lambda: (cluster.work / "began").exists(), "it runs")
    high = submit(cluster, "true", "high", 4)
    until(lambda: cluster.job(low).preempted_at, "the lower job is in its grace time")
    assert cluster.job(low).state.value == "RUNNING"
    shown = run(cluster, "squeue", "-h", "-j", str(low), "-o", "%e").stdout
    assert shown[:2] == b"20", "the end of its grace time"
    assert cluster.job(high).state.value == "PENDING"
    (cluster.work / "warned").touch()
    cluster.wait_state(high, "COMPLETED")
    assert cluster.job(low).restart_count == 1


@pytest.mark.slow
def test_the_end_of_the_grace_time_ends_the_job(make_cluster: MakeCluster) -> None:
    cluster = cluster_of(make_cluster, "CANCEL", low="GraceTime=1")
    low = submit(cluster, "trap '' TERM; touch began; while :; do sleep 1; done", "low", 4)
    until(lambda: (cluster.work / "began").exists(), "it runs")
    high = submit(cluster, "true", "high", 4)
    cluster.wait_state(low, "PREEMPTED")
    cluster.wait_state(high, "COMPLETED")


def stopped(pids: list[int]) -> bool:
    """There are such processes, and all of them stand still."""
    try:
        states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids]
    except OSError:
        return False  # one has just ended
    return bool(states) and set(states) == {"T"}


def test_a_suspended_job_stands_still_until_the_higher_one_has_ended(make_cluster: MakeCluster) -> None:
    cluster = cluster_of(make_cluster, "SUSPEND,GANG", both="OverSubscribe=FORCE:1")
    low = submit(cluster, COUNT, "low", 4)
    count = cluster.work / f"count.{low}"
    until(lambda: count.exists() and count.stat().st_size > 4, "it counts")
    high = submit(cluster, "while ! test -e go; do sleep 0.05; done", "high", 2)
    cluster.wait_state(high, "RUNNING")
    assert cluster.job(low).state.value == "SUSPENDED"
    until(lambda: stopped(cluster.job_processes(low)), "its processes are stopped")
    before = count.stat().st_size
    (cluster.work / "go").touch()
    cluster.wait_state(low, "RUNNING")
    until(lambda: count.stat().st_size > before, "it goes on counting")
    cluster.cancel(low)
    cluster.wait_state(low, "CANCELLED")


@pytest.mark.slow
def test_jobs_on_the_same_cpus_take_turns(make_cluster: MakeCluster) -> None:
    cluster = cluster_of(make_cluster, "SUSPEND,GANG", low="OverSubscribe=FORCE:2", extra="SchedulerTimeSlice=5")
    jobs = [submit(cluster, COUNT, "low", 2, node_list=("n1",)) for _ in range(2)]
    third = submit(cluster, "true", "low", 2, node_list=("n1",))

    def states() -> list[str]:
        return sorted(cluster.job(job).state.value for job in jobs)

    until(lambda: states() == ["RUNNING", "SUSPENDED"], "one runs, one waits for its turn")
    assert cluster.job(third).state.value == "PENDING", "three would be one too many"
    first = next(job for job in jobs if cluster.job(job).state.value == "RUNNING")
    cluster.wait_state(first, "SUSPENDED")
    assert states() == ["RUNNING", "SUSPENDED"]
    until(lambda: all((cluster.work / f"count.{job}").exists() for job in jobs), "both have run")
    cluster.cancel(first)
    cluster.wait_all_ended([first])
    other = next(job for job in jobs if job != first)
    cluster.wait_state(other, "RUNNING")
