"""One user takes all connections of slurmctld that he can get, and all memory: root and nodes are served meanwhile."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.commands.job import JobSubmitted
from spritz.model.queries.diagnostics import Diagnostics, GetDiagnostics
from spritz.wire.envelope import encode
from spritz.wire.versions import hello
from tests.e2e.controller_process import ControllerProcess, a_job, until
from tests.e2e.fake_node import FakeNode
from tests.e2e.users import NOBODY

MIB = 1024 * 1024


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerProcess]:
    process = ControllerProcess(tmp_path)
    yield process
    process.kill()


def _few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (328, 328))


def _greeted(name: str) -> socket.socket:
    """A connection that the server has answered, or closed."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(name)
        connection.sendall(encode(hello("command")))
        connection.recv(4096)
    except OSError:
        pass
    return connection


def _send_halves(connections: list[socket.socket]) -> None:
    """Twenty mebibytes of a message of forty on each, as far as the server reads."""
    left = {}
    for connection in connections:
        connection.setblocking(False)
        left[connection] = memoryview((40 * MIB).to_bytes(4, "big") + bytes(20 * MIB))
    while left:
        _, ready, _ = select.select([], list(left), [], 1.0)
        if not ready:
            return
        for connection in ready:
            try:
                left[connection] = left[connection][connection.send(left[connection]) :]
            except OSError:
                left[connection] = memoryview(b"")
            if not left[connection]:
                del left[connection]


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_root_and_nodes_are_served_while_a_user_holds_all_connections_it_can_get(controller: ControllerProcess) -> None:
    controller.start(limit=_few_files)  # 200 connections in all
    assert controller.process is not None
    before = _resident_bytes(controller.process.pid)
    ready, told = os.pipe()
    crowd = os.fork()
    if crowd == 0:
        try:
            os.setuid(NOBODY)
            held = [_greeted(controller.socket_name) for _ in range(150)]
            _send_halves(held[:40])
            os.write(told, b"x")
            signal.pause()
        finally:
            os._exit(0)
    try:
        assert os.read(ready, 1) == b"x"
        grown = _resident_bytes(controller.process.pid) - before
        assert grown < 300 * MIB, "40 halves of 20 MiB were sent"

        async def main() -> None:
            async with FakeNode(controller.socket_name, ["n1"]) as node:
                await node.link.channel(timeout=100)
                with controller.connect() as connection:
                    number = connection.call(a_job("root's"), JobSubmitted).job_id
                    found = connection.call(GetDiagnostics(), Diagnostics)
                await asyncio.to_thread(until, lambda: (number, 0) in node.started, "the job's launch")
                assert found.connections["connections_max"] == 200
                assert found.connections["connections"] <= 92  # half of what is left to users, root's and the node's
                assert found.connections["connection.refused"] >= 60
                assert found.connections["receiving_bytes"] <= 160 * MIB

        asyncio.run(main())
        assert controller.log.count("connection.refused") == 1
    finally:
        os.kill(crowd, signal.SIGKILL)
        os.waitpid(crowd, 0)
        os.close(ready)
        os.close(told)
