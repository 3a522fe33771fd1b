"""Devices of ResourceSlices as generic resources, what claims come to, and which devices they get."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from spritz.k8s.pods import Gres, Unfit
from spritz.k8s.scheduling.claims import Asked, Claim, DeviceClass, asked, asked_of, status_of
from spritz.k8s.scheduling.devices import (
    Inventory,
    Slice,
    TaintRule,
    gres_of,
    groups_of,
    numbered,
    offered_by,
    parse_layout,
)
from spritz.k8s.scheduling.placing import Place
from spritz.k8s.scheduling.selectors import BadSelector, matches, variables
from tests.unit.k8s.test_pods import pod

pytest.importorskip("cel_expr_python")

DRIVER = "gpu.nvidia.com"
OWN = f"device.attributes['{DRIVER}']"


def gpu(number: int, product: str = "NVIDIA H100", shares: int = 0, **more: Any) -> dict[str, Any]:
    attributes = {"type": {"string": "gpu"}, "productName": {"string": product}}
    device: dict[str, Any] = {
        "name": f"gpu-{number}",
        "attributes": attributes,
        "capacity": {"memory": {"value": "80Gi"}},
    }
    if shares:
        policy = {"default": "1"}
        device["allowMultipleAllocations"] = True
        device["capacity"]["shares"] = {"value": str(shares), "requestPolicy": policy}
    return device | more


def part(number: int, place: int, profile: str = "1g.10gb", **more: Any) -> dict[str, Any]:
    attributes = {"type": {"string": "mig"}, "profile": {"string": profile}, "productName": {"string": "NVIDIA H100"}}
    name = f"gpu-{number}-mig-{profile.replace('.', '')}-19-{place}"
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": "10Gi"}}, **more}


def slice_of(node: str, *devices: dict[str, Any], generation: int = 1, **more: Any) -> Slice:
    pool = {"name": node, "generation": generation}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices), **more}
    return msgspec.convert({"metadata": {"name": f"{node}-s"}, "spec": spec}, Slice)


def claim(*requests: dict[str, Any], name: str = "c", **devices: Any) -> Claim:
    made = [{"name": f"r{number}", "exactly": request} for number, request in enumerate(requests)]
    return msgspec.convert(
        {"metadata": {"name": name, "uid": f"u-{name}"}, "spec": {"devices": {"requests": made, **devices}}}, Claim
    )


def classes(name: str) -> DeviceClass | None:
    rule = {"gpu": f"{OWN}.type == 'gpu'", "mig": f"{OWN}.type == 'mig'", "bad": "device ="}.get(name)
    if rule is None:
        return None
    config = [{"opaque": {"driver": DRIVER, "parameters": {"class": name}}}]
    spec = {"selectors": [{"cel": {"expression": rule}}], "config": config}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass)


def inventory(*slices: Slice, **gres: str) -> Inventory:
    made = Inventory()
    for number, each in enumerate(slices):
        made.set_slice(f"s{number}", "1", each)
    made.gres = gres.get
    return made


def cel(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("device.driver == 'gpu.nvidia.com'", True),
        (f"{OWN}.profile == '1g.10gb'", True),
        (f"{OWN}.nosuch == 'x'", False),
        ("device.attributes['other.example'].?a.orValue('none') == 'none'", True),
        (f"device.capacity['{DRIVER}'].memory.compareTo(quantity('10Gi')) >= 0", True),
        (f"device.capacity['{DRIVER}'].memory.isGreaterThan(quantity('10Gi'))", False),
        (f"{OWN}.driverVersion.isGreaterThan(semver('550.54.15-rc.1'))", True),
        (f"{OWN}.driverVersion.isLessThan(semver('550.54.15'))", False),
        ("device.attributes['resource.kubernetes.io'].pcieRoot.startsWith('pci')", True),
        ("device.allowMultipleAllocations", False),
    ],
)
def test_selectors_see_a_device_as_kubernetes_shows_it(expression: str, holds: bool) -> None:
    attributes = {
        "profile": {"string": "1g.10gb"},
        "driverVersion": {"version": "550.54.15"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
    }
    device = variables(DRIVER, attributes, {"memory": "10Gi"}, shared=False)
    assert matches([expression], device) is holds


def test_what_is_no_expression_is_said() -> None:
    with pytest.raises(BadSelector, match="'device ==' is no CEL expression"):
        matches(["device =="], variables(DRIVER, {}, {}, shared=False))


def test_slices_are_gres_and_numbers_are_devices() -> None:
    old = slice_of("n1", gpu(7))
    here = slice_of("n1", part(2, 1), part(2, 0), gpu(0, shares=4), gpu(1, shares=4), generation=2)
    other = gpu(9, type="vfio") | {"attributes": {"type": {"string": "vfio"}}}
    offered = offered_by("n1", [old, here, slice_of("n1", other, generation=2), slice_of("n2", gpu(0))])
    text = gres_of(offered)
    assert text == "gpu:nvidia-h100:2,gpu:1g.10gb:2,shard:nvidia-h100:8"
    names = {number: each.device.name for number, each in numbered(text, offered).items()}
    assert names == {0: "gpu-0", 1: "gpu-1", 2: "gpu-2-mig-1g10gb-19-0", 3: "gpu-2-mig-1g10gb-19-1"}
    # A node of slurmd lists its types as it likes, and names them as NVML does or in part.
    mine = "gpu:nvidia_h100_1g.10gb:2(S:0),gpu:h100:2(S:0-1)"
    assert {number: each.device.name for number, each in numbered(mine, offered).items()} == {
        0: "gpu-2-mig-1g10gb-19-0", 1: "gpu-2-mig-1g10gb-19-1", 2: "gpu-0", 3: "gpu-1",
    }  # fmt: skip
    assert {(group.name, group.type): list(group.devices) for group in groups_of(f"{mine},shard:h100:8", offered)} == {
        ("gpu", "nvidia_h100_1g.10gb"): [0, 1], ("gpu", "h100"): [2, 3], ("gpu", ""): [0, 1, 2, 3],
        ("shard", "h100"): [2, 3], ("shard", ""): [2, 3],
    }  # fmt: skip
    assert not [group for group in groups_of("gpu:h100:3", offered) if group.type], "a GPU has no device"
    assert not groups_of("gpu:4", offered), "which of them is which type nothing says"
    assert gres_of(offered_by("n3", [slice_of("n3", gpu(0), gpu(1))], product="h200")) == "gpu:h200:2"


def test_gpus_are_in_the_order_of_the_bus_and_parts_in_that_of_their_places() -> None:
    """As NVML has GPUs, whatever their drivers' minor numbers are."""

    def on(bus: str, device: dict[str, Any]) -> dict[str, Any]:
        return device | {"attributes": device["attributes"] | {"resource.kubernetes.io/pciBusID": {"string": bus}}}

    far, near = "0000:c3:00.0", "0000:18:00.0"
    here = slice_of("n1", on(far, gpu(0)), on(near, gpu(1)), *(on(near, part(2, place)) for place in (10, 4, 0)))
    names = [
        each.device.name for each in numbered("gpu:nvidia-h100:2,gpu:1g.10gb:3", offered_by("n1", [here])).values()
    ]
    assert names == ["gpu-1", "gpu-0", *(f"gpu-2-mig-1g10gb-19-{place}" for place in (0, 4, 10))]


def test_one_division_of_a_partitionable_gpu_is_offered() -> None:
    def uses(number: int, *memory: int) -> list[dict[str, Any]]:
        return [{"counterSet": f"c{number}", "counters": {f"m{each}": {"value": "1"} for each in memory}}]

    devices = []
    for number in range(3):
        devices.append(gpu(number, consumesCounters=uses(number, 0, 1, 2, 3)))
        devices += [part(number, place, consumesCounters=uses(number, place)) for place in range(4)]
        devices.append(part(number, 0, "2g.20gb", consumesCounters=uses(number, 2, 3)))
    counters = [
        {"name": f"c{number}", "counters": {f"m{each}": {"value": "1"} for each in range(4)}} for number in range(3)
    ]
    slices = [slice_of("n1", *devices), slice_of("n1", sharedCounters=counters)]
    assert gres_of(offered_by("n1", slices)) == "gpu:nvidia-h100:3"
    divided = offered_by("n1", slices, "0=1g.10gb:4;1=2g.20gb,1g.10gb:2")
    assert gres_of(divided) == "gpu:1g.10gb:6,gpu:2g.20gb:1,gpu:nvidia-h100:1"
    assert gres_of(offered_by("n1", slices, "2g.20gb")) == "gpu:2g.20gb:3"
    assert parse_layout("0-1=1g.10gb:7;3g.40gb") == {0: [("1g.10gb", 7)], 1: [("1g.10gb", 7)], None: [("3g.40gb", 1)]}
    for wrong, why in (("0=2g.20gb,1g.10gb:3", "GPU 0 has no room for 3 1g.10gb"), ("x=1g.10gb", "mig-layout")):
        with pytest.raises(Unfit, match=why):
            offered_by("n1", slices, wrong)


def test_a_request_is_the_type_all_of_whose_devices_match_on_most_nodes() -> None:
    here = inventory(
        slice_of("n1", gpu(0), gpu(1)),
        slice_of("n2", gpu(0), part(1, 0), part(1, 1)),
        slice_of("n3", gpu(0, "NVIDIA A100"), part(1, 0)),
        n4="gpu:nvidia-h100:8",  # by a device plugin
    )
    nodes = ["n1", "n2", "n3", "n4"]

    def comes_to(*requests: dict[str, Any], at: list[str] | None = None, kind: str = "") -> Asked:
        return asked([claim(*requests)], classes, here, at or nodes, kind)

    assert comes_to({"deviceClassName": "gpu"}) == Asked((Gres("gpu", "nvidia-h100"),), frozenset({"n4"}))
    assert comes_to({"deviceClassName": "gpu", "count": 2}, at=["n1"]) == Asked((Gres("gpu", "", 2),))
    assert comes_to({"deviceClassName": "gpu"}, kind="nvidia-a100").gres == (Gres("gpu", "nvidia-a100"),)
    small = {"deviceClassName": "mig", "selectors": [cel(f"{OWN}.profile == '1g.10gb'")]}
    assert comes_to(small, {"deviceClassName": "gpu"}).gres == (Gres("gpu", "1g.10gb"), Gres("gpu", "nvidia-h100"))
    assert comes_to(small, small).gres == (Gres("gpu", "1g.10gb", 2),)
    large = {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "100Gi"}}}
    for request, why in (
        ({"deviceClassName": "gpu", "selectors": [cel(f"{OWN}.productName == 'B200'")]}, "no node has a type of GPU"),
        (large, "no node has a type of GPU"),
        ({"deviceClassName": "tpu"}, "there is no DeviceClass tpu"),
        ({"deviceClassName": "bad"}, "is no CEL expression"),
        ({"deviceClassName": "gpu", "allocationMode": "All"}, "write `exactly` with a count"),
    ):
        with pytest.raises(Unfit, match=why):
            comes_to(request)
    with pytest.raises(Unfit, match="constraints are not supported: leave them out"):
        asked([claim({"deviceClassName": "gpu"}, constraints=[{"matchAttribute": "a/b"}])], classes, here, nodes)


def test_a_changed_slice_or_layout_is_seen() -> None:
    here = inventory(slice_of("n1", gpu(0)))
    request = claim({"deviceClassName": "mig"})
    with pytest.raises(Unfit):
        asked([request], classes, here, ["n1"])
    here.set_slice("s0", "2", slice_of("n1", part(0, 0)))
    assert asked([request], classes, here, ["n1"]).gres == (Gres("gpu", ""),), "the node has no others"
    here.set_slice("s0", "3", None)
    with pytest.raises(Unfit):
        asked([request], classes, here, ["n1"])


def test_shares_are_shards_and_their_capacity_stands_in_the_allocation() -> None:
    here = inventory(slice_of("n1", gpu(0, shares=4), gpu(1, shares=4)))
    plain, three = {"deviceClassName": "gpu"}, {"deviceClassName": "gpu", "capacity": {"requests": {"shares": "3"}}}
    request = claim(plain, three)
    assert asked([request], classes, here, ["n1"]).gres == (Gres("shard", "", 4),)
    left = [("shard", 1)] * 4
    status = status_of(request, [pod()], Place("n1"), classes, here.devices("n1"), left)
    results = status["allocation"]["devices"]["results"]
    assert not left
    assert [(result["device"], result["consumedCapacity"]["shares"]) for result in results] == [
        ("gpu-1", "1"),
        ("gpu-1", "3"),
    ]
    assert len({result["shareID"] for result in results}) == 2
    assert status["allocation"]["devices"]["config"][0] == {
        "source": "FromClass",
        "requests": ["r0"],
        "opaque": {"driver": DRIVER, "parameters": {"class": "gpu"}},
    }
    with pytest.raises(Unfit, match="no device on node n1 for request r0"):
        status_of(request, [pod()], Place("n1"), classes, here.devices("n1"), [("shard", 1)] * 0)
    many = {"deviceClassName": "gpu", "capacity": {"requests": {"shares": "5"}}}
    with pytest.raises(Unfit):
        asked([claim(many)], classes, here, ["n1"])


def test_memory_is_shared_by_gibibytes() -> None:
    device = gpu(0, allowMultipleAllocations=True)
    here = inventory(slice_of("n1", device))
    assert gres_of(here.offered("n1")) == "gpu:nvidia-h100:1,shard:nvidia-h100:80"
    part_of_it = claim({"deviceClassName": "gpu", "capacity": {"requests": {"memory": "9500Mi"}}})
    assert asked([part_of_it], classes, here, ["n1"]).gres == (Gres("shard", "", 10),)
    assert asked([claim({"deviceClassName": "gpu"})], classes, here, ["n1"]).gres == (Gres("shard", "", 80),)


def test_requests_of_several_kinds_get_their_own_devices() -> None:
    here = inventory(slice_of("n1", gpu(0), part(1, 0), part(1, 1)))
    request = claim({"deviceClassName": "mig"}, {"deviceClassName": "gpu"})
    left = [("gpu", 0), ("gpu", 2)]
    status = status_of(request, [pod("p")], Place("n1"), classes, here.devices("n1"), left)
    assert [each["device"] for each in status["allocation"]["devices"]["results"]] == [
        "gpu-1-mig-1g10gb-19-1",
        "gpu-0",
    ]
    assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "u-p"}]


def test_a_tainted_device_keeps_claims_off_its_type_on_its_node() -> None:
    taint = {"key": "example.com/broken", "value": "ecc", "effect": "NoExecute"}
    here = inventory(slice_of("n1", gpu(0), gpu(1, taints=[taint])), slice_of("n2", gpu(0)))
    found = asked([claim({"deviceClassName": "gpu"})], classes, here, ["n1", "n2"])
    assert found.closed == {"n1"}
    with pytest.raises(Unfit, match=r"device gpu-1 of n1 has the taint example.com/broken, which the request does not"):
        asked([claim({"deviceClassName": "gpu"})], classes, here, ["n1"])
    for tolerated in (
        {"operator": "Exists"},
        {"key": "example.com/broken", "value": "ecc"},
        {"key": "example.com/broken", "operator": "Exists", "effect": "NoExecute"},
    ):
        request = {"deviceClassName": "gpu", "tolerations": [tolerated]}
        assert not asked([claim(request)], classes, here, ["n1", "n2"]).closed
    other = {"deviceClassName": "gpu", "tolerations": [{"key": "example.com/broken", "value": "heat"}]}
    assert asked([claim(other)], classes, here, ["n1", "n2"]).closed == {"n1"}
    # A taint that is for information alone keeps no claim away.
    told = inventory(slice_of("n1", gpu(0, taints=[{**taint, "effect": "None"}])))
    assert not asked([claim({"deviceClassName": "gpu"})], classes, told, ["n1"]).closed


def test_a_rule_taints_the_devices_that_it_selects() -> None:
    here = inventory(slice_of("n1", gpu(0)), slice_of("n2", gpu(0)))
    request = claim({"deviceClassName": "gpu"})

    def rule(**selector: Any) -> TaintRule:
        spec = {"taint": {"key": "k", "effect": "NoSchedule"}, "deviceSelector": selector}
        return msgspec.convert({"metadata": {"name": "r"}, "spec": spec}, TaintRule)

    for selector, closed in (
        ({"pool": "n2"}, {"n2"}),
        ({"driver": DRIVER, "pool": "n1", "device": "gpu-0"}, {"n1"}),
        ({"device": "gpu-7"}, set()),
        ({"selectors": [cel("true")]}, set()),
    ):
        here.set_rule("r", rule(**selector))
        assert asked([request], classes, here, ["n1", "n2"]).closed == closed
    here.set_rule("r", rule())
    with pytest.raises(Unfit, match="has the taint k"):
        asked([request], classes, here, ["n1", "n2"])
    here.set_rule("r", None)
    assert not asked([request], classes, here, ["n1", "n2"]).closed


def test_a_claim_of_several_pods_of_a_gang_counts_once() -> None:
    here = inventory(slice_of("n1", gpu(0), gpu(1)))
    both, own = (
        claim({"deviceClassName": "gpu", "count": 2}, name="both"),
        claim({"deviceClassName": "gpu"}, name="own"),
    )
    found = asked_of([both], ["both"], classes, here, ["n1"])
    assert found == Asked((), frozenset(), ("both",), (Gres("gpu", "", 2),))
    assert asked_of([own], [], classes, here, ["n1"]).gres == (Gres("gpu"),)
    status = status_of(both, [pod("a"), pod("b")], Place("n1"), classes, here.devices("n1"), [("gpu", 0), ("gpu", 1)])
    assert [user["name"] for user in status["reservedFor"]] == ["a", "b"]
