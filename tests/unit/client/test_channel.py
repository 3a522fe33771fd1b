"""Both sides of a channel may ask; nothing that a peer does harms a daemon; what is full pushes back."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct, structs

from spritz.client.channel import channel as channel_module
from spritz.client.channel import server as server_module
from spritz.client.channel.admission import Limits
from spritz.client.channel.aio import PersistentChannel, connect
from spritz.client.channel.channel import Channel
from spritz.client.channel.handling import DEFERRED, Call, Deferred, Handler
from spritz.client.channel.server import Server
from spritz.client.errors import CallTimeout, ClientError, ConnectionLost, RemoteError
from spritz.model.errors import SpritzError
from spritz.runtime import log as log_module
from spritz.runtime import pipe as pipe_module
from spritz.runtime import tasks
from spritz.wire.envelope import Hello, Response, decode_envelope, encode, encode_request
from spritz.wire.frames import FRAME_BYTES_MAX, FrameDecoder, frame
from spritz.wire.versions import hello
from tests.unit.client.conversation import LOG, Answer, Ask, Count, Number, Silence, abstract_name, echo


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run one conversation on a fresh loop, with a limit."""

    async def limited() -> None:
        async with asyncio.timeout(100):
            await main()

    tasks.run(limited())


async def until(condition: Callable[[], bool], what: str) -> None:
    """Return when the condition holds; say what was waited for if it does not."""
    try:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - nothing tells when it holds
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"waited 60 s for: {what}") from None


@asynccontextmanager
async def server_at(table: dict[type[Struct], Handler], **options: Any) -> AsyncIterator[tuple[Server, str]]:
    name = abstract_name()
    async with Server(table, role="slurmctld", log=LOG, **options) as server:
        await server.listen_unix(name)
        yield server, name


async def to(name: str, **options: Any) -> Channel:
    return await connect([name], role="slurmd", log=LOG, **options)


async def raw(name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(name)
    connection.setblocking(False)
    return await asyncio.open_unix_connection(sock=connection)


async def frames_from(reader: asyncio.StreamReader) -> list[bytes]:
    """Everything that the peer sends until it closes."""
    data = await reader.read()
    return FrameDecoder().feed(data)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(log_module._sinks, "write", lambda level, text: lines.append(text))
    return lines


def test_the_accepting_side_may_ask_too() -> None:
    async def main() -> None:
        async with server_at({Ask: echo}) as (server, name):
            link = await to(name, table={Ask: lambda ask, call: Answer(text=ask.text.upper())})
            assert (await link.call(Ask(text="up"), Answer)).text == "up"
            [accepted] = server.channels
            assert accepted.peer is not None
            assert accepted.peer.role == "slurmd"
            assert (await accepted.call(Ask(text="down"), Answer)).text == "DOWN"

    run(main)


def test_an_answer_is_looked_at_before_the_message_that_follows_it() -> None:
    """A node must know which jobs have ended for the controller before it takes the launches behind that answer."""
    seen: list[str] = []

    def answer_and_ask(ask: Ask, call: Call) -> Deferred:
        call.reply(Answer(text="answer"))
        call.channel.notify(Ask(text="launch"))
        return DEFERRED

    async def main() -> None:
        async with server_at({Ask: answer_and_ask}) as (_server, name):
            link = await to(name, table={Ask: lambda ask, call: seen.append(ask.text)})
            await link.call(Ask(text="register"), Answer, arrived=lambda answer: seen.append(answer.text))
            await until(lambda: len(seen) == 2, "both messages")
            assert seen == ["answer", "launch"]

    run(main)


def test_answers_find_their_callers_in_whatever_order_they_come() -> None:
    kept: list[tuple[Ask, Call]] = []

    def keep(ask: Ask, call: Call) -> Deferred:
        kept.append((ask, call))
        return DEFERRED

    async def main() -> None:
        async with server_at({Ask: keep}) as (_, name), asyncio.TaskGroup() as group:
            link = await to(name)
            waiting = [group.create_task(link.call(Ask(text=str(n)), Answer)) for n in range(100)]
            await until(lambda: len(kept) == 100, "a hundred requests")
            for ask, call in reversed(kept):
                call.reply(Answer(text=ask.text))
            assert [(await answer).text for answer in waiting] == [str(n) for n in range(100)]

    run(main)


def test_a_handler_may_await_and_a_late_answer_to_a_closed_connection_is_dropped() -> None:
    gate = asyncio.Event()
    finished: list[str] = []

    async def slow(ask: Ask, call: Call) -> Answer:
        await gate.wait()
        finished.append(ask.text)
        return Answer(text=ask.text)

    async def main() -> None:
        async with server_at({Ask: slow}) as (server, name):
            link = await to(name)
            with pytest.raises(CallTimeout, match="Socket timed out"):
                await link.call(Ask(text="first"), Answer, timeout=0.05)
            link.close()
            await until(lambda: not server.channels, "the connection to end")
            gate.set()
            await until(lambda: finished == ["first"], "the handler to end by itself")

    run(main)


def test_a_handler_is_told_once_that_its_caller_has_gone() -> None:
    gone: list[str] = []
    calls: list[Call] = []

    def wait_for_ever(request: Silence, call: Call) -> Deferred:
        calls.append(call)
        call.on_abandon(lambda: gone.append("gone"))
        return DEFERRED

    async def main() -> None:
        async with server_at({Silence: wait_for_ever, Ask: echo}) as (_, name):
            link = await to(name)
            with pytest.raises(CallTimeout):
                await link.call(Silence(), Answer, timeout=0.02)
            await until(lambda: gone == ["gone"], "the cancelled request to be told")
            assert calls[0].abandoned
            calls[0].reply(Answer())  # dropped, not an error
            assert (await link.call(Ask(text="same connection"), Answer)).text == "same connection"
            link.close()
            await link.wait_closed()
            assert gone == ["gone"]

    run(main)


def test_a_stream_ends_at_the_server_when_its_reader_leaves() -> None:
    closed: list[int] = []

    async def count(request: Count, call: Call) -> AsyncIterator[Number]:
        value = 0
        try:
            while True:
                yield Number(value=value)
                value += 1
        finally:
            closed.append(value)

    async def main() -> None:
        async with server_at({Count: count, Ask: echo}) as (_, name):
            link = await to(name)
            async with aclosing(link.stream(Count(upto=0), Number)) as numbers:
                got = [number.value async for number in _first(numbers, 1000)]
            assert got == list(range(1000))
            await until(lambda: len(closed) == 1, "the generator at the server to be closed")
            assert (await link.call(Ask(text="usable"), Answer)).text == "usable"

    run(main)


async def _first(items: AsyncIterator[Number], count: int) -> AsyncIterator[Number]:
    async for item in items:
        yield item
        count -= 1
        if count == 0:
            return


def test_a_stream_to_a_reader_that_does_not_read_stops_being_produced() -> None:
    produced = 0

    async def flood(request: Count, call: Call) -> AsyncIterator[Answer]:
        nonlocal produced
        while True:
            produced += 1
            yield Answer(text="x" * 10_000)

    async def main() -> None:
        async with server_at({Count: flood}) as (_, name):
            reader, writer = await raw(name)
            writer.write(encode(hello("command")) + encode_request(1, Count(upto=0)))
            seen = -1
            while seen != produced:
                seen = produced
                await asyncio.sleep(0.2)
            assert 0 < produced < 1000  # ten megabytes, of an endless stream
            writer.transport.abort()
            await asyncio.sleep(0)
            del reader

    run(main)


def test_a_peer_with_too_many_unanswered_requests_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "IN_FLIGHT_MAX", 10)
    calls: list[Call] = []

    def keep(ask: Ask, call: Call) -> Deferred:
        calls.append(call)
        return DEFERRED

    async def main() -> None:
        async with server_at({Ask: keep}) as (_, name), asyncio.TaskGroup() as group:
            link = await to(name)
            # Each is large enough to be read from the socket on its own.
            waiting = [group.create_task(link.call(Ask(text="x" * 300_000), Answer)) for _ in range(40)]
            await until(lambda: len(calls) >= 10, "ten requests")
            await asyncio.sleep(0.1)
            assert len(calls) < 20
            answered = 0
            while answered < 40:
                await until(lambda: len(calls) > answered, "further requests")  # noqa: B023
                calls[answered].reply(Answer())
                answered += 1
            for answer in waiting:
                await answer

    run(main)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 5000,
        frame(b"\xc1not msgpack"),
        frame(b"x" * 4097),
        encode_request(1, Ask()),
        encode(hello("command")) * 2,
        encode(hello("command")) + b"\0\0\0\0",
        encode(hello("command")) + (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        encode(hello("command")) + frame(b"\x93\x01\x01"),
    ],
    ids=["http", "ff", "no msgpack", "big hello", "no hello", "two hellos", "zero", "huge", "cut envelope"],
)
def test_garbage_closes_its_connection_with_one_line_and_no_other(garbage: bytes, logged: list[str]) -> None:
    async def main() -> None:
        async with server_at({Ask: echo}) as (_, name):
            bystander = await to(name)
            await bystander.call(Ask(), Answer)
            reader, writer = await raw(name)
            writer.write(garbage)
            try:
                await asyncio.wait_for(reader.read(), 100)
            except ConnectionResetError:
                pass
            writer.close()
            assert (await bystander.call(Ask(text="unharmed"), Answer)).text == "unharmed"

    run(main)
    assert len([line for line in logged if line.startswith("connection.garbage")]) == 1


def test_a_peer_of_an_incompatible_release_is_told_so_before_it_is_closed(logged: list[str]) -> None:
    async def main() -> None:
        async with server_at({Ask: echo}) as (_, name):
            reader, writer = await raw(name)
            newer = Hello(magic="spritz", version_min=50, version_max=60, software="spritz 9", role="command")
            writer.write(encode(newer) + encode_request(1, Ask()))
            [answer] = [decode_envelope(payload) for payload in await frames_from(reader)]
            writer.close()
            assert isinstance(answer, Response)
            assert answer.error is not None
            assert answer.error.code == "SLURM_PROTOCOL_VERSION_ERROR"
            assert "speaks protocol 50 to 60" in answer.error.message

    run(main)
    assert any(line.startswith("connection.incompatible") for line in logged)


def test_a_peer_that_never_says_hello_is_closed(monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    monkeypatch.setattr(server_module, "HELLO_SECONDS_MAX", 0.05)

    async def main() -> None:
        async with server_at({Ask: echo}) as (server, name):
            reader, writer = await raw(name)
            assert await asyncio.wait_for(reader.read(), 100) == b""
            writer.close()
            assert not server.channels

    run(main)
    assert any(line.startswith("connection.silent") for line in logged)


def test_above_the_limit_a_connection_is_refused_with_a_reason(logged: list[str]) -> None:
    async def main() -> None:
        async with server_at({Ask: echo}, limits=Limits(connections=1)) as (_, name):
            first = await to(name)
            await first.call(Ask(), Answer)
            second = await to(name)
            with pytest.raises(RemoteError, match="Resource temporarily unavailable"):
                await second.call(Ask(), Answer)
            assert (await first.call(Ask(text="kept"), Answer)).text == "kept"

    run(main)


@pytest.mark.parametrize(
    "code", ["ESLURM_ACCESS_DENIED", "ESLURM_USER_ID_MISSING", "SLURM_PROTOCOL_AUTHENTICATION_ERROR"]
)
def test_a_request_without_the_right_to_it_is_logged_with_its_user(logged: list[str], code: str) -> None:
    def deny(ask: Ask, call: Call) -> Answer:
        raise SpritzError("no", code=code if ask.text == "denied" else "ESLURM_INVALID_JOB_ID")

    async def main() -> None:
        async with server_at({Ask: deny}) as (_, name):
            link = await to(name)
            for text in ("unknown", "denied", "denied"):
                with pytest.raises(RemoteError):
                    await link.call(Ask(text=text), Answer)

    run(main)
    (line,) = (line for line in logged if line.startswith("request.denied"))
    assert f"kind=Ask uid={os.getuid()}" in line


def test_callers_learn_that_the_connection_has_ended() -> None:
    def hang_up(ask: Ask, call: Call) -> Deferred:
        call.channel.pipe.abort()
        return DEFERRED

    async def main() -> None:
        async with server_at({Ask: hang_up}) as (_, name):
            link = await to(name)
            closed: list[str] = []
            link.on_close(lambda: closed.append("closed"))
            with pytest.raises(ConnectionLost, match="receive failure"):
                await link.call(Ask(), Answer)
            assert closed == ["closed"]
            with pytest.raises(ConnectionLost, match="connection failure"):
                await link.call(Ask(), Answer)
            with pytest.raises(ConnectionLost):
                link.notify(Ask())

    run(main)


def test_a_notice_is_delivered_and_not_answered() -> None:
    heard: list[str] = []

    def hear(ask: Ask, call: Call) -> Answer:
        heard.append(ask.text)
        return Answer()

    async def main() -> None:
        async with server_at({Ask: hear}) as (_, name):
            link = await to(name)
            link.notify(Ask(text="one"))
            await link.call(Ask(text="two"), Answer)
            assert heard == ["one", "two"]

    run(main)


def test_leaving_the_server_flushes_answers_and_does_not_wait_for_ever() -> None:
    async def never(request: Silence, call: Call) -> Answer:
        await asyncio.Event().wait()
        return Answer()

    async def main() -> None:
        async with server_at({Silence: never, Ask: echo}) as (_, name):
            link = await to(name)
            async with asyncio.TaskGroup() as group:
                hanging = group.create_task(_outcome(link.call(Silence(), Answer)))
                assert (await link.call(Ask(text="answered"), Answer)).text == "answered"
                leaving = name
                [server_side] = _.channels
                server_side.close()
                assert isinstance(await hanging, ConnectionLost)
            assert leaving
        with pytest.raises(ClientError, match="Unable to contact slurm controller"):
            await to(name)

    run(main)


async def _outcome(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except Exception as error:
        return error


def test_addresses_are_tried_in_order_and_all_named_if_none_answers() -> None:
    async def main() -> None:
        nobody = abstract_name()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        async with server_at({Ask: echo}) as (_, name):
            link = await connect([nobody, ("127.0.0.1", port), name], role="slurmd", log=LOG)
            assert (await link.call(Ask(text="third"), Answer)).text == "third"
            link.close()
        with pytest.raises(ClientError) as failed:
            await connect([nobody, ("127.0.0.1", port)], role="slurmd", log=LOG)
        assert f"127.0.0.1:{port}: " in failed.value.hint
        assert "@spritz/test/" in failed.value.hint

    run(main)


def test_a_server_of_this_machine_that_runs_as_the_wrong_user_is_passed_over() -> None:
    async def main() -> None:
        async with server_at({Ask: echo}) as (server, name):
            port = (await server.listen_tcp("127.0.0.1", 0)).name[1]
            for address in (name, ("127.0.0.1", int(port))):
                with pytest.raises(ClientError) as refused:
                    await connect([address], role="slurmd", log=LOG, owners=frozenset((987654,)))
                assert "neither root nor SlurmUser" in refused.value.hint
                link = await connect([address], role="slurmd", log=LOG, owners=frozenset((os.getuid(),)))
                assert (await link.call(Ask(text="trusted"), Answer)).text == "trusted"
                link.close()

    run(main)


def test_a_server_on_another_machine_is_passed_over() -> None:
    async def main() -> None:
        async with server_at({Ask: echo}) as (_, name):
            link = await connect([("192.0.2.1", 6817), ("2001:db8::1", 6817), name], role="slurmd", log=LOG)
            assert (await link.call(Ask(text="here"), Answer)).text == "here"
            link.close()
        with pytest.raises(ClientError) as refused:
            await connect([("192.0.2.1", 6817)], role="slurmd", log=LOG, owners=frozenset((os.getuid(),)))
        assert "192.0.2.1 is another machine" in refused.value.hint

    run(main)


def test_a_connection_that_left_the_machine_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses may change between the look at them and the connection."""
    monkeypatch.setattr(pipe_module, "is_same_machine", lambda connection: False)

    async def main() -> None:
        async with server_at({Ask: echo}) as (server, _):
            port = int((await server.listen_tcp("127.0.0.1", 0)).name[1])
            with pytest.raises(ClientError) as refused:
                await connect([("127.0.0.1", port)], role="slurmd", log=LOG)
            assert "is another machine" in refused.value.hint

    run(main)


def test_a_server_that_does_not_accept_is_not_trusted_either() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = ("127.0.0.1", listener.getsockname()[1])
            with pytest.raises(ClientError, match="Unable to contact"):
                await connect([address], role="slurmd", log=LOG, owners=frozenset((0,)), timeout=0.2)

    run(main)


def test_a_persistent_channel_comes_back_and_registers_each_time(logged: list[str]) -> None:
    registered: list[str] = []

    def register(ask: Ask, call: Call) -> Answer:
        registered.append(ask.text)
        return Answer(text=ask.text)

    async def greet(channel: Channel) -> None:
        await channel.call(Ask(text="node1"), Answer)

    async def main() -> None:
        name = abstract_name()
        async with PersistentChannel([name], role="slurmd", log=LOG, on_connect=greet) as link:
            assert not link.notify(Ask())
            for attempt in (1, 2):
                async with Server({Ask: register}, role="slurmctld", log=LOG) as server:
                    await server.listen_unix(name)
                    assert (await link.call(Ask(text="report"), Answer, timeout=100)).text == "report"
                    assert registered == ["node1", "report"] * attempt
                    assert link.is_connected
                await until(lambda: not link.is_connected, "the lost connection to be noticed")
            assert link.connections == 2
            with pytest.raises(CallTimeout, match="Unable to contact slurm controller"):
                await link.call(Ask(), Answer, timeout=0.05)

    run(main)
    assert len([line for line in logged if line.startswith("connection.failed")]) <= 3


def test_a_persistent_channel_whose_registration_is_refused_tries_again(logged: list[str]) -> None:
    attempts = 0

    def register(ask: Ask, call: Call) -> Answer:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise ClientError("not yet", code="ESLURM_IN_STANDBY_MODE")
        return Answer()

    async def greet(channel: Channel) -> None:
        await channel.call(Ask(text="node1"), Answer)

    async def main() -> None:
        async with server_at({Ask: register}) as (server, name):
            async with PersistentChannel([name], role="slurmd", log=LOG, on_connect=greet) as link:
                await link.channel(timeout=100)
                assert attempts == 3
                assert link.connections == 1
                await until(lambda: len(server.channels) == 1, "refused connections to be closed")

    run(main)


def test_a_persistent_channel_says_that_the_peer_is_of_another_release(
    logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without `on_connect`, whose request would be answered by the refusal."""
    monkeypatch.setattr("spritz.client.channel.channel.hello", lambda role: structs.replace(hello(role), version_max=0))

    async def main() -> None:
        async with server_at({Ask: echo}) as (_, name):
            async with PersistentChannel([name], role="sackd", log=LOG) as link:
                await until(lambda: link.connections >= 3, "it to have tried three times")

    run(main)
    [line] = [line for line in logged if line.startswith(("connection.failed", "connection.lost"))]
    assert line.startswith("connection.failed to=slurmctld error='Incompatible versions of client and server code: ")


def test_a_persistent_channel_logs_every_reason_of_an_outage_once(logged: list[str]) -> None:
    """As in an upgrade: the daemon is away at first, and then does not serve this release."""
    attempts = 0

    def register(ask: Ask, call: Call) -> Answer:
        nonlocal attempts
        attempts += 1
        if attempts < 5:
            raise ClientError(("newer", "older")[attempts % 2], code="SLURM_PROTOCOL_VERSION_ERROR", hint="upgrade it")
        return Answer()

    async def greet(channel: Channel) -> None:
        await channel.call(Ask(text="upgraded"), Answer)

    async def main() -> None:
        name = abstract_name()
        async with PersistentChannel([name], role="slurmctld", log=LOG, on_connect=greet, to="slurmdbd") as link:
            await until(lambda: link.problem is not None, "the first attempt to fail")
            async with Server({Ask: register}, role="slurmdbd", log=LOG) as server:
                await server.listen_unix(name)
                await link.channel(timeout=100)

    run(main)
    reasons = [line.partition(" detail=")[0] for line in logged if line.startswith("connection.failed")]
    assert reasons == [
        f"connection.failed to=slurmdbd error={error}"
        for error in ("'Unable to contact slurmdbd (connect failure)'", "older", "newer")
    ]
