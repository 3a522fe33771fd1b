"""Reconciles LoginSets and Tokens."""

from __future__ import annotations

import base64
from collections.abc import Callable

import msgspec

from spritz.http.rest import RestError
from spritz.k8s.api import ApiFailure
from spritz.k8s.custom_resources.cluster_clients import ClusterClients
from spritz.k8s.custom_resources.cluster_objects import Cluster, Metadata, controller_address
from spritz.k8s.custom_resources.control import Control
from spritz.k8s.custom_resources.login_sets import (
    LIFESPAN,
    LOGIN_SET,
    LoginSet,
    LoginSetStatus,
    Token,
    TokenStatus,
    asked_for,
    host_key,
    host_keys_secret,
    login_objects,
    ready,
    secret_of,
)
from spritz.k8s.custom_resources.login_sets import join_secret as login_secret
from spritz.k8s.custom_resources.objects import AGAIN, EXPIRES, SOON, Objects
from spritz.k8s.pods import PREFIX
from spritz.k8s.watching import Reflector

#: Annotation of a Secret: a hash of what its token permits.
_ASKED = f"{PREFIX}asked"


class Logins:
    """`clusters`: all SpritzClusters."""

    def __init__(
        self,
        objects: Objects,
        clients: ClusterClients,
        clusters: Reflector[Cluster],
        log: Callable[..., None],
        now: Callable[[], float],
    ) -> None:
        self._objects = objects
        self._clients = clients
        self._clusters = clusters
        self._log = log
        self._now = now

    async def login_set(self, login_set: LoginSet) -> float:
        """Returns seconds to the next look."""
        metadata = login_set.metadata
        cluster = self._clusters.get(f"{metadata.namespace}/{login_set.spec.cluster_ref}")
        status = LoginSetStatus(observed_generation=metadata.generation, selector=f"{LOGIN_SET}={metadata.name}")
        if cluster is None:
            status.conditions = ready(False, "NoCluster", f"no SpritzCluster {login_set.spec.cluster_ref}", metadata)
            return await self._tell("loginsets", login_set, status, AGAIN)
        name = host_keys_secret(metadata.name)
        if await self._objects.find("v1", "Secret", metadata.namespace, name) is None:
            data = {"ssh_host_ed25519_key": base64.b64encode(host_key()).decode()}
            try:
                await self._objects.write("POST", secret_of("LoginSet", metadata, name, data, {}))
            except ApiFailure as failure:
                if not failure.already_exists:
                    raise
        try:
            slurm = await self._clients.of(cluster)
            await self._keep_token("LoginSet", metadata, login_secret(metadata.name), cluster, slurm, "login", LIFESPAN)
        except (RestError, ApiFailure) as failure:
            status.conditions = ready(False, "ClusterAway", f"no token for login hosts: {failure.message}", metadata)
            return await self._tell("loginsets", login_set, status, SOON)
        service, workload = login_objects(cluster, login_set)
        await self._objects.ensure(service)
        workload = await self._objects.ensure(workload)
        have = workload.get("status") or {}
        up, wanted = have.get("readyReplicas", 0), login_set.spec.replicas
        status.replicas, status.ready_replicas = have.get("replicas", 0), up
        message = f"{up} of {wanted} login hosts serve"
        refusal = await self._objects.refusal(workload) if up < wanted else ""
        if refusal:
            message += f"; a pod was refused: {refusal}"
        reason = "Serving" if up >= wanted else "Refused" if refusal else "Starting"
        status.conditions = ready(up >= wanted, reason, message, metadata)
        return await self._tell("loginsets", login_set, status, SOON if up < wanted else AGAIN)

    async def token(self, token: Token) -> float:
        """Returns seconds to the next look."""
        metadata, spec = token.metadata, token.spec
        cluster = self._clusters.get(f"{metadata.namespace}/{spec.cluster_ref}")
        status = TokenStatus(observed_generation=metadata.generation, expires_at=token.status.expires_at)
        if cluster is None:
            status.conditions = ready(
                False, "NoCluster", f"there is no SpritzCluster {spec.cluster_ref} here", metadata
            )
            return await self._tell("tokens", token, status, AGAIN)
        name = spec.secret_name or metadata.name
        try:
            slurm = await self._clients.of(cluster)
            until = await self._keep_token(
                "Token",
                metadata,
                name,
                cluster,
                slurm,
                spec.role,
                spec.lifetime_seconds,
                uses=spec.uses,
                host=spec.host,
            )
        except (RestError, ApiFailure) as failure:
            status.conditions = ready(False, "ClusterAway", f"no token can be had: {failure.message}", metadata)
            return await self._tell("tokens", token, status, SOON)
        status.expires_at = self._objects.moment(until)
        status.conditions = ready(True, "Good", f"the token is in the Secret {name}", metadata)
        return await self._tell("tokens", token, status, AGAIN)

    async def _keep_token(
        self,
        kind: str,
        metadata: Metadata,
        name: str,
        cluster: Cluster,
        slurm: Control,
        role: str,
        lifetime: int,
        *,
        uses: int = 0,
        host: str = "",
    ) -> int:
        """Write a Secret with a token unless a third of its lifetime is left. Returns its expiry in epoch seconds."""
        asked = asked_for(role, lifetime, uses, host)
        have = ((await self._objects.find("v1", "Secret", metadata.namespace, name)) or {}).get("metadata", {})
        marks = have.get("annotations") or {}
        until = marks.get(EXPIRES, "0")
        if have and marks.get(_ASKED) is None:
            raise ApiFailure(409, "AlreadyExists", f"the Secret {name} is not the operator's")
        if marks.get(_ASKED) == asked and until.isdecimal() and int(until) - lifetime // 3 > self._now():
            return int(until)
        token = await slurm.create_token(role, lifetime, uses=uses, host=host)
        end = int(self._now()) + lifetime
        texts = {"token": token, "address": controller_address(cluster)}
        data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        await self._objects.write("PATCH", secret_of(kind, metadata, name, data, {EXPIRES: str(end), _ASKED: asked}))
        self._log("token.stored", kind=kind, name=metadata.key, secret=name)
        return end

    async def _tell(
        self, plural: str, resource: LoginSet | Token, status: LoginSetStatus | TokenStatus, again: float
    ) -> float:
        conditions = self._objects.conditions(resource.status.conditions, status.conditions)
        await self._objects.report(plural, resource, {**msgspec.to_builtins(status), "conditions": conditions})
        return again
