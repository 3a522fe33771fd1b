"""Clusters that the operator runs: custom resources on an API server for tests, and pods that are real daemons."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import psutil
import pytest
import yaml
from sqlalchemy import make_url

from spritz.k8s.api import APPLY, Api, ApiFailure
from spritz.k8s.custom_resources.cluster_objects import REST_PORT
from spritz.k8s.custom_resources.clusters import Clusters
from spritz.k8s.custom_resources.control import Control
from spritz_testing.kubernetes.nodes import Machine, Nodes
from spritz_testing.kubernetes.server import ADMIN_TOKEN, KubeServer
from tests.conformance import databases
from tests.e2e.people import made_people
from tests.e2e.rest_site import BIN
from tests.e2e.users import others_can_run

pytestmark = pytest.mark.slow

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PACKAGED = ROOT / "packaging/kubernetes"


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
            if name == "clusters" and text["kind"] in ("Deployment", "Service", "ValidatingWebhookConfiguration"):
                continue  # the operator runs in this process, which finds the services of pods, and serves no webhook
            path = f"{kinds[text['kind']]}/{text['metadata']['name']}"
            body = msgspec.json.encode(text)
            await api.send("PATCH", path, parameters={"fieldManager": "test"}, body=body, content_type=APPLY)
            if (text["kind"], text["metadata"]["name"]) == ("RoleBinding", "spritz-clusters-namespace"):
                # As for a namespace that the chart's values name.
                text["metadata"]["namespace"] = "default"
                path = path.replace("/namespaces/spritz/", "/namespaces/default/")
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
    """The API server, the operator's part for clusters, and nodes."""

    def __init__(
        self, server: KubeServer, api: Api, nodes: Nodes, root: Path, restart: Callable[[], Awaitable[None]]
    ) -> None:
        self.server = server
        self.url = server.url
        #: the operator that runs now
        self.clusters: Clusters
        self.api = api
        self.nodes = nodes
        #: where commands run, and jobs that they submit
        self.root = root
        #: end the operator, and start another
        self.restart = restart
        #: start a second operator, whose clock is this many seconds ahead
        self.second: Callable[[float], None]

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
            logs = "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in self.nodes.root.glob("*/*.log"))
            raise AssertionError(f"{await self.set(name)}\n{logs}") from None

    async def gone(self, name: str) -> bool:
        """Whether a NodeSet is not there any more."""
        try:
            await self.set(name)
        except ApiFailure as failure:
            return failure.not_found
        return False

    async def running(self, jobs: int) -> None:
        """Wait for this number."""

        shown = ""

        async def look() -> bool:
            nonlocal shown
            shown = await self.command("squeue", "-h", "-o", "%i %T %r %N")
            return sum(line.split()[1] == "RUNNING" for line in shown.splitlines()) == jobs

        try:
            await until(look, f"{jobs} jobs run")
        except AssertionError:
            raise AssertionError(f"{shown}\n{await self.command('scontrol', 'show', 'node')}") from None

    @property
    def slurm_conf(self) -> Path:
        """As slurmctld has it."""
        return self.nodes.root / "default/lab-controller-0/etc/slurm.conf"

    async def command(self, *words: str) -> str:
        env = {**os.environ, "SLURM_CONF": str(self.slurm_conf)}
        process = await asyncio.create_subprocess_exec(
            str(BIN / words[0]), *words[1:], env=env, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(60):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
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
async def kubernetes(
    machines: Sequence[Machine] = (Machine("m0"), Machine("m1")), *, refused: bool = False
) -> AsyncIterator[Kube]:
    """`refused`: the operator may be refused something."""
    root = Path(tempfile.mkdtemp(prefix="spritz-clusters-"))
    os.chmod(root, 0o755)  # sshd reads keys as the user that comes
    try:
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(KubeServer())
            nodes = await stack.enter_async_context(Nodes(server, machines))
            api = await stack.enter_async_context(Api.connect(server.kubeconfig))
            await define(api)
            await install(api, "clusters")
            # With the rights that the packaged role gives, and no others.
            limited = await stack.enter_async_context(Api.connect(server.service_account("spritz", "spritz-clusters")))
            log: list[Json] = []

            async with asyncio.TaskGroup() as group:

                def operator(ahead: float = 0.0) -> asyncio.Task[None]:
                    clusters = Clusters(
                        limited,
                        lambda event, **fields: log.append({"event": event, **fields}),
                        address=lambda cluster: nodes.service_url("default", "lab-rest", REST_PORT),
                        now=lambda: time.time() + ahead,
                    )
                    kube.clusters = clusters
                    return group.create_task(clusters.run())

                async def restart() -> None:
                    running[0].cancel()
                    await asyncio.wait([running[0]])
                    running[0] = operator()

                kube = Kube(server, api, nodes, root, restart)
                kube.second = lambda ahead: running.append(operator(ahead))
                running = [operator()]
                try:
                    yield kube
                finally:
                    if os.environ.get("KEEP"):
                        (root / "operator.log").write_text("\n".join(map(str, log)))
                        shutil.copytree(nodes.root, root / "nodes", ignore_dangling_symlinks=True)
                    for task in running:
                        task.cancel()
                    assert refused or not [line for line in log if "forbidden" in str(line)]
                    assert not nodes.failures
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
                return drained and "its NodeSets: big" in str(found["status"])

            await until(waits, "the node is drained, and the cluster says what it waits for")
            await kube.running(1)
            assert not await kube.gone("big")
            await kube.command("scancel", "-n", "wrap")
            await until(lambda: kube.gone("big"), "the NodeSet is gone")

            async def over() -> bool:
                pods = (await ask(kube.api, "GET", "api/v1/namespaces/default/pods"))["items"]
                secrets = (await ask(kube.api, "GET", "api/v1/namespaces/default/secrets"))["items"]
                return not pods and not [secret for secret in secrets if "join" in secret["metadata"]["name"]]

            await until(over, "nothing is left")

    asyncio.run(journey())


def test_a_node_set_that_is_deleted_by_force_leaves_no_node() -> None:
    async def journey() -> None:
        async with kubernetes() as kube:
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster())
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("main"))
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("other"))
            await kube.settled("main", nodes=1)
            await kube.settled("other", nodes=1)
            script = "echo $$ > pid.new; mv pid.new pid; exec sleep 600"
            await kube.command("sbatch", "--no-requeue", "-C", "main", "-o", "/dev/null", "--wrap", script)
            pid = kube.root / "pid"

            async def runs() -> bool:
                return pid.exists()

            await until(runs, "the job runs")
            job = psutil.Process(int(pid.read_text()))
            step = job.parent()
            assert step is not None
            force = {"metadata": {"annotations": {"spritz.dev/force-delete": "true"}}}
            await ask(kube.api, "PATCH", f"{SPACE}/nodesets/main", force)
            await ask(kube.api, "DELETE", f"{SPACE}/nodesets/main")

            async def gone() -> bool:
                return await kube.gone("main")

            await until(gone, "the NodeSet is gone")
            assert await kube.command("sinfo", "-h", "-N", "-o", "%N %T") == "other-0 idle\n"
            # A kubelet ends what is in the pod; here only slurmd was ended.
            for process in (step, job):
                process.kill()

    asyncio.run(journey())


def test_a_node_set_scales_for_what_waits_and_back_to_nothing() -> None:
    async def journey() -> None:
        async with kubernetes() as kube:
            kube.nodes.broken.add("cloud-0")
            scaling = {"minReplicas": 0, "maxReplicas": 4, "idleSeconds": 1, "bootSeconds": 10}
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster())
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("cloud", autoscaling=scaling))

            async def known() -> bool:
                if not kube.slurm_conf.exists():
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
            kube.nodes.broken.clear()

            async def asleep() -> bool:
                failed = await kube.command("sinfo", "-h", "-n", "cloud-0", "-o", "%t")
                return not await kube.pods("cloud") and failed == "idle~\n"

            await until(asleep, "idle nodes go, and the one that failed may be chosen again", 90)

    asyncio.run(journey())


def test_a_node_set_per_machine_follows_the_machines() -> None:
    """Machines join, are cordoned and leave; each has one slurmd, named after it, and jobs are waited for."""
    taint = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
    machines = [Machine("m0"), *(Machine(name, {"gpu": "true"}, [taint]) for name in ("g0", "g1"))]

    async def journey() -> None:
        async with kubernetes(machines) as kube:
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster())
            where = {"nodeSelector": {"gpu": "true"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("gpu", perMachine=True, **where))
            await kube.settled("gpu", nodes=2)
            pods = (await ask(kube.api, "GET", "api/v1/namespaces/default/pods"))["items"]
            on = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
            assert {name: on[name] for name in on if name.startswith("gpu")} == {"gpu-g0": "g0", "gpu-g1": "g1"}
            say(await kube.tables("nodesets"))

            kube.nodes.join(Machine("g2", {"gpu": "true"}, [taint]))
            await kube.settled("gpu", nodes=3)
            await kube.command("sbatch", "--wait", "-w", "gpu-g2", "-o", "out", "--wrap", "echo $SLURMD_NODENAME")
            assert (kube.root / "out").read_text() == "gpu-g2\n"

            # A cordoned machine is drained. Its job runs on, and its node goes after the job.
            await kube.command("sbatch", "-w", "gpu-g1", "-o", "/dev/null", "--wrap", "sleep 600")
            await kube.running(1)
            await ask(kube.api, "PATCH", "api/v1/nodes/g1", {"spec": {"unschedulable": True}})

            async def drained() -> bool:
                return "scale-in" in await kube.command("sinfo", "-h", "-n", "gpu-g1", "-o", "%E")

            await until(drained, "the node of the cordoned machine is drained")
            await kube.running(1)

            # No pod with a job is evicted, however many there are.
            await kube.command("sbatch", "-w", "gpu-g0", "-o", "/dev/null", "--wrap", "sleep 600")
            await kube.running(2)
            spaced = "namespaces/default"

            async def counted() -> bool:
                budget = await ask(kube.api, "GET", f"apis/policy/v1/{spaced}/poddisruptionbudgets/gpu")
                return bool(budget.get("status", {}).get("currentHealthy") == 2)

            await until(counted, "both pods are in the budget")
            for name in ("gpu-g0", "gpu-g1"):
                with pytest.raises(ApiFailure, match="disruption budget"):
                    await kube.api.evict(name, "default")
            await kube.command("scancel", "-n", "wrap")
            await kube.settled("gpu", nodes=2)

            async def nodes() -> set[str]:
                return set((await kube.command("sinfo", "-h", "-N", "-o", "%N")).split())

            async def without_g1() -> bool:
                return await nodes() == {"gpu-g0", "gpu-g2"}

            await until(without_g1, "its node has gone")
            await ask(kube.api, "PATCH", "api/v1/nodes/g1", {"spec": {"unschedulable": None}})
            await kube.settled("gpu", nodes=3)

            # A machine that leaves takes its node with it; an update replaces pods under their names.
            await ask(kube.api, "DELETE", "api/v1/nodes/g2")
            await kube.settled("gpu", nodes=2)
            before = await kube.pods("gpu")
            await kube.change("gpu", memory="2Gi", maxUnavailable=2)

            async def replaced() -> bool:
                found = await kube.pods("gpu")
                return set(found) == {"gpu-g0", "gpu-g1"} and set(found.values()).isdisjoint(before.values())

            await until(replaced, "the pods are others")
            await kube.settled("gpu", nodes=2)
            assert await nodes() == {"gpu-g0", "gpu-g1"}
            with pytest.raises(ApiFailure, match="stays per machine or not"):
                await kube.change("gpu", perMachine=False)
            await ask(kube.api, "DELETE", f"{SPACE}/nodesets/gpu")
            await until(lambda: kube.gone("gpu"), "the NodeSet is gone")

    asyncio.run(journey())


def test_a_changed_configuration_is_applied_without_another_pod() -> None:
    """What slurmctld can take while it runs reaches it; for the rest its pod alone is replaced. (That files reach the
    slurmds of other machines is shown by tests/machines/test_journey.py: here all are on this machine.)
    """

    async def journey() -> None:
        async with kubernetes() as kube:
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster())
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("main", cpus=2))
            await kube.settled("main", nodes=1)
            await kube.command("sbatch", "--mem=100", "-J", "train", "-o", "/dev/null", "--wrap", "sleep 600")
            await kube.running(1)
            before = await kube.all_pods()

            async def change(**spec: Any) -> None:
                await ask(kube.api, "PATCH", f"{SPACE}/spritzclusters/lab", {"spec": spec})

            async def applied() -> bool:
                found = await ask(kube.api, "GET", f"{SPACE}/spritzclusters/lab")
                current = found["status"]["observedGeneration"] == found["metadata"]["generation"]
                state = [each for each in found["status"]["conditions"] if each["type"] == "Configured"]
                return bool(current and state[0]["status"] == "True")

            partitions = [{"name": "main", "default": True}, {"name": "night", "nodeSets": ["main"], "maxTime": "60"}]
            await change(partitions=partitions, extraConfig="SlurmctldParameters=idle_on_node_suspend\n")
            await until(applied, "slurmctld has the configuration")
            assert "night" in await kube.command("sinfo", "-h", "-o", "%P")
            parameters = await kube.command("scontrol", "show", "config")
            assert "enable_configless,idle_on_node_suspend,revision=" in parameters
            await kube.command("sbatch", "-p", "night", "--mem=100", "--wait", "-o", "/dev/null", "--wrap", "true")
            # A NodeSet of cloud nodes is a line of slurm.conf too.
            scaling = {"minReplicas": 0, "maxReplicas": 2}
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("cloud", autoscaling=scaling))

            async def known() -> bool:
                return "cloud-0" in await kube.command("sinfo", "-h", "-N", "-o", "%N")

            await until(known, "slurmctld knows the cloud nodes")
            assert await kube.all_pods() == before
            pods = (await ask(kube.api, "GET", "api/v1/namespaces/default/pods"))["items"]
            assert {status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]} == {0}

            # What it is bound to is taken by its next start.
            await change(extraConfig=f"SlurmctldPidFile={kube.root}/other.pid\n")
            await until(applied, "slurmctld has started with it")
            after = await kube.all_pods()
            assert after["lab-controller-0"] != before["lab-controller-0"]
            assert after["main-0"] == before["main-0"]
            assert after["lab-accounting-0"] == before["lab-accounting-0"]
            await kube.running(1)
            await kube.command("scancel", "-n", "train")

    asyncio.run(journey())


def test_what_goes_wrong_stands_in_a_condition_and_nothing_is_lost() -> None:
    """A quota, an image, rights, a server that is away; and two operators at once, whose clocks differ, without a lease
    that keeps them apart.
    """

    async def journey() -> None:
        async with kubernetes(refused=True) as kube:
            quotas = "api/v1/namespaces/default/resourcequotas"
            await ask(kube.api, "POST", quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "4"}}})
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster())
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("main", replicas=2))

            async def says(words: str) -> None:
                async def look() -> bool:
                    found = (await kube.set("main")).get("status", {}).get("conditions", ())
                    return any(each["status"] == "False" and words in each["message"] for each in found)

                await until(look, f"the NodeSet says {words!r}")

            await says('a pod was refused: pods "main-1" is forbidden: exceeded quota: q')
            await ask(kube.api, "PATCH", f"{quotas}/q", {"spec": {"hard": {"pods": "20"}}})
            await kube.settled("main", nodes=2)
            await kube.command("sbatch", "-J", "train", "-w", "main-0", "-o", "/dev/null", "--wrap", "sleep 600")
            await kube.running(1)

            kube.nodes.broken.add("main-2")
            await kube.change("main", replicas=3)
            await says('main-2: ImagePullBackOff: Back-off pulling image "spritz"')
            kube.nodes.broken.clear()
            await kube.settled("main", nodes=3)

            roles = "apis/rbac.authorization.k8s.io/v1/clusterroles/spritz-clusters"
            rules = (await ask(kube.api, "GET", roles))["rules"]
            less = [rule for rule in rules if "secrets" not in rule["resources"]]
            await ask(kube.api, "PATCH", roles, {"rules": less})
            await kube.change("main", replicas=4)
            await says('cannot patch resource "secrets"')
            await ask(kube.api, "PATCH", roles, {"rules": rules})
            await kube.settled("main", nodes=4)

            kube.second(1800.0)
            before = await kube.all_pods()
            away = kube.server.faults.drop(times=None, user="system:serviceaccount:spritz:spritz-clusters")
            kube.server.drop_watches(abruptly=True)
            await ask(kube.api, "DELETE", "api/v1/namespaces/default/pods/main-3")
            await ask(kube.api, "PATCH", f"{SPACE}/nodesets/main", {"spec": {"replicas": 5}})

            async def tried() -> bool:
                return away.met > 40

            await until(tried, "the operators try again")
            kube.server.faults.clear()
            await kube.settled("main", nodes=5)
            after = await kube.all_pods()
            assert {name: after[name] for name in ("main-0", "main-1", "main-2", "lab-controller-0")} == {
                name: before[name] for name in ("main-0", "main-1", "main-2", "lab-controller-0")
            }
            await kube.running(1)
            await kube.command("scancel", "-n", "train")


@pytest.mark.parametrize("kind", ["tree", "block"])
def test_a_job_gets_nodes_whose_machines_are_in_one_rack(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels of machines are places in the cluster's network; a rack that comes later is another of its units."""
    racks = ["r1", "r1", "r2", "r2"]
    machines = [Machine(f"m{number}", {"example.org/rack": rack}) for number, rack in enumerate(racks)]

    async def journey() -> None:
        async with kubernetes(machines) as kube:
            topology = {"label": "example.org/rack", "kind": kind, "blockSize": 2}
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster(topology=topology))
            for name, rack in (("left", "r1"), ("right", "r2")):
                spec = node_set(name, replicas=2, nodeSelector={"example.org/rack": rack})
                await ask(kube.api, "POST", f"{SPACE}/nodesets", spec)
            for name in ("left", "right"):
                await kube.settled(name, nodes=2)

            async def placed() -> bool:
                shown = await kube.command("scontrol", "show", "topology")
                return "left-[0-1]" in shown and "right-[0-1]" in shown

            await until(placed, "nodes have their places")
            # An operator that starts reads the places, and writes none of them again.
            read: list[str] = []
            written: list[str] = []
            places, update = Control.places, Control.update_node

            async def reads(slurm: Control, network: str) -> dict[str, str]:
                found = await places(slurm, network)
                read.extend(found)
                return found

            async def writes(slurm: Control, name: str, **fields: Any) -> None:
                written.append(f"{name} {fields}")
                await update(slurm, name, **fields)

            monkeypatch.setattr(Control, "places", reads)
            monkeypatch.setattr(Control, "update_node", writes)
            await kube.restart()

            async def looked() -> bool:
                return len(read) == 8  # both NodeSets, at four nodes

            await until(looked, "the new operator has looked at all nodes")
            assert not written
            # A node of the first rack is busy: two nodes that are close are in the other.
            await kube.command("sbatch", "-w", "left-0", "-o", "/dev/null", "--wrap", "sleep 600")
            await kube.running(1)
            done = await kube.command("srun", "-N2", "--switches=1", "sh", "-c", "echo $SLURMD_NODENAME")
            assert sorted(done.split()) == ["right-0", "right-1"]
            # A machine goes to a rack that there was not.
            labels = {"metadata": {"labels": {"example.org/rack": "r3"}}}
            await ask(kube.api, "PATCH", "api/v1/nodes/m3", labels)

            async def moved() -> bool:
                return await kube.answers("scontrol", "show", "topology", "unit=r3") and "right-" in await kube.command(
                    "scontrol", "show", "topology", "unit=r3"
                )

            await until(moved, "the rack is a unit, and has the node", 90)

    asyncio.run(journey())


def test_a_node_whose_pod_goes_at_any_step_comes_back() -> None:
    """Before its image, before it has joined, idle, with a job, in an update that waits for a job."""
    pods = "api/v1/namespaces/default/pods"

    async def journey() -> None:
        async with kubernetes() as kube:
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster())
            kube.nodes.broken.add("main-0")
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("main"))

            async def node() -> str:
                """The name of the pod and its node; while a job has the name of the last, another."""
                (name,) = await kube.pods("main")
                return name

            async def pulls() -> bool:
                return "ImagePullBackOff" in str((await kube.set("main")).get("status"))

            async def replaced(*, eviction: bool = False) -> None:
                before = await kube.pods("main")
                name = await node()
                if eviction:
                    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
                    await ask(kube.api, "POST", f"{pods}/{name}/eviction", body)
                else:
                    await ask(kube.api, "DELETE", f"{pods}/{name}", {"gracePeriodSeconds": 0})

                async def another() -> bool:
                    found = await kube.pods("main")
                    return len(found) == 1 and set(found.values()).isdisjoint(before.values())

                await until(another, "another pod", 90)

            await until(pulls, "its image cannot be had")
            await replaced()
            kube.nodes.broken.clear()

            async def started() -> bool:
                return bool((await ask(kube.api, "GET", f"{pods}/{await node()}"))["status"].get("containerStatuses"))

            await until(started, "it starts")
            await replaced()
            await kube.settled("main", nodes=1)

            await replaced(eviction=True)
            await kube.settled("main", nodes=1)

            await kube.command("sbatch", "--requeue", "-J", "train", "-o", "/dev/null", "--wrap", "sleep 600")
            for restarts in (1, 2):
                await kube.running(1)
                name = await node()
                if restarts == 2:
                    await kube.change("main", memory="2Gi")

                    async def drained(name: str = name) -> bool:
                        return "update" in await kube.command("sinfo", "-h", "-n", name, "-o", "%E")

                    await until(drained, "the update waits for the job")
                await replaced()

                async def again(restarts: int = restarts) -> bool:
                    told = await kube.command("scontrol", "show", "job", "1")
                    return f"Restarts={restarts} " in told and "JobState=RUNNING" in told

                await until(again, "the job runs again, long before SlurmdTimeout", 180)
            await kube.command("scancel", "-n", "train")
            await kube.settled("main", nodes=1)

            async def clean() -> bool:
                return await kube.command("sinfo", "-h", "-N", "-o", "%N %T %E") == f"{await node()} idle none\n"

            await until(clean, "the node serves, and no other is left")

    asyncio.run(journey())


#: What slurmd finds on a machine with two GPUs: their control device, and NVML.
_CONTROL = """\
import os.path
exists = os.path.exists
os.path.exists = lambda path: path == "/dev/nvidiactl" or exists(path)
"""
_NVML = """\
import sys
from tests.unit.node.test_autodetect import FakeNvml
sys.modules["pynvml"] = FakeNvml("NVIDIA L4", "NVIDIA L4")
"""


@pytest.mark.parametrize("scaled", [False, True])
def test_jobs_on_a_node_set_share_its_gpus(scaled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(_CONTROL)
    (tmp_path / "pynvml.py").write_text(_NVML)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    more = {"autoscaling": {"maxReplicas": 1}} if scaled else {"replicas": 1}

    async def journey() -> None:
        async with kubernetes([Machine("m0", resources={"nvidia.com/gpu": "2"})]) as kube:
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster(healthCheck={"program": ""}))
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("gpu", cpus=2, gpus=2, shards=8, **more))

            async def known() -> bool:
                return kube.slurm_conf.exists() and "shard:8" in await kube.command("sinfo", "-h", "-o", "%G")

            await until(known, "the node is known with its shards")
            shown = "echo $SLURM_SHARDS_ON_NODE $CUDA_VISIBLE_DEVICES"
            # (Before this line, srun may say that it waits for the node.)
            shards, _gpu = (await kube.command("srun", "--gres=shard:3", "sh", "-c", shown)).split()[-2:]
            assert shards == "3"
            # Two jobs have shards of different GPUs, of which none is left as a whole.
            for count in (4, 1):
                words = [f"--gres=shard:{count}", "--mem=100", "-o", "/dev/null", "--wrap", "sleep 600"]
                await kube.command("sbatch", *words)
            await kube.running(2)
            await kube.command("scancel", "-t", "R", "-n", "wrap")
            await kube.running(0)
            both = await kube.command("srun", "--gres=gpu:2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
            assert both.split()[-1] == "0,1"
            with pytest.raises(AssertionError, match="Requested node configuration is not available"):
                await kube.command("srun", "--gres=shard:5", "true")

    asyncio.run(journey())


def test_bad_resources_are_refused_with_the_field() -> None:
    async def journey() -> None:
        async with KubeServer() as server, Api.connect(server.kubeconfig) as api:
            await define(api)
            two = [{"name": "a", "default": True}, {"name": "b", "default": True}]
            for path, body, words in (
                ("nodesets", node_set("n", gpus=2, shards=3), "shards are shares of gpus"),
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
    chart = pytest.importorskip("tools.chart", reason="Helm's library has no wheel for this processor")
    file = tmp_path / "values.yaml"
    file.write_text(VALUES)
    made = chart.render(chart.values_of(file), namespace="default")

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

            # A mistake in the configuration is told, and harms no daemon.
            change = {"spec": {"extraConfig": "SchedulerParameters=defer\nSchedulerTimeSlize=30\n"}}
            await ask(kube.api, "PATCH", f"{SPACE}/spritzclusters/lab", change)

            async def told() -> bool:
                found = await ask(kube.api, "GET", f"{SPACE}/spritzclusters/lab")
                return 'spec.extraConfig, line 2: Unknown key "SchedulerTimeSlize"' in str(found["status"])

            await until(told, "the mistake is told with its line")
            say(await kube.tables("spritzclusters"))
            await kube.running(1)
            await ask(kube.api, "PATCH", f"{SPACE}/spritzclusters/lab", {"spec": {"extraConfig": ""}})

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

            async def replaced() -> bool:
                return (await kube.pods("small")).get("small-1", busy) != busy

            await until(replaced, "the pod of the job is replaced after the job")
            await kube.settled("small", nodes=2)
            await kube.settled("big", nodes=1)
            say(await kube.command("sacct", "-X", "-o", "JobID,JobName,State,ExitCode,NodeList"))

            async def clean() -> bool:
                return await kube.command("sinfo", "-h", "-o", "%t %D") == "idle 3\n"

            await until(clean, "no node stays drained")
            say(await kube.tables("nodesets"))

    asyncio.run(journey())


def test_the_server_with_nodes_and_operator_runs_by_hand() -> None:
    """The quick start without Kubernetes: a cluster from the packaged manifests, jobs, and nothing left at its end."""
    words = [sys.executable, "-m", "spritz_testing.kubernetes", "--operator", "crds.yaml", "example.yaml"]

    async def journey() -> str:
        process = await asyncio.create_subprocess_exec(
            *words, cwd=PACKAGED, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(60):
                lines = [(await process.stdout.readline()).decode().strip() for _ in range(2)]
            said = dict(line.removeprefix("export ").split("=", 1) for line in lines)
            env = {**os.environ, "SLURM_CONF": said["SLURM_CONF"]}

            async def command(*words: str) -> str:
                asked = await asyncio.create_subprocess_exec(
                    str(BIN / words[0]), *words[1:], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
                return (await asked.communicate())[0].decode()

            async def idle() -> bool:
                return await command("sinfo", "-h", "-p", "main", "-o", "%t %D") == "idle 3\n"

            await until(idle, "three nodes")
            assert "Submitted" in await command("sbatch", "--wait", "-o", "/dev/null", "--wrap", "true")
        finally:
            process.terminate()
            async with asyncio.timeout(60):
                await process.communicate()
        assert process.returncode == 0
        return said["SLURM_CONF"]

    assert not Path(asyncio.run(journey())).exists()


def test_a_hundred_idle_node_sets_cost_no_writes() -> None:
    async def journey() -> None:
        async with kubernetes() as kube:
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster())
            scaling = {"minReplicas": 0, "maxReplicas": 2}
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("one"))
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("cloud", autoscaling=scaling))
            for number in range(98):
                await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set(f"set-{number}", replicas=0))
            await kube.settled("one", nodes=1)

            async def ready() -> bool:
                found = (await ask(kube.api, "GET", f"{SPACE}/nodesets"))["items"]
                return all(
                    [each["status"] for each in one.get("status", {}).get("conditions", ())] == ["True"]
                    for one in found
                )

            await until(ready, "all NodeSets are ready")
            keys = [("NodeSet", key) for key in sorted(kube.clusters.node_sets.keys())]
            keys += [("SpritzCluster", "default/lab")]
            counts = []
            for _ in range(3):  # the first look may still have something to say
                before = kube.server.writes()
                for key in keys:
                    await kube.clusters.look(key)
                counts.append(kube.server.writes() - before)
            assert len(keys) == 101
            assert counts[1:] == [0, 0]

    asyncio.run(journey())


CHECK = """\
#!/bin/sh
exec {bin}/spritz-health-check --kernel-log {root}/kmsg-$SLURMD_NODENAME
"""


def test_a_faulty_machine_is_drained_rebooted_checked_and_returned() -> None:
    """slurmd's own program finds an Xid, a condition of the node moves the pods, and idle machines burn in."""
    taint = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
    labels = {"gpu": "true", "topology.kubernetes.io/zone": "z1"}
    machines = [Machine("m0"), *(Machine(name, labels, [taint]) for name in ("g0", "g1"))]

    async def journey() -> None:
        async with kubernetes(machines) as kube:
            check = kube.root / "check.sh"
            check.write_text(CHECK.format(bin=BIN, root=kube.root))
            check.chmod(0o755)
            about = {"healthCheck": {"program": str(check), "intervalSeconds": 1}}
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster(**about))
            health = {
                "onFault": "Reboot",
                "requeueJobs": True,
                "drainOn": ["GpuUnhealthy"],
                "burnIn": {"command": "true", "minutes": 1},
            }
            where = {"nodeSelector": {"gpu": "true"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("gpu", replicas=2, health=health, **where))
            await kube.settled("gpu", nodes=2)

            async def events(kind: str, name: str) -> list[str]:
                found = await ask(kube.api, "GET", "api/v1/namespaces/default/events")
                about = [each for each in found["items"] if each["involvedObject"]["kind"] == kind]
                about = [each for each in about if each["involvedObject"]["name"] == name]
                return [f"{each['reason']}: {each['message']}" for each in sorted(about, key=_version)]

            async def burned_in() -> bool:
                return sum("BurnInPassed" in line for line in await events("NodeSet", "gpu")) == 2

            async def labelled() -> bool:
                return await kube.command("sinfo", "-h", "-o", "%f %D") == "gpu,z1 2\n"

            await until(labelled, "labels of the machines are features of the nodes")
            await until(burned_in, "idle machines burn in, one after another")

            # A job runs when the GPU falls off the bus.
            await kube.command("sbatch", "--requeue", "-J", "train", "-o", "/dev/null", "--wrap", "sleep 600")
            await kube.running(1)
            name = (await kube.command("squeue", "-h", "-n", "train", "-o", "%N")).strip()
            machine = (await ask(kube.api, "GET", f"api/v1/namespaces/default/pods/{name}"))["spec"]["nodeName"]
            log = kube.root / f"kmsg-{name}"
            kube.nodes.on_boot = lambda _name: log.unlink()
            boot = (await ask(kube.api, "GET", f"api/v1/nodes/{machine}"))["status"]["nodeInfo"]["bootID"]
            log.write_text("4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.\n")

            async def requeued() -> bool:
                return (await kube.command("squeue", "-h", "-n", "train", "-O", "ExcNodes")).strip() == name

            await until(requeued, "the job queues again, for the other node")
            await kube.command("scancel", "-n", "train")

            async def returned() -> bool:
                return any("MachineReturned" in line for line in await events("Node", machine))

            await until(returned, "the machine is in use again")
            now = await ask(kube.api, "GET", f"api/v1/nodes/{machine}")
            assert now["status"]["nodeInfo"]["bootID"] != boot
            assert "spritz.dev/health" not in now["metadata"]["annotations"]
            found = await events("NodeSet", "gpu")
            say("\n".join(found))
            assert [line.split(":")[0] for line in found if "Burn" not in line] == [
                "MachineFault",
                "JobRequeued",
                "Rebooting",
                "Rebooted",
                "MachineReturned",
            ]
            assert "gpu-xid: Xid 79 on GPU 0000:3b:00 (GPU has fallen off the bus)" in "".join(found)

            async def clean() -> bool:
                nodes = await kube.command("sinfo", "-h", "-o", "%T %E")
                return nodes == "idle none\n" and "health" not in await kube.command("scontrol", "show", "reservation")

            await until(clean, "the node serves, and nothing is left")

            # By another policy, and for a condition of the Kubernetes node, another machine gets the pod.
            await kube.change("gpu", health={"onFault": "Replace"})
            await kube.nodes.fault(machine, "GpuUnhealthy", reason="Xid48")

            async def moved() -> bool:
                pods = (await ask(kube.api, "GET", "api/v1/namespaces/default/pods"))["items"]
                on = [pod["spec"].get("nodeName") for pod in pods if pod["metadata"]["name"].startswith("gpu-")]
                return bool(on) and machine not in on

            await until(moved, "its pod goes")
            assert (await ask(kube.api, "GET", f"api/v1/nodes/{machine}"))["metadata"]["labels"]["spritz.dev/unhealthy"]
            await kube.nodes.fault(machine, "GpuUnhealthy", "False")

            async def allowed() -> bool:
                node = await ask(kube.api, "GET", f"api/v1/nodes/{machine}")
                return "spritz.dev/unhealthy" not in node["metadata"]["labels"]

            await until(allowed, "the machine may have pods again")

    asyncio.run(journey())


@pytest.mark.skipif(bool(databases.reason("postgresql")), reason=databases.reason("postgresql"))
def test_a_standby_controller_takes_over_and_a_dashboard_serves() -> None:
    """Two pods of slurmctld with their journal in PostgreSQL; the machine of the leader loses power."""

    async def journey(server: databases.Server) -> None:
        async with kubernetes((Machine("m0"), Machine("m1"), Machine("m2"))) as kube:
            password = {"metadata": {"name": "pg"}, "data": {"password": base64.b64encode(b"none").decode()}}
            await ask(kube.api, "POST", "api/v1/namespaces/default/secrets", password)
            # The server listens on a Unix socket; its databases have the names that it gave them.
            accounting, journal = (make_url(server.url()) for _ in range(2))
            database = {
                "host": quote(str(accounting.query["host"]), safe=""),
                "user": accounting.username,
                "name": accounting.database,
                "journal": journal.database,
                "passwordSecret": {"name": "pg", "key": "password"},
            }
            dashboard = {"hosts": ["dash.example.org"], "login": "proxy", "proxy": {"from": "127.0.0.0/8"}}
            spec = {"controllers": 2, "database": database, "dashboard": dashboard, "metrics": True}
            await ask(kube.api, "POST", f"{SPACE}/spritzclusters", cluster(**spec))
            await ask(kube.api, "POST", f"{SPACE}/nodesets", node_set("main"))
            await kube.settled("main", nodes=1)
            say(await kube.command("scontrol", "ping"))

            url = kube.nodes.service_url("default", "lab-dashboard", 6860)
            async with httpx2.AsyncClient(headers={"Host": "dash.example.org"}) as client:

                async def greeted() -> bool:
                    try:
                        found = await client.get(f"{url}/", headers={"X-Remote-User": "root"})
                    except httpx2.HTTPError:
                        return False
                    return found.status_code in (200, 303)

                await until(greeted, "the dashboard answers")

                async def measured() -> bool:
                    metrics = kube.nodes.service_url("default", "lab-metrics", 6817)
                    return "slurm_" in (await client.get(f"{metrics}/metrics")).text

                await until(measured, "the leader's metrics are served")

            await kube.command("sbatch", "-J", "train", "-o", "/dev/null", "--wrap", "sleep 600")
            await kube.running(1)
            pods = (await ask(kube.api, "GET", "api/v1/namespaces/default/pods"))["items"]
            where = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
            await kube.nodes.kill("default", "lab-controller-0")

            async def taken_over() -> bool:
                try:
                    return "lab-controller-1 leads" in await kube.command("scontrol", "ping")
                except AssertionError:
                    return False  # none leads yet

            assert where["lab-controller-0"] != where["lab-controller-1"]
            await until(taken_over, "the standby leads")
            await kube.running(1)
            await kube.command("scancel", "-n", "train")
            await kube.command("sbatch", "--wait", "-o", "/dev/null", "--wrap", "true")
            # Pods join, by a Service that leads to the leader and to the standby alike.
            await kube.change("main", replicas=2)
            await kube.settled("main", nodes=2)

            # Parts that the cluster no longer has go.
            change = {"spec": {"dashboard": None, "metrics": False}}
            await ask(kube.api, "PATCH", f"{SPACE}/spritzclusters/lab", change)

            async def gone() -> bool:
                services = (await ask(kube.api, "GET", "api/v1/namespaces/default/services"))["items"]
                return not {"lab-dashboard", "lab-metrics"} & {service["metadata"]["name"] for service in services}

            await until(gone, "the dashboard is gone")

    with databases.server("postgresql") as server:
        asyncio.run(journey(server))


def _version(each: Json) -> int:
    return int(each["metadata"]["resourceVersion"])


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
                return "1 of 1 login hosts serve" in str(found) and bool(kube.nodes.own_ports)

            await until(ready, "the login host is ready")
            (((_namespace, pod, _port), port),) = kube.nodes.own_ports.items()

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
            conf = kube.nodes.root / "default" / pod / "state/etc/slurm.conf"
            assert text.split() == ["main*", "1", "idle", str(conf)]

            async def kept() -> Json:
                found = await ask(kube.api, "GET", f"{SPACE}/tokens/team")
                return found if found.get("status", {}).get("expiresAt") else {}

            assert (await until(kept, "the token is kept"))["status"]["conditions"][0]["status"] == "True"
            secret = (await ask(kube.api, "GET", "api/v1/namespaces/default/secrets/team"))["data"]
            assert base64.b64decode(secret["token"]).startswith(b"spz")
            assert base64.b64decode(secret["address"]) == b"lab-controller.default:6817"

    asyncio.run(journey())
