"""GPUs that are found by themselves, and what a node says of them. Source: gres.conf(5) AutoDetect, Type."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from spritz.model.resources import GresAllocation, GresCapacity
from spritz.node.hardware.gpu_detection import Device, by_model, fitted, nvml_devices, with_gpus
from spritz.node.launch.build import NodeSetup
from spritz.node.launch.environment import NodeFacts
from spritz.node.launch.gpus import device_files, gpu_variables

H100 = "nvidia_h100_80gb_hbm3"
L4 = "nvidia_l4"
FACTS = NodeFacts(name="n1", cluster_name="c", slurm_conf="/etc/slurm.conf")


def gpus(count: int, kind: str = "", *files: str) -> GresCapacity:
    return GresCapacity(name="gpu", type=kind, count=count, files=files)


@pytest.mark.parametrize(
    ("configured", "found", "present"),
    [
        ((gpus(8),), (gpus(8, H100),), (8,)),
        ((gpus(8),), (gpus(7, H100),), (7,)),  # one fell off the bus
        ((gpus(2),), (gpus(8, H100),), (2,)),  # no more than configured
        ((gpus(8, "h100"),), (gpus(8, H100),), (8,)),  # part of the model's name
        ((gpus(8, "H100"),), (gpus(8, H100),), (8,)),
        ((gpus(8, "a100"),), (gpus(8, H100),), (0,)),
        ((gpus(2, "h100"), gpus(1, "l4")), (gpus(2, H100), gpus(1, L4)), (2, 1)),
        ((gpus(3), gpus(1, "l4")), (gpus(2, H100), gpus(1, L4)), (1, 2)),  # the typed line chooses first
        ((gpus(2, "x", "/dev/a", "/dev/b"),), (), (2,)),  # described by hand
        ((GresCapacity(name="shard", count=40),), (), (40,)),
    ],
)
def test_configured_gpus_count_as_far_as_there_are_devices_of_their_type(
    configured: tuple[GresCapacity, ...], found: tuple[GresCapacity, ...], present: tuple[int, ...]
) -> None:
    kinds = [line.type for line in found for _ in range(line.count)]
    devices = [Device(type=kind, files=f"/dev/nvidia{index}") for index, kind in enumerate(kinds)]
    there = fitted(configured, devices)
    assert tuple(line.count for line in there.gres) == present
    assert not there.uuids


class FakeNvml(types.ModuleType):
    """NVML with these devices, those of `parts` divided into (profile, GPU instance, compute instance); an error to
    initialise if there are none. Names and numbers as in nvml.h.
    """

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __init__(
        self,
        *names: str | bytes,
        parts: dict[int, list[tuple[str, int, int] | None]] | None = None,
        places: dict[int, int] | None = None,
    ) -> None:
        super().__init__("pynvml")
        self.names = names
        self.parts = parts or {}
        #: GPU instance -> its place on the GPU; without, NVML does not say
        self.places = places

    def nvmlInit(self) -> None:
        if not self.names:
            raise self.NVMLError

    def nvmlShutdown(self) -> None:
        self.nvmlInit()

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> tuple[int, int]:
        return index, -1

    def nvmlDeviceGetMinorNumber(self, handle: tuple[int, int]) -> int:
        return handle[0]

    def nvmlDeviceGetUUID(self, handle: tuple[int, int]) -> str:
        return f"GPU-{handle[0]}" if handle[1] < 0 else f"MIG-{handle[0]}-{handle[1]}"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: tuple[int, int]) -> list[types.SimpleNamespace]:
        return []

    def nvmlDeviceGetProcessUtilization(self, handle: tuple[int, int], since: int) -> list[types.SimpleNamespace]:
        raise self.NVMLError  # none since then

    def nvmlDeviceGetMigMode(self, handle: tuple[int, int]) -> list[int]:
        if "L4" in str(self.names[handle[0]]):
            raise self.NVMLError  # not supported
        return [int(handle[0] in self.parts), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: tuple[int, int]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: tuple[int, int], place: int) -> tuple[int, int]:
        made = self.parts[handle[0]]
        if place >= len(made) or made[place] is None:
            raise self.NVMLError  # not found
        return handle[0], place

    def _part(self, handle: tuple[int, int]) -> tuple[str, int, int]:
        part = self.parts[handle[0]][handle[1]]
        assert part is not None
        return part

    def nvmlDeviceGetGpuInstanceId(self, handle: tuple[int, int]) -> int:
        return self._part(handle)[1]

    def nvmlDeviceGetGpuInstanceById(self, handle: tuple[int, int], instance: int) -> int:
        if self.places is None:
            raise self.NVMLError  # no permission
        return instance

    def nvmlGpuInstanceGetInfo(self, instance: int) -> types.SimpleNamespace:
        assert self.places is not None
        return types.SimpleNamespace(placement=types.SimpleNamespace(start=self.places[instance], size=1))

    def nvmlDeviceGetComputeInstanceId(self, handle: tuple[int, int]) -> int:
        return self._part(handle)[2]

    def nvmlDeviceGetName(self, handle: tuple[int, int]) -> str | bytes:
        name = self.names[handle[0]]
        return name if handle[1] < 0 else f"{name!s} MIG {self._part(handle)[0]}"


def test_what_nvml_finds_is_named_as_slurm_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/nvidiactl")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("NVIDIA H100 80GB HBM3", b"NVIDIA H100 80GB HBM3", "NVIDIA L4"))
    assert [(line.type, line.count, line.first_index) for line in by_model(nvml_devices())] == [
        (H100, 2, 0),
        (L4, 1, 2),
    ]


def test_no_gpus_are_found_where_nvml_does_not_start_or_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    for there in (True, False):
        monkeypatch.setattr(os.path, "exists", lambda path, there=there: there)
        assert nvml_devices() == ()


A100 = "NVIDIA A100-SXM4-40GB"
MINORS = "config 1\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi5/access 48\ngpu0/gi5/ci0/access 49\n"


def divided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Device, ...]:
    """An A100 in two parts, with a place between them where none is, and one that is whole."""
    minors = tmp_path / "mig-minors"
    minors.write_text(MINORS)
    monkeypatch.setattr("spritz.node.hardware.gpu_detection._MINORS", str(minors))
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/nvidiactl")
    parts = {0: [("3g.20gb", 1, 0), None, ("1g.5gb", 5, 0)]}
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(A100, A100, parts=parts))
    return nvml_devices()


def test_a_divided_gpu_counts_as_its_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    devices = divided(monkeypatch, tmp_path)
    kind = "nvidia_a100-sxm4-40gb"
    assert [device.type for device in devices] == [f"{kind}_3g.20gb", f"{kind}_1g.5gb", kind]
    assert [device.uuid for device in devices] == ["MIG-0-0", "MIG-0-2", "GPU-1"]
    assert [device.files for device in devices] == [
        "/dev/nvidia0,/dev/nvidia-caps/nvidia-cap12,/dev/nvidia-caps/nvidia-cap13",
        "/dev/nvidia0,/dev/nvidia-caps/nvidia-cap48,/dev/nvidia-caps/nvidia-cap49",
        "/dev/nvidia1",
    ]


def test_parts_of_a_profile_are_in_the_order_of_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML lists GPU instances by their ids."""
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/nvidiactl")
    parts: dict[int, list[tuple[str, int, int] | None]] = {
        0: [("3g.20gb", 1, 0), ("1g.5gb", 7, 0), ("1g.5gb", 9, 0), ("1g.5gb", 11, 0)]
    }
    places = {1: 4, 7: 2, 9: 3, 11: 0}
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(A100, parts=parts, places=places))
    assert [device.uuid for device in nvml_devices()] == ["MIG-0-0", "MIG-0-3", "MIG-0-1", "MIG-0-2"]


def test_a_job_sees_its_part_by_its_name_and_opens_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    devices = divided(monkeypatch, tmp_path)
    small = GresCapacity(name="gpu", type="1g.5gb", count=1, first_index=0)
    large = GresCapacity(name="gpu", type="3g.20gb", count=2, first_index=1)
    found = fitted((small, large), devices)
    assert [(line.type, line.count) for line in found.gres] == [("1g.5gb", 1), ("3g.20gb", 1)]
    mine = (GresAllocation(name="gpu", type="1g.5gb", count=1, indexes="1"),)
    setup = with_gpus(NodeSetup(facts=FACTS, cpus=8, gres=(small, large), cgroup_devices="g"), found)
    facts = setup.facts
    seen = gpu_variables(mine, frozenset({"nvidia", "amd"}), local=facts.local_gpus, uuids=facts.gpu_uuids)
    assert seen == {"CUDA_VISIBLE_DEVICES": "MIG-0-2", "ROCR_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "1"}
    denied, given = device_files(setup.gres, mine)
    assert set(given) == set(devices[1].files.split(","))
    assert set(denied) == set(devices[0].files.split(",")) - {"/dev/nvidia0"}


def test_whole_gpus_keep_their_numbers() -> None:
    setup = NodeSetup(facts=FACTS, cpus=8, gres=(gpus(2),))
    whole = [Device(type=L4, files=f"/dev/nvidia{index}", uuid=f"GPU-{index}") for index in range(2)]
    assert with_gpus(setup, fitted((gpus(2),), whole)) == setup
