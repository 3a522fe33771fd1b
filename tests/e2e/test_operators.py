"""Two operators at once, as processes with the packaged rights: the leader is killed, paused and cut off."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from spritz.k8s.slurm import Slurm
from spritz_testing.kubernetes.server import KubeServer
from tests.e2e.cluster import user_name
from tests.e2e.rest_site import BIN, Site
from tests.e2e.test_pods import Kube, kubernetes, site, until

__all__ = ["site"]

pytestmark = pytest.mark.slow

PACKAGED = Path(__file__).parents[2] / "packaging/kubernetes/operator.yaml"
RBAC = "rbac.authorization.k8s.io/v1"
SECONDS = 2.0


class Operators:
    """By name. Each is a user of its own, so that the server can cut it off."""

    def __init__(self, server: KubeServer, slurmrestd: str, root: Path) -> None:
        self._server = server
        self._slurmrestd = slurmrestd
        self._root = root
        self.running: dict[str, asyncio.subprocess.Process] = {}

    async def install(self, kube: Kube, *names: str) -> None:
        """The packaged roles, for these users."""
        for text in yaml.safe_load_all(PACKAGED.read_text()):
            if text["kind"] == "Namespace":
                await kube.ask("POST", "api/v1/namespaces", text)
            elif text["kind"] in ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"):
                if "subjects" in text:
                    text["subjects"] = [
                        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name} for name in names
                    ]
                namespace = text["metadata"].get("namespace")
                where = f"namespaces/{namespace}/" if namespace else ""
                await kube.ask("POST", f"apis/{RBAC}/{where}{text['kind'].lower()}s", text)

    async def start(self, name: str) -> None:
        kubeconfig = self._server.user(name, namespace="spritz")
        policy = self._root / "policy.yaml"
        policy.write_text(f'namespaces: {{"*": {{user: {user_name()}}}}}')
        words = [str(BIN / "spritz-operator"), "--slurmrestd", self._slurmrestd, "--kubeconfig", str(kubeconfig)]
        words += ["--policy", str(policy)]
        with (self._root / f"{name}.log").open("ab") as log:
            self.running[name] = await asyncio.create_subprocess_exec(
                *words, "--lease-seconds", str(SECONDS), stderr=log
            )

    def events(self, name: str) -> list[dict[str, Any]]:
        text = (self._root / f"{name}.log").read_bytes()
        return [msgspec.json.decode(line) for line in text.splitlines() if line.startswith(b"{")]

    def words(self, name: str) -> str:
        """What it has written beside its events: a traceback."""
        lines = (self._root / f"{name}.log").read_text().splitlines()
        return "\n".join(line for line in lines if not line.startswith("{"))

    async def leader(self, *, but: str = "") -> str:
        """Who has the lease, when another has it than `but`."""

        async def look() -> str:
            lease = self._server.cluster._find("leases", "spritz", "spritz-operator")
            holder = (lease or {}).get("spec", {}).get("holderIdentity", "")
            return next(
                (
                    name
                    for name in self.running
                    if name != but and any(event.get("identity") == holder for event in self.events(name) if holder)
                ),
                "",
            )

        found: str = await until(look, f"a leader other than {but or 'none'}")
        return found

    async def stop(self) -> None:
        for process in self.running.values():
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.running.values():
            await process.wait()


async def wave(kube: Kube, first: int, count: int = 12) -> list[str]:
    names = [f"p{number}" for number in range(first, first + count)]
    for name in names:
        await kube.pod(name)
    return names


async def finished(kube: Kube, names: list[str]) -> None:
    for name in names:
        await kube.bound(name)
    for name in names:
        await kube.phase(name, "Succeeded")


def test_nothing_is_done_twice_when_the_leader_is_killed_paused_or_cut_off(site: Site, tmp_path: Path) -> None:
    async def journey() -> None:
        async with kubernetes(site) as (kube, slurm, server):
            await kube.node("n1", cpus=64)
            operators = Operators(server, f"unix:{site.socket}", tmp_path)
            await operators.install(kube, "one", "two")
            try:
                await operators.start("one")
                await operators.start("two")
                leader = await operators.leader()
                await finished(kube, await wave(kube, 0))

                names = await wave(kube, 100)
                operators.running[leader].kill()  # with pods of which some have a job, and some a node
                await operators.running[leader].wait()
                await finished(kube, names)
                killed, leader = leader, await operators.leader(but=leader)
                await operators.start(killed)

                names = await wave(kube, 200)
                os.kill(operators.running[leader].pid, signal.SIGSTOP)
                second = await operators.leader(but=leader)
                os.kill(operators.running[leader].pid, signal.SIGCONT)
                await finished(kube, names)

                names = await wave(kube, 300)
                server.faults.drop(times=None, user=second)
                third = await operators.leader(but=second)
                await finished(kube, names)
                server.faults.clear()

                await finished(kube, await wave(kube, 400))
                await _accounted(slurm, server)
                # The standby waits, and watches nothing.
                assert not [
                    each for each in list(server.log)[-20:] if each.user not in (third, "kubernetes-admin")
                    and each.resource != "leases"
                ]  # fmt: skip
                crashed = [name for name, each in operators.running.items() if each.returncode is not None]
                assert not crashed, operators.words(crashed[0])
            finally:
                await operators.stop()

    asyncio.run(journey())


async def _accounted(slurm: Slurm, server: KubeServer) -> None:
    """A job for each pod, and a binding."""

    async def ended() -> bool:
        jobs = [job for job in await slurm.jobs() if job.admin_comment.startswith("kubernetes:pod/default/p")]
        return len(jobs) >= 60 and all(job.state == "COMPLETED" for job in jobs)

    await until(ended, "all jobs have ended")
    jobs = Counter(
        job.admin_comment for job in await slurm.jobs() if job.admin_comment.startswith("kubernetes:pod/default/p")
    )
    assert (len(jobs), set(jobs.values())) == (60, {1})
    bound = Counter(each.name for each in server.log if each.subresource == "binding" and each.code == 201)
    assert {name: count for name, count in bound.items() if count != 1} == {}
