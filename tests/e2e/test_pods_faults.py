"""Pods in the queue when things go wrong: pods that go at any step, a server that refuses or is away, lost rights."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from spritz.k8s.api import Api
from spritz.k8s.operator import operate
from spritz.k8s.policy import Policy, read
from spritz.k8s.scheduling.placing import COMMENT
from spritz.k8s.slurm import Slurm
from spritz_testing.kubernetes.server import KubeServer
from tests.e2e.rest_site import Site, token
from tests.e2e.test_pods import OWN, Json, Kube, command, kubernetes, until
from tests.unit.k8s.test_chart import apply

pytestmark = pytest.mark.slow

PACKAGED = Path(__file__).parents[2] / "packaging/kubernetes/operator.yaml"
PODS = "api/v1/namespaces/default/pods"
BINDINGS = "apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
OPERATOR = "system:serviceaccount:spritz:spritz-operator"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Two virtual nodes of ours; nodes of Kubernetes come by the operator."""
    with Site.configured("MaxNodeCount=16", "GresTypes=gpu", "Licenses=matlab:4") as made:
        yield made


@asynccontextmanager
async def operating(site: Site, server: KubeServer, policy: Policy | None = None) -> AsyncIterator[None]:
    """The operator with the packaged rights, and with a token, without which it cannot act for other users."""
    slurm = Slurm(f"http://127.0.0.1:{site.port}", token())
    try:
        async with (
            Api.connect(server.service_account("spritz", "spritz-operator")) as api,
            asyncio.TaskGroup() as group,
        ):
            task = group.create_task(operate(api, slurm, policy or OWN))
            try:
                yield
                assert not task.done(), "it ended by itself"
            finally:
                task.cancel()
    finally:
        await slurm.close()


@asynccontextmanager
async def scene(site: Site) -> AsyncIterator[tuple[Kube, Slurm, KubeServer]]:
    async with kubernetes(site) as (kube, slurm, server):
        await apply(kube.api, list(yaml.safe_load_all(PACKAGED.read_text())))
        # Of this file's tests no webhook is served.
        await kube.ask("DELETE", "apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/spritz-webhooks")
        await kube.ask("DELETE", "apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/spritz-webhooks")
        yield kube, slurm, server


async def ours(slurm: Slurm) -> list[Any]:
    """Jobs of pods that have not ended."""
    return [job for job in await slurm.jobs() if job.admin_comment.startswith(COMMENT) and not job.is_gone]


async def nothing_left(slurm: Slurm) -> None:
    async def look() -> bool:
        return not await ours(slurm)

    await until(look, "no job is left")


async def remove(kube: Kube, name: str, way: str) -> None:
    """As a user, as `kubectl drain`, or by force; and the kubelet ends the pod."""
    if way == "evict":
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        await kube.ask("POST", f"{PODS}/{name}/eviction", body)
    else:
        await kube.ask("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0} if way == "force" else None)
    if await kube.get(name) is not None:
        await kube.ask("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


@pytest.mark.parametrize("way", ["delete", "evict", "force"])
def test_a_pod_that_goes_at_any_step_leaves_nothing(site: Site, way: str) -> None:
    """Each step of its life in turn; then a pod gets the whole node, which none of what went has kept."""

    async def made(kube: Kube, slurm: Slurm, server: KubeServer) -> None:
        pass

    async def queued(kube: Kube, slurm: Slurm, server: KubeServer) -> None:
        await kube.until("goes", lambda pod: "CPUs are short" in str(pod["status"]))

    async def running(kube: Kube, slurm: Slurm, server: KubeServer) -> None:
        async def look() -> bool:
            return any(job.is_running for job in await ours(slurm))

        await until(look, "its job runs")

    async def bound(kube: Kube, slurm: Slurm, server: KubeServer) -> None:
        await kube.bound("goes")

    async def started(kube: Kube, slurm: Slurm, server: KubeServer) -> None:
        await bound(kube, slurm, server)
        await kube.phase("goes", "Running")

    async def ended(kube: Kube, slurm: Slurm, server: KubeServer) -> None:
        await bound(kube, slurm, server)
        await kube.phase("goes", "Failed", 3)

    async def whole_node(kube: Kube, name: str) -> None:
        await kube.pod(name, "2")
        await kube.bound(name)

    async def free(kube: Kube, name: str) -> None:
        await kube.phase(name, "Succeeded")
        await kube.ask("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    async def journey() -> None:
        async with scene(site) as (kube, slurm, server):
            await kube.node("kf", cpus=2)
            async with operating(site, server):
                for step in (made, queued, running, bound, started, ended):
                    if step is queued:
                        await whole_node(kube, "before")
                    if step is running:
                        server.faults.error(500, subresource="binding", times=None)
                    await kube.pod("goes", "2")
                    await step(kube, slurm, server)
                    await remove(kube, "goes", way)
                    server.faults.clear()
                    if step is queued:
                        await free(kube, "before")
                    await whole_node(kube, "after")
                    assert len(await ours(slurm)) == 1, step.__name__
                    await free(kube, "after")
                    await nothing_left(slurm)
                await kube.ask("DELETE", "api/v1/nodes/kf")

    asyncio.run(journey())


def test_nothing_is_lost_or_done_twice_when_the_server_refuses_or_is_away(site: Site) -> None:
    """A storm of 429, then no answer at all while jobs and pods end; its clock is an hour ahead."""

    async def journey() -> None:
        async with scene(site) as (kube, slurm, server):
            server.cluster.skew = 3600.0
            await kube.node("ks", cpus=8)
            async with operating(site, server):
                await kube.pod("first")
                await kube.bound("first")
                storm = server.faults.error(429, times=150, user=OPERATOR)
                names = [f"p{number}" for number in range(6)]
                for name in names:
                    await kube.pod(name)
                for name in names:
                    await kube.bound(name)
                assert storm.met == 150

                away = server.faults.drop(times=None, user=OPERATOR)
                server.drop_watches(abruptly=True)
                await kube.phase("p0", "Succeeded")
                await kube.ask("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 0})
                job = ((await kube.get("p2")) or {})["metadata"]["annotations"]["spritz.dev/job-id"]
                await asyncio.to_thread(command, site, "scancel", job)
                await kube.pod("late")

                async def tried() -> bool:
                    return away.met > 30

                await until(tried, "the operator tries again")
                server.faults.clear()
                await kube.gone("p2")
                await kube.bound("late")
                for name in ("first", "p3", "p4", "p5", "late"):
                    pod = await kube.get(name)
                    assert pod is not None
                    assert "deletionTimestamp" not in pod["metadata"], name
                    await kube.phase(name, "Succeeded")
                await nothing_left(slurm)
                mine = Counter(job.admin_comment for job in await slurm.jobs() if job.admin_comment.startswith(COMMENT))
                names = [comment.split("/")[2] for comment in mine]
                assert all(names.count(name) == 1 for name in ("first", "late", *(f"p{n}" for n in range(6))))
                assert set(mine.values()) == {1}
                bound = Counter(each.name for each in server.log if each.subresource == "binding" and each.code == 201)
                assert set(bound.values()) == {1}
                await kube.ask("DELETE", "api/v1/nodes/ks")

    asyncio.run(journey())


def test_an_operator_whose_rights_are_revoked_goes_on_when_it_has_them_again(site: Site) -> None:
    async def journey() -> None:
        async with scene(site) as (kube, slurm, server):
            await kube.node("kr", cpus=8)
            async with operating(site, server):
                await kube.pod("runs")
                await kube.bound("runs")
                binding = await kube.ask("GET", f"{BINDINGS}/spritz-operator")
                await kube.ask("DELETE", f"{BINDINGS}/spritz-operator")
                server.drop_watches()
                await kube.phase("runs", "Succeeded")
                await kube.pod("waits")

                async def refused() -> bool:
                    return sum(each.code == 403 for each in server.log) > 5

                await until(refused, "the server refuses what the operator asks")
                pod = await kube.get("waits")
                assert pod is not None
                assert not pod["spec"].get("nodeName")
                metadata = {"name": "spritz-operator"}
                await kube.ask("POST", BINDINGS, {**binding, "metadata": metadata})
                await kube.bound("waits")
                await kube.phase("waits", "Succeeded")
                await nothing_left(slurm)
                await kube.ask("DELETE", "api/v1/nodes/kr")

    asyncio.run(journey())


def test_a_job_whose_comment_a_user_forged_is_not_a_pods(site: Site) -> None:
    async def journey() -> None:
        async with scene(site) as (kube, slurm, server):
            await kube.node("kc", cpus=8)
            await kube.pod("mine")
            pod = await kube.get("mine")
            assert pod is not None
            comment = f"{COMMENT}pod/default/mine/{pod['metadata']['uid']}"
            words = ["--parsable", "--mem=100", f"--comment={comment}", "--output=/dev/null", "--wrap", "sleep 600"]
            forged = await asyncio.to_thread(command, site, "sbatch", *words)
            for _ in range(2):
                async with operating(site, server):
                    job = (await kube.bound("mine"))["metadata"]["annotations"]["spritz.dev/job-id"]
                    assert job != forged
                    assert [str(each.id) for each in await ours(slurm)] == [job]
            async with operating(site, server):
                await asyncio.to_thread(command, site, "scancel", forged)
                await kube.phase("mine", "Succeeded")
                await nothing_left(slurm)
                states = await asyncio.to_thread(command, site, "sacct", "-nPX", "-j", f"{job},{forged}", "-o", "State")
                assert sorted(line.split()[0] for line in states.splitlines()) == ["CANCELLED", "COMPLETED"]
                await kube.ask("DELETE", "api/v1/nodes/kc")

    asyncio.run(journey())


def test_a_pod_without_a_user_in_the_policy_waits_and_says_why(site: Site) -> None:
    """Where no webhook refused it: it would be a job of the token's user."""

    async def journey() -> None:
        async with scene(site) as (kube, slurm, server):
            await kube.node("nu", cpus=8)
            async with operating(site, server, Policy()):
                await kube.pod("stranger", annotations={"spritz.dev/priority": "4000000000"})
                waits = await kube.until("stranger", lambda pod: "no rule of the policy" in str(pod.get("status")))
                assert "names a user for namespace default" in str(waits["status"]["conditions"])

                async def event() -> Json | None:
                    listed = (await kube.ask("GET", "api/v1/namespaces/default/events"))["items"]
                    return next((each for each in listed if "no rule of the policy" in each["message"]), None)

                said = await until(event, "an event")
                assert (said["reason"], said["type"]) == ("FailedScheduling", "Warning")
                assert said["lastTimestamp"]
                assert await ours(slurm) == []

    asyncio.run(journey())


POLICY = """\
namespaces:
  "*":
    {user: USER, account: lab,
     allow: {partition: [night], qos: [inference], reservation: ["*"], licenses: [matlab], priority: 4321}}
serviceAccounts:
  default/serving:
    {user: nobody, account: products, qos: inference, allow: {account: [lab], qos: [normal]}}
"""


def test_annotations_and_policy_are_options_of_the_job(site: Site) -> None:
    """Account, partition, QOS, time limit, reservation, priority, licenses, user; Slurm says what may not be."""

    async def shown(job: str, fields: str) -> list[str]:
        return (await asyncio.to_thread(command, site, "squeue", "-h", "-j", job, "-O", fields)).split()

    async def pod(kube: Kube, name: str, service_account: str = "", **notes: str) -> Json:
        asked = {"cpu": "1"}
        spec: Json = {"schedulerName": "spritz", "restartPolicy": "Never"}
        spec["containers"] = [{"name": "main", "image": "b", "resources": {"requests": asked, "limits": asked}}]
        spec |= {"serviceAccountName": service_account} if service_account else {}
        annotations = {f"spritz.dev/{key.replace('_', '-')}": text for key, text in notes.items()}
        await kube.ask("POST", PODS, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})
        return await kube.until(name, lambda pod: "PodScheduled" in str(pod.get("status")) or "nodeName" in pod["spec"])

    async def job_of(kube: Kube, name: str) -> str:
        return str((await kube.bound(name))["metadata"]["annotations"]["spritz.dev/job-id"])

    async def journey() -> None:
        for words in (
            ("add", "account", "lab"),
            ("add", "account", "products"),
            ("add", "qos", "inference"),
            ("add", "user", "nobody", "account=products"),
            ("modify", "user", "nobody", "set", "qos+=inference"),
        ):
            await asyncio.to_thread(command, site, "sacctmgr", "-i", *words)
        owner = await asyncio.to_thread(command, site, "scontrol", "show", "config", "SlurmUser")
        user = owner.partition("=")[2].strip().partition("(")[0]
        for account in ("lab", "products"):
            words = ("add", "user", user, f"account={account}", "qos=normal,inference")
            await asyncio.to_thread(command, site, "sacctmgr", "-i", *words)
        site.configure("AccountingStorageEnforce=associations,limits,qos")
        site.configure("PartitionName=main Nodes=ALL Default=YES\nPartitionName=night Nodes=ALL MaxTime=120")
        async with scene(site) as (kube, slurm, server):
            await kube.node("kp", cpus=8)
            path = "api/v1/namespaces/default/serviceaccounts"
            await kube.ask("POST", path, {"metadata": {"name": "serving"}})
            async with operating(site, server, read(POLICY.replace("USER", user))):

                async def there() -> bool:
                    return any(node.name == "kp" for node in await slurm.nodes())

                await until(there, "the node is Slurm's")
                window = [f"users={user}", "nodes=kp", "starttime=now", "duration=60", "flags=overlap"]
                await asyncio.to_thread(
                    command, site, "scontrol", "create", "reservation", "reservationname=r", *window
                )
                await pod(kube, "all", partition="night", qos="inference", time_limit="90", reservation="r",
                          priority="4321", licenses="matlab:2")  # fmt: skip
                job = await job_of(kube, "all")
                fields = (
                    "account:20,partition:20,qos:20,timelimit:20,reservation:20,prioritylong:20,licenses:20,username:20"
                )
                told = await shown(job, fields)
                assert told == ["lab", "night", "inference", "1:30:00", "r", "4321", "matlab:2", user]
                await kube.phase("all", "Succeeded")
                await nothing_left(slurm)
                await asyncio.to_thread(command, site, "scontrol", "delete", "reservationname=r")

                # The service account says user, account and QOS; an annotation counts before the account's.
                await pod(kube, "serves", "serving")
                serves = await job_of(kube, "serves")
                assert await shown(serves, "username:20,account:20,qos:20") == ["nobody", "products", "inference"]
                await pod(kube, "other", "serving", qos="normal")
                other = await job_of(kube, "other")
                assert await shown(other, "username:20,account:20,qos:20") == ["nobody", "products", "normal"]
                # What its user may not have, Slurm refuses in its own words.
                waits = await pod(kube, "never", "serving", account="lab")
                said = str(waits["status"]["conditions"])
                assert "Invalid account or account/partition combination specified" in said
                # What the policy does not allow, is not asked of Slurm.
                waits = await pod(kube, "greedy", priority="4000000000")
                assert "allows pods of namespace default at most 4321" in str(waits["status"]["conditions"])
                for name in ("serves", "other"):
                    await kube.phase(name, "Succeeded")
                await nothing_left(slurm)

    try:
        asyncio.run(journey())
    finally:
        site.configure("AccountingStorageEnforce=none")
