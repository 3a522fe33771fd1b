"""The servers that the suite runs against, and a client that sees every answer as it is."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from spritz.k8s.api import Api, ApiFailure

if TYPE_CHECKING:
    from spritz.http.transport import Stream
    from spritz_testing.kubernetes.server import KubeServer

Json = dict[str, Any]

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"

#: Seconds for what a server does by and by: controllers look for new definitions every half minute.
PATIENCE = 90.0


class Refused(Exception):
    """The server's Status."""

    def __init__(self, status: Json) -> None:
        super().__init__(f"{status.get('code')} {status.get('reason')}: {status.get('message')}")
        self.code: int = status.get("code", 0)
        self.reason: str = status.get("reason", "")
        self.message: str = status.get("message", "")
        self.details: Json = status.get("details") or {}

    @property
    def fields(self) -> dict[str, str]:
        """What is wrong with the fields of the object: path -> reason."""
        return {cause.get("field", ""): cause.get("reason", "") for cause in self.details.get("causes") or ()}


class Kube:
    """An API server, and the test's namespace on it. Paths without a leading `apis/` or `api/` are in the namespace."""

    def __init__(self, api: Api, namespace: str, server: KubeServer | None) -> None:
        self.api = api
        self.namespace = namespace
        #: None: a real one
        self.server = server
        self.has_controllers = server is not None

    def path(self, path: str) -> str:
        if path.startswith(("api/", "apis/")):
            return path
        group, _, rest = path.rpartition(":")
        return f"{f'apis/{group}' if group else 'api/v1'}/namespaces/{self.namespace}/{rest}"

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        *,
        headers: dict[str, str] | None = None,
        **parameters: Any,
    ) -> Json:
        """The answer. Raises Refused."""
        sent = None if body is None else msgspec.json.encode(body)
        given = {"Content-Type": content_type, **(headers or {})}
        response = await self.api.exchange(method, self.path(path), parameters, sent, given)
        if not response.headers.get("content-type", "").startswith("application/json"):
            # A server, or a proxy before it, answers so where it knows no such path.
            raise Refused({"code": response.status, "message": response.body.decode()})
        answer: Json = msgspec.json.decode(response.body)
        if response.status >= 400:
            assert (answer["kind"], answer["status"]) == ("Status", "Failure")
            assert answer["code"] == response.status
            raise Refused(answer)
        return answer

    async def get(self, path: str, **parameters: Any) -> Json:
        return await self.ask("GET", path, **parameters)

    async def make(self, path: str, body: Json, **parameters: Any) -> Json:
        return await self.ask("POST", path, body, **parameters)

    async def patch(self, path: str, body: Any, content_type: str = MERGE, **parameters: Any) -> Json:
        return await self.ask("PATCH", path, body, content_type, **parameters)

    async def apply(self, path: str, body: Json, manager: str, **parameters: Any) -> Json:
        return await self.ask("PATCH", path, body, APPLY, fieldManager=manager, **parameters)

    async def delete(self, path: str, **options: Any) -> Json:
        return await self.ask("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    async def refused(self, code: int, request: Awaitable[Any]) -> Refused:
        """The request must be refused with that HTTP status."""
        with pytest.raises(Refused) as caught:
            await request
        assert caught.value.code == code, str(caught.value)
        return caught.value

    async def gone(self, path: str) -> None:
        await self.refused(404, self.get(path))

    async def until(self, look: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Until `look` finds something, which is returned. A refusal counts as nothing."""
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        found = await look()
                    except Refused:
                        found = None
                    if found:
                        return found
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(f"not within {PATIENCE:.0f} s: {what}")

    async def until_gone(self, path: str) -> None:
        async def look() -> bool:
            try:
                await self.get(path)
            except Refused as refused:
                return refused.code == 404
            return False

        await self.until(look, f"{path} is gone")

    @asynccontextmanager
    async def watch(self, path: str, **parameters: str) -> AsyncIterator[AsyncIterator[Json]]:
        """Events as they come, until the server ends the watch."""
        given = {"watch": "true", "timeoutSeconds": "60", **parameters}
        try:
            async with self.api.stream(self.path(path), given, silence=PATIENCE) as stream:
                yield _events(stream)
        except ApiFailure as failure:
            raise Refused({"code": failure.code, "reason": failure.reason, "message": failure.message}) from failure

    def forget_history(self) -> None:
        """Resource version 1 is too old from now on. A real server's history begins with its start."""
        if self.server is not None:
            self.server.cluster.compact()

    def needs_controllers(self) -> None:
        if not self.has_controllers:
            pytest.skip("the cluster has no controller manager")


async def _events(stream: Stream) -> AsyncIterator[Json]:
    async for line in stream.lines():
        yield msgspec.json.decode(line)


Scene = Callable[[Kube], Coroutine[Any, Any, None]]
Play = Callable[[Scene], None]

_real = pytest.mark.skipif(not os.environ.get("KUBECONFIG"), reason="no KUBECONFIG: no real cluster to run against")


@pytest.fixture(params=["tests", pytest.param("cluster", marks=_real)])
def play(request: pytest.FixtureRequest) -> Play:
    """Plays a scene on a server, in a namespace that is deleted afterwards."""
    real: bool = request.param == "cluster"

    def run(scene: Scene) -> None:
        asyncio.run(_cluster(scene) if real else _tests(scene))

    return run


async def _tests(scene: Scene) -> None:
    from spritz_testing.kubernetes.server import KubeServer  # not needed where the cluster is real

    async with KubeServer(bookmark_seconds=1.0, tls=False) as server, Api.connect(server.kubeconfig) as api:
        await _in_namespace(scene, Kube(api, f"contract-{secrets.token_hex(4)}", server))
        assert not server.failures


async def _cluster(scene: Scene) -> None:
    async with Api.connect(os.environ["KUBECONFIG"]) as api:
        await _in_namespace(scene, Kube(api, f"contract-{secrets.token_hex(4)}", None))


async def _in_namespace(scene: Scene, kube: Kube) -> None:
    metadata = {"name": kube.namespace}
    await kube.make("api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    try:
        await _service_account(kube)
        await scene(kube)
    finally:
        await kube.delete(f"api/v1/namespaces/{kube.namespace}")


async def _service_account(kube: Kube) -> None:
    """The one that pods need. The controller manager makes it, where there is one."""
    path, waits = "serviceaccounts/default", 100
    for _ in range(waits):
        try:
            await kube.get(path)
        except Refused:
            await asyncio.sleep(0.1)
        else:
            kube.has_controllers = True
            return
    kube.has_controllers = False
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await kube.make("serviceaccounts", body)


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {}}


def pod(name: str, *, spec: Json | None = None, **metadata: Any) -> Json:
    """A pod that no scheduler looks at."""
    container = {"name": "main", "image": "busybox", "command": ["true"]}
    chosen = {"schedulerName": "contract", "containers": [container], **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": chosen}


def binding(name: str, node: str, uid: str | None = None) -> Json:
    metadata = {"name": name} | ({"uid": uid} if uid else {})
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
