"""A whole cluster of real daemons for tests: slurmctld, slurmds and jobs, started, asked, killed and started again.

Its directory can be walked by any user (`public`), unlike pytest's own, so that other users' jobs can run in it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from spritz.client.command.sync import Connection, connect_address
from spritz.client.errors import ClientError
from spritz.client.locate import controller_socket_name
from spritz.model.commands.job import CancelJobs, CancelResult, JobSubmitted, SubmitJob
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Job, JobSpec
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from spritz.model.queries.nodes import ListNodes, Nodes, NodeView
from spritz.model.queries.steps import ListSteps, Steps, StepView
from spritz.model.states import JobFlag
from spritz.node import cgroup
from tests.ports import free_port

T = TypeVar("T")

#: Two busy cores: a deadline only ends a test that has failed.
PATIENCE_SECONDS = 100.0

BIN = Path(sys.executable).parent
_DAEMONS = {"slurmctld": "spritz.controller.main", "slurmd": "spritz.node.main"}


def until(condition: Callable[[], T], what: str | Callable[[], str], seconds: float = PATIENCE_SECONDS) -> T:
    """Poll until `condition()` is true; its value. Fails saying what did not come true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            text = what() if callable(what) else what
            raise AssertionError(f"in {seconds:.0f} seconds it did not come true that {text}")
        time.sleep(0.01)
    return value


def user_name() -> str:
    """Who runs the tests."""
    return pwd.getpwuid(os.getuid()).pw_name


def is_alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parent_of(pid: int) -> int:
    """The parent's process id; 0 if the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command_name(pid: int) -> str:
    """What ps shows; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


#: In the environment of a cluster's daemons, and so of the supervisors that they start: its directory.
_OURS = "SPRITZ_TEST_CLUSTER"


def processes_with(variable: str) -> list[int]:
    """Living processes that were started with `NAME=value` in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.fsencode(variable) in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                found.append(int(entry))
        except OSError:
            continue
    return [pid for pid in found if is_alive(pid)]


def remove_groups(spool: str) -> None:
    """Remove the cgroups of a killed slurmd with this spool: one that starts would use them again."""
    if os.geteuid() == 0:
        name = cgroup.directory_name(spool)
        for prepare in (cgroup.prepare_memory, cgroup.prepare_devices, cgroup.prepare_cores, cgroup.prepare_tree):
            cgroup.remove(prepare(name))


class Cluster:
    """Nodes `n1…nN`, all in one slurmd unless a test starts its own. `extra` goes to slurm.conf before the nodes."""

    def __init__(
        self,
        *,
        nodes: int = 2,
        cpus: int = 8,
        slurm_user: str = "",
        extra: str = "",
        slurmd_parameters: str = "private_hosts",
        node_lines: str = "",
        partition_lines: str = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="spritz-e2e-"))
        self.root.chmod(0o755)
        self.work = self.root / "work"
        self.work.mkdir()
        self.work.chmod(0o1777)
        self.port = free_port()
        self.node_port = free_port()
        self.name = f"e2e{self.port}"
        self.slurm_user = slurm_user or user_name()
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.hostlist = f"n[1-{nodes}]"
        self.cpus = cpus
        self._ports: dict[str, int] = {}
        self.extra = extra
        self.slurmd_parameters = slurmd_parameters
        self.node_lines = node_lines or (
            f"NodeName={self.hostlist} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=8000 State=UNKNOWN"
        )
        self.partition_lines = partition_lines
        self.conf = self.root / "etc" / "slurm.conf"
        self.conf.parent.mkdir()
        self.write_conf()
        self.controller: subprocess.Popen[bytes] | None = None
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def use_ports(self, **words: str) -> None:
        """Give each node a port of its own, as several slurmds on one host need; `words` are added to each line."""
        more = " ".join(f"{key}={value}" for key, value in words.items())
        for name in self.names:
            self._ports.setdefault(name, free_port())
        self.node_lines = "\n".join(
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={self._ports[name]} CPUs={self.cpus} "
            f"RealMemory=8000 State=UNKNOWN {more}"
            for name in self.names
        )
        self.write_conf()

    def write_conf(self, *, append: str = "") -> None:
        """slurm.conf from what the attributes say now."""
        self.conf.write_text(
            f"ClusterName={self.name}\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={self.port}\n"
            f"SlurmdPort={self.node_port}\nSlurmUser={self.slurm_user}\nSlurmdUser={user_name()}\n"
            f"StateSaveLocation={self.root}/state\nSlurmdSpoolDir={self.root}/spool/%n\n"
            f"SlurmctldPidFile={self.root}/slurmctld.pid\nSlurmdPidFile={self.root}/slurmd-%n.pid\n"
            f"SlurmctldLogFile={self.root}/slurmctld.log\nSlurmdLogFile={self.root}/slurmd-%n.log\n"
            "SlurmctldDebug=debug\nSlurmdDebug=debug\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n"
            "ProctrackType=proctrack/linuxproc\nReturnToService=2\nKillWait=1\n"
            f"SlurmdParameters={self.slurmd_parameters}\n"
            f"MaxJobCount=100000\n{self.extra}\n{self.node_lines}\n{self.partition_lines}\n{append}\n"
        )

    # -- daemons

    def start(self) -> Cluster:
        """Controller and one slurmd for all nodes; returns when they are usable."""
        self.start_controller()
        self.start_nodes()
        return self

    def command(self, daemon: str, *arguments: str) -> list[str]:
        """The command line of a daemon with our slurm.conf."""
        return [sys.executable, "-m", _DAEMONS[daemon], "-f", str(self.conf), *arguments]

    def start_controller(self, *arguments: str) -> None:
        """In the foreground; returns when it answers."""
        assert self.controller is None or self.controller.poll() is not None, "it runs already"
        self.controller = self._spawn("slurmctld", *arguments)
        until(lambda: self.answers() or self._ended(self.controller), "the controller answers")

    def start_nodes(self, hostlist: str = "", *arguments: str, wait: bool = True) -> None:
        """A slurmd for these nodes in the foreground; returns when they are usable."""
        hostlist = hostlist or self.hostlist
        started = time.time()
        self.daemons[hostlist] = daemon = self._spawn("slurmd", "-N", hostlist, *arguments)
        if wait:
            from spritz.notation.hostlist import expand

            names = expand(hostlist)
            until(
                lambda: self._registered(names, started) or self._ended(daemon),
                lambda: f"{hostlist} registers; its log:\n{self.node_log()[-3000:]}",
            )

    def _spawn(self, daemon: str, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self.root / f"{daemon}.stderr", "ab") as stderr:
            return subprocess.Popen(
                self.command(daemon, "-D", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                env=os.environ | {_OURS: str(self.root)},
            )

    def run(self, daemon: str, *arguments: str, timeout: float = 100.0) -> subprocess.CompletedProcess[str]:
        """Run a daemon's command to its end: for starts that detach, or are refused."""
        return subprocess.run(
            self.command(daemon, *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=os.environ | {_OURS: str(self.root)},
        )

    def _ended(self, daemon: subprocess.Popen[bytes] | None) -> bool:
        assert daemon is not None
        if daemon.poll() is not None:
            texts = [path.read_text()[-3000:] for path in sorted(self.root.glob("*.stderr"))]
            raise AssertionError(f"{daemon.args!r} ended with {daemon.returncode}:\n" + "\n".join(texts))
        return False

    def answers(self) -> bool:
        """Whether the controller does."""
        try:
            with self.connect(timeout=100) as connection:
                connection.call(Ping(), Pong)
        except ClientError:
            return False
        return True

    def _registered(self, names: Iterable[str], since: float) -> bool:
        views = {view.node.name: view for view in self.nodes()}
        return all(views[name].node.registered_at >= since for name in names)

    def kill_controller(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait(PATIENCE_SECONDS)

    def stop_controller(self) -> int:
        """SIGTERM; the exit status."""
        assert self.controller is not None
        self.controller.terminate()
        return self.controller.wait(PATIENCE_SECONDS)

    def kill_nodes(self, hostlist: str = "") -> None:
        """SIGKILL to a slurmd."""
        daemon = self.daemons.pop(hostlist or self.hostlist)
        daemon.kill()
        daemon.wait(PATIENCE_SECONDS)

    def stop_nodes(self, hostlist: str = "") -> int:
        """SIGTERM to a slurmd; its exit status."""
        daemon = self.daemons.pop(hostlist or self.hostlist)
        daemon.terminate()
        return daemon.wait(PATIENCE_SECONDS)

    @property
    def node_daemon(self) -> subprocess.Popen[bytes]:
        """The slurmd of all nodes."""
        return self.daemons[self.hostlist]

    def controller_log(self) -> str:
        """What slurmctld has logged."""
        path = self.root / "slurmctld.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def node_log(self, node: str = "n1") -> str:
        """What the slurmd whose first node is `node` has logged."""
        path = self.root / f"slurmd-{node}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- asking

    def connect(self, *, timeout: float = 100.0) -> Connection:
        """A connection to the controller, as who runs the tests."""
        return connect_address(controller_socket_name(self.name, self.port), timeout=timeout, owners=self.owners)

    @property
    def owners(self) -> frozenset[int]:
        """uids that the daemons may run as."""
        return frozenset((os.getuid(), pwd.getpwnam(self.slurm_user).pw_uid))

    def call(self, request: object, reply: type[T]) -> T:
        """One request on a connection of its own."""
        with self.connect() as connection:
            return connection.call(request, reply)  # type: ignore[arg-type]  # a Struct

    def nodes(self) -> list[NodeView]:
        """All nodes."""
        return self.call(ListNodes(all=True), Nodes).nodes

    def node(self, name: str) -> NodeView:
        """One node."""
        return next(view for view in self.nodes() if view.node.name == name)

    def jobs(self, *targets: int) -> dict[int, Job]:
        """Jobs by number; all of them without targets."""
        request = ListJobs(filter=JobFilter(targets=tuple(JobTarget(number) for number in targets)), all=True)
        with self.connect() as connection:
            return {job.id: job for piece in connection.stream(request, Jobs, timeout=100.0) for job in piece.jobs}

    def job(self, number: int) -> Job:
        """One job."""
        return self.jobs(number)[number]

    def steps(self) -> list[StepView]:
        """All running steps, batch ones included."""
        return self.call(ListSteps(), Steps).steps

    def submit(self, script: str | bytes = "true", **fields: object) -> int:
        """Queue a batch script of ours in the work directory; its number."""
        return self.call(self.request(script, **fields), JobSubmitted).job_id

    def request(self, script: str | bytes = "true", **fields: object) -> SubmitJob:
        """What `submit` sends."""
        if isinstance(script, str):
            script = script.encode()
        if not script.startswith(b"#!"):
            script = b"#!/bin/sh\n" + script + b"\n"
        given: dict[str, object] = {
            "name": "job",
            "batch": True,
            "work_dir": str(self.work),
            "time_limit_minutes": 10,
            # As --nodes=N does.
            "nodes_given": "nodes_min" in fields,
            "nodes_max": fields.get("nodes_min", 0),
        }
        spec = JobSpec(**(given | fields))  # type: ignore[arg-type]  # by name
        return SubmitJob(spec=spec, script=script, environment=(b"PATH=/usr/bin:/bin",))

    def cancel(self, *numbers: int) -> CancelResult:
        """End jobs."""
        targets = tuple(JobTarget(number) for number in numbers)
        return self.call(CancelJobs(filter=JobFilter(targets=targets)), CancelResult)

    def wait_state(self, number: int, *states: str, seconds: float = PATIENCE_SECONDS) -> Job:
        """The job once it is in one of these states, and no longer completing."""

        def reached() -> Job | None:
            job = self.job(number)
            settled = not job.flags & JobFlag.COMPLETING
            return job if job.state.value in states and settled else None

        job = until(reached, lambda: f"job {number} is {' or '.join(states)}; it is {self.job(number)}", seconds)
        assert job is not None
        return job

    def wait_all_ended(self, numbers: Sequence[int], seconds: float = 100.0) -> dict[int, Job]:
        """All these jobs, once each has ended and is complete."""

        def ended() -> bool:
            jobs = self.jobs()
            return all(jobs[number].state.ended and not jobs[number].flags & JobFlag.COMPLETING for number in numbers)

        def left() -> str:
            jobs = self.jobs()
            live = [jobs[number] for number in numbers if not jobs[number].state.ended]
            return f"all of {len(numbers)} jobs end; {len(live)} do not, such as {live[:2]}"

        until(ended, left, seconds)
        return self.jobs()

    def end_jobs(self) -> None:
        """Cancel the jobs that are left, and wait until all of their resources are free."""
        numbers = [job.id for job in self.jobs().values() if not job.state.ended]
        if numbers:
            self.cancel(*numbers)
        self.wait_all_ended(list(self.jobs()))

    def output(self, number: int) -> str:
        """What the batch script wrote."""
        return (self.work / f"slurm-{number}.out").read_text(errors="surrogateescape")

    def supervisor(self, number: int) -> int:
        """Process id of the supervisor of a job's batch step, once its script runs."""

        def found() -> int:
            processes = self.job_processes(number)
            parents = {parent_of(pid) for pid in processes} - {*processes}
            return next((pid for pid in sorted(parents) if command_name(pid) == "slurmstepd"), 0)

        return until(found, f"job {number} has a supervisor")

    def job_processes(self, number: int | None = None) -> list[int]:
        """Living processes of a job, or of any job of this cluster."""
        if number is not None:
            ours = set(processes_with(f"SLURM_CONF={self.conf}"))
            return sorted(ours & set(processes_with(f"SLURM_JOB_ID={number}")))
        return processes_with(f"SLURM_CONF={self.conf}")

    # -- the end

    def close(self) -> None:
        """End all of it, jobs included."""
        for daemon in (self.controller, *self.daemons.values()):
            if daemon is not None and daemon.poll() is None:
                daemon.send_signal(signal.SIGCONT)
                daemon.kill()
                daemon.wait()
        for path in (self.root / "slurmctld.pid", *self.root.glob("slurmd-*.pid")):
            text = path.read_text().strip() if path.exists() else ""
            if text.isdigit() and is_alive(int(text)) and self._is_ours(int(text)):
                os.kill(int(text), signal.SIGKILL)
        for _ in range(50):
            # Supervisors too: one that was just forked would start its job's script after a look at jobs alone.
            left = {*self.job_processes(), *processes_with(f"{_OURS}={self.root}")}
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.02)
        for spool in self.root.glob("spool/*"):
            remove_groups(str(spool))
        shutil.rmtree(self.root, ignore_errors=True)

    def _is_ours(self, pid: int) -> bool:
        try:
            return os.fsencode(self.conf) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
