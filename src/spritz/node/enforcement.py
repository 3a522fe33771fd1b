"""How limits of jobs are enforced on this machine, as text for the log and `spritz doctor`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.node.launch.build import NodeSetup


#: versions of cgroups (`node.cgroup.version`) with restrictions -> the restrictions
EARLIER = {
    "v1": "cgroups of version 1 hold memory, cores and devices; freezing, killing at once and ssh take version 2",
    "hybrid": "cgroups of version 1 hold memory, cores and devices; version 2 freezes, kills and adopts",
}


def enforcement_by_resource(setup: NodeSetup, version: str = "") -> dict[str, str]:
    """Resource -> how its limit is enforced: by a cgroup, by slurmd as far as possible, or not at all.

    `version` of the cgroups that are mounted.
    """
    return {
        "cgroups": version or "none",
        "memory": "cgroup" if setup.cgroup_memory else "sampling" if setup.memory_rule.held else "nothing",
        "cores": "cgroup" if setup.cgroup_cores else "affinity" if setup.bind else "nothing",
        "devices": "cgroup" if setup.cgroup_devices else "nothing",
        "suspend": "cgroup" if setup.cgroup_tree else "signals",
        "sessions": "cgroup" if setup.cgroup_tree else "nothing",
        "directories": "namespace" if setup.container is not None else "nothing",
    }
