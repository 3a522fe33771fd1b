"""A real slurmd and a controller that only listens: what the tests of the node daemon are made of."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from spritz.client.channel.channel import Channel
from spritz.client.channel.handling import Call
from spritz.client.channel.server import Server
from spritz.client.locate import controller_socket_name
from spritz.model.commands.job import Done
from spritz.model.ids import STEP_BATCH
from spritz.model.job.record import Job, JobSpec
from spritz.model.job.step import Step, StepNode, StepSpec
from spritz.model.node_daemon.launch import Accepted, LaunchBatch, LaunchStep, TerminateJob
from spritz.model.node_daemon.reports import (
    JobGone,
    NodeSamples,
    NodeTrouble,
    Registered,
    RegisterNode,
    StepFinished,
    StepStarted,
)
from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.states import JobState
from spritz.node.cgroup import prepare_tree, remove
from spritz.runtime.log import get_logger
from spritz.stepd import record
from spritz.stepd.spec import RECORD
from tests.ports import free_port

T = TypeVar("T")
PATIENCE_SECONDS = 100.0


def wait_until(holds: Callable[[], T], what: str, patience_seconds: float = PATIENCE_SECONDS) -> T:
    """Poll until `holds()` is true; its value. Fails saying what was waited for."""
    deadline = time.monotonic() + patience_seconds
    while not (value := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"in {patience_seconds} seconds it did not come true that {what}")
        time.sleep(0.005)
    return value


class ListeningController:
    """Registers nodes, acknowledges reports and remembers them; gives the orders that a test says."""

    def __init__(self, cluster: str, port: int) -> None:
        self._name = controller_socket_name(cluster, port)
        self.reports: list[Any] = []
        self.registrations: list[RegisterNode] = []
        self.samples: list[NodeSamples] = []
        self.term = 1
        #: reports are answered (and count) only while this holds
        self.answering = True
        self._channels: dict[str, Channel] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen."""
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        """Vanish: connections end, the address is free."""
        if self._thread is not None and self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(PATIENCE_SECONDS)
            self._thread = None

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        table = dict.fromkeys((StepStarted, StepFinished, JobGone, NodeTrouble), self._report)
        handlers: dict[Any, Any] = {**table, RegisterNode: self._register, NodeSamples: self._sampled}
        async with Server(handlers, role="slurmctld", log=get_logger("test")) as server:
            await server.listen_unix(self._name)
            ready.set()
            await self._stop.wait()

    def _register(self, request: RegisterNode, call: Call) -> Registered:
        self._channels[request.name] = call.channel  # before anybody is told: orders go to the daemon that is there
        self.registrations.append(request)
        return Registered(term=self.term)

    def _report(self, report: Any, call: Call) -> Done | None:
        if not self.answering:
            call.channel.close()
            return None
        self.reports.append(report)
        return Done()

    def _sampled(self, samples: NodeSamples, call: Call) -> Done:
        self.samples.append(samples)
        return Done()

    def tell(self, message: Any, reply: type[Any] = Accepted) -> Any:
        """Give an order to the node it names; the answer. Raises RemoteError if it is refused."""
        assert self._loop is not None
        channel = self._channels[getattr(message, "node", None) or next(iter(self._channels))]
        future = asyncio.run_coroutine_threadsafe(channel.call(message, reply, timeout=100), self._loop)
        return future.result(100)

    def find(self, kind: type[T], **fields: Any) -> T | None:
        """The first report of a kind with these fields."""
        for report in list(self.reports):
            if isinstance(report, kind) and all(getattr(report, name) == value for name, value in fields.items()):
                return report
        return None

    def wait_for(self, kind: type[T], patience_seconds: float = PATIENCE_SECONDS, **fields: Any) -> T:
        """As `find`, with patience."""
        found = wait_until(
            lambda: self.find(kind, **fields),
            f"a {kind.__name__} with {fields} is reported; so far {self.reports}",
            patience_seconds,
        )
        assert found is not None
        return found


class NodeCluster:
    """Some nodes in one slurmd, and the controller of the test."""

    def __init__(self, directory: Path, nodes: int = 2, extra: str = "", prefix: str = "n") -> None:
        # Not under the test's own directory: other users must be able to walk to the spool.
        self.root = Path(tempfile.mkdtemp(prefix="spritz-node-"))
        self.root.chmod(0o755)
        self.directory = directory
        self.work = self.root / "work"
        self.work.mkdir(mode=0o777)
        self.work.chmod(0o777)
        self.port, self.node_port = free_port(), free_port()
        self.names = [f"{prefix}{number}" for number in range(1, nodes + 1)]
        self.hostlist = f"{prefix}[1-{nodes}]"
        self.conf = self.root / "slurm.conf"
        self.extra = extra
        self.write_conf()
        self.controller = ListeningController(f"test{self.port}", self.port)
        self.daemon: subprocess.Popen[bytes] | None = None
        #: further variables of slurmd's environment
        self.environ: dict[str, str] = {}
        #: words before slurmd's command: a program that starts it elsewhere
        self.within: tuple[str, ...] = ()
        #: what Python runs
        self.program: tuple[str, ...] = ("-m", "spritz.node.main")
        self._next_job = 5

    def write_conf(self) -> None:
        """slurm.conf as it is now."""
        import pwd

        self.conf.write_text(
            f"ClusterName=test{self.port}\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={self.port}\n"
            f"SlurmdPort={self.node_port}\nSlurmUser={pwd.getpwuid(os.getuid()).pw_name}\n"
            f"SlurmdUser={pwd.getpwuid(os.getuid()).pw_name}\n"
            f"SlurmdSpoolDir={self.root}/spool/%n\nSlurmdPidFile={self.root}/slurmd.pid\n"
            f"SlurmdLogFile={self.root}/slurmd.log\nSlurmdDebug=debug\nStateSaveLocation={self.root}/state\n"
            "SlurmdParameters=config_overrides\nKillWait=1\nGresTypes=gpu\n"
            f"{self.extra}\n"
            f"NodeName={self.hostlist} NodeAddr=127.0.0.1 CPUs=64 RealMemory=64000 Gres=gpu:4 State=UNKNOWN\n"
            f"PartitionName=main Nodes=ALL Default=YES State=UP\n"
        )
        (self.root / "gres.conf").write_text(f"NodeName={self.hostlist} Name=gpu Count=4\n")

    def start(self, *options: str, wait: bool = True) -> None:
        """Start slurmd in the foreground and wait for its registration."""
        before = len(self.controller.registrations)
        command = [sys.executable, *self.program, "-D", "-f", str(self.conf), "-N", self.hostlist, *options]
        self.daemon = subprocess.Popen(
            [*self.within, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.environ},
        )
        if wait:
            wait_until(
                lambda: len(self.controller.registrations) >= before + len(self.names) or self._died(),
                f"slurmd registers; its log: {self.log()}",
            )

    def _died(self) -> bool:
        assert self.daemon is not None
        if self.daemon.poll() is not None:
            raise AssertionError(f"slurmd ended with {self.daemon.returncode}; its log: {self.log()}")
        return False

    def kill(self) -> None:
        """SIGKILL to slurmd."""
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait(PATIENCE_SECONDS)

    def stop(self) -> int:
        """SIGTERM to slurmd; its exit status."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGTERM)
        return self.daemon.wait(PATIENCE_SECONDS)

    def log(self) -> str:
        """What slurmd has logged."""
        path = self.root / "slurmd.log"
        return path.read_text() if path.exists() else ""

    def spool(self, node: str = "") -> Path:
        """A node's spool directory."""
        return self.root / "spool" / (node or self.names[0])

    def supervisor_pid(self, job: Job, step: str = "batch", node: str = "") -> int:
        """Process id of a step's supervisor, once it runs."""
        return self.pids(job, step, node)[0]

    def pids(self, job: Job, step: str = "batch", node: str = "") -> tuple[int, ...]:
        """Process ids of a step's supervisor and tasks, once they run."""
        path = self.spool(node) / f"job{job.id:05d}.{job.restart_count}.{step}" / RECORD

        def written() -> tuple[int, ...]:
            found = record.read(str(path))
            return found.pids if found is not None else ()

        return wait_until(written, f"{path} names a supervisor")

    def close(self) -> None:
        """End all of it, jobs included."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGTERM)
            try:
                self.daemon.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        for path in self.root.glob(f"spool/*/*/{RECORD}"):
            found = record.read(str(path))
            for pid in found.pids if found is not None else ():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self.controller.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    # -- jobs

    def job(self, nodes: int = 1, memory_mib: int = 0, **fields: Any) -> Job:
        """A running job of ours on the first nodes."""
        self._next_job += 1
        spec: dict[str, Any] = {
            "name": "job",
            "uid": os.getuid(),
            "gid": os.getgid(),
            "groups": tuple(os.getgroups()) or (os.getgid(),),
            "user": "me",
            "work_dir": str(self.work),
            "batch": True,
        }
        shares = tuple(NodeAllocation(node=name, cpus="3", memory_mib=memory_mib) for name in self.names[:nodes])
        return Job(
            id=self._next_job,
            spec=JobSpec(**(spec | fields)),
            state=JobState.RUNNING,
            started_at=1_700_000_000.0,
            ends_at=1_700_003_600.0,
            allocation=Allocation(partition="main", nodes=shares),
        )

    def batch(self, script: str, job: Job | None = None, **fields: Any) -> Job:
        """Launch a batch script on the first node of a (new) job."""
        job = job or self.job(**fields)
        self.controller.tell(self.batch_message(script, job))
        return job

    def batch_message(self, script: str, job: Job) -> LaunchBatch:
        """The order for it."""
        assert job.allocation is not None
        return LaunchBatch(
            term=self.controller.term,
            node=job.allocation.names[0],
            job=job,
            script=script.encode(),
            environment=(b"PATH=/usr/bin:/bin", b"HOME=/"),
            task_counts=(1,) * len(job.allocation.nodes),
            cluster_name="test",
        )

    def step(self, job: Job, step_id: int, argv: tuple[str, ...], tasks_per_node: int = 1, **fields: Any) -> None:
        """Launch a step of equal tasks on all nodes of the job."""
        assert job.allocation is not None
        given: dict[str, Any] = {"argv": argv, "environment": (b"PATH=/usr/bin:/bin",), "work_dir": str(self.work)}
        nodes = tuple(
            StepNode(
                allocation=share,
                task_ids=tuple(range(index * tasks_per_node, (index + 1) * tasks_per_node)),
            )
            for index, share in enumerate(job.allocation.nodes)
        )
        step = Step(
            job_id=job.id,
            step_id=step_id,
            spec=StepSpec(**(given | fields)),
            uid=job.spec.uid,
            nodes=nodes,
            tasks=tasks_per_node * len(nodes),
        )
        for share in job.allocation.nodes:
            self.controller.tell(
                LaunchStep(
                    term=self.controller.term,
                    node=share.node,
                    job=job,
                    step=step,
                    task_counts=(tasks_per_node,) * len(nodes),
                    cluster_name="test",
                )
            )

    def terminate(self, job: Job, cause: str = "CANCELLED", **fields: Any) -> None:
        """End the job on all of its nodes."""
        assert job.allocation is not None
        given: dict[str, Any] = {"kill_wait_seconds": 1, "at": 1_700_000_100.0}
        for share in job.allocation.nodes:
            self.controller.tell(
                TerminateJob(term=self.controller.term, node=share.node, job=job, cause=cause, **(given | fields))
            )

    def finished(self, job: Job, step_id: int = STEP_BATCH, **fields: Any) -> StepFinished:
        """The end of a step, once it is reported."""
        return self.controller.wait_for(StepFinished, job_id=job.id, step_id=step_id, **fields)

    def output(self, job: Job) -> str:
        """The batch script's output."""
        return (self.work / f"slurm-{job.id}.out").read_text()


@contextmanager
def running(cluster: NodeCluster) -> Iterator[NodeCluster]:
    """The cluster while its controller and its daemon run."""
    try:
        cluster.controller.start()
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def need_version_2() -> None:
    """Skip the test where no cgroup of version 2 may be made."""
    directory = prepare_tree(f"spritz_test_{os.getpid()}")
    if not directory:
        pytest.skip("no cgroup of version 2 may be made here")
    remove(directory)


def with_restart(job: Job, restart_count: int) -> Job:
    """A later life of the job."""
    return msgspec.structs.replace(job, restart_count=restart_count)
