"""What a cluster may have besides, on a real control plane: a standby, a dashboard, nodes that come and go, tokens."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from sqlalchemy import make_url

from spritz.k8s.api import ApiFailure
from tests.conformance import databases
from tests.kubernetes.real.site import Desk, Site, key_pair, operator_is_up, resource, site, uids
from tests.page import page_command, page_of


async def a_standby_takes_over(kube: Site, desk: Desk) -> None:
    """The pod of the leader is deleted at once, as when its machine loses power."""
    job = await desk.job(wrap="sleep 600")
    await kube.until(lambda: desk.running(job), "the job runs")
    leader = _leader(await desk("scontrol", "ping"))
    other = "lab-controller-1" if leader.endswith("0") else "lab-controller-0"
    kube.container(leader).kill()
    await kube.delete("Pod", leader)

    async def taken_over() -> bool:
        status, text = await kube.login("desk", "scontrol", "ping", key=desk.key)
        return status == 0 and _leader(text) == other

    await kube.until(taken_over, f"{other} leads")
    await kube.until(lambda: desk.running(job), "the job runs on")
    await desk("scancel", job)


def _leader(ping: str) -> str:
    """The one of two controllers that leads, of what `scontrol ping` prints; "" for none. The first needs no words."""
    if "lab-controller-1 leads" in ping:
        return "lab-controller-1"
    return "lab-controller-0" if "at lab-controller-0 is UP" in ping and "0 stands by" not in ping else ""


async def the_dashboard_and_metrics_are_served(kube: Site) -> None:
    """By their Services, for a pod of the namespace."""
    container = kube.container("lab-accounting-0")

    async def page(url: str, *headers: str) -> tuple[int, str]:
        _status, text = await container.run(*page_command(url, *headers))
        return page_of(text)

    async def greeted() -> bool:
        url = f"http://lab-dashboard.{kube.namespace}:6860/"
        return (await page(url, "Host: dash.example.org", "X-Remote-User: root"))[0] in (200, 303)

    async def measured() -> bool:
        return "slurm_" in (await page(f"http://lab-metrics.{kube.namespace}:6817/metrics"))[1]

    await kube.until(greeted, "the dashboard answers")
    await kube.until(measured, "metrics are served")


async def nodes_come_for_jobs_and_go(kube: Site, desk: Desk) -> None:
    elastic = resource("NodeSet", "elastic", clusterRef="lab", cpus=1, memory="1Gi")
    elastic["spec"]["autoscaling"] = {"minReplicas": 0, "maxReplicas": 3, "idleSeconds": 3, "bootSeconds": 60}
    await kube.apply(elastic)
    await kube.ready("NodeSet", "elastic")
    assert await uids(kube, node_set="elastic") == {}
    await kube.until(lambda: _known(desk, "elastic-0"), "slurmctld knows the nodes")
    await desk("sbatch", "--wait", "-C", "elastic", "-N2", "-o", "/dev/null", "--wrap", "'srun hostname'")

    async def gone() -> bool:
        return not await uids(kube, node_set="elastic")

    await kube.until(gone, "idle nodes are removed")


async def _known(desk: Desk, name: str) -> bool:
    return name in await desk("sinfo", "-h", "-N", "-o", "%N")


async def machines_have_nodes_that_follow_them(kube: Site, desk: Desk) -> None:
    """As `kubectl drain` does: cordon, then evictions, which busy pods refuse until their jobs have ended."""
    await kube.apply(resource("NodeSet", "each", clusterRef="lab", cpus=1, memory="1Gi", perMachine=True))
    await kube.ready("NodeSet", "each", readyReplicas=3)
    nodes = sorted(await uids(kube, node_set="each"))
    assert nodes == sorted(f"each-{machine}" for machine in kube.kubelet.nodes)
    jobs = [await desk.job("-w", node, wrap="sleep 600") for node in nodes[:2]]
    for job in jobs:
        await kube.until(lambda job=job: desk.running(job), "the job runs")  # type: ignore[misc]
    budgets = f"apis/policy/v1/namespaces/{kube.namespace}/poddisruptionbudgets"

    async def counted() -> bool:
        status = (await kube.ask("GET", f"{budgets}/each"))["status"]
        return bool(status.get("currentHealthy") == 2)

    await kube.until(counted, "both are in the budget")
    for node in nodes[:2]:
        with pytest.raises(ApiFailure, match="disruption budget"):
            await kube.api.evict(node, kube.namespace)
    machine = kube.kubelet.nodes[0]
    await kube.ask("PATCH", f"api/v1/nodes/{machine}", {"spec": {"unschedulable": True}})

    async def drained() -> bool:
        return "scale-in" in await desk("sinfo", "-h", "-n", f"each-{machine}", "-o", "%E")

    await kube.until(drained, "the node of the cordoned machine is drained")
    assert await desk.running(jobs[0])
    await desk("scancel", *jobs)

    async def left() -> bool:
        return f"each-{machine}" not in await uids(kube, node_set="each")

    await kube.until(left, "its pod has gone")
    await kube.ask("PATCH", f"api/v1/nodes/{machine}", {"spec": {"unschedulable": None}})
    await kube.ready("NodeSet", "each", readyReplicas=3)
    await kube.delete("NodeSet", "each")
    await kube.gone("NodeSet", "each")


async def a_token_is_kept(kube: Site) -> None:
    await kube.apply(resource("Token", "outside", clusterRef="lab", role="node", lifetimeSeconds=3600))

    async def good() -> bool:
        conditions = (await kube.get("Token", "outside")).get("status", {}).get("conditions") or ()
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    await kube.until(good, "the token is good")
    assert set((await kube.get("Secret", "outside"))["data"]) == {"token", "address"}


async def deletion_waits_for_jobs(kube: Site, desk: Desk) -> None:
    """A NodeSet goes when its job has ended; by force at once; the cluster when its NodeSets have gone."""
    job = await desk.job("-C", "main", wrap="sleep 5")
    await kube.until(lambda: desk.running(job), "the job runs")
    await kube.delete("NodeSet", "main")
    await kube.gone("NodeSet", "main")
    assert await desk.state(job) == "COMPLETED"
    await kube.delete("SpritzCluster", "lab")
    await kube.delete("LoginSet", "desk")
    await kube.delete("NodeSet", "elastic")
    await kube.gone("SpritzCluster", "lab")

    async def gone() -> bool:
        return not await uids(kube)

    await kube.until(gone, "all pods have gone")


@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(databases.reason("postgresql")), reason=databases.reason("postgresql"))
def test_a_cluster_with_all_its_parts(tmp_path: Path) -> None:
    key = key_pair(tmp_path / "key")

    async def journey() -> None:
        async with site() as kube:
            with databases.server("postgresql", address=kube.kubelet.network.gateway) as server:
                await kube.until(lambda: operator_is_up(kube), "the operator's pods are ready")
                accounting, journal = (make_url(server.url()) for _ in range(2))
                secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pg"}}
                await kube.apply({**secret, "data": {"password": base64.b64encode(b"none").decode()}})
                database = {
                    "host": kube.kubelet.network.gateway,
                    "user": accounting.username,
                    "name": accounting.database,
                    "journal": journal.database,
                    "passwordSecret": {"name": "pg", "key": "password"},
                }
                dashboard = {"hosts": ["dash.example.org"], "login": "proxy", "proxy": {"from": "10.0.0.0/8"}}
                parts = {"controllers": 2, "database": database, "dashboard": dashboard, "metrics": True}
                await kube.apply(resource("SpritzCluster", "lab", image="spritz:latest", **parts))
                await kube.apply(resource("NodeSet", "main", clusterRef="lab", cpus=1, memory="1Gi"))
                desk = await Desk.at(kube, key)
                await kube.ready("SpritzCluster", "lab")
                await kube.ready("NodeSet", "main", readyReplicas=1)
                await the_dashboard_and_metrics_are_served(kube)
                await a_standby_takes_over(kube, desk)
                await a_token_is_kept(kube)
                await nodes_come_for_jobs_and_go(kube, desk)
                await machines_have_nodes_that_follow_them(kube, desk)
                await deletion_waits_for_jobs(kube, desk)

    asyncio.run(journey())
