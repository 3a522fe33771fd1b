"""What a controller that stands by answers to health checks on its port."""

from __future__ import annotations

import asyncio

from spritz.client.channel.server import Server
from spritz.controller.lead.probes import answer_probes
from spritz.runtime import log


async def answer_to(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return int(text.split()[1]), text.partition("\r\n\r\n")[2]


def test_it_is_ready_while_it_could_take_over() -> None:
    async def journey() -> list[tuple[int, str]]:
        problem = ""
        async with Server({}, role="slurmctld", log=log.get_logger("test")) as server:
            answer_probes(server, lambda: problem)
            port = int((await server.listen_tcp("127.0.0.1", 0)).name[1])
            found = [await answer_to(port, path) for path in ("/readyz", "/livez", "/metrics")]
            problem = "the database does not answer"
            return found + [await answer_to(port, path) for path in ("/readyz", "/livez")]

    standing_by = "this controller stands by\n"
    assert asyncio.run(journey()) == [
        (200, standing_by),
        (200, standing_by),
        (404, standing_by),
        (503, "the database does not answer\n"),
        (200, standing_by),
    ]
