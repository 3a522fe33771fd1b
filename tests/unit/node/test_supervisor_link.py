"""A supervisor that does not read: the daemon does not wait for it, and knows it by more than its process id."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spritz.model.node_daemon.reports import RunningStep
from spritz.node.supervisors.connection import SupervisorLink, kill_supervisor
from spritz.node.supervisors.zygote import Zygote
from spritz.stepd import control, record, spec

from .test_spool import known


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[SupervisorLink, socket.socket, list[SupervisorLink]]]:
    """A link, the supervisor's end, and the links that have ended."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ended: list[SupervisorLink] = []
    link = SupervisorLink(
        "n1", RunningStep(1, 0, 0), "/nowhere", (0,), ours, on_report=lambda link, report: None, on_end=ended.append
    )
    with theirs:
        yield link, theirs, ended
        link.close()


def test_orders_wait_for_a_busy_supervisor_and_messages_not_for_ever() -> None:
    asyncio.run(_fill())


async def _fill() -> None:
    async with linked() as (link, theirs, ended):
        for number in range(2000):
            link.order(control.Notify(f"{number:04} {'x' * 1000}"))
        link.order(control.Terminate("", 3.0))
        assert ended == []
        decoder = control.OrderDecoder()
        received: list[control.Order] = []
        theirs.setblocking(False)
        while not received or not isinstance(received[-1], control.Terminate):
            received += decoder.feed(await asyncio.get_running_loop().sock_recv(theirs, 65536))
        *messages, last = received
        assert last == control.Terminate("", 3.0)
        assert all(isinstance(message, control.Notify) for message in messages)
        numbers = [int(message.message[:4]) for message in messages if isinstance(message, control.Notify)]
        assert numbers == list(range(len(numbers)))
        assert 200 < len(numbers) < 2000
        link.order(control.Forget())
        assert decoder.feed(await asyncio.get_running_loop().sock_recv(theirs, 65536)) == [control.Forget()]


def test_a_supervisor_that_is_gone_ends_the_link_once() -> None:
    asyncio.run(_lose())


async def _lose() -> None:
    async with linked() as (link, theirs, ended):
        theirs.close()
        for _ in range(3):
            link.order(control.Forget())
        assert ended == [link]


def test_a_zygote_that_does_not_read_holds_up_no_daemon() -> None:
    zygote = Zygote()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        zygote._requests = ours
        zygote.start = lambda: None  # type: ignore[method-assign]

        def launch_many() -> None:
            for _ in range(100_000):
                zygote.launch("/nowhere").close()

        with pytest.raises(BlockingIOError):
            launch_many()
        zygote.close()


#: A process of that name which has a file open.
HOLDER = """
import os, sys
from spritz.stepd import processes
processes.name_process(sys.argv[2])
file = os.open(sys.argv[1], os.O_RDONLY)
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("named", "linked"), [(True, False), (False, False), (True, True)])
def test_a_supervisor_is_known_by_its_open_record(tmp_path: Path, named: bool, linked: bool) -> None:
    directory = tmp_path / "job00001.0.0"
    if linked:  # SlurmdSpoolDir may be a symbolic link, or lie below one
        (tmp_path / "elsewhere").mkdir()
        directory.symlink_to(tmp_path / "elsewhere")
    else:
        directory.mkdir()
    path = directory / spec.RECORD
    path.write_bytes(record.spec_entry(known(1)))
    command = [sys.executable, "-c", HOLDER, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    holders = [subprocess.Popen([*command, name], **pipes) for name in ("slurmstepd", "other")]  # type: ignore[call-overload]
    supervisor, other = holders
    for holder in holders:
        holder.stdout.readline()
    # The record may name a process that has taken over the number.
    path.write_bytes(record.spec_entry(known(1)) + record.pids_entry((supervisor.pid if named else os.getpid(),)))
    try:
        killed = kill_supervisor(str(directory))
        assert killed is not None
        assert killed.pid == supervisor.pid
        assert supervisor.wait(100) == -9
        assert kill_supervisor(str(directory)) is None
        assert other.poll() is None
    finally:
        other.kill()
        for holder in holders:
            holder.communicate()
