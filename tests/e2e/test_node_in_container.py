"""A node in a container, which dies and returns under the same kernel: with that, its steps have ended as in a boot."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.node_daemon.reports import ENDED_BY_BOOT, TaskEnd

from .node_harness import NodeCluster, wait_until

#: slurmd becomes the first process of a pid namespace, whose end is everything's
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture
def container(tmp_path: Path) -> Iterator[NodeCluster]:
    """One node in a pid namespace of its own."""
    if shutil.which("unshare") is None or subprocess.run([*CONTAINER, "true"], capture_output=True).returncode:
        pytest.skip("no pid namespace may be made here")
    cluster = NodeCluster(tmp_path, nodes=1)
    cluster.within = CONTAINER
    cluster.controller.start()
    cluster.start()
    yield cluster
    cluster.kill()
    shutil.rmtree(cluster.root / "spool")  # its process ids are of the namespace: the harness must not kill by them
    cluster.close()


def test_a_job_of_a_container_that_was_started_again_failed_with_its_node(container: NodeCluster) -> None:
    first = container.controller.registrations[-1]
    job = container.batch("#!/bin/sh\ntouch begun\nexec sleep 1000\n")
    wait_until((container.work / "begun").exists, "the job runs")
    container.kill()
    container.start()
    again = container.controller.registrations[-1]
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert first.boot_id.startswith(f"{kernel}+")
    assert again.boot_id.startswith(f"{kernel}+")
    assert first.boot_id != again.boot_id
    assert again.booted_at > first.booted_at
    result = container.finished(job)
    assert (result.error_kind, result.tasks) == (ENDED_BY_BOOT, (TaskEnd(0, 9),))
