"""Two controllers that stand by for each other on this machine, over a private PostgreSQL, with one slurmd.

They have addresses of their own (127.0.0.1 and 127.0.0.2) and slurm.conf files that differ in what is a controller's
own: state directory, pid file and log. Commands and slurmd read the first one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from spritz.client.command.sync import Connection, connect_address
from spritz.client.errors import ClientError
from spritz.model.queries.daemons import Ping, Pong
from tests.conformance.databases import Server
from tests.e2e.cluster import Cluster, until

HOSTS = {"ctl1": "127.0.0.1", "ctl2": "127.0.0.2"}


class Controllers(Cluster):
    """The cluster; `ctl[NAME]` are the processes of the controllers, which run `module`."""

    module = "spritz.controller.main"

    def __init__(self, database: Server, *, nodes: int = 2, cpus: int = 8, extra: str = "") -> None:
        self.database = database
        self.url = database.url()
        self.ctl: dict[str, subprocess.Popen[bytes]] = {}
        super().__init__(nodes=nodes, cpus=cpus, extra=extra)

    def conf_of(self, name: str) -> Path:
        """The slurm.conf of one controller."""
        return self.conf if name == "ctl1" else self.conf.with_name(f"{name}.conf")

    def write_conf(self, *, append: str = "") -> None:
        super().write_conf(append=append)
        base = self.conf.read_text().replace(
            "SlurmctldHost=localhost(127.0.0.1)\n",
            "".join(f"SlurmctldHost={name}({address})\n" for name, address in HOSTS.items())
            + f"SlurmctldParameters=journal={self.url.replace('+psycopg', '')}\n",
        )
        for name in HOSTS:
            text = base
            for key in ("state\n", "slurmctld.pid", "slurmctld.log"):
                text = text.replace(f"{self.root}/{key}", f"{self.root}/{name}.{key}")
            self.conf_of(name).write_text(text)

    def controller_log(self) -> str:
        return "\n".join(f"== {name}\n{self.log_of(name)}" for name in HOSTS)

    def log_of(self, name: str) -> str:
        path = self.root / f"{name}.slurmctld.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def begin(self, name: str) -> None:
        """Start one controller; returns when it answers, leading or standing by."""
        with open(self.root / f"{name}.stderr", "ab") as stderr:
            command = [sys.executable, "-m", self.module, "-D", "-f", str(self.conf_of(name)), "-N", name]
            self.ctl[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
        until(lambda: self.pong(name) is not None or self._ended(self.ctl[name]), f"{name} answers")

    def begin_both(self) -> Controllers:
        """ctl1 leads, ctl2 stands by, and the nodes are there."""
        for name in HOSTS:
            self.begin(name)
            until(lambda: self.leading() == "ctl1", "ctl1 leads")
        self.start_nodes()
        return self

    def pong(self, name: str) -> Pong | None:
        """What a controller says of itself; None if it does not answer."""
        try:
            with connect_address((HOSTS[name], self.port), timeout=1.0, owners=self.owners) as connection:
                return connection.call(Ping(), Pong)
        except ClientError:
            return None

    def leads(self, name: str) -> bool:
        """Whether a controller says that it leads."""
        pong = self.pong(name)
        return pong is not None and pong.leading

    def leading(self) -> str:
        """Which controller says that it leads; "" for none."""
        for name in HOSTS:
            if self.leads(name):
                return name
        return ""

    def connect(self, *, timeout: float = 100.0) -> Connection:
        for _ in range(10):  # a busy leader may not answer within the second that it is asked for
            if name := self.leading():
                return connect_address((HOSTS[name], self.port), timeout=timeout, owners=self.owners)
        raise ClientError("no controller leads")

    def kill(self, name: str) -> None:
        """SIGKILL, and wait for the end."""
        self.ctl[name].kill()
        self.ctl[name].wait(100)

    def signal(self, name: str, number: signal.Signals) -> None:
        """To one controller."""
        os.kill(self.ctl[name].pid, number)

    def close(self) -> None:
        for process in self.ctl.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(100)
        super().close()
