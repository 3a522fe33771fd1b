"""The real slurmd on simulated machines: jobs run, and survive what happens to daemons and machines."""

from __future__ import annotations

import errno

import pytest

from spritz.model.commands.cluster import RebootNodes
from spritz.model.commands.job import Done
from spritz.model.ids import STEP_BATCH
from spritz.model.job.step import StepSpec
from spritz_testing.daemons.history import Began, Booted, Ended
from spritz_testing.daemons.node.nodes import machine_of, slurmd
from spritz_testing.daemons.node.step_clients import StepClient
from spritz_testing.daemons.system.disk import renew_disk
from spritz_testing.daemons.system.world import Process
from spritz_testing.daemons.units import Unit
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


def _supervisor_takes_its_result_along(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    machine = cluster.machines["n1"]
    machine.on_point = [lambda supervisor, point: supervisor.process.end() if point == "written" else None]
    written = cluster.submit("seconds=20", requeue=False, node_list=("n1",))
    cluster.ends(written, "COMPLETED")
    lost = cluster.submit("seconds=20", requeue=False, node_list=("n1",))
    cluster.wait(lambda: cluster.of(lost, Began))
    machine.files.error = errno.EIO
    cluster.ends(lost, "FAILED")
    assert [cluster.of(job, Ended)[0].untold for job in (written, lost)] == [False, True]
    cluster.check()
    cluster.close()


def test_a_result_that_is_nowhere_but_in_its_supervisor_dies_with_it() -> None:
    apart(_supervisor_takes_its_result_along, 9)


def _daemon_and_supervisor_die(seed: int) -> None:
    """The script ends by itself before the next daemon looks for what was left."""
    cluster = Cluster(seed)
    cluster.world.run(5)
    job = cluster.submit("seconds=10", requeue=False)
    cluster.wait(lambda: cluster.of(job, Began))
    daemon = cluster.daemons["n1"].process
    assert daemon is not None
    daemon.stop()
    assert cluster.machines["n1"].kill_supervisor()
    cluster.wait(lambda: cluster.of(job, Ended))
    daemon.go_on()
    cluster.ends(job, "FAILED")
    (ended,) = cluster.of(job, Ended)
    assert (ended.exit_code, ended.signal, ended.untold) == (0, 0, True)
    cluster.check()
    cluster.close()


def test_a_script_that_outlives_its_supervisor_is_told_as_killed() -> None:
    apart(_daemon_and_supervisor_die, 9)


def _wide_step(seed: int) -> None:
    cluster = Cluster(seed, nodes=7, more="TreeWidth=2")
    cluster.world.run(5)
    job = cluster.submit("seconds=30", nodes_min=7, nodes_max=7, nodes_given=True)
    cluster.wait(lambda: cluster.of(job, Began))
    spec = StepSpec(name="wide", argv=("sim", "seconds=4", "fail_node=n6"), tasks=7, nodes_min=7)
    step = cluster.create(job, spec)
    cluster.wait(lambda: len(cluster.of(job, Ended)) == 8)
    ends = {entry.node: entry.exit_code for entry in cluster.of(job, Ended) if entry.step_id != STEP_BATCH}
    assert ends == {f"n{number}": int(number == 6) for number in range(1, 8)}
    tasks = [rank for entry in cluster.of(job, Began) if entry.step_id == 0 for rank in entry.task_ids]
    assert sorted(tasks) == list(range(7))
    assert step.step_id == 0
    cluster.ends(job, "COMPLETED")
    cluster.check()
    cluster.close()


def test_a_step_is_launched_through_a_tree_of_nodes() -> None:
    apart(_wide_step, 10)


def _supervisor_dies(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    job = cluster.submit("seconds=60 undying=3", requeue=False)
    cluster.wait(lambda: cluster.of(job, Began))
    cluster.world.run(1)
    assert cluster.machines["n1"].kill_supervisor()
    cluster.ends(job, "FAILED", "NODE_FAIL")
    (ended,) = cluster.of(job, Ended)
    assert ended.signal == 9, "the daemon has found and killed what the supervisor left"
    cluster.check()
    cluster.close()


def test_what_a_killed_supervisor_leaves_is_killed_before_the_end_is_told() -> None:
    apart(_supervisor_dies, 13)


def _supervisor_dies_and_the_clock_is_ahead(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    job = cluster.submit("seconds=60", requeue=False)
    cluster.wait(lambda: cluster.of(job, Began))
    cluster.daemons["n1"].host.set_clock(3600.0)
    cluster.world.run(1)
    assert cluster.machines["n1"].kill_supervisor()
    cluster.ends(job, "FAILED", "NODE_FAIL")
    (ended,) = cluster.of(job, Ended)
    assert ended.signal == 9
    cluster.check()
    cluster.close()


def test_a_clock_that_is_set_forward_is_no_boot_that_ended_what_a_supervisor_left() -> None:
    apart(_supervisor_dies_and_the_clock_is_ahead, 13)


def _daemon_dies_before_it_has_told_of_a_boot(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run(30)
    job = cluster.submit("seconds=400", requeue=False, node_list=("n1",))
    cluster.wait(lambda: cluster.of(job, Began))
    cluster.world.run(30)
    daemon = cluster.daemons["n1"]
    starts = daemon.starts
    cluster.lose_power("n1", 10)
    cluster.world.network.cut("n1", "ctl", 60)
    cluster.wait(lambda: daemon.starts > starts and daemon.is_running)
    cluster.world.run(10)
    daemon.kill()
    cluster.ends(job, "FAILED", "NODE_FAIL", seconds=300)
    assert cluster.state(job) == "NODE_FAIL"
    assert daemon.starts == starts + 2
    cluster.check()
    cluster.close()


def test_a_daemon_knows_what_ended_with_the_boot_before_the_last_daemon() -> None:
    apart(_daemon_dies_before_it_has_told_of_a_boot, 5)


def _does_not_die(seed: int) -> None:
    cluster = Cluster(seed, more="UnkillableStepTimeout=20")
    cluster.world.run(5)
    job = cluster.submit("seconds=100 undying=300 ignore=15")
    cluster.wait(lambda: cluster.of(job, Began))
    cluster.cancel(job)
    cluster.ends(job, "CANCELLED")
    cluster.world.run(60)
    assert "DRAIN" in cluster.node("n1").state_names
    assert "Kill task failed" in cluster.node("n1").node.reason
    cluster.wait(lambda: cluster.of(job, Ended), 600)
    cluster.check()
    cluster.close()


def test_a_node_with_processes_that_do_not_die_is_drained() -> None:
    apart(_does_not_die, 14)


def _no_memory(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    cluster.machines["n1"].for_a_while("fork_error", errno.ENOMEM, 4.0)
    job = cluster.submit("seconds=1")
    cluster.ends(job, "COMPLETED")
    (began,) = cluster.of(job, Began)
    assert began.node == "n1"
    cluster.check()
    cluster.close()


def test_a_step_waits_for_a_machine_that_can_fork_again() -> None:
    apart(_no_memory, 15)


def _is_ill(seed: int) -> None:
    more = "HealthCheckProgram=/site/health\nHealthCheckInterval=30\nProlog=/site/prolog\nRebootProgram=/sbin/reboot"
    cluster = Cluster(seed, more=more)
    cluster.world.run(5)
    cluster.machines["n1"].illness = "a fan is broken"
    cluster.machines["n2"].programs["/site/prolog"] = (1.0, "exit status 1")
    cluster.world.run(40)
    assert cluster.node("n1").node.reason == "a fan is broken"
    job = cluster.submit("seconds=1")
    cluster.world.run(30)
    assert "DRAIN" in cluster.node("n2").state_names
    assert not cluster.of(job, Began)
    boots = cluster.machines["n3"].host.boots
    cluster.user(lambda channel: channel.call(RebootNodes(names=("n3",)), Done), uid=0)
    cluster.world.run(180)
    assert cluster.machines["n3"].host.boots == boots + 1
    assert cluster.node("n3").state_names == ("IDLE",)
    cluster.check()
    cluster.close()


def test_programs_of_the_site_drain_hold_and_reboot() -> None:
    apart(_is_ill, 16)


def _client_dies(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    job = cluster.submit("seconds=100", nodes_min=2, nodes_max=2, nodes_given=True)
    cluster.wait(lambda: cluster.of(job, Began))
    commands = [Process(cluster.controller.host, "srun", 2001) for _ in range(2)]
    clients = [StepClient(process, f"unix:@{process.pid}") for process in commands]
    for client, words in zip(clients, (("exit=3",), ("seconds=500",)), strict=True):
        spec = StepSpec(argv=("sim", *words), tasks=2, nodes_min=2, overlap=True, io_address=client.address)
        cluster.create(job, spec)
    cluster.wait(lambda: len(clients[0].ended) == 2)
    assert set(clients[0].ended.values()) == {3 << 8}
    commands[1].end()
    cluster.wait(lambda: len([entry for entry in cluster.of(job, Ended) if entry.step_id == 1]) == 2, 30)
    assert {entry.signal for entry in cluster.of(job, Ended) if entry.step_id == 1} == {15}
    cluster.check()
    cluster.close()


def test_a_step_dies_with_its_client_and_tells_it_how_tasks_end() -> None:
    apart(_client_dies, 17)


_SEVERAL = """\
NodeName=v[1-3] NodeHostname=n4 NodeAddr=10.0.1.4 Port=[7001-7003] CPUs=2 RealMemory=500 State=UNKNOWN
PartitionName=virtual Nodes=v[1-3] State=UP
"""


def _many_nodes(seed: int) -> None:
    cluster = Cluster(seed, last=_SEVERAL)
    host = cluster.world.host("n4", "10.0.1.4")
    machine = machine_of(host, cluster.history)
    unit = Unit(host, "slurmd", lambda process: slurmd(process, str(cluster.conf), "v[1-3]", cluster.history))
    unit.start()
    cluster.world.run(5)
    job = cluster.submit("seconds=30", partitions=("virtual",), nodes_min=3, nodes_max=3, nodes_given=True)
    spec = StepSpec(argv=("sim", "seconds=2"), tasks=3, nodes_min=3)
    cluster.wait(lambda: cluster.of(job, Began))
    cluster.create(job, spec)
    cluster.wait(lambda: len(cluster.of(job, Ended)) == 3)
    unit.kill()
    cluster.ends(job, "COMPLETED")
    assert {entry.node for entry in cluster.of(job, Began)} == {"v1", "v2", "v3"}
    assert not machine.steps
    cluster.check()
    cluster.close()


def test_one_daemon_serves_several_nodes_of_its_machine() -> None:
    apart(_many_nodes, 18)


def _unheard_launch(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    cluster.world.network.cut("n1", "ctl", 30)
    job = cluster.submit("seconds=60", requeue=False, node_list=("n1",))
    cluster.wait(lambda: cluster.of(job, Began))
    cluster.world.run(1)
    cluster.lose_power("n1", 10)
    cluster.ends(job, "NODE_FAIL", seconds=300)
    assert len(cluster.of(job, Began)) == 1
    cluster.check()
    cluster.close()


def test_a_launch_that_the_controller_did_not_hear_of_is_not_repeated_after_a_boot() -> None:
    """Some of the seeds lose the step's record with the power."""
    for seed in range(30, 36):
        apart(_unheard_launch, seed)


def _comes_back(seed: int) -> None:
    cluster = Cluster(seed, nodes=1)
    cluster.world.run(5)
    job = cluster.submit("seconds=100 undying=8", requeue=True)
    cluster.wait(lambda: cluster.of(job, Began))
    cluster.machines["n1"].hang(150)
    cluster.world.run(150)
    cluster.wait(lambda: len(cluster.of(job, Began)) == 2)
    first, second = (entry.at for entry in cluster.of(job, Began))
    (ended,) = cluster.of(job, Ended)
    assert first < ended.at < second
    cluster.ends(job, "COMPLETED", seconds=200)
    cluster.check()
    cluster.close()


def test_a_node_that_comes_back_starts_nothing_before_its_former_jobs_are_gone() -> None:
    apart(_comes_back, 19)


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


@pytest.mark.slow
def test_the_same_seed_tells_the_same_story() -> None:
    assert apart(_story, 11) == apart(_story, 11)
    assert apart(_story, 11) != apart(_story, 12)
