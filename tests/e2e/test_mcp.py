"""`spritz mcp` on a real cluster, asked by the client of the package mcp."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("mcp")

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.cluster import BIN, PATIENCE_SECONDS, Cluster, until
from tests.e2e.commands import environment
from tests.e2e.test_dashboard import Dashboard
from tests.ports import free_port


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
    from spritz.agents import read_tools, write_tools
    from spritz.agents.server import make_server

    async def names(*, allow: bool) -> set[str]:
        return {tool.name for tool in await make_server(None, allow_actions=allow).list_tools()}

    readers = {name for name, _ in read_tools.TOOLS}
    assert asyncio.run(names(allow=False)) == readers
    assert asyncio.run(names(allow=True)) == readers | {name for name, _, _ in write_tools.TOOLS}


@pytest.mark.slow
def test_every_tool_works_over_http_for_callers_with_the_token(tmp_path: Path) -> None:
    local = Dashboard()
    token, port = "t" * 24, free_port()
    server: subprocess.Popen[bytes] | None = None
    try:
        local.run(
            "spritz",
            "up",
            "--quiet",
            "--no-dashboard",
            "--dir",
            str(local.cluster),
            "--nodes",
            "2",
            "--cpus",
            "4",
            "--gpus",
            "4",
        )
        command = [str(BIN / "spritz"), "mcp", "--allow-actions", "--listen", str(port)]
        env = {**local.env, "SPRITZ_MCP_TOKEN": token}
        with (tmp_path / "log").open("wb") as log:
            server = subprocess.Popen(command, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=log)
        address = f"http://127.0.0.1:{port}/mcp"

        def refused(given: str) -> bool:
            try:
                return httpx.post(address, json={}, headers={"Authorization": given}).status_code == 401
            except httpx.TransportError:
                return False

        until(lambda: refused("Bearer wrong"), lambda: f"it serves: {(tmp_path / 'log').read_text()}")
        assert refused("")
        assert refused(token)
        asyncio.run(_call_every_tool(address, token, local, tmp_path))
    finally:
        if server is not None:
            server.terminate()
            server.wait(30)
        local.stop()


async def _call_every_tool(address: str, token: str, local: Dashboard, directory: Path) -> None:
    called: set[str] = set()
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=100) as http:
        async with Client(streamable_http_client(address, http_client=http)) as client:

            async def ask(name: str, **given: Any) -> Any:
                called.add(name)
                answer = await client.call_tool(name, given)
                told = "".join(getattr(one, "text", "") for one in answer.content)
                assert not answer.is_error, (name, told)
                return answer.structured_content

            async def until_told(holds: Callable[[Any], bool], name: str, **given: Any) -> None:
                try:
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        while not holds(told := await ask(name, **given)):  # noqa: ASYNC110 - nothing tells when
                            await asyncio.sleep(0.1)
                except TimeoutError:
                    raise AssertionError(f"{name} {given}: {told}") from None

            async def state(job: str, wanted: str) -> None:
                await until_told(lambda told: f"JobState={wanted}" in told["record"], "job_details", job=job)

            script = "#!/bin/sh\necho said\nsleep 600\n"
            assert "to start at" in (await ask("test_submission", script=script))["answer"]
            job = (await ask("submit_script", script=script, options=["--gpus=1"], directory=str(directory)))["job"]
            await state(job, "RUNNING")
            until((directory / f"slurm-{job}.out").exists, "it writes")
            await until_told(lambda told: told["lines"] == ["said"], "job_log", job=job)
            assert (await ask("cluster_overview"))["gpus_used"] == 1
            assert [one["job"] for one in (await ask("list_jobs"))["jobs"]] == [job]
            assert (await ask("list_nodes"))["total"] == 2
            assert (await ask("free_gpus"))["types"][0]["free"] == 7
            await ask("suspend_jobs", jobs=[job])
            await state(job, "SUSPENDED")
            await ask("resume_jobs", jobs=[job])
            await state(job, "RUNNING")
            await ask("requeue_jobs", jobs=[job])
            await ask("cancel_jobs", jobs=[job])
            await state(job, "CANCELLED")
            held = (await ask("submit_script", script=script, options=["-b", "now+1hour"]))["job"]
            await ask("hold_jobs", jobs=[held])
            await ask("update_job", job=held, changes={"TimeLimit": "7"})
            record = (await ask("job_details", job=held))["record"]
            assert "TimeLimit=00:07:00" in record
            assert "Reason=JobHeld" in record
            assert (await ask("explain_job", job=held))["explanations"]
            await ask("release_jobs", jobs=[held])
            await ask("cancel_jobs", jobs=[held])
            assert (await ask("job_history", job=job))["history"]
            await until_told(lambda told: any("CANCELLED" in past["state"] for past in told["jobs"]), "past_jobs")
            assert await ask("job_efficiency", jobs=[job])
            assert (await ask("fair_share"))["shares"]
            options = ["--name=mine", "--slurm=--hold"]
            await ask("run_command", command=["true"], options=options, directory=str(directory))
            await ask("pause_run", run="mine-1")
            await ask("resume_run", run="mine-1")
            await until_told(lambda told: told["runs"], "list_runs", state="completed")
            await ask("rerun", run="mine-1")
            assert (await ask("show_run", run="mine-1"))["run"]
            assert "mine-1 → " in (await ask("diff_runs", run="mine-1", other="mine-2"))["diff"]
            assert (await ask("list_sweeps"))["sweeps"] == []
            assert called == {tool.name for tool in (await client.list_tools()).tools}
