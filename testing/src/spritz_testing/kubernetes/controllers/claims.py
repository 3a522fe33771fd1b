"""ResourceClaims: those that pods have templates for, and devices that no living pod holds."""

from __future__ import annotations

import copy
from typing import Final

from spritz_testing.kubernetes.controllers.client import Client, deleting, phase_of, reference, remove_finalizer
from spritz_testing.kubernetes.errors import Object

_CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"


def claim_names(pod: Object) -> list[str]:
    """The claims that a pod uses: named ones, and those made from its templates."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    names = [entry.get("resourceClaimName") for entry in (*statuses, *(pod["spec"].get("resourceClaims") or ()))]
    return [name for name in names if name]


async def claims_of_pod(client: Client, namespace: str, name: str) -> None:
    """Make the claims that the pod has templates for."""
    pod = client.find("pods", namespace, name)
    if pod is None or deleting(pod):
        return
    made = {entry["name"] for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    for request in pod["spec"].get("resourceClaims") or ():
        template = client.find("resourceclaimtemplates", namespace, request.get("resourceClaimTemplateName") or "")
        if template is None or request["name"] in made:
            continue
        spec = copy.deepcopy(template["spec"])
        metadata = {**(spec.get("metadata") or {}), "generateName": f"{name}-{request['name']}-"}
        metadata["ownerReferences"] = [reference(pod, "Pod")]
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
        claim = await client.create("resourceclaims", namespace, {**body, "spec": spec["spec"]})
        status = {"name": request["name"], "resourceClaimName": claim["metadata"]["name"]}

        def report(obj: Object, status: Object = status) -> None:
            obj.setdefault("status", {}).setdefault("resourceClaimStatuses", []).append(status)

        await client.modify("pods", namespace, name, report)


async def resource_claim(client: Client, namespace: str, name: str) -> None:
    """Take the claim's devices back when no pod that lives has it reserved."""
    claim = client.find("resourceclaims", namespace, name)
    if claim is None or not (claim.get("status") or {}).get("reservedFor"):
        return
    living = {
        pod["metadata"]["uid"]
        for pod in client.cluster.among("pods", namespace)
        if phase_of(pod) not in ("Succeeded", "Failed")
    }
    left = [consumer for consumer in claim["status"]["reservedFor"] if consumer["uid"] in living]
    if len(left) == len(claim["status"]["reservedFor"]):
        return

    def report(obj: Object) -> None:
        obj["status"] = {**obj["status"], "reservedFor": left} if left else {}

    await client.modify("resourceclaims", namespace, name, report)
    if not left:
        await client.modify("resourceclaims", namespace, name, lambda obj: remove_finalizer(obj, _CLAIM_FINALIZER), "")
