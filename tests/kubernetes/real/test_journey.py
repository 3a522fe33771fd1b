"""A whole cluster on a real control plane: up, jobs, scaled, updated, reconfigured, failed over, and deleted."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from spritz.k8s.api import ApiFailure
from tests.kubernetes.real.site import Desk, Site, key_pair, operator_is_up, path_of, resource, site, uids

#: Seconds from the first manifest to a cluster that is Ready with its nodes and login host.
UP_SECONDS = 60.0


CLUSTER = resource(
    "SpritzCluster",
    "lab",
    image="spritz:latest",
    partitions=[{"name": "main", "default": True}, {"name": "big", "nodeSets": ["big"]}],
)
SMALL = resource("NodeSet", "small", clusterRef="lab", replicas=2, cpus=1, memory="1Gi")
BIG = resource("NodeSet", "big", clusterRef="lab", cpus=2, memory="1Gi")


async def bring_up(kube: Site, key: Path) -> tuple[Desk, float]:
    """A cluster with two NodeSets and a login host, and the seconds that it took."""
    began = time.monotonic()
    for each in (CLUSTER, SMALL, BIG):
        await kube.apply(each)
    desk = await Desk.at(kube, key)
    await kube.ready("SpritzCluster", "lab")
    await kube.ready("NodeSet", "small", readyReplicas=2)
    await kube.ready("NodeSet", "big", readyReplicas=1)
    await kube.ready("LoginSet", "desk", readyReplicas=1)
    return desk, time.monotonic() - began


async def runs_jobs(kube: Site, desk: Desk) -> None:
    assert "small-[0-1]" in await desk("sinfo")
    assert await desk("srun", "-p", "big", "hostname") == "big-0\n"
    await desk("sbatch", "--wait", "-N2", "-o", "/dev/null", "--wrap", "'srun hostname'")
    job = await desk.job(wrap="true")

    async def recorded() -> bool:
        return await desk.state(job) == "COMPLETED"

    await kube.until(recorded, "accounting has the job")


async def scales(kube: Site, desk: Desk) -> None:
    path = path_of("NodeSet", kube.namespace, "small", "scale")
    await kube.ask("PATCH", path, {"spec": {"replicas": 3}})
    await kube.ready("NodeSet", "small", readyReplicas=3)
    assert "small-[0-2]" in await desk("sinfo")
    await kube.ask("PATCH", path, {"spec": {"replicas": 2}})
    await kube.ready("NodeSet", "small", readyReplicas=2, replicas=2)

    async def shrunk() -> bool:
        return set(await uids(kube, node_set="small")) == {"small-0", "small-1"}

    await kube.until(shrunk, "the third pod has gone")


async def updates(kube: Site, desk: Desk) -> None:
    """Another pod takes each node's place when its job has ended."""
    job = await desk.job("-w", "small-1", wrap="sleep 15")
    await kube.until(lambda: desk.running(job), "the job runs")
    before = await uids(kube, node_set="small")
    await kube.change("NodeSet", "small", annotations={"example.org/rev": "2"})
    await kube.ready("NodeSet", "small", readyReplicas=2, updatedReplicas=2)
    after = await uids(kube, node_set="small")
    assert set(after) == set(before)
    assert not set(after.values()) & set(before.values())
    assert await desk.state(job) == "COMPLETED"


async def reconfigures(kube: Site, desk: Desk) -> None:
    before = await uids(kube)
    await kube.change("SpritzCluster", "lab", extraConfig="SchedulerParameters=bf_interval=7")

    async def applied() -> bool:
        return "bf_interval=7" in await desk("scontrol", "show", "config")

    await kube.until(applied, "the configuration is applied")
    assert await uids(kube) == before
    refused = kube.change("SpritzCluster", "lab", extraConfig="SchedulerTimeSlize=3")
    with pytest.raises(ApiFailure, match="did you mean SchedulerTimeSlice"):
        await refused


async def fails_over(kube: Site, desk: Desk) -> None:
    """The leading operator, slurmctld's process, and its pod: jobs run on, and changes are carried out."""
    job = await desk.job("-w", "small-0", wrap="sleep 600")
    await kube.until(lambda: desk.running(job), "the job runs")
    lease = await kube.ask("GET", "apis/coordination.k8s.io/v1/namespaces/spritz/leases/spritz-clusters")
    leader = lease["spec"]["holderIdentity"]
    pods = [pod["metadata"]["name"] for pod in await kube.items("Pod", "spritz")]
    (led,) = (name for name in pods if leader.startswith(name))
    kube.container(led, namespace="spritz").kill()
    await kube.delete("Pod", led, "spritz")

    kube.container("lab-controller-0").kill()
    await kube.until(lambda: desk.running(job), "slurmctld is back, and the job runs")
    uid = (await uids(kube))["lab-controller-0"]
    await kube.delete("Pod", "lab-controller-0")

    async def another() -> bool:
        return bool((await uids(kube)).get("lab-controller-0", uid) != uid)

    await kube.until(another, "slurmctld has another pod")
    await kube.ready("SpritzCluster", "lab")
    await kube.until(lambda: desk.running(job), "the job runs on")
    await kube.change("NodeSet", "big", replicas=2)
    await kube.ready("NodeSet", "big", readyReplicas=2)
    await desk("scancel", job)


async def loses_a_machine(kube: Site, desk: Desk) -> None:
    """A machine goes, and its Kubernetes node: its nodes come back elsewhere, and their jobs run again."""
    job = await desk.job("-C", "small", "--requeue", wrap="sleep 600")
    await kube.until(lambda: desk.running(job), "the job runs")
    pod = await kube.get("Pod", (await desk("squeue", "-h", "-o", "%N", "-j", job)).strip())
    machine, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
    await kube.kubelet.lose(machine)
    await kube.ask("DELETE", f"api/v1/nodes/{machine}")

    async def gone() -> bool:
        return uid not in (await uids(kube)).values()

    await kube.until(gone, "the pod of the lost machine is gone", 240)
    await kube.ready("SpritzCluster", "lab")
    await kube.ready("NodeSet", "small", readyReplicas=2)
    await kube.ready("LoginSet", "desk", readyReplicas=1)
    await kube.until(lambda: desk.running(job), "the job runs again")
    await desk("scancel", job)


async def goes(kube: Site) -> None:
    await kube.delete("Namespace", kube.namespace)
    await kube.gone("Namespace", kube.namespace)


@pytest.mark.timeout(1800)
def test_a_cluster_comes_up_runs_jobs_changes_and_goes(tmp_path: Path) -> None:
    key = key_pair(tmp_path / "key")

    async def journey() -> None:
        async with site() as kube:
            await kube.until(lambda: operator_is_up(kube), "the operator's pods are ready")
            desk, seconds = await bring_up(kube, key)
            await runs_jobs(kube, desk)
            await scales(kube, desk)
            await updates(kube, desk)
            await reconfigures(kube, desk)
            await fails_over(kube, desk)
            await loses_a_machine(kube, desk)
            await goes(kube)
            print(f"Ready after {seconds:.1f} s")
            assert seconds < UP_SECONDS

    asyncio.run(journey())
