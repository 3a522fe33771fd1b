"""Carries out what `health` decides for the machines of a NodeSet: records, events, reboots, burn-in jobs.

Each step is idempotent: the record is written first, and a step that was cut off is done by the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from lightkube.resources.core_v1 import Node as NodeResource
from lightkube.resources.core_v1 import Pod as PodResource

from spritz.http.rest import RestError
from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.custom_resources.cluster_objects import GROUP, VERSION, Cluster, Json, labels, owner
from spritz.k8s.custom_resources.control import ClusterNode, Control
from spritz.k8s.custom_resources.health import (
    BURNED,
    CHECKED,
    RECORD,
    UNHEALTHY,
    Burned,
    HealthEvent,
    Record,
    Seen,
    burn_in_due,
    burn_in_over,
    judge,
)
from spritz.k8s.custom_resources.node_sets import OURS, Fault, MachineNode, NodePod, NodeSet
from spritz.k8s.events import event_request
from spritz.k8s.watching import Reflector

#: Restarts the machine from a privileged pod in the machine's process namespace.
REBOOT_COMMAND: Final = ("nsenter", "--target", "1", "--mount", "--uts", "--ipc", "--net", "--", "systemctl", "reboot")

#: The burn-in job: runs the command on each node of the machine. Most machines have one node.
_SCRIPT: Final = """\
#!/bin/sh
[ "$SLURM_JOB_NUM_NODES" = 1 ] && exec sh -c '{command}'
exec srun --ntasks-per-node=1 sh -c '{command}'
"""

#: Nice of a scheduled burn-in job, so that any other job starts before it.
_NICE: Final = 1_000_000


class MachineHealth:
    """The health of the machines of all NodeSets. `machines`: the nodes of Kubernetes."""

    def __init__(
        self, api: Api, log: Callable[..., None], machines: Reflector[MachineNode], now: Callable[[], float]
    ) -> None:
        self._api = api
        self._log = log
        self._machines = machines
        self._now = now

    async def look(
        self,
        cluster: Cluster,
        node_set: NodeSet,
        pods: Sequence[NodePod],
        nodes: Mapping[str, ClusterNode],
        slurm: Control,
    ) -> dict[str, Fault]:
        """Take each machine of the NodeSet a step further. Returns the pods whose machines have faults."""
        here: dict[str, list[NodePod]] = {}
        for pod in pods:
            if pod.spec.node_name:
                here.setdefault(pod.spec.node_name, []).append(pod)
        for recorded in self._machines.values():
            if recorded.record is not None and recorded.record.node_set == node_set.metadata.key:
                here.setdefault(recorded.metadata.name, [])
        burning = 0
        faults: dict[str, Fault] = {}
        for name, there in sorted(here.items()):
            machine = self._machines.get(name)
            if machine is None:
                continue
            slurm_nodes = [nodes[pod.metadata.name] for pod in there if pod.metadata.name in nodes]
            record = machine.record
            if record is None or record.node_set == node_set.metadata.key:
                try:
                    record = await self._step(cluster, node_set, machine, slurm_nodes, slurm)
                    burning += await self._burn(node_set, machine, slurm_nodes, slurm, burning) if record is None else 0
                except (RestError, ApiFailure) as failure:
                    # The next look retries. The NodeSet's other machines must not wait for this one.
                    self._log("health.failed", machine=name, error=failure.message)
            fault = self._fault(node_set, machine, record)
            faults.update({pod.metadata.name: fault for pod in there if fault is not None})
        return faults

    def _fault(self, node_set: NodeSet, machine: MachineNode, record: Record | None) -> Fault | None:
        if record is not None and record.phase != "testing":
            return Fault(f"{machine.metadata.name} {record.cause}", record.keeps_pods_away(node_set.spec.health))
        why = machine.fault(node_set.spec.health.drain_on)
        return Fault(why, node_set.spec.health.on_fault == "Replace") if why else None

    async def _step(
        self, cluster: Cluster, node_set: NodeSet, machine: MachineNode, slurm_nodes: list[ClusterNode], slurm: Control
    ) -> Record | None:
        health, record = node_set.spec.health, machine.record
        seen = Seen(machine.metadata.name, machine.boot, machine.condition(health.drain_on), slurm_nodes)
        if record is not None and record.job:
            seen.job_state = await self._state(record.job, slurm)
        check = cluster.spec.health_check
        interval = float(check.interval_seconds) if check.program else 0.0
        verdict = judge(health, node_set.metadata.key, record, seen, self._now(), interval)
        record_after = verdict.record
        if record_after != record:
            away = record_after is not None and record_after.keeps_pods_away(health)
            if record_after is not None and record_after.phase == "rechecking":
                await self._renew(machine, record_after, slurm_nodes, slurm)
            await self._write(machine, {RECORD: _text(record_after)}, away=away)
            for event in verdict.events:
                await self._tell(node_set, machine, event, record_after or record)
        if record_after is None:
            if record is not None:
                await slurm.unreserve(_reservation(machine))
                await self._remove_reboot(node_set, machine, record)
            return None
        if record is None and health.requeue_jobs:
            await self._requeue(node_set, machine, [node.name for node in slurm_nodes], record_after, slurm)
        if health.burn_in is not None and slurm_nodes and not record_after.keeps_pods_away(health):
            # The reservation keeps jobs from starting between the end of the drain and the burn-in.
            await slurm.reserve(_reservation(machine), [node.name for node in slurm_nodes], self._now())
        elif health.burn_in is not None:
            await slurm.unreserve(_reservation(machine))  # nodes in a reservation cannot be deleted
        if record_after.phase == "rebooting":
            await self._reboot(cluster, node_set, machine, record_after)
        elif record is not None and record.phase == "rebooting":
            await self._remove_reboot(node_set, machine, record)
        if record_after.phase == "testing" and not record_after.job and slurm_nodes and health.burn_in is not None:
            key = f"burn-in-{machine.metadata.name}-{record_after.since}-{record_after.at}"
            record_after.job = await slurm.submit(
                _burn_in(node_set, slurm_nodes) | {"reservation": _reservation(machine)}, key
            )
            await self._write(machine, {RECORD: _text(record_after)})
        return record_after

    async def _burn(
        self, node_set: NodeSet, machine: MachineNode, slurm_nodes: list[ClusterNode], slurm: Control, burning: int
    ) -> int:
        """Start or follow a scheduled burn-in, on `maxUnavailable` machines at a time. Returns 1 if it runs, else 0."""
        health, burned = node_set.spec.health, machine.burned
        seen = Seen(machine.metadata.name, machine.boot, machine.condition(health.drain_on), slurm_nodes)
        if burned is not None and burned.job:
            seen.job_state = await self._state(burned.job, slurm)
            after, verdict = burn_in_over(health, node_set.metadata.key, burned, seen, self._now())
            if after == burned:
                return 1
            if seen.job_state == "PENDING":
                await slurm.cancel(burned.job)
            await self._write(machine, {BURNED: _text(after), RECORD: _text(verdict.record)})
            for event in verdict.events:
                await self._tell(node_set, machine, event, verdict.record or after)
        elif burning < node_set.spec.max_unavailable and burn_in_due(health, burned, seen, self._now()):
            at = int(self._now())
            key = f"burn-in-{machine.metadata.name}-{burned.at if burned is not None else 0}"
            job = await slurm.submit(_burn_in(node_set, slurm_nodes), key)
            await self._write(machine, {BURNED: _text(Burned(at, job))})
            return 1
        return 0

    async def forget(self, node_set: NodeSet) -> None:
        """Remove the records that a deleted NodeSet made of its machines."""
        for machine in self._machines.values():
            if machine.record is not None and machine.record.node_set == node_set.metadata.key:
                await self._write(machine, {RECORD: None}, away=False)

    # Kubernetes

    async def _write(
        self, machine: MachineNode, annotations: Mapping[str, str | None], *, away: bool | None = None
    ) -> None:
        """Write annotations; `away` adds or removes the label that keeps pods off. Raises ApiFailure (409) if the
        node has changed since it was looked at: what was decided may no longer hold.
        """
        about: Json = {"annotations": dict(annotations)}
        if away is not None:
            about["labels"] = {UNHEALTHY: "true" if away else None}
        about["resourceVersion"] = machine.metadata.resource_version
        node = await self._api.patch(NodeResource, machine.metadata.name, None, {"metadata": about})
        assert node.metadata is not None
        # A second step of this look must start from the node as it is now.
        machine.metadata.resource_version = node.metadata.resourceVersion or ""

    async def _tell(
        self, node_set: NodeSet, machine: MachineNode, event: HealthEvent, of: Record | Burned | None
    ) -> None:
        """Report an event at the machine and at the NodeSet; repeating a step adds no event."""
        self._log("machine.health", machine=machine.metadata.name, reason=event.reason, message=event.message)
        about = node_set.metadata
        ours = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "NodeSet", "name": about.name, "namespace": about.namespace}
        theirs = {"apiVersion": "v1", "kind": "Node", "name": machine.metadata.name}
        for namespace, involved in (
            (about.namespace, {**ours, "uid": about.uid}),
            ("default", {**theirs, "uid": machine.metadata.uid}),
        ):
            path, body = event_request(
                involved,
                namespace,
                event.reason,
                event.message,
                of=(machine.metadata.uid, event, of),
                component="spritz-operator",
                warning=event.is_warning,
            )
            try:
                await self._api.send("POST", path, body=body)
            except ApiFailure as failure:
                if not failure.already_exists:  # an event holds nothing up
                    self._log("event.failed", machine=machine.metadata.name, error=failure.message)

    async def _reboot(self, cluster: Cluster, node_set: NodeSet, machine: MachineNode, record: Record) -> None:
        """Create a pod that reboots its machine, unless it exists."""
        about = node_set.metadata
        pod = reboot_pod(cluster, node_set, machine.metadata.name, _reboot_name(machine, record))
        path = f"api/v1/namespaces/{about.namespace}/pods"
        try:
            await self._api.send("POST", path, body=msgspec.json.encode(pod), repeatable=False)
        except ApiFailure as failure:
            if failure.already_exists:
                return
            words = f"{machine.metadata.name} cannot be rebooted: {failure.message}"
            await self._tell(node_set, machine, HealthEvent("RebootRefused", words, is_warning=True), record)

    async def _remove_reboot(self, node_set: NodeSet, machine: MachineNode, record: Record) -> None:
        await self._api.delete(PodResource, _reboot_name(machine, record), node_set.metadata.namespace)

    # Slurm

    @staticmethod
    async def _renew(machine: MachineNode, record: Record, slurm_nodes: Sequence[ClusterNode], slurm: Control) -> None:
        """Replace the reasons of the health program's drains from before a reboot: later findings must count as new."""
        for node in slurm_nodes:
            if "DRAIN" in node.state and node.reason.startswith(CHECKED):
                reason = f"{OURS}health: {machine.metadata.name} {record.cause}"
                await slurm.update_node(node.name, state=["DRAIN"], reason=reason)

    @staticmethod
    async def _state(job: int, slurm: Control) -> str:
        jobs = await slurm.jobs([job])
        return jobs[0].state if jobs else ""

    async def _requeue(
        self, node_set: NodeSet, machine: MachineNode, names: list[str], record: Record, slurm: Control
    ) -> None:
        """Requeue the jobs on these nodes, with the nodes excluded."""
        for job in await slurm.jobs():
            on = [share.node for share in job.allocation.nodes] if job.allocation is not None else []
            if not job.is_running or not set(on) & set(names):
                continue
            try:
                elsewhere = await slurm.requeue(job.id, names)
            except RestError as failure:
                self._log("job.not_requeued", job_id=job.id, error=failure.message)
                continue
            without = f" without {', '.join(names)}" if elsewhere else ""
            words = f"job {job.id} is requeued{without}: {machine.metadata.name} {record.cause}"
            await self._tell(node_set, machine, HealthEvent("JobRequeued", words), record)


def _text(record: Record | Burned | None) -> str | None:
    return msgspec.json.encode(record).decode() if record is not None else None


def _reservation(machine: MachineNode) -> str:
    return f"health-{machine.metadata.name}"


def _reboot_name(machine: MachineNode, record: Record) -> str:
    return f"{machine.metadata.name[:40]}-reboot-{record.since}"


def reboot_pod(cluster: Cluster, node_set: NodeSet, machine: str, name: str) -> Json:
    """A pod that restarts its machine, as root in the machine's own namespaces."""
    about = node_set.metadata
    container = {
        "name": "reboot",
        "image": node_set.spec.image or cluster.spec.image,
        "imagePullPolicy": cluster.spec.image_pull_policy,
        "command": node_set.spec.health.reboot_command or list(REBOOT_COMMAND),
        "securityContext": {"privileged": True, "runAsUser": 0, "runAsGroup": 0},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": about.namespace,
            "labels": labels(cluster.metadata.name, "reboot"),
            "ownerReferences": owner("NodeSet", about),
        },
        "spec": {
            "nodeName": machine,
            "hostPID": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }


def _burn_in(node_set: NodeSet, nodes: Sequence[ClusterNode]) -> Json:
    """A job that gets all of these nodes exclusively, after every other job."""
    burn_in = node_set.spec.health.burn_in
    assert burn_in is not None
    return {
        "name": "burn-in",
        "comment": f"burn-in of the NodeSet {node_set.metadata.name}",
        "script": _SCRIPT.format(command=_quoted(burn_in.command)),
        "required_nodes": [node.name for node in nodes],
        "minimum_nodes": len(nodes),
        "maximum_nodes": len(nodes),
        "shared": ["none"],
        "nice": _NICE,
        "requeue": False,
        "time_limit": {"set": True, "number": burn_in.minutes},
        "current_working_directory": "/tmp",
        "environment": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "standard_output": "/tmp/spritz-burn-in.out",
    }


def _quoted(command: str) -> str:
    return command.replace("'", "'\\''")
