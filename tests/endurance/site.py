"""The machines and their daemons, which are started again when they end, as systemd would."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.machines.lan import Lan, Machine, eventually

#: Of slurmctld and slurmd, on machines of their own.
PORT = 26857

#: Size of the file system that StateSaveLocation is on, and of each spool.
STATE_MIB, SPOOL_MIB = 48, 8

_CONF = """\
ClusterName=endurance
SlurmctldHost=alpha
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/slurm
StateSaveLocation=/run/ctl
SlurmdSpoolDir=/run/spool
SlurmctldPidFile=/run/ctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={root}/alpha/ctld.log
SlurmdLogFile={root}/%h/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ProctrackType=proctrack/linuxproc
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=30
MinJobAge=3600
KillWait=3
JobRequeue=1
MessageTimeout=30
NodeName={nodes} CPUs=4 RealMemory=4000 Gres=gpu:4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""


class Daemon:
    """A daemon of a machine. A thread starts it again when it has ended, unless the machine is without power."""

    def __init__(self, machine: Machine, name: str, conf: str, chance: random.Random) -> None:
        self.machine = machine
        self.name = name
        self.starts = 0
        self._conf = conf
        self._pause = chance.uniform(0.2, 3.0)
        self._over = threading.Event()
        self._power = threading.Event()
        self._power.set()
        self._child = self._start()
        self._thread = threading.Thread(target=self._keep, name=f"{machine.name}/{name}", daemon=True)
        self._thread.start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        return self.machine.start(self.name, "-D", log=f"{self.name}.out", SLURM_CONF=self._conf)

    def _keep(self) -> None:
        while not self._over.is_set():
            if self._power.is_set() and self._child.poll() is not None:
                self._over.wait(self._pause)
                if self._power.is_set() and not self._over.is_set():
                    self._child = self._start()
            self._over.wait(0.05)

    @property
    def pid(self) -> int:
        """Of the daemon's own process; 0 if it is not there now. `nsenter` becomes the command that it runs."""
        return self._child.pid if self._child.poll() is None else 0

    def signal(self, number: int) -> None:
        if self.pid:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def power(self, on: bool) -> None:
        """Whether it is started again."""
        (self._power.set if on else self._power.clear)()

    def close(self) -> None:
        self._over.set()
        self._thread.join()


class Site:
    """A cluster: the controller on alpha, nodes n1 …, users on login."""

    def __init__(self, lan: Lan, nodes: int, seed: int) -> None:
        self.lan = lan
        self.root = lan.root
        chance = random.Random(seed)
        etc = lan.root / "etc"
        etc.mkdir()
        self.conf = str(etc / "slurm.conf")
        text = _CONF.format(port=PORT, node_port=PORT + 1, root=lan.root, nodes=f"n[1-{nodes}]")
        Path(self.conf).write_text(text)
        (etc / "gres.conf").write_text(f"NodeName=n[1-{nodes}] Name=gpu Count=4\n")
        (etc / "slurm.key").write_bytes(os.urandom(64))
        (etc / "slurm.key").chmod(0o600)
        self.work = lan.root / "work"
        self.work.mkdir(mode=0o777)
        self.work.chmod(0o777)
        self.controller = lan.machine("alpha")
        self.login = lan.machine("login")
        self.nodes = [lan.machine(f"n{number}") for number in range(1, nodes + 1)]
        for machine in (self.controller, *self.nodes):
            self.mount(machine)
        self.daemons = {
            "alpha": Daemon(self.controller, "slurmctld", self.conf, chance),
            "login": Daemon(self.login, "sackd", self.conf, chance),
        }
        eventually(lambda: self.login_run("scontrol", "ping").returncode == 0, "the controller answers")
        for machine in self.nodes:
            self.daemons[machine.name] = Daemon(machine, "slurmd", self.conf, chance)
        eventually(self.is_idle, "all nodes are idle")

    def mount(self, machine: Machine) -> None:
        """A disk of its own for state or spool, small enough to be filled."""
        controller = machine is self.controller
        path, mib = ("/run/ctl", STATE_MIB) if controller else ("/run/spool", SPOOL_MIB)
        machine.do("mkdir", "-p", path)
        machine.do("mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=700", "tmpfs", path)

    def disk(self, machine: Machine) -> str:
        return "/run/ctl" if machine is self.controller else "/run/spool"

    def login_run(self, *command: str, seconds: float = 100.0) -> subprocess.CompletedProcess[str]:
        """Run a user's command on the login machine."""
        return self.login.run(*command, timeout=seconds, SLURM_CONF=self.conf, PYTHONPATH=os.getcwd())

    def is_idle(self) -> bool:
        done = self.login_run("sinfo", "-h", "-N", "-o", "%t")
        return done.returncode == 0 and set(done.stdout.split()) == {"idle"}

    def close(self) -> None:
        for daemon in self.daemons.values():
            daemon.close()


def wait(holds: Callable[[], bool], seconds: float, pause: float = 0.5) -> bool:
    """Whether it comes true within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(pause)
    return holds()
