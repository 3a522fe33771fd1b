"""Pods in the queue: an API server for tests, a cluster of ours with slurmrestd, and the operator between them."""

from __future__ import annotations

import asyncio
import datetime
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.operator import operate
from spritz.k8s.policy import Mapped, Policy
from spritz.k8s.slurm import Slurm
from spritz_testing.kubernetes.server import KubeServer
from tests.e2e.cluster import user_name
from tests.e2e.rest_site import BIN, Site, token

Json = dict[str, Any]

#: Every pod's job is this process's own user's.
OWN = Policy(namespaces={"*": Mapped(user=user_name())})


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Two virtual nodes of ours; nodes of Kubernetes come by the operator."""
    with Site.configured("MaxNodeCount=16", "GresTypes=gpu") as made:
        yield made


class Kube:
    """A Kubernetes cluster whose kubelets are this test."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def ask(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Json:
        sent = None if body is None else msgspec.json.encode(body)
        answer = await self.api.send(method, path, body=sent, content_type=content_type)
        found: Json = msgspec.json.decode(answer)
        return found

    async def node(self, name: str, cpus: int = 8, gpus: int = 4, **labels: str) -> None:
        amounts = {"cpu": str(cpus), "memory": "16Gi", "nvidia.com/gpu": str(gpus), "pods": "110"}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
        await self.ask("POST", "api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        await self.ready(name, amounts=amounts)

    async def ready(self, name: str, status: str = "True", amounts: Json | None = None) -> None:
        change: Json = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
        if amounts is not None:
            change["status"] |= {"capacity": amounts, "allocatable": amounts}
        await self.ask("PATCH", f"api/v1/nodes/{name}/status", change, "application/merge-patch+json")

    async def pod(
        self, name: str, cpu: str = "1", gpus: int = 0, *, scheduling: Json | None = None, **meta: Any
    ) -> None:
        asked: Json = {"cpu": cpu} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
        spec: Json = {
            "schedulerName": "spritz",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": asked, "limits": asked}}],
        }
        if scheduling is not None:
            spec["schedulingGroup"] = scheduling
        await self.ask("POST", "api/v1/namespaces/default/pods", {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec,
        })  # fmt: skip

    async def define(self, group: str, version: str, kind: str) -> None:
        """A custom resource without a schema."""
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
        names = {"plural": f"{kind.lower()}s", "singular": kind.lower(), "kind": kind}
        spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
        body = {"metadata": {"name": f"{names['plural']}.{group}"}, "spec": spec}
        await self.ask("POST", "apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)

    async def get(self, name: str) -> Json | None:
        try:
            return await self.ask("GET", f"api/v1/namespaces/default/pods/{name}")
        except ApiFailure as failure:
            if failure.not_found:
                return None
            raise

    async def bound(self, name: str) -> Json:
        """The pod, when it has a node."""
        return await self.until(name, lambda pod: bool(pod["spec"].get("nodeName")))

    async def until(self, name: str, holds: Callable[[Json], bool]) -> Json:
        async def look() -> Json | None:
            pod = await self.get(name)
            return pod if pod is not None and holds(pod) else None

        found: Json = await until(look, f"pod {name}")
        return found

    async def phase(self, name: str, phase: str, code: int = 0) -> None:
        """As its kubelet says."""
        status = {"phase": phase}
        if phase in ("Succeeded", "Failed"):
            ended = {"name": "main", "ready": False, "restartCount": 0, "image": "b", "imageID": "b"}
            status["containerStatuses"] = [{**ended, "state": {"terminated": {"exitCode": code}}}]  # type: ignore[assignment]
        path = f"api/v1/namespaces/default/pods/{name}/status"
        await self.ask("PATCH", path, {"status": status}, "application/merge-patch+json")

    async def gone(self, name: str) -> None:
        """Its kubelet has ended it after it was deleted."""
        await self.until(name, lambda pod: "deletionTimestamp" in pod["metadata"])
        await self.ask("DELETE", f"api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})


async def until(look: Callable[[], Awaitable[Any]], what: str) -> Any:
    async with asyncio.timeout(60):
        while True:
            found = await look()
            if found:
                return found
            await asyncio.sleep(0.05)


@asynccontextmanager
async def kubernetes(site: Site) -> AsyncIterator[tuple[Kube, Slurm, KubeServer]]:
    async with KubeServer() as server, Api.connect(server.kubeconfig) as api:
        slurm = Slurm(f"unix:{site.socket}")
        try:
            yield Kube(api), slurm, server
        finally:
            await slurm.close()
        assert not server.failures


@asynccontextmanager
async def operator(site: Site, server: KubeServer, policy: Policy = OWN) -> AsyncIterator[None]:
    """The operator, with connections of its own, as a process would have."""
    own = policy.users == {user_name()}
    slurm = Slurm(f"unix:{site.socket}") if own else Slurm(f"http://127.0.0.1:{site.port}", token(user_name()))
    try:
        async with Api.connect(server.kubeconfig) as api, asyncio.TaskGroup() as group:
            task = group.create_task(operate(api, slurm, policy))
            yield
            task.cancel()
    finally:
        await slurm.close()


async def job_of(slurm: Slurm, pod: Json, state: str) -> None:
    number = int(pod["metadata"]["annotations"]["spritz.dev/job-id"])

    async def look() -> bool:
        return any(job.state == state and not job.completing for job in await slurm.jobs([number]))

    await until(look, f"job {number} is {state}")


def command(site: Site, *words: str) -> str:
    done = subprocess.run(
        [BIN / words[0], *words[1:]], env=site.env, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_pods_wait_start_and_end_as_jobs(site: Site) -> None:
    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server):
            await kube.node("k1")
            async with operator(site, server):
                await kube.pod("train", "2", 2, annotations={"spritz.dev/time-limit": "30"})
                pod = await kube.bound("train")
                notes = pod["metadata"]["annotations"]
                assert (pod["spec"]["nodeName"], notes["spritz.dev/gpus"]) == ("k1", "0,1")
                job = notes["spritz.dev/job-id"]
                line = await asyncio.to_thread(command, site, "squeue", "-h", "-j", job, "-o", "%j %T %N %l")
                assert line == "train RUNNING k1 30:00"
                # No room for the next: it says why and when, in the words of `scontrol explain`.
                await kube.pod("more", "1", 4)
                waiting = await kube.until("more", lambda pod: any(
                    one["type"] == "PodScheduled" and "GPU" in one.get("message", "")
                    for one in pod["status"].get("conditions", ())))  # fmt: skip
                end = await asyncio.to_thread(command, site, "squeue", "-h", "-j", job, "-o", "%e")
                moment = datetime.datetime.fromisoformat(end).astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ")
                assert f"Starts by {moment} on k1." in str(waiting["status"]["conditions"])
                assert not waiting["spec"].get("nodeName")
                await kube.phase("train", "Running")
                await kube.phase("train", "Failed", 3)
                await job_of(slurm, pod, "FAILED")
                second = await kube.bound("more")
                await kube.phase("more", "Succeeded")
                await job_of(slurm, second, "COMPLETED")

    asyncio.run(journey())


def test_a_gang_starts_together_and_scancel_evicts_it(site: Site) -> None:
    gang = {"spritz.dev/gang": "g", "spritz.dev/gang-size": "2"}

    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server):
            await kube.node("k2")
            await kube.node("k3")
            async with operator(site, server):
                await kube.pod("g-0", "4", 4, annotations=gang)
                await kube.until("g-0", lambda pod: "1 more pods" in str(pod["status"].get("conditions")))
                await kube.pod("g-1", "4", 4, annotations=gang)
                pods = [await kube.bound(name) for name in ("g-0", "g-1")]
                assert {pod["spec"]["nodeName"] for pod in pods} == {"k2", "k3"}
                job = pods[0]["metadata"]["annotations"]["spritz.dev/job-id"]
                assert pods[1]["metadata"]["annotations"]["spritz.dev/job-id"] == job
                await asyncio.to_thread(command, site, "scancel", job)
                await kube.until("g-0", lambda pod: "deletionTimestamp" in pod["metadata"])
                state = await asyncio.to_thread(command, site, "squeue", "-h", "-j", job, "-o", "%T")
                assert state == "COMPLETING", "its nodes are not free before its pods are gone"
                await kube.gone("g-0")
                await kube.gone("g-1")
                await job_of(slurm, pods[0], "CANCELLED")

    asyncio.run(journey())


def test_a_gang_that_is_made_again_under_its_name_is_another(site: Site) -> None:
    gang = {"spritz.dev/gang": "again", "spritz.dev/gang-size": "2"}

    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server):
            await kube.node("k6")
            async with operator(site, server):
                jobs = set()
                for _ in range(2):
                    for name in ("a-0", "a-1"):
                        await kube.pod(name, "1", 1, annotations=gang)
                    pods = [await kube.bound(name) for name in ("a-0", "a-1")]
                    jobs.add(pods[0]["metadata"]["annotations"]["spritz.dev/job-id"])
                    for name in ("a-0", "a-1"):
                        await kube.ask("DELETE", f"api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})
                    await job_of(slurm, pods[0], "COMPLETED")
                assert len(jobs) == 2

    asyncio.run(journey())


@pytest.mark.slow
def test_a_worker_that_is_replaced_gets_a_workers_place(site: Site) -> None:
    """Its leader, of another shape, has ended."""
    gang = {"spritz.dev/gang": "led", "spritz.dev/gang-size": "2"}

    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server):
            await kube.node("k7")
            await kube.node("k8")
            async with operator(site, server):
                await kube.pod("led-0", "1", annotations=gang)
                await kube.pod("led-1", "2", 2, annotations=gang)
                leader, worker = await kube.bound("led-0"), await kube.bound("led-1")
                assert leader["spec"]["nodeName"] in ("k7", "k8"), "not on a node that Kubernetes does not know"
                await kube.phase("led-0", "Succeeded")
                await kube.pod("led-2", "2", 2, annotations=gang)
                await kube.ask("DELETE", "api/v1/namespaces/default/pods/led-1", {"gracePeriodSeconds": 0})
                second = await kube.bound("led-2")
                notes, before = second["metadata"]["annotations"], worker["metadata"]["annotations"]
                assert (notes["spritz.dev/job-id"], notes["spritz.dev/gpus"]) == (
                    before["spritz.dev/job-id"],
                    before["spritz.dev/gpus"],
                )
                assert notes["spritz.dev/job-id"] != leader["metadata"]["annotations"]["spritz.dev/job-id"]
                await kube.phase("led-2", "Succeeded")
                await job_of(slurm, second, "COMPLETED")

    asyncio.run(journey())


@pytest.mark.parametrize("user", [user_name(), "nobody"])
def test_an_operator_that_was_away_finds_everything_again(site: Site, user: str) -> None:
    """Also jobs of a user without rights in Slurm."""
    if user != user_name() and os.geteuid() != 0:
        pytest.skip("jobs of other users need a slurmd of root")
    policy = Policy(namespaces={"*": Mapped(user=user)})

    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server):
            await kube.node("k4")
            before = {job.id for job in await slurm.jobs()}
            async with operator(site, server, policy):
                await kube.pod("runs", "1", 1)
                await kube.pod("goes", "1", 1)
                runs, goes = await kube.bound("runs"), await kube.bound("goes")
                await kube.pod("waits", "1", 4)
            await kube.phase("runs", "Succeeded")
            await kube.ask("DELETE", "api/v1/namespaces/default/pods/goes", {"gracePeriodSeconds": 0})
            async with operator(site, server, policy):
                await job_of(slurm, runs, "COMPLETED")
                await job_of(slurm, goes, "COMPLETED")
                pod = await kube.bound("waits")
                assert (await kube.get("runs") or {})["metadata"]["uid"] == runs["metadata"]["uid"]
                await kube.phase("waits", "Succeeded")
                await job_of(slurm, pod, "COMPLETED")
            jobs = [job for job in await slurm.jobs() if job.id not in before]
            assert sorted(job.admin_comment.split("/")[2] for job in jobs) == ["goes", "runs", "waits"], "none twice"

    asyncio.run(journey())


def test_pods_of_a_pod_group_start_together_and_the_rest_by_themselves(site: Site) -> None:
    """Kubernetes' own, whose minimum is 2 of 3 pods, and with the policy basic; and that of scheduler-plugins."""
    native = "apis/scheduling.k8s.io/v1alpha3/namespaces/default/podgroups"

    async def group(kube: Kube, name: str, policy: Json) -> None:
        await kube.ask("POST", native, {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}})

    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server):
            await kube.define("scheduling.x-k8s.io", "v1alpha1", "PodGroup")
            await kube.node("kg", cpus=8)
            async with operator(site, server):
                await kube.pod("w-0", "3", scheduling={"podGroupName": "train"})
                await kube.until("w-0", lambda pod: "waits for its PodGroup train" in str(pod["status"]))
                await group(kube, "train", {"gang": {"minCount": 2}})
                await kube.until("w-0", lambda pod: "1 more pods of its gang of 2" in str(pod["status"]))
                for name in ("w-1", "w-2"):
                    await kube.pod(name, "3", scheduling={"podGroupName": "train"})
                pods = [await kube.bound(name) for name in ("w-0", "w-1")]
                jobs = {pod["metadata"]["annotations"]["spritz.dev/job-id"] for pod in pods}
                assert len(jobs) == 1
                # The third is beyond the minimum: it waits as a job of its own, and has the place of what ends.
                third = await kube.until("w-2", lambda pod: "CPUs are short" in str(pod["status"]))
                assert not third["spec"].get("nodeName")
                for name in ("w-0", "w-1"):
                    await kube.phase(name, "Succeeded")
                third = await kube.bound("w-2")
                assert third["metadata"]["annotations"]["spritz.dev/job-id"] not in jobs
            async with operator(site, server):  # another, which finds it again
                await kube.phase("w-2", "Succeeded")
                await job_of(slurm, third, "COMPLETED")
                await group(kube, "loose", {"basic": {}})
                await kube.pod("l-0", "1", scheduling={"podGroupName": "loose"})
                await kube.bound("l-0")
                plugin = "apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
                body = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "old"}}
                await kube.ask("POST", plugin, {**body, "spec": {"minMember": 2}})
                label = {"scheduling.x-k8s.io/pod-group": "old"}
                await kube.pod("o-0", "1", labels=label)
                await kube.until("o-0", lambda pod: "1 more pods of its gang of 2" in str(pod["status"]))
                await kube.pod("o-1", "1", labels=label)
                pods = [await kube.bound(name) for name in ("o-0", "o-1")]
                assert len({pod["metadata"]["annotations"]["spritz.dev/job-id"] for pod in pods}) == 1

    asyncio.run(journey())


@pytest.mark.slow
def test_all_pods_of_a_job_set_start_together(site: Site) -> None:
    """Its labels count Jobs; this one has a leader, and a Job of two workers."""

    async def journey() -> None:
        async with kubernetes(site) as (kube, _slurm, server):
            await kube.define("jobset.x-k8s.io", "v1alpha2", "JobSet")
            await kube.node("kj")
            async with operator(site, server):
                workers = {"replicas": 1, "template": {"spec": {"parallelism": 2, "completions": 2}}}
                jobs = [{"name": "leader", "template": {}}, {"name": "workers", **workers}]
                body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "js"}}
                path = "apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
                await kube.ask("POST", path, {**body, "spec": {"replicatedJobs": jobs}})
                labels = {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/global-replicas": "2"}
                for name in ("js-leader", "js-worker-0"):
                    await kube.pod(name, labels=labels)
                await kube.until("js-leader", lambda pod: "1 more pods of its gang of 3" in str(pod["status"]))
                await kube.pod("js-worker-1", labels=labels)
                pods = [await kube.bound(name) for name in ("js-leader", "js-worker-0", "js-worker-1")]
                assert len({pod["metadata"]["annotations"]["spritz.dev/job-id"] for pod in pods}) == 1

    asyncio.run(journey())


def test_a_leader_that_must_be_ready_first_does_not_wait_for_its_workers(site: Site) -> None:
    """A LeaderWorkerSet with the startup policy LeaderReady: its controller makes workers when the leader is ready."""
    prefix = "leaderworkerset.sigs.k8s.io"
    path = "apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"

    async def member(kube: Kube, group: str, index: int, size: int) -> str:
        labels = {f"{prefix}/name": group, f"{prefix}/group-key": f"key-{group}", f"{prefix}/worker-index": str(index)}
        name = f"{group}-0-{index}" if index else f"{group}-0"
        await kube.pod(name, labels=labels, annotations={f"{prefix}/size": str(size)})
        return name

    async def journey() -> None:
        async with kubernetes(site) as (kube, _slurm, server):
            await kube.define("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")
            await kube.node("kl")
            for name, policy in (("ready", "LeaderReady"), ("created", "LeaderCreated")):
                body = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
                spec = {"replicas": 1, "startupPolicy": policy, "leaderWorkerTemplate": {"size": 3}}
                await kube.ask("POST", path, {**body, "metadata": {"name": name}, "spec": spec})
            async with operator(site, server):
                other = await member(kube, "created", 0, 3)
                await kube.until(other, lambda pod: "2 more pods of its gang of 3" in str(pod["status"]))
                leader = await kube.bound(await member(kube, "ready", 0, 3))
                first = await member(kube, "ready", 1, 3)
                await kube.until(first, lambda pod: "1 more pods of its gang of 2" in str(pod["status"]))
            async with operator(site, server):  # another, which finds the leader's job again
                workers = [await kube.bound(name) for name in (await member(kube, "ready", 2, 3), first)]
                jobs = [pod["metadata"]["annotations"]["spritz.dev/job-id"] for pod in (leader, *workers)]
                assert jobs[1] == jobs[2] != jobs[0]

    asyncio.run(journey())


@pytest.mark.slow
def test_pods_of_every_kind_of_workload_are_placed_with_unchanged_manifests(site: Site) -> None:
    """Job, StatefulSet, Deployment by the server's controllers; LeaderWorkerSet as its controller makes a group."""
    asked = {"cpu": "1"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": asked, "limits": asked}}

    def template(app: str, **spec: str) -> Json:
        pod = {"schedulerName": "spritz", "containers": [container], **spec}
        return {"metadata": {"labels": {"app": app}}, "spec": pod}

    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server), operator(site, server):
            await kube.node("kw")
            batch = {"parallelism": 2, "completions": 2, "template": template("job", restartPolicy="Never")}
            await kube.ask(
                "POST", "apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "job"}, "spec": batch}
            )
            for plural, name in (("statefulsets", "set"), ("deployments", "dep")):
                spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template(name)}
                spec |= {"serviceName": name, "podManagementPolicy": "Parallel"} if name == "set" else {}
                path = f"apis/apps/v1/namespaces/default/{plural}"
                await kube.ask("POST", path, {"metadata": {"name": name}, "spec": spec})
            group = {"leaderworkerset.sigs.k8s.io/group-key": "abc", "app": "lws"}
            for name in ("lws-0", "lws-0-1"):
                await kube.pod(name, labels=group, annotations={"leaderworkerset.sigs.k8s.io/size": "2"})

            async def bound() -> list[Json] | None:
                pods: list[Json] = (await kube.ask("GET", "api/v1/namespaces/default/pods"))["items"]
                placed = [pod for pod in pods if pod["spec"].get("nodeName") == "kw"]
                return placed if len(placed) == 8 else None

            pods = await until(bound, "all pods are placed")
            jobs: dict[str, set[int]] = {}
            for pod in pods:
                number = int(pod["metadata"]["annotations"]["spritz.dev/job-id"])
                jobs.setdefault(pod["metadata"]["labels"]["app"], set()).add(number)
            assert {app: len(numbers) for app, numbers in jobs.items()} == {"job": 2, "set": 2, "dep": 2, "lws": 1}
            running = await slurm.jobs(number for numbers in jobs.values() for number in numbers)
            assert {job.state for job in running} == {"RUNNING"}

    asyncio.run(journey())


@pytest.mark.slow
def test_gpus_of_a_device_plugin_that_starts_late_are_given_out(site: Site) -> None:
    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server), operator(site, server):
            await kube.node("k5", gpus=0)
            await kube.pod("before")
            await kube.bound("before")
            await kube.pod("late", gpus=2)
            await kube.until("late", lambda pod: "Unschedulable" in str(pod["status"]))
            await kube.ready("k5", amounts={"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2", "pods": "110"})
            await kube.phase("before", "Succeeded")  # until then its job keeps the node as it was made
            bound = await kube.bound("late")
            assert bound["metadata"]["annotations"]["spritz.dev/gpus"] == "0,1"
            node = await slurm.node("k5")
            assert node is not None
            assert (node.cpus, node.real_memory, node.gres) == (8, 16384, "gpu:2")

    asyncio.run(journey())


def test_cordons_and_drains_go_both_ways(site: Site) -> None:
    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server):
            await kube.node("k5")

            async def node() -> Any:
                return next((one for one in await slurm.nodes() if one.name == "k5"), None)

            async def drained() -> bool:
                found = await node()
                return found is not None and "DRAIN" in found.state

            async def open_again() -> bool:
                found = await node()
                return found is not None and "DRAIN" not in found.state

            async with operator(site, server):
                await until(open_again, "k5 is there")
                merge = "application/merge-patch+json"
                await kube.ask("PATCH", "api/v1/nodes/k5", {"spec": {"unschedulable": True}}, merge)
                await until(drained, "k5 is drained")
                assert (await node()).reason.startswith("kubernetes: cordoned")
                await kube.ask("PATCH", "api/v1/nodes/k5", {"spec": {"unschedulable": None}}, merge)
                await until(open_again, "k5 is open again")
                await kube.ready("k5", "False")
                await until(drained, "k5 is not ready")
                await kube.ready("k5")
                await until(open_again, "k5 is ready")
                await kube.ask("DELETE", "api/v1/nodes/k5")

                async def deleted() -> bool:
                    return await node() is None

                await until(deleted, "k5 is deleted")

    asyncio.run(journey())


@pytest.mark.slow
def test_what_others_take_on_a_node_and_a_node_that_is_let_go(site: Site) -> None:
    """A DaemonSet that is made when its nodes have joined; `spritz.dev/managed=false` on a node that has."""

    async def journey() -> None:
        merge = "application/merge-patch+json"
        async with kubernetes(site) as (kube, slurm, server), operator(site, server):
            await kube.node("k6", gpus=0)

            async def known(cpus: int, *, drained: bool = False) -> Any:
                async def look() -> bool:
                    found = await slurm.node("k6")
                    return found is not None and found.cpus == cpus and ("DRAIN" in found.state) is drained

                return await until(look, f"k6 has {cpus} CPUs, drained: {drained}")

            await known(8)
            container = {"name": "m", "image": "b", "resources": {"requests": {"cpu": "1500m"}}}
            daemon = {"nodeName": "k6", "schedulerName": "default-scheduler", "containers": [container]}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "daemon"}, "spec": daemon}
            await kube.ask("POST", "api/v1/namespaces/default/pods", body)
            await known(6)
            await kube.pod("held", "6")
            await kube.bound("held")
            body["metadata"] = {"name": "daemon-2"}
            await kube.ask("POST", "api/v1/namespaces/default/pods", body)
            await known(6, drained=True)
            await kube.phase("held", "Succeeded")
            await known(5)
            await kube.ask("PATCH", "api/v1/nodes/k6", {"metadata": {"labels": {"spritz.dev/managed": "false"}}}, merge)

            async def gone() -> bool:
                return await slurm.node("k6") is None

            await until(gone, "k6 is let go")
            await kube.pod("later", "1")
            await kube.until("later", lambda pod: "Unschedulable" in str(pod["status"]))
            await kube.ask("PATCH", "api/v1/nodes/k6", {"metadata": {"labels": {"spritz.dev/managed": None}}}, merge)
            await kube.bound("later")
            await kube.phase("later", "Succeeded")

    asyncio.run(journey())


def test_a_waiting_pod_may_change_its_gang_and_a_placed_one_stays_with_its_job(site: Site) -> None:
    async def journey() -> None:
        def gang(name: str) -> Json:
            return {"spritz.dev/gang": name, "spritz.dev/gang-size": "2"}

        async def relabel(pod: str, name: str) -> None:
            change = {"metadata": {"annotations": gang(name)}}
            path = f"api/v1/namespaces/default/pods/{pod}"
            await kube.ask("PATCH", path, change, "application/merge-patch+json")

        async with kubernetes(site) as (kube, slurm, server):
            await kube.node("k7", gpus=0)
            async with operator(site, server):
                await kube.pod("a", annotations=gang("one"))
                await kube.pod("b", annotations=gang("two"))
                await kube.until("b", lambda pod: "1 more pods" in str(pod["status"].get("conditions")))
                await relabel("b", "one")
                pods = [await kube.bound(name) for name in ("a", "b")]
                jobs = {pod["metadata"]["annotations"]["spritz.dev/job-id"] for pod in pods}
                assert len(jobs) == 1
                await relabel("b", "three")
                await kube.phase("a", "Succeeded")
            # The next operator finds it under its new label, too.
            async with operator(site, server):
                await kube.pod("c", annotations=gang("three"))
                await kube.until("c", lambda pod: "1 more pods" in str(pod["status"].get("conditions")))
                (row,) = await slurm.jobs(map(int, jobs))
                assert row.is_running, "pod b holds it"
                await kube.phase("b", "Succeeded")
                await job_of(slurm, pods[0], "COMPLETED")

    asyncio.run(journey())
