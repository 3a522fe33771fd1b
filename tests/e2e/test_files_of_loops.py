"""No daemon opens files in its loop under load, but for a few that are listed here with the reason.

A loop that reads a file waits for the disk, and every user with it: for seconds on a machine that swaps.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import commands
from tests.e2e.cluster import Cluster, until
from tests.ports import free_port

CONTROLLER, NODE, DATABASE = "spritz.controller.main", "spritz.node.main", "spritz.accounting.main"

_KERNEL = "files of /proc and /sys/fs/cgroup are the kernel's memory: no disk is read"
_SPOOL = (
    "a step's few names and bytes in the page cache of a local disk, in order with its supervisor; a thread would cost "
    "each step its hand-over. The watchdog does not take a wait for the disk for a stuck loop"
)

#: (daemon, what begins what was done, place of our code) -> why the loop does it itself
ALLOWED = {
    (CONTROLLER, "open /proc/", "controller/api/deferred.py:_process_began"): _KERNEL,
    (NODE, "open /proc/", "node/health.py:sample"): _KERNEL,
    (NODE, "open /proc/", "node/cgroup.py:sweep"): _KERNEL,
    (NODE, "os.scandir /sys/fs/cgroup/", "node/cgroup.py:sweep"): _KERNEL,
    (NODE, "os.rmdir /sys/fs/cgroup/", "node/cgroup.py:sweep"): _KERNEL,
    (NODE, "", "node/spool.py:create"): _SPOOL,
    (NODE, "", "node/spool.py:recycle"): _SPOOL,
    (NODE, "", "node/spool.py:remove"): _SPOOL,
}


class Watched(Cluster):
    """Its daemons note what their loops open."""

    def command(self, daemon: str, *arguments: str) -> list[str]:
        python, _, module, *rest = super().command(daemon, *arguments)
        return [python, str(Path(__file__).with_name("loop_files.py")), module, str(self.root), *rest]

    def opened(self, module: str) -> list[tuple[str, str]]:
        path = self.root / f"{module}.json"
        until(path.exists, f"{module} tells what it has opened")
        return [(what, places) for what, places in json.loads(path.read_text())]


@pytest.fixture
def cluster() -> Iterator[Watched]:
    port = free_port()
    made = Watched(nodes=2, extra=f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStoragePort={port}\n")
    try:
        yield made
    finally:
        made.close()


def test_a_loop_under_load_opens_no_files(cluster: Watched) -> None:
    conf = cluster.conf.with_name("slurmdbd.conf")
    port = cluster.extra.rpartition("=")[2].strip()
    conf.write_text(
        f"DbdPort={port}\nSlurmUser={cluster.slurm_user}\nPidFile={cluster.root}/slurmdbd.pid\n"
        f"LogFile={cluster.root}/slurmdbd.log\nStorageType=accounting_storage/sqlite\nStorageLoc={cluster.root}/acct.db\n"
    )
    conf.chmod(0o600)
    program = Path(__file__).with_name("loop_files.py")
    database = subprocess.Popen(
        [sys.executable, str(program), DATABASE, str(cluster.root), "-D", "-f", str(conf)], stdin=subprocess.DEVNULL
    )
    try:
        cluster.start()
        counting = cluster.root / "count"
        counting.touch()
        load(cluster)
        counting.unlink()
        found = {
            (module, what, places)
            for module in (CONTROLLER, NODE, DATABASE)
            for what, places in cluster.opened(module)
            if not any(
                daemon == module and what.startswith(begin) and place in places for daemon, begin, place in ALLOWED
            )
        }
        assert not found, "\n".join(sorted(" | ".join(item) for item in found))
    finally:
        database.terminate()
        database.wait()


def load(cluster: Watched) -> None:
    """Jobs, steps and commands of each kind, for the first time: a late import reads files, too."""
    numbers = [cluster.submit("srun true; echo $RANDOM", name=f"job{index}") for index in range(20)]
    held = cluster.submit("sleep 1000")
    for words in (
        ("srun", "-n2", "-N2", "hostname"),
        ("sinfo",),
        ("squeue",),
        ("squeue", "--start"),
        ("scontrol", "show", "nodes"),
        ("scontrol", "show", "jobs"),
        ("scontrol", "show", "config"),
        ("scontrol", "write", "batch_script", str(numbers[0]), "-"),
        ("sacct",),
        ("sacctmgr", "-n", "show", "account"),
        ("sstat", str(held)),
        ("sdiag",),
        ("sprio",),
        ("sshare",),
        ("sreport", "cluster", "utilization"),
        ("scontrol", "reconfigure"),
        ("scancel", str(held)),
    ):
        done = commands.run(cluster, *words)
        assert done.returncode in (0, 1), done.stderr
    cluster.wait_all_ended([*numbers, held])
