"""One pod on a node: starts its containers, probes and restarts them, reports its status, and ends it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from spritz.k8s.api import STRATEGIC, Api, ApiFailure
from spritz.runtime.tasks import Supervisor
from spritz.timeouts import within
from spritz_testing.kubelet import image, services
from spritz_testing.kubelet.containers import Container, Mount, Place, Refused, check, expanded
from spritz_testing.kubelet.network import Network
from spritz_testing.kubelet.services import Services
from spritz_testing.kubelet.volumes import NotYet, Volumes, field_of
from spritz_testing.kubernetes import probes
from spritz_testing.kubernetes.errors import Object

#: Seconds between attempts to mount, and before a container is started again: doubled each time, up to the last.
_MOUNT_SECONDS, _BACK_OFF_SECONDS, _BACK_OFF_SECONDS_MAX = 0.5, 1.0, 10.0

#: Seconds after which files of volumes are compared with their objects; at a change of the pod it is done at once.
_REFRESH_SECONDS: Final = 60.0

#: Seconds after which a container that ran so long is started again without a wait.
_WELL_SECONDS: Final = 60.0


class Room(msgspec.Struct):
    """What the pods of a kubelet share."""

    api: Api
    network: Network
    services: Services
    tasks: Supervisor
    directory: Path
    image: Path
    claims: Path
    #: reads an object by its path, None if there is none
    find: Callable[[str], Awaitable[Object | None]]


class _Unit(msgspec.Struct):
    """A container of the pod, and how it has fared."""

    spec: Object
    running: Container | None = None
    started_at: str = ""
    restarts: int = 0
    waiting: tuple[str, str] = ("ContainerCreating", "")
    #: how it ended: exit status, when
    last: tuple[int, str] | None = None
    is_over: bool = False
    is_started: bool = False
    is_ready: bool = False

    @property
    def name(self) -> str:
        return str(self.spec["name"])


class Workload:
    """A pod that was bound to a node. `run` returns when it has gone."""

    def __init__(self, room: Room, pod: Object, node_address: str) -> None:
        self.pod = pod
        self._room = room
        self._node_address = node_address
        metadata = pod["metadata"]
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]
        self.uid: str = metadata["uid"]
        #: the pod's logs: CONTAINER.log
        self.directory: Path = room.directory / self.namespace / f"{self.name}-{self.uid[:8]}"
        self.address = ""
        self._network = ""
        self._started_at = now()
        self._changed = asyncio.Event()
        self._leaves = asyncio.Event()
        #: end at once, without a grace period: the machine is lost
        self.is_lost = False
        self._reported: Object = {}
        self._reporting = asyncio.Lock()
        self._volumes = Volumes(self.directory / "volumes", room.claims, self._find, self._token)
        self._first = [_Unit(each) for each in pod["spec"].get("initContainers") or ()]
        self._units = [_Unit(each) for each in pod["spec"]["containers"]]
        if metadata.get("deletionTimestamp"):
            self._leaves.set()

    # What the agent tells

    def changed(self, pod: Object) -> None:
        """The pod's object has changed."""
        self.pod = pod
        self._changed.set()
        if pod["metadata"].get("deletionTimestamp"):
            self._leaves.set()

    def lose(self) -> None:
        """The machine is lost: the pod's processes end at once, and nothing is reported."""
        self.is_lost = True
        for unit in self._units:
            if unit.running is not None:
                unit.running.kill()
        self._leaves.set()

    def container(self, name: str = "") -> Container:
        """A running container, by default the first. Raises LookupError."""
        for unit in self._units:
            if name in ("", unit.name) and unit.running is not None and not unit.running.has_ended:
                return unit.running
        raise LookupError(f"pod {self.name} has no container {name} that runs")

    def log_of(self, container: str) -> Path:
        return self.directory / f"{container}.log"

    # Its life

    async def run(self) -> None:
        try:
            async with Supervisor() as tasks:
                life = tasks.spawn(self._live(), name="pod.live")
                await self._leaves.wait()
                life.cancel()
                await asyncio.wait([life])
                await self._end()
                tasks.cancel_all()
        finally:
            for unit in (*self._units, *self._first):
                if unit.running is not None:
                    unit.running.kill()
                    await unit.running.wait()
            if self._network:
                with contextlib.suppress(Exception):
                    await self._room.network.remove(self._network)
            shutil.rmtree(self.directory / "volumes", ignore_errors=True)

    async def _end(self) -> None:
        """Stop the containers within the pod's grace period, and delete the pod's object."""
        seconds = self.pod["metadata"].get("deletionGracePeriodSeconds")
        if not self.is_lost:
            seconds = 30 if seconds is None else seconds
            running = [unit.running for unit in (*self._units, *self._first) if unit.running is not None]
            await asyncio.gather(*(each.stop(float(seconds)) for each in running))
            with contextlib.suppress(ApiFailure):
                await self._report()
            await delete_now(self._room.api, self.pod)

    async def _live(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o755)
        try:
            check(self.pod)
        except Refused as refused:
            for unit in self._units:
                unit.waiting = refused.reason, refused.message
            await self._report()
            return
        self._network, self.address = await self._room.network.add()
        self.write_hosts()
        await self._report()
        await self._mount()
        async with Supervisor() as tasks:
            for unit in self._first:
                if unit.spec.get("restartPolicy") == "Always":  # a sidecar
                    tasks.spawn(self._keep(unit), name="sidecar")
                    while not unit.is_started:  # noqa: ASYNC110  # as probes find it
                        await asyncio.sleep(_MOUNT_SECONDS)
                    continue
                while await self._once(unit) and self.pod["spec"].get("restartPolicy") != "Never":
                    await self._back_off(unit)
                if unit.last is not None and unit.last[0]:
                    await self._report()
                    return
            tasks.spawn(self._refresh(), name="pod.refresh")
            await asyncio.wait([tasks.spawn(self._keep(unit), name="container") for unit in self._units])
            # Sidecars end with the last container.
            await asyncio.gather(*(unit.running.stop(1.0) for unit in self._first if unit.running is not None))
            tasks.cancel_all()

    def write_hosts(self) -> None:
        """The pod's /etc/hosts: itself, and every Service."""
        if not self.address:
            return
        spec = self.pod["spec"]
        host = spec.get("hostname") or self.name
        names = [host]
        if spec.get("subdomain"):
            names.insert(0, f"{host}.{spec['subdomain']}.{self.namespace}.svc.cluster.local")
        text = f"127.0.0.1 localhost\n{self.address} {' '.join(names)}\n"
        services.write_hosts(self.directory / "hosts", text + self._room.services.hosts(self.namespace))

    async def _mount(self) -> None:
        """Until every volume can be mounted."""
        said = ""
        while True:
            try:
                await self._volumes.lay_out(self.pod)
            except NotYet as reason:
                if str(reason) != said:
                    said = str(reason)
                    await self._event("FailedMount", f"MountVolume.SetUp failed: {reason}")
                await asyncio.sleep(_MOUNT_SECONDS)
            else:
                return

    async def _refresh(self) -> None:
        while True:
            self._changed.clear()
            with contextlib.suppress(NotYet, ApiFailure):
                await self._volumes.refresh(self.pod)
            with contextlib.suppress(TimeoutError):
                async with within(_REFRESH_SECONDS):
                    await self._changed.wait()

    # Containers

    async def _keep(self, unit: _Unit) -> None:
        """Run a container, again and again as far as the pod's restartPolicy says."""
        while True:
            began = asyncio.get_running_loop().time()
            status = await self._once(unit)
            policy = unit.spec.get("restartPolicy") or self.pod["spec"].get("restartPolicy", "Always")
            if policy == "Never" or (policy == "OnFailure" and not status):
                unit.is_over = True
                await self._report()
                return
            if asyncio.get_running_loop().time() - began > _WELL_SECONDS:
                unit.restarts += 1
                continue
            await self._back_off(unit)

    async def _back_off(self, unit: _Unit) -> None:
        wait = min(_BACK_OFF_SECONDS_MAX, _BACK_OFF_SECONDS * 2.0**unit.restarts)
        if unit.last is not None:
            unit.waiting = "CrashLoopBackOff", f"back-off {wait:.0f}s restarting failed container={unit.name}"
        await self._report()
        await asyncio.sleep(wait)
        unit.restarts += 1

    async def _once(self, unit: _Unit) -> int:
        """Start a container and wait for its end; the exit status."""
        log = self.log_of(unit.name)
        try:
            env = await self._environment(unit.spec)
            place = Place(
                self.directory / f"root-{unit.name}",
                self._network,
                self.pod["spec"].get("hostname") or self.name,
                self._room.image,
            )
            mounts = [Mount(self.directory / "hosts", "/etc/hosts"), *self._mounts(unit.spec)]
            unit.running = await Container.start(place, self.pod, unit.spec, env, mounts, log)
        except (Refused, NotYet) as refused:
            reason = refused.reason if isinstance(refused, Refused) else "CreateContainerConfigError"
            unit.waiting = reason, str(refused)
            await self._report()
            return 1
        unit.started_at = now()
        has_startup = "startupProbe" in unit.spec
        unit.is_started = not has_startup
        unit.is_ready = not has_startup and "readinessProbe" not in unit.spec
        await self._report()
        probing = [
            self._room.tasks.spawn_contained(self._probe(unit, unit.running, kind), name=f"probe.{kind}")
            for kind in ("startupProbe", "readinessProbe", "livenessProbe")
            if kind in unit.spec
        ]
        try:
            status = await unit.running.wait()
        finally:
            for task in probing:
                task.cancel()
        unit.last = status, now()
        unit.is_ready = unit.is_started = False
        unit.waiting = "Error" if status else "Completed", ""
        return status

    def _mounts(self, container: Object) -> list[Mount]:
        volumes = {volume["name"]: volume for volume in self.pod["spec"].get("volumes") or ()}
        found = []
        for mount in container.get("volumeMounts") or ():
            source = self._volumes.places[mount["name"]]
            if mount.get("subPath"):
                source /= mount["subPath"]
                source.mkdir(parents=True, exist_ok=True)
            fixed = bool({"secret", "configMap", "projected", "downwardAPI"} & set(volumes[mount["name"]]))
            found.append(Mount(source, mount["mountPath"], fixed or mount.get("readOnly", False)))
        # An outer directory before what is mounted below it.
        return sorted(found, key=lambda mount: mount.target.count("/"))

    async def _environment(self, container: Object) -> dict[str, str]:
        env = image.environment()
        kubernetes = await self._room.find("api/v1/namespaces/default/services/kubernetes")
        if kubernetes is not None:
            env["KUBERNETES_SERVICE_HOST"] = kubernetes["spec"]["clusterIP"]
            env["KUBERNETES_SERVICE_PORT"] = env["KUBERNETES_SERVICE_PORT_HTTPS"] = "443"
        env["HOSTNAME"] = self.pod["spec"].get("hostname") or self.name
        for variable in container.get("env") or ():
            value = await self._value(variable)
            if value is not None:
                env[variable["name"]] = expanded([value], env)[0]
        return env

    async def _value(self, variable: Object) -> str | None:
        source = variable.get("valueFrom")
        if source is None:
            return str(variable.get("value", ""))
        if "fieldRef" in source:
            own = {"status.podIP": self.address, "status.hostIP": self._node_address}
            path = source["fieldRef"]["fieldPath"]
            return own.get(path) or field_of(self.pod, path)
        for kind, plural in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
            if kind in source:
                wanted = source[kind]
                data = ((await self._find(plural, wanted["name"])) or {}).get("data") or {}
                if wanted["key"] in data:
                    text = data[wanted["key"]]
                    return base64.b64decode(text).decode() if plural == "secrets" else str(text)
                if wanted.get("optional"):
                    return None
                raise NotYet(f"couldn't find key {wanted['key']} in {plural} {self.namespace}/{wanted['name']}")
        raise NotYet(f"the kubelet for tests does not know the source of variable {variable['name']}")

    async def _probe(self, unit: _Unit, container: Container, kind: str) -> None:
        """Ask a container as one of its probes says, for as long as it runs."""
        probe = unit.spec[kind]
        failures = successes = 0
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while not container.has_ended:
            if kind != "startupProbe" and not unit.is_started:
                await asyncio.sleep(0.2)
                continue
            good = await probes.answers(
                probe,
                self.address,
                lambda port: self._port(unit.spec, port),
                lambda words: (container.inside(words), container.environment, Path("/")),
            )
            failures, successes = (0, successes + 1) if good else (failures + 1, 0)
            if kind == "startupProbe" and good:
                unit.is_started = True
                unit.is_ready = "readinessProbe" not in unit.spec
                await self._report()
                return
            if kind == "readinessProbe":
                enough = successes >= probe.get("successThreshold", 1) or failures >= probe.get("failureThreshold", 3)
                if enough and unit.is_ready != good and not container.has_ended:
                    unit.is_ready = good
                    await self._report()
            elif failures >= probe.get("failureThreshold", 3):
                await self._event("Unhealthy", f"{kind} of {unit.name} failed; it is started again")
                container.kill()
                return
            await asyncio.sleep(probe.get("periodSeconds", 10))

    def _port(self, container: Object, port: Any) -> int:
        if isinstance(port, int):
            return port
        return next(int(each["containerPort"]) for each in container["ports"] if each.get("name") == port)

    # The API server

    async def _find(self, plural: str, name: str) -> Object | None:
        return await self._room.find(f"api/v1/namespaces/{self.namespace}/{plural}/{name}")

    async def _token(self, audience: str, seconds: int) -> str:
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self.uid}
        spec = {"audiences": [audience] if audience else [], "expirationSeconds": seconds, "boundObjectRef": bound}
        account = self.pod["spec"].get("serviceAccountName", "default")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        answer = msgspec.json.decode(await self._room.api.send("POST", path, body=msgspec.json.encode(body)))
        return str(answer["status"]["token"])

    async def _event(self, reason: str, message: str) -> None:
        metadata = self.pod["metadata"]
        about = {
            "apiVersion": "v1",
            "kind": "Pod",
            **{name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")},
        }
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self.name}.", "namespace": self.namespace},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": "Warning",
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
            "source": {"component": "kubelet"},
        }
        with contextlib.suppress(ApiFailure):  # as in a namespace that is being deleted
            path = f"api/v1/namespaces/{self.namespace}/events"
            await self._room.api.send("POST", path, body=msgspec.json.encode(event))

    async def _report(self) -> None:
        """Write the pod's status where it differs from what was written last."""
        async with self._reporting:
            status = self._status()
            if status == self._reported or self.is_lost:
                return
            path = f"api/v1/namespaces/{self.namespace}/pods/{self.name}/status"
            change = {"metadata": {"uid": self.uid}, "status": status}
            try:
                body = msgspec.json.encode(change)
                await self._room.api.send("PATCH", path, body=body, content_type=STRATEGIC)
            except ApiFailure as failure:
                if not failure.not_found and not failure.conflict:
                    raise
            self._reported = status

    def _status(self) -> Object:
        sidecars = [unit for unit in self._first if unit.spec.get("restartPolicy") == "Always"]
        ready = all(unit.is_ready for unit in (*self._units, *sidecars))
        over = all(unit.is_over for unit in self._units)
        is_initialized = all(
            unit.is_started if unit in sidecars else unit.last is not None and not unit.last[0] for unit in self._first
        )
        failed = any(unit.last is not None and unit.last[0] for unit in self._units)
        begun = any(unit.running is not None for unit in self._units)
        phase = ("Failed" if failed else "Succeeded") if over else "Running" if begun else "Pending"
        states = {
            "PodReadyToStartContainers": bool(self.address),
            "Initialized": is_initialized,
            "ContainersReady": ready,
            "Ready": ready,
        }
        before = {each["type"]: each for each in self._reported.get("conditions") or ()}
        conditions = []
        for name, value in states.items():
            word = "True" if value else "False"
            kept = before.get(name)
            since = kept["lastTransitionTime"] if kept is not None and kept["status"] == word else now()
            reason = {} if value else {"reason": "PodCompleted" if over else "ContainersNotReady"}
            conditions.append({"type": name, "status": word, "lastTransitionTime": since, **reason})
        status: Object = {
            "phase": phase,
            "startTime": self._started_at,
            "hostIP": self._node_address,
            "conditions": conditions,
            "containerStatuses": [_status_of(unit) for unit in self._units],
        }
        if self._first:
            status["initContainerStatuses"] = [_status_of(unit) for unit in self._first]
        if self.address:
            status |= {"podIP": self.address, "podIPs": [{"ip": self.address}]}
        return status


def _status_of(unit: _Unit) -> Object:
    ended = None
    if unit.last is not None:
        code, when = unit.last
        ended = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "startedAt": unit.started_at,
            "finishedAt": when,
        }
    runs = unit.running is not None and not unit.running.has_ended
    state: Object
    if runs:
        state = {"running": {"startedAt": unit.started_at}}
    elif ended is not None and (unit.is_over or unit.waiting[0] in ("Error", "Completed")):
        state = {"terminated": ended}
    else:
        reason, message = unit.waiting
        state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    return {
        "name": unit.name,
        "image": unit.spec.get("image", ""),
        "imageID": "",
        "ready": unit.is_ready,
        "started": unit.is_started,
        "restartCount": unit.restarts,
        "state": state,
        "lastState": {"terminated": ended} if ended is not None and "terminated" not in state else {},
    }


async def delete_now(api: Api, pod: Object) -> None:
    """Delete the object of a pod whose containers have ended."""
    metadata = pod["metadata"]
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": metadata["uid"]},
    }
    path = f"api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    try:
        await api.send("DELETE", path, body=msgspec.json.encode(options))
    except ApiFailure as failure:
        if not failure.not_found and not failure.conflict:
            raise


def now(*, fine: bool = False) -> str:
    """The present time as Kubernetes writes it; `fine`: with microseconds."""
    moment = datetime.datetime.now(datetime.UTC)  # noqa: TID251  # a kubelet's own clock
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if fine else "%Y-%m-%dT%H:%M:%SZ")
