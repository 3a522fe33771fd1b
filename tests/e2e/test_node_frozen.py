"""Suspended tasks are frozen, and stubborn ones killed, by a cgroup of version 2 where one may be made."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.node_daemon.launch import SuspendTasks

from .node_harness import NodeCluster, need_version_2, running, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    need_version_2()
    with running(NodeCluster(tmp_path, nodes=1)) as started:
        yield started


def tree_of(pid: int) -> Path:
    """The version 2 group of a process."""
    where = next(
        line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line
    )
    path = next(line[3:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::"))
    return Path(where + path)


def test_a_suspended_task_is_not_woken_by_its_own_user(cluster: NodeCluster) -> None:
    job = cluster.batch(f"#!/bin/sh\nwhile :; do echo x >>{cluster.work}/beats; sleep 0.01; done\n")
    supervisor, task = cluster.pids(job)
    beats = cluster.work / "beats"
    wait_until(beats.exists, "it runs")
    order = SuspendTasks(term=1, node=cluster.names[0], job_id=job.id, restart_count=0, grace_seconds=0)
    cluster.controller.tell(order)
    wait_until(lambda: tree_of(task).name == "tasks", "it is in its group")
    group = tree_of(task)
    assert group.parent.name == f"slurmstepd_{supervisor}"
    frozen = group / "cgroup.events"
    wait_until(lambda: "frozen 1" in frozen.read_text(), "it is frozen")
    before = beats.stat().st_size
    for pid in (group / "cgroup.procs").read_text().split():
        os.kill(int(pid), signal.SIGCONT)
    assert "frozen 1" in frozen.read_text()
    assert beats.stat().st_size == before
    cluster.controller.tell(SuspendTasks(term=1, node=cluster.names[0], job_id=job.id, restart_count=0, resume=True))
    wait_until(lambda: beats.stat().st_size > before, "it goes on")
    cluster.controller.tell(order)
    wait_until(lambda: "frozen 1" in frozen.read_text(), "it is frozen again")
    cluster.terminate(job, kill_wait_seconds=0)
    cluster.finished(job)
    wait_until(lambda: not group.exists(), "the group is removed")


def test_tasks_that_fork_faster_than_they_are_found_are_killed(cluster: NodeCluster) -> None:
    # Each process starts its successor and ends; a new session each, and no signal but SIGKILL minds them.
    script = """#!/usr/bin/python3
import os, signal
for number in (1, 2, 3, 15, 18, 20):
    signal.signal(number, signal.SIG_IGN)
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
"""
    job = cluster.job()
    cluster.step(job, 0, ("/usr/bin/python3", "-c", script))
    supervisor = cluster.supervisor_pid(job, "0")
    cluster.terminate(job)
    cluster.finished(job, 0)
    wait_until(lambda: not Path(f"/proc/{supervisor}").exists(), "the supervisor has seen all of them end")
