"""The one resource algebra: what a node has, what a job asks for, and what it was allocated.

CPU and GRES sets are bit masks. In memory and in every function here they are Python ints; in records they are
lower-case hexadecimal text (`"ff"`), because msgpack integers end at 64 bits and nodes do not. Bit `i` of a CPU mask is
the abstract CPU `(socket * cores_per_socket + core) * threads_per_core + thread`; bit `i` of a GRES mask is the
device's index.

Source: slurm.conf(5) NodeName, gres.conf(5), sbatch(1) --gres, --gpus*.
"""

from __future__ import annotations

from msgspec import Struct


def mask_text(mask: int) -> str:
    """`0b1011` -> `"b"`; the empty set is `"0"`."""
    return format(mask, "x")


def mask_of(text: str) -> int:
    """Inverse of `mask_text`. Raises ValueError on anything but hexadecimal digits."""
    return int(text, 16)


def mask_ids(mask: int) -> list[int]:
    """Numbers of the CPUs or devices in a mask, ascending."""
    ids = []
    while mask:
        low = mask & -mask
        ids.append(low.bit_length() - 1)
        mask ^= low
    return ids


def lowest_bits(mask: int, count: int) -> int:
    """The `count` lowest set bits of `mask` (all of them if there are fewer)."""
    if count >= mask.bit_count():
        return mask
    taken = 0
    while count > 0:
        low = mask & -mask
        # At most `count` of the bits are this close to the first.
        near_bits = mask & ((low << count) - low)
        taken |= near_bits
        mask ^= near_bits
        count -= near_bits.bit_count()
    return taken


class GresRequest(Struct, frozen=True, gc=False):
    """`gpu:a100:2` -> name `gpu`, type `a100`, count 2. An empty type means any."""

    name: str
    type: str = ""
    count: int = 1


class GresCapacity(Struct, frozen=True, kw_only=True, gc=False):
    """One line of a node's generic resources: devices of one name and type.

    `first_index`: the index (bit) of the line's first device among all devices of that name on the node. GRES without
    devices (`CountOnly`, shard) have `count` and no files. `files`: one path per device (or none); `cores`: a list of
    cores such as `0-7` local to them; `links` as in gres.conf. For shards, `per_device` shares are on each GPU of index
    `first_index …`.
    """

    name: str
    type: str = ""
    count: int = 0
    first_index: int = 0
    files: tuple[str, ...] = ()
    cores: str = ""
    links: str = ""
    flags: tuple[str, ...] = ()
    per_device: int = 0


class NodeCapacity(Struct, frozen=True, kw_only=True):
    """The resources of a node. Memory and disk in MiB. `cpus` = sockets * cores_per_socket * threads_per_core, unless
    configured as fewer.
    """

    cpus: int = 1
    boards: int = 1
    sockets: int = 1
    cores_per_socket: int = 1
    threads_per_core: int = 1
    memory_mib: int = 1
    tmp_mib: int = 0
    gres: tuple[GresCapacity, ...] = ()
    memory_reserved_mib: int = 0
    cpus_reserved: str = "0"
    #: RestrictedCoresPerGPU (see `gpu_cores`)
    cores_per_gpu: int = 0


class GresAllocation(Struct, frozen=True, kw_only=True, gc=False):
    """Devices allocated on one node. `indexes` is a mask in hexadecimal ("0" for GRES without devices); for shards it
    names the GPU.
    """

    name: str
    type: str = ""
    count: int = 0
    indexes: str = "0"


class NodeAllocation(Struct, frozen=True, kw_only=True):
    """The resources of one job on one node. Memory 0 means not tracked."""

    node: str
    cpus: str
    memory_mib: int = 0
    gres: tuple[GresAllocation, ...] = ()

    @property
    def cpu_count(self) -> int:
        """Number of CPUs (threads) given here."""
        return mask_of(self.cpus).bit_count()


class Allocation(Struct, frozen=True, kw_only=True):
    """All that a job was allocated, nodes in rank order."""

    partition: str
    nodes: tuple[NodeAllocation, ...]
    #: tasks on each node as the scheduler laid them out (empty: derive from the spec)
    tasks: tuple[int, ...] = ()
    #: no other job may use its nodes
    whole_nodes: bool = False
    #: other nodes of its leaf switches or blocks, closed to other jobs (None: open to all)
    kept: tuple[str, ...] | None = None
    #: the reservation in which the job runs; "": none
    reservation: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the allocated nodes in rank order."""
        return tuple(node.node for node in self.nodes)

    @property
    def held(self) -> tuple[str, ...]:
        """Names of nodes that other jobs are kept off: its own, and those in `kept`."""
        return self.names + (self.kept or ())

    @property
    def cpu_count(self) -> int:
        """CPUs of the allocation on all its nodes."""
        return sum(node.cpu_count for node in self.nodes)

    @property
    def memory_mib(self) -> int:
        """Memory of the allocation on all its nodes, MiB."""
        return sum(node.memory_mib for node in self.nodes)
