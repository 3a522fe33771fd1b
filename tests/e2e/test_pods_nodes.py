"""Which nodes pods get when nodes join, change and leave while pods wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.e2e.rest_site import Site
from tests.e2e.test_pods import Json, Kube, command, kubernetes, operator, until

pytestmark = pytest.mark.slow

MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Two nodes with a slurmd. node1 has the feature `kubernetes`, though it is in no Kubernetes."""
    with Site.configured("MaxNodeCount=16", "GresTypes=gpu") as made:
        words = ("AvailableFeatures=kubernetes", "ActiveFeatures=kubernetes")
        command(made, "scontrol", "update", "NodeName=node1", *words)
        yield made


async def pod_on(kube: Kube, name: str, *, gang: str = "", more: Json | None = None, **selector: str) -> None:
    """A pod for nodes with these labels; `gang`: of one pod; `more`: other resources."""
    asked = {"cpu": "1", **(more or {})}
    notes = {"spritz.dev/gang": gang, "spritz.dev/gang-size": "1"} if gang else {}
    spec = {
        "schedulerName": "spritz",
        "restartPolicy": "Never",
        "nodeSelector": selector,
        "containers": [{"name": "main", "image": "busybox", "resources": {"requests": asked, "limits": asked}}],
    }
    body = {"metadata": {"name": name, "annotations": notes}, "spec": spec}
    await kube.ask("POST", "api/v1/namespaces/default/pods", body)


def test_no_pod_waits_on_a_node_of_slurm_that_is_not_in_this_kubernetes(site: Site) -> None:
    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server), operator(site, server):
            await kube.pod("first")
            await kube.until("first", lambda pod: "Unschedulable" in str(pod["status"]))
            assert not [job for job in await slurm.jobs() if job.is_running]  # node1 is known from the start
            await kube.node("k1", cpus=1)
            assert (await kube.bound("first"))["spec"]["nodeName"] == "k1"
            # A node that gets the feature while the operator runs is learnt when a job gets it.
            words = ("AvailableFeatures=kubernetes", "ActiveFeatures=kubernetes")
            command(site, "scontrol", "update", "NodeName=node2", *words)
            await kube.pod("second")

            async def waits() -> bool:
                jobs = [job for job in await slurm.jobs() if "/second/" in job.admin_comment]
                return (
                    bool(jobs)
                    and not jobs[-1].is_running
                    and "job" not in str((await kube.get("second") or {})["spec"])
                )

            await until(waits, "node2 is given back")
            await kube.phase("first", "Succeeded")
            await kube.node("k2", cpus=1)
            assert (await kube.bound("second"))["spec"]["nodeName"] in ("k1", "k2")
            await kube.phase("second", "Succeeded")
            for name in ("k1", "k2"):
                await kube.ask("DELETE", f"api/v1/nodes/{name}")

            async def gone() -> bool:
                return {node.name for node in await slurm.nodes()} == {"node1", "node2"}

            await until(gone, "the nodes have left")

    asyncio.run(journey())


def test_a_waiting_pod_follows_the_labels_of_nodes(site: Site) -> None:
    """No node that joined later gets a pod whose selector it does not satisfy; a node that is labelled does."""

    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server), operator(site, server):
            await kube.node("k1", cpus=1, disk="ssd")
            await pod_on(kube, "holds", disk="ssd")
            await kube.bound("holds")
            await pod_on(kube, "waits", disk="ssd")
            await kube.until("waits", lambda pod: "PodScheduled" in str(pod["status"]))
            await kube.node("k2", cpus=1)
            await kube.pod("any")
            assert (await kube.bound("any"))["spec"]["nodeName"] == "k2"
            await kube.phase("any", "Succeeded")

            async def settled() -> bool:
                return not [job for job in await slurm.jobs() if job.is_running and "/waits/" in job.admin_comment]

            await until(settled, "no job for the pod that waits")
            pod = await kube.get("waits")
            assert pod is not None
            assert "nodeName" not in pod["spec"]
            # A pod that can be no job joins a gang that waits: it is told so, and keeps nothing from the others.
            await pod_on(kube, "gang-0", gang="g", disk="ssd")
            await kube.until("gang-0", lambda pod: "PodScheduled" in str(pod["status"]))
            await pod_on(kube, "gang-1", gang="g", more={"nvidia.com/gpu": "1", "amd.com/gpu": "1"}, disk="ssd")
            await kube.until("gang-1", lambda pod: "GPUs of several kinds" in str(pod["status"]))
            await kube.ask("PATCH", "api/v1/nodes/k2", {"metadata": {"labels": {"disk": "ssd"}}}, MERGE)
            assert (await kube.bound("waits"))["spec"]["nodeName"] == "k2"
            await kube.phase("waits", "Succeeded")
            assert (await kube.bound("gang-0"))["spec"]["nodeName"] == "k2"
            # A pod that no node could have at first.
            await pod_on(kube, "later", disk="tape")
            await kube.until("later", lambda pod: "Unschedulable" in str(pod["status"]))
            await kube.phase("holds", "Succeeded")
            await kube.ask("PATCH", "api/v1/nodes/k1", {"metadata": {"labels": {"disk": "tape"}}}, MERGE)
            assert (await kube.bound("later"))["spec"]["nodeName"] == "k1"

    asyncio.run(journey())
