"""The kubelet of several nodes at once: registers them, renews their leases, and runs the pods that are bound to them.

    async with Api.connect(kubeconfig) as api, Kubelet(api, kubeconfig, count=3) as kubelet: …

The names and a label of the nodes are this kubelet's own, so that several may serve one control plane. What it made, it
deletes at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
from lightkube.resources.core_v1 import PersistentVolumeClaim, Pod, Service
from lightkube.resources.discovery_v1 import EndpointSlice

from spritz.k8s.api import MERGE, Api, ApiFailure
from spritz.k8s.watching import Change, ChangeKind, Reflector
from spritz.runtime.tasks import Supervisor
from spritz_testing.kubelet import image
from spritz_testing.kubelet.network import Network
from spritz_testing.kubelet.services import Services
from spritz_testing.kubelet.storage import Storage
from spritz_testing.kubelet.workload import Room, Workload, delete_now, now
from spritz_testing.kubernetes.errors import Object

#: The nodes and volumes of a kubelet for tests; its value says of which.
LABEL: Final = "testing.spritz.dev/kubelet"

#: Seconds between renewals of a node's lease, and of its status.
_LEASE_SECONDS, _STATUS_SECONDS = 5.0, 60.0

_RESOURCES: Final = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}


class Kubelet:
    """`users`: of the image, besides system users. `resources`: of each node, besides CPUs and memory."""

    def __init__(
        self,
        api: Api,
        server: str,
        *,
        count: int = 3,
        directory: Path | None = None,
        users: Mapping[str, int] | None = None,
        resources: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"kubelet-{secrets.token_hex(3)}"
        self.nodes = [f"{self.name}-{number}" for number in range(count)]
        self.network = Network()
        self.failures: list[str] = []
        self._api = api
        self._own_directory = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="spritz-kubelet-")) if directory is None else directory
        self.directory.chmod(0o755)
        self._users = dict(users or {})
        self._resources = {**_RESOURCES, **(resources or {})}
        self._labels = dict(labels or {})
        self._silent: set[str] = set()
        self._tasks = Supervisor(self._failed)
        self._services = Services(self.network, self._tasks, server)
        self._storage = Storage(api, self.directory / "claims", LABEL)
        #: pods by uid
        self.workloads: dict[str, Workload] = {}
        self._claims: dict[str, str] = {}
        decode = msgspec.json.Decoder().decode
        self._reflectors: list[Reflector[Any]] = [
            Reflector(api, Service, decode=decode, on_change=self._service_changed),
            Reflector(api, EndpointSlice, decode=decode, on_change=self._slice_changed),
            Reflector(api, PersistentVolumeClaim, decode=decode, on_change=self._claim_changed),
            Reflector(api, Pod, decode=decode, on_change=self._pod_changed),
        ]

    def _failed(self, name: str, error: Exception) -> None:
        self.failures.append(f"{name}: {error!r}")

    async def __aenter__(self) -> Kubelet:
        image.lay_out(self.directory / "image", self._users)
        await self.network.__aenter__()
        await self._tasks.__aenter__()
        self._services.on_change = self._names_changed
        for node in self.nodes:
            await self._register(node)
            self._tasks.spawn_contained(self._renew(node), name="node.lease")
        self._tasks.spawn_contained(self._services.run(), name="services")
        for reflector in self._reflectors:
            self._tasks.spawn_contained(reflector.run(), name="kubelet.watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for workload in list(self.workloads.values()):
            workload.lose()
        left = [workload.pod for workload in self.workloads.values()]
        self._tasks.cancel_all()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            await self._clean(left)

    async def _clean(self, left: list[Object]) -> None:
        """Delete what was made. `left`: pods whose processes have ended."""
        for pod in left:
            with contextlib.suppress(ApiFailure):
                await delete_now(self._api, pod)
        await self._storage.close()
        await self._services.close()
        for node in self.nodes:
            with contextlib.suppress(ApiFailure):
                await self._api.send("DELETE", f"api/v1/nodes/{node}")
        await self.network.__aexit__(None, None, None)
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    # For tests

    def pod(self, namespace: str, name: str) -> Workload:
        """A pod that runs here. Raises LookupError."""
        for workload in self.workloads.values():
            if (workload.namespace, workload.name) == (namespace, name):
                return workload
        raise LookupError(f"no pod {namespace}/{name} is on nodes of {self.name}")

    async def lose(self, node: str) -> None:
        """The machine is lost: its lease is not renewed, and its pods' processes end without a word."""
        self._silent.add(node)
        for workload in list(self.workloads.values()):
            if workload.pod["spec"]["nodeName"] == node:
                workload.lose()

    # Nodes

    async def _register(self, name: str) -> None:
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            LABEL: self.name,
            **self._labels,
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        await self._api.send("POST", "api/v1/nodes", body=msgspec.json.encode(node))
        await self._report(name)

    async def _report(self, name: str) -> None:
        moment = now()
        pressures = [
            {"type": each, "status": "False", "lastHeartbeatTime": moment, "reason": "KubeletHasSufficient"}
            for each in ("MemoryPressure", "DiskPressure", "PIDPressure")
        ]
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": moment, "reason": "KubeletReady"}
        about = {
            "architecture": "amd64",
            "bootID": self.name,
            "containerRuntimeVersion": "namespaces://1",
            "kernelVersion": os.uname().release,
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.0-spritz",
            "machineID": name,
            "operatingSystem": "linux",
            "osImage": "spritz_testing",
            "systemUUID": name,
        }
        status = {
            "capacity": self._resources,
            "allocatable": self._resources,
            "conditions": [*pressures, ready],
            "addresses": [
                {"type": "InternalIP", "address": self.network.gateway},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": about,
        }
        body = msgspec.json.encode({"status": status})
        await self._api.send("PATCH", f"api/v1/nodes/{name}/status", body=body, content_type=MERGE)

    async def _renew(self, node: str) -> None:
        path = "apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        since = 0.0
        while node not in self._silent:
            spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now(fine=True)}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node}, "spec": spec}
            try:
                body = msgspec.json.encode({"spec": spec})
                await self._api.send("PATCH", f"{path}/{node}", body=body, content_type=MERGE)
            except ApiFailure as failure:
                if failure.not_found:
                    with contextlib.suppress(ApiFailure):
                        await self._api.send("POST", path, body=msgspec.json.encode(lease))
            clock = asyncio.get_running_loop().time()
            if clock - since > _STATUS_SECONDS:
                since = clock
                with contextlib.suppress(ApiFailure):
                    await self._report(node)
            await asyncio.sleep(_LEASE_SECONDS)

    # What the API server tells

    def _pod_changed(self, change: Change[Object]) -> None:
        pod = change.new if change.new is not None else change.old
        assert pod is not None
        uid = pod["metadata"]["uid"]
        workload = self.workloads.get(uid)
        if change.kind is ChangeKind.DELETED:
            if workload is not None:
                workload.is_lost = True  # nothing is left to report
                workload.lose()
        elif workload is not None:
            workload.changed(pod)
        elif pod["spec"].get("nodeName") in self.nodes and pod["spec"]["nodeName"] not in self._silent:
            if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                return
            room = Room(
                self._api,
                self.network,
                self._services,
                self._tasks,
                self.directory / "pods",
                self.directory / "image",
                self.directory / "claims",
                self._find,
            )
            made = self.workloads[uid] = Workload(room, pod, self.network.gateway)
            self._tasks.spawn_contained(self._run(uid, made), name=f"pod {change.key}")

    async def _run(self, uid: str, workload: Workload) -> None:
        try:
            await workload.run()
        finally:
            self.workloads.pop(uid, None)

    def _service_changed(self, change: Change[Object]) -> None:
        namespace, _, name = change.key.partition("/")
        self._services.set_service((namespace, name), change.new)

    def _slice_changed(self, change: Change[Object]) -> None:
        namespace, _, name = change.key.partition("/")
        self._services.set_slice((namespace, name), change.new)

    def _names_changed(self) -> None:
        for workload in self.workloads.values():
            workload.write_hosts()

    def _claim_changed(self, change: Change[Object]) -> None:
        if change.new is not None:
            self._tasks.spawn_contained(self._storage.provide(change.new), name="volume")
        elif change.old is not None:
            self._tasks.spawn_contained(self._storage.forget(change.old["metadata"]["uid"]), name="volume")

    async def _find(self, path: str) -> Object | None:
        body = await self._api.find_path(path)
        return msgspec.json.decode(body) if body is not None else None
