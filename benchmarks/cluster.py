"""A cluster for one system under test: started from benchmarks/slurm.conf, asked by its own commands, stopped.

Slurm authenticates by munge, so a munged with a key of its own is started with it; Spritz needs none.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from spritz.runtime.ports import unused_ports

HERE = Path(__file__).parent
NODES = 8
START_SECONDS = 60.0
#: Main loop settings that sites with many short jobs use (slurm.conf(5), SchedulerParameters).
SCHEDULER = {"": "default_queue_depth=1000", "tuned": "default_queue_depth=1000,batch_sched_delay=0,sched_interval=1"}


class BenchmarkError(Exception):
    """A command failed or something did not happen in time; the message says what."""


class Cluster:
    """Eight virtual nodes of eight processors each; `name` is ours, real or real-tuned."""

    def __init__(self, name: str, binaries: Path) -> None:
        self.name = name
        self.binaries = binaries
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
        self.directory.chmod(0o755)
        self.conf = self.directory / "slurm.conf"
        self.env = {
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "SLURM_CONF": str(self.conf),
            "HOME": str(self.directory),
            "USER": pwd.getpwuid(os.getuid()).pw_name,
            "LANG": "C.UTF-8",
        }
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.is_slurm = "slurm-wlm" in self.out("sbatch", "--version") or name.startswith("real")

    def command(self, name: str) -> str:
        """Path of a command or daemon of this system: in its directory, or in the `sbin` next to it."""
        for folder in (self.binaries, self.binaries.parent / "sbin"):
            if (folder / name).exists():
                return str(folder / name)
        raise BenchmarkError(f"{self.name}: no {name} in {self.binaries} or its sbin")

    def start(self) -> None:
        """Bring the cluster up until every node is idle. Raises BenchmarkError when it does not come."""
        nodes = [f"n{i}" for i in range(1, NODES + 1)]
        ports = unused_ports(NODES + 1)
        host = socket.gethostname().split(".")[0]
        values = {
            "directory": str(self.directory),
            "host": host,
            "user": self.env["USER"],
            "port": str(ports[0]),
            "scheduler": SCHEDULER["tuned" if self.name.endswith("tuned") else ""],
        }
        text = (HERE / "slurm.conf").read_text(encoding="utf-8")
        for key, value in values.items():
            text = text.replace(f"{{{key}}}", value)
        if self.is_slurm:
            text += f"AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket={self.directory}/munge.socket\n"
        for node, port in zip(nodes, ports[1:], strict=True):
            text += f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}\n"
            (self.directory / "spool" / node).mkdir(parents=True)
        text += f"PartitionName=debug Nodes=n[1-{NODES}] Default=YES MaxTime=INFINITE State=UP\n"
        self.conf.write_text(text, encoding="utf-8")
        (self.directory / "state").mkdir()
        if self.is_slurm:
            self._start_munge()
        self.start_controller()
        for node in nodes:
            self._run_daemon(node, [self.command("slurmd"), "-D", "-N", node])
        self.wait_for(lambda: self.out("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * NODES, "idle nodes")

    def start_controller(self) -> None:
        """Start slurmctld, as after a stop or a kill. Returns at once."""
        self._run_daemon("slurmctld", [self.command("slurmctld"), "-D"])

    def stop_controller(self, *, kill: bool = False) -> None:
        daemon = self._daemons.pop("slurmctld")
        daemon.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        daemon.wait()

    def controller_pids(self) -> list[int]:
        """The controller's process and its children."""
        root = self._daemons["slurmctld"].pid
        children = Path(f"/proc/{root}/task/{root}/children").read_text(encoding="ascii").split()
        return [root, *map(int, children)]

    def daemon_pids(self) -> dict[str, int]:
        """Process ids of the daemons: slurmctld, and node daemons by the node's name."""
        return {name: daemon.pid for name, daemon in self._daemons.items()}

    def stop(self) -> None:
        """Stop every daemon and remove what they wrote."""
        for daemon in reversed(self._daemons.values()):
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
        for daemon in self._daemons.values():
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def run(self, *argv: str, check: bool = True, timeout: float = 120, stdin: str = "") -> str:
        """Standard output of a command of this system. Raises BenchmarkError if it fails."""
        done = subprocess.run(
            [self.command(argv[0]), *argv[1:]],
            env=self.env,
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode:
            raise BenchmarkError(f"{self.name}: {' '.join(argv)[:200]}: status {done.returncode}: {done.stderr[-400:]}")
        return done.stdout

    def out(self, *argv: str) -> str:
        """Standard output, or nothing where the command fails."""
        try:
            return self.run(*argv, check=False)
        except subprocess.TimeoutExpired:
            return ""

    def wait_for(
        self, condition: Callable[[], object], what: str, seconds: float = START_SECONDS, pause: float = 0.05
    ) -> None:
        """Poll until the condition holds. Raises BenchmarkError naming what was waited for."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{self.name}: waited {seconds:g} s for {what}; {self._last_words()}")
            time.sleep(pause)

    def submit(self, count: int, script: str = "#!/bin/sh\ntrue\n", *, held: bool) -> list[str]:
        """Submit `count` separate jobs (held ones), from two shells at once, and return their ids."""
        (self.directory / "noop.sh").write_text(script, encoding="utf-8")
        hold = "-H " if held else ""
        loop = f'for i in $(seq "$1"); do sbatch --parsable {hold}-o /dev/null -n1 noop.sh || exit 1; done'
        halves = [count // 2, count - count // 2]
        running = [
            subprocess.Popen(
                ["sh", "-c", loop, "sh", str(half)],
                env=self.env,
                cwd=self.directory,
                stdout=subprocess.PIPE,
                text=True,
            )
            for half in halves
        ]
        ids = [number for one in running for number in one.communicate()[0].split()]
        if len(ids) != count:
            raise BenchmarkError(f"{self.name}: submitted {len(ids)} of {count} jobs")
        return ids

    def _start_munge(self) -> None:
        # munged refuses sockets in directories that others may write to.
        (self.directory / "munge.key").write_bytes(os.urandom(1024))
        (self.directory / "munge.key").chmod(0o400)
        munged = shutil.which("munged") or "/usr/sbin/munged"
        argv = [munged, "--foreground", "--force"]
        for option, name in (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("seed-file", "seed")):
            argv.append(f"--{option}={self.directory}/munge.{name}")
        self._run_daemon("munged", argv)
        self.wait_for(lambda: (self.directory / "munge.socket").exists(), "munged")

    def _run_daemon(self, name: str, argv: Sequence[str]) -> None:
        with (self.directory / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                argv,
                env=self.env,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def _last_words(self) -> str:
        log = self.directory / "slurmctld.out"
        return f"controller said: {log.read_text(errors='replace')[-600:]}" if log.exists() else "no controller"


def _die_with_parent() -> None:
    # prctl(PR_SET_PDEATHSIG): a run that is killed leaves no cluster behind.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
