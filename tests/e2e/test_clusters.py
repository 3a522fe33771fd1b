"""Clusters that the operator runs: custom resources on an API server for tests, and pods that are real daemons."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import psutil
import pytest
import yaml
from tools import chart

from spritz.k8s.api import APPLY, Api, ApiFailure
from spritz.k8s.cluster_objects import ACCOUNTING_PORT, CONTROLLER_PORT, ETC, JOIN, REST_PORT, STATE
from spritz.k8s.clusters import Clusters
from spritz.k8s.login_sets import HOST_KEYS, USER_KEYS
from spritz.testing.kubernetes.server import ADMIN_TOKEN, KubeServer
from tests.e2e.people import made_people
from tests.e2e.rest_site import BIN
from tests.e2e.users import others_can_run
from tests.ports import free_port

pytestmark = pytest.mark.slow

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PACKAGED = ROOT / "packaging/kubernetes"


class Kubelet:
    """Runs the commands of all pods as processes of this machine: paths, names and ports are rewritten for it."""

    def __init__(self, api: Api, root: Path, cluster: str) -> None:
        self._api = api
        self._root = root
        self.ports = {str(port): str(free_port()) for port in (CONTROLLER_PORT, ACCOUNTING_PORT, REST_PORT)}
        self._names = {
            f"({cluster}-controller)": "(127.0.0.1)",
            f"{cluster}-controller.default": "127.0.0.1",
            f"AccountingStorageHost={cluster}-accounting": "AccountingStorageHost=127.0.0.1",
            "0.0.0.0": "127.0.0.1",
            # Four nodes that come and go, which share this machine's ports.
            "State=CLOUD": f"State=CLOUD Port={','.join(str(free_port()) for _ in range(4))}",
        }
        #: uid -> processes
        self.running: dict[str, list[asyncio.subprocess.Process]] = {}
        #: of the sshd of a pod
        self.ssh_ports: dict[str, int] = {}
        #: pods that never start
        self.broken: set[str] = set()

    def etc(self, pod: str) -> Path:
        return self._root / pod / "etc"

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                pods = (await ask(self._api, "GET", "api/v1/namespaces/default/pods"))["items"]
                await self._look(pods)
                await asyncio.sleep(0.1)
        finally:
            for processes in self.running.values():
                for process in processes:
                    await end(process)

    async def _look(self, pods: list[Json]) -> None:
        here = {pod["metadata"]["uid"] for pod in pods}
        for uid in [uid for uid in self.running if uid not in here]:
            for process in self.running.pop(uid):
                await end(process)
        for pod in pods:
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            path = f"api/v1/namespaces/default/pods/{name}"
            if "deletionTimestamp" in pod["metadata"]:
                for process in self.running.pop(uid, ()):
                    await end(process)
                with contextlib.suppress(ApiFailure):
                    await ask(self._api, "DELETE", path, {"gracePeriodSeconds": 0})
            elif name in self.broken:
                continue
            elif uid not in self.running:
                self.running[uid] = await self._start(name, pod["spec"])
            elif pod.get("status", {}).get("phase") != "Running":
                ready = {"type": "Ready", "status": "True"}
                await ask(self._api, "PATCH", f"{path}/status", {"status": {"phase": "Running", "conditions": [ready]}})

    async def _start(self, name: str, spec: Json) -> list[asyncio.subprocess.Process]:
        etc, state = self.etc(name), self._root / name / "state"
        etc.mkdir(parents=True, exist_ok=True)
        state.mkdir(exist_ok=True)
        for volume in spec["volumes"]:
            sources = volume["projected"]["sources"] if "projected" in volume else [volume]
            for source in sources:
                await self._files(source, etc, state)
        return [await self._container(name, container, etc, state) for container in spec["containers"]]

    async def _container(self, name: str, container: Json, etc: Path, state: Path) -> asyncio.subprocess.Process:
        words = [self._here(word, etc, state).replace("$(NODE_NAME)", name) for word in container["command"]]
        if "--conf" in words:
            words[words.index("--conf") + 1] += f" Port={free_port()}"
        if words[0].endswith("sshd"):
            port = self.ssh_ports[name] = free_port()
            words[words.index("-p") + 1] = str(port)
        env = {key: text for key, text in os.environ.items() if not key.startswith(("SLURM", "SPRITZ"))}
        env |= {each["name"]: each["value"] for each in container.get("env", ()) if "value" in each}
        if (etc / "slurm.conf").exists():
            env["SLURM_CONF"] = str(etc / "slurm.conf")
        log = (self._root / f"{name}.log").open("ab")
        with log:
            return await asyncio.create_subprocess_exec(
                str(BIN / words[0]), *words[1:], env=env, cwd=state, stdout=log, stderr=log
            )

    async def _files(self, source: Json, etc: Path, state: Path) -> None:
        if "configMap" in source:
            path = f"api/v1/namespaces/default/configmaps/{source['configMap']['name']}"
            for name, text in (await ask(self._api, "GET", path))["data"].items():
                write(etc / name, self._here(text, etc, state).encode())
                if name not in ("slurm.conf", "slurmdbd.conf", "gres.conf"):
                    (etc / name).chmod(0o644)  # public keys, which sshd reads as their user
        elif "secret" in source:
            of = source["secret"]
            path = f"api/v1/namespaces/default/secrets/{of.get('name') or of['secretName']}"
            try:
                data = (await ask(self._api, "GET", path))["data"]
            except ApiFailure:
                if not of.get("optional"):
                    raise
                return
            for name in [item["key"] for item in of.get("items", ())] or data:
                write(etc / name, base64.b64decode(data[name]))

    def _here(self, text: str, etc: Path, state: Path) -> str:
        for name, ours in {**self._names, **self.ports}.items():
            text = text.replace(name, ours)
        places = {**dict.fromkeys((ETC, JOIN, HOST_KEYS, USER_KEYS), str(etc)), STATE: str(state)}
        for name, ours in places.items():
            text = re.sub(rf"(?<![\w/]){name}(?![\w.])", ours, text)
        return text


async def end(process: asyncio.subprocess.Process) -> None:
    """As a container ends: what its first process started ends with it."""
    started: list[psutil.Process] = []
    if process.returncode is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
    await process.wait()
    for each in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(started, timeout=10)


def write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)


async def ask(api: Api, method: str, path: str, body: Json | None = None) -> Json:
    kind = "application/json" if method in ("POST", "DELETE") else "application/merge-patch+json"
    sent = None if body is None else msgspec.json.encode(body)
    found: Json = msgspec.json.decode(await api.send(method, path, body=sent, content_type=kind))
    return found


async def until(look: Callable[[], Awaitable[Any]], what: str, seconds: float = 60) -> Any:
    last = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                last = await look()
                if last:
                    return last
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{what}: {last}") from None


SPACE = "apis/spritz.dev/v1alpha1/namespaces/default"


async def install(api: Api, *names: str) -> None:
    """Files of packaging, which the server checks."""
    kinds = {
        "Namespace": "api/v1/namespaces",
        "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/spritz/roles",
        "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/spritz/rolebindings",
        "ServiceAccount": "api/v1/namespaces/spritz/serviceaccounts",
        "ClusterRole": "apis/rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding": "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "Deployment": "apis/apps/v1/namespaces/spritz/deployments",
        "CustomResourceDefinition": "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "SpritzCluster": f"{SPACE}/spritzclusters",
        "NodeSet": f"{SPACE}/nodesets",
    }
    for name in names:
        for text in yaml.safe_load_all((PACKAGED / f"{name}.yaml").read_text()):
            path = f"{kinds[text['kind']]}/{text['metadata']['name']}"
            body = msgspec.json.encode(text)
            await api.send("PATCH", path, parameters={"fieldManager": "test"}, body=body, content_type=APPLY)


async def define(api: Api) -> None:
    await install(api, "crds")

    async def served() -> bool:
        try:
            await ask(api, "GET", f"{SPACE}/nodesets")
        except ApiFailure:
            return False
        return True

    await until(served, "the definitions are served")


def cluster(**spec: Any) -> Json:
    return {
        "apiVersion": "spritz.dev/v1alpha1",
        "kind": "SpritzCluster",
        "metadata": {"name": "lab"},
        "spec": {"image": "spritz", **spec},
    }


def node_set(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "spritz.dev/v1alpha1",
        "kind": "NodeSet",
        "metadata": {"name": name},
        "spec": {"clusterRef": "lab", "cpus": 1, "memory": "1Gi", **spec},
    }


class Kube:
    """The API server, the operator's part for clusters, and a kubelet."""

    def __init__(
        self, url: str, api: Api, kubelet: Kubelet, root: Path, restart: Callable[[], Awaitable[None]]
    ) -> None:
        self.url = url
        self.api = api
        self.kubelet = kubelet
        self.root = root
        #: end the operator, and start another
        self.restart = restart

    async def set(self, name: str) -> Json:
        return await ask(self.api, "GET", f"{SPACE}/nodesets/{name}")

    async def change(self, name: str, **spec: Any) -> None:
        await ask(self.api, "PATCH", f"{SPACE}/nodesets/{name}", {"spec": spec})

    async def settled(self, name: str, *, nodes: int) -> None:
        async def look() -> bool:
            found = await self.set(name)
            status = found.get("status", {})
            ready = [each["status"] for each in status.get("conditions", ())] == ["True"]
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            return ready and current and status.get("readyReplicas") == status.get("replicas") == nodes

        try:
            await until(look, f"NodeSet {name} has {nodes} nodes")
        except AssertionError:
            logs = "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in self.root.glob("*.log"))
            raise AssertionError(f"{await self.set(name)}\n{logs}") from None

    async def gone(self, name: str) -> bool:
        """Whether a NodeSet is not there any more."""
        try:
            await self.set(name)
        except ApiFailure as failure:
            return failure.not_found
        return False

    async def running(self, jobs: int) -> None:
        """Wait for so many."""

        async def look() -> bool:
            return (await self.command("squeue", "-h", "-t", "R", "-o", "%i")).count("\n") == jobs

        await until(look, f"{jobs} jobs run")

    async def command(self, *words: str) -> str:
        env = {**os.environ, "SLURM_CONF": str(self.kubelet.etc("lab-controller-0") / "slurm.conf")}
        process = await asyncio.create_subprocess_exec(
            str(BIN / words[0]), *words[1:], env=env, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        return out.decode()

    async def answers(self, *words: str) -> bool:
        """Whether a command succeeds."""
        try:
            await self.command(*words)
        except AssertionError:
            return False
        return True

    async def tables(self, *plurals: str) -> str:
        """As `kubectl get` shows them."""
        found = []
        for plural in plurals:
            headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Accept": TABLE}
            # Its certificate is its own; what it says is printed, and nothing hangs on it.
            async with httpx2.AsyncClient(headers=headers, verify=False) as client:
                table = (await client.get(f"{self.url}/{SPACE}/{plural}")).json()
            names = [each["name"].upper() for each in table["columnDefinitions"]]
            rows = [names, *([str(cell) for cell in row["cells"]] for row in table["rows"])]
            widths = [max(len(row[at]) for row in rows) for at in range(len(names))]
            found += ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
            found.append("")
        return "\n".join(line.rstrip() for line in found)

    async def all_pods(self) -> dict[str, str]:
        """By name, with their uids."""
        found = await ask(self.api, "GET", "api/v1/namespaces/default/pods")
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found["items"]}

    async def pods(self, name: str) -> dict[str, str]:
        """Pods of a NodeSet by name, with their uids."""
        found = await ask(self.api, "GET", "api/v1/namespaces/default/pods")
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in found["items"]
            if pod["metadata"]["labels"].get("spritz.dev/node-set") == name
        }


@contextlib.asynccontextmanager
async def kubernetes() -> AsyncIterator[Kube]:
    root = Path(tempfile.mkdtemp(prefix="spritz-clusters-"))
    os.chmod(root, 0o755)  # sshd reads keys as the user that comes
    try:
        async with KubeServer() as server, Api.connect(server.kubeconfig) as api:
            await define(api)
            await install(api, "clusters")
            # With the rights that the packaged role gives, and no others.
            limited = Api.connect(server.service_account("spritz", "spritz-clusters"))
            kubelet = Kubelet(api, root, "lab")
            log: list[Json] = []

            async with limited, asyncio.TaskGroup() as group:

                def operator() -> asyncio.Task[None]:
                    clusters = Clusters(
                        limited,
                        lambda event, **fields: log.append({"event": event, **fields}),
                        address=lambda cluster: f"http://127.0.0.1:{kubelet.ports[str(REST_PORT)]}",
                    )
                    return group.create_task(clusters.run())

                async def restart() -> None:
                    running[0].cancel()
                    await asyncio.wait([running[0]])
                    running[0] = operator()

                running = [operator(), group.create_task(kubelet.run())]
                try:
                    yield Kube(server.url, api, kubelet, root, restart)
                finally:
                    (root / "operator.log").write_text("\n".join(map(str, log)))
                    for task in running:
                        task.cancel()
                    assert not [line for line in log if "forbidden" in str(line)]
    finally:
        if not os.environ.get("KEEP"):
            shutil.rmtree(root, ignore_errors=True)


def test_a_cluster_of_two_node_sets_runs_jobs_scales_and_is_updated() -> None:
    async def journey() -> None:
        async with kubernetes() as kube:
            await install(kube.api, "example")
            await kube.settled("small", nodes=2)
            await kube.settled("big", nodes=1)

            # A batch script runs on a node of the partition's NodeSet.
            await kube.command(
                "sbatch",
                "--wait",
                "-p",
                "big",
                "-o",
                "out",
                "--wrap",
                "hostname; echo $SLURM_CPUS_ON_NODE $SLURM_JOB_NODELIST",
            )
            assert "big-0" in (kube.root / "out").read_text()

            # Scale-in leaves the node that has a job, whatever its number.
            await kube.command("sbatch", "-w", "small-1", "-o", "/dev/null", "--wrap", "sleep 600")
            before = await kube.pods("small")
            await kube.change("small", replicas=1)
            await kube.settled("small", nodes=1)

            async def alone() -> bool:
                return set(await kube.pods("small")) == {"small-1"}

            await until(alone, "small-1 stays")

            # An update waits for the job, and brings the node back undrained.
            await kube.change("small", memory="2Gi")

            async def drained() -> bool:
                return "update" in await kube.command("sinfo", "-h", "-n", "small-1", "-o", "%E")

            await until(drained, "the busy node is drained")
            assert (await kube.pods("small"))["small-1"] == before["small-1"]
            await kube.command("scancel", "-n", "wrap")
            await kube.settled("small", nodes=1)

            async def replaced() -> bool:
                return before["small-1"] not in (await kube.pods("small")).values()

            await until(replaced, "the pod is another")

            async def clean() -> bool:
                return await kube.command("sinfo", "-h", "-p", "main", "-o", "%T %D") == "idle 2\n"

            await until(clean, "no node stays drained, and none is left over")

            # An update that has waited long enough requeues what it waits for.
            await kube.command("sbatch", "--requeue", "-w", "big-0", "-o", "/dev/null", "--wrap", "sleep 600")
            await kube.running(1)
            before = await kube.pods("big")
            await kube.change("big", memory="2Gi", drainDeadlineSeconds=1)

            async def renewed() -> bool:
                return set((await kube.pods("big")).values()).isdisjoint(before.values())

            await until(renewed, "the busy pod is replaced")
            await kube.settled("big", nodes=1)
            assert (await kube.command("squeue", "-h", "-o", "%T %r")).split()[0] in ("PENDING", "RUNNING")

            # A NodeSet that is deleted waits for its job, and its cluster for the NodeSet; a new operator goes on.
            await kube.command("scancel", "-n", "wrap")
            await kube.command("sbatch", "-w", "big-0", "-o", "/dev/null", "--wrap", "sleep 600")
            await kube.running(1)
            for path in ("spritzclusters/lab", "nodesets/big", "nodesets/small"):
                await ask(kube.api, "DELETE", f"{SPACE}/{path}")
            await until(lambda: kube.gone("small"), "the idle NodeSet is gone")
            await kube.restart()

            async def waits() -> bool:
                drained = "scale-in" in await kube.command("sinfo", "-h", "-n", "big-0", "-o", "%E")
                found = await ask(kube.api, "GET", f"{SPACE}/spritzclusters/lab")
                return drained and "NodeSets are: big" in str(found["status"])

            await until(waits, "the node is drained, and the cluster says what it waits for")
            await kube.running(1)
            assert not await kube.gone("big")
            await kube.command("scancel", "-n", "wrap")
            await until(lambda: kube.gone("big"), "the NodeSet is gone")

            async def over() -> bool:
                pods = (await ask(kube.api, "GET", "api/v1/namespaces/default/pods"))["items"]
                secrets = (await ask(kube.api, "GET", "api/v1/namespaces/default/secrets"))["items"]
                return not pods and not [each for each in secrets if "join" in each["metadata"]["name"]]

            await until(over, "nothing is left")

    asyncio.run(journey())


def test_a_node_set_scales_for_what_waits_and_back_to_nothing() -> None:
    async def journey() -> None:
        async with kubernetes() as kube:
            kube.kubelet.broken.add("cloud-0")
            scaling = {"minReplicas": 0, "maxReplicas": 4, "idleSeconds": 1, "bootSeconds": 10}
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster())
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("cloud", autoscaling=scaling))

            async def known() -> bool:
                if not (kube.kubelet.etc("lab-controller-0") / "slurm.conf").exists():
                    return False
                try:
                    return await kube.command("sinfo", "-h", "-o", "%t %D") == "idle~ 4\n"
                except AssertionError:
                    return False

            await until(known, "slurmctld knows the nodes that there may be")
            await kube.settled("cloud", nodes=0)
            # A gang: its nodes come together. One of them does not boot, and is replaced.
            await kube.command("sbatch", "-N2", "-o", "out", "--wrap", f"{BIN}/srun sh -c 'echo $SLURMD_NODENAME'")

            async def coming() -> bool:
                return set(await kube.pods("cloud")) == {"cloud-0", "cloud-1"}

            await until(coming, "both pods are made")

            async def ran() -> bool:
                out = kube.root / "out"
                return out.exists() and len(set(out.read_text().split())) == 2

            await until(ran, "the job has run", 90)
            kube.kubelet.broken.clear()

            async def asleep() -> bool:
                failed = await kube.command("sinfo", "-h", "-n", "cloud-0", "-o", "%t")
                return not await kube.pods("cloud") and failed == "idle~\n"

            await until(asleep, "idle nodes go, and the one that failed may be chosen again", 90)

    asyncio.run(journey())


def test_bad_resources_are_refused_with_the_field() -> None:
    async def journey() -> None:
        async with KubeServer() as server, Api.connect(server.kubeconfig) as api:
            await define(api)
            two = [{"name": "a", "default": True}, {"name": "b", "default": True}]
            for path, body, words in (
                ("nodesets", node_set("n", cpus=0), "spec.cpus"),
                ("nodesets", node_set("n", memory="much"), "spec.memory"),
                ("spritzclusters", cluster(partitions=two), "only one partition is the default"),
            ):
                with pytest.raises(ApiFailure, match=words) as caught:
                    await ask(api, "POST", f"{SPACE}/{path}", body)
                assert caught.value.code == 422
            made = await ask(api, "POST", f"{SPACE}/nodesets", node_set("n"))
            assert made["spec"]["replicas"] == 1
            with pytest.raises(ApiFailure, match="stays with its cluster"):
                await ask(api, "PATCH", f"{SPACE}/nodesets/n", {"spec": {"clusterRef": "other"}})

    asyncio.run(journey())


VALUES = """\
cluster: {create: true, name: lab}
nodeSets:
  small: {replicas: 2, cpus: 1, memory: 1Gi}
  big: {cpus: 2, memory: 1Gi}
loginSets: {team: {}}
"""


@pytest.mark.skipif(not os.path.exists("/usr/sbin/sshd"), reason="needs openssh-server")
def test_a_cluster_of_the_chart_outlives_its_parts(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(VALUES)
    made = chart.render(chart.context(chart.values_of(file), namespace="default"))

    async def journey() -> None:
        async with kubernetes() as kube:
            for each in yaml.safe_load_all(made):
                if each["kind"] in ("SpritzCluster", "NodeSet", "LoginSet"):
                    await ask(kube.api, "POST", f"{SPACE}/{each['kind'].lower()}s", each)
            await kube.settled("small", nodes=2)
            await kube.settled("big", nodes=1)
            say(await kube.tables("nodesets", "loginsets", "spritzclusters"))
            say(await kube.command("sinfo", "-N", "-o", "%8N %10P %5c %t"))

            script = "while ! test -e go; do sleep 0.1; done; echo done on $SLURMD_NODENAME"
            say(await kube.command("sbatch", "-J", "train", "-w", "small-1", "-o", "out", "--wrap", script))
            await kube.running(1)
            say(await kube.command("squeue", "-o", "%i %j %T %N"))

            # Each part goes in turn: its pod is made again, and the job runs on.
            await kube.restart()
            for part in ("accounting", "rest", "controller"):
                before = {name: uid for name, uid in (await kube.all_pods()).items() if f"lab-{part}" in name}
                for name in before:
                    await ask(kube.api, "DELETE", f"api/v1/namespaces/default/pods/{name}")

                async def again(part: str = part, before: dict[str, str] = before) -> bool:
                    found = {uid for name, uid in (await kube.all_pods()).items() if f"lab-{part}" in name}
                    return bool(found) and found.isdisjoint(before.values())

                await until(again, f"another pod for {part}")
            await until(lambda: kube.answers("squeue"), "slurmctld answers again")
            await kube.running(1)

            # A new image for all: the control plane and idle nodes at once, the busy node after its job.
            busy = (await kube.pods("small"))["small-1"]
            await ask(kube.api, "PATCH", f"{SPACE}/spritzclusters/lab", {"spec": {"image": "spritz:next"}})

            async def updating() -> bool:
                return "waits for the jobs on small-1" in str((await kube.set("small")).get("status"))

            await until(updating, "the update waits for the job")
            say(await kube.tables("nodesets"))
            assert (await kube.pods("small"))["small-1"] == busy
            (kube.root / "go").touch()

            async def over() -> bool:
                if not await kube.answers("sacct"):
                    return False  # slurmdbd's pod is being replaced
                return "COMPLETED" in await kube.command("sacct", "-n", "-X", "-o", "JobName,State,ExitCode")

            await until(over, "the job has ended as it should")
            assert (kube.root / "out").read_text() == "done on small-1\n"
            await kube.settled("small", nodes=2)
            await kube.settled("big", nodes=1)
            assert (await kube.pods("small"))["small-1"] != busy
            say(await kube.command("sacct", "-X", "-o", "JobID,JobName,State,ExitCode,NodeList"))

            async def clean() -> bool:
                return await kube.command("sinfo", "-h", "-o", "%t %D") == "idle 3\n"

            await until(clean, "no node stays drained")
            say(await kube.tables("nodesets"))

    asyncio.run(journey())


def say(text: str) -> None:
    """For the walk-through of docs/how-to/kubernetes-clusters.md (`pytest -s`)."""
    print(text)


@pytest.fixture
def user() -> Iterator[str]:
    """Another user than root, with a shell, who can run our commands."""
    if os.geteuid() != 0:
        yield pwd.getpwuid(os.geteuid()).pw_name
        return
    if not others_can_run():
        pytest.skip("other users cannot run the installed commands")
    with made_people("spritzlogin") as made:
        yield next(iter(made.values())).name


@pytest.mark.skipif(not os.path.exists("/usr/sbin/sshd"), reason="needs openssh-server")
def test_a_login_set_lets_users_in_and_a_token_is_kept(user: str) -> None:
    name = user

    async def journey() -> None:
        async with kubernetes() as kube:
            key = kube.root / "key"
            await asyncio.to_thread(
                subprocess.run, ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60
            )
            keys = {"metadata": {"name": "team-keys"}, "data": {name: key.with_suffix(".pub").read_text()}}
            await ask(kube.api, "POST", "api/v1/namespaces/default/configmaps", keys)
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster())
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("main"))
            about = {"apiVersion": "spritz.dev/v1alpha1", "metadata": {"name": "team"}}
            spec = {"clusterRef": "lab", "authorizedKeys": "team-keys"}
            await ask(kube.api, "POST", f"{SPACE}/loginsets", {**about, "kind": "LoginSet", "spec": spec})
            token = {"clusterRef": "lab", "role": "login", "lifetimeSeconds": 600}
            await ask(kube.api, "POST", f"{SPACE}/tokens", {**about, "kind": "Token", "spec": token})
            await kube.settled("main", nodes=1)

            async def ready() -> bool:
                found = (await ask(kube.api, "GET", f"{SPACE}/loginsets/team")).get("status", {})
                return "1 of 1 login hosts serve" in str(found) and bool(kube.kubelet.ssh_ports)

            await until(ready, "the login host is ready")
            ((pod, port),) = kube.kubelet.ssh_ports.items()

            async def sinfo() -> str:
                options = [
                    "-o",
                    "StrictHostKeyChecking=no",
                    "-o",
                    "UserKnownHostsFile=/dev/null",
                    "-o",
                    "BatchMode=yes",
                ]
                words = ["ssh", "-i", str(key), "-p", str(port), *options, f"{name}@127.0.0.1"]
                command = f"SPRITZ_NO_SERVER=1 {BIN}/sinfo -h -o '%P %D %t'; echo $SLURM_CONF"
                done = await asyncio.to_thread(
                    subprocess.run, [*words, command], capture_output=True, text=True, timeout=60
                )
                return done.stdout

            text = await until(sinfo, "a session by ssh")
            assert text.split() == ["main*", "1", "idle", str(kube.root / pod / "state/etc/slurm.conf")]

            async def kept() -> Json:
                found = await ask(kube.api, "GET", f"{SPACE}/tokens/team")
                return found if found.get("status", {}).get("expiresAt") else {}

            assert (await until(kept, "the token is kept"))["status"]["conditions"][0]["status"] == "True"
            secret = (await ask(kube.api, "GET", "api/v1/namespaces/default/secrets/team"))["data"]
            assert base64.b64decode(secret["token"]).startswith(b"spz")
            assert base64.b64decode(secret["address"]) == b"lab-controller.default:6817"

    asyncio.run(journey())
