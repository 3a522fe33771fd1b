"""What is written to ~/.ssh is taken back; ports are carried; addresses of notifications stay hidden; limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spritz.experiments import notify, secrets
from spritz.experiments.cluster import quotas
from spritz.experiments.errors import ExperimentError
from spritz.experiments.interactive import attach, channel, sessions
from spritz.experiments.job import settings


def lines(name: str) -> str:
    return f"Host spritz-{name}\n    User me\n"


@pytest.mark.parametrize("before", [None, "", "Host mine\n    User me\n"])
def test_entries_come_and_go_and_the_users_file_is_as_before(tmp_path: Path, before: str | None) -> None:
    config, ours = tmp_path / ".ssh" / "config", tmp_path / ".ssh" / "config.d" / "spritz.conf"
    config.parent.mkdir()
    if before is not None:
        config.write_text(before)
    assert len(sessions.add_host("dev-1", lines("dev-1"), tmp_path)) == 2
    assert len(sessions.add_host("dev-10", lines("dev-10"), tmp_path)) == 1
    sessions.add_host("dev-1", lines("dev-1"), tmp_path)
    assert config.read_text().count("Include") == 1
    assert sorted(ours.read_text().split()[1::4]) == ["spritz-dev-1", "spritz-dev-10"]
    assert sessions.remove_host("dev-1", tmp_path)
    assert sessions.remove_host("dev-1", tmp_path) == []
    assert ours.read_text() == lines("dev-10")
    sessions.remove_host("dev-10", tmp_path)
    assert not ours.exists()
    assert (config.read_text() if config.exists() else "") == (before or "")


def test_a_config_that_is_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").write_text("Host mine\n")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").symlink_to(tmp_path / "dotfiles")
    sessions.add_host("a-1", lines("a-1"), tmp_path)
    assert (tmp_path / ".ssh" / "config").is_symlink()
    assert "Include" in (tmp_path / "dotfiles").read_text()


def test_connections_are_carried_side_by_side_and_a_closed_port_is_refused() -> None:
    async def story() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.read()).upper())
            writer.close()

        far_server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = far_server.sockets[0].getsockname()[1]
        ends: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        pipe = await asyncio.start_server(lambda *end: ends.put(end), "127.0.0.1", 0)
        near_reader, near_writer = await asyncio.open_connection("127.0.0.1", pipe.sockets[0].getsockname()[1])
        near = channel.Channel(near_reader, near_writer)
        far_reader, far_writer = await ends.get()
        far = channel.Channel(far_reader, far_writer)
        at = [port]
        front = await asyncio.start_server(lambda r, w: near.carry(r, w, at[0]), "127.0.0.1", 0)

        async def ask(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", front.sockets[0].getsockname()[1])
            writer.write(data)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer

        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(near.run()), group.create_task(far.run())]
            texts = [bytes([97 + number]) * 300_000 for number in range(5)]
            assert await asyncio.gather(*map(ask, texts)) == [text.upper() for text in texts]
            far_server.close()
            await far_server.wait_closed()
            assert await ask(b"x") == b""
            for server in (front, pipe):
                server.close()
            far_writer.close()
            for run in runs:
                await run
            near_writer.close()

    asyncio.run(story())


def test_a_rank_is_on_its_node() -> None:
    assert attach.node_of(["a", "b"], rank=3, tasks_per_node=2) == "b"
    assert attach.node_of(["a", "b"], node="1") == "b"
    assert attach.node_of(["a", "b"]) == "a"
    for words in ({"rank": 4}, {"node": "c"}, {"rank": -1}):
        with pytest.raises(ExperimentError):
            attach.node_of(["a", "b"], tasks_per_node=2, **words)


def test_addresses_come_from_file_and_variable_and_are_hidden() -> None:
    known = {"CHAT": "slack://tokenA1/tokenB2", "SPRITZ_NOTIFY": "json://host/a,b json://other/x"}
    urls = notify.addresses(["$CHAT"], known)
    assert urls == ["slack://tokenA1/tokenB2", "json://host/a,b", "json://other/x"]
    assert "tokenB2" not in notify.hidden("POST to https://hooks/tokenA1/tokenB2 failed", urls)
    assert secrets.masked_environment({"SPRITZ_NOTIFY": "slack://tokenA1"}) == {"SPRITZ_NOTIFY": secrets.MASK}
    for configured in (["$NONE"], ["no address"]):
        with pytest.raises(ExperimentError) as error:
            notify.addresses(configured, {})
        assert "no address" not in error.value.message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("guard: {acton: end}", "did you mean action"),
        ("guard: {watch: disk}", "gpu or cpu"),
        ("guard: {below: much}", "number of percent"),
        ("guard: {warn_after: 2h, end_after: 1h}", "less than"),
        ("guard: {warn_after: soon}", "a time as 15m"),
        ("guard: [1]", "mapping"),
        ("notify: {a: b}", "list of addresses"),
    ],
)
def test_a_wrong_guard_is_refused_by_name(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "spritz.yaml").write_text(text)
    with pytest.raises(ExperimentError, match=complaint):
        settings.read(tmp_path)


def test_a_guard_has_defaults_that_only_report(tmp_path: Path) -> None:
    (tmp_path / "spritz.yaml").write_text("guard: true\nnotify: json://host/\n")
    found = settings.read(tmp_path)
    assert found.guard == {"watch": "gpu", "below": 5.0, "warn_after": 900.0, "end_after": 3600.0, "action": "report"}
    assert found.notify == ("json://host/",)


def test_limits_in_words() -> None:
    queue = [
        quotas.Job("physics", "normal", "me", True, quotas.counts("cpu=4,mem=2G,gres/gpu=1")),
        quotas.Job("physics", "normal", "you", True, quotas.counts("cpu=8,mem=2G")),
        quotas.Job("physics", "normal", "me", False, {}),
    ]
    group, own = quotas.using(queue), quotas.using(queue, user="me")
    row = {
        "GrpTRES": "cpu=48,mem=4G",
        "MaxTRESPU": "gres/gpu=1",
        "MaxJobs": "3",
        "MaxSubmit": "2",
        "MaxWall": "1:00:00",
    }
    assert quotas.words(row, group, own) == [
        "all jobs together: at most 48 CPUs; 12 in use, 36 left",
        "all jobs together: at most 4 GiB of memory; used up",
        "your jobs together: at most 1 GPU; used up",
        "your jobs: at most 3 running; 1 running, 2 left",
        "your jobs: at most 2 queued or running: used up",
        "each job: at most 1:00:00 long",
    ]
