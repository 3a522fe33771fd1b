"""Connections to daemons that slurmrestd keeps for its callers."""

from __future__ import annotations

import asyncio
from typing import Any

from spritz.rest.callers import Caller
from spritz.rest.daemons import CONTROLLER, Daemons


class _Channel:
    def __init__(self) -> None:
        self.is_open = True
        self.is_idle = False

    def close(self) -> None:
        self.is_open = False


class _Slow(Daemons):
    """Connections take a turn of the loop."""

    def __init__(self) -> None:
        super().__init__("slurm.conf", log=None, tasks=None, clock=None)  # type: ignore[arg-type]

    async def connect(self, daemon: str, caller: Caller) -> Any:
        await asyncio.sleep(0)
        return _Channel()


def test_first_requests_of_a_caller_at_the_same_time_share_a_connection() -> None:
    """None of them loses its connection to another."""

    async def journey() -> None:
        daemons, caller = _Slow(), Caller(token="t", user="alice")
        channels = await asyncio.gather(*(daemons.channel(CONTROLLER, caller) for _ in range(4)))
        assert [channel.is_open for channel in channels] == [True] * 4
        assert len({id(channel) for channel in channels}) == 1

    asyncio.run(journey())
