"""Detects NVIDIA GPUs and MIG slices, and matches them with configured devices.

A GPU that is divided (MIG) counts as its parts, of the type `nvidia_a100-sxm4-40gb_1g.5gb`; programs name a part by its
UUID, and its device files are those of the GPU and of its two instances.

Source: gres.conf(5) AutoDetect=nvml; https://slurm.schedmd.com/gres.html#MIG_Management; NVML API reference, MIG;
/proc/driver/nvidia-caps/mig-minors.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from spritz.model.resources import GresCapacity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spritz.node.launch.build import NodeSetup

_MINORS = "/proc/driver/nvidia-caps/mig-minors"


class Device(Struct, frozen=True, kw_only=True):
    """A GPU or a part of one. `files` are separated by commas, as gres.conf's MultipleFiles."""

    type: str
    files: str
    uuid: str = ""
    is_part: bool = False


class FoundGpus(Struct, frozen=True, kw_only=True):
    """`gres`: the configured lines, limited to existing devices. With MIG they have files, and `uuids` has the names
    for programs, by index.
    """

    gres: tuple[GresCapacity, ...]
    uuids: tuple[str, ...] = ()


def nvml_devices() -> tuple[Device, ...]:
    """Devices that NVML reports; empty without a driver."""
    if not os.path.exists("/dev/nvidiactl"):
        return ()
    import pynvml

    try:
        pynvml.nvmlInit()
        return tuple(_devices(pynvml, _minors()))
    except pynvml.NVMLError:
        return ()
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _devices(nvml: Any, minors: Mapping[str, str]) -> Iterator[Device]:
    for index in range(nvml.nvmlDeviceGetCount()):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        kind = _text(nvml.nvmlDeviceGetName(gpu)).strip().lower().replace(" ", "_")
        number = nvml.nvmlDeviceGetMinorNumber(gpu)
        if _is_divided(nvml, gpu):
            yield from _parts(nvml, gpu, kind, number, minors)
        else:
            yield Device(type=kind, files=f"/dev/nvidia{number}", uuid=_text(nvml.nvmlDeviceGetUUID(gpu)))


def _is_divided(nvml: Any, gpu: Any) -> bool:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(gpu)
    except nvml.NVMLError:
        return False  # most models do not support MIG
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _parts(nvml: Any, gpu: Any, kind: str, number: int, minors: Mapping[str, str]) -> Iterator[Device]:
    """Parts of a profile are in the order of their places on the GPU, and not in NVML's, which is that of their ids: so
    others that know their places, such as Kubernetes' driver of devices, number them alike.
    """
    parts = list(_found_parts(nvml, gpu, kind, number, minors))
    types = list(dict.fromkeys(device.type for _instance, device in parts))
    placed = [(types.index(device.type), _place(nvml, gpu, instance), device) for instance, device in parts]
    for _type, _start, device in sorted(placed, key=lambda placement: placement[:2]):
        yield device


def _place(nvml: Any, gpu: Any, instance: int) -> int:
    """Where the instance's first slice of memory is; -1 where NVML does not say."""
    try:
        return int(nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(gpu, instance)).placement.start)
    except nvml.NVMLError:
        return -1


def _found_parts(
    nvml: Any, gpu: Any, kind: str, number: int, minors: Mapping[str, str]
) -> Iterator[tuple[int, Device]]:
    """With the ids of their GPU instances."""
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
        except nvml.NVMLError:
            continue  # an unused slot
        # `NVIDIA A100-SXM4-40GB MIG 1g.5gb`
        profile = _text(nvml.nvmlDeviceGetName(part)).rpartition(" MIG ")[2].strip().lower()
        instance = nvml.nvmlDeviceGetGpuInstanceId(part)
        directory = f"gpu{number}/gi{instance}"
        names = (f"{directory}/access", f"{directory}/ci{nvml.nvmlDeviceGetComputeInstanceId(part)}/access")
        caps = [f"/dev/nvidia-caps/nvidia-cap{minors[name]}" for name in names if name in minors]
        device = Device(
            type=f"{kind}_{profile}",
            files=",".join([f"/dev/nvidia{number}", *caps]),
            uuid=_text(nvml.nvmlDeviceGetUUID(part)),
            is_part=True,
        )
        yield instance, device


def _minors() -> dict[str, str]:
    """`gpu0/gi1/ci0/access 13`: numbers of device files by what they open."""
    try:
        with open(_MINORS, encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:
        return {}
    return {words[0]: words[1] for words in lines if len(words) == 2}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def by_model(devices: Sequence[Device]) -> tuple[GresCapacity, ...]:
    """One line per run of devices of one model."""
    lines: list[GresCapacity] = []
    for index, device in enumerate(devices):
        if lines and lines[-1].type == device.type:
            last = lines.pop()
            lines.append(structs.replace(last, count=last.count + 1, files=(*last.files, device.files)))
        else:
            line = GresCapacity(name="gpu", type=device.type, count=1, first_index=index, files=(device.files,))
            lines.append(line)
    return tuple(lines)


def fitted(configured: tuple[GresCapacity, ...], devices: Sequence[Device]) -> FoundGpus:
    """The configured resources that exist, with AutoDetect of GPUs.

    GPUs count up to the number of devices of their type; a configured type may be part of the model's name. Lines with
    device files of their own, and other resources, are taken as they are. Source: gres.conf(5) AutoDetect, Type.
    """
    free = list(devices)
    divided = any(device.is_part for device in devices)
    present: list[GresCapacity] = []
    names: dict[int, str] = {}
    # Lines with a type choose first: a line without one takes the remaining devices.
    for line in sorted(configured, key=lambda line: not line.type):
        if line.name == "gpu" and not line.files:
            taken = [device for device in free if line.type.lower() in device.type][: line.count]
            for device in taken:
                free.remove(device)
            line = structs.replace(line, count=len(taken))
            if divided:
                line = structs.replace(line, files=tuple(device.files for device in taken))
                names.update((line.first_index + place, device.uuid) for place, device in enumerate(taken))
        present.append(line)
    uuids = tuple(names.get(index, "") for index in range(max(names, default=-1) + 1))
    return FoundGpus(gres=tuple(present), uuids=uuids)


def with_gpus(setup: NodeSetup, gpus: FoundGpus) -> NodeSetup:
    """The setup of a node with divided GPUs: names of slices for programs, and their device files."""
    if not gpus.uuids:
        return setup
    local = bool(setup.cgroup_devices) and all(line.files for line in gpus.gres if line.name == "gpu")
    facts = structs.replace(setup.facts, gpu_uuids=gpus.uuids, local_gpus=local)
    return structs.replace(setup, gres=gpus.gres, facts=facts)
