"""Nodes for the API server: a default scheduler, kubelets that run pods' commands as processes here, and services.

    async with KubeServer() as server, Nodes(server, [Machine("m0"), Machine("m1")]) as nodes: …

A pod that names no scheduler is bound to a node that has room and that its selectors, affinity and tolerations allow.
Its containers are processes of this machine and user, not in namespaces, so names and ports are rewritten in commands,
environments and ConfigMaps: ports of services are others (`ports`), pods and services have loopback addresses of their
own in place of POD.SERVICE.NAMESPACE and SERVICE.NAMESPACE, and paths of volumes are directories below `root`. A
service of several pods leads to those that take connections.

Machines fail on demand: `fault` sets a condition, `down` ends what runs there, `reboot` does that and starts it again.
A pod that reboots its machine (`nsenter … systemctl reboot`) reboots the emulated one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
import psutil

from spritz.notation.hostlist import expand
from spritz.runtime.tasks import Supervisor
from spritz.timeouts import within
from spritz_testing.kubernetes import admission, probes
from spritz_testing.kubernetes.cluster import Request
from spritz_testing.kubernetes.conditions import set_condition
from spritz_testing.kubernetes.errors import Object, Refusal
from spritz_testing.kubernetes.pods import bind
from spritz_testing.kubernetes.selectors import matches_label_selector
from spritz_testing.kubernetes.server import KubeServer
from spritz_testing.kubernetes.watching import Event
from spritz_testing.relaying import relay

_MANAGER: Final = "kubelet"

#: Seconds that a process gets to end, and before a container is started again (doubled each time up to the last).
_GRACE_SECONDS, _BACK_OFF_SECONDS, _BACK_OFF_SECONDS_MAX = 10.0, 0.2, 5.0

_KILLED_SECONDS: Final = 15.0

#: Seconds between questions to a container that is not ready.
_PROBE_SECONDS: Final = 0.2

_RESOURCES: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}

#: What may be the name of a service or a pod.
_NAME: Final = re.compile(r"(?<![\w.-])[a-z0-9][a-z0-9-]*(?:\.[a-z0-9][a-z0-9-]*){1,5}(?![\w.-])")

#: Nodes of slurm.conf that come and go: their slurmds have no command line that says their addresses.
_CLOUD: Final = re.compile(r"^NodeName=(\S+) .*State=CLOUD\b", re.MULTILINE)

#: All containers are of this user here; `tests/kubernetes/test_rights.py` has those of the pods.
_SLURM_USER: Final = re.compile(r"^SlurmUser=\d+$", re.MULTILINE)

#: Addresses 127.A.B.C: A is of the emulator, so that several of one machine do not meet.
_emulators = itertools.count(os.getpid() % 200)


class Machine(msgspec.Struct):
    """A node: its labels and taints, and what it has besides CPUs and memory."""

    name: str
    labels: dict[str, str] = {}
    taints: list[Object] = []
    resources: dict[str, str] = {}


class _Running(msgspec.Struct):
    """A pod that has been started on its machine."""

    name: str
    namespace: str
    node: str
    tasks: list[asyncio.Task[None]] = []
    processes: dict[str, asyncio.subprocess.Process] = {}
    #: container -> how it ended, for good
    codes: dict[str, int] = {}
    #: containers whose probe was answered
    ready: set[str] = set()


class Nodes:
    """The scheduler and the kubelets. With `commands` containers are processes; without, pods run until deleted."""

    def __init__(
        self,
        server: KubeServer,
        machines: Sequence[Machine],
        *,
        commands: bool = True,
        directory: Path | None = None,
        programs: Path | None = None,
    ) -> None:
        self.machines = {machine.name: machine for machine in machines}
        self._cluster = server.cluster
        self._server = server
        self._commands = commands
        self._root = directory
        self._own_root = directory is None
        self._programs = programs or Path(sys.executable).parent
        self._pods = self._cluster.plural("pods")
        self._nodes = self._cluster.plural("nodes")
        self._tasks = Supervisor(self._failed)
        self._dirty: dict[tuple[str, str], None] = {}
        self._woken = asyncio.Event()
        #: uid -> pod
        self.running: dict[str, _Running] = {}
        self._down: set[str] = set()
        #: (namespace, pod) -> uid of the pod whose volumes are there
        self._filled: dict[tuple[str, str], str] = {}
        #: names of pods with a volume whose ConfigMap or Secret has changed
        self._outdated: set[tuple[str, str]] = set()
        #: pods (names) that never start: their image cannot be had
        self.broken: set[str] = set()
        #: port of services -> the port that they and their pods have here
        self.ports: dict[int, int] = {}
        #: (namespace, pod, port below 1024) -> the port that it has here
        self.own_ports: dict[tuple[str, str, int], int] = {}
        self._block = next(_emulators) % 200 + 20
        self._numbers = itertools.count(1)
        self._turns = itertools.count()
        self._addresses: dict[tuple[str, str, str], str] = {}
        self._proxies: dict[tuple[str, str], list[asyncio.Server]] = {}
        #: (namespace, pod) -> seconds until a container that was killed is started again
        self._back_off: dict[tuple[str, str], float] = {}
        #: called with a machine's name when it starts again, before its pods do
        self.on_boot: Callable[[str], None] = lambda _name: None
        self.failures: list[str] = []

    def _failed(self, name: str, error: Exception) -> None:
        self.failures.append(f"{name}: {error!r}")

    async def __aenter__(self) -> Nodes:
        await self._tasks.__aenter__()
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="nodes-"))
            self._root.chmod(0o755)
        for machine in self.machines.values():
            self._cluster.put(self._node(machine))
        self._server.pod_log = self._log_of
        self._cluster.listeners.append(self._heard)
        self._mark_all()
        self._tasks.spawn(self._loop(), name="nodes")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.listeners.remove(self._heard)
        self._tasks.cancel_all()
        await self._tasks.__aexit__(kind, error, trace)
        for running in list(self.running.values()):
            await self._end(running)
        for servers in self._proxies.values():
            for server in servers:
                server.close()
        if self._own_root:
            shutil.rmtree(self.root, ignore_errors=True)

    @property
    def root(self) -> Path:
        """What has the pods' volumes, NAMESPACE/POD/VOLUME, and logs, NAMESPACE/POD.log."""
        assert self._root is not None
        return self._root

    # Machines

    def _node(self, machine: Machine) -> Object:
        about = {
            "architecture": "amd64",
            "bootID": admission.new_uid(),
            "containerRuntimeVersion": "processes://1",
            "kernelVersion": os.uname().release,
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.0-spritz",
            "machineID": machine.name,
            "operatingSystem": "linux",
            "osImage": "spritz_testing",
            "systemUUID": machine.name,
        }
        given = {**_RESOURCES, **machine.resources}
        labels = {"kubernetes.io/hostname": machine.name, **machine.labels}
        node: Object = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": machine.name, "labels": labels},
            "spec": {"taints": machine.taints} if machine.taints else {},
            "status": {"capacity": given, "allocatable": given, "nodeInfo": about},
        }
        set_condition(node, "Ready", "True", self._cluster.timestamp(), reason="KubeletReady")
        return node

    def join(self, machine: Machine) -> None:
        """Add a machine, and store its Kubernetes node."""
        self.machines[machine.name] = machine
        self._cluster.put(self._node(machine))

    async def fault(self, name: str, kind: str, status: str = "True", reason: str = "") -> None:
        """Set a condition of the node, as a detector of problems does."""

        def change(node: Object) -> Object:
            set_condition(node, kind, status, self._cluster.timestamp(), reason=reason)
            return node

        await self._cluster.modify(self._nodes, "", name, change, "node-problem-detector", subresource="status")

    async def down(self, name: str) -> None:
        """The machine loses power: what runs there ends, and its node is not Ready."""
        self._down.add(name)
        for uid, running in list(self.running.items()):
            if running.node == name:
                del self.running[uid]
                await self._end(running, at_once=True)
        await self.fault(name, "Ready", "Unknown", "NodeStatusUnknown")

    async def up(self, name: str) -> None:
        """It starts: with another boot ID, and its pods start again."""

        def change(node: Object) -> Object:
            node["status"].setdefault("nodeInfo", {})["bootID"] = admission.new_uid()
            return node

        self.on_boot(name)
        self._down.discard(name)
        await self._cluster.modify(self._nodes, "", name, change, _MANAGER, subresource="status")
        await self.fault(name, "Ready", "True", "KubeletReady")
        self._mark_all()

    async def reboot(self, name: str) -> None:
        await self.down(name)
        await self.up(name)

    async def kill(self, namespace: str, pod: str) -> None:
        """The processes of a pod get SIGKILL; its kubelet starts them again after a while, as the pod's policy says."""
        for running in self.running.values():
            if (running.namespace, running.name) == (namespace, pod):
                self._back_off[namespace, pod] = _KILLED_SECONDS
                for process in running.processes.values():
                    if process.returncode is None:
                        process.kill()

    # What is to be looked at

    def _heard(self, event: Event) -> None:
        _group, plural = event.key
        if plural == "pods":
            self._mark(event.name)
            if event.new is None:
                self._mark_all()  # its room is free
        elif plural == "nodes":
            self._mark_all()
        elif plural in ("configmaps", "secrets"):
            kind = "configMap" if plural == "configmaps" else "secret"
            for pod in self._cluster.among("pods", event.name[0]):
                if pod["metadata"]["uid"] in self.running and event.name[1] in _sources(pod, kind):
                    self._outdated.add((event.name[0], pod["metadata"]["name"]))
                    self._mark((event.name[0], pod["metadata"]["name"]))
        elif plural == "services" and event.new is None:
            for server in self._proxies.pop(event.name, ()):
                server.close()

    def _mark(self, name: tuple[str, str]) -> None:
        self._dirty[name] = None
        self._woken.set()

    def _mark_all(self) -> None:
        for pod in self._cluster.among("pods"):
            if not pod["spec"].get("nodeName") or pod["metadata"]["uid"] not in self.running:
                self._mark((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    async def _loop(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._dirty:
                name = next(iter(self._dirty))
                del self._dirty[name]
                try:
                    await self._look(*name)
                except Refusal:
                    self._mark(name)  # written by another meanwhile, or gone
                    await asyncio.sleep(0.01)

    async def _look(self, namespace: str, name: str) -> None:
        pod = self._cluster._find("pods", namespace, name)
        if pod is None:
            for uid, running in list(self.running.items()):
                if (running.namespace, running.name) == (namespace, name) and self._cluster.by_uid(uid) is None:
                    del self.running[uid]
                    await self._end(running, at_once=True)
            return
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        phase = (pod.get("status") or {}).get("phase", "Pending")
        if not node:
            await self._schedule(pod)
        elif node not in self.machines or node in self._down:
            return
        elif pod["metadata"].get("deletionTimestamp"):
            gone = self.running.pop(uid, None)
            if gone is not None:
                await self._end(gone)
            await self._cluster.delete(self._pods, namespace, name, {"gracePeriodSeconds": 0})
        elif uid not in self.running and phase in ("Pending", "Running"):
            await self._start(pod)
        elif uid in self.running and (namespace, name) in self._outdated:
            self._outdated.discard((namespace, name))
            with contextlib.suppress(KeyError):  # it has gone: the files stay
                self._fill(pod)

    # The scheduler

    async def _schedule(self, pod: Object) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        if metadata.get("deletionTimestamp") or spec.get("schedulingGates"):
            return
        if spec.get("schedulerName", "default-scheduler") != "default-scheduler":
            return
        reasons: dict[str, int] = {}
        fitting = []
        for name in self.machines:
            node = self._cluster._find("nodes", "", name)
            why = "node is gone" if node is None else self._unfit(pod, node)
            if why:
                reasons[why] = reasons.get(why, 0) + 1
            else:
                placed = sum(pod_here["spec"].get("nodeName") == name for pod_here in self._cluster.among("pods"))
                fitting.append((placed, name))
        if fitting:
            binding = {"target": {"kind": "Node", "name": min(fitting)[1]}}
            request = Request(manager="kube-scheduler")
            await bind(self._cluster, metadata["namespace"], metadata["name"], binding, request)
            return
        words = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
        message = f"0/{len(self.machines)} nodes are available: {words}."

        def change(pod_here: Object) -> Object:
            now = self._cluster.timestamp()
            set_condition(pod_here, "PodScheduled", "False", now, reason="Unschedulable", message=message)
            return pod_here

        await self._modify(pod, change)

    def _unfit(self, pod: Object, node: Object) -> str:
        spec, labels = pod["spec"], node["metadata"].get("labels") or {}
        name = node["metadata"]["name"]
        if node.get("spec", {}).get("unschedulable"):
            return "node(s) were unschedulable"
        for taint in [*(node.get("spec", {}).get("taints") or ()), *self._not_ready(node)]:
            if taint["effect"] != "PreferNoSchedule" and not any(
                _tolerates(toleration, taint) for toleration in spec.get("tolerations") or ()
            ):
                return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
            return "node(s) didn't match Pod's node affinity/selector"
        wanted = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        if wanted is not None and not any(
            matches_label_selector({"matchExpressions": term.get("matchExpressions") or ()}, labels)
            and matches_label_selector({"matchExpressions": term.get("matchFields") or ()}, {"metadata.name": name})
            for term in wanted["nodeSelectorTerms"]
        ):
            return "node(s) didn't match Pod's node affinity/selector"
        given = node["status"]["allocatable"]
        asked = _requests(pod)
        for other in self._cluster.among("pods"):
            over = (other.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            if other["spec"].get("nodeName") == name and not over:
                for resource, value in _requests(other).items():
                    if resource in asked:
                        asked[resource] += value
        short = sorted(resource for resource, value in asked.items() if value > _amount(given.get(resource, "0")))
        return f"Insufficient {short[0]}" if short else ""

    def _not_ready(self, node: Object) -> list[Object]:
        ready = [
            condition["status"] for condition in node["status"].get("conditions") or () if condition["type"] == "Ready"
        ]
        return [] if ready == ["True"] else [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]

    # The kubelets

    async def _modify(self, pod: Object, change: Any) -> None:
        metadata = pod["metadata"]
        with contextlib.suppress(Refusal):  # it has gone
            await self._cluster.modify(
                self._pods, metadata["namespace"], metadata["name"], change, _MANAGER, subresource="status"
            )

    async def _start(self, pod: Object) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        if metadata["name"] in self.broken:
            await self._wait(pod, "ImagePullBackOff", f'Back-off pulling image "{spec["containers"][0]["image"]}"')
            asyncio.get_running_loop().call_later(0.2, self._mark, (metadata["namespace"], metadata["name"]))
            return
        running = _Running(metadata["name"], metadata["namespace"], spec["nodeName"], [], {}, {})
        if self._commands:
            try:
                self._fill(pod)
            except KeyError as missing:
                await self._wait(pod, "CreateContainerConfigError", f"{missing.args[0]} not found")
                asyncio.get_running_loop().call_later(0.2, self._mark, (metadata["namespace"], metadata["name"]))
                return
            self.running[metadata["uid"]] = running
            if self._has_siblings(pod):
                await self._serve(pod)
            for container in spec["containers"]:
                work = self._container(pod, container, running)
                running.tasks.append(self._tasks.spawn_contained(work, name=f"{metadata['name']}/{container['name']}"))
                if "readinessProbe" in container:
                    running.tasks.append(
                        self._tasks.spawn_contained(self._probe(pod, container, running), name="probe")
                    )
        else:
            self.running[metadata["uid"]] = running
        address = self._address("pod", metadata["namespace"], metadata["name"])
        probed = {container["name"] for container in spec["containers"] if "readinessProbe" in container}
        probed = probed if self._commands else set()

        def change(obj: Object) -> Object:
            now = self._cluster.timestamp()
            status = obj.setdefault("status", {})
            state = {"running": {"startedAt": now}}
            ready = "False" if probed - running.ready else "True"
            status.update(
                phase="Running",
                podIP=address,
                hostIP="127.0.0.1",
                startTime=status.get("startTime") or now,
                containerStatuses=[
                    _container_status(container, state, ready=container["name"] not in probed - running.ready)
                    for container in spec["containers"]
                ],
            )
            set_condition(obj, "Initialized", "True", now)
            for kind in ("ContainersReady", "Ready"):
                set_condition(obj, kind, ready, now, reason="" if ready == "True" else "ContainersNotReady")
            return obj

        await self._modify(pod, change)

    async def _probe(self, pod: Object, container: Object, running: _Running) -> None:
        """Ask a container whether it is ready, often until it is, and then as its probe has it."""
        name, probe, metadata = container["name"], container["readinessProbe"], pod["metadata"]
        namespace, pod_name = metadata["namespace"], metadata["name"]
        host = self._address("pod", namespace, pod_name)
        failures, next_at = 0, 0.0
        loop = asyncio.get_running_loop()
        while True:
            if name not in running.ready or loop.time() >= next_at:
                answered = await probes.answers(
                    probe,
                    host,
                    lambda port: (
                        self.ports.get(port)
                        or self.own_ports.get((metadata["namespace"], metadata["name"], port), port)
                    ),
                    lambda words: self._command(pod, {**container, "command": words, "args": []}),
                )
                failures = 0 if answered else failures + 1
                next_at = loop.time() + probe.get("periodSeconds", 10)
                if answered != (name in running.ready) and (answered or failures >= probe.get("failureThreshold", 3)):
                    await self._set_ready(pod, running, name, ready=answered)
            await asyncio.sleep(_PROBE_SECONDS)

    async def _set_ready(self, pod: Object, running: _Running, name: str, *, ready: bool) -> None:
        (running.ready.add if ready else running.ready.discard)(name)

        def change(obj: Object) -> Object:
            statuses = obj.setdefault("status", {}).get("containerStatuses") or []
            for status in statuses:
                if status["name"] == name:
                    status["ready"] = ready
            all_ready = bool(statuses) and all(status["ready"] for status in statuses)
            for kind in ("ContainersReady", "Ready"):
                reason = "" if all_ready else "ContainersNotReady"
                set_condition(obj, kind, str(all_ready), self._cluster.timestamp(), reason=reason)
            return obj

        await self._modify(pod, change)

    async def _wait(self, pod: Object, reason: str, message: str) -> None:
        def change(obj: Object) -> Object:
            state = {"waiting": {"reason": reason, "message": message}}
            obj.setdefault("status", {})["containerStatuses"] = [
                _container_status(container, state, ready=False) for container in obj["spec"]["containers"]
            ]
            return obj

        await self._modify(pod, change)

    async def _container(self, pod: Object, container: Object, running: _Running) -> None:
        """Run it, and again as its pod's policy has it."""
        name, policy = container["name"], pod["spec"].get("restartPolicy", "Always")
        words, env, directory = self._command(pod, container)
        if pod["spec"].get("hostPID") and words[-1:] == ["reboot"]:
            await self._report_end(pod, running, name, 0)
            self._tasks.spawn_contained(self.reboot(running.node), name="reboot")
            return
        back_off = _BACK_OFF_SECONDS
        while True:
            log = self.root / running.namespace / f"{running.name}.log"
            with log.open("ab") as file:
                try:
                    process = await asyncio.create_subprocess_exec(
                        *words, env=env, cwd=directory, stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file
                    )
                except OSError as error:
                    file.write(f"{words[0]}: {error.strerror}\n".encode())
                    code = 127
                else:
                    running.processes[name] = process
                    code = await process.wait()
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                await self._report_end(pod, running, name, code)
                return
            await self._restarted(pod, name)
            if "readinessProbe" in container:
                await self._set_ready(pod, running, name, ready=False)
            await asyncio.sleep(self._back_off.pop((running.namespace, running.name), back_off))
            back_off = min(2 * back_off, _BACK_OFF_SECONDS_MAX)

    async def _restarted(self, pod: Object, container: str) -> None:
        def change(obj: Object) -> Object:
            for status in obj.setdefault("status", {}).get("containerStatuses") or ():
                if status["name"] == container:
                    status["restartCount"] += 1
            return obj

        await self._modify(pod, change)

    async def _report_end(self, pod: Object, running: _Running, container: str, code: int) -> None:
        running.codes[container] = code
        codes = dict(running.codes)

        def change(obj: Object) -> Object:
            now = self._cluster.timestamp()
            for status in obj.setdefault("status", {}).get("containerStatuses") or ():
                if status["name"] in codes:
                    reason = "Error" if codes[status["name"]] else "Completed"
                    ended = {"exitCode": codes[status["name"]], "finishedAt": now, "reason": reason}
                    status["state"] = {"terminated": ended}
                    status["ready"] = False
            if len(codes) == len(obj["spec"]["containers"]):
                obj["status"]["phase"] = "Failed" if any(codes.values()) else "Succeeded"
                for kind in ("ContainersReady", "Ready"):
                    set_condition(obj, kind, "False", now, reason="PodCompleted")
            return obj

        await self._modify(pod, change)

    async def _end(self, running: _Running, *, at_once: bool = False) -> None:
        """What a container's first process started ends with it."""
        for task in running.tasks:
            task.cancel()
        started: list[psutil.Process] = []
        for process in running.processes.values():
            if process.returncode is not None:
                continue
            with contextlib.suppress(psutil.NoSuchProcess):
                started += psutil.Process(process.pid).children(recursive=True)
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)
        for process in running.processes.values():
            try:
                async with within(_GRACE_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        for each in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        await asyncio.to_thread(psutil.wait_procs, started, 10)

    def _log_of(self, namespace: str, pod: str, _container: str) -> bytes:
        with contextlib.suppress(OSError):
            return (self.root / namespace / f"{pod}.log").read_bytes()
        return b""

    # From a pod's words to this machine's

    def _command(self, pod: Object, container: Object) -> tuple[list[str], dict[str, str], Path]:
        """A container's command line, environment and working directory."""
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        env = {key: text for key, text in os.environ.items() if not key.startswith(("SLURM", "SPRITZ"))}
        env["PATH"] = f"{self._programs}:{env.get('PATH', '')}"
        own: dict[str, str] = {}
        for variable in container.get("env") or ():
            value = variable["value"] if "value" in variable else self._value_from(pod, variable.get("valueFrom") or {})
            if value is not None:
                own[variable["name"]] = self._here(value, pod)
        for place in self._paths(pod).values():
            if os.path.exists(f"{place}/slurm.conf"):
                own.setdefault("SLURM_CONF", f"{place}/slurm.conf")
        words = []
        for word in [*(container.get("command") or ()), *(container.get("args") or ())]:
            words.append(self._here(re.sub(r"\$\((\w+)\)", lambda match: own.get(match[1], match[0]), word), pod))
        if "--conf" in words:
            words[words.index("--conf") + 1] += f" NodeAddr={self._address('pod', namespace, name)}"
        for port in [
            variable["containerPort"] for variable in container.get("ports") or () if variable["containerPort"] < 1024
        ]:
            other = self.own_ports.setdefault((namespace, name, port), _free_port())
            words = [str(other) if word == str(port) else word for word in words]
        if words and "/" not in words[0]:
            words[0] = shutil.which(words[0], path=env["PATH"]) or words[0]
        return words, env | own, self.root / namespace / name

    def _paths(self, pod: Object) -> dict[str, str]:
        """Paths in the pod's containers, and here."""
        places = self._places(pod)
        mounts = [mount for container in pod["spec"]["containers"] for mount in container.get("volumeMounts") or ()]
        return {mount["mountPath"]: str(places[mount["name"]]) for mount in mounts}

    def _value_from(self, pod: Object, source: Object) -> str | None:
        metadata = pod["metadata"]
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            known = {
                "metadata.name": metadata["name"],
                "metadata.namespace": metadata["namespace"],
                "metadata.uid": metadata["uid"],
                "spec.nodeName": pod["spec"].get("nodeName", ""),
                "status.podIP": self._address("pod", metadata["namespace"], metadata["name"]),
            }
            return known.get(path)
        if "secretKeyRef" in source:
            of = source["secretKeyRef"]
            secret = self._cluster._find("secrets", metadata["namespace"], of["name"])
            data = (secret or {}).get("data") or {}
            return base64.b64decode(data[of["key"]]).decode() if of["key"] in data else None
        return None

    def _places(self, pod: Object) -> dict[str, Path]:
        """The directories of its volumes."""
        metadata = pod["metadata"]
        places: dict[str, Path] = {}
        for volume in pod["spec"].get("volumes") or ():
            name = volume["name"]
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                places[name] = self.root / metadata["namespace"] / f"claim-{claim}"
            elif "hostPath" in volume:
                places[name] = Path(volume["hostPath"]["path"])
            else:
                places[name] = self.root / metadata["namespace"] / metadata["name"] / name
        return places

    def _fill(self, pod: Object) -> dict[str, Path]:
        """Make its volumes, with what they are to have. Raises KeyError with what is not there."""
        metadata, places = pod["metadata"], self._places(pod)
        namespace, name = metadata["namespace"], metadata["name"]
        home = self.root / namespace / name
        if self._filled.get((namespace, name)) != metadata["uid"]:
            shutil.rmtree(home, ignore_errors=True)  # of an earlier pod of this name
            self._filled[namespace, name] = metadata["uid"]
        home.mkdir(parents=True, exist_ok=True)
        for volume in pod["spec"].get("volumes") or ():
            place = places[volume["name"]]
            place.mkdir(parents=True, exist_ok=True)
            for source in volume["projected"]["sources"] if "projected" in volume else [volume]:
                for key, data in self._files(source, namespace):
                    if "configMap" in source:
                        data = self._here(data.decode(), pod).encode()
                    file = place / f".{key}.new"
                    file.write_bytes(data)
                    file.chmod(0o600 if "secret" in source or key.endswith(".conf") else 0o644)
                    file.replace(place / key)
        return places

    def _files(self, source: Object, namespace: str) -> Iterator[tuple[str, bytes]]:
        for kind, plural in (("configMap", "configmaps"), ("secret", "secrets")):
            if kind not in source:
                continue
            of = source[kind]
            name = of.get("name") or of["secretName"]
            have = self._cluster._find(plural, namespace, name)
            if have is None:
                if of.get("optional"):
                    continue
                raise KeyError(f'{kind.lower()} "{name}"')
            for key, text in (have.get("data") or {}).items():
                yield key, text.encode() if kind == "configMap" else base64.b64decode(text)

    def _here(self, text: str, pod: Object) -> str:
        metadata = pod["metadata"]
        if self._has_siblings(pod):
            text = text.replace("0.0.0.0", self._address("pod", metadata["namespace"], metadata["name"]))
        for service in self._cluster.among("services"):
            for port in [entry["port"] for entry in service["spec"].get("ports") or () if entry["port"] >= 1024]:
                other = self.ports.setdefault(port, _free_port())
                text = re.sub(rf"(?<![\d.]){port}(?![\d.])", str(other), text)
        text = _NAME.sub(self._resolved, text)
        text = _SLURM_USER.sub(f"SlurmUser={os.geteuid()}", text)
        text = _CLOUD.sub(lambda line: f"{line[0]} NodeAddr={self._addresses_of(line[1], metadata['namespace'])}", text)
        paths = {"/usr/local/bin": str(self._programs), **self._paths(pod)}
        for path in sorted(paths, key=len, reverse=True):
            text = re.sub(rf"(?<![\w/]){re.escape(path)}(?![\w.-])", paths[path], text)
        return text

    def _resolved(self, name: re.Match[str]) -> str:
        """The address of SERVICE.NAMESPACE or POD.SERVICE.NAMESPACE; other names as they are."""
        *pod, service, namespace = name[0].removesuffix(".cluster.local").removesuffix(".svc").split(".")
        if len(pod) > 1 or self._cluster._find("services", namespace, service) is None:
            return name[0]
        return self._address("pod", namespace, pod[0]) if pod else self._address("service", namespace, service)

    # Addresses

    def _addresses_of(self, nodes: str, namespace: str) -> str:
        return ",".join(self._address("pod", namespace, name) for name in expand(nodes))

    def _address(self, kind: str, namespace: str, name: str) -> str:
        key = (kind, namespace, name)
        if key not in self._addresses:
            number = next(self._numbers)
            self._addresses[key] = f"127.{self._block}.{number // 250}.{number % 250 + 1}"
        return self._addresses[key]

    def service_url(self, namespace: str, name: str, port: int) -> str:
        """Where a program of this machine finds a service that speaks HTTP."""
        return f"http://{self._address('service', namespace, name)}:{self.ports.setdefault(port, _free_port())}"

    def _has_siblings(self, pod: Object) -> bool:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner["kind"] in ("StatefulSet", "ReplicaSet"):
                owner_object = self._cluster.by_uid(owner["uid"])
                return owner_object is not None and int(owner_object["spec"].get("replicas", 1)) > 1
        return False

    async def _serve(self, pod: Object) -> None:
        """The services of a pod that has siblings. (A single pod listens at all addresses, also its service's.)"""
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
        for service in list(self._cluster.among("services", namespace)):
            name, selector = service["metadata"]["name"], service["spec"].get("selector")
            if not selector or not matches_label_selector({"matchLabels": selector}, labels):
                continue
            if service["spec"].get("clusterIP") == "None" or (namespace, name) in self._proxies:
                continue
            servers = self._proxies[namespace, name] = []
            for port in [entry["port"] for entry in service["spec"].get("ports") or () if entry["port"] >= 1024]:
                here = self.ports.setdefault(port, _free_port())
                forward = partial(self._forward, namespace, selector, here)
                servers.append(await asyncio.start_server(forward, self._address("service", namespace, name), here))

    async def _forward(
        self,
        namespace: str,
        selector: dict[str, str],
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """To one of the service's pods after another, as long as they take connections."""
        try:
            pods = [
                pod
                for pod in self._cluster.among("pods", namespace)
                if matches_label_selector({"matchLabels": selector}, pod["metadata"].get("labels") or {})
            ]
            # In turn, as IPVS does: two connections of a client come to different pods.
            turn = next(self._turns) % max(1, len(pods))
            for pod in [*pods[turn:], *pods[:turn]]:
                address = self._address("pod", namespace, pod["metadata"]["name"])
                try:
                    other = await asyncio.open_connection(address, port)
                except OSError:
                    continue
                await relay((reader, writer), other)
                return
        finally:
            writer.close()


def _sources(pod: Object, kind: str) -> Iterator[str]:
    """Names of the ConfigMaps or Secrets that its volumes have."""
    for volume in pod["spec"].get("volumes") or ():
        for source in volume["projected"]["sources"] if "projected" in volume else [volume]:
            if kind in source:
                yield source[kind].get("name") or source[kind]["secretName"]


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"]) and toleration.get("value", "") == taint.get("value", "")


def _requests(pod: Object) -> dict[str, float]:
    requests: dict[str, float] = {"pods": 1.0}
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        for name, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            requests[name] = requests.get(name, 0.0) + _amount(value)
    return requests


_UNITS: Final = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def _amount(text: Any) -> float:
    match = re.fullmatch(r"([\d.]+)(\w*)", str(text))
    assert match is not None, text
    return float(match[1]) * _UNITS.get(match[2], 1.0)


def _container_status(container: Object, state: Object, *, ready: bool) -> Object:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": ready,
        "restartCount": 0,
        "state": state,
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
