"""Restricts the daemon and its supervisors to the cores reserved for the system.

Source: slurm.conf(5) CoreSpecCount, CpuSpecList, TaskPluginParam=SlurmdOffSpec.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from msgspec import Struct

from spritz.model.resources import mask_ids, mask_of
from spritz.node.launch.affinity import Topology


class Cores(Struct, frozen=True):
    """CPU numbers of the machine: `daemons` are for slurmd and its supervisors, `jobs` for tasks that nothing binds.

    Both are empty where none are reserved, or the machine is not what is configured.
    """

    daemons: tuple[int, ...] = ()
    jobs: tuple[int, ...] = ()


def divided(reserved: str, configured: int, machine: Topology | None, *, off_spec: bool) -> Cores:
    """`reserved` is a mask of a node with `configured` CPUs; `off_spec`: daemons share the cores of jobs instead."""
    places = mask_ids(mask_of(reserved))
    if not places or machine is None or configured > len(machine.order) or places[-1] >= configured:
        return Cores()
    special = {machine.order[place] for place in places}
    jobs = tuple(sorted(set(machine.order) - special))
    return Cores(jobs if off_spec else tuple(sorted(special)), jobs) if jobs else Cores()


def run_on(cpus: Iterable[int], pids: Iterable[int]) -> None:
    """Make every thread of these processes run there. Raises OSError."""
    allowed = set(cpus)
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), allowed)
