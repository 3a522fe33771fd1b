"""How quick is the dashboard with 1,000 nodes of 8 GPUs and 10,000 jobs, and what do its viewers cost slurmctld?

    python -m benchmarks.dashboard [--nodes N] [--jobs N] [--viewers N]

A cluster of virtual nodes is started, its jobs are queued through slurmrestd (some run on several nodes each, the
others wait), and a Chromium with Playwright looks on. Measured, as medians:

- first paint: from the address to the drawn occupancy and the first rows of the queue
- an update in view: from the answer to a submission until the queue shows the job (the browser watches the page)
- viewers: CPU time of slurmctld, slurmrestd and the dashboard with many event streams open while jobs come and go
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

BIN = Path(sys.executable).parent
#: nodes of each job that runs
WIDE = 5
#: repetitions of each measurement
TIMES = 10


class Cluster:
    """A cluster with a dashboard, in a directory of its own."""

    def __init__(self, nodes: int) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="spritz-bench-web-"))
        self.nodes = nodes
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SPRITZ"))}
        self.env = {**kept, "SLURM_CONF": str(self.root / "c/etc/slurm.conf")}
        self.link = ""

    def run(self, *words: str) -> str:
        return subprocess.run(
            [BIN / words[0], *words[1:]], env=self.env, check=True, capture_output=True, text=True
        ).stdout

    def start(self) -> None:
        made = ("--nodes", str(self.nodes), "--cpus", "64", "--memory", "512G", "--gpus", "8", "--gpu-type", "h100")
        said = self.run("spritz", "up", "--dashboard", "--dir", str(self.root / "c"), *made)
        match = re.search(r"http://\S+/login\?link=\S+", said)
        assert match, said
        self.link = match[0]

    def stop(self) -> None:
        self.run("spritz", "down", "--quiet", "--timeout", "120", "--dir", str(self.root / "c"))
        shutil.rmtree(self.root, ignore_errors=True)

    def rest(self) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(uds=str(self.root / "c/run/slurmrestd.socket"))
        return httpx.AsyncClient(transport=transport, base_url="http://rest", timeout=120)

    def pid(self, module: str) -> int:
        """The process of a daemon of this cluster."""
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if module.encode() in words and any(str(self.root).encode() in word for word in words):
                    return int(name)
        raise LookupError(module)


async def submit(rest: httpx.AsyncClient, **job: Any) -> int:
    """A job's number."""
    whole = {"environment": ["PATH=/bin:/usr/bin"], "current_working_directory": "/tmp", "time_limit": 600, **job}
    body = {"script": "#!/bin/sh\nexec sleep 3600\n", "job": {**whole, "standard_output": "/dev/null"}}
    answer = (await rest.post("/slurm/v0.0.45/job/submit", json=body)).json()
    number: int = answer["job_id"]
    return number


async def fill(cluster: Cluster, jobs: int) -> float:
    """The jobs; seconds that it took. Every node has a job that runs; the others wait."""
    begun = time.monotonic()
    running = cluster.nodes // WIDE
    gate = asyncio.Semaphore(16)

    async def one(rest: httpx.AsyncClient, number: int) -> None:
        async with gate:
            name = f"job-{number % 97}"
            size = (
                {"nodes": str(WIDE), "tres_per_node": "gres/gpu:8"}
                if number < running
                else {"tres_per_node": "gres/gpu:1"}
            )
            await submit(rest, name=name, hold=number >= running and number % 3 == 0, **size)

    async with cluster.rest() as rest:
        await asyncio.gather(*(one(rest, number) for number in range(jobs)))
        while True:
            answer = (await rest.get("/spritz/v1/jobs?fields=id&states=running")).json()
            if len(answer["rows"]) >= running:
                return time.monotonic() - begun
            await asyncio.sleep(0.5)


def browse(cluster: Cluster) -> dict[str, float]:
    """First paint and updates, as medians in milliseconds."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    found: dict[str, list[float]] = {"overview": [], "queue": [], "update": []}
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1380, "height": 900})
        page = context.new_page()
        page.goto(cluster.link)
        page.locator("#grid[data-drawn]").wait_for(timeout=60_000)
        for _ in range(TIMES):
            begun = time.monotonic()
            page.goto(cluster.link.split("/login")[0])
            page.locator("#grid[data-drawn]").wait_for()
            found["overview"].append(time.monotonic() - begun)
            begun = time.monotonic()
            page.goto(cluster.link.split("/login")[0] + "/queue")
            page.locator("#queue tbody tr").first.wait_for()
            found["queue"].append(time.monotonic() - begun)
        page.goto(cluster.link.split("/login")[0] + "/queue?state=pending&q=seen-at-once")
        page.locator(".live-state:not(.stale):not(.gone)").wait_for()
        page.wait_for_timeout(3000)
        for number in range(TIMES):
            transport = httpx.HTTPTransport(uds=str(cluster.root / "c/run/slurmrestd.socket"))
            with httpx.Client(transport=transport, base_url="http://rest", timeout=60) as rest:
                job = {"name": f"seen-at-once-{number}", "hold": True, "environment": ["PATH=/bin"]}
                body = {"script": "#!/bin/sh\n", "job": {**job, "current_working_directory": "/tmp"}}
                answer = rest.post("/slurm/v0.0.45/job/submit", json=body).json()
            begun = time.monotonic()
            page.locator(f"#j-{answer['job_id']}").wait_for(timeout=30_000)
            found["update"].append(time.monotonic() - begun)
            page.wait_for_timeout(400)
        browser.close()
    return {name: round(1000 * statistics.median(values)) for name, values in found.items()}


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def watch(cluster: Cluster, viewers: int, seconds: float) -> dict[str, float]:
    """CPU time of the daemons in percent of a core, while a job comes and goes each second."""
    pids = {name: cluster.pid(f"spritz.{name}.main") for name in ("controller", "rest", "web")}
    base = cluster.link.split("/login")[0]
    link = cluster.run("spritz", "dashboard", "--dir", str(cluster.root / "c")).strip()
    events = 0

    async def look(client: httpx.AsyncClient) -> None:
        nonlocal events
        async with client.stream("GET", "/live", timeout=None) as stream:
            async for line in stream.aiter_lines():
                events += line.startswith("event: change")

    async with httpx.AsyncClient(base_url=base, limits=httpx.Limits(max_connections=None), timeout=60) as client:
        await client.post("/login", data={"link": link.partition("link=")[2]})
        async with asyncio.TaskGroup() as tasks:
            looking = [tasks.create_task(look(client)) for _ in range(viewers)]
            await asyncio.sleep(3)
            before, begun = {name: cpu(pid) for name, pid in pids.items()}, time.monotonic()
            async with cluster.rest() as rest:
                while time.monotonic() - begun < seconds:
                    number = await submit(rest, name="comes", hold=True)
                    await asyncio.sleep(0.5)
                    await rest.delete(f"/slurm/v0.0.45/job/{number}")
                    await asyncio.sleep(0.5)
            passed = time.monotonic() - begun
            assert events or not viewers, "the viewers were told nothing"
            after = {name: cpu(pid) for name, pid in pids.items()}
            for one in looking:
                one.cancel()
    share = {name: round(100 * (after[name] - before[name]) / passed, 1) for name in pids}
    return {**share, "events": events / max(1, viewers)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--keep", action="store_true", help="leave the cluster, and print its directory")
    arguments = parser.parse_args()
    cluster = Cluster(arguments.nodes)
    try:
        cluster.start()
        filled = asyncio.run(fill(cluster, arguments.jobs))
        print(f"{arguments.nodes} nodes, {arguments.jobs} jobs, queued in {filled:.0f} s")
        figures = browse(cluster)
        print("first paint, ms: overview {overview}, queue {queue}; update in view, ms: {update}".format(**figures))
        none = asyncio.run(watch(cluster, 0, 20))
        many = asyncio.run(watch(cluster, arguments.viewers, 20))
        print(f"percent of a core without viewers:    {json.dumps(none)}")
        print(f"percent of a core with {arguments.viewers} viewers: {json.dumps(many)}")
    finally:
        if arguments.keep:
            print(cluster.root / "c")
        else:
            cluster.stop()


if __name__ == "__main__":
    main()
