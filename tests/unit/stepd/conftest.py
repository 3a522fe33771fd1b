"""A zygote of the test's own, and what is needed to play the daemon and the client of a step."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spritz.model.node_daemon.reports import StepFinished
from spritz.stepd import control, protocol, record, spec

SupervisorSpec = spec.SupervisorSpec
Identity = spec.Identity
TaskSpec = spec.TaskSpec

#: A deadline only ends a test that has failed.
PATIENCE_SECONDS = 100.0


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Poll until `holds()`; fail with `what` was waited for."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"in {PATIENCE_SECONDS} seconds it did not come true that {what}")
        time.sleep(0.005)


class Running:
    """One supervisor, seen from its daemon."""

    def __init__(self, directory: Path, connection: socket.socket) -> None:
        self.directory = directory
        self.connection = connection
        self._decoder = control.ReportDecoder()
        self._reports: list[control.Report] = []

    def report(self) -> control.Report:
        """The next thing it says."""
        self.connection.settimeout(PATIENCE_SECONDS)
        while not self._reports:
            data = self.connection.recv(65536)
            assert data, "the supervisor went away without a word"
            self._reports += self._decoder.feed(data)
        return self._reports.pop(0)

    def started(self) -> control.Started:
        """Its first report."""
        report = self.report()
        assert isinstance(report, control.Started), report
        return report

    def result(self) -> StepFinished:
        """How it ended."""
        report = self.report()
        while not isinstance(report, control.Finished):
            report = self.report()
        return report.result

    def order(self, order: control.Order) -> None:
        """Tell it something."""
        self.connection.sendall(control.encode(order))

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        found = record.read(str(self.directory / spec.RECORD))
        assert found is not None
        return found.pids[0]


class Zygote:
    """The warm parent, and the spool it works in."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests = ours
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spritz.stepd", str(theirs.fileno())], pass_fds=(theirs.fileno(),)
        )
        theirs.close()
        self._count = 0
        self._connections: list[socket.socket] = []

    def launch(self, **fields: Any) -> Running:
        """Start a step; defaults are those of a batch job of ours in the spool's parent directory."""
        self._count += 1
        directory = self._directory(fields, self._count)
        directory.mkdir(mode=0o711)
        given: dict[str, Any] = {
            "job_id": 5,
            "restart_count": 0,
            "step_id": 0,
            "label": "5.0",
            "node": "n1",
            "node_index": 0,
            "identity": Identity(os.getuid(), os.getgid(), tuple(os.getgroups())),
            "work_dir": str(self.spool.parent),
            "environment": (b"PATH=/usr/bin:/bin", spec.marker(str(directory))),
            "kill_wait_seconds": 1,
        }
        through: Running | None = fields.pop("through", None)
        (directory / spec.RECORD).write_bytes(record.spec_entry(SupervisorSpec(**(given | fields))))
        (directory / spec.RECORD).chmod(0o600)
        if through is not None:
            through.order(control.Begin(str(directory)))
            return Running(directory, through.connection)
        ours, theirs = socket.socketpair()
        socket.send_fds(self._requests, [os.fsencode(directory)], [theirs.fileno()])
        theirs.close()
        self._connections.append(ours)
        return Running(directory, ours)

    def _directory(self, fields: dict[str, Any], number: int) -> Path:
        """As slurmd names them: steps of one job are told by it."""
        return self.spool / f"job{fields.get('job_id', 5):05}.0.{number}"

    def batch(self, script: str, output: Path, **fields: Any) -> Running:
        """A batch job with its output in a file."""
        name = str(fields.pop("argv0", "") or f"{self._directory(fields, self._count + 1)}/{spec.SCRIPT}")
        task = TaskSpec(0, (name,), (), (), spec.NOTHING, str(output), str(output))
        return self.launch(batch=True, script=script.encode(), label="5.batch", tasks=(task,), **fields)

    def close_connections(self) -> None:
        """Let go of all supervisors."""
        for connection in self._connections:
            connection.close()

    def close(self) -> None:
        """End it as the daemon's end would."""
        self._requests.close()
        self.close_connections()
        assert self.process.wait(PATIENCE_SECONDS) == 0


class Client:
    """What srun does: listens, takes one connection and reads frames."""

    def __init__(self, name: str) -> None:
        self.address = f"unix:@{name}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + name)
        self._listener.listen(8)
        self._listener.settimeout(PATIENCE_SECONDS)
        self._decoder = protocol.Decoder()
        self.frames: list[tuple[int, int, bytes]] = []
        self._read = 0
        self.connection: socket.socket | None = None

    def accept(self) -> protocol.Hello:
        """Take the connection and read its HELLO."""
        self.connection, _ = self._listener.accept()
        self.connection.settimeout(PATIENCE_SECONDS)
        return protocol.decode_hello(self.read_until(protocol.HELLO))

    def read_until(self, kind: int) -> bytes:
        """Read on up to and including the next frame of `kind`; its payload."""
        assert self.connection is not None
        while True:
            while self._read < len(self.frames):
                self._read += 1
                if self.frames[self._read - 1][0] == kind:
                    return self.frames[self._read - 1][2]
            data = self.connection.recv(65536)
            assert data, f"connection ended before a frame of kind {kind}; so far {self.frames}"
            self.frames += self._decoder.feed(data)

    def output(self, task: int, kind: int = protocol.STDOUT) -> bytes:
        """All that one task wrote so far."""
        return b"".join(payload for k, t, payload in self.frames if (k, t) == (kind, task))

    def exits(self) -> dict[int, int]:
        """Wait status by task."""
        return {t: protocol.unpack_exit(payload)[0] for k, t, payload in self.frames if k == protocol.EXIT}

    def messages(self) -> str:
        """Text for the client's standard error."""
        return b"".join(payload for k, _, payload in self.frames if k == protocol.MESSAGE).decode()

    def send(self, kind: int, task: int = protocol.ALL_TASKS, payload: bytes = b"") -> None:
        """One frame to the supervisor."""
        assert self.connection is not None
        self.connection.sendall(protocol.frame(kind, task, payload))

    def close(self) -> None:
        """Go away without a word."""
        self._listener.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[Zygote]:
    """A zygote with an empty spool."""
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o755)
    made = Zygote(spool)
    yield made
    made.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A client that listens."""
    made = Client(f"spritz-test-{os.getpid()}-{tmp_path.name}")
    yield made
    made.close()


def result_on_disk(running: Running) -> StepFinished | None:
    """What a daemon that starts again will find."""
    found = record.read(str(running.directory / spec.RECORD))
    return found.result if found is not None else None
