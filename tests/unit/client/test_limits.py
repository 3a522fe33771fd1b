"""One peer cannot use up a daemon's connections, its memory or its log; others are served meanwhile. Real sockets."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from msgspec import Struct

from spritz.client.channel.admission import Limits
from spritz.client.channel.channel import Channel
from spritz.client.channel.handling import DEFERRED, Call, Deferred
from spritz.client.channel.server import Server
from spritz.client.channel.statistics import CallStatistics
from spritz.client.command.sync import connect_address
from spritz.client.errors import RemoteError
from spritz.runtime import log as log_module
from spritz.runtime import pipe as pipe_module
from spritz.wire.envelope import Hello, Response, decode_envelope, encode, encode_request
from spritz.wire.frames import FrameDecoder
from spritz.wire.versions import hello
from tests.unit.client.conversation import LOG, Answer, Ask, Crash, Silence, abstract_name, crash, echo, serving
from tests.unit.client.test_channel import run, server_at, to, until

MIB = 1024 * 1024

#: Our own user counts as any other.
NO_ONE: frozenset[int] = frozenset()

NOBODY = 65534


class Talker:
    """A peer of which a test decides every byte: a bare socket, since asyncio's streams must each be closed in time."""

    all: ClassVar[list[Talker]] = []

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.setblocking(False)
        self.frames = FrameDecoder()
        self.arrived: list[bytes] = []
        self._unsent: list[bytes] = []
        self._sender: asyncio.Task[None] | None = None
        Talker.all.append(self)

    @classmethod
    async def at(cls, name: str, *, role: str = "command") -> Talker:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(name)
        talker = cls(connection)
        talker.write(encode(hello(role)))
        return talker

    def write(self, data: bytes) -> None:
        """Send this after what is unsent, as fast as the server reads."""
        self._unsent.append(data)
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        while self._unsent:
            try:
                await asyncio.get_running_loop().sock_sendall(self.socket, self._unsent.pop(0))
            except OSError:  # refused: what it says is read, if there is any
                self._unsent.clear()
        self._sender = None

    def ask(self, number: int, request: Struct) -> None:
        self.write(encode_request(number, request))

    async def heard(self) -> Response | Hello | None:
        """The next thing that the server says; None when it has closed the connection."""
        while not self.arrived:
            try:
                data = await asyncio.get_running_loop().sock_recv(self.socket, 65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.arrived += self.frames.feed(data)
        envelope = decode_envelope(self.arrived.pop(0))
        assert isinstance(envelope, Response | Hello)
        return envelope

    async def answer(self, number: int) -> Response:
        """The answer to a request; greetings and other answers are passed over."""
        while True:
            envelope = await self.heard()
            assert envelope is not None, "the connection ended without an answer"
            if isinstance(envelope, Response) and envelope.id == number:
                return envelope

    async def refusal(self) -> str:
        """Why the server ends the connection."""
        response = await self.answer(0)
        assert response.error is not None
        assert await self.heard() is None
        return response.error.message

    async def is_served(self) -> bool:
        """Whether a request is answered; not if the connection is refused."""
        self.ask(7, Ask(text="served"))
        while (envelope := await self.heard()) is not None:
            if isinstance(envelope, Response):
                return envelope.id == 7 and envelope.error is None
        return False

    def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
        self.socket.close()


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    for talker in Talker.all:
        talker.socket.close()
    Talker.all.clear()


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(log_module._sinks, "write", lambda level, text: lines.append(text))
    return lines


async def seats(name: str, **options: Any) -> list[Talker]:
    """Connections of one user until one is refused, which is the last of them."""
    talkers: list[Talker] = []
    while True:
        talkers.append(await Talker.at(name, **options))
        talkers[-1].ask(7, Ask())
        envelope = await talkers[-1].heard()
        if not isinstance(envelope, Hello):
            return talkers
        assert len(talkers) < 500


def test_a_user_with_half_of_the_connections_gets_no_more_and_is_told_why(logged: list[str]) -> None:
    statistics = CallStatistics()

    async def main() -> None:
        options: dict[str, Any] = {"trusted": NO_ONE, "limits": Limits(connections=40), "statistics": statistics}
        async with server_at({Ask: echo}, **options) as (server, name):
            talkers = await seats(name)
            assert len(talkers) == 19
            last = await Talker.at(name)
            assert f"uid {os.getuid()} has 18 connections, and a user may have no more than are free (18)" in (
                await last.refusal()
            )
            for _ in range(30):
                assert not await (await Talker.at(name)).is_served()
            assert statistics.connections()["connections"] == 18
            assert statistics.connections()["connections_max"] == 40
            assert statistics.connections()["connection.refused"] == 32
            talkers[0].close()
            await until(lambda: len(server.channels) == 17, "the closed connection to be noticed")
            assert await (await Talker.at(name)).is_served()

    run(main)
    assert len([line for line in logged if line.startswith("connection.refused")]) == 1


def test_places_are_kept_for_daemons_where_everything_runs_as_one_user(logged: list[str]) -> None:
    async def main() -> None:
        async with server_at({Ask: echo}, limits=Limits(connections=40)) as (server, name):
            talkers = await seats(name)
            assert len(talkers) == 39
            assert not await talkers.pop().is_served()
            refused = await Talker.at(name)
            assert "of 40 connections are open, and the rest is kept for" in await refused.refusal()
            await until(lambda: len(server.channels) == 38, "refused connections to be closed")
            daemons = [await Talker.at(name, role="slurmd") for _ in range(2)]
            assert all([await daemon.is_served() for daemon in daemons])

    run(main)


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_root_is_served_while_another_user_holds_all_connections_it_can_get() -> None:
    name = abstract_name()
    ready, told = os.pipe()
    with serving({Ask: echo}, name, limits=Limits(connections=60)):
        crowd = os.fork()
        if crowd == 0:
            try:
                os.setuid(NOBODY)
                held = [_greeted(name) for _ in range(100)]
                os.write(told, b"x")
                signal.pause()
                del held
            finally:
                os._exit(0)
        try:
            assert os.read(ready, 1) == b"x"
            for _ in range(20):
                with connect_address(name, timeout=100) as connection:
                    assert connection.call(Ask(text="root"), Answer).text == "root"
        finally:
            os.kill(crowd, signal.SIGKILL)
            os.waitpid(crowd, 0)
            os.close(ready)
            os.close(told)


def _greeted(name: str) -> socket.socket:
    """A connection on which the server has said something: a greeting or a refusal. Or it has closed it."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(name)
        connection.sendall(encode(hello("command")))
        connection.recv(1)
    except OSError:
        pass
    return connection


def test_an_unidentified_peer_has_few_connections_and_short_messages(
    monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    monkeypatch.setattr(pipe_module, "peer_credentials", lambda connection: None)

    async def main() -> None:
        async with Server({Ask: echo}, role="slurmctld", log=LOG, limits=Limits(connections_per_address=5)) as server:
            port = int((await server.listen_tcp("127.0.0.1", 0)).name[1])

            async def stranger() -> Talker:
                talker = Talker(socket.create_connection(("127.0.0.1", port)))
                talker.write(encode(hello("command")))
                return talker

            talkers = [await stranger() for _ in range(5)]
            assert all([await talker.is_served() for talker in talkers])
            refused = await (await stranger()).refusal()
            assert "address 127.0.0.1 has 5 connections, the limit for each address on another machine" in refused
            talkers[0].write((5000).to_bytes(4, "big"))
            assert "impossible frame length 5000 (largest is 4096)" in await talkers[0].refusal()

    run(main)
    assert len([line for line in logged if line.startswith("message.too_long")]) == 1


def park(request: Silence, call: Call) -> Deferred:
    return DEFERRED


def test_a_connection_that_is_asked_nothing_is_closed_and_one_that_waits_for_something_is_not() -> None:
    holding: list[Channel] = []

    def hold(ask: Ask, call: Call) -> Answer:
        if ask.text == "hold":
            call.channel.on_close(lambda: None)
            holding.append(call.channel)
        return Answer(text=ask.text)

    parked: list[Call] = []

    def keep(request: Silence, call: Call) -> Deferred:
        parked.append(call)
        return DEFERRED

    async def main() -> None:
        statistics = CallStatistics()
        limits = Limits(idle_seconds=0.5)
        async with server_at({Ask: hold, Silence: keep}, limits=limits, statistics=statistics) as (server, name):
            waiting, held, link = await Talker.at(name), await Talker.at(name), await to(name)
            waiting.ask(1, Silence())
            held.ask(1, Ask(text="hold"))
            assert (await link.call(Ask(text="asked"), Answer)).text == "asked"
            await until(lambda: len(parked) == len(holding) == 1, "both requests")
            idle = [await Talker.at(name) for _ in range(3)]
            assert await idle[0].is_served()
            for talker in idle:
                assert "it was asked nothing for 0.5 s" in await talker.refusal()
                talker.close()
            # Of these nothing was heard for longer.
            await until(lambda: not link.is_open, "the link that asks no more to be closed")
            await until(lambda: len(server.channels) == 2, "the idle connections to end")
            parked[0].reply(Answer())
            assert (await waiting.answer(1)).error is None
            assert (await held.answer(1)).error is None
            assert await held.is_served()
            assert statistics.connections()["connection.idle"] >= 4

    run(main)


def test_half_a_message_is_waited_for_only_so_long(logged: list[str]) -> None:
    async def main() -> None:
        async with server_at({Ask: echo}, limits=Limits(frame_seconds=0.1)) as (_, name):
            half = await Talker.at(name)
            half.write(encode_request(1, Ask(text="x" * 1000))[:500])
            assert "a message was not complete after 0.1 s" in await half.refusal()
            drip = await Talker.at(name)
            assert isinstance(await drip.heard(), Hello)
            drip.write((1000).to_bytes(4, "big"))
            heard = asyncio.get_running_loop().create_task(drip.refusal())
            while not heard.done():  # a byte now and then does not help
                drip.write(b"x")
                await asyncio.sleep(0.01)
            assert "a message was not complete after 0.1 s" in heard.result()

    run(main)


def test_long_messages_wait_for_room_and_all_arrive() -> None:
    """Eight of a mebibyte, where the user has room for two and a half at a time."""
    statistics = CallStatistics()
    most = 0

    def look(ask: Ask, call: Call) -> Answer:
        nonlocal most
        most = max(most, statistics.connections()["receiving_bytes"])
        return Answer(text=str(len(ask.text)))

    async def main() -> None:
        limits = Limits(receiving_bytes=6 * MIB + MIB // 2)
        options: dict[str, Any] = {"trusted": NO_ONE, "limits": limits, "statistics": statistics}
        async with server_at({Ask: look}, **options) as (_, name), asyncio.TaskGroup() as group:
            message = encode_request(1, Ask(text="x" * MIB))
            talkers = [await Talker.at(name) for _ in range(8)]
            for talker in talkers:
                talker.write(message[:1000])
            for talker in talkers:
                talker.write(message[1000:])
            answers = [group.create_task(talker.answer(1)) for talker in talkers]
            for answer in answers:
                assert (await answer).error is None
            await until(lambda: statistics.connections()["receiving_bytes"] == 0, "all memory to be given back")

    run(main)
    assert most < 4 * MIB


@pytest.mark.slow
def test_halves_of_long_messages_hold_no_more_than_the_users_share() -> None:
    """As a user did with twenty connections, 64 MiB each: the daemon grew by 1.2 GB."""
    statistics = CallStatistics()

    async def main() -> None:
        options: dict[str, Any] = {"trusted": NO_ONE, "limits": Limits(), "statistics": statistics}
        async with server_at({Ask: echo}, **options) as (server, name):
            bystander = await Talker.at(name)
            assert await bystander.is_served()
            loop = asyncio.get_running_loop()
            sockets = []
            piece = b"x" * MIB
            for _ in range(20):
                attacker = socket.socket(socket.AF_UNIX)
                attacker.connect(name)
                attacker.setblocking(False)
                await loop.sock_sendall(attacker, encode(hello("command")) + (60 * MIB).to_bytes(4, "big"))
                sockets.append(attacker)
            for _ in range(59):
                await asyncio.gather(*(_send_what_goes(attacker, piece) for attacker in sockets))
            held = sum(channel._frames.buffered_bytes for channel in server.channels)
            assert 30 * MIB < held < 140 * MIB
            assert statistics.connections()["receiving_bytes"] < 140 * MIB
            assert await bystander.is_served()
            for attacker in sockets:
                attacker.close()
            await until(lambda: statistics.connections()["receiving_bytes"] == 0, "all memory to be given back")

    run(main)


async def _send_what_goes(sender: socket.socket, data: bytes) -> None:
    """As much of it as the server takes: it may not read, or have closed."""
    try:
        async with asyncio.timeout(0.05):
            await asyncio.get_running_loop().sock_sendall(sender, data)
    except (TimeoutError, OSError):
        pass


def test_long_requests_count_until_they_are_answered() -> None:
    """Or a slow disk would let a user fill the memory with what waits for it."""
    statistics = CallStatistics()
    waiting: list[Call] = []

    def keep(ask: Ask, call: Call) -> Deferred:
        waiting.append(call)
        return DEFERRED

    async def main() -> None:
        limits = Limits(receiving_bytes=10 * MIB)
        options: dict[str, Any] = {"trusted": NO_ONE, "limits": limits, "statistics": statistics}
        async with server_at({Ask: keep, Silence: park}, **options) as (_, name):
            talker = await Talker.at(name)
            for number in range(1, 101):
                talker.ask(number, Ask(text="x" * MIB))
            answered = 0
            while answered < 100:
                await until(lambda: len(waiting) > answered, "a further request")  # noqa: B023
                assert len(waiting) - answered <= 4
                assert statistics.connections()["receiving_bytes"] <= 6 * MIB
                waiting[answered].reply(Answer())
                answered += 1
            await until(lambda: statistics.connections()["receiving_bytes"] == 0, "all memory to be given back")

    run(main)


def test_a_user_who_reads_no_answers_is_cut_off_at_its_share_and_others_are_served(logged: list[str]) -> None:
    statistics = CallStatistics()
    produced = 0

    def big(ask: Ask, call: Call) -> Answer:
        nonlocal produced
        if ask.text == "served":
            return Answer(text=ask.text)
        produced += 1
        return Answer(text="x" * MIB)

    async def main() -> None:
        limits = Limits(unread_bytes=40 * MIB)
        options: dict[str, Any] = {"trusted": NO_ONE, "limits": limits, "statistics": statistics}
        async with server_at({Ask: big}, **options) as (_, name):
            requests = b"".join(encode_request(number, Ask()) for number in range(1, 1000))
            talkers = [await Talker.at(name) for _ in range(30)]
            for talker in talkers:
                talker.write(requests)
            await until(lambda: produced >= 4, "answers")
            seen = -1
            while seen != produced:
                seen = produced
                await asyncio.sleep(0.2)
            assert produced < 100
            assert statistics.connections()["unread_bytes"] <= 32 * MIB
            for talker in talkers:
                talker.close()
            await until(lambda: statistics.connections()["unread_bytes"] == 0, "all memory to be given back")
            assert await (await Talker.at(name)).is_served()

    run(main)


def test_requests_wait_while_answers_lie_unread_and_a_dead_reader_is_cut_off(logged: list[str]) -> None:
    statistics = CallStatistics()

    def big(ask: Ask, call: Call) -> Answer:
        return Answer(text=ask.text if ask.text == "served" else "x" * 3 * MIB)

    async def main() -> None:
        limits = Limits(unread_bytes=10 * MIB, unread_seconds=0.1)
        options: dict[str, Any] = {"trusted": NO_ONE, "limits": limits, "statistics": statistics}
        async with server_at({Ask: big}, **options) as (_, name):
            dead = await Talker.at(name)
            dead.ask(1, Ask())
            await until(lambda: statistics.connections()["unread_bytes"] > 2 * MIB, "an unread answer")
            # It waits until the dead reader is cut off.
            assert await (await Talker.at(name)).is_served()
            assert statistics.connections()["connection.unread"] == 1

    run(main)
    assert any("nothing read for 0.1 s" in line for line in logged)


def test_two_sides_with_long_messages_for_each_other_do_not_wait_for_ever() -> None:
    text = "x" * 5 * MIB  # more than the buffers of a socket hold

    async def main() -> None:
        async with server_at({Ask: echo}) as (server, name):
            link = await to(name, table={Ask: echo})
            assert (await link.call(Ask(text="ready"), Answer)).text == "ready"
            [accepted] = server.channels
            down, up = await asyncio.gather(
                accepted.call(Ask(text=text), Answer, timeout=15), link.call(Ask(text=text), Answer, timeout=15)
            )
            assert down.text == up.text == text

    run(main)


def test_requests_that_fail_or_cannot_be_read_are_told_once_a_minute_and_answered_each_time(logged: list[str]) -> None:
    statistics = CallStatistics()

    def unsayable(ask: Ask, call: Call) -> Answer:
        return Answer(text=2**70)  # type: ignore[arg-type]  # msgpack has no such number

    async def main() -> None:
        async with server_at({Ask: unsayable, Crash: crash}, statistics=statistics) as (_, name):
            talker = await Talker.at(name)
            for number in range(1, 100, 3):
                for offset, request in enumerate((Crash(), Ask(), Silence())):
                    talker.ask(number + offset, request)
            failures = [await talker.answer(number) for number in range(1, 100)]
            errors = [failure.error for failure in failures if failure.error is not None]
            assert len(errors) == 99
            assert not any("Traceback" in error.message or "Error(" in error.message for error in errors)

    run(main)
    assert len([line for line in logged if line.startswith("request.failed")]) == 1
    assert len([line for line in logged if line.startswith("request.malformed")]) == 1
    assert sum(line.count("Traceback") for line in logged) == 1
    assert statistics.connections()["request.failed"] == 66
    assert statistics.connections()["request.malformed"] == 33


def test_a_command_is_told_the_limit_in_words() -> None:
    name = abstract_name()
    limits = Limits(connections=4)
    with serving({Ask: echo}, name, limits=limits, trusted=NO_ONE):
        first = connect_address(name, timeout=100)
        assert first.call(Ask(text="first"), Answer).text == "first"
        second = connect_address(name, timeout=100)
        assert second.call(Ask(text="second"), Answer).text == "second"
        with connect_address(name, timeout=100) as third:
            with pytest.raises(RemoteError, match="Resource temporarily unavailable: uid .* has 2 connections"):
                third.call(Ask(), Answer)
        for connection in (first, second):
            connection.close()


def test_connections_leave_files_to_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would refuse everyone's connections at the limit of open files, root's too."""
    monkeypatch.setattr("resource.getrlimit", lambda which: (1024, 4096))

    async def main() -> None:
        statistics = CallStatistics()
        async with server_at({Ask: echo}, statistics=statistics):
            assert statistics.connections()["connections_max"] == 896

    run(main)


def test_requests_in_progress_are_shares_and_one_too_many_is_refused_in_words() -> None:
    """Requests that wait for an event would otherwise fill the daemon's memory. A user may have no more than is left
    for the others; a few of each connection are not counted, so that a command is never refused.
    """
    kept: list[Call] = []

    def keep(ask: Ask, call: Call) -> Deferred:
        kept.append(call)
        return DEFERRED

    async def main() -> None:
        limits = Limits(requests=25, uncounted_requests=2)  # 20 for users, so 10 for this one
        async with server_at({Ask: keep, Silence: lambda silence, call: Answer()}, limits=limits, trusted=NO_ONE) as (
            server,
            name,
        ):
            link = await to(name)
            waiting = [asyncio.ensure_future(link.call(Ask(), Answer)) for _ in range(12)]
            await until(lambda: len(kept) == 12, "ten requests and two that are not counted")
            with pytest.raises(RemoteError, match="10 requests in progress; its share is full"):
                await link.call(Ask(), Answer)
            other = await to(name)
            await other.call(Silence(), Answer)  # its first requests are not counted
            kept[0].reply(Answer())
            await waiting[0]
            waiting[0] = asyncio.ensure_future(link.call(Ask(), Answer))
            await until(lambda: len(kept) == 13, "another one in its place")
            link.close()
            await asyncio.gather(*waiting, return_exceptions=True)
            await until(lambda: server._quotas.requests.used == 0, "nothing is counted of a closed connection")

    run(main)
