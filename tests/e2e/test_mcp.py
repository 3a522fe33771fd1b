"""`spritz mcp` on a real cluster, asked by the client of the package mcp."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters

from tests.e2e.cluster import BIN, Cluster, until
from tests.e2e.commands import environment


def test_an_agent_reads_and_acts(cluster: Cluster) -> None:
    job = cluster.submit("echo first; printf '\\033[31mred\\n'; sleep 1000", name="train")
    held = cluster.submit(name="later", hold=True)
    cluster.wait_state(job, "RUNNING")
    log = cluster.work / f"slurm-{job}.out"
    until(lambda: log.exists() and b"red" in log.read_bytes(), "the job writes")

    async def work() -> None:
        variables = environment(cluster)
        server = StdioServerParameters(command=str(BIN / "spritz"), args=["mcp", "--allow-actions"], env=variables)
        async with Client(server) as client:
            hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
            cancel, queue = hints["cancel_jobs"], hints["list_jobs"]
            assert cancel is not None
            assert queue is not None
            assert (cancel.destructive_hint, queue.read_only_hint) == (True, True)

            async def ask(name: str, **given: Any) -> Any:
                answer = await client.call_tool(name, given)
                told = answer.structured_content
                return "".join(getattr(one, "text", "") for one in answer.content) if answer.is_error else told

            assert (await ask("cluster_overview"))["cpus_used"] == 1
            first = await ask("list_jobs", limit=1)
            assert ([one["job"] for one in first["jobs"]], first["total"]) == ([str(job)], 2)
            second = await ask("list_jobs", limit=1, cursor=first["next_cursor"])
            assert ([one["job"] for one in second["jobs"]], second["next_cursor"]) == ([str(held)], "")
            assert (await ask("job_log", job=str(job)))["lines"] == ["first", "red"]
            assert "JobHeldUser" in (await ask("job_details", job=str(held)))["waits"]["reason"]
            assert "Invalid job id specified" in await ask("cancel_jobs", jobs=["--user=root"])
            assert "Invalid job id specified" in await ask("job_details", job="99999")
            script = "#!/bin/sh\ntrue\n"
            wrong = await ask("submit_script", script=script, options=["-p", "nowhere"])
            assert "invalid partition specified: nowhere" in wrong
            assert "to start at" in (await ask("test_submission", script=script))["answer"]
            new = await ask("submit_script", script=script, directory=str(cluster.work))
            await ask("cancel_jobs", jobs=[str(job)])
            cluster.wait_state(job, "CANCELLED")
            cluster.wait_state(int(new["job"]), "COMPLETED")

    asyncio.run(work())


def test_without_leave_there_is_no_tool_that_acts() -> None:
    from spritz.agents import acting, reading
    from spritz.agents.server import make_server

    async def names(*, allow: bool) -> set[str]:
        return {tool.name for tool in await make_server(None, allow_actions=allow).list_tools()}

    readers = {name for name, _ in reading.TOOLS}
    assert asyncio.run(names(allow=False)) == readers
    assert asyncio.run(names(allow=True)) == readers | {name for name, _, _ in acting.TOOLS}
