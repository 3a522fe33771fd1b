"""Users share the loop of a daemon: no user's requests, connections or streams hold up the others'.

Over real connections, which the kernel gives to one user; the tests say which user each belongs to. Work is counted in
units, and the loop in turns; no time is measured. With a time of 0 s for requests a turn takes one unit of work.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct

from spritz.client.channel import server as server_module
from spritz.client.channel.aio import connect
from spritz.client.channel.channel import Channel
from spritz.client.channel.handling import Call, Handler
from spritz.client.channel.server import Server
from spritz.client.channel.turns import OwnPlaces, Places, Rotation, Turns
from spritz.controller.api.listings import in_own_place
from spritz.runtime import tasks
from tests.unit.client.conversation import LOG, Answer, Ask, Count, Number, Who, abstract_name

ALICE, BOB = 1001, 1002


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run one conversation on a fresh loop, with a limit."""

    async def limited() -> None:
        async with asyncio.timeout(100):
            await main()

    tasks.run(limited())


async def until(what: Callable[[], bool]) -> None:
    while not what():  # noqa: ASYNC110  # each turn of the loop counts
        await asyncio.sleep(0)


class Site:
    """A server whose turns take one unit of work each, and connections of users to it."""

    def __init__(self, server: Server, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self._name = name
        self._accepted: list[int] = []
        monkeypatch.setattr(server_module, "peer_of", lambda pipe: self._accepted.pop(0))
        #: turns of the loop so far
        self.turns = 0
        self._count()

    def _count(self) -> None:
        self.turns += 1
        asyncio.get_running_loop().call_soon(self._count)

    async def connect(self, uid: int) -> Channel:
        self._accepted.append(uid)
        return await connect([self._name], role="command", log=LOG)


@asynccontextmanager
async def site_of(table: dict[type[Struct], Handler], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    name = abstract_name()
    async with Server(table, role="slurmctld", log=LOG, trusted=frozenset({0})) as server:
        server.turns = Turns(0.0)
        await server.listen_unix(name)
        yield Site(server, name, monkeypatch)


def waited(site: Site) -> int:
    """Units of work that had to wait so far."""
    assert site.server.turns is not None
    return site.server.turns.waited


def test_a_request_is_answered_after_a_few_of_a_user_who_floods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty connections with a hundred requests each, and one request of another user."""
    served: list[str] = []

    def note(ask: Ask, call: Call) -> Answer:
        served.append(ask.text)
        return Answer(text=ask.text)

    async def main() -> None:
        async with site_of({Ask: note}, monkeypatch) as site, AsyncExitStack() as links:
            alice = await site.connect(ALICE)
            flood = []
            for _ in range(30):
                bob = await site.connect(BOB)
                links.callback(bob.close)
                flood += [asyncio.ensure_future(bob.call(Ask(text="bob"), Answer, timeout=None)) for _ in range(100)]
            await until(lambda: served.count("bob") >= 100)
            before, turns = len(served), site.turns
            await alice.call(Ask(text="alice"), Answer)
            assert served.count("alice") == 1
            assert len(served) - before < 20, "her request waited for more than a few of his"
            assert site.turns - turns < 20
            await asyncio.gather(*flood)
            assert served.count("bob") == 3000, "his are answered too"

    run(main)


def test_streams_of_one_user_make_one_slice_a_turn_and_another_user_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slices = 0

    async def count(request: Count, call: Call) -> AsyncIterator[Number]:
        nonlocal slices
        for value in range(request.upto):
            slices += 1
            yield Number(value=value)

    async def main() -> None:
        async with site_of({Count: count, Ask: lambda ask, call: Answer()}, monkeypatch) as site:
            alice = await site.connect(ALICE)

            async def read(link: Channel) -> int:
                async with aclosing(link.stream(Count(upto=100), Number)) as numbers:
                    return len([number async for number in numbers])

            links = [await site.connect(BOB) for _ in range(20)]
            began = site.turns
            flood = [asyncio.ensure_future(read(link)) for link in links for _ in range(5)]
            await until(lambda: slices >= 200)
            assert slices <= site.turns - began + 1, "more than one slice in a turn"
            before = slices
            await alice.call(Ask(), Answer)
            assert slices - before < 20
            assert await asyncio.gather(*flood) == [100] * 100
            for link in links:
                link.close()

    run(main)


def test_what_waits_for_a_caller_that_has_gone_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Counter[str]()

    def note(ask: Ask, call: Call) -> Answer:
        served[ask.text] += 1
        return Answer()

    async def main() -> None:
        async with site_of({Ask: note}, monkeypatch) as site:
            alice, bob = await site.connect(ALICE), await site.connect(BOB)
            for _ in range(1000):
                bob.notify(Ask(text="bob"))
            await until(lambda: served["bob"] > 0)
            bob.close()
            await until(lambda: len(site.server.channels) == 1)
            left = served["bob"]
            await alice.call(Ask(), Answer)
            assert served["bob"] == left
            assert waited(site) <= left + 3

    run(main)


def test_daemons_of_the_cluster_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their reports free what users wait for."""
    served: list[str] = []

    async def main() -> None:
        def note(ask: Ask, call: Call) -> Answer:
            served.append(ask.text)
            return Answer()

        async with site_of({Ask: note}, monkeypatch) as site:
            bob = await site.connect(BOB)
            site._accepted.append(0)
            daemon = await connect([site._name], role="slurmd", log=LOG)
            await daemon.call(Ask(text="first"), Answer)
            for _ in range(500):
                bob.notify(Ask(text="bob"))
            await until(lambda: "bob" in served)
            before = waited(site)
            await asyncio.gather(*(daemon.call(Ask(text="daemon"), Answer) for _ in range(50)))
            assert served.count("daemon") == 50
            assert served.count("bob") < 50, "they waited for as many of his"
            assert waited(site) - before < 50

    run(main)


def test_a_server_that_closes_gives_up_what_waits_for_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that have not begun, of all kinds; a coroutine that never ran would be a warning."""
    begun = Counter[str]()

    async def slowly(ask: Ask, call: Call) -> Answer:
        begun["requests"] += 1
        await asyncio.Event().wait()
        return Answer()

    async def count(request: Count, call: Call) -> AsyncIterator[Number]:
        begun["streams"] += 1
        yield Number(value=1)
        await asyncio.Event().wait()

    listings = in_own_place(OwnPlaces(1), slowly)

    async def main() -> None:
        async with site_of({Ask: slowly, Count: count, Who: listings}, monkeypatch) as site:
            link = await site.connect(BOB)
            asked: list[asyncio.Future[Any]] = [asyncio.ensure_future(link.call(Ask(), Answer)) for _ in range(100)]
            asked += [asyncio.ensure_future(link.call(Who(), Answer)) for _ in range(100)]
            streams = [link.stream(Count(upto=1), Number) for _ in range(100)]
            for stream in streams:
                asked.append(asyncio.ensure_future(anext(stream)))
            await until(lambda: begun["requests"] > 5 and waited(site) > 50)
        await asyncio.gather(*asked, return_exceptions=True)
        assert begun["requests"] < 200

    monkeypatch.setattr(server_module, "CLOSE_SECONDS_MAX", 0.05)
    run(main)


def test_users_come_in_rotation_and_each_users_entries_in_their_order() -> None:
    rotation = Rotation[str]()
    for peer, entry in ((BOB, "b1"), (BOB, "b2"), (BOB, "b3"), (ALICE, "a1"), ("10.0.0.7", "x1"), (ALICE, "a2")):
        rotation.add(peer, entry)
    taken = []
    while rotation:
        taken.append(rotation.take())
    assert taken == ["b1", "a1", "x1", "b2", "a2", "b3"]


def test_few_hold_places_at_once_and_one_that_gives_up_loses_none() -> None:
    async def main() -> None:
        places, inside, most, order = Places(2), 0, 0, list[int]()

        async def hold(peer: int) -> None:
            nonlocal inside, most
            async with places.place(peer):
                inside += 1
                most = max(most, inside)
                order.append(peer)
                await asyncio.sleep(0)
                inside -= 1

        held = [asyncio.ensure_future(hold(BOB)) for _ in range(20)]
        await asyncio.sleep(0)
        held += [asyncio.ensure_future(hold(ALICE)) for _ in range(3)]
        for task in held[5:15]:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        assert most == 2
        assert order.count(ALICE) == 3
        assert max(place for place, peer in enumerate(order) if peer == ALICE) < 9, "users take turns"
        async with places.place(BOB), places.place(BOB):
            pass  # no place was lost

    run(main)


def test_a_user_waits_for_places_of_the_own_alone() -> None:
    async def main() -> None:
        places = OwnPlaces(1)
        async with places.place(BOB):
            async with places.place(ALICE):
                pass
            waiting = asyncio.ensure_future(places.place(BOB).__aenter__())
            await asyncio.sleep(0)
            assert not waiting.done()
            waiting.cancel()
        await asyncio.wait([waiting])
        assert not places._by_user, "nothing is kept of users without work"

    run(main)
