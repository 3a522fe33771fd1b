"""`spritz mcp` with the protocol's own client, on a real cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.e2e.cluster import Cluster, until
from tests.e2e.commands import BIN, environment


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(nodes=2)
    try:
        yield made.start()
    finally:
        made.close()


def talk(cluster: Cluster, scene: Callable[[Client], Awaitable[None]], *options: str) -> None:
    """With a server of its own, as an agent's program starts it."""

    async def run() -> None:
        words = StdioServerParameters(command=str(BIN / "spritz"), args=["mcp", *options], env=environment(cluster))
        async with Client(words) as client:
            await scene(client)

    asyncio.run(run())


async def told(client: Client, tool: str, **arguments: Any) -> Any:
    """A tool's answer, which must be none of a failure."""
    answer = await client.call_tool(tool, arguments)
    text = "\n".join(getattr(part, "text", "") for part in answer.content)
    assert not answer.is_error, text
    try:
        return json.loads(text)
    except ValueError:
        return text


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Why not."""
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    return "\n".join(getattr(part, "text", "") for part in answer.content)


def test_an_agent_finds_out_why_a_job_waits_and_what_another_printed(cluster: Cluster) -> None:
    ended = cluster.submit("#!/bin/sh\nfor i in 1 2 3; do echo line $i; done\n", stdout=str(cluster.root / "log"))
    cluster.wait_all_ended([ended])
    holds = cluster.submit("#!/bin/sh\nsleep 1000\n", nodes_min=2, nodes_max=2, tasks=16)
    waits = cluster.submit("#!/bin/sh\ntrue\n", name="waits", hold=True)
    until(lambda: cluster.job(holds).started_at, "it runs")

    async def scene(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "submit_job" not in tools
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools.values())
        listed = await told(client, "list_jobs", state="PENDING")
        assert [job["name"] for job in listed["jobs"]] == ["waits"]
        assert "summary" in json.dumps(await told(client, "why_pending", job_id=str(waits)))
        log = await told(client, "job_log", job_id=str(ended), lines=2)
        assert log["lines"] == ["line 2", "line 3"]
        assert (await told(client, "job_log", job_id=str(ended), containing="1"))["lines"] == ["line 1"]
        nodes = await told(client, "list_nodes", limit=1)
        assert (len(nodes["nodes"]), nodes["more"]) == (1, 1)
        assert "Invalid job id" in await refused(client, "show_job", job_id="999999")
        for odd in ("1; ls", "--all", ""):
            assert await refused(client, "show_job", job_id=odd)
        assert await refused(client, "cancel_job", job_id=str(holds))

    talk(cluster, scene)
    cluster.cancel(holds, waits)


def test_with_actions_it_submits_changes_and_cancels(cluster: Cluster) -> None:
    async def scene(client: Client) -> None:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        assert tools["cancel_job"] is not None
        assert tools["cancel_job"].destructive_hint
        script = "#!/bin/sh\nsleep 1000\n"
        assert await told(client, "submit_job", script=script, options=["--time=5"], test_only=True)
        number = str(await told(client, "submit_job", script=script, options=["--time=5", "--hold", "--job-name=mine"]))
        await told(client, "update_job", job_id=number, changes={"TimeLimit": "7"})
        assert cluster.job(int(number)).time_limit_minutes == 7
        await told(client, "release_job", job_id=number)
        await told(client, "cancel_job", job_id=number)
        assert "options of sbatch" in await refused(client, "submit_job", script=script, options=["--wrap=ls"])
        assert await refused(client, "update_job", job_id=number, changes={"Time Limit": "7"})
        assert "Invalid" in await refused(client, "submit_job", script=script, options=["--time=never"])

    talk(cluster, scene, "--allow-actions")
