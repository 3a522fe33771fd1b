"""Daemons whose event loop is stuck end with their stacks in the log; ones that are only stopped do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spritz.client.command.sync import connect_address
from spritz.client.errors import ClientError
from spritz.client.locate import database_socket_name
from spritz.model.queries.daemons import Ping, Pong
from spritz.runtime import watchdog
from tests.e2e.cluster import until
from tests.e2e.controller_process import ControllerProcess
from tests.ports import free_port

#: A daemon that gets stuck at SIGUSR2, which its loop handles.
PROGRAM = """
import collections, itertools, threading
from spritz.runtime import log, watchdog

def waits():
    threading.Event().wait()

def computes():
    while True:
        pass

def computes_in_c():  # and never gives the interpreter up
    collections.deque(itertools.repeat(0), maxlen=0)

watchdog.LIMIT_SECONDS = {limit}
log.reopen = {stuck}
from spritz.{daemon}.main import entry
entry()
"""


class Daemon:
    """One of the three, with little to do."""

    def __init__(self, name: str, directory: Path, stuck: str, limit: float) -> None:
        self.directory = directory
        self.controller = ControllerProcess(directory)
        self.log = directory / f"{name}.log"
        conf, arguments, self.address = self.controller.conf, list[str](), self.controller.socket_name
        user = "root" if os.getuid() == 0 else str(os.getuid())
        if name == "slurmd":
            port = free_port()
            self.controller.write_conf(
                f"SlurmdUser={user}\nSlurmdPort={port}\nSlurmdSpoolDir={directory}/spool-%n\nSlurmdLogFile={self.log}\n"
                f"SlurmdPidFile={directory}/slurmd.pid\nProctrackType=proctrack/linuxproc\n"
                "NodeName=me NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN"
            )
            arguments = ["-N", "me"]
        elif name == "slurmdbd":
            port = free_port()
            conf = directory / "slurmdbd.conf"
            conf.write_text(
                f"DbdPort={port}\nSlurmUser={user}\nPidFile={directory}/slurmdbd.pid\nLogFile={self.log}\n"
                f"StorageType=accounting_storage/sqlite\nStorageLoc={directory}/acct.db\n"
            )
            conf.chmod(0o600)
            self.address = database_socket_name(port)
        package = {"slurmctld": "controller", "slurmd": "node", "slurmdbd": "accounting"}[name]
        program = PROGRAM.format(daemon=package, stuck=stuck, limit=limit)
        with open(directory / "stderr", "ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, "-D", "-f", str(conf), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
        until(lambda: self.process.poll() is not None or self.serves(), lambda: f"{name} serves: {self.text()}")
        assert self.process.poll() is None, self.text()

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else (self.directory / "stderr").read_text()

    def serves(self) -> bool:
        return "daemon.started" in self.text()

    def answers(self) -> bool:
        try:
            with connect_address(self.address, timeout=100.0) as connection:
                return connection.call(Ping(), Pong).pid == self.process.pid
        except ClientError:
            return False


Start = Callable[..., Daemon]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Daemon] = []

    def begin(name: str, stuck: str = "waits", limit: float = 2.0) -> Daemon:
        made.append(Daemon(name, tmp_path, stuck, limit))
        return made[-1]

    yield begin
    for daemon in made:
        daemon.process.kill()
        daemon.process.wait()


@pytest.mark.parametrize(
    "name",
    ["slurmctld", pytest.param("slurmd", marks=pytest.mark.slow), pytest.param("slurmdbd", marks=pytest.mark.slow)],
)
def test_a_loop_that_waits_for_ever_ends_the_daemon_and_says_where(start: Start, name: str) -> None:
    daemon = start(name)
    daemon.process.send_signal(signal.SIGUSR2)
    assert daemon.process.wait(100) == watchdog.EXIT_STATUS
    assert "fatal: loop.stuck" in daemon.text()
    assert "in waits\n" in daemon.text()


@pytest.mark.slow
@pytest.mark.parametrize("stuck", ["computes", "computes_in_c"])
def test_a_loop_that_computes_for_ever_ends_the_daemon_and_says_where(start: Start, stuck: str) -> None:
    daemon = start("slurmctld", stuck)
    daemon.process.send_signal(signal.SIGUSR2)
    assert daemon.process.wait(100) == -signal.SIGVTALRM
    assert f"in {stuck}\n" in daemon.text()


@pytest.mark.slow
def test_a_daemon_that_was_stopped_for_longer_goes_on(start: Start) -> None:
    limit = 1.5
    daemon = start("slurmctld", limit=limit)
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(2 * limit)  # the time itself is what this is about
    daemon.process.send_signal(signal.SIGCONT)
    since = time.monotonic()
    while time.monotonic() < since + 2 * limit:
        assert daemon.answers(), daemon.text()
    assert "loop.stuck" not in daemon.text()
