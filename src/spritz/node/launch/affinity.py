"""Abstract CPUs of an allocation as CPUs of this machine. Pure.

A mask's bit `(socket * cores + core) * threads + thread` is a place in the node's configured shape; `Topology.order`
has the machine's CPU numbers in the same order. Virtual nodes may declare more CPUs than it has: nothing is bound then.
Source: srun(1) --cpu-bind, slurm.conf(5) TaskPlugin.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.resources import mask_ids, mask_of


class Topology(Struct, frozen=True, kw_only=True):
    """The machine: `order` has real CPU numbers by socket, core, thread."""

    sockets: int
    cores_per_socket: int
    threads_per_core: int
    order: tuple[int, ...]


def real_cpus(mask: int, configured: int, machine: Topology | None) -> tuple[int, ...]:
    """CPU numbers for a mask; empty (no binding) if the machine is not what is configured, or the mask is all of it."""
    if machine is None or configured > len(machine.order):
        return ()
    places = mask_ids(mask)
    if not places or places[-1] >= len(machine.order) or len(places) >= len(machine.order):
        return ()
    return tuple(sorted(machine.order[place] for place in places))


def cpu_bind_variables(masks: tuple[str, ...]) -> dict[str, str]:
    """SLURM_CPU_BIND and its parts for tasks that are bound; empty masks: nothing."""
    if not masks:
        return {}
    listed = ",".join(f"0x{mask_of(mask):X}" for mask in masks)
    return {
        "SLURM_CPU_BIND": f"quiet,mask_cpu:{listed}",
        "SLURM_CPU_BIND_LIST": listed,
        "SLURM_CPU_BIND_TYPE": "mask_cpu:",
        "SLURM_CPU_BIND_VERBOSE": "quiet",
    }
