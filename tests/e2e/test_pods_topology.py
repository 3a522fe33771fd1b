"""Gangs of pods in a network of blocks: where they start, and whom they preempt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.operator import operate
from spritz.k8s.policy import read
from spritz.k8s.slurm import Slurm
from tests.e2e.cluster import user_name
from tests.e2e.rest_site import Site
from tests.e2e.test_pods import Json, Kube, command, kubernetes

pytestmark = pytest.mark.slow

POLICY = f"""\
namespaces: {{"*": {{user: {user_name()}, qos: training}}}}
priorityClasses: {{inference: {{qos: inference}}}}
topologyLabels: {{example.org/rack: machines}}
"""
NETWORK = """\
- topology: machines
  cluster_default: true
  block: {block_sizes: [2], blocks: [{block: r1}, {block: r2}]}
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site()
    try:
        made.start()
        Path(made.paths.slurm_conf).with_name("topology.yaml").write_text(NETWORK)
        made.configure("MaxNodeCount=16")
        made.configure("GresTypes=gpu\nPreemptType=preempt/qos\nPreemptMode=REQUEUE")
        command(made, "sacctmgr", "-i", "add", "qos", "training")
        command(made, "sacctmgr", "-i", "add", "qos", "inference", "preempt=training", "priority=100")
        yield made
    finally:
        made.stop()


class Racks(Kube):
    async def gang(self, name: str, size: int, priority: str = "") -> None:
        """Pods NAME-0, NAME-1, … with a node's GPUs each."""
        asked = {"cpu": "1", "nvidia.com/gpu": "4"}
        spec: Json = {
            "schedulerName": "spritz",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "vllm", "resources": {"limits": asked}}],
        } | ({"priorityClassName": priority} if priority else {})
        notes = {"spritz.dev/gang": name, "spritz.dev/gang-size": str(size)}
        for number in range(size):
            about = {"name": f"{name}-{number}", "annotations": notes}
            await self.ask("POST", "api/v1/namespaces/default/pods", {"metadata": about, "spec": spec})

    async def nodes_of(self, name: str, size: int) -> set[str]:
        return {(await self.bound(f"{name}-{number}"))["spec"]["nodeName"] for number in range(size)}


def test_a_gang_preempts_what_makes_one_block_free(site: Site) -> None:
    """In one block a gang of two trains, in the other a single pod: the gang of inference takes the other block."""
    racks = {"r1": {"k1", "k2"}, "r2": {"k3", "k4"}}

    async def journey() -> None:
        async with kubernetes(site) as (plain, _slurm, server):
            kube = Racks(plain.api)
            with suppress(ApiFailure):
                await kube.ask(
                    "POST",
                    "apis/scheduling.k8s.io/v1/priorityclasses",
                    {"metadata": {"name": "inference"}, "value": 1000},
                )
            slurm = Slurm(f"unix:{site.socket}")
            try:
                async with Api.connect(server.kubeconfig) as api, asyncio.TaskGroup() as group:
                    task = group.create_task(operate(api, slurm, read(POLICY)))
                    for rack, names in racks.items():
                        for name in sorted(names):
                            await kube.node(name, 8, 4, **{"example.org/rack": rack})
                    await kube.gang("pair", 2)
                    of_pair = await kube.nodes_of("pair", 2)
                    assert of_pair in racks.values(), "a gang that fits in a block is in a block"
                    (other,) = (names for names in racks.values() if names != of_pair)
                    await kube.gang("single", 1)
                    assert await kube.nodes_of("single", 1) < other
                    # One node is free; two of a block are needed.
                    await kube.gang("serve", 2, "inference")
                    await kube.until("single-0", lambda pod: "deletionTimestamp" in pod["metadata"])
                    await kube.gone("single-0")
                    assert await kube.nodes_of("serve", 2) == other
                    for number in range(2):
                        pod = await kube.get(f"pair-{number}")
                        assert pod is not None
                        assert "deletionTimestamp" not in pod["metadata"]
                    task.cancel()
            finally:
                await slurm.close()

    asyncio.run(journey())
