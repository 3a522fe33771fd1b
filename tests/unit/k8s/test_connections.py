"""What the operator leaves behind when it stops: no task and no open connection."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from spritz.http.rest import RestError
from spritz.http.transport import Http, NoAnswer
from spritz.k8s.scheduling.pod_scheduler import Jobs
from spritz.k8s.slurm import Job, Slurm


class _Busy:
    """Answers no request for rows until `answer` is set."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.busy = asyncio.Event()
        self.answer = asyncio.Event()

    async def jobs(self, ids: list[int]) -> list[Job]:
        self.asked.append(ids)
        self.busy.set()
        await self.answer.wait()
        if 9 in ids:
            raise RestError("no", 500)
        return []


def test_the_environments_proxy_is_used_but_for_hosts_that_it_excludes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n")).split()[1])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        writer.close()

    async def use() -> None:
        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            for base in ("http://api.example.org", f"http://127.0.0.1:{port}"):
                http = Http(base)
                try:
                    assert (await http.send("GET", "/x")).body == b"ok"
                finally:
                    await http.close()

    asyncio.run(use())
    assert asked == [b"http://api.example.org/x", b"/x"]


def test_a_closed_connection_opens_no_other() -> None:
    async def use() -> None:
        http = Http("http://127.0.0.1:9")
        await http.close()
        with pytest.raises(NoAnswer, match="closed"):
            await http.send("GET", "/")
        with pytest.raises(NoAnswer, match="closed"):
            async with http.stream("/", silence=1.0):
                pass

    asyncio.run(use())


def test_rows_are_fetched_together_and_a_failure_reaches_every_waiting_caller() -> None:
    async def use() -> None:
        slurm = _Busy()
        slurm.answer.set()
        jobs = Jobs(cast(Slurm, slurm))
        running = asyncio.create_task(jobs.run())
        assert [*await asyncio.gather(jobs.get([1, 2]), jobs.get([2, 3]))] == [[], []]
        assert slurm.asked == [[1, 2, 3]]
        with pytest.raises(RestError):
            await jobs.get([9])
        running.cancel()

    asyncio.run(use())


def test_no_request_for_rows_outlives_the_scheduler() -> None:
    async def use() -> None:
        slurm = _Busy()
        jobs = Jobs(cast(Slurm, slurm))
        before = asyncio.all_tasks()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(jobs.run())
            waiting = group.create_task(jobs.get([1]))
            await slurm.busy.wait()
            running.cancel()
            waiting.cancel()
        assert asyncio.all_tasks() == before

    asyncio.run(use())
