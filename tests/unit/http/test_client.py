"""The client of slurmrestd against servers that are away, refuse, break off, are slow, or send too much."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from spritz.http import rest, stream
from spritz.http.records import Allocation, columns_of
from spritz.http.rest import Rest, RestError, TokenFile, events_of
from spritz.http.stream import Bookmark, Event
from spritz.http.transport import NoAnswer, Stream
from spritz.k8s.admission import certificates
from tests.ports import free_port
from tests.unit.http.servers import Asked, Journal, frame, heartbeat, serving


class Row(msgspec.Struct, array_like=True):
    """What a client might want of a job."""

    id: int
    raw_state: str = msgspec.field(name="state", default="")
    allocation: Allocation | None = None


def run(work: Coroutine[Any, Any, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(within())


async def failure(client: Rest, *, of_stream: bool = False) -> RestError:
    """Why a request, or the event stream, fails."""
    with pytest.raises(RestError) as caught:
        await (follow(client, Bookmark(), []) if of_stream else client.get("/slurm/x", dict))
    return caught.value


async def follow(client: Rest, bookmark: Bookmark, found: list[Event]) -> None:
    """Add the events of one connection. Raises RestError."""
    async with client.events(bookmark, ("job",)) as events:
        async for event in events:
            found.append(event)


def jobs(events: list[Event]) -> list[int]:
    return [event.sequence for event in events if event.type == "job"]


# Who asks


def test_a_token_that_was_renewed_in_its_file_is_used_from_then_on(tmp_path: Path) -> None:
    """Also by the request that the old one was refused for, and by the stream of events; no file is no change."""
    file, came = tmp_path / "token", list[str]()
    file.write_text("one\n")

    def renew(text: str) -> None:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(file)

    async def script(asked: Asked) -> None:
        came.append(asked.headers["x-slurm-user-token"])
        if came == ["one", "one"]:
            renew("two")
        asked.answer(401 if came[-1] == "one" and len(came) > 1 else 200, b"{}")

    async def work() -> None:
        async with serving(script) as address:
            client = Rest(address, TokenFile(str(file)))
            for _ in range(2):
                await client.get("/slurm/x", dict)
            assert came == ["one", "one", "two"]
            file.unlink()
            await client.get("/slurm/x", dict)
            renew("")
            await client.get("/slurm/x", dict)
            renew("three")
            await failure(client, of_stream=True)
            assert came[3:] == ["two", "two", "three"]
            await client.close()

    run(work())


def test_a_refused_token_that_nobody_renews_is_asked_once(tmp_path: Path) -> None:
    came = list[str]()
    (tmp_path / "token").write_text("one")

    async def script(asked: Asked) -> None:
        came.append(asked.headers["x-slurm-user-name"])
        asked.answer(401)

    async def work() -> None:
        async with serving(script) as address:
            client = Rest(address, TokenFile(str(tmp_path / "token")), user="lab")
            assert (await failure(client)).status == 401
            await client.close()

    run(work())
    assert came == ["lab"]


# The server is away


@pytest.mark.parametrize("of_stream", [False, True])
def test_a_server_that_is_away_is_a_failure_that_may_pass(of_stream: bool, tmp_path: Path) -> None:
    async def work() -> None:
        for address, words in (
            (f"unix:{tmp_path}/none", "No such file or directory"),
            (f"http://127.0.0.1:{free_port()}", "Connection refused"),
        ):
            client = Rest(address)
            try:
                error = await failure(client, of_stream=of_stream)
                assert error.message == f"slurmrestd does not answer: {words}"
                assert (error.status, error.number, error.passing) == (0, 0, True)
            finally:
                await client.close()

    run(work())


def test_an_answer_that_is_cut_off_is_a_failure_that_may_pass() -> None:
    async def half(asked: Asked) -> None:
        asked.answer(200, b'{"jobs": [', length=100)
        asked.writer.close()

    async def nothing(asked: Asked) -> None:
        asked.writer.close()

    async def work() -> None:
        for script, words in ((half, "its answer was cut off"), (nothing, "it closed the connection")):
            async with serving(script) as address:
                client = Rest(address)
                error = await failure(client)
                assert (error.message, error.passing) == (f"slurmrestd does not answer: {words}", True)
                await client.close()

    run(work())


@pytest.mark.parametrize("of_stream", [False, True])
def test_a_silent_server_is_given_up(of_stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "TIMEOUT", 0.05)
    monkeypatch.setattr(rest, "SILENCE", 0.05)

    async def silent(asked: Asked) -> None:
        if of_stream:
            asked.begin_stream()
            asked.writer.write(frame("hello", 1))
        await asyncio.Event().wait()

    async def work() -> None:
        async with serving(silent) as address:
            client = Rest(address)
            error = await failure(client, of_stream=of_stream)
            assert "it was silent for too long" in error.message
            assert error.passing
            await client.close()

    run(work())


def test_a_server_whose_certificate_nobody_trusts_is_not_asked(tmp_path: Path) -> None:
    files = certificates.current({}, ["127.0.0.1"], 1.8e9)
    (tmp_path / "both").write_bytes(files[certificates.CERTIFICATE] + files[certificates.KEY])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both")
    asked_for: list[Asked] = []

    async def note(asked: Asked) -> None:
        asked_for.append(asked)

    async def work() -> None:
        async with serving(note, ssl=context) as address:
            client = Rest(address, "secret")
            assert "its certificate is not trusted" in (await failure(client)).message
            await client.close()

    run(work())
    assert asked_for == []


# The server refuses


def errors(*faults: dict[str, object]) -> bytes:
    return json.dumps({"meta": {}, "errors": list(faults)}).encode()


@pytest.mark.parametrize("of_stream", [False, True])
@pytest.mark.parametrize(
    ("status", "body", "words", "number", "passing"),
    [
        (401, b"Authentication failure", "Authentication failure", 0, False),
        (401, b"", "slurmrestd answers with HTTP status 401", 0, False),
        (403, errors({"description": "Access denied", "error_number": 2002}), "Access denied", 2002, False),
        (404, errors({"error": "Invalid job id"}, {"error": "Invalid job id"}), "Invalid job id", 0, False),
        (404, errors(), "slurmrestd answers with HTTP status 404", 0, False),
        (429, b"", "slurmrestd answers with HTTP status 429", 0, True),
        (500, errors({"error": "a"}, {"description": "b", "error": "c"}), "a; b", 0, False),
        (500, b"<html>" + b"x" * 5_000_000, "<html>" + "x" * 194, 0, False),
        (503, b"", "slurmrestd answers with HTTP status 503", 0, True),
        (504, b'{"errors": 7}', '{"errors": 7}', 0, True),
    ],
)
def test_a_refusal_has_the_servers_words(
    of_stream: bool, status: int, body: bytes, words: str, number: int, passing: bool
) -> None:
    async def refuse(asked: Asked) -> None:
        asked.answer(status, body)

    async def work() -> None:
        async with serving(refuse) as address:
            client = Rest(address)
            error = await failure(client, of_stream=of_stream)
            assert (error.status, error.message, error.number, error.passing) == (status, words, number, passing)
            await client.close()

    run(work())


def test_an_answer_that_is_something_else_is_a_failure() -> None:
    async def other(asked: Asked) -> None:
        asked.answer(200, b"<html>Welcome</html>")

    async def work() -> None:
        async with serving(other) as address:
            client = Rest(address)
            assert (await failure(client)).message.startswith("slurmrestd's answer cannot be read: ")
            await client.close()

    run(work())


# What is sent


def test_the_caller_is_named_and_a_body_is_json(tmp_path: Path) -> None:
    requests: list[Asked] = []

    async def note(asked: Asked) -> None:
        requests.append(asked)
        asked.answer(200, b'{"job_id": 8}')

    async def work() -> None:
        async with serving(note, tmp_path / "s") as address:
            client = Rest(address, "t", "vera")
            assert await client.send("POST", "/slurm/x", {"hold": True}) == {"job_id": 8}
            await client.request("GET", "/y?others=no", parameters={"a": "1,2&ä"}, key="k", user="ada")
            await client.close()
            own = Rest(address, "", "vera")
            await own.request("DELETE", "/z")
            await own.close()

    run(work())
    first, second, third = requests
    assert (first.headers["x-slurm-user-token"], first.headers["x-slurm-user-name"]) == ("t", "vera")
    assert (first.method, first.headers["content-type"], first.body) == ("POST", "application/json", b'{"hold":true}')
    assert second.query == {"others": "no", "a": "1,2&ä"}
    assert (second.headers["idempotency-key"], second.headers["x-slurm-user-name"]) == ("k", "ada")
    assert not {"x-slurm-user-token", "x-slurm-user-name", "content-type"} & third.headers.keys()


@pytest.mark.parametrize("more", [{"user": "b\r\nX-C: d"}, {"parameters": {"a": "\ud800"}}])
def test_what_http_does_not_allow_is_refused_and_not_sent(more: dict[str, Any]) -> None:
    requests: list[Asked] = []

    async def note(asked: Asked) -> None:
        requests.append(asked)

    async def work() -> None:
        async with serving(note) as address:
            client = Rest(address)
            with pytest.raises(RestError, match="slurmrestd cannot be asked this") as caught:
                await client.request("GET", "/x", **more)
            assert caught.value.status == 400
            await client.close()

    run(work())
    assert requests == []


def test_rows_have_the_columns_that_their_record_names() -> None:
    async def list_jobs(asked: Asked) -> None:
        assert asked.query == {"fields": "id,state,allocation", "ids": "7"}
        share = {"node": "n1", "cpus": "f", "gres": [{"name": "shard", "count": 2, "indexes": "4"}], "new": 1}
        asked.answer(200, json.dumps({"now": 5.5, "rows": [[7, "RUNNING", {"nodes": [share]}]]}).encode())

    async def work() -> None:
        async with serving(list_jobs) as address:
            client = Rest(address)
            found = await client.rows(Row, ids="7")
            await client.close()
        assert found.now == 5.5
        (row,) = found.rows
        assert row.allocation is not None
        (share,) = row.allocation.nodes
        assert (row.id, row.raw_state, share.cpu_count, share.devices("shard")) == (7, "RUNNING", 4, [2, 2])

    assert columns_of(Row) == "id,state,allocation"
    run(work())


def test_a_huge_answer_arrives_whole() -> None:
    rows = [[number, "RUNNING" * 10] for number in range(200_000)]
    body = json.dumps({"rows": rows}).encode()
    assert len(body) > 15 << 20

    async def list_jobs(asked: Asked) -> None:
        asked.answer(200, body)

    async def work() -> None:
        async with serving(list_jobs) as address:
            client = Rest(address)
            found = await client.rows(Row)
            await client.close()
            assert [row.id for row in found.rows] == [*range(200_000)]

    run(work())


# The event stream


class Cut:
    """A stream that breaks after so many bytes, or ends there as if it were whole."""

    def __init__(self, data: bytes, after: int, size: int, breaks: bool) -> None:
        self._data, self._size, self._breaks = data[:after], size, breaks

    async def pieces(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._data), self._size):
            yield self._data[at : at + self._size]
        if self._breaks:
            raise NoAnswer("cut")


async def taken(events: AsyncIterator[Event]) -> tuple[list[Event], str]:
    """What comes of a stream until it ends, and why."""
    found = []
    try:
        async for event in events:
            found.append(event)
    except RestError as error:
        return found, error.message
    return found, ""


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_stream_that_is_cut_anywhere_goes_on_without_loss_or_double(size: int, breaks: bool) -> None:
    journal = Journal(12)

    async def work() -> None:
        for after in range(len(journal.after(None)) + 1):
            bookmark, found = Bookmark(), list[Event]()
            while True:
                data = journal.after(bookmark.sequence)
                events, why = await taken(events_of(cast(Stream, Cut(data, after, size, breaks)), bookmark))
                assert why == ("the event stream broke: cut" if breaks else "the event stream ended")
                found += events
                if len(data) <= after or (bookmark.sequence or 0) >= journal.sequences[-1]:
                    break
                after += 11  # a later connection holds longer
            numbers = jobs(found)
            assert numbers == journal.sequences, after
            assert {event.body["job_id"] for event in found if event.type == "job"} == set(numbers)
            assert [event.type for event in found].count("hello") == 1

    run(work())


def test_a_reader_resumes_over_restarts_of_the_server(tmp_path: Path) -> None:
    journal, path = Journal(300), tmp_path / "s"
    connections: list[str | None] = []

    async def work() -> None:
        client, bookmark, found = Rest(f"unix:{path}"), Bookmark(), list[Event]()
        left = 150

        async def script(asked: Asked) -> None:
            nonlocal left
            connections.append(asked.query.get("since"))
            asked.begin_stream()
            data = journal.after(int(asked.query["since"]) if "since" in asked.query else None)
            asked.writer.write(data[: left * len(connections) ** 2])

        while journal.sequences[-1] not in jobs(found):
            # A new server each time, and none in between.
            async with serving(script, path):
                for _ in range(2):
                    with pytest.raises(RestError):
                        await follow(client, bookmark, found)
            with pytest.raises(RestError, match="does not answer"):
                await follow(client, bookmark, found)
        await client.close()
        assert jobs(found) == journal.sequences
        assert {event.type for event in found} == {"hello", "resumed", "job"}
        assert connections[0] is None
        assert len(connections) > 4

    run(work())


def test_an_event_whose_handling_fails_is_sent_again() -> None:
    journal = Journal(3)

    async def work() -> None:
        bookmark = Bookmark()
        async for event in events_of(cast(Stream, Cut(journal.after(None), 10_000, 99, True)), bookmark):
            if event.sequence == 20:
                break
        assert bookmark.sequence == 10
        events, _ = await taken(events_of(cast(Stream, Cut(journal.after(10), 10_000, 99, True)), bookmark))
        assert [event.sequence for event in events] == [10, 20, 30]
        assert [event.type for event in events] == ["resumed", "job", "job"]

    run(work())


def test_a_slow_reader_takes_its_time_and_one_that_was_dropped_goes_on(tmp_path: Path) -> None:
    """slurmrestd drops a reader that falls out of its window, and says where to go on."""
    journal, path = Journal(40), tmp_path / "s"
    drained = asyncio.Event()

    async def script(asked: Asked) -> None:
        asked.begin_stream()
        since = int(asked.query["since"]) if "since" in asked.query else None
        if since is None:
            asked.writer.write(b"".join(journal.after(None).partition(frame("job", 200)[:8])[:1]))
            await asked.writer.drain()
            drained.set()
            asked.writer.write(frame("dropped", 190, resume=190, reason="the reader is too slow"))
        else:
            asked.writer.write(journal.after(since))

    async def work() -> None:
        client, bookmark, found = Rest(f"unix:{path}"), Bookmark(), list[Event]()
        async with serving(script, path):
            async with client.events(bookmark) as events:
                async for event in events:
                    await drained.wait()
                    found.append(event)
            assert bookmark.sequence == 190, "the stream ended without an error"
            with pytest.raises(RestError, match="the event stream ended"):
                await follow(client, bookmark, found)
        await client.close()
        assert jobs(found) == journal.sequences

    run(work())


def test_a_reader_that_does_not_read_holds_the_server_up_and_not_the_memory() -> None:
    """What the reader does not take stays with the server: its writes stand still until the reader goes on."""
    total = 2000
    sent = 0

    async def script(asked: Asked) -> None:
        nonlocal sent
        asked.begin_stream()
        asked.writer.write(frame("hello", 0))
        for number in range(1, total + 1):
            asked.writer.write(frame("job", number, text="x" * 50_000))
            await asked.writer.drain()
            sent = number

    async def work() -> None:
        async with serving(script) as address:
            client = Rest(address)
            async with client.events() as events:
                assert (await anext(events)).type == "hello"
                before, still = -1, 0
                while still < 1000:  # turns of the loop in which nothing more is sent
                    await asyncio.sleep(0)
                    still = still + 1 if sent == before else 0
                    before = sent
                assert sent < total // 2
                for number in range(1, total + 1):
                    assert (await anext(events)).sequence == number
            await client.close()

    run(work())


def test_heartbeats_move_the_bookmark_and_are_no_events() -> None:
    async def work() -> None:
        bookmark = Bookmark()
        data = frame("hello", 5) + heartbeat(70) + b": heartbeat\n\n"
        events, _ = await taken(events_of(cast(Stream, Cut(data, 10_000, 3, False)), bookmark))
        assert [event.type for event in events] == ["hello"]
        assert bookmark.sequence == 70

    run(work())


def test_a_reset_is_told_and_the_stream_goes_on_from_there() -> None:
    async def work() -> None:
        bookmark = Bookmark(900)
        data = frame("hello", 900) + frame("reset", 40) + frame("job", 50)
        events, _ = await taken(events_of(cast(Stream, Cut(data, 10_000, 3, False)), bookmark))
        assert [event.type for event in events] == ["resumed", "reset", "job"]
        assert bookmark.sequence == 50, "of another journal, whose numbers are lower"

    run(work())


@pytest.mark.parametrize("data", [b'{"job_id": 7, "sta', b"[1]", b"7", b"\xff"])
def test_after_an_event_that_cannot_be_read_the_stream_begins_anew(data: bytes) -> None:
    async def work() -> None:
        bookmark = Bookmark(3)
        whole = frame("hello", 3) + b"id: 4\nevent: job\ndata: " + data + b"\n\n" + frame("job", 5)
        events, why = await taken(events_of(cast(Stream, Cut(whole, 10_000, 5, False)), bookmark))
        assert [event.type for event in events] == ["resumed"]
        assert "an event of the stream cannot be read" in why
        assert bookmark.sequence is None

    run(work())


def test_a_huge_event_is_read_and_one_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        big = frame("hello", 1) + frame("job", 2, text="x" * 4_000_000) + frame("job", 3)
        events, _ = await taken(events_of(cast(Stream, Cut(big, len(big), 1000, False)), Bookmark()))
        assert [event.sequence for event in events] == [1, 2, 3]
        monkeypatch.setattr(stream, "FRAME_BYTES_MAX", 1_000_000)
        many = frame("hello", 1) + b"".join(frame("job", number, text="x" * 5000) for number in range(2, 500))
        events, why = await taken(events_of(cast(Stream, Cut(many, len(many), 1000, False)), Bookmark()))
        assert (len(events), why) == (499, "the event stream ended")
        _, why = await taken(events_of(cast(Stream, Cut(big, len(big), 1000, False)), Bookmark()))
        assert why == "an event of the stream is too long"

    run(work())


def test_lines_end_as_a_proxy_may_have_them_end() -> None:
    async def work() -> None:
        data = (frame("hello", 1) + b"data: {\ndata:}\nevent:job\nid:2\n\n").replace(b"\n", b"\r\n")
        events, _ = await taken(events_of(cast(Stream, Cut(data, 10_000, 1, False)), Bookmark()))
        assert events == [Event("hello", 1, {"sequence": 1}), Event("job", 2, {})]

    run(work())
