"""A real Slurm with accounting, to record on: munged, MariaDB, slurmdbd, slurmctld and slurmd, Debian's packages.

    python -m tests.conformance.real DIRECTORY [--site]

runs until it is interrupted, and takes its jobs with it; as root (Debian's slurmdbd does not take a munge credential
of another user for an administrator's). DIRECTORY must not be there; SLURM_CONF is then DIRECTORY/slurm.conf.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from spritz.runtime.ports import unused_ports
from tests import watchdog

from . import databases
from .cluster import ACCOUNTED, SITE, Shape, ask, node_command, set_up, write_conf

_BINARIES = Path("/usr/bin")


def main(arguments: list[str]) -> int:
    directory, shape = Path(arguments[0]), SITE if "--site" in arguments else ACCOUNTED
    directory.mkdir(mode=0o755)
    daemons: list[subprocess.Popen[bytes]] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # prctl(PR_SET_CHILD_SUBREAPER): steps, which outlive their slurmd, stay our descendants, also for who ends us.
    ctypes.CDLL(None).prctl(36, 1)
    try:
        with databases.server("mariadb") as server:
            try:
                conf = _configure(directory, server, shape)
                _start(directory, conf, server.socket, daemons, shape)
                print("ready:", f"SLURM_CONF={conf}", flush=True)
                signal.pause()
            finally:
                for daemon in reversed(daemons):
                    daemon.terminate()
                    daemon.wait(100)
    except KeyboardInterrupt:
        pass
    finally:
        # What a second signal has left, and steps.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        watchdog.kill(below=[os.getpid()], without=[os.getpid()])
    return 0


def _configure(directory: Path, server: databases.Server, shape: Shape) -> Path:
    conf = write_conf(directory, shape, database=False)
    port, socket = unused_ports(1)[0], f"socket={directory}/munge.socket"
    text = conf.read_text(encoding="utf-8").replace(
        "AccountingStorageType=accounting_storage/none",
        "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
        f"AccountingStoragePort={port}\nAccountingStoragePass={directory}/munge.socket\n"
        f"AuthType=auth/munge\nCredType=cred/munge\nAuthInfo={socket}",
    )
    conf.write_text(text, encoding="utf-8")
    database = server.url().partition("?")[0].rpartition("/")[2]
    dbd = directory / "slurmdbd.conf"
    dbd.write_text(
        f"AuthType=auth/munge\nAuthInfo={socket}\nDbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={port}\n"
        f"SlurmUser=root\nLogFile={directory}/slurmdbd.log\nPidFile={directory}/slurmdbd.pid\n"
        f"StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=spritz\n"
        f"StorageLoc={database}\n",
        encoding="utf-8",
    )
    dbd.chmod(0o600)
    return conf


def _start(directory: Path, conf: Path, socket: str, daemons: list[subprocess.Popen[bytes]], shape: Shape) -> None:
    env = {**os.environ, "SLURM_CONF": str(conf), "MYSQL_UNIX_PORT": socket}

    def run(name: str, *argv: str) -> None:
        with (directory / f"{name}.out").open("wb") as log:
            daemons.append(subprocess.Popen(argv, env=env, stdout=log, stderr=log, cwd=directory))

    (directory / "munge.key").write_bytes(os.urandom(1024))
    (directory / "munge.key").chmod(0o400)
    # Debian's by their paths: an environment of ours may come first in PATH.
    sbin = Path("/usr/sbin")
    files = (("socket", "socket"), ("key-file", "key"), ("log-file", "log"), ("pid-file", "pid"), ("seed-file", "seed"))
    run("munged", str(sbin / "munged"), "--foreground", "--force", *(f"--{o}={directory}/munge.{n}" for o, n in files))
    _wait(lambda: (directory / "munge.socket").exists(), "munged")
    run("slurmdbd", str(sbin / "slurmdbd"), "-D")
    _wait(lambda: bool(ask(_BINARIES, conf, "sacctmgr", "-n", "show", "qos")), "slurmdbd")
    subprocess.run([_BINARIES / "sacctmgr", "-i", "add", "cluster", "real"], env=env, check=True)
    run("slurmctld", str(sbin / "slurmctld"), "-D")
    for node in shape.nodes:
        run(f"slurmd-{node}", *node_command(shape, str(sbin / "slurmd"), node))
    idle = ["idle"] * len(shape.nodes)
    _wait(lambda: ask(_BINARIES, conf, "sinfo", "-h", "-N", "-p", "debug", "-o", "%t").split() == idle, "nodes")
    set_up(_BINARIES, conf, shape)


def _wait(condition: object, what: str) -> None:
    deadline = time.monotonic() + 100
    while not condition():  # type: ignore[operator]  # any callable
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
