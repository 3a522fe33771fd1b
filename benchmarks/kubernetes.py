"""Pods queued to bound: how fast the operator brings pods through the cluster's queue, and what it costs.

    python -m benchmarks.kubernetes [--nodes 1000] [--pods 5000] [--gang N] [--directory DIR]

The API server for tests runs in this process, slurmctld and slurmrestd as `spritz up` starts them, the operator in a
process of its own. Nodes have 8 GPUs each, pods take one; with --gang, N pods start together. Prints pods bound a
second from the first pod created to the last bound, and when the last event was told; processor time of each process;
requests for each pod, the operator's memory, and its writes while nothing happens. With --gang, before that, how many
of the same gangs a scheduling cycle plans a second of processor time, on the same nodes in racks of 16
(`topology/tree`); no daemons are in that figure.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import psutil

from benchmarks.scheduling_topology import Racks, tree
from spritz.k8s.api import Api
from spritz.k8s.slurm import Slurm
from spritz.model.job.record import JobSpec
from spritz.model.resources import GresRequest
from spritz_testing.kubernetes.server import KubeServer

BIN = Path(sys.executable).parent


def planned(nodes: int, pods: int, gang: int) -> None:
    """Plan all gangs in one cycle."""
    bench = Racks((tree(nodes),), nodes)
    for _ in range(pods // gang):
        bench.submit(
            JobSpec(
                tasks=gang,
                tasks_given=True,
                cpus_per_task=1,
                gpus_per_task=(GresRequest("gpu", "", 1),),
                time_limit_minutes=60,
            )
        )
    started = time.process_time()
    plan = bench.cycle(pods)
    seconds = time.process_time() - started
    racks = [len({bench.rack(node.node) for node in start.allocation.nodes}) for start in plan.starts]
    print(f"{len(plan.starts)} gangs of {gang} planned with topology: {len(plan.starts) / seconds:.0f}/s", end="; ")
    print(f"{racks.count(1)} of them in one rack")


def measure(nodes: int, pods: int, gang: int, directory: str) -> None:
    """One run."""
    if gang:
        planned(nodes, pods, gang)
    root = Path(tempfile.mkdtemp(prefix="spritz-bench-kubernetes-", dir=directory or None))
    cluster = str(root / "c")
    spritz, scontrol = str(BIN / "spritz"), str(BIN / "scontrol")
    subprocess.run([spritz, "up", "--quiet", "--dir", cluster, "--nodes", "1", "--gpus", "1", "--rest"], check=True)
    conf = root / "c" / "etc" / "slurm.conf"
    text = conf.read_text().replace("DefMemPerCPU", "#DefMemPerCPU").replace("CR_Core_Memory", "CR_Core")
    conf.write_text(text + f"\nMaxNodeCount={nodes + 8}\n")
    env = {**os.environ, "SLURM_CONF": str(conf)}
    subprocess.run([scontrol, "reconfigure"], env=env, check=True)
    try:
        asyncio.run(_run(nodes, pods, gang, f"unix:{root}/c/run/slurmrestd.socket", root / "operator.log"))
    finally:
        subprocess.run([spritz, "down", "--quiet", "--keep-jobs", "--dir", cluster], check=False)
        shutil.rmtree(root, ignore_errors=True)


async def _run(nodes: int, pods: int, gang: int, slurmrestd: str, log: Path) -> None:
    async with KubeServer(tls=False) as server, Api.connect(server.kubeconfig) as api:
        for number in range(nodes):
            server.cluster.put(_node(f"k{number}"))
        words = ["-m", "spritz.k8s.operator", "--slurmrestd", slurmrestd, "--kubeconfig", str(server.kubeconfig)]
        with log.open("w") as file:
            process = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=file)
        try:
            began = time.monotonic()
            slurm = Slurm(slurmrestd)

            async def joined() -> bool:
                return sum("EXTERNAL" in node.state for node in await slurm.nodes()) >= nodes

            await _until(joined, 0.5)
            await slurm.close()
            print(f"{nodes} nodes joined in {time.monotonic() - began:.1f} s")
            server.log.clear()
            before = _processor_time(log.parent, process.pid)
            began = time.monotonic()
            await asyncio.gather(*(_create(api, range(first, pods, 8), gang) for first in range(8)))
            created = time.monotonic() - began

            async def bound() -> bool:
                return sum(bool(pod["spec"].get("nodeName")) for pod in server.cluster.among("pods")) >= pods

            await _until(bound, 0.1)
            seconds = time.monotonic() - began
            print(f"{pods} pods created in {created:.1f} s, bound after {seconds:.1f} s: {pods / seconds:.0f}/s")
            after = _processor_time(log.parent, process.pid)
            print("seconds of processor time:", {name: round(after[name] - before[name], 1) for name in after})
            if gang:
                print(f"{pods // gang} gangs of {gang}: {pods / gang / seconds:.0f}/s")

            async def told() -> bool:
                return sum(1 for _ in server.cluster.among("events")) >= pods

            await _until(told, 0.1)
            print(f"the last event was told after {time.monotonic() - began:.1f} s")
            asked = Counter(f"{one.verb} {one.resource}/{one.subresource}" for one in server.log)
            print("requests a pod:", {key: round(count / pods, 2) for key, count in asked.most_common(6)})
            print(f"operator: {psutil.Process(process.pid).memory_info().rss / 2**20:.0f} MB")
            await asyncio.sleep(2)  # events of pods that waited
            server.log.clear()
            await asyncio.sleep(10)
            writes = [one for one in server.log if one.verb not in ("get", "list", "watch")]
            print(f"writes in 10 s while nothing happens: {len(writes)}")
        finally:
            process.terminate()
            await process.wait()


def _processor_time(root: Path, operator: int) -> dict[str, float]:
    """Of each process of the run, in seconds. The API server is in this process, with the client that makes pods."""
    pids = {"API server": os.getpid(), "operator": operator}
    socket = f"{root}/c/run/slurmrestd.socket"
    for process in psutil.process_iter(["pid", "cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if process.pid != operator and socket in words and "operator" not in words:
            pids["slurmrestd"] = process.pid
    pids["slurmctld"] = int((root / "c" / "run" / "slurmctld.pid").read_text())
    return {name: sum(psutil.Process(pid).cpu_times()[:2]) for name, pid in pids.items()}


async def _until(holds: Callable[[], Awaitable[bool]], seconds: float) -> None:
    while not await holds():  # noqa: ASYNC110  # of another process
        await asyncio.sleep(seconds)


async def _create(api: Api, numbers: range, gang: int) -> None:
    asked = {"cpu": "1", "nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": asked, "limits": asked}}
    for number in numbers:
        notes = {"spritz.dev/gang": f"g{number // gang}", "spritz.dev/gang-size": str(gang)} if gang else {}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "annotations": notes},
            "spec": {"schedulerName": "spritz", "containers": [container]},
        }
        await api.send("POST", "api/v1/namespaces/default/pods", body=msgspec.json.encode(pod))


def _node(name: str) -> dict[str, object]:
    amounts = {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--gang", type=int, default=0, help="pods that start together (default: each by itself)")
    parser.add_argument("--directory", default="", help="where slurmctld writes (default: a temporary directory)")
    arguments = parser.parse_args()
    measure(arguments.nodes, arguments.pods, arguments.gang, arguments.directory)


if __name__ == "__main__":
    main()
