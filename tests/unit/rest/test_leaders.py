"""With several controllers, slurmrestd with the cluster's key finds the one that leads."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any, cast

import pytest

from spritz.client.channel.server import Server
from spritz.client.trust.membership import Membership
from spritz.model.errors import SpritzError
from spritz.model.queries.daemons import Ping, Pong
from spritz.rest.daemons import Daemons
from spritz.runtime import log
from spritz.runtime.clock import SystemClock
from spritz.runtime.tasks import Supervisor
from tests.ports import free_port


def controller(host: str, *, leading: bool) -> Server:
    def ping(_request: Ping, _call: Any) -> Pong:
        return Pong(host=host, pid=1, version="", software="", started_at=0, now=0, leading=leading, leader="second")

    return Server({Ping: ping}, role="slurmctld", log=log.get_logger("test"))


def test_the_leader_is_found_behind_one_that_stands_by(tmp_path: Path) -> None:
    port = free_port()
    conf = tmp_path / "slurm.conf"
    hosts = "SlurmctldHost=first(127.0.0.1)\nSlurmctldHost=second(127.0.0.2)\n"
    conf.write_text(f"ClusterName=two{port}\nSlurmctldPort={port}\nSlurmUser={os.geteuid()}\n{hosts}")

    async def journey() -> None:
        # On this machine the kernel names the peer, and no certificate is made.
        membership = cast("Membership", object())
        async with Supervisor(lambda _name, _error: None) as tasks, controller("first", leading=False) as first:
            await first.listen_tcp("127.0.0.1", port)
            daemons = Daemons(str(conf), log.get_logger("test"), tasks, SystemClock(), membership)
            async with controller("second", leading=True) as second:
                await second.listen_tcp("127.0.0.2", port)
                await daemons.ready()
            with contextlib.suppress(SpritzError):
                await daemons.ready()  # it may be the first to learn that the connection is lost
            with pytest.raises(SpritzError) as refused:
                await daemons.ready()
            assert "first stands by" in refused.value.hint
            daemons.close()
            tasks.cancel_all()

    asyncio.run(journey())
