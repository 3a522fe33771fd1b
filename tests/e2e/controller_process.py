"""A real `slurmctld` process for tests: started, asked, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from spritz.client.command.sync import Connection, connect_address
from spritz.client.errors import ClientError
from spritz.client.locate import controller_socket_name, locate_controller
from spritz.model.commands.job import SubmitJob
from spritz.model.job.record import JobSpec
from spritz.model.queries.daemons import Ping, Pong
from tests.ports import free_port

COMMAND = [sys.executable, "-c", "from spritz.controller.main import entry; entry()"]


def until(condition: Callable[[], object], what: str, seconds: float = 100.0) -> None:
    """Poll until `condition()` is true; fails saying what did not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.005)


class ControllerProcess:
    """One cluster's controller, with its slurm.conf and state in `directory`; `command` starts another program."""

    command = COMMAND

    def __init__(self, directory: Path, *, nodes: int = 4, cpus: int = 4, extra: str = "") -> None:
        self.directory = directory
        self._known_owners: frozenset[int] | None = None
        self.port = free_port()
        self.name = f"t{self.port}"
        self.conf = directory / "slurm.conf"
        self.nodes = nodes
        self.cpus = cpus
        self.process: subprocess.Popen[bytes] | None = None
        self.write_conf(extra)

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def log(self) -> str:
        path = self.directory / "slurmctld.log"
        return path.read_text() if path.exists() else ""

    @property
    def socket_name(self) -> str:
        return controller_socket_name(self.name, self.port)

    def write_conf(self, extra: str = "") -> None:
        user = "root" if os.getuid() == 0 else str(os.getuid())
        self.conf.write_text(
            f"""ClusterName={self.name}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={self.port}
SlurmUser={user}
StateSaveLocation={self.state}
SlurmctldLogFile={self.directory}/slurmctld.log
SlurmctldPidFile={self.directory}/slurmctld.pid
SlurmctldDebug=verbose
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MaxJobCount=200000
MaxArraySize=20000
NodeName=n[1-{self.nodes}] CPUs={self.cpus} RealMemory=1000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{extra}
"""
        )

    def start(self, *arguments: str, limit: Callable[[], None] | None = None) -> ControllerProcess:
        """Start in the foreground and return when it answers."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        self._owners()
        with open(self.directory / "stderr", "ab") as stderr:
            self.process = subprocess.Popen(
                [*self.command, "-D", "-f", str(self.conf), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                preexec_fn=limit,
            )
        until(self._answers_or_ended, "the controller's first answer")
        assert self.process.poll() is None, (self.directory / "stderr").read_text()
        return self

    def run(self, *arguments: str, timeout: float = 100.0) -> subprocess.CompletedProcess[str]:
        """Run the command to its end: for starts that are refused, and for detaching ones."""
        return subprocess.run(
            [*COMMAND, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )

    def _answers_or_ended(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            return True
        try:
            with self.connect() as connection:
                connection.call(Ping(), Pong)
        except ClientError:
            return False
        return True

    def connect(self, *, tcp: bool = False, timeout: float = 100.0) -> Connection:
        address = ("127.0.0.1", self.port) if tcp else self.socket_name
        return connect_address(address, timeout=timeout, owners=self._owners())

    def _owners(self) -> frozenset[int]:
        """Who may be the controller, read once: a child that has become another user cannot read our slurm.conf."""
        if self._known_owners is None:
            self._known_owners = frozenset(locate_controller(str(self.conf)).owners())
        return self._known_owners

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(100)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(100)


def a_job(name: str = "job", **fields: object) -> SubmitJob:
    """A small batch job."""
    given: dict[str, object] = {"batch": True, "work_dir": "/tmp", "time_limit_minutes": 10, **fields}
    spec = JobSpec(name=name, **given)  # type: ignore[arg-type]  # by name
    return SubmitJob(spec=spec, script=b"#!/bin/sh\ntrue\n", environment=(b"PATH=/usr/bin:/bin",))
