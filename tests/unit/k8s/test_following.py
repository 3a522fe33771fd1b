"""How the operator follows jobs: all are looked at when the stream begins or lost events, and not because it broke."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from spritz.k8s.api import Api
from spritz.k8s.policy import Policy
from spritz.k8s.scheduling import pod_scheduler
from spritz.k8s.scheduling.pod_scheduler import PodScheduler
from spritz.k8s.slurm import Slurm
from tests.unit.http.servers import Asked, frame, serving


def test_a_broken_stream_goes_on_and_a_lost_one_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pod_scheduler, "_RECONNECT", 0.0)
    since: list[str | None] = []
    listed: list[tuple[str, int]] = []
    logged: list[str] = []
    over = asyncio.Event()
    #: what each connection gets; the second breaks in the middle of an event
    streams = [
        frame("hello", 10) + frame("job", 20, job_id=7, kind="JobStarted"),
        frame("hello", 20) + frame("job", 30, job_id=8, kind="JobEnded")[:-9],
        frame("hello", 20) + frame("job", 30, job_id=8, kind="JobEnded"),
        frame("hello", 30) + frame("reset", 5),
    ]

    async def script(asked: Asked) -> None:
        if asked.path.endswith("/events"):
            since.append(asked.query.get("since"))
            assert asked.query["types"] == "job,node"
            if not streams:
                over.set()
                await asyncio.Event().wait()
            asked.begin_stream()
            asked.writer.write(streams.pop(0))
        else:
            listed.append((asked.path.rpartition("/")[2], len(since)))
            asked.answer(200, b'{"nodes": [], "rows": []}')

    async def work() -> None:
        async with asyncio.timeout(60), serving(script, tmp_path / "s") as address:
            slurm = Slurm(address)

            def log(event: str, **_: Any) -> None:
                logged.append(event)

            scheduler = PodScheduler(cast(Api, None), slurm, Policy(), log)
            scheduler._workloads = {7: "a", 8: "b"}
            added: list[str] = []
            monkeypatch.setattr(scheduler.queue, "add", added.append)
            following = asyncio.create_task(scheduler._follow(asyncio.Event()))
            await over.wait()
            following.cancel()
            await slurm.close()
            assert added == ["a", "b"], "each once"

    asyncio.run(work())
    assert since == [None, "20", "20", "30", "5"]
    assert listed == [("nodes", 1), ("jobs", 1), ("nodes", 4), ("jobs", 4)]
    assert logged == ["slurm.away"] * 4
