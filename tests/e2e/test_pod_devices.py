"""Devices by ResourceClaims: GPUs, parts of GPUs (MIG) and shares of GPUs, of nodes that run jobs too."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spritz.k8s.slurm import Slurm
from tests.e2e.rest_site import Site
from tests.e2e.test_pods import Json, Kube, command, kubernetes, operator, until

DRA = "apis/resource.k8s.io/v1"
DRIVER = "gpu.nvidia.com"
H100 = {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}}
PART = {"type": {"string": "mig"}, "profile": {"string": "1g.10gb"}, "productName": H100["productName"]}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Of two nodes with a slurmd, node1 has two GPUs that can be shared by four, and four parts of a third."""
    made = Site()
    try:
        made.start()
        gres = "gpu:h100:2,gpu:1g.10gb:4,shard:h100:8"
        conf = Path(made.paths.slurm_conf)
        text = "\n".join(line for line in conf.read_text().splitlines() if not line.startswith("NodeName="))
        shape = "NodeAddr=127.0.0.1 CPUs=16 RealMemory=4000"
        nodes = f"NodeName=node1 {shape} Feature=kubernetes Gres={gres}\nNodeName=node2 {shape}\n"
        conf.write_text(f"{text}\nGresTypes=gpu,shard\nMaxNodeCount=16\n{nodes}")
        made.configure("DefMemPerCPU=100")
        yield made
    finally:
        made.stop()


class Claims(Kube):
    """A cluster with a driver of GPUs."""

    async def classes(self) -> None:
        for name, kind in ((DRIVER, "gpu"), ("mig.nvidia.com", "mig")):
            rule = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
            spec = {"selectors": [{"cel": {"expression": rule}}]}
            await self.ask("POST", f"{DRA}/deviceclasses", {"metadata": {"name": name}, "spec": spec})

    async def slice(self, node: str, devices: list[Json], generation: int = 1, **more: Any) -> None:
        pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool} | ({"devices": devices} if devices else {}) | more
        name = f"{node}-{generation}-{len(devices)}"
        await self.ask("POST", f"{DRA}/resourceslices", {"metadata": {"name": name}, "spec": spec})

    async def claim(self, name: str, device_class: str = DRIVER, *, config: Json | None = None, **exactly: Any) -> None:
        """From which pods make their own by the template, and one by itself."""
        requests = [{"name": "gpus", "exactly": {"deviceClassName": device_class, **exactly}}]
        devices: Json = {"requests": requests} | ({"config": [config]} if config is not None else {})
        spec: Json = {"devices": devices}
        path = f"{DRA}/namespaces/default"
        await self.ask("POST", f"{path}/resourceclaims", {"metadata": {"name": name}, "spec": spec})
        await self.ask("POST", f"{path}/resourceclaimtemplates", {"metadata": {"name": name}, "spec": {"spec": spec}})

    async def user(self, name: str, claim: str, *, template: bool = True, gang: int = 0) -> None:
        """A pod with the claim; `gang`: the size of its gang."""
        reference = {"resourceClaimTemplateName" if template else "resourceClaimName": claim}
        container = {"name": "main", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}
        claims = [{"name": "gpu", **reference}]
        spec = {
            "schedulerName": "spritz",
            "restartPolicy": "Never",
            "containers": [container],
            "resourceClaims": claims,
        }
        about: Json = {"name": name}
        if gang:
            about["annotations"] = {"spritz.dev/gang": claim, "spritz.dev/gang-size": str(gang)}
        await self.ask("POST", "api/v1/namespaces/default/pods", {"metadata": about, "spec": spec})

    async def allocated(self, name: str) -> list[Json]:
        """Devices of the pod's claim, when the pod has its node."""
        pod = await self.bound(name)
        (reference,) = pod["spec"]["resourceClaims"]
        made = pod["status"].get("resourceClaimStatuses") or [reference]
        path = f"{DRA}/namespaces/default/resourceclaims/{made[0]['resourceClaimName']}"
        status = (await self.ask("GET", path))["status"]
        assert [each["uid"] for each in status["reservedFor"]] == [pod["metadata"]["uid"]]
        results: list[Json] = status["allocation"]["devices"]["results"]
        assert {result["pool"] for result in results} == {pod["spec"]["nodeName"]}
        return results

    async def devices(self, name: str) -> list[str]:
        return [each["device"] for each in await self.allocated(name)]


def share(total: int = 4) -> Json:
    policy = {"default": "1", "validRange": {"min": "1", "max": str(total), "step": "1"}}
    return {
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80Gi"}, "shares": {"value": str(total), "requestPolicy": policy}},
    }


def parts(gpu: int, count: int) -> list[Json]:
    names = [f"gpu-{gpu}-mig-1g10gb-19-{place}" for place in range(count)]
    return [{"name": name, "attributes": PART, "capacity": {"memory": {"value": "10Gi"}}} for name in names]


async def says(kube: Kube, name: str, text: str) -> None:
    await kube.until(name, lambda pod: text in str(pod["status"]))


def numbers(site: Site, job: str) -> list[int]:
    """Of the GPUs of a job, as `scontrol -d show job` has them."""
    found = re.search(r"GRES=\S*\(IDX:([\d,-]+)\)", command(site, "scontrol", "-d", "show", "job", job))
    assert found is not None
    return [int(word) for word in found[1].replace("-", ",").split(",")]


def test_jobs_and_pods_divide_parts_and_shares_of_the_gpus_of_a_node(site: Site) -> None:
    """Whatever a job of slurmd has, no claim names, and the other way round."""

    async def submit(*words: str) -> str:
        base = ["sbatch", "--parsable", "-n1", "--mem=50", "--output=/dev/null", "-w", "node1"]
        return await asyncio.to_thread(command, site, *base, *words, "--wrap", "sleep 600")

    async def journey() -> None:
        async with kubernetes(site) as (plain, slurm, server):
            kube = Claims(plain.api)
            await kube.classes()
            shared = [{"name": f"gpu-{number}", "attributes": H100, **share()} for number in range(2)]
            await kube.slice("node1", [*parts(2, 4), *shared])
            await kube.node("node1", cpus=16, gpus=0)
            profile = {"cel": {"expression": f"device.attributes['{DRIVER}'].profile == '1g.10gb'"}}
            await kube.claim("parts", "mig.nvidia.com", count=2, selectors=[profile])
            await kube.claim("share", capacity={"requests": {"shares": "3"}})
            async with operator(site, server):
                part, whole = await submit("--gres=gpu:1g.10gb:1"), await submit("--gres=gpu:h100:1")
                for job in (part, whole):
                    await running(slurm, job)
                assert (numbers(site, part), numbers(site, whole)) == ([2], [0])
                await kube.user("two-parts", "parts")
                assert await kube.devices("two-parts") == ["gpu-2-mig-1g10gb-19-1", "gpu-2-mig-1g10gb-19-2"]
                await kube.user("three-shares", "share")
                (got,) = await kube.allocated("three-shares")
                assert got["device"] == "gpu-1", "the other GPU is a job's"
                assert got["consumedCapacity"] == {"memory": "80Gi", "shares": "3"}
                assert got["shareID"]

                # A part is left, too few; a share is left, for a job as well; no GPU is left as a whole.
                await kube.user("more-parts", "parts")
                await kube.until("more-parts", lambda pod: "GPU" in str(pod["status"].get("conditions")))
                last, refused = await submit("--gres=shard:1"), await submit("--gres=gpu:h100:1")
                await running(slurm, last)
                assert numbers(site, last) == [1]
                assert await asyncio.to_thread(command, site, "squeue", "-h", "-j", refused, "-o", "%T") == "PENDING"

                # The device that the job had goes to the pod that waits.
                await asyncio.to_thread(command, site, "scancel", part)
                assert await kube.devices("more-parts") == ["gpu-2-mig-1g10gb-19-0", "gpu-2-mig-1g10gb-19-3"]
                # A pod that ends leaves its devices to a job.
                await kube.phase("two-parts", "Succeeded")
                taken = await submit("--gres=gpu:1g.10gb:2")
                await running(slurm, taken)
                assert numbers(site, taken) == [3, 4]
                for job in (whole, last, refused, taken):
                    await asyncio.to_thread(command, site, "scancel", job)
                for name in ("more-parts", "three-shares"):
                    await kube.phase(name, "Succeeded")

    async def running(slurm: Slurm, job: str) -> None:
        async def look() -> bool:
            return any(each.state == "RUNNING" for each in await slurm.jobs([int(job)]))

        await until(look, f"job {job} runs")

    asyncio.run(journey())


@pytest.mark.slow
def test_a_partitionable_gpu_is_whole_or_divided_as_its_nodes_layout_says(site: Site) -> None:
    """The driver offers every part that a GPU could have, and counters that exclude each other."""

    def consumes(gpu: int, slices: range) -> list[Json]:
        counters = {f"memory-slice-{number}": {"value": "1"} for number in slices}
        return [{"counterSet": f"gpu-{gpu}-counter-set", "counters": counters}]

    async def journey() -> None:
        async with kubernetes(site) as (plain, slurm, server):
            kube = Claims(plain.api)
            await kube.classes()
            sets = [
                {"name": f"gpu-{gpu}-counter-set", "counters": {f"memory-slice-{n}": {"value": "1"} for n in range(8)}}
                for gpu in range(2)
            ]
            devices: list[Json] = []
            for gpu in range(2):
                whole = {"name": f"gpu-{gpu}", "attributes": H100, "consumesCounters": consumes(gpu, range(8))}
                some = [
                    {**each, "consumesCounters": consumes(gpu, range(place, place + 1))}
                    for place, each in enumerate(parts(gpu, 7))
                ]
                devices += [whole, *some]
            await kube.slice("k1", [], sharedCounters=sets)
            await kube.slice("k1", devices)
            await kube.claim("whole")
            await kube.claim("part", "mig.nvidia.com")
            async with operator(site, server):
                await kube.node("k1", gpus=0, cpus=8)
                await kube.user("first", "whole")
                assert await kube.devices("first") == ["gpu-0"]
                await kube.user("second", "part")
                await kube.until("second", lambda pod: "no node has a type of GPU" in str(pod["status"]))
                await kube.phase("first", "Succeeded")
                layout = {"metadata": {"annotations": {"spritz.dev/mig-layout": "1=1g.10gb:3"}}}
                await kube.ask("PATCH", "api/v1/nodes/k1", layout, "application/merge-patch+json")
                assert await kube.devices("second") == ["gpu-1-mig-1g10gb-19-0"]
                node = await slurm.node("k1")
                assert node is not None
                assert node.gres == "gpu:nvidia-h100-80gb-hbm3:1,gpu:1g.10gb:3"
                await kube.user("third", "whole")
                assert await kube.devices("third") == ["gpu-0"]
                for name in ("second", "third"):
                    await kube.phase(name, "Succeeded")

    asyncio.run(journey())


def test_claims_of_devices_get_the_gpus_of_the_job(site: Site) -> None:
    """The driver numbers the devices, and lists them as it likes."""
    # node1 has GPUs too, and a job may be queued before k9 is a node of Slurm.
    command(site, "scontrol", "update", "nodename=node1", "state=drain", "reason=not in Kubernetes here")

    async def journey() -> None:
        async with kubernetes(site) as (plain, _slurm, server):
            kube = Claims(plain.api)
            await kube.classes()
            kind = H100["type"]
            found = [{"name": f"gpu-{n}", "attributes": {"type": kind, "index": {"int": 3 - n}}} for n in range(4)]
            await kube.slice("k9", found, 2)
            await kube.slice("k9", [{"name": "gone", "attributes": {"type": kind}}])
            sharing = {"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}
            config: Json = {"requests": ["gpus"], "opaque": {"driver": DRIVER, "parameters": sharing}}
            await kube.claim("first", count=1, config=config)
            async with operator(site, server):
                await kube.node("k9", gpus=0)
                await kube.user("claims-1", "first", template=False)
                assert await kube.devices("claims-1") == ["gpu-3"]
                bound = await kube.bound("claims-1")
                assert bound["metadata"]["annotations"]["spritz.dev/gpus"] == "0"
                path = f"{DRA}/namespaces/default/resourceclaims/first"
                allocation = (await kube.ask("GET", path))["status"]["allocation"]
                assert allocation["devices"]["config"] == [{"source": "FromClaim", **config}]
                # The controller manager makes a claim from a template by and by.
                await kube.user("claims-2", "template-of-another-controller")
                await kube.until("claims-2", lambda pod: "waits for its ResourceClaims" in str(pod["status"]))
                await kube.claim("two", count=2)
                made = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "two"}]}
                path = "api/v1/namespaces/default/pods/claims-2/status"
                await kube.ask("PATCH", path, {"status": made}, "application/merge-patch+json")
                assert await kube.devices("claims-2") == ["gpu-2", "gpu-1"]
                for name, why, exactly in (
                    ("none", "no node has a type of GPU", {"selectors": [{"cel": {"expression": "false"}}]}),
                    ("odd", "is no CEL expression", {"selectors": [{"cel": {"expression": "device ="}}]}),
                    ("all", "write `exactly` with a count", {"allocationMode": "All"}),
                    ("nosuch", "there is no DeviceClass other", {"device_class": "other"}),
                ):
                    await kube.claim(name, **exactly)
                    await kube.user(f"claims-{name}", name, template=False)
                    await says(kube, f"claims-{name}", why)
                # Another's claim is not taken over; the device that it has is not given out.
                await kube.user("thief", "first", template=False)
                await kube.until("thief", lambda pod: "which another pod uses" in str(pod["status"]))

    try:
        asyncio.run(journey())
    finally:
        command(site, "scontrol", "update", "nodename=node1", "state=resume")


@pytest.mark.slow
def test_device_plugins_are_counted_and_pods_beside_jobs_are_told(site: Site) -> None:
    """Shares of GPUs, and parts on a node that runs jobs of slurmd too."""

    async def pod(kube: Kube, name: str, resource: str, count: int) -> None:
        asked = {"cpu": "1", resource: str(count)}
        container = {"name": "main", "image": "busybox", "resources": {"requests": asked, "limits": asked}}
        spec = {"schedulerName": "spritz", "restartPolicy": "Never", "containers": [container]}
        await kube.ask("POST", "api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})

    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server):
            for node, resource, count in (("k3", "nvidia.com/gpu.shared", 4), ("node1", "nvidia.com/mig-1g.10gb", 4)):
                await kube.node(node, gpus=0)
                amounts = {"cpu": "8", "memory": "4Gi", "pods": "110", resource: str(count)}
                await kube.ready(node, amounts=amounts)
            async with operator(site, server):
                await pod(kube, "three", "nvidia.com/gpu.shared", 3)
                assert (await kube.bound("three"))["spec"]["nodeName"] == "k3"
                await pod(kube, "two", "nvidia.com/gpu.shared", 2)
                await kube.until("two", lambda pod: "short" in str(pod["status"].get("conditions")))
                await kube.phase("three", "Succeeded")
                assert (await kube.bound("two"))["spec"]["nodeName"] == "k3"
                known = await slurm.node("k3")
                assert known is not None
                assert known.gres == "gpu:1,shard:4"
                await pod(kube, "part", "nvidia.com/mig-1g.10gb", 1)
                told = await kube.until("part", lambda pod: "DevicesAgreed" in str(pod["status"]))
                assert told["spec"]["nodeName"] == "node1"
                (condition,) = [each for each in told["status"]["conditions"] if "Devices" in each["type"]]
                assert (condition["status"], condition["reason"]) == ("False", "DevicePlugin")
                assert "a job there may have the same" in condition["message"]
                for name in ("two", "part"):
                    await kube.phase(name, "Succeeded")

    asyncio.run(journey())


@pytest.mark.slow
def test_pods_of_a_gang_share_a_claim_on_one_node(site: Site) -> None:
    """Also a pod that replaces another; a pod outside of the gang waits without holding anything."""
    command(site, "scontrol", "update", "nodename=node1", "state=drain", "reason=not in Kubernetes here")

    async def journey() -> None:
        async with kubernetes(site) as (plain, slurm, server):
            kube = Claims(plain.api)
            await kube.classes()
            for node in ("k1", "k2"):
                await kube.slice(node, [{"name": f"gpu-{n}", "attributes": H100} for n in range(2)])
                await kube.node(node, cpus=8, gpus=0)
            await kube.claim("pair", count=2)
            async with operator(site, server):
                for name in ("a", "b", "c"):
                    await kube.user(f"pair-{name}", "pair", template=False, gang=3)
                bound = [await kube.bound(f"pair-{name}") for name in ("a", "b", "c")]
                assert len({pod["spec"]["nodeName"] for pod in bound}) == 1
                assert {pod["metadata"]["annotations"]["spritz.dev/gpus"] for pod in bound} == {"0,1"}
                path = f"{DRA}/namespaces/default/resourceclaims/pair"
                status = (await kube.ask("GET", path))["status"]
                assert [each["device"] for each in status["allocation"]["devices"]["results"]] == ["gpu-0", "gpu-1"]
                assert {each["uid"] for each in status["reservedFor"]} == {pod["metadata"]["uid"] for pod in bound}
                job = next(job for job in await slurm.jobs() if job.is_running and "gang/" in job.admin_comment)
                assert job.allocation is not None
                assert [len(share.devices("gpu")) for share in job.allocation.nodes] == [2]

                await kube.user("outside", "pair", template=False)
                await says(kube, "outside", "waits for ResourceClaim pair, which another pod uses")
                assert not [each for each in await slurm.jobs() if "outside" in each.admin_comment]

                # A pod of the gang is replaced: it gets the same node, and the claim.
                await kube.ask("DELETE", "api/v1/namespaces/default/pods/pair-b", {"gracePeriodSeconds": 0})
                await kube.user("pair-b", "pair", template=False, gang=3)
                again = await kube.bound("pair-b")
                assert again["spec"]["nodeName"] == bound[0]["spec"]["nodeName"]
                users = (await kube.ask("GET", path))["status"]["reservedFor"]
                assert again["metadata"]["uid"] in {each["uid"] for each in users}
                await kube.ask("DELETE", "api/v1/namespaces/default/pods/outside", {"gracePeriodSeconds": 0})
                for name in ("a", "b", "c"):
                    await kube.phase(f"pair-{name}", "Succeeded")

    try:
        asyncio.run(journey())
    finally:
        command(site, "scontrol", "update", "nodename=node1", "state=resume")


@pytest.mark.slow
def test_a_tainted_device_is_given_to_no_claim(site: Site) -> None:
    """k4 is no other test's node: jobs that another test leaves would keep it from being replaced."""
    command(site, "scontrol", "update", "nodename=node1", "state=drain", "reason=not in Kubernetes here")

    async def journey() -> None:
        async with kubernetes(site) as (plain, _slurm, server):
            kube = Claims(plain.api)
            await kube.classes()
            await kube.slice("k4", [{"name": f"gpu-{n}", "attributes": H100} for n in range(2)])
            await kube.node("k4", gpus=0)
            await kube.claim("any")
            rule = {
                "metadata": {"name": "suspect"},
                "spec": {
                    "deviceSelector": {"driver": DRIVER, "pool": "k4", "device": "gpu-1"},
                    "taint": {"key": "example.com/suspect", "effect": "NoSchedule"},
                },
            }
            await kube.ask("POST", f"{DRA}/devicetaintrules", rule)
            async with operator(site, server):
                await kube.user("clean", "any")
                await says(kube, "clean", "device gpu-1 of k4 has the taint example.com/suspect")
                tolerations = [{"key": "example.com/suspect", "operator": "Exists"}]
                await kube.claim("tough", tolerations=tolerations)
                await kube.user("tough", "tough")
                assert await kube.devices("tough") == ["gpu-0"]
                await kube.ask("DELETE", f"{DRA}/devicetaintrules/suspect", {})
                assert await kube.devices("clean") == ["gpu-1"]
                for name in ("clean", "tough"):
                    await kube.phase(name, "Succeeded")

    try:
        asyncio.run(journey())
    finally:
        command(site, "scontrol", "update", "nodename=node1", "state=resume")
