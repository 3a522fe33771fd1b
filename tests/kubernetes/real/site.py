"""A control plane with the packaged operator on it, and a namespace for clusters."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from lightkube import KubeConfig

from spritz.k8s.api import APPLY, MERGE, Api, ApiFailure
from spritz_testing.kubelet import image
from spritz_testing.kubelet.agent import LABEL, Kubelet
from spritz_testing.kubelet.containers import Container

Json = dict[str, Any]

PACKAGED = Path(__file__).parents[3] / "packaging/kubernetes"

#: The user of the image who submits jobs.
USER: Final = "alice"

#: Seconds for what takes seconds, on a machine that is busy.
PATIENCE: Final = 120.0

#: Where objects of a kind are: group and version, plural, whether they have a namespace.
_KINDS: Final = {
    "Namespace": ("v1", "namespaces", False),
    "ServiceAccount": ("v1", "serviceaccounts", True),
    "ConfigMap": ("v1", "configmaps", True),
    "Secret": ("v1", "secrets", True),
    "Service": ("v1", "services", True),
    "Pod": ("v1", "pods", True),
    "Deployment": ("apps/v1", "deployments", True),
    "Role": ("rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings", True),
    "ClusterRole": ("rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "ValidatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", False),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", False),
    "SpritzCluster": ("spritz.dev/v1alpha1", "spritzclusters", True),
    "NodeSet": ("spritz.dev/v1alpha1", "nodesets", True),
    "LoginSet": ("spritz.dev/v1alpha1", "loginsets", True),
    "Token": ("spritz.dev/v1alpha1", "tokens", True),
}


def missing() -> str:
    """Why there is nothing to run on; "" if there is."""
    if not os.environ.get("SPRITZ_TEST_KUBECONFIG"):
        return "no real control plane: make kubernetes-real KUBECONFIG=FILE"
    return image.missing()


def path_of(kind: str, namespace: str, name: str = "", subresource: str = "") -> str:
    version, plural, namespaced = _KINDS[kind]
    parts = ["apis" if "/" in version else "api", version]
    parts += ["namespaces", namespace] if namespaced else []
    return "/".join([*parts, plural, *filter(None, (name, subresource))])


class Site:
    """The control plane, the kubelet, and a namespace with the rights that the operator needs in it."""

    def __init__(self, api: Api, kubelet: Kubelet, namespace: str) -> None:
        self.api = api
        self.kubelet = kubelet
        self.namespace = namespace

    async def ask(self, method: str, path: str, body: Any = None, content_type: str = "", **parameters: str) -> Json:
        """The answer. Raises ApiFailure."""
        kind = content_type or (MERGE if method == "PATCH" else "application/json")
        sent = None if body is None else msgspec.json.encode(body)
        answer = await self.api.send(method, path, parameters=parameters, body=sent, content_type=kind)
        found: Json = msgspec.json.decode(answer)
        return found

    async def apply(self, obj: Json) -> Json:
        """As `kubectl apply --server-side`: unknown fields are refused."""
        metadata = obj["metadata"]
        path = path_of(obj["kind"], metadata.get("namespace", self.namespace), metadata["name"])
        return await self.ask("PATCH", path, obj, APPLY, fieldManager="kubectl", fieldValidation="Strict")

    async def install(self, *names: str) -> None:
        """Manifests of packaging, word for word."""
        for name in names:
            for obj in yaml.safe_load_all((PACKAGED / f"{name}.yaml").read_text()):
                await self.apply(obj)
            if name == "crds":
                await self.until(self._served, "the definitions are served")

    async def _served(self) -> bool:
        return bool(await self.ask("GET", path_of("Token", self.namespace)))

    async def get(self, kind: str, name: str, namespace: str = "") -> Json:
        return await self.ask("GET", path_of(kind, namespace or self.namespace, name))

    async def items(self, kind: str, namespace: str = "", **labels: str) -> list[Json]:
        selector = ",".join(f"spritz.dev/{label.replace('_', '-')}={value}" for label, value in labels.items())
        found = await self.ask("GET", path_of(kind, namespace or self.namespace), labelSelector=selector)
        return list(found["items"])

    async def change(self, kind: str, name: str, **spec: Any) -> Json:
        return await self.ask("PATCH", path_of(kind, self.namespace, name), {"spec": spec})

    async def delete(self, kind: str, name: str, namespace: str = "") -> None:
        with contextlib.suppress(ApiFailure):
            await self.ask("DELETE", path_of(kind, namespace or self.namespace, name))

    async def until(self, look: Callable[[], Awaitable[Any]], what: str, seconds: float = PATIENCE) -> Any:
        """Until `look` finds something, which is returned; a refusal counts as nothing."""
        end = time.monotonic() + seconds
        while True:
            try:
                found = await look()
            except (ApiFailure, LookupError) as failure:
                found = None
                last = str(failure)
            else:
                last = repr(found)
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds:.0f} s: {what}: {last}\n{await self.story()}")
            await asyncio.sleep(0.25)

    async def ready(self, kind: str, name: str, **status: int) -> None:
        """Until the resource is Ready at its present generation, with these numbers in its status."""

        async def look() -> bool:
            found = await self.get(kind, name)
            have = found.get("status") or {}
            conditions = [each for each in have.get("conditions") or () if each["type"] == "Ready"]
            current = have.get("observedGeneration") == found["metadata"]["generation"]
            as_wanted = all(have.get(field, 0) == number for field, number in status.items())
            return current and as_wanted and [each["status"] for each in conditions] == ["True"]

        await self.until(look, f"{kind} {name} is Ready {status}")

    async def gone(self, kind: str, name: str, seconds: float = PATIENCE) -> None:
        async def look() -> bool:
            try:
                await self.get(kind, name)
            except ApiFailure as failure:
                return failure.not_found
            return False

        await self.until(look, f"{kind} {name} is gone", seconds)

    async def story(self) -> str:
        """What there is to read of a failure."""
        lines = list(self.kubelet.failures)
        for namespace in (self.namespace, "spritz"):
            with contextlib.suppress(ApiFailure):
                for kind in ("SpritzCluster", "NodeSet", "LoginSet") if namespace == self.namespace else ():
                    for each in await self.items(kind):
                        conditions = (each.get("status") or {}).get("conditions")
                        lines.append(f"{kind} {each['metadata']['name']}: {conditions}")
                for pod in await self.items("Pod", namespace):
                    status = pod["status"]
                    states = [each["state"] for each in status.get("containerStatuses") or ()]
                    troubles = [each.get("message") for each in status.get("conditions") or () if each.get("message")]
                    lines.append(f"Pod {pod['metadata']['name']}: {status.get('phase')} {states} {troubles}")
        for log in sorted(self.kubelet.directory.glob("pods/*/*/*.log")):
            lines.append(f"{log.parent.name}/{log.name}: {log.read_text(errors='replace')[-1500:]}")
        return "\n".join(lines)

    # In pods

    def container(self, pod: str, name: str = "", namespace: str = "") -> Container:
        """A running container. Raises LookupError."""
        return self.kubelet.pod(namespace or self.namespace, pod).container(name)

    async def login(self, login_set: str, *command: str, key: Path) -> tuple[int, str]:
        """Run a command by ssh on a login host, at the address of the LoginSet's Service."""
        service = await self.get("Service", login_set)
        options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
        options += ["ConnectTimeout=10", "ServerAliveInterval=10"]  # a machine that is lost says nothing
        words = ["ssh", "-F", "none", "-i", str(key), *(word for option in options for word in ("-o", option))]
        process = await asyncio.create_subprocess_exec(
            *words,
            f"{USER}@{service['spec']['clusterIP']}",
            "--",
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode(errors="replace")


def resource(kind: str, name: str, **spec: Any) -> Json:
    return {"apiVersion": "spritz.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def key_pair(path: Path) -> Path:
    """Makes a user's key, and the public one beside it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


async def operator_is_up(kube: Site) -> bool:
    found = await kube.get("Deployment", "spritz-clusters", "spritz")
    return bool((found.get("status") or {}).get("readyReplicas", 0) == found["spec"]["replicas"])


class Desk:
    """Commands of a user on a login host."""

    def __init__(self, kube: Site, key: Path) -> None:
        self._kube = kube
        self.key = key

    @classmethod
    async def at(cls, kube: Site, key: Path) -> Desk:
        """Makes the LoginSet `desk`, which lets the user in by that key."""
        keys = {USER: key.with_suffix(".pub").read_text()}
        await kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "desk-keys"}, "data": keys})
        await kube.apply(resource("LoginSet", "desk", clusterRef="lab", authorizedKeys="desk-keys"))
        return cls(kube, key)

    async def __call__(self, *words: str) -> str:
        await self._kube.ready("LoginSet", "desk")
        status, text = await self._kube.login("desk", *words, key=self.key)
        assert status == 0, f"{words}: {text}\n{await self._kube.story()}"
        return text

    async def job(self, *options: str, wrap: str) -> str:
        """Submit a job; its id."""
        return (await self("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", f"'{wrap}'")).strip()

    async def state(self, job: str) -> str:
        return (await self("sacct", "-X", "-n", "-o", "State", "-j", job)).strip()

    async def running(self, job: str) -> bool:
        """Whether a slurmctld says so."""
        status, text = await self._kube.login("desk", "squeue", "-h", "-o", "%T", "-j", job, key=self.key)
        return (status, text.strip()) == (0, "RUNNING")


async def uids(kube: Site, **labels: str) -> dict[str, str]:
    """Pods by name, with their uids."""
    pods = await kube.items("Pod", **labels)
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


@contextlib.asynccontextmanager
async def site(count: int = 3, level: str = "baseline") -> AsyncIterator[Site]:
    """`count`: nodes. `level`: the Pod Security level that the namespace enforces."""
    kubeconfig = os.environ["SPRITZ_TEST_KUBECONFIG"]
    server = KubeConfig.from_file(kubeconfig).get().cluster.server  # type: ignore[union-attr]
    async with Api.connect(kubeconfig, field_manager="spritz-testing") as api:
        await _check(api)
        async with Kubelet(api, server, count=count, users={USER: 2001}) as kubelet:
            found = Site(api, kubelet, f"site-{secrets.token_hex(3)}")
            try:
                await found.install("crds", "clusters")
                await _namespace(found, level)
                yield found
            finally:
                await _remove(found)
        assert not kubelet.failures


async def _check(api: Api) -> None:
    """Pods must come to the kubelet for tests, and to no other; and an installation of others is not touched."""
    installed = await api.find_path("apis/apiextensions.k8s.io/v1/customresourcedefinitions/spritzclusters.spritz.dev")
    assert installed is None, "Spritz is installed there: these tests would remove it"
    nodes = msgspec.json.decode(await api.send("GET", "api/v1/nodes"))["items"]
    others = [
        node["metadata"]["name"]
        for node in nodes
        if LABEL not in node["metadata"].get("labels", {}) and not node["spec"].get("unschedulable")
    ]
    assert not others, f"cordon the nodes {', '.join(others)}: pods of these tests would go there, without an image"


async def _namespace(found: Site, level: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}
    await found.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": found.namespace, "labels": labels}}
    )
    # As the documentation says: kubectl -n lab create rolebinding spritz-clusters-namespace …
    await found.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "spritz-clusters-namespace", "namespace": found.namespace},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "spritz-clusters-namespace",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "spritz-clusters", "namespace": "spritz"}],
        }
    )


async def _remove(found: Site) -> None:
    """Resources first, as long as an operator removes their finalizers; then the operator."""
    await found.delete("Namespace", found.namespace)
    with contextlib.suppress(AssertionError):
        await found.gone("Namespace", found.namespace)
    for name in ("clusters", "crds"):
        for obj in reversed(list(yaml.safe_load_all((PACKAGED / f"{name}.yaml").read_text()))):
            await found.delete(obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
    with contextlib.suppress(AssertionError):
        await found.gone("Namespace", "spritz")
