"""The operator's webhooks as the packaged manifests name them, over TLS, with the rights of the packaged role."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from spritz.k8s.admission import certificates
from spritz.k8s.admission.pods import pod_answers
from spritz.k8s.admission.webhooks import Webhooks
from spritz.k8s.api import APPLY, Api, ApiFailure
from spritz.k8s.policy import Mapped, Policy, read
from spritz_testing.kubernetes.server import KubeServer
from tests.unit.k8s.test_chart import apply

PACKAGED = Path(__file__).parents[2] / "packaging/kubernetes/operator.yaml"

Json = dict[str, Any]

#: kube-system has no user.
POLICY = Policy(namespaces={name: Mapped(user="lab") for name in ("default", "lab")})


class Scene:
    def __init__(self, server: KubeServer, admin: Api, now: list[float]) -> None:
        self.server = server
        self.admin = admin
        self.now = now

    async def pod(self, name: str, namespace: str = "default", *, spec: Json | None = None, **metadata: Any) -> Json:
        container = {"name": "main", "image": "busybox"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}}
        body["spec"] = {"containers": [container], **(spec or {})}
        path = f"api/v1/namespaces/{namespace}/pods"
        made: Json = msgspec.json.decode(await self.admin.send("POST", path, body=msgspec.json.encode(body)))
        return made

    def secret(self) -> bytes:
        found = self.server.cluster._find("secrets", "spritz", "spritz-webhooks")
        assert found is not None
        return base64.b64decode(found["data"][certificates.CERTIFICATE])


def play(scene: Callable[[Scene, list[Webhooks]], Awaitable[None]], replicas: int = 1) -> None:
    async def run() -> None:
        async with (
            KubeServer(tls=False) as server,
            Api.connect(server.kubeconfig) as admin,
            asyncio.TaskGroup() as group,
        ):
            await apply(admin, list(yaml.safe_load_all(PACKAGED.read_text())))
            mine = Api.connect(server.service_account("spritz", "spritz-operator"))
            log: list[str] = []
            now = [server.cluster.now() - 61 * 86400]
            async with mine:
                hooks = [
                    Webhooks(
                        mine,
                        lambda event, **fields: log.append(f"{event} {fields}"),
                        pod_answers("spritz", POLICY),
                        names=["spritz-webhooks"],
                        namespace="spritz",
                        host="127.0.0.1",
                        port=0,
                        now=lambda: now[0],
                    )
                    for _ in range(replicas)
                ]
                tasks = [group.create_task(hook.run()) for hook in hooks]
                for hook in hooks:
                    await asyncio.wait_for(hook.ready.wait(), 30)
                server.cluster.services["spritz", "spritz-webhooks"] = f"https://127.0.0.1:{hooks[0].port}"
                await scene(Scene(server, admin, now), hooks)
                await server.cluster.webhooks.close()  # or each waits for its connections to end
                for task in tasks:
                    task.cancel()
            assert not server.failures
            assert not [line for line in log if "forbidden" in line], log

    asyncio.run(run())


def test_pods_of_a_namespace_with_the_label_are_in_the_queue() -> None:
    async def scene(kube: Scene, hooks: list[Webhooks]) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "lab", "labels": {"spritz.dev/schedule": "true"}},
        }
        await kube.admin.send(
            "PATCH",
            "api/v1/namespaces/lab",
            parameters={"fieldManager": "t"},
            body=msgspec.json.encode(body),
            content_type=APPLY,
        )
        await kube.server.controllers.idle.wait()
        assert (await kube.pod("a", "lab"))["spec"]["schedulerName"] == "spritz"
        assert (await kube.pod("b", "lab", spec={"schedulerName": "mine"}))["spec"]["schedulerName"] == "mine"
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
        of_daemon_set = await kube.pod("c", "lab", ownerReferences=[owner])
        assert of_daemon_set["spec"]["schedulerName"] == "default-scheduler"
        assert (await kube.pod("d"))["spec"]["schedulerName"] == "default-scheduler"
        # A pod that the policy cannot keep in the queue is refused rather than scheduled outside it.
        kube.server.cluster.services.clear()
        with pytest.raises(ApiFailure, match=r"schedule\.spritz\.dev"):
            await kube.pod("e", "lab")

    play(scene)


REFUSED: list[tuple[dict[str, str], Json, str, str]] = [
    ({"time-limit": "soon"}, {}, "metadata.annotations[spritz.dev/time-limit]", "soon"),
    ({"time-limt": "60"}, {}, "metadata.annotations[spritz.dev/time-limt]", "did you mean spritz.dev/time-limit?"),
    ({"gang": "a/b", "gang-size": "2"}, {}, "metadata.annotations[spritz.dev/gang]", "is no name of a gang"),
    ({"priority": "high"}, {}, "metadata.annotations[spritz.dev/priority]", "give a number"),
    ({"priority": "4000000000"}, {}, "metadata.annotations[spritz.dev/priority]", "pods of namespace default none"),
    ({"qos": "high"}, {}, "metadata.annotations[spritz.dev/qos]", "to ask for high (allowed: none)"),
    ({"gang": "g"}, {}, "metadata.annotations[spritz.dev/gang-size]", "the number of pods"),
    ({"gang-size": "2"}, {}, "metadata.annotations[spritz.dev/gang-size]", "set spritz.dev/gang to the same value"),
    ({"job-id": "7"}, {}, "metadata.annotations[spritz.dev/job-id]", "leave it out"),
    ({}, {"nvidia.com/gpu": "1", "amd.com/gpu": "1"}, "spec.containers", "several kinds"),
]


def test_what_can_be_no_job_is_refused_with_the_field() -> None:
    async def scene(kube: Scene, hooks: list[Webhooks]) -> None:
        for notes, amounts, field, words in REFUSED:
            annotations = {f"spritz.dev/{name}": text for name, text in notes.items()}
            container = {"name": "m", "image": "b", "resources": {"limits": amounts}}
            spec = {"schedulerName": "spritz", "containers": [container]}
            with pytest.raises(ApiFailure) as caught:
                await kube.pod("p", annotations=annotations, spec=spec)
            assert caught.value.code == 422
            assert f"{field}: " in caught.value.message
            assert words in caught.value.message
        # Without an operator it is stored, and its owner told by an event.
        kube.server.cluster.services.clear()
        await kube.pod("p", annotations=annotations, spec=spec)

    play(scene)


def test_a_pod_of_a_namespace_without_a_user_is_refused() -> None:
    """The packaged policy names none."""

    async def scene(kube: Scene, hooks: list[Webhooks]) -> None:
        with pytest.raises(ApiFailure, match=r"metadata\.namespace: no rule of the policy names a user for namespace"):
            await kube.pod("p", "spritz", spec={"schedulerName": "spritz"})
        await kube.pod("p", "spritz")  # of another scheduler

    play(scene)
    packaged = next(each for each in yaml.safe_load_all(PACKAGED.read_text()) if each["kind"] == "ConfigMap")
    assert read(packaged["data"]["policy.yaml"]).users == set()


def test_replicas_share_a_certificate_which_is_replaced_before_it_ends() -> None:
    async def scene(kube: Scene, hooks: list[Webhooks]) -> None:
        first = kube.secret()
        for days, replaced in ((10.0, False), (0.0, True)):
            kube.now[0] = kube.server.cluster.now() - days * 86400
            for hook in hooks:
                await hook._look()
            assert (kube.secret() != first) is replaced
        assert {hook._served for hook in hooks} == {kube.secret()}
        with pytest.raises(ApiFailure, match="leave it out"):
            await kube.pod("p", annotations={"spritz.dev/gpus": "0"}, spec={"schedulerName": "spritz"})

    play(scene, replicas=3)
