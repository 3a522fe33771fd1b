"""Which nodes and partitions take jobs, by their states.

Source: slurm.conf(5) State of nodes and partitions, ResumeProgram; scontrol(1) update NodeName, PartitionName.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.states import NodeFlag, NodeState, PartitionState

if TYPE_CHECKING:
    from spritz.model.node.partition import Partition
    from spritz.model.node.record import Node

#: flags that keep new jobs off a node that is up
_CLOSING: int = (
    NodeFlag.DRAIN
    | NodeFlag.FAIL
    | NodeFlag.NOT_RESPONDING
    | NodeFlag.INVALID_REG
    | NodeFlag.POWERED_DOWN
    | NodeFlag.POWERING_DOWN
    | NodeFlag.POWER_DOWN
    | NodeFlag.MAINTENANCE
    | NodeFlag.REBOOT_ISSUED
    | NodeFlag.BLOCKED
).value
_CLOSING_BUT_POWERED_DOWN: int = _CLOSING & ~NodeFlag.POWERED_DOWN.value
_OPEN = frozenset({NodeState.IDLE, NodeState.ALLOCATED, NodeState.MIXED})


def takes_jobs(node: Node, *, resumes: bool = False) -> bool:
    """Whether a job may start on the node. `resumes`: powered-down nodes can be powered up for it."""
    return node.state in _OPEN and not node.flags & (_CLOSING_BUT_POWERED_DOWN if resumes else _CLOSING)


def starts_jobs(partition: Partition) -> bool:
    """Whether waiting jobs of the partition may start."""
    return partition.state in (PartitionState.UP, PartitionState.DRAIN)


def queues_jobs(partition: Partition) -> bool:
    """Whether jobs may be submitted to the partition."""
    return partition.state in (PartitionState.UP, PartitionState.DOWN)
