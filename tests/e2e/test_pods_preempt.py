"""Training and inference on the same GPU nodes: jobs of slurmd and gangs of pods make way for a Deployment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from spritz.k8s.api import Api
from spritz.k8s.operator import operate
from spritz.k8s.policy import read
from spritz.k8s.slurm import Slurm
from spritz_testing.kubernetes.server import KubeServer
from tests.e2e.cluster import user_name
from tests.e2e.rest_site import Site
from tests.e2e.test_pods import Json, Kube, command, kubernetes, until

pytestmark = pytest.mark.slow

POLICY = f"""\
namespaces: {{"*": {{user: {user_name()}, qos: training}}}}
priorityClasses: {{inference: {{qos: inference}}}}
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Two nodes with four GPUs each, on which slurmd runs jobs and kubelets run pods."""
    made = Site(gpus=4)
    try:
        made.start()
        line = next(
            each for each in Path(made.paths.slurm_conf).read_text().splitlines() if each.startswith("NodeName=")
        )
        made.configure(f"{line} Feature=kubernetes")
        made.configure("PreemptType=preempt/qos\nPreemptMode=REQUEUE")
        command(made, "sacctmgr", "-i", "add", "qos", "training", "gracetime=2")
        command(made, "sacctmgr", "-i", "add", "qos", "inference", "preempt=training", "priority=100")
        yield made
    finally:
        made.stop()


class Serving(Kube):
    """With a Deployment that serves."""

    async def deploy(self) -> None:
        classes = "apis/scheduling.k8s.io/v1/priorityclasses"
        await self.ask("POST", classes, {"metadata": {"name": "inference"}, "value": 1000})
        labels = {"app": "serve"}
        asked = {"cpu": "1", "nvidia.com/gpu": "4"}
        container = {"name": "main", "image": "vllm", "resources": {"limits": asked}}
        spec = {"schedulerName": "spritz", "priorityClassName": "inference", "containers": [container]}
        notes = {"spritz.dev/time-limit": "UNLIMITED"}
        template = {"metadata": {"labels": labels, "annotations": notes}, "spec": spec}
        body = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        await self.ask(
            "POST", "apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "serve"}, "spec": body}
        )

    async def scale(self, replicas: int) -> None:
        path = "apis/apps/v1/namespaces/default/deployments/serve/scale"
        await self.ask("PATCH", path, {"spec": {"replicas": replicas}}, "application/merge-patch+json")

    async def stop(self) -> None:
        """Scale to nothing; kubelets end the pods."""
        await self.scale(0)

        async def none() -> bool:
            pods = await self.serving()
            for pod in pods:
                if "deletionTimestamp" in pod["metadata"]:
                    await self.gone(pod["metadata"]["name"])
            return not pods

        await until(none, "no pod serves")

    async def serving(self) -> list[Json]:
        path, chosen = "api/v1/namespaces/default/pods", {"labelSelector": "app=serve"}
        found = msgspec.json.decode(await self.api.send("GET", path, parameters=chosen))
        return list(found["items"])

    async def places(self) -> list[str]:
        """Nodes of pods that serve."""
        return [pod["spec"]["nodeName"] for pod in await self.serving() if pod["spec"].get("nodeName")]

    async def served(self, count: int) -> None:
        async def look() -> bool:
            return len(await self.places()) == count

        await until(look, f"{count} pods serve")


def said(pod: Json, kind: str) -> str:
    return next((each.get("message", "") for each in pod["status"].get("conditions", ()) if each["type"] == kind), "")


def test_inference_takes_gpus_from_training_and_gives_them_back(site: Site) -> None:
    gang = {"spritz.dev/gang": "train", "spritz.dev/gang-size": "2"}

    async def state_of(job: str) -> str:
        return await asyncio.to_thread(command, site, "squeue", "-h", "-j", job, "-o", "%T %r")

    async def is_(job: str, *states: str) -> None:
        async def look() -> bool:
            return (await state_of(job)).split(" ")[0] in states

        await until(look, f"job {job} is {states}")

    async def journey() -> None:
        async with kubernetes(site) as (plain, _slurm, server):
            kube = Serving(plain.api)
            for name in ("node1", "node2"):
                await kube.node(name, cpus=4)
            await kube.deploy()
            async with operating(site, server):
                # A job of slurmd has all GPUs; a service preempts it, and it queues again.
                words = [
                    "sbatch",
                    "--parsable",
                    "--qos=training",
                    "--requeue",
                    "-N2",
                    "-n2",
                    "--gres=gpu:4",
                    "--mem=100",
                ]
                job = await asyncio.to_thread(command, site, *words, "--output=/dev/null", "--wrap", "srun sleep 600")
                await is_(job, "RUNNING")
                await kube.scale(1)
                await kube.served(1)
                assert (await state_of(job)).startswith("PENDING")
                shown = await asyncio.to_thread(command, site, "scontrol", "show", "job", job)
                assert "Restarts=1" in shown
                await kube.stop()
                await is_(job, "RUNNING")
                await asyncio.to_thread(command, site, "scancel", job)

                # A gang of pods makes way as a whole, though one node would do.
                for name in ("train-0", "train-1"):
                    await kube.pod(name, "1", 4, annotations=gang)
                pods = [await kube.bound(name) for name in ("train-0", "train-1")]
                gang_job = pods[0]["metadata"]["annotations"]["spritz.dev/job-id"]
                await kube.scale(1)
                for name in ("train-0", "train-1"):
                    pod = await kube.until(name, lambda pod: "deletionTimestamp" in pod["metadata"])
                    assert "is preempted" in said(pod, "DisruptionTarget")
                await kube.gone("train-0")
                assert not await kube.places(), "no GPU is given away under a pod that still ends"
                await kube.gone("train-1")
                await kube.served(1)
                row = await asyncio.to_thread(command, site, "sacct", "-nPX", "-j", gang_job, "-o", "State")
                assert row == "PREEMPTED"

                # Training waits for the service, which is protected, and says so.
                for name in ("train-0", "train-1"):
                    await kube.pod(name, "1", 4, annotations=gang)
                waits = await kube.until("train-0", lambda pod: "GPU" in said(pod, "PodScheduled"))
                assert not waits["spec"].get("nodeName")
                assert len(await kube.places()) == 1
                await kube.stop()
                for name in ("train-0", "train-1"):
                    await kube.bound(name)

    asyncio.run(journey())


@asynccontextmanager
async def operating(site: Site, server: KubeServer) -> AsyncIterator[None]:
    """The operator, with a policy."""
    slurm = Slurm(f"unix:{site.socket}")
    try:
        async with Api.connect(server.kubeconfig) as api, asyncio.TaskGroup() as group:
            task = group.create_task(operate(api, slurm, read(POLICY)))
            yield
            task.cancel()
    finally:
        await slurm.close()
