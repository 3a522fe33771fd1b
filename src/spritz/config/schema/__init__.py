"""The tables of all keys of slurm.conf and related files, built on first use.

`status` says which keys work; `removed` has old keys; `options` the names in option lists;
else there is one module per subject of keys.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.config.schema.key import Key


@cache
def slurm_keys() -> dict[str, Key]:
    """Single keys of slurm.conf, by lower-case name."""
    from spritz.config.schema import accounting, controller, execution, facilities, scheduling
    from spritz.config.schema.key import table

    return table(accounting.KEYS, controller.KEYS, execution.KEYS, facilities.KEYS, scheduling.KEYS)


@cache
def record_keys() -> dict[str, dict[str, Key]]:
    """Keys inside records: `nodename`, `downnodes`, `nodeset`, `partitionname` -> keys by lower-case name."""
    from spritz.config.schema.key import table
    from spritz.config.schema.nodes import DOWN_KEYS, NODE_KEYS, NODESET_KEYS
    from spritz.config.schema.partitions import PARTITION_KEYS

    return {
        "nodename": table(NODE_KEYS),
        "downnodes": table(DOWN_KEYS),
        "nodeset": table(NODESET_KEYS),
        "partitionname": table(PARTITION_KEYS),
    }


@cache
def gres_keys() -> dict[str, Key]:
    """Keys of gres.conf, by lower-case name."""
    from spritz.config.schema.devices import GRES_KEYS
    from spritz.config.schema.key import table

    return table(GRES_KEYS)


@cache
def cgroup_keys() -> dict[str, Key]:
    """Keys of cgroup.conf, by lower-case name."""
    from spritz.config.schema.cgroups import CGROUP_KEYS
    from spritz.config.schema.key import table

    return table(CGROUP_KEYS)


@cache
def topology_keys() -> dict[str, Key]:
    """Keys of topology.conf, by lower-case name."""
    from spritz.config.schema.key import table
    from spritz.config.schema.network import TOPOLOGY_KEYS

    return table(TOPOLOGY_KEYS)


@cache
def helpers_keys() -> dict[str, Key]:
    """Keys of helpers.conf, by lower-case name."""
    from spritz.config.schema.helpers import HELPERS_KEYS
    from spritz.config.schema.key import table

    return table(HELPERS_KEYS)


@cache
def container_keys() -> dict[str, Key]:
    """Keys of job_container.conf, by lower-case name."""
    from spritz.config.schema.containers import CONTAINER_KEYS
    from spritz.config.schema.key import table

    return table(CONTAINER_KEYS)


@cache
def oci_keys() -> dict[str, Key]:
    """Keys of oci.conf, by lower-case name."""
    from spritz.config.schema.key import table
    from spritz.config.schema.oci import OCI_KEYS

    return table(OCI_KEYS)


@cache
def slurmdbd_keys() -> dict[str, Key]:
    """Keys of slurmdbd.conf, by lower-case name."""
    from spritz.config.schema.key import table
    from spritz.config.schema.slurmdbd import DBD_KEYS

    return table(DBD_KEYS)
