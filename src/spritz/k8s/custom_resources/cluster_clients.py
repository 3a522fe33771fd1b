"""Clients of the slurmrestd of each cluster, with tokens that the operator signs with the cluster's key."""

from __future__ import annotations

import base64
from collections.abc import Callable

from spritz.http.rest import RestError
from spritz.k8s.api import Api
from spritz.k8s.custom_resources.cluster_objects import Cluster
from spritz.k8s.custom_resources.control import Control, token_of
from spritz.k8s.custom_resources.objects import Objects

#: Lifetime of the operator's tokens, and how long before its end a token is replaced. Seconds.
_LIFESPAN, _SPARE = 3600, 600


class ClusterClients:
    """`address` says where the slurmrestd of a cluster is."""

    def __init__(self, api: Api, objects: Objects, address: Callable[[Cluster], str], now: Callable[[], float]) -> None:
        self._api = api
        self._objects = objects
        self._address = address
        self._now = now
        #: namespace/name of a cluster -> its uid, the client of its slurmrestd, and when the client's token expires
        self._slurms: dict[str, tuple[str, Control, float]] = {}

    async def close(self) -> None:
        for _uid, slurm, _until in self._slurms.values():
            await slurm.close()

    async def forget(self, key: str) -> None:
        """Close the client of a cluster that has been deleted, if there is one."""
        cached = self._slurms.pop(key, None)
        if cached is not None:
            await cached[1].close()

    async def of(self, cluster: Cluster) -> Control:
        """Raises RestError while the cluster has no key, or none that can be used."""
        place, uid = cluster.metadata.key, cluster.metadata.uid
        cached = self._slurms.get(place)
        if cached is not None and cached[0] == uid and self._now() < cached[2] - _SPARE:
            return cached[1]
        name = f"{cluster.metadata.name}-keys"
        secret = await self._objects.find("v1", "Secret", cluster.metadata.namespace, name)
        if secret is None:
            raise RestError(f"the Secret {name} does not exist yet")
        known = self._slurms.get(place)
        if known is not cached and known is not None and known[0] == uid:
            return known[1]  # another worker has made it meanwhile
        until = self._now() + _LIFESPAN
        try:
            key = base64.b64decode(secret["data"]["jwt.key"], validate=True)
        except (KeyError, TypeError, ValueError):
            raise RestError(f"the Secret {name} has no jwt.key, which was made with it: restore it") from None
        slurm = Control(self._address(cluster), token_of(key, "root", int(self._now()), int(until)))
        slurm.guard = self._api.guard
        # Before the old connections are closed: other workers look here meanwhile.
        self._slurms[place] = (uid, slurm, until)
        if known is not None:
            await known[1].close()
        return slurm
