"""How many pods start together, as objects other than the pods say."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from spritz.k8s.api import Api
from spritz.k8s.pods import maker_of
from spritz.k8s.scheduling.groups import ALONE, Groups
from spritz_testing.kubernetes.server import KubeServer
from tests.unit.k8s.test_pods import pod

Json = dict[str, Any]


def test_a_workload_of_1_35_and_a_leader_worker_set_say_the_size_of_gangs() -> None:
    """Kubernetes' models of today have no such Workload, so it is a custom resource here."""
    lws = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-key": "k"}
    worker = "leaderworkerset.sigs.k8s.io/worker-index"
    policies = [{"name": "workers", "policy": {"gang": {"minCount": 4}}}, {"name": "loose", "policy": {"basic": {}}}]

    def in_workload(group: str, workload: str = "train") -> Json:
        return {"workloadRef": {"name": workload, "podGroup": group}}

    async def journey() -> None:
        async with KubeServer() as server, Api.connect(server.kubeconfig) as api, asyncio.TaskGroup() as tasks:
            await make(api, "scheduling.k8s.io", "v1alpha1", "Workload", {"podGroups": policies}, "train")
            spec = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3}}
            await make(api, "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", spec, "serve")
            changed: asyncio.Queue[str] = asyncio.Queue()
            groups = Groups(api, changed.put_nowait)
            followers = [tasks.create_task(reflector.run()) for reflector in groups.reflectors]

            def size(**parts: Any) -> int | None:
                member = pod(**parts)
                maker = maker_of(member)
                assert maker is not None
                return groups.size_of(member, maker)

            async with asyncio.timeout(100):
                assert {await changed.get() for _ in range(2)} == {"Workload/ns/train", "LeaderWorkerSet/ns/serve"}
            assert (size(**in_workload("workers")), size(**in_workload("loose"))) == (4, ALONE)
            assert (size(**in_workload("nosuch")), size(**in_workload("workers", "nosuch"))) == (None, None)
            assert (size(labels={**lws, worker: "0"}), size(labels={**lws, worker: "2"})) == (ALONE, 2)
            for follower in followers:
                follower.cancel()

    asyncio.run(journey())


async def make(api: Api, group: str, version: str, kind: str, spec: Json, name: str) -> None:
    """A custom resource without a schema, and an object of it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    plural = f"{kind.lower()}s"
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    body = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    definition = {"metadata": {"name": f"{plural}.{group}"}, "spec": body}
    path = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await api.send("POST", path, body=msgspec.json.encode(definition))
    namespace = msgspec.json.encode({"metadata": {"name": "ns"}})
    if kind == "Workload":
        await api.send("POST", "api/v1/namespaces", body=namespace)
    made = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}
    await api.send("POST", f"apis/{group}/{version}/namespaces/ns/{plural}", body=msgspec.json.encode(made))
