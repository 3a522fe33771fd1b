"""The claims of waiting pods: what they request of the offered devices, and their allocation from the pod's job.

Follows ResourceClaims, and the objects that say which devices there are: ResourceSlices, DeviceClasses and
DeviceTaintRules. Servers before Kubernetes 1.34 have none of these. When to look at a pod again, and where it runs, is
`pod_scheduler`'s; the rules are in `claims`.

Source: Kubernetes, "Dynamic Resource Allocation"; docs/decisions/0217, 0219.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
from lightkube.generic_resource import create_global_resource
from lightkube.resources.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice

from spritz.k8s.api import Api
from spritz.k8s.pods import GANG, Pod, Unfit, gpu_type
from spritz.k8s.scheduling import claims
from spritz.k8s.scheduling.devices import TAINT_VERSIONS, Inventory, Slice, TaintRule
from spritz.k8s.scheduling.placing import Place
from spritz.k8s.watching import Change, Reflector


class PodClaims:
    """Reads and allocates the claims of pods, while its `reflectors` run.

    `nodes_for`: the nodes that a pod can use. `claim_changed` is called with the key of a pod whose claim has changed,
    `node_changed` with the name of a node whose devices have changed, `offer_changed` when refused pods may fit.
    """

    def __init__(
        self,
        api: Api,
        *,
        nodes_for: Callable[[Pod], Collection[str]],
        claim_changed: Callable[[str], None],
        node_changed: Callable[[str], None],
        offer_changed: Callable[[], None],
    ) -> None:
        self._api = api
        self._nodes_for = nodes_for
        self._report_claim = claim_changed
        self._report_node = node_changed
        self._report_offer = offer_changed
        self._claims: Reflector[claims.Claim] = Reflector(
            api, ResourceClaim, decode=msgspec.json.Decoder(claims.Claim).decode, on_change=self._claim_changed
        )
        self._slices: Reflector[Slice] = Reflector(
            api, ResourceSlice, decode=msgspec.json.Decoder(Slice).decode, on_change=self._slice_changed
        )
        self._classes: Reflector[claims.DeviceClass] = Reflector(
            api,
            DeviceClass,
            decode=msgspec.json.Decoder(claims.DeviceClass).decode,
            on_change=lambda change: offer_changed(),
        )
        #: Servers have some of these versions, or none.
        self._taint_rules: list[Reflector[TaintRule]] = [
            Reflector(
                api,
                create_global_resource("resource.k8s.io", version, "DeviceTaintRule", "devicetaintrules"),
                decode=msgspec.json.Decoder(TaintRule).decode,
                on_change=self._taint_rule_changed,
            )
            for version in TAINT_VERSIONS
        ]
        self.reflectors: list[Reflector[Any]] = [self._claims, self._slices, self._classes, *self._taint_rules]
        self.inventory = Inventory()
        #: uid of a pod -> what its claims requested when they were last read
        self._asked: dict[str, claims.Asked] = {}
        #: claim -> the pod that was looked at last of those that use it
        self._claimants: dict[str, str] = {}

    def _claim_changed(self, change: Change[claims.Claim]) -> None:
        if (pod := self._claimants.get(change.key)) is not None:
            self._report_claim(pod)

    def _slice_changed(self, change: Change[Slice]) -> None:
        self.inventory.set_slice(change.key, self._slices.object_version(change.key) or "", change.new)
        for version in (change.old, change.new):
            if version is not None and version.spec.node_name:
                self._report_node(version.spec.node_name)
        self._report_offer()

    def _taint_rule_changed(self, change: Change[TaintRule]) -> None:
        self.inventory.set_rule(change.key, change.new)
        self._report_offer()

    def of(self, pod: Pod) -> list[claims.Claim] | None:
        """The pod's ResourceClaims; None while one of them does not exist."""
        claims_found: list[claims.Claim] = []
        for name in claims.names_of(pod):
            key = f"{pod.metadata.namespace}/{name}"
            if name:
                self._claimants[key] = pod.key
            claim = self._claims.get(key)
            if claim is None:
                return None
            claims_found.append(claim)
        return claims_found

    def with_devices(self, pod: Pod, shared: Collection[str], *, has_job: bool, has_node: bool) -> Pod:
        """The pod with the devices that its claims request. `shared`: claims that several pods of its gang use. Raises
        Unfit for a pod without a job.
        """
        if not pod.spec.resource_claims:
            return pod
        uid = pod.metadata.uid
        known = self._asked.get(uid)
        if has_job and known is not None and has_node:
            return _with_asked(pod, known)
        try:
            own = self.of(pod) or []
            nodes = self._nodes_for(pod)
            asked = claims.asked_of(own, shared, self._classes.get, self.inventory, nodes, gpu_type(pod))
        except Unfit:
            if not has_job:
                raise
            asked = known or claims.Asked(())
        if has_job and known is not None and (asked.gres, asked.shared_gres) != (known.gres, known.shared_gres):
            asked = known  # what its job requested, whatever nodes have by now
        self._asked[uid] = asked
        return _with_asked(pod, asked)

    def used_by_others(self, pods: Sequence[Pod]) -> str:
        """The claim of these pods that other pods use; "" for none."""
        uids = {pod.metadata.uid for pod in pods}
        for pod in pods:
            for claim in self.of(pod) or ():
                if any(user.uid not in uids for user in claim.status.reserved_for or ()):
                    return claim.metadata.name
        return ""

    async def allocate(self, pod: Pod, members: Sequence[Pod], place: Place) -> None:
        """Give the pod's claims the devices of its job. `members`: the pods of its job's component. Raises Unfit."""
        own = self.of(pod) or []
        if not own:
            return
        change: dict[str, Any]
        left, devices = list(place.devices), self.inventory.devices(place.node)
        held = claims.holders(self._claims.values(), own)
        for claim in own:
            meta = claim.metadata
            is_shared = meta.name in pod.shared
            # All pods that share the claim are reserved at once: a second write could be lost.
            users = [each for each in members if not each.is_over and not each.is_leaving] if is_shared else [pod]
            status = claims.status_of(claim, users, place, self._classes.get, devices, left)
            if claim.is_for(pod):
                continue
            if claim.status.allocation is not None and is_shared:
                # A pod that replaces another of the gang. (409 if the claim has changed meanwhile: tried again.)
                reserved = [*msgspec.to_builtins(claim.status.reserved_for or []), *claims.consumers([pod])]
                about = {"uid": meta.uid, "resourceVersion": meta.resource_version}
                change = {"metadata": about, "status": {"reservedFor": reserved}}
                await self._api.patch(ResourceClaim, meta.name, meta.namespace, change, subresource="status")
                continue
            if claim.status.allocation is not None or claim.status.reserved_for:
                raise Unfit(f"ResourceClaim {meta.name} is used by another pod; pods of one gang ({GANG}) can share it")
            for each in status["allocation"]["devices"]["results"]:
                if holder := held.get((each["driver"], each["pool"], each["device"])):
                    raise Unfit(f"waits for device {each['device']} of {place.node}, which ResourceClaim {holder} has")
            if claims.FINALIZER not in (meta.finalizers or ()):
                finalizers = [*(meta.finalizers or ()), claims.FINALIZER]
                change = {"metadata": {"uid": meta.uid, "finalizers": finalizers}}
                await self._api.patch(ResourceClaim, meta.name, meta.namespace, change)
            change = {"metadata": {"uid": meta.uid}, "status": status}
            await self._api.patch(ResourceClaim, meta.name, meta.namespace, change, subresource="status")

    def forget(self, pod: Pod) -> None:
        """The pod has gone."""
        self._asked.pop(pod.metadata.uid, None)
        for name in claims.names_of(pod):
            key = f"{pod.metadata.namespace}/{name}"
            if self._claimants.get(key) == pod.key:
                del self._claimants[key]


def _with_asked(pod: Pod, asked: claims.Asked) -> Pod:
    return msgspec.structs.replace(
        pod, claimed=asked.gres, closed=asked.closed, shared=asked.shared, shared_gres=asked.shared_gres
    )
