"""A child of the command server that ran srun is afterwards as it was before, and serves again.

See docs/decisions/0168.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.launched import Launched
from tests.e2e.test_server_again import children, has_rested

_SIGNALS = re.compile(r"^Sig(?:Blk|Ign|Cgt):\t\w+$", re.MULTILINE)


@pytest.fixture
def conf(cluster: Cluster) -> str:
    """slurm.conf of a cluster that runs."""
    return str(cluster.conf)


def state(pid: int) -> tuple[list[str], list[str]]:
    """What it does on signals, and what it holds open."""
    holds = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # it has just closed it
            holds.append(re.sub(r"\d+", "", os.readlink(f"/proc/{pid}/fd/{name}")))
    return _SIGNALS.findall(Path(f"/proc/{pid}/status").read_text()), sorted(holds)


def test_it_serves_again_and_is_as_before(launched: Launched, conf: str) -> None:
    launched.warm()
    assert launched.run("squeue", SLURM_CONF=conf).returncode == 0
    statuses = []
    for words in (["true"], ["sh", "-c", "exit 3"], ["sh", "-c", "kill -9 $$"], ["no such program"]):
        before = has_rested(launched)
        for _ in range(2 * len(before)):
            statuses.append(launched.run("srun", "-n1", *words, SLURM_CONF=conf).returncode)
        kept = before & has_rested(launched)
        assert kept, f"none is left after srun {words}"
    assert set(statuses) == {0, 3, 137, 2}
    fresh = {pid: state(pid) for pid in has_rested(launched)}
    # The child that served has one connection to the controller more than the others.
    assert len({str(signals) for signals, _ in fresh.values()}) == 1
    assert {"pipe:[]", "socket:[]"} >= {held for _, holds in fresh.values() for held in holds if ":[" in held} - {
        "anon_inode:[eventpoll]"
    }


def test_an_interrupted_srun_leaves_the_next_call_alone(launched: Launched, conf: str) -> None:
    launched.warm()
    environment = launched.environment(SLURM_CONF=conf)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        process = subprocess.Popen(
            ["srun", "-n1", "sh", "-c", "trap 'exit 9' USR1; echo begun; sleep 1000 & wait"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.read(6) == b"begun\n"
        while process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(0.3)
            except subprocess.TimeoutExpired:
                pass
        process.communicate()
        done = launched.run("srun", "-n1", "cat", SLURM_CONF=conf)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    until(lambda: not launched.run("squeue", "-h", SLURM_CONF=conf).stdout, "no job is left")


@pytest.mark.slow
def test_a_long_srun_makes_no_command_wait_for_a_server_that_is_gone(launched: Launched, conf: str) -> None:
    """Its child must not hold the listener: who connects would wait for nothing."""
    server = launched.warm()
    process = subprocess.Popen(
        ["srun", "-n1", "sh", "-c", "echo begun; read word; exit $word"],
        env=launched.environment(SLURM_CONF=conf), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.read(6) == b"begun\n"
    os.kill(server, signal.SIGKILL)
    until(lambda: _is_refused(launched.socket), "the old listener is closed everywhere")
    process.stdin.write(b"5\n")
    assert process.wait(100) == 5
    process.stdout.close()
    process.stdin.close()
    launched.warm()
    assert server not in children(launched)


def _is_refused(path: Path) -> bool:
    """No process listens, and no connection waits in a queue to be served."""
    here = os.open(path.parent, os.O_PATH)  # longer paths do not fit into an address
    try:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(f"/proc/self/fd/{here}/{path.name}") == errno.ECONNREFUSED
    finally:
        os.close(here)
