"""GPUs visible to a job, a step and a task: CUDA_VISIBLE_DEVICES and others.

Indexes are the node's own, unless ConstrainDevices hides all other GPUs: then they count those of the step. Pure.
Source: gres.conf(5) Flags, srun(1) --gpu-bind, sbatch(1) SLURM_JOB_GPUS, SLURM_GPUS_ON_NODE, SLURM_SHARDS_ON_NODE.
"""

from __future__ import annotations

from spritz.model.resources import GresAllocation, GresCapacity, NodeAllocation, mask_ids, mask_of

#: Vendor -> variables that select devices.
_VARIABLES = {
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "amd": ("ROCR_VISIBLE_DEVICES",),
    "intel": ("ZE_AFFINITY_MASK",),
    "opencl": ("GPU_DEVICE_ORDINAL",),
}


#: resources that stand for GPUs: their indexes are those of GPUs
_OF_GPUS = ("gpu", "shard", "mps")


def gpu_kinds(capacity: tuple[GresCapacity, ...]) -> frozenset[str]:
    """Vendors whose variables are set on a node: as Flags= of its GPUs say, or all."""
    flags = {flag.lower() for line in capacity if line.name == "gpu" for flag in line.flags}
    if "no_gpu_env" in flags:
        return frozenset()
    kinds = frozenset(kind for kind in _VARIABLES if f"{kind}_gpu_env" in flags)
    return kinds or frozenset(_VARIABLES)


def mps_each(capacity: tuple[GresCapacity, ...]) -> int:
    """Shares of MPS on one GPU of a node; 0 for none."""
    return max((line.per_device or line.count for line in capacity if line.name == "mps"), default=0)


def gpu_mask(gres: tuple[GresAllocation, ...]) -> int:
    """All GPUs in an allocation, those that it has shards of included."""
    mask = 0
    for share in gres:
        if share.name in _OF_GPUS:
            mask |= mask_of(share.indexes)
    return mask


def visible(mask: int, kinds: frozenset[str], within: int = 0, uuids: tuple[str, ...] = ()) -> dict[str, str]:
    """Variables that show the GPUs of `mask` and no others; none for none.

    `within`: the GPUs that can be opened at all, if the kernel hides the others; they count from 0 then. `uuids`: names
    of NVIDIA's by index, where there are parts of GPUs (MIG), which have no numbers.
    """
    if not mask:
        return {}
    places = mask_ids(within) if within else ()
    shown = [place for place, index in enumerate(places) if mask >> index & 1] if within else mask_ids(mask)
    listed = ",".join(map(str, shown))
    named = [uuids[index] if index < len(uuids) else "" for index in mask_ids(mask)]
    by_kind = {"nvidia": ",".join(named) if named and all(named) else listed}
    return {name: by_kind.get(kind, listed) for kind in sorted(kinds) for name in _VARIABLES[kind]}


def stale_variables(
    capacity: tuple[GresCapacity, ...], gres: tuple[GresAllocation, ...], kinds: frozenset[str]
) -> frozenset[bytes]:
    """Names of variables about GPUs that a script or shell may hand to what has no GPUs here (srun --gres=none).

    As in Slurm they are removed where the node has GPUs; SLURM_JOB_GPUS stays.
    """
    if gpu_mask(gres) or not any(line.name in _OF_GPUS for line in capacity):
        return frozenset()
    selecting = {name for kind in kinds for name in _VARIABLES[kind]}
    return frozenset(name.encode() for name in selecting | {"SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS"})


def gpu_variables(
    gres: tuple[GresAllocation, ...],
    kinds: frozenset[str],
    *,
    local: bool = False,
    uuids: tuple[str, ...] = (),
    mps_each: int = 0,
) -> dict[str, str]:
    """The variables that name the visible devices of the node, and their number. `local`: the kernel hides all other
    GPUs. `mps_each`: shares of MPS that stand on one GPU.
    """
    mask = gpu_mask(gres)
    variables = visible(mask, kinds, mask if local else 0, uuids)
    count = sum(mask_of(share.indexes).bit_count() for share in gres if share.name == "gpu")
    if count:
        variables["SLURM_GPUS_ON_NODE"] = str(count)
    shards = sum(share.count for share in gres if share.name == "shard")
    if shards:
        variables["SLURM_SHARDS_ON_NODE"] = str(shards)
    mps = sum(share.count for share in gres if share.name == "mps")
    if mps and mps_each:
        variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(max(1, mps * 100 // mps_each))
    return variables


def device_files(
    capacity: tuple[GresCapacity, ...], gres: tuple[GresAllocation, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(files of devices that are not in an allocation, those that are), of all that gres.conf names on the node.

    A file shared by several devices, such as slices of a GPU (MIG), is allowed if one of them is allocated.
    """
    denied: list[str] = []
    indexes: list[str] = []
    for line in capacity:
        if line.name in _OF_GPUS:
            mask = gpu_mask(gres)
        else:
            mask = sum(
                {1 << bit for share in gres if share.name == line.name for bit in mask_ids(mask_of(share.indexes))}
            )
        for place, files in enumerate(line.files, line.first_index):
            (indexes if mask >> place & 1 else denied).extend(files.split(","))
    return tuple(file for file in denied if file not in indexes), tuple(indexes)


def listed_gpus(gres: tuple[GresAllocation, ...]) -> str:
    """Indexes of all GPUs, `0,1`; empty for none."""
    return ",".join(map(str, mask_ids(gpu_mask(gres))))


def job_gpu_variables(node: NodeAllocation) -> dict[str, str]:
    """SLURM_JOB_GPUS, if the job has any here."""
    listed = listed_gpus(node.gres)
    return {"SLURM_JOB_GPUS": listed} if listed else {}


def bound_gpus(bind: str, mask: int, local_id: int, tasks: int) -> int:
    """The GPUs of one task under --gpu-bind; all of `mask` where the option leaves them shared.

    Counts and lists are about the devices that the step has, in their order. `closest` needs to know where devices sit,
    which nothing here does: all are as close.
    """
    devices = mask_ids(mask)
    words = bind.split(",", 1)
    while len(words) == 2 and words[0] in ("verbose", "v", "quiet", "q"):
        words = words[1].split(",", 1)
    kind, _, value = ",".join(words).partition(":")
    if not devices or kind in ("", "none", "closest", "verbose", "quiet"):
        return mask
    if kind == "single":
        per_device = max(1, int(value or 1))
        return 1 << devices[(local_id // per_device) % len(devices)]
    if kind == "per_task":
        per_task = max(1, int(value or 1))
        chosen = [
            devices[(local_id * per_task + number) % len(devices)] for number in range(min(per_task, len(devices)))
        ]
        return sum(1 << device for device in set(chosen))
    entries = _entries(value)
    entry = entries[local_id % len(entries)] if entries else ""
    if kind == "map_gpu" and entry:
        return mask & 1 << int(entry, 0) or mask
    if kind == "mask_gpu" and entry:
        return mask & int(entry, 16) or mask
    return mask


def _entries(listed: str) -> list[str]:
    """`0*2,1` -> ["0", "0", "1"]."""
    entries = []
    for word in listed.split(","):
        value, _, times = word.partition("*")
        entries += [value] * (int(times) if times.isdecimal() else 1)
    return entries
