"""The binding of each task of a step on a node: CPU masks and GPU masks.

All masks are over the node's CPUs or devices, and a task gets part of what its step has there. Whether the node can
carry out the binding is not decided here.

Source: srun(1) --cpu-bind, --distribution (second and third method), --gpu-bind, --gpus-per-task.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from spritz.model.resources import lowest_bits, mask_ids
from spritz.model.rules.node_shape import core_list_mask, counted_layout
from spritz.notation.layout import distribution
from spritz.notation.layout.cpubind import Binding, parse_cpu_bind, parse_gpu_bind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.resources import NodeCapacity


class Hardware:
    """Socket and core masks of a node."""

    __slots__ = ("cores", "sockets")

    def __init__(self, capacity: NodeCapacity) -> None:
        sockets, cores, threads = counted_layout(capacity)
        core = (1 << threads) - 1
        socket = (1 << cores * threads) - 1
        self.cores = [core << number * threads for number in range(sockets * cores)]
        self.sockets = [socket << number * cores * threads for number in range(sockets)]


def cpu_masks(
    tasks: int, cpus: int, cpus_per_task: int, hardware: Hardware, bind: str, distributed: str, default: str = ""
) -> tuple[int, ...]:
    """A mask for each local task; () leaves all tasks unbound, with all of the step's CPUs.

    `default`: CpuBind and TaskPluginParam, for tasks without --cpu-bind. If they say nothing, tasks are bound if their
    number equals that of the step's whole sockets, cores or threads; otherwise as `autobind=` says.
    """
    binding = parse_cpu_bind(bind) if bind else Binding()
    if "one_thread" in binding.flags:
        cpus = reduce(or_, (lowest_bits(cpus & core, 1) for core in hardware.cores if cpus & core), 0)
    if not cpus:
        return ()
    if binding.type in ("map_cpu", "mask_cpu", "rank"):
        return _listed_cpus(tasks, cpus, binding)
    if binding.type in ("map_ldom", "mask_ldom"):
        return _listed_domains(tasks, cpus, binding, hardware)
    kind = binding.type or _kind_by_default(tasks * cpus_per_task, cpus, hardware, default)
    if kind == "none" or tasks * cpus_per_task > cpus.bit_count():
        return ()
    # First threads for each task, by the distribution; then, for coarser bindings, each mask is widened to the cores or
    # sockets that it touches. Tasks that touch the same socket share it.
    masks = _dealt(tasks, cpus, cpus_per_task, hardware, distributed)
    if kind == "cores":
        return tuple(_widened(mask, cpus, hardware.cores) for mask in masks)
    if kind in ("sockets", "ldoms", "rank_ldom"):
        return tuple(_widened(mask, cpus, hardware.sockets) for mask in masks)
    return tuple(masks)


def names_others(bind: str, tasks: int, cpus: int) -> bool:
    """Whether --cpu-bind lists CPUs outside `cpus`, the mask of the step."""
    binding = parse_cpu_bind(bind) if bind else Binding()
    if binding.type not in ("map_cpu", "mask_cpu"):
        return False
    used = binding.values[:tasks]
    return any((value if binding.type == "mask_cpu" else 1 << value) & ~cpus for value in used)


def _kind_by_default(wanted: int, cpus: int, hardware: Hardware, default: str) -> str:
    """How tasks with this many CPUs are bound if the user does not say."""
    if default and not default.startswith("autobind="):
        return default
    for kind, parts in (("sockets", hardware.sockets), ("cores", hardware.cores)):
        touched = [part for part in parts if part & cpus]
        if wanted == len(touched) and all(part & cpus == part for part in touched):
            return kind
    if wanted == cpus.bit_count():
        return "threads"
    return default.removeprefix("autobind=") or "none"


def _listed_domains(tasks: int, cpus: int, wanted: Binding, hardware: Hardware) -> tuple[int, ...]:
    """The lists name locality domains of the node, which are its sockets here."""
    masks = []
    for task in range(tasks):
        value = wanted.values[task % len(wanted.values)]
        domains = mask_ids(value) if wanted.type == "mask_ldom" else (value,)
        mask = reduce(or_, (hardware.sockets[number] for number in domains if number < len(hardware.sockets)), 0)
        # A domain outside of the step leaves the task with all CPUs of the step.
        masks.append(mask & cpus or cpus)
    return tuple(masks)


def _listed_cpus(tasks: int, cpus: int, wanted: Binding) -> tuple[int, ...]:
    """The lists name CPUs of the node. A mask outside the step falls back to all of the step's CPUs."""
    step_cpus = mask_ids(cpus)
    masks = []
    for task in range(tasks):
        if wanted.type == "rank":
            mask = 1 << step_cpus[task % len(step_cpus)]
        else:
            value = wanted.values[task % len(wanted.values)]
            mask = value if wanted.type == "mask_cpu" else 1 << value
        masks.append(mask & cpus or cpus)
    return tuple(masks)


def _dealt(tasks: int, cpus: int, per_task: int, hardware: Hardware, distributed: str) -> list[int]:
    """`per_task` CPUs per task: socket by socket (block), or task by task over the sockets in turn (cyclic, the
    default).
    """
    method = distribution.parse(distributed).sockets if distributed else ""
    if method == "block" or len(hardware.sockets) == 1:
        return _filled(tasks, cpus, per_task)
    # fcyclic deals single CPUs over the sockets, so a task of several CPUs lies on several sockets. cyclic deals whole
    # tasks: all CPUs of one on the next socket that has them, or else what that has and the others add.
    free = [cpus & socket for socket in hardware.sockets]
    masks = []
    turn = 0
    for _ in range(tasks):
        mask = 0
        if method == "fcyclic":
            while mask.bit_count() < per_task:
                turn = _next_socket(free, turn, 1)
                cpu = lowest_bits(free[turn], 1)
                free[turn] &= ~cpu
                mask |= cpu
                turn += 1
        else:
            turn = _next_socket(free, turn, per_task)
            mask = lowest_bits(free[turn], per_task)
            free[turn] &= ~mask
            for number in range(len(free)):
                more = lowest_bits(free[number], per_task - mask.bit_count())
                free[number] &= ~more
                mask |= more
            turn += 1
        masks.append(mask)
    return masks


def _next_socket(free: list[int], start: int, count: int) -> int:
    """The next socket with enough free CPUs; else the next with any."""
    numbers = [(start + offset) % len(free) for offset in range(len(free))]
    for number in numbers:
        if free[number].bit_count() >= count:
            return number
    return next(number for number in numbers if free[number])


def _filled(tasks: int, cpus: int, per_task: int) -> list[int]:
    masks = []
    for _ in range(tasks):
        mask = lowest_bits(cpus, per_task)
        cpus &= ~mask
        masks.append(mask)
    return masks


def _widened(mask: int, cpus: int, parts: list[int]) -> int:
    wide = 0
    for part in parts:
        if part & mask:
            wide |= part
    return wide & cpus


def gpu_masks(
    tasks: int,
    devices: int,
    per_task: Sequence[tuple[int, int]],
    bind: str,
    cpus_by_task: tuple[int, ...],
    near: dict[int, int],
) -> tuple[int, ...]:
    """A mask of devices for each local task; () leaves all of the step's devices to all tasks.

    `per_task`: (devices of a type, how many of them each task gets) of --gpus-per-task. `near[device]`: mask of CPUs
    close to it (missing: all).
    """
    binding = parse_gpu_bind(bind) if bind else Binding()
    if not devices or binding.type == "none":
        return ()
    # Numbers and masks of the user count the step's own devices, and are used again from the first if there are more
    # tasks.
    step_devices = mask_ids(devices)
    if binding.type in ("map_gpu", "map"):
        return tuple(
            1 << step_devices[binding.values[task % len(binding.values)] % len(step_devices)] for task in range(tasks)
        )
    if binding.type in ("mask_gpu", "mask"):
        return tuple(
            _relative(binding.values[task % len(binding.values)], step_devices) or devices for task in range(tasks)
        )
    if binding.type == "single":
        shared = max(1, binding.values[0] if binding.values else 1)
        return tuple(1 << step_devices[task // shared % len(step_devices)] for task in range(tasks))
    if binding.type == "closest":
        return _closest(tasks, devices, cpus_by_task, near)
    shares = [(devices, binding.values[0])] if binding.type == "per_task" and binding.values else per_task
    # With too few devices for every task, all tasks share all devices: as for a step without binding.
    if not shares or any(count * tasks > mask.bit_count() for mask, count in shares):
        return ()
    dealt = [_filled(tasks, mask, count) for mask, count in shares]
    return tuple(reduce(or_, masks) for masks in zip(*dealt, strict=True))


def _relative(mask: int, step_devices: list[int]) -> int:
    """Bit i of `mask` means the i-th of the step's own devices."""
    chosen = 0
    for index in mask_ids(mask):
        if index < len(step_devices):
            chosen |= 1 << step_devices[index]
    return chosen


def _closest(tasks: int, devices: int, cpus_by_task: tuple[int, ...], near: dict[int, int]) -> tuple[int, ...]:
    if not cpus_by_task:
        return ()
    masks = []
    for task in range(tasks):
        mask = 0
        for device in mask_ids(devices):
            if near.get(device, -1) & cpus_by_task[task]:
                mask |= 1 << device
        masks.append(mask or devices)
    return tuple(masks)


def near_cpus(capacity: NodeCapacity) -> dict[int, int]:
    """GPU index -> CPUs close to it, for GPUs with Cores= in gres.conf."""
    near: dict[int, int] = {}
    for line in capacity.gres:
        if line.name != "gpu" or not line.cores:
            continue
        mask = core_list_mask(line.cores, capacity)
        for device in range(line.first_index, line.first_index + line.count):
            near[device] = mask
    return near
