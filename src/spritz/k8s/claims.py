"""Claims of devices (DRA): the number of GPUs that they request, and the devices that they get.

With a device plugin, the kubelet chooses a pod's GPUs, and may choose a GPU that a job holds. With a driver for dynamic
resource allocation, the scheduler chooses: the job's GPU numbers become devices in the allocation of the pod's
ResourceClaims, and the driver prepares exactly these. The GPUs of a node are numbered by their driver's attribute
`index` or `minor`, or else by name, over the ResourceSlices of its newest generation; NVML and slurmd number alike.

Source: Kubernetes, "Dynamic Resource Allocation"; resource.k8s.io/v1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from spritz.k8s.pods import Metadata, Pod, Unfit

Json = dict[str, Any]

#: Device classes, and drivers, of GPUs.
GPU_CLASSES: Final = frozenset({"gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com"})

#: Finalizer that keeps an allocated claim until its pod has gone; the controller manager removes it.
FINALIZER: Final = "resource.kubernetes.io/delete-protection"


class Exactly(msgspec.Struct, rename="camel"):
    device_class_name: str = ""
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    selectors: list[Json] | None = None


class DeviceRequest(msgspec.Struct, rename="camel"):
    name: str
    exactly: Exactly | None = None


class Devices(msgspec.Struct):
    requests: list[DeviceRequest] | None = None
    constraints: list[Json] | None = None


class ClaimSpec(msgspec.Struct):
    devices: Devices = msgspec.field(default_factory=Devices)


class Consumer(msgspec.Struct):
    uid: str = ""


class ClaimStatus(msgspec.Struct, rename="camel"):
    allocation: Json | None = None
    reserved_for: list[Consumer] | None = None


class ClaimMetadata(Metadata, frozen=True, rename="camel"):
    resource_version: str = ""
    finalizers: list[str] | None = None


class Claim(msgspec.Struct):
    """The parts of a ResourceClaim that the scheduler reads: requests, allocation, reservations."""

    metadata: ClaimMetadata
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)

    def is_for(self, pod: Pod) -> bool:
        """Whether the claim is allocated, and reserved for the pod."""
        users = {user.uid for user in self.status.reserved_for or ()}
        return self.status.allocation is not None and pod.metadata.uid in users


class Device(msgspec.Struct):
    name: str
    attributes: dict[str, Json] | None = None

    def order(self) -> tuple[int, list[int | str]]:
        """Sort key that orders a node's devices like NVML."""
        for wanted in ("index", "minor"):
            for name, value in (self.attributes or {}).items():
                if name.rpartition("/")[2] == wanted and "int" in value:
                    return value["int"], []
        return 0, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", self.name)]


class Pool(msgspec.Struct):
    name: str = ""
    generation: int = 0


class SliceSpec(msgspec.Struct, rename="camel"):
    driver: str = ""
    node_name: str | None = None
    pool: Pool = msgspec.field(default_factory=Pool)
    devices: list[Device] | None = None


class Slice(msgspec.Struct):
    """The parts of a ResourceSlice that the scheduler reads: the devices that a driver offers on a node."""

    metadata: Metadata
    spec: SliceSpec = msgspec.field(default_factory=SliceSpec)


def names_of(pod: Pod) -> list[str]:
    """The pod's claims; "" for each that the controller manager has yet to make from a template."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()}
    return [each.resource_claim_name or made.get(each.name) or "" for each in pod.spec.resource_claims or ()]


def asked(claims: Iterable[Claim]) -> int:
    """Number of GPUs that the claims request. Raises Unfit for requests that a job cannot express."""
    count = 0
    for claim in claims:
        where = f"ResourceClaim {claim.metadata.name}"
        if claim.spec.devices.constraints:
            raise Unfit(f"{where}: constraints are not looked at: leave them out", "spec.resourceClaims")
        for request in claim.spec.devices.requests or ():
            exactly = request.exactly
            if exactly is None or exactly.allocation_mode != "ExactCount" or exactly.admin_access or exactly.selectors:
                text = f"{where}, request {request.name}: only `exactly` with a count is supported, without selectors"
                raise Unfit(f"{text} (spritz.dev/gpu-type chooses a type)", "spec.resourceClaims")
            if exactly.device_class_name not in GPU_CLASSES:
                classes = ", ".join(sorted(GPU_CLASSES))
                text = f"{where}, request {request.name}: device class {exactly.device_class_name} is none of {classes}"
                raise Unfit(text, "spec.resourceClaims")
            count += exactly.count
    return count


def gpus_of(node: str, slices: Iterable[Slice]) -> list[tuple[Slice, Device]]:
    """The node's GPUs, in the order of their numbers."""
    mine = [each for each in slices if each.spec.node_name == node and each.spec.driver in GPU_CLASSES]
    newest: dict[tuple[str, str], int] = {}
    for each in mine:
        pool = (each.spec.driver, each.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), each.spec.pool.generation)
    found = [
        (each, device)
        for each in mine
        if each.spec.pool.generation == newest[each.spec.driver, each.spec.pool.name]
        for device in each.spec.devices or ()
    ]
    return sorted(found, key=lambda pair: pair[1].order())


def allocation(claim: Claim, pod: Pod, node: str, devices: Sequence[tuple[Slice, Device]], numbers: list[int]) -> Json:
    """The claim's status with these of the node's GPUs; takes them from `numbers`. Raises Unfit."""
    results = []
    for request in claim.spec.devices.requests or ():
        for _ in range(request.exactly.count if request.exactly is not None else 0):
            number = numbers.pop(0)
            if number >= len(devices):
                raise Unfit(f"node {node} has no GPU number {number} in its ResourceSlices")
            where, device = devices[number]
            results.append({
                "request": request.name,
                "driver": where.spec.driver,
                "pool": where.spec.pool.name,
                "device": device.name,
            })  # fmt: skip
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    consumer = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
    return {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [consumer],
    }
