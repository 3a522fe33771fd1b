"""Two candidates for one Lease, on a clock that the test turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spritz.k8s.api import Api, Retries
from spritz.k8s.election import Election, NotLeader
from spritz_testing.kubernetes.access import ADMIN
from spritz_testing.kubernetes.server import KubeServer

PATH = "apis/coordination.k8s.io/v1/namespaces/default/leases/l"


class Candidate(Election):
    """With a clock of its own, for each machine has one."""

    def __init__(self, api: Api, identity: str, clock: list[float], log: list[str]) -> None:
        super().__init__(
            api,
            "l",
            lambda event, **_fields: log.append(f"{identity} {event}"),
            identity=identity,
            now=lambda: clock[0],
        )
        self.clock = clock


def play(scene: Callable[[KubeServer, Candidate, Candidate, list[str]], Awaitable[None]]) -> None:
    async def run() -> None:
        log: list[str] = []
        async with (
            KubeServer(tls=False) as server,
            Api.connect(server.kubeconfig, retries=Retries(attempts=1)) as one,
            Api.connect(server.user("two", ("system:masters",)), retries=Retries(attempts=1)) as two,
        ):
            # Their clocks do not agree, and need not.
            await scene(server, Candidate(one, "a", [1000.0], log), Candidate(two, "b", [5.0], log), log)
            assert not server.failures

    asyncio.run(run())


async def turn(seconds: float, *candidates: Candidate) -> None:
    for candidate in candidates:
        candidate.clock[0] += seconds


def test_a_lease_is_taken_when_it_has_not_changed_for_its_time() -> None:
    async def scene(server: KubeServer, a: Candidate, b: Candidate, log: list[str]) -> None:
        assert await a._attempt()
        assert not await b._attempt()
        await turn(8, a, b)
        assert await a._attempt(), "it is renewed"
        await turn(8, a, b)
        assert not await b._attempt(), "b sees the renewal, and begins to wait"
        await turn(14, a, b)
        assert not a.leads, "the fence closes before another can lead"
        with pytest.raises(NotLeader):
            a.check()
        assert not await b._attempt()
        await turn(2, a, b)
        assert await b._attempt()
        assert not await a._attempt()
        b.check()

    play(scene)


def test_what_others_wrote_on_a_lease_stays_there() -> None:
    """Labels of a chart, annotations of a backup, fields of the spec that the election does not know."""

    async def scene(server: KubeServer, a: Candidate, b: Candidate, log: list[str]) -> None:
        assert await a._attempt()
        change: Any = {
            "metadata": {"labels": {"team": "ml"}, "annotations": {"note": "kept"}},
            "spec": {"strategy": "OldestEmulationVersion"},
        }
        await a._api.send("PATCH", PATH, body=json.dumps(change).encode(), content_type="application/merge-patch+json")
        assert await a._attempt()
        await turn(20, a, b)
        assert not await b._attempt()
        await turn(20, a, b)
        assert await b._attempt()
        await b._release()
        lease: Any = server.cluster._find("leases", "default", "l")
        assert lease["metadata"]["labels"] == {"team": "ml"}
        assert lease["metadata"]["annotations"] == {"note": "kept"}
        assert lease["spec"]["strategy"] == "OldestEmulationVersion"
        assert not lease["spec"].get("holderIdentity")

    play(scene)


def test_of_two_operators_that_try_at_once_one_leads() -> None:
    async def scene(server: KubeServer, a: Candidate, b: Candidate, log: list[str]) -> None:
        assert sorted(await asyncio.gather(a._attempt(), b._attempt())) == [False, True]
        for each in (a, b):
            await each._attempt()
        await turn(20, a, b)
        assert sorted(await asyncio.gather(a._attempt(), b._attempt())) == [False, True]

    play(scene)


def test_a_leader_that_is_cut_off_stops_its_work_and_one_that_ends_lets_go() -> None:
    async def scene(server: KubeServer, a: Candidate, b: Candidate, log: list[str]) -> None:
        working: dict[str, int] = {"a": 0, "b": 0}
        changed = asyncio.Event()

        def work(name: str) -> Callable[[], Awaitable[None]]:
            async def run() -> None:
                working[name] += 1
                changed.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    working[name] -= 1
                    changed.set()

            return run

        async def until(**wanted: int) -> None:
            async with asyncio.timeout(100):
                while working != wanted:
                    changed.clear()
                    await changed.wait()

        for each in (a, b):
            each._seconds = 1.0
            each._now = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as group:
            first = group.create_task(a.run(work("a")))
            await until(a=1, b=0)
            second = group.create_task(b.run(work("b")))
            server.faults.drop(times=None, user=ADMIN.name)
            await until(a=0, b=0)
            await until(a=0, b=1)
            server.faults.clear()
            second.cancel()
            await until(a=1, b=0)
            first.cancel()
        lease: Any = server.cluster._find("leases", "default", "l")
        assert not lease["spec"].get("holderIdentity")
        assert lease["spec"]["leaseTransitions"] >= 2
        assert "a leader.lost" in log

    play(scene)


def test_an_operator_that_is_stopped_while_it_loses_its_lease_ends() -> None:
    """`asyncio.TaskGroup` drops a cancellation that comes while it is left because of an error."""

    class Losing(Election):
        async def _attempt(self) -> bool:
            return True

        async def _keep(self, working: asyncio.Task[None]) -> None:
            await asyncio.sleep(0)
            raise NotLeader("it is another's")

        async def _release(self) -> None: ...

    async def main() -> None:
        leading: asyncio.Task[None]

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                leading.cancel()
                await asyncio.sleep(0)

        api = cast("Api", SimpleNamespace(namespace="default"))  # not asked anything
        election = Losing(api, "l", lambda event, **_fields: None, identity="a")
        leading = asyncio.get_running_loop().create_task(election.run(work))
        async with asyncio.timeout(100):
            await asyncio.wait([leading])
        assert leading.cancelled()

    asyncio.run(main())
