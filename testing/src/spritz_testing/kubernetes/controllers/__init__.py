"""Kubernetes' own controllers that matter to an operator.

Level-triggered: a write marks the objects that it may concern, and a loop processes the marked objects. They act on the
store, with the real controllers' names as field managers.

`client`         what every controller uses: find, create, modify and delete objects; mark an object for later
`owners`         namespaces with their service accounts, definitions of resources, garbage collection
`deployments`    Deployment and ReplicaSet     `stateful_sets`, `daemon_sets`, `jobs`   the other workloads
`claims`         ResourceClaims of pods        `policies`   status of PodDisruptionBudget and ResourceQuota
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from spritz.runtime.tasks import Supervisor
from spritz_testing.kubernetes.cluster import Cluster
from spritz_testing.kubernetes.controllers import (
    claims,
    daemon_sets,
    deployments,
    jobs,
    owners,
    policies,
    stateful_sets,
)
from spritz_testing.kubernetes.controllers.client import Client
from spritz_testing.kubernetes.errors import Object, Refusal
from spritz_testing.kubernetes.watching import Event

#: Kind of an owner that creates its dependents -> its resource.
_WORKLOADS: Final = {
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
}

#: Kind of work -> its controller, called with a namespace and a name ("garbage": with the owner's uid and "").
_CONTROLLERS: Final[dict[str, Callable[[Client, str, str], Awaitable[None]]]] = {
    "namespaces": owners.namespace,
    "customresourcedefinitions": owners.definition,
    "garbage": owners.garbage,
    "deployments": deployments.deployment,
    "replicasets": deployments.replica_set,
    "statefulsets": stateful_sets.stateful_set,
    "daemonsets": daemon_sets.daemon_set,
    "jobs": jobs.job,
    "poddisruptionbudgets": policies.budget,
    "resourcequotas": policies.quota,
    "claims-of": claims.claims_of_pod,
    "resourceclaims": claims.resource_claim,
}

#: Seconds until an object is processed again after an error.
_AGAIN_SECONDS = 0.2


class Controllers:
    """The loop that hands each marked object to its controller."""

    def __init__(self, cluster: Cluster, tasks: Supervisor) -> None:
        self._cluster = cluster
        self._tasks = tasks
        self._client = Client(cluster)

    @property
    def idle(self) -> asyncio.Event:
        """Set while no object is marked."""
        return self._client.idle

    def start(self) -> None:
        self._cluster.listeners.append(self._heard)
        for namespace in list(self._cluster.among("namespaces")):
            self._client.mark("namespaces", "", namespace["metadata"]["name"])
        self._tasks.spawn_contained(self._loop(), name="controllers")

    async def _loop(self) -> None:
        while True:
            what, namespace, name = await self._client.next_marked()
            try:
                await _CONTROLLERS[what](self._client, namespace, name)
            except Refusal as refusal:
                if refusal.code not in (404, 409):
                    self._client.mark_later(_AGAIN_SECONDS, what, namespace, name)
            # Let requests run between two objects.
            await asyncio.sleep(0)

    def _heard(self, event: Event) -> None:
        """Mark what a write may concern."""
        client, obj = self._client, event.last.obj
        namespace, name = event.name
        client.note_owners(event)
        group, plural = event.key
        if plural in _CONTROLLERS:
            client.mark(plural, namespace, name)
        if event.new is None or obj["metadata"].get("deletionTimestamp"):
            client.mark("garbage", obj["metadata"]["uid"], "")
            if client.find("customresourcedefinitions", "", f"{plural}.{group}") is not None:
                client.mark("customresourcedefinitions", "", f"{plural}.{group}")
            if namespace:
                owner = client.find("namespaces", "", namespace)
                if owner is not None and owner["metadata"].get("deletionTimestamp"):
                    client.mark("namespaces", "", namespace)
        self._mark_owners(event)
        if plural == "pods":
            self._mark_for_pod(obj, namespace, name)
        elif plural == "nodes":
            for daemon_set in self._cluster.among("daemonsets"):
                client.mark("daemonsets", daemon_set["metadata"]["namespace"], daemon_set["metadata"]["name"])
        if namespace and plural not in ("resourcequotas", "events"):
            for quota in self._cluster.among("resourcequotas", namespace):
                client.mark("resourcequotas", namespace, quota["metadata"]["name"])

    def _mark_owners(self, event: Event) -> None:
        for owner in event.last.obj["metadata"].get("ownerReferences") or ():
            if event.old is None or event.new is None:
                self._client.mark("garbage", owner["uid"], "")
            if owner.get("controller") and owner["kind"] in _WORKLOADS:
                self._client.mark(_WORKLOADS[owner["kind"]], event.name[0], owner["name"])

    def _mark_for_pod(self, pod: Object, namespace: str, name: str) -> None:
        for budget in self._cluster.among("poddisruptionbudgets", namespace):
            self._client.mark("poddisruptionbudgets", namespace, budget["metadata"]["name"])
        if pod["spec"].get("resourceClaims"):
            self._client.mark("claims-of", namespace, name)
            for claim in claims.claim_names(pod):
                self._client.mark("resourceclaims", namespace, claim)
