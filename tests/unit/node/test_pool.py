"""Supervisors of a daemon: reuse, and how many start at once."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spritz.model.node_daemon.reports import RunningStep
from spritz.node.supervisors import pool
from spritz.node.supervisors.connection import SupervisorLink
from spritz.stepd import control


class _Zygote:
    """Makes connections, and keeps their other ends in place of supervisors."""

    def __init__(self) -> None:
        self.supervisors: list[socket.socket] = []

    def launch(self, directory: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.supervisors.append(theirs)
        ours.setblocking(False)
        return ours


class _Daemon:
    """Starts waiting steps whenever the pool has room, as the agent does."""

    def __init__(self, zygote: _Zygote) -> None:
        self.waiting: list[int] = []
        self.links: dict[int, SupervisorLink] = {}
        self.begun: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.dismissed: list[SupervisorLink] = []
        self.pool = pool.Pool(
            zygote,  # type: ignore[arg-type]
            on_report=self._reported,
            on_end=lambda link: self.pool.forget(link),
            on_dismissed=self.dismissed.append,
            on_room=self._go_on,
            starts_max=2,
        )

    def start(self, *steps: int) -> None:
        self.waiting += steps
        self._go_on()

    def _go_on(self) -> None:
        while self.waiting and self.pool.has_room:
            step = self.waiting.pop(0)
            self.links[step] = self.pool.begin("n1", RunningStep(1, 0, step), f"/spool/{step}", (0,))
            self.begun[step].set()

    def _reported(self, link: SupervisorLink, report: control.Report) -> None:
        link.finished = True
        self.pool.keep(link)


@contextmanager
def _daemon() -> Iterator[tuple[_Daemon, _Zygote]]:
    zygote = _Zygote()
    daemon = _Daemon(zygote)
    try:
        yield daemon, zygote
    finally:
        daemon.pool.release()
        for supervisor in zygote.supervisors:
            supervisor.close()


def test_a_step_that_waits_gets_the_first_supervisor_that_is_free() -> None:
    async def steps() -> None:
        with _daemon() as (daemon, zygote):
            daemon.start(0, 1, 2)
            assert list(daemon.links) == [0, 1]
            zygote.supervisors[1].sendall(control.encode(control.Idle()))
            await daemon.begun[2].wait()
            assert daemon.links[2] is daemon.links[1]
            assert len(zygote.supervisors) == 2
            assert control.OrderDecoder().feed(zygote.supervisors[1].recv(4096)) == [control.Begin("/spool/2")]

    asyncio.run(steps())


def test_a_step_that_has_started_makes_room_for_another_supervisor() -> None:
    async def steps() -> None:
        with _daemon() as (daemon, zygote):
            daemon.start(0, 1, 2)
            daemon.pool.started(daemon.links[0])
            assert 2 in daemon.links
            assert len(zygote.supervisors) == 3

    asyncio.run(steps())


def test_a_supervisor_that_ends_makes_room() -> None:
    async def steps() -> None:
        with _daemon() as (daemon, zygote):
            daemon.start(0, 1, 2)
            zygote.supervisors[0].close()
            await daemon.begun[2].wait()
            assert daemon.links[2] not in (daemon.links[0], daemon.links[1])
            assert len(zygote.supervisors) == 3

    asyncio.run(steps())


def test_starts_that_take_long_do_not_hold_up_others_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "START_SECONDS", 0.01)

    async def steps() -> None:
        with _daemon() as (daemon, zygote):
            daemon.start(*range(7))
            await daemon.begun[6].wait()
            assert len(zygote.supervisors) == 7

    asyncio.run(steps())


def test_supervisors_from_before_a_change_get_no_further_step() -> None:
    async def steps() -> None:
        with _daemon() as (daemon, zygote):
            daemon.start(0, 1)
            daemon.pool.keep(daemon.links[0])
            daemon.pool.renew()
            assert daemon.dismissed == [daemon.links[0]]
            daemon.pool.keep(daemon.links[1])
            assert daemon.dismissed == [daemon.links[0], daemon.links[1]]
            daemon.start(2)
            assert len(zygote.supervisors) == 3

    asyncio.run(steps())


def test_an_idle_supervisor_that_died_is_replaced() -> None:
    async def steps() -> None:
        with _daemon() as (daemon, zygote):
            daemon.start(0)
            daemon.pool.keep(daemon.links[0])
            zygote.supervisors[0].close()
            daemon.start(1)
            assert daemon.links[1] is not daemon.links[0]

    asyncio.run(steps())
