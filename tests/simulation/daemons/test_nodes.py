"""The real slurmd on simulated machines: jobs run, and survive what happens to daemons and machines."""

from __future__ import annotations

import errno

import pytest

from spritz.model.commands.step import CreateStep, StepCreated
from spritz.model.ids import STEP_BATCH
from spritz.model.step import StepSpec
from spritz.sim.daemons.disk import renew_disk
from spritz.sim.daemons.history import Began, Booted, Ended
from tests.simulation.daemons.apart import apart
from tests.simulation.daemons.cluster import Cluster


def _runs_once(seed: int) -> list[str]:
    cluster = Cluster(seed)
    cluster.world.run(5)
    job = cluster.submit("seconds=5 exit=3")
    cluster.wait(lambda: cluster.of(job, Ended))
    cluster.world.run(20)
    assert len(cluster.of(job, Began)) == 1
    (ended,) = cluster.of(job, Ended)
    assert (ended.exit_code, ended.signal) == (3, 0)
    cluster.check()
    cluster.close()
    return cluster.lines()


def test_a_batch_job_runs_once_in_virtual_time() -> None:
    apart(_runs_once, 1)


def _daemon_dies(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    job = cluster.submit("seconds=30")
    cluster.wait(lambda: cluster.of(job, Began))
    cluster.daemons["n1"].kill()
    cluster.world.run(10)
    assert cluster.daemons["n1"].starts == 2
    assert cluster.state(job) == "RUNNING"
    cluster.ends(job, "COMPLETED")
    cluster.check()
    cluster.close()


def test_a_step_is_adopted_by_the_next_daemon() -> None:
    apart(_daemon_dies, 2)


def _daemon_away_at_the_end(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    job = cluster.submit("seconds=5 exit=7")
    cluster.wait(lambda: cluster.of(job, Began))
    daemon = cluster.daemons["n1"]
    daemon.stop()
    cluster.wait(lambda: cluster.of(job, Ended))
    cluster.world.run(10)
    daemon.start()
    cluster.ends(job, "FAILED")
    cluster.check()
    cluster.close()


def test_a_result_waits_in_the_spool_for_the_next_daemon() -> None:
    apart(_daemon_away_at_the_end, 3)


def _controller_dies(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    job = cluster.submit("seconds=20")
    cluster.wait(lambda: cluster.of(job, Began))
    cluster.controller.kill()
    renew_disk(cluster.root / "ctl" / "state")
    cluster.world.run(10)
    assert cluster.state(job) == "RUNNING"
    cluster.ends(job, "COMPLETED")
    assert len(cluster.of(job, Began)) == 1
    cluster.check()
    cluster.close()


def test_a_job_outlives_a_killed_controller() -> None:
    apart(_controller_dies, 4)


def _power_is_lost(seed: int, requeue: bool) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    job = cluster.submit("seconds=60", requeue=requeue)
    cluster.wait(lambda: cluster.of(job, Began))
    cluster.world.run(3)
    cluster.lose_power("n1", 20)
    cluster.ends(job, "COMPLETED", "NODE_FAIL", seconds=600)
    assert cluster.state(job) == ("COMPLETED" if requeue else "NODE_FAIL")
    assert [entry.lost for entry in cluster.of(job, Ended)] == ([True, False] if requeue else [True])
    assert [entry.node for entry in cluster.history.entries if isinstance(entry, Booted)] == ["n1"]
    cluster.check()
    cluster.close()


@pytest.mark.parametrize("requeue", [True, False])
def test_a_job_of_a_machine_that_loses_power_ends_as_it_was_submitted(requeue: bool) -> None:
    for seed in range(5, 8):
        apart(_power_is_lost, seed, requeue)


def _spool_is_full(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    first = cluster.submit("seconds=20")
    cluster.wait(lambda: cluster.of(first, Began))
    cluster.machines["n1"].files.error = errno.ENOSPC
    second = cluster.submit("seconds=5", node_list=("n1",), memory_mib_per_node=100)
    cluster.ends(first, "COMPLETED")
    cluster.ends(second, "FAILED", "COMPLETED", "PENDING")
    cluster.check()
    cluster.close()


def test_a_result_that_a_full_spool_cannot_take_is_told_all_the_same() -> None:
    apart(_spool_is_full, 9)


def _wide_step(seed: int) -> None:
    cluster = Cluster(seed, nodes=7, more="TreeWidth=2")
    cluster.world.run(5)
    job = cluster.submit("seconds=30", nodes_min=7, nodes_max=7, nodes_given=True)
    cluster.wait(lambda: cluster.of(job, Began))
    spec = StepSpec(name="wide", argv=("sim", "seconds=4", "fail_node=n6"), tasks=7, nodes_min=7)
    step = cluster.user(lambda channel: channel.call(CreateStep(job_id=job, spec=spec), StepCreated))
    cluster.wait(lambda: len(cluster.of(job, Ended)) == 8)
    ends = {entry.node: entry.exit_code for entry in cluster.of(job, Ended) if entry.step_id != STEP_BATCH}
    assert ends == {f"n{number}": int(number == 6) for number in range(1, 8)}
    tasks = [rank for entry in cluster.of(job, Began) if entry.step_id == 0 for rank in entry.task_ids]
    assert sorted(tasks) == list(range(7))
    assert step.step.step_id == 0
    cluster.ends(job, "COMPLETED")
    cluster.check()
    cluster.close()


def test_a_step_is_launched_through_a_tree_of_nodes() -> None:
    apart(_wide_step, 10)


def _story(seed: int) -> list[str]:
    cluster = Cluster(seed, nodes=4, more="TreeWidth=2")
    cluster.world.run(5)
    jobs = [cluster.submit(f"seconds={seconds}", memory_mib_per_node=900) for seconds in range(3, 15)]
    cluster.world.run(4)
    cluster.daemons["n2"].kill()
    cluster.machines["n3"].kill_supervisor()
    cluster.machines["n4"].hang(20)
    cluster.lose_power("n1", 5)
    for job in jobs:
        cluster.ends(job, "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", seconds=900)
    cluster.check()
    cluster.close()
    return cluster.lines()


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = apart(_story, 11), apart(_story, 11)
    assert first == second
    assert first != apart(_story, 12)
