"""Claims of devices (DRA): the generic resources that they request, and the devices that they get.

With a device plugin, the kubelet chooses a pod's GPUs, and may choose a GPU that a job holds. With a driver for dynamic
resource allocation, the scheduler chooses: the numbers in the job's allocation become devices in the allocation of the
pod's ResourceClaims, and the driver prepares exactly these.

A request names devices by a class and selectors; a job names a type of GPU. So a request becomes the type all of whose
devices on a node match it, that on most nodes; nodes with other devices of this type are excluded.

Source: Kubernetes, "Dynamic Resource Allocation"; resource.k8s.io/v1; KEP-5075 (shares of devices).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from spritz.k8s.pods import Gres, Metadata, Pod, Toleration, Unfit, amount
from spritz.k8s.scheduling.devices import DeviceTaint, Group, Inventory, Offered
from spritz.k8s.scheduling.placing import Place
from spritz.k8s.scheduling.selectors import BadSelector, matches

Json = dict[str, Any]

#: Finalizer that keeps an allocated claim until its pod has gone; the controller manager removes it.
FINALIZER: Final = "resource.kubernetes.io/delete-protection"


class Cel(msgspec.Struct):
    expression: str = ""


class Selector(msgspec.Struct):
    cel: Cel | None = None


class CapacityRequirements(msgspec.Struct):
    requests: dict[str, str | int] | None = None


class Exactly(msgspec.Struct, rename="camel"):
    device_class_name: str = ""
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    selectors: list[Selector] | None = None
    capacity: CapacityRequirements | None = None
    tolerations: list[Toleration] | None = None

    def untolerated(self, offered: Offered) -> DeviceTaint | None:
        """The first taint of the device that keeps this request from it."""
        for taint in offered.taints:
            if not any(by.tolerates(taint.key, taint.value, taint.effect) for by in self.tolerations or ()):
                return taint
        return None

    @property
    def requested(self) -> Mapping[str, str | int]:
        """Of each device's capacities."""
        return (self.capacity.requests if self.capacity is not None else None) or {}


class DeviceRequest(msgspec.Struct, rename="camel"):
    name: str
    exactly: Exactly | None = None


class Devices(msgspec.Struct):
    requests: list[DeviceRequest] | None = None
    constraints: list[Json] | None = None
    config: list[Json] | None = None


class ClaimSpec(msgspec.Struct):
    devices: Devices = msgspec.field(default_factory=Devices)


class Consumer(msgspec.Struct, rename="camel", omit_defaults=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class Result(msgspec.Struct, rename="camel"):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(name="shareID", default=None)


class Results(msgspec.Struct):
    results: list[Result] | None = None


class Allocation(msgspec.Struct):
    devices: Results = msgspec.field(default_factory=Results)


class ClaimStatus(msgspec.Struct, rename="camel"):
    allocation: Allocation | None = None
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

    @property
    def devices(self) -> list[tuple[str, str, str]]:
        """What it has to itself: driver, pool and name of each device."""
        allocation = self.status.allocation
        results = allocation.devices.results if allocation is not None else None
        return [(result.driver, result.pool, result.device) for result in results or () if result.share_id is None]


class ClassSpec(msgspec.Struct):
    selectors: list[Selector] | None = None
    config: list[Json] | None = None


class DeviceClass(msgspec.Struct):
    """The parts of a DeviceClass that the scheduler reads."""

    metadata: Metadata
    spec: ClassSpec = msgspec.field(default_factory=ClassSpec)


#: finds a DeviceClass by its name
Classes = Callable[[str], DeviceClass | None]


class Asked(msgspec.Struct, frozen=True):
    """What a pod's claims come to. `closed`: nodes whose devices of these types do not all match."""

    gres: tuple[Gres, ...]
    closed: frozenset[str] = frozenset()
    #: names of the claims that it shares with pods of its gang, and what these come to
    shared: tuple[str, ...] = ()
    shared_gres: tuple[Gres, ...] = ()


def names_of(pod: Pod) -> list[str]:
    """The pod's claims; "" for each that the controller manager has yet to make from a template."""
    made = {reference.name: reference.resource_claim_name for reference in pod.status.resource_claim_statuses or ()}
    return [
        reference.resource_claim_name or made.get(reference.name) or "" for reference in pod.spec.resource_claims or ()
    ]


def shared_in(pods: Iterable[Pod]) -> frozenset[str]:
    """Names of the claims that several of these pods of a gang use."""
    users = Counter(name for pod in pods for name in set(names_of(pod)) if name)
    return frozenset(name for name, count in users.items() if count > 1)


def asked_of(
    claims: Sequence[Claim],
    shared: Collection[str],
    classes: Classes,
    inventory: Inventory,
    nodes: Collection[str],
    gpu_type: str = "",
) -> Asked:
    """As `asked`, with the claims named `shared` apart."""
    own = asked([each for each in claims if each.metadata.name not in shared], classes, inventory, nodes, gpu_type)
    common = [each for each in claims if each.metadata.name in shared]
    if not common:
        return own
    both = asked(common, classes, inventory, nodes, gpu_type)
    names = tuple(each.metadata.name for each in common)
    return Asked(own.gres, own.closed | both.closed, names, both.gres)


def asked(
    claims: Iterable[Claim], classes: Classes, inventory: Inventory, nodes: Collection[str], gpu_type: str = ""
) -> Asked:
    """The generic resources that the claims request. `nodes`: those that their pod can use; `gpu_type`: the only type
    that it wants. Raises Unfit for what a job cannot express, and for what no node has.
    """
    gres: Counter[tuple[str, str]] = Counter()
    closed: set[str] = set()
    for claim, request, exactly in _requests(claims):
        name, kind, shards, excluded = _choice(claim, request, exactly, classes, inventory, nodes, gpu_type)
        gres[name, kind] += exactly.count * shards
        closed |= excluded
    return Asked(tuple(Gres(name, kind, count) for (name, kind), count in gres.items()), frozenset(closed))


def _requests(claims: Iterable[Claim]) -> Iterable[tuple[Claim, DeviceRequest, Exactly]]:
    for claim in claims:
        where = f"ResourceClaim {claim.metadata.name}"
        if claim.spec.devices.constraints:
            text = (
                "constraints are not supported: leave them out; all devices of a request are of one type, on one node"
            )
            raise Unfit(f"{where}: {text}", "spec.resourceClaims")
        for request in claim.spec.devices.requests or ():
            exactly = request.exactly
            if exactly is None or exactly.allocation_mode != "ExactCount" or exactly.admin_access:
                what = "firstAvailable" if exactly is None else "admin access" if exactly.admin_access else "All"
                text = f"{what} is not supported: write `exactly` with a count and one class"
                raise Unfit(f"{where}, request {request.name}: {text}", "spec.resourceClaims")
            yield claim, request, exactly


def _choice(
    claim: Claim,
    request: DeviceRequest,
    exactly: Exactly,
    classes: Classes,
    inventory: Inventory,
    nodes: Collection[str],
    gpu_type: str,
) -> tuple[str, str, int, frozenset[str]]:
    """(name, type, shards for each device, nodes to exclude)."""
    where = f"ResourceClaim {claim.metadata.name}, request {request.name}"
    device_class = classes(exactly.device_class_name)
    if device_class is None:
        raise Unfit(f"{where}: there is no DeviceClass {exactly.device_class_name}", "spec.resourceClaims")
    key = msgspec.json.encode((_expressions(exactly, device_class), exactly.requested, exactly.tolerations))
    try:
        served = {node: inventory.served(node, key, lambda group: _serves(exactly, device_class, group))
                  for node in nodes}  # fmt: skip
    except BadSelector as error:
        raise Unfit(f"{where}: {error}", "spec.resourceClaims") from error
    counts: Counter[tuple[str, str, int]] = Counter()
    for groups in served.values():
        for (name, kind), shards in groups.items():
            if shards and gpu_type in ("", kind):
                counts[name, kind, shards] += 1
    if not counts:
        what = f" of the type {gpu_type}" if gpu_type else ""
        text = f"no node has a type of GPU{what} all of whose devices match class {exactly.device_class_name}"
        text += " and its selectors" if exactly.selectors else ""
        raise Unfit(f"{where}: {text}{_tainted(exactly, inventory, nodes)}", "spec.resourceClaims")
    # Of equals a request without a type, which may get any.
    name, kind, shards = max(counts, key=lambda choice: (counts[choice], not choice[1], choice))
    excluded = (node for node, groups in served.items() if groups.get((name, kind), shards) != shards)
    return name, kind, shards, frozenset(excluded)


def _tainted(exactly: Exactly, inventory: Inventory, nodes: Collection[str]) -> str:
    """Says which taint keeps the request from a device, if there is one."""
    for node in nodes:
        try:
            offered = inventory.offered(node)
        except Unfit:
            continue
        for device in offered:
            if (taint := exactly.untolerated(device)) is not None:
                text = f"device {device.device.name} of {node} has the taint {taint.key}, which the request does not"
                return f"; {text} tolerate"
    return ""


def _expressions(exactly: Exactly, device_class: DeviceClass) -> list[str]:
    selectors = [*(device_class.spec.selectors or ()), *(exactly.selectors or ())]
    return [selector.cel.expression for selector in selectors if selector.cel is not None]


def _serves(exactly: Exactly, device_class: DeviceClass, group: Group) -> int:
    """Shards for each device, 1 for whole devices; 0 if the group has a device that does not match."""
    found = {_shards(exactly, device_class, group.name, device) for device in group.devices.values()}
    return found.pop() if len(found) == 1 else 0


def _shards(exactly: Exactly, device_class: DeviceClass, name: str, offered: Offered) -> int:
    """As `_serves`, for a device. Raises BadSelector."""
    if (name == "shard") != bool(offered.shares) or exactly.untolerated(offered) is not None:
        return 0
    if not matches(_expressions(exactly, device_class), offered.variables()):
        return 0
    if not offered.shares:
        enough = all(
            offered.device.amount_of(capacity.rpartition("/")[2]) >= amount(wanted)
            for capacity, wanted in exactly.requested.items()
        )
        return int(enough)
    try:
        shards = offered.shards_of(exactly.requested)
    except Unfit:
        return 0
    return shards if shards <= offered.shares else 0


def consumers(pods: Iterable[Pod]) -> list[Json]:
    """Entries of `reservedFor`."""
    return [{"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in pods]


def status_of(
    claim: Claim,
    pods: Sequence[Pod],
    place: Place,
    classes: Classes,
    devices: Mapping[int, Offered],
    left: list[tuple[str, int]],
) -> Json:
    """The claim's status with devices of the pods' place, numbered as `devices` are. `left`: the place's devices that
    none of their claims has yet, as `Place.devices`; what this claim gets is removed. Raises Unfit.
    """
    results: list[Json] = []
    config: list[Json] = []
    for _claim, request, exactly in _requests([claim]):
        device_class = classes(exactly.device_class_name) or DeviceClass(Metadata())
        for number in range(exactly.count):
            taken = _take(exactly, device_class, devices, left)
            if taken is None:
                text = f"job of {pods[0].key} has no device on node {place.node} for request {request.name}"
                raise Unfit(f"ResourceClaim {claim.metadata.name}: {text}", "spec.resourceClaims")
            offered, shards = taken
            driver, pool, name = offered.key
            result: Json = {"request": request.name, "driver": driver, "pool": pool, "device": name}
            if offered.shares:
                share = uuid.uuid5(uuid.NAMESPACE_OID, f"{claim.metadata.uid}/{request.name}/{number}")
                result["shareID"] = str(share)
                result["consumedCapacity"] = offered.consumed(shards, exactly.requested)
            results.append(result)
        config += [
            {"source": "FromClass", "requests": [request.name], **each} for each in device_class.spec.config or ()
        ]
    config += [{"source": "FromClaim", **each} for each in claim.spec.devices.config or ()]
    field = {"key": "metadata.name", "operator": "In", "values": [place.node]}
    return {
        "allocation": {
            "devices": {"results": results} | ({"config": config} if config else {}),
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": consumers(pods),
    }


def _take(
    exactly: Exactly, device_class: DeviceClass, devices: Mapping[int, Offered], left: list[tuple[str, int]]
) -> tuple[Offered, int] | None:
    """A device for the request, and its shards, removed from `left`."""
    for name, number in dict.fromkeys(left):
        offered = devices.get(number)
        shards = _shards(exactly, device_class, name, offered) if offered is not None else 0
        if offered is not None and shards and left.count((name, number)) >= shards:
            for _ in range(shards):
                left.remove((name, number))
            return offered, shards
    return None


def holders(claims: Iterable[Claim], but: Sequence[Claim]) -> dict[tuple[str, str, str], str]:
    """Devices that other claims have to themselves, and the claims."""
    own = {claim.metadata.uid for claim in but}
    return {
        device: f"{claim.metadata.namespace}/{claim.metadata.name}"
        for claim in claims
        if claim.metadata.uid not in own
        for device in claim.devices
    }
