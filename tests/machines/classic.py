"""A cluster in the classic way, without tokens: one slurm.conf and one key, which all machines see at the same path."""

from __future__ import annotations

import os
from pathlib import Path

from tests.machines.lan import Lan, Machine, Talk

#: Of slurmctld, on each network of machines.
PORT = 26817

_CONF = """\
ClusterName=classic
SlurmctldHost=alpha
SlurmctldPort={port}
SlurmdPort=26818
SlurmUser=root
AuthType={auth}
StateSaveLocation={root}/alpha/ctl
SlurmdSpoolDir={root}/%h/spool
SlurmctldPidFile={root}/alpha/ctld.pid
SlurmdPidFile={root}/%h/slurmd.pid
SlurmctldLogFile={root}/alpha/ctld.log
SlurmdLogFile={root}/%h/slurmd.log
ProctrackType=proctrack/linuxproc
ReturnToService=2
{lines}
PartitionName=main Nodes=ALL Default=YES
"""


def write_files(lan: Lan, *lines: str, auth: str = "auth/slurm") -> Path:
    """slurm.conf, with these lines in addition, and slurm.key next to it. Returns the path of slurm.conf."""
    etc = lan.root / "etc"
    etc.mkdir()
    conf = etc / "slurm.conf"
    conf.write_text(_CONF.format(root=lan.root, port=PORT, auth=auth, lines="\n".join(lines)))
    (etc / "slurm.key").write_bytes(os.urandom(64))
    (etc / "slurm.key").chmod(0o600)
    return conf


class Classic:
    """The cluster, with slurmctld on alpha. `lines` of slurm.conf name the nodes; `start` starts each."""

    def __init__(self, lan: Lan, *lines: str) -> None:
        self.lan = lan
        self.conf = write_files(lan, *lines)
        self.root = lan.root
        self.start("alpha", "slurmctld")

    def __getitem__(self, host: str) -> Machine:
        return self.lan.machines[host]

    def start(self, host: str, *daemon: str, behind_nat: bool = False) -> Machine:
        """Start a daemon that detaches, on a machine that is made if it is not there."""
        machine = self.lan.machines.get(host) or self.lan.machine(host, behind_nat=behind_nat)
        machine.out(*daemon, SLURM_CONF=str(self.conf))
        return machine

    def out(self, host: str, *command: str) -> str:
        """What a command prints that must succeed."""
        return self[host].out(*command, SLURM_CONF=str(self.conf))

    def run(self, *command: str) -> str:
        """The same on alpha."""
        return self.out("alpha", *command)

    def is_idle(self) -> bool:
        """Whether all nodes are."""
        return self.run("sinfo", "-h", "-o", "%t") == "idle\n"

    def talk(self, host: str, *command: str) -> Talk:
        """Start a command with which the test talks."""
        return Talk(self[host], str(self.conf), command[0], command)
