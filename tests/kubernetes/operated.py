"""An API server for tests with the packaged definitions and rights, and clusters whose slurmctld does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from spritz.k8s.api import APPLY, MERGE, Api, ApiFailure
from spritz.k8s.custom_resources.clusters import Clusters
from spritz_testing.kubernetes.server import KubeServer
from tests.unit.k8s.test_chart import apply, bound_in

Json = dict[str, Any]

PACKAGED: Final = Path(__file__).parents[2] / "packaging/kubernetes"
GROUP: Final = "apis/spritz.dev/v1alpha1/namespaces"

#: A cluster with each kind of resource.
WHOLE: Final[list[tuple[str, str, Json]]] = [
    ("SpritzCluster", "lab", {"image": "spritz"}),
    ("NodeSet", "cpu", {"clusterRef": "lab", "cpus": 1, "memory": "1Gi"}),
    ("LoginSet", "team", {"clusterRef": "lab"}),
    ("Token", "join", {"clusterRef": "lab"}),
]


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # what it waits for is the server's
            await asyncio.sleep(0.05)


class Operated:
    """`log`: what the operator has said."""

    def __init__(self, server: KubeServer, admin: Api) -> None:
        self.server = server
        self.admin = admin
        self.log: list[str] = []

    async def namespace(self, name: str) -> None:
        await self.admin.send("POST", "api/v1/namespaces", body=msgspec.json.encode({"metadata": {"name": name}}))
        await apply(self.admin, [bound_in(name)])

    async def make(self, kind: str, name: str, spec: Json, namespace: str = "site") -> None:
        body = {"apiVersion": "spritz.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        await self.admin.send("POST", f"{GROUP}/{namespace}/{kind.lower()}s", body=msgspec.json.encode(body))

    async def put(self, path: str, body: Json) -> None:
        """Make an object of another."""
        await self.admin.send("POST", path, body=msgspec.json.encode(body))

    async def change(self, path: str, change: Json) -> None:
        await self.admin.send("PATCH", path, body=msgspec.json.encode(change), content_type=MERGE)

    async def delete(self, path: str) -> None:
        await self.admin.send("DELETE", path)

    def find(self, plural: str, name: str, namespace: str = "site") -> Json | None:
        found: Json | None = self.server.cluster._find(plural, namespace, name)
        return found

    def condition(self, plural: str, name: str, kind: str = "Ready") -> Json:
        """A condition of a resource; {} for none."""
        status = (self.find(plural, name) or {}).get("status") or {}
        return next((each for each in status.get("conditions") or () if each["type"] == kind), {})

    @asynccontextmanager
    async def operator(self, prepare: Callable[[Clusters], None] = lambda clusters: None) -> AsyncIterator[Clusters]:
        """With the rights of its service account, as a process that starts now."""
        async with (
            Api.connect(self.server.service_account("spritz", "spritz-clusters")) as mine,
            asyncio.TaskGroup() as group,
        ):
            clusters = Clusters(
                mine,
                lambda event, **fields: self.log.append(f"{event} {fields}"),
                address=lambda cluster: "unix:/nonexistent",
            )
            prepare(clusters)
            task = group.create_task(clusters.run())
            yield clusters
            task.cancel()


@asynccontextmanager
async def operated() -> AsyncIterator[Operated]:
    """With the namespace `site`, and nothing in it."""
    try:
        async with KubeServer() as server, Api.connect(server.kubeconfig) as admin:
            scene = Operated(server, admin)
            await define(scene)
            await apply(admin, list(yaml.safe_load_all((PACKAGED / "clusters.yaml").read_text())))
            await scene.namespace("site")
            yield scene
            assert not server.failures
    except* ApiFailure as failures:
        words = [failure.message for failure in failures.exceptions if isinstance(failure, ApiFailure)]
        raise AssertionError(words) from None


async def define(scene: Operated) -> None:
    """As `kubectl apply --server-side -f crds.yaml`."""
    for definition in yaml.safe_load_all((PACKAGED / "crds.yaml").read_text()):
        path = f"apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
        parameters: dict[str, str | None] = {"fieldManager": "kubectl"}
        body = msgspec.json.encode(definition)
        await scene.admin.send("PATCH", path, parameters=parameters, body=body, content_type=APPLY)
