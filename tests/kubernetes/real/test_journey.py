"""A whole cluster on a real control plane: up, jobs, scaled, updated, reconfigured, failed over, and deleted."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.kubernetes.real.site import USER, Site, site

Json = dict[str, Any]

#: Seconds from the first manifest to a cluster that is Ready with its nodes and login host.
UP_SECONDS = 60.0


def resource(kind: str, name: str, **spec: Any) -> Json:
    return {"apiVersion": "spritz.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


CLUSTER = resource(
    "SpritzCluster",
    "lab",
    image="spritz:latest",
    partitions=[{"name": "main", "default": True}, {"name": "big", "nodeSets": ["big"]}],
)
SMALL = resource("NodeSet", "small", clusterRef="lab", replicas=2, cpus=1, memory="1Gi")
BIG = resource("NodeSet", "big", clusterRef="lab", cpus=2, memory="1Gi")
LOGIN = resource("LoginSet", "desk", clusterRef="lab", authorizedKeys="desk-keys")


def key_pair(path: Path) -> Path:
    """Makes a user's key, and the public one beside it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


async def bring_up(kube: Site, key: Path) -> float:
    """A cluster with two NodeSets and a login host; returns the seconds that it took."""
    keys = {USER: key.with_suffix(".pub").read_text()}
    await kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "desk-keys"}, "data": keys})
    began = time.monotonic()
    for each in (CLUSTER, SMALL, BIG, LOGIN):
        await kube.apply(each)
    await kube.ready("SpritzCluster", "lab")
    await kube.ready("NodeSet", "small", readyReplicas=2)
    await kube.ready("NodeSet", "big", readyReplicas=1)
    await kube.ready("LoginSet", "desk", readyReplicas=1)
    return time.monotonic() - began


async def operator_is_up(kube: Site) -> bool:
    found = await kube.get("Deployment", "spritz-clusters", "spritz")
    return bool((found.get("status") or {}).get("readyReplicas", 0) == found["spec"]["replicas"])


def test_a_cluster_comes_up_runs_jobs_changes_and_goes(tmp_path: Path) -> None:
    key = key_pair(tmp_path / "key")

    async def journey() -> None:
        async with site() as kube:
            await kube.until(lambda: operator_is_up(kube), "the operator's pods are ready")
            seconds = await bring_up(kube, key)
            print(f"Ready after {seconds:.1f} s")

            async def shell(*words: str) -> str:
                status, text = await kube.login("desk", *words, key=key)
                assert status == 0, f"{words}: {text}\n{await kube.story()}"
                return text

            assert "small-[0-1]" in await shell("sinfo")
            assert await shell("srun", "-p", "big", "hostname") == "big-0\n"
            await shell("sbatch", "--wait", "-N2", "-o", "/dev/null", "--wrap", "'srun hostname'")
            assert seconds < UP_SECONDS

    asyncio.run(journey())
