"""Devices of nodes: what ResourceSlices offer, as the generic resources of Slurm's nodes, and back.

A GPU is `gpu:TYPE`, where the type is its product; a part of a GPU (MIG) is `gpu:PROFILE`, such as `gpu:1g.10gb`. A
device that several claims may have at once (`allowMultipleAllocations`) has shards too: as many as its capacity
`shares`, or a shard for each GiB of its memory.

Both sides number the devices of a node alike: a node's `Gres=` lists types, and within a type devices are in the order
of GPUs, and of parts on a GPU, as NVML and slurmd have them. So a device's number in a job's allocation names a device
in a ResourceSlice.

A driver may offer every part that a GPU could be divided into, which use up the GPU's counters (partitionable devices).
Slurm's devices exclude each other only by number, so one division is offered: the whole GPU, or the node's layout.

Source: Kubernetes, "Dynamic Resource Allocation"; resource.k8s.io/v1 ResourceSlice; KEP-4815, KEP-5075; gres.conf(5).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from spritz.k8s.pods import PREFIX, Metadata, Unfit, amount
from spritz.k8s.scheduling.selectors import variables
from spritz.notation import gres, ranges
from spritz.notation.errors import NotationError

Json = dict[str, Any]

#: Drivers of GPUs.
GPU_DRIVERS: Final = frozenset({"gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com"})

#: Annotation or label of a node: how its GPUs are divided, such as `0-3=1g.10gb:7;4=3g.40gb,2g.20gb:2`. GPUs that it
#: does not name are whole.
LAYOUT: Final = f"{PREFIX}mig-layout"

#: Capacities by which devices are shared, and how much of them a shard is.
_SHARES, _MEMORY, _GIB = "shares", "memory", float(1 << 30)

_GPUS_MAX = 1024

#: Versions of DeviceTaintRule (1.37, 1.36, 1.33 to 1.35), with the same fields.
TAINT_VERSIONS: Final = ("v1", "v1beta2", "v1alpha3")

#: Requests whose answers are kept.
_REQUESTS_MAX = 200


class RequestPolicy(msgspec.Struct):
    default: str | int | None = None


class Capacity(msgspec.Struct, rename="camel"):
    value: str | int
    request_policy: RequestPolicy | None = None


class Count(msgspec.Struct):
    value: str | int


class Consumption(msgspec.Struct, rename="camel"):
    counter_set: str
    counters: dict[str, Count]


class DeviceTaint(msgspec.Struct, frozen=True):
    """Keeps a device from claims that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = ""


class TaintSelector(msgspec.Struct, rename="camel"):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    #: of Kubernetes 1.33 and 1.34: a rule with these is not followed
    device_class_name: str | None = None
    selectors: list[Json] | None = None


class TaintRuleSpec(msgspec.Struct, rename="camel"):
    taint: DeviceTaint
    device_selector: TaintSelector | None = None


class TaintRule(msgspec.Struct):
    """A DeviceTaintRule: an administrator's taint for the devices that it selects."""

    metadata: Metadata
    spec: TaintRuleSpec

    def selects(self, spec: SliceSpec, device: Device) -> bool:
        selector = self.spec.device_selector
        if selector is None or selector.device_class_name or selector.selectors:
            return False
        wanted = (selector.driver, selector.pool, selector.device)
        have = (spec.driver, spec.pool.name, device.name)
        return all(name in (None, own) for name, own in zip(wanted, have, strict=True))


class Device(msgspec.Struct, rename="camel"):
    name: str
    attributes: dict[str, Json] | None = None
    capacity: dict[str, Capacity] | None = None
    consumes_counters: list[Consumption] | None = None
    allow_multiple_allocations: bool | None = None
    taints: list[DeviceTaint] | None = None

    def attribute(self, name: str) -> Any:
        """Its value, whatever its domain is; None without."""
        for qualified, value in (self.attributes or {}).items():
            if qualified.rpartition("/")[2] == name:
                return next(iter(value.values()), None)
        return None

    def amount_of(self, name: str) -> float:
        """A capacity by its name without a domain; 0 without."""
        for qualified, capacity in (self.capacity or {}).items():
            if qualified.rpartition("/")[2] == name:
                return amount(capacity.value)
        return 0.0

    @property
    def profile(self) -> str:
        """Of a part of a GPU, such as `1g.10gb`; "" for a whole GPU."""
        return str(self.attribute("profile") or "").lower()

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU or a part of a GPU, and not, say, a GPU passed through to virtual machines."""
        return self.attribute("type") in (None, "gpu", "mig")

    @property
    def gpu(self) -> int | None:
        """The number of the GPU that it is, or is a part of; None if neither attributes nor its name say."""
        for name in ("index", "minor", "parentIndex", "parentMinor"):
            value = self.attribute(name)
            if isinstance(value, int):
                return value
        found = re.search(r"\d+", self.name)
        return int(found.group()) if found else None

    def order(self) -> tuple[int, str, int, list[int | str]]:
        """Sort key that orders a node's devices as slurmd does: GPUs by their place on the bus, as NVML, unless they
        are numbered; parts of a GPU by profile and place, which are in their names.
        """
        natural = [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", self.name)]
        numbers = (self.attribute("index"), self.attribute("minor"))
        number = next((each for each in numbers if isinstance(each, int)), 0)
        return number, str(self.attribute("pciBusID") or ""), self.gpu or 0, natural


class Pool(msgspec.Struct):
    name: str = ""
    generation: int = 0


class CounterSet(msgspec.Struct):
    name: str
    counters: dict[str, Count]


class SliceSpec(msgspec.Struct, rename="camel"):
    driver: str = ""
    node_name: str | None = None
    pool: Pool = msgspec.field(default_factory=Pool)
    devices: list[Device] | None = None
    shared_counters: list[CounterSet] | None = None


class Slice(msgspec.Struct):
    """The parts of a ResourceSlice that the scheduler reads: the devices that a driver offers on a node."""

    metadata: Metadata
    spec: SliceSpec = msgspec.field(default_factory=SliceSpec)


class Offered(msgspec.Struct, frozen=True):
    """A device that jobs can have. `type`: as in `gpu:TYPE`; `shares`: its shards, 0 if one claim alone may have it."""

    driver: str
    pool: str
    device: Device
    type: str
    shares: int = 0
    #: the capacity by which it is shared
    shared_by: str = ""
    #: those that keep claims away
    taints: tuple[DeviceTaint, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """Its identity in the cluster."""
        return self.driver, self.pool, self.device.name

    def variables(self) -> Json:
        """As CEL expressions see it."""
        device = self.device
        capacity = {name: each.value for name, each in (device.capacity or {}).items()}
        return variables(self.driver, device.attributes or {}, capacity, shared=bool(self.shares))

    def shards_of(self, requested: Mapping[str, str | int]) -> int:
        """Shards for a request of these capacities. Raises Unfit."""
        names = {name.rpartition("/")[2]: value for name, value in requested.items()}
        others = names.keys() - {self.shared_by}
        if others:
            raise Unfit(f"device {self.device.name} is shared by its {self.shared_by}, not by {', '.join(others)}")
        if self.shared_by in names:
            wanted = amount(names[self.shared_by])
        else:
            policy = next(
                each.request_policy
                for name, each in (self.device.capacity or {}).items()
                if name.rpartition("/")[2] == self.shared_by
            )
            default = policy.default if policy is not None else None
            wanted = self.device.amount_of(self.shared_by) if default is None else amount(default)
        unit = _GIB if self.shared_by == _MEMORY else 1.0
        return max(1, int(-(-wanted // unit)))

    def consumed(self, shards: int, requested: Mapping[str, str | int]) -> dict[str, str]:
        """What an allocation with these shards takes of each capacity."""
        asked = {name.rpartition("/")[2]: value for name, value in requested.items()}
        taken = {}
        for qualified, capacity in (self.device.capacity or {}).items():
            name = qualified.rpartition("/")[2]
            policy = capacity.request_policy
            if name in asked:
                taken[qualified] = str(asked[name])
            elif name == self.shared_by:
                taken[qualified] = f"{shards}Gi" if name == _MEMORY else str(shards)
            else:
                taken[qualified] = str(capacity.value if policy is None or policy.default is None else policy.default)
        return taken


def offered_by(
    node: str, slices: Iterable[Slice], layout: str = "", product: str = "", rules: Iterable[TaintRule] = ()
) -> list[Offered]:
    """GPUs and parts of GPUs that the node's ResourceSlices of the newest generation offer, in their order.

    `product`: the type of whole GPUs whose attributes do not name it. Raises Unfit for a layout that is impossible.
    """
    mine = [each.spec for each in slices if each.spec.node_name == node and each.spec.driver in GPU_DRIVERS]
    newest: dict[tuple[str, str], int] = {}
    for spec in mine:
        pool = spec.driver, spec.pool.name
        newest[pool] = max(newest.get(pool, 0), spec.pool.generation)
    mine = [spec for spec in mine if spec.pool.generation == newest[spec.driver, spec.pool.name]]
    counters = {
        (spec.driver, spec.pool.name, counter.name): {
            name: amount(count.value) for name, count in counter.counters.items()
        }
        for spec in mine
        for counter in spec.shared_counters or ()
    }
    devices = sorted(
        ((spec, device) for spec in mine for device in spec.devices or () if device.is_gpu),
        key=lambda pair: pair[1].order(),
    )
    chosen = _divided(devices, counters, layout)
    has_parts = any(device.profile for _spec, device in chosen)
    rules = list(rules)
    return [_offered(spec, device, product, has_parts, rules) for spec, device in chosen]


Placed = tuple[SliceSpec, Device]


def _divided(
    devices: Sequence[Placed], counters: dict[tuple[str, str, str], dict[str, float]], layout: str
) -> list[Placed]:
    """Devices that can all be had at once: those without counters, and one division of each partitionable GPU."""
    chosen = [pair for pair in devices if not pair[1].consumes_counters]
    divisible = [pair for pair in devices if pair[1].consumes_counters]
    wanted = parse_layout(layout)
    for gpu in dict.fromkeys(device.gpu for _spec, device in divisible):
        here = [pair for pair in divisible if pair[1].gpu == gpu]
        for profile, count in (wanted.get(gpu) or wanted.get(None) or [("", 1)]) if gpu is not None else [("", 1)]:
            fitting = [pair for pair in here if pair[1].profile == profile and _takes(pair, counters)]
            left = count
            for pair in fitting:
                if left and _takes(pair, counters, take=True):
                    chosen.append(pair)
                    left -= 1
            if left:
                what = f"{count} {profile}" if profile else "the whole GPU"
                raise Unfit(f"{LAYOUT}: GPU {gpu} has no room for {what}")
    return sorted(chosen, key=lambda pair: pair[1].order())


def _takes(pair: Placed, counters: dict[tuple[str, str, str], dict[str, float]], *, take: bool = False) -> bool:
    """Whether the counters have enough left for the device, which takes it with `take`."""
    spec, device = pair
    needs = [
        (counters.get((spec.driver, spec.pool.name, counter.counter_set), {}), name, amount(count.value))
        for counter in device.consumes_counters or ()
        for name, count in counter.counters.items()
    ]
    if any(left.get(name, 0.0) < need for left, name, need in needs):
        return False
    if take:
        for left, name, need in needs:
            left[name] -= need
    return True


def parse_layout(text: str) -> dict[int | None, list[tuple[str, int]]]:
    """`0-3=1g.10gb:7;4=3g.40gb,2g.20gb:2` as profiles and their numbers by GPU; None: all others. Raises Unfit."""
    found: dict[int | None, list[tuple[str, int]]] = {}
    for entry in filter(None, text.split(";")):
        gpus, equals, profiles = entry.rpartition("=")
        try:
            numbers = [*ranges.ids_of(ranges.parse_ids(gpus, _GPUS_MAX))] if equals else [None]
            parts = [gres.parse(f"gpu:{profile}")[0] for profile in profiles.split(",")]
        except NotationError as error:
            raise Unfit(f"{LAYOUT}={text[:60]!r}: {error}") from error
        for number in numbers:
            found[number] = [(part.type.lower(), part.count) for part in parts]
    return found


def _offered(
    spec: SliceSpec, device: Device, product: str, has_parts: bool, rules: Sequence[TaintRule] = ()
) -> Offered:
    named = product or str(device.attribute("productName") or "").lower().replace(" ", "-")
    # Among parts a whole GPU needs a type: a request without a type would get either.
    kind = device.profile or named or ("whole" if has_parts else "")
    shares, shared_by = 0, ""
    if device.allow_multiple_allocations:
        if count := int(device.amount_of(_SHARES)):
            shares, shared_by = count, _SHARES
        elif gib := int(device.amount_of(_MEMORY) // _GIB):
            shares, shared_by = gib, _MEMORY
    taints = [*(device.taints or ()), *(rule.spec.taint for rule in rules if rule.selects(spec, device))]
    kept = tuple(taint for taint in taints if taint.effect in ("NoSchedule", "NoExecute"))
    return Offered(spec.driver, spec.pool.name, device, kind, shares, shared_by, kept)


def gres_of(offered: Sequence[Offered]) -> str:
    """The devices as `Gres=` has them."""
    gpus = Counter(device.type for device in offered)
    shards: Counter[str] = Counter()
    for device in offered:
        if device.shares:
            shards[device.type] += device.shares
    words = [f"{name}:{kind}:{count}" if kind else f"{name}:{count}"
             for name, counts in (("gpu", gpus), ("shard", shards)) for kind, count in counts.items()]  # fmt: skip
    return ",".join(words)


class Group(msgspec.Struct, frozen=True):
    """Devices of a node that a job can ask for by `name` and `type`, by their numbers. `type` "": of any type."""

    name: str
    type: str
    devices: Mapping[int, Offered]


def numbered(text: str, offered: Sequence[Offered]) -> dict[int, Offered]:
    """Devices of a node whose `Gres=` is `text`, by their numbers. Those that the text does not count are left out.

    A line's type may be a part of the type of a device, as with AutoDetect in gres.conf. Devices of several types on a
    line without a type are left out too: both sides order types as they like.
    """
    found: dict[int, Offered] = {}
    free = list(offered)
    # Lines with a type choose first: a line without a type has the remaining devices.
    for start, line in sorted(_numbered_lines(text), key=lambda pair: not pair[1].type):
        taken = [each for each in free if _is_of(line.type, each)][: line.count]
        for number, each in enumerate(taken, start):
            free.remove(each)
            if line.type or len({one.type for one in taken}) == 1:
                found[number] = each
    return found


def groups_of(text: str, offered: Sequence[Offered]) -> list[Group]:
    """What jobs can ask for on a node whose `Gres=` is `text`: devices of each type, and of any. A group of which a
    device is in no ResourceSlice is left out.
    """
    devices = numbered(text, offered)
    gpus: dict[str, list[int]] = {}
    for start, line in _numbered_lines(text):
        gpus.setdefault(line.type, []).extend(range(start, start + line.count))
    every = [number for numbers in gpus.values() for number in numbers]
    # Shards without a type are on all GPUs.
    shards = {line.type: gpus.get(line.type, []) if line.type else every for line in _lines(text, "shard")}
    found = []
    for name, by_type in (("gpu", gpus), ("shard", shards)):
        wanted = {**by_type, "": [number for numbers in by_type.values() for number in numbers]}
        for kind, numbers in wanted.items():
            if numbers and all(number in devices for number in numbers):
                found.append(Group(name, kind, {number: devices[number] for number in numbers}))
    return found


def _all_lines(text: str) -> list[gres.GresRequest]:
    """Lines of GPUs and of shards."""
    plain = re.sub(r"\([^)]*\)", "", text)
    return [line for item in plain.split(",") for line in gres.parse(item) if line.name in ("gpu", "shard")]


def _lines(text: str, name: str) -> list[gres.GresRequest]:
    return [line for line in _all_lines(text) if line.name == name]


def _numbered_lines(text: str) -> list[tuple[int, gres.GresRequest]]:
    """GPUs' lines, each with the number of its first device."""
    found, first = [], 0
    for line in _lines(text, "gpu"):
        found.append((first, line))
        first += line.count
    return found


def _is_of(kind: str, offered: Offered) -> bool:
    """Whether a device may be of a type of Slurm, such as `h100` or `nvidia_h100_80gb_hbm3_1g.10gb`."""
    wanted = _plain(kind)
    if offered.device.profile:
        return not wanted or wanted == _plain(offered.type) or wanted.endswith(f"_{_plain(offered.type)}")
    names = (offered.type, str(offered.device.attribute("productName") or ""))
    return any(wanted in _plain(name) for name in names)


def _plain(name: str) -> str:
    return re.sub(r"[ -]", "_", name.lower())


#: What a request gets from the groups of a node: (name, type) -> shards for each device, 1 for whole devices, 0 if the
#: group does not serve the request.
Served = Mapping[tuple[str, str], int]


class Inventory:
    """The devices of all nodes, found once for each state of their ResourceSlices.

    `layout` and `product` of a node come from its labels; `gres`: what its node in Slurm has, "" for no devices, None
    if that is not known, when what it would be made with counts.
    """

    def __init__(self) -> None:
        self._slices: dict[str, tuple[str, Slice]] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self._labels: dict[str, tuple[str, str]] = {}
        self._rules: dict[str, TaintRule] = {}
        self._rules_version = 0
        #: node -> what was found, and what made it
        self._offered: dict[str, tuple[object, list[Offered]]] = {}
        #: request -> node -> what served it, and what made it
        self._served: dict[bytes, dict[str, tuple[object, Served]]] = {}
        self.gres: Callable[[str], str | None] = lambda node: None

    def set_slice(self, key: str, version: str, each: Slice | None) -> None:
        """A ResourceSlice as it is now; None: it has gone."""
        before = self._slices.pop(key, None)
        for node in {one.spec.node_name for one in (each, before and before[1]) if one is not None}:
            self._offered.pop(node or "", None)
        if before is not None:
            self._by_node.get(before[1].spec.node_name or "", {}).pop(key, None)
        if each is not None:
            self._slices[key] = version, each
            self._by_node.setdefault(each.spec.node_name or "", {})[key] = None

    def set_rule(self, name: str, rule: TaintRule | None) -> None:
        """A DeviceTaintRule as it is now; None: it has gone."""
        self._rules_version += 1
        self._offered.clear()
        if rule is None:
            self._rules.pop(name, None)
        else:
            self._rules[name] = rule

    def set_node(self, node: str, layout: str, product: str) -> None:
        """What a node's labels say of its devices."""
        if self._labels.get(node) != (layout, product):
            self._labels[node] = layout, product
            self._offered.pop(node, None)

    def offered(self, node: str) -> list[Offered]:
        """Its devices. Raises Unfit for a layout that is impossible."""
        return self._stamped(node)[1]

    def _stamped(self, node: str) -> tuple[object, list[Offered]]:
        if node not in self._offered:
            slices = [self._slices[key] for key in self._by_node.get(node, ())]
            layout, product = self._labels.get(node, ("", ""))
            stamp = layout, product, tuple(version for version, _slice in slices), self._rules_version
            found = offered_by(node, [each for _version, each in slices], layout, product, self._rules.values())
            self._offered[node] = stamp, found
        return self._offered[node]

    def devices(self, node: str) -> dict[int, Offered]:
        """Its devices by their numbers."""
        offered = self.offered(node)
        return numbered(self._text(node, offered), offered)

    def _text(self, node: str, offered: Sequence[Offered]) -> str:
        text = self.gres(node)
        return gres_of(offered) if text is None else text

    def served(self, node: str, key: bytes, serves: Callable[[Group], int]) -> Served:
        """What the request that `key` stands for gets from each group of the node's devices."""
        try:
            stamp, offered = self._stamped(node)
        except Unfit:
            stamp, offered = None, []
        text = self._text(node, offered)
        known = self._served.setdefault(key, {})
        if len(self._served) > _REQUESTS_MAX:
            self._served = {key: known}
        if node not in known or known[node][0] != (stamp, text):
            # Types that devices of no ResourceSlice have, too: they serve no request, and must not be chosen.
            found = dict.fromkeys(((line.name, kind) for line in _all_lines(text) for kind in (line.type, "")), 0)
            found |= {(group.name, group.type): serves(group) for group in groups_of(text, offered)}
            known[node] = (stamp, text), found
        return known[node][1]
