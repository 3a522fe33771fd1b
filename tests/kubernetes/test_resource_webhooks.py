"""The webhook of the operator's own resources: as the packaged manifests name it, with the packaged rights."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from spritz.k8s.admission.custom_resources import PATH, ResourceAdmission
from spritz.k8s.admission.webhooks import Webhooks
from spritz.k8s.api import MERGE, Api, ApiFailure, failure_of
from spritz_testing.kubernetes.nodes import Machine, Nodes
from spritz_testing.kubernetes.server import ADMIN_TOKEN, KubeServer
from tests.unit.k8s.test_chart import apply, bound_in
from tests.unit.k8s.test_objects import ALLOWED, REFUSED

PACKAGED = Path(__file__).parents[2] / "packaging/kubernetes"
SPACE = "apis/spritz.dev/v1alpha1/namespaces/default"
NAME = "spritz-clusters"

Json = dict[str, Any]


class Scene:
    def __init__(self, server: KubeServer, admin: Api) -> None:
        self.server = server
        self.admin = admin

    async def create(self, kind: str, name: str, **spec: Any) -> str:
        """The warnings."""
        body = {"apiVersion": "spritz.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        return await self._send("POST", f"{SPACE}/{kind.lower()}s", body, "application/json")

    async def cluster(self, name: str = "lab", **spec: Any) -> str:
        return await self.create("SpritzCluster", name, image="spritz", **spec)

    async def node_set(self, name: str, **spec: Any) -> str:
        return await self.create("NodeSet", name, **{"clusterRef": "lab", "cpus": 1, "memory": "1Gi", **spec})

    async def change(self, kind: str, name: str, **spec: Any) -> str:
        return await self._send("PATCH", f"{SPACE}/{kind.lower()}s/{name}", {"spec": spec}, MERGE)

    async def put(self, path: str, body: Json) -> None:
        await self.admin.send("POST", path, body=msgspec.json.encode(body))

    async def _send(self, method: str, path: str, body: Json, content_type: str) -> str:
        headers = {"Content-Type": content_type, "Authorization": f"Bearer {ADMIN_TOKEN}"}
        answer = await self.admin.http.send(method, path, body=msgspec.json.encode(body), headers=headers)
        if answer.status >= 400:
            raise failure_of(answer.status, answer.body, answer.headers)
        return answer.headers.get("Warning", "")


@pytest.fixture
def play() -> Callable[[Callable[[Scene], Awaitable[None]]], None]:
    def run(scene: Callable[[Scene], Awaitable[None]]) -> None:
        asyncio.run(_run(scene))

    return run


async def _run(scene: Callable[[Scene], Awaitable[None]]) -> None:
    async with KubeServer(tls=False) as server, Api.connect(server.kubeconfig) as admin, asyncio.TaskGroup() as group:
        manifests = [manifest for name in ("crds", "clusters") for manifest in _manifests(name)]
        await apply(admin, [*manifests, bound_in("default")])
        await server.controllers.idle.wait()
        log: list[str] = []
        async with Api.connect(server.service_account("spritz", NAME)) as mine:
            hooks = Webhooks(
                mine,
                lambda event, **fields: log.append(f"{event} {fields}"),
                {PATH: ResourceAdmission(mine).answer},
                names=[NAME],
                namespace="spritz",
                host="127.0.0.1",
                port=0,
            )
            task = group.create_task(hooks.run())
            try:
                await asyncio.wait_for(hooks.ready.wait(), 30)
                server.cluster.services["spritz", NAME] = f"https://127.0.0.1:{hooks.port}"
                await scene(Scene(server, admin))
            finally:
                await server.cluster.webhooks.close()  # or the server waits for its connections to end
                task.cancel()
        assert not server.failures
        # The certificate is all that there is to tell; what the API server refuses would be here too.
        assert [line.split()[0] for line in log] == ["webhooks.certificate"], log


def _manifests(name: str) -> list[Json]:
    return [each for each in yaml.safe_load_all((PACKAGED / f"{name}.yaml").read_text()) if each]


Play = Callable[[Callable[[Scene], Awaitable[None]]], None]


def test_a_slurm_conf_with_mistakes_is_refused_with_its_line(play: Play) -> None:
    async def scene(kube: Scene) -> None:
        with pytest.raises(ApiFailure, match=r'spec\.extraConfig, line 2: Unknown key "SchedulerTimeSlize"') as caught:
            await kube.cluster(extraConfig="SchedulerParameters=defer\nSchedulerTimeSlize=30\n")
        assert caught.value.code == 422
        await kube.cluster(extraConfig="SchedulerParameters=defer\n")
        with pytest.raises(ApiFailure, match=r"spec\.extraConfig, line 1"):
            await kube.change("SpritzCluster", "lab", extraConfig="SchedulerTimeSlize=30")
        # An operator that is away holds up nothing; the condition tells.
        kube.server.cluster.services.clear()
        await kube.change("SpritzCluster", "lab", extraConfig="SchedulerTimeSlize=30")
        await kube.admin.send("DELETE", f"{SPACE}/spritzclusters/lab")

    play(scene)


def test_what_a_cluster_cannot_change_is_refused_by_its_definition(play: Play) -> None:
    """With the field, while no operator answers."""

    async def scene(kube: Scene) -> None:
        kube.server.cluster.services.clear()
        path = f"{SPACE}/spritzclusters/lab"

        async def put(spec: Json) -> None:
            have = msgspec.json.decode(await kube.admin.send("GET", path))
            have["spec"] = {"image": "spritz", **spec}
            await kube.admin.send("PUT", path, body=msgspec.json.encode(have))

        for old, new, field in REFUSED:
            await kube.cluster(**old)
            with pytest.raises(ApiFailure, match=rf"{re.escape(field)}: .*(keeps|stays?) ") as caught:
                await put(new)
            assert caught.value.code == 422
            await kube.admin.send("DELETE", path)
        for old, new in ALLOWED:
            await kube.cluster(**old)
            await put(new)
            await kube.admin.send("DELETE", path)
        await kube.create("Token", "t", clusterRef="lab")
        with pytest.raises(ApiFailure, match="keeps its Secret"):
            await kube.change("Token", "t", secretName="other")
        with pytest.raises(ApiFailure, match="stays with its cluster"):
            await kube.change("Token", "t", clusterRef="other")
        await kube.change("Token", "t", secretName="t", uses=3)

    play(scene)


def test_a_namespace_in_which_the_operator_has_no_rights_is_warned_about(play: Play) -> None:
    async def scene(kube: Scene) -> None:
        path = "apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/spritz-clusters-namespace"
        await kube.admin.send("DELETE", path)
        assert "bind the ClusterRole spritz-clusters-namespace" in await kube.create("Token", "t", clusterRef="lab")

    play(scene)


def test_two_resources_never_share_names_or_databases(play: Play) -> None:
    async def scene(kube: Scene) -> None:
        database = {"host": "pg", "user": "slurm", "passwordSecret": {"name": "pg", "key": "password"}}
        await kube.cluster(controllers=2, database=database)
        with pytest.raises(ApiFailure, match=re.escape("slurm_journal is the journal of SpritzCluster default/lab")):
            await kube.cluster("other", controllers=2, database=database)
        with pytest.raises(ApiFailure, match=r"spec\.clusterName: SpritzCluster default/lab has its accounting"):
            await kube.cluster("other", clusterName="lab", database=database)
        await kube.cluster("other", database=database)

        with pytest.raises(ApiFailure, match=r"metadata\.name: a part of SpritzCluster lab has this name"):
            await kube.node_set("lab-controller")
        with pytest.raises(ApiFailure, match=r"metadata\.name: a part of SpritzCluster lab has this name"):
            await kube.create("LoginSet", "lab-rest", clusterRef="lab")
        await kube.node_set("gpu", perMachine=True)
        with pytest.raises(ApiFailure, match="NodeSet gpu is per machine"):
            await kube.node_set("gpu-big")
        await kube.node_set("cpu-big")
        with pytest.raises(ApiFailure, match="as those of NodeSet cpu-big do"):
            await kube.node_set("cpu", perMachine=True)
        with pytest.raises(ApiFailure, match="a node of NodeSet cpu-big may have this name"):
            await kube.create("LoginSet", "cpu-big-0", clusterRef="lab")

        await kube.put("api/v1/namespaces/default/secrets", {"metadata": {"name": "taken"}})
        with pytest.raises(ApiFailure, match=r"spec\.secretName: there is a Secret taken of another already"):
            await kube.create("Token", "t", clusterRef="lab", secretName="taken")
        await kube.create("Token", "t", clusterRef="lab", secretName="free")
        with pytest.raises(ApiFailure, match="Token t has the Secret free"):
            await kube.create("Token", "free", clusterRef="lab")

    play(scene)


def test_names_of_others_are_refused(play: Play) -> None:
    async def scene(kube: Scene) -> None:
        theirs = {"ports": [{"port": 80}], "selector": {"app": "theirs"}}
        for name in ("lab-rest", "team"):
            await kube.put("api/v1/namespaces/default/services", {"metadata": {"name": name}, "spec": theirs})
        with pytest.raises(ApiFailure, match=r"metadata\.name: there is a Service lab-rest of another already"):
            await kube.cluster()
        await kube.cluster("site")
        with pytest.raises(ApiFailure, match=r"metadata\.name: there is a Service team of another already"):
            await kube.create("LoginSet", "team", clusterRef="site")
        await kube.create("LoginSet", "crew", clusterRef="site")

    play(scene)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"image": " "}, r"spec\.image"),
        ({"image": "a b"}, r"spec\.image"),
        ({"healthCheck": {"program": "/a\nB=1"}}, r"spec\.healthCheck\.program"),
        (
            {"database": {"host": "a b", "user": "u", "passwordSecret": {"name": "a", "key": "b"}}},
            r"spec\.database\.host",
        ),
        ({"dashboard": {"hosts": ["a"], "login": "proxy", "proxy": {"from": "gate"}}}, r"spec\.dashboard\.proxy\.from"),
    ],
)
def test_values_with_which_no_daemon_would_start_are_refused(play: Play, spec: Json, words: str) -> None:
    async def scene(kube: Scene) -> None:
        with pytest.raises(ApiFailure, match=words):
            await kube.create("SpritzCluster", "lab", **{"image": "spritz", **spec})

    play(scene)


def test_names_that_no_pod_could_have_are_refused_by_the_definitions(play: Play) -> None:
    async def scene(kube: Scene) -> None:
        for call in (kube.cluster, kube.node_set):
            for name in ("a.b", "7up", "a" * 60):
                with pytest.raises(ApiFailure, match=r"metadata\.name: \d0 letters"):
                    await call(name)

    play(scene)


def test_a_pod_that_the_server_would_not_take_is_refused_with_its_words(play: Play) -> None:
    async def scene(kube: Scene) -> None:
        await kube.cluster()
        mounts = [{"name": "home", "mountPath": "/home"}]
        with pytest.raises(ApiFailure, match=r'the Pod that it makes .*volumeMounts\[2\]\.name: Not found: "home"'):
            await kube.node_set("n", volumeMounts=mounts)
        with pytest.raises(
            ApiFailure, match=r'the Deployment that it makes .*volumeMounts\[2\]\.name: Not found: "home"'
        ):
            await kube.create("LoginSet", "l", clusterRef="lab", volumeMounts=mounts)
        for volume in ({"name": "home", "nfs": 3}, {"name": "home", "emtyDir": {}}):
            with pytest.raises(ApiFailure, match=r"the Pod that it makes .* typed patch object"):
                await kube.node_set("n", volumes=[volume])
        for limits in (3, {"cpu": "many"}):
            with pytest.raises(ApiFailure, match=r"the Deployment that it makes "):
                await kube.create("LoginSet", "l", clusterRef="lab", resources={"limits": limits})
        assert await kube.node_set("n", volumeMounts=mounts, volumes=[{"name": "home", "emptyDir": {}}]) == ""
        assert kube.server.cluster._find("pods", "default", "n-dry-run") is None
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
        await kube.put("api/v1/namespaces/default/resourcequotas", quota)
        assert "exceeded quota" in await kube.node_set("m"), "it may be raised: a warning"

    play(scene)


@pytest.mark.slow
def test_what_may_come_later_is_a_warning(play: Play) -> None:
    async def scene(kube: Scene) -> None:
        assert "there is no SpritzCluster lab in this namespace yet" in await kube.node_set("small", replicas=3)
        partitions = [{"name": "main", "nodeSets": ["smal"]}]
        password = {"host": "pg", "user": "slurm", "passwordSecret": {"name": "pg", "key": "password"}}
        said = await kube.cluster(partitions=partitions, database=password, maxNodes=2)
        assert "there is no NodeSet smal of this cluster yet; did you mean small?" in said
        assert "spec.database.passwordSecret: there is no Secret pg yet" in said
        assert "spec.maxNodes: NodeSets of lab have 3 nodes, of which 2 can join" in said
        assert "did you mean lab?" in await kube.create("Token", "t", clusterRef="laab")
        assert "there is no ConfigMap keys yet" in await kube.create(
            "LoginSet", "l", clusterRef="lab", authorizedKeys="keys"
        )

        # Nodes with jobs are waited for.
        for number in range(3):
            marks = {"spritz.dev/node-set": "small", "spritz.dev/busy": "true"}
            spec = {"containers": [{"name": "slurmd", "image": "i"}]}
            pod = {"metadata": {"name": f"small-{number}", "labels": marks}, "spec": spec}
            await kube.put("api/v1/namespaces/default/pods", pod)
        said = await kube.change("NodeSet", "small", replicas=1)
        assert "spec.replicas: 3 nodes have jobs: 2 of them are drained, and go when their jobs have ended" in said

        taint = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
        async with Nodes(kube.server, [Machine("m0"), Machine("g0", {"gpu": "true"}, [taint])], commands=False):
            where = {"perMachine": True, "nodeSelector": {"gpu": "true"}}
            assert "spec.nodeSelector: no machine" in await kube.node_set("a", nodeSelector={"gpu": "yes"})
            said = await kube.node_set("b", **where, replicas=2)
            assert "spec.tolerations: each machine" in said
            assert "spec.replicas: has no effect with perMachine" in said
            assert await kube.node_set("c", **where, tolerations=[{"key": "gpu", "operator": "Exists"}]) == ""

    play(scene)


@pytest.mark.slow
def test_the_end_of_a_resource_is_never_held_up(play: Play) -> None:
    async def scene(kube: Scene) -> None:
        await kube.cluster()
        path = f"{SPACE}/spritzclusters/lab"
        services = dict(kube.server.cluster.services)
        kube.server.cluster.services.clear()
        await kube.change("SpritzCluster", "lab", extraConfig="Wrong=1")
        kube.server.cluster.services |= services
        body = msgspec.json.encode({"metadata": {"finalizers": ["spritz.dev/drain"]}})
        await kube.admin.send("PATCH", path, body=body, content_type=MERGE)
        await kube.admin.send("DELETE", path)
        body = msgspec.json.encode({"metadata": {"finalizers": []}})
        await kube.admin.send("PATCH", path, body=body, content_type=MERGE)
        with pytest.raises(ApiFailure, match="not found"):
            await kube.admin.send("GET", path)

    play(scene)
