"""The connections of a step's supervisors: to their client, or to each other's, so that the client has few connections.

Up to TreeWidth nodes connect to the client (srun). Of a wider step others connect to the supervisor of another node,
in the tree that orders for these nodes would take (`model.node_daemon.branches`). Source: slurm.conf(5) TreeWidth;
srun(1) --treewidth; docs/decisions/0210.
"""

from __future__ import annotations

from typing import TypedDict

from spritz.model.node_daemon import branches
from spritz.model.node_daemon.launch import LaunchStep
from spritz.stepd.protocol import elsewhere


class TreeLinks(TypedDict, total=False):
    """Fields of `SupervisorSpec` that say where this supervisor connects and how many connect to it."""

    io_numbered: bool
    io_listen: str
    io_children: int
    io_parent: str
    io_parent_at: tuple[str, int]


def place_in(message: LaunchStep, node_index: int, tree_width: int) -> TreeLinks:
    """The place of this node's supervisor in the tree. `tree_width` is slurm.conf's."""
    step, spec = message.step, message.step.spec
    if spec.tree_width is None or not spec.io_address:
        return {}
    parent, children = branches.place(node_index, len(step.nodes), spec.tree_width or tree_width)
    there = elsewhere(spec.io_address)
    address = there[2] if there is not None else spec.io_address
    links = TreeLinks(io_numbered=True)
    if children:
        links |= TreeLinks(io_listen=f"{address}-{step.job_id}.{node_index}", io_children=children)
    if parent >= 0:
        links |= TreeLinks(io_parent=f"{address}-{step.job_id}.{parent}")
        if there is not None:
            links |= TreeLinks(io_parent_at=_daemon_of(message, step.node_names[parent]))
    return links


def _daemon_of(message: LaunchStep, node: str) -> tuple[str, int]:
    """Address and port; ("", 0) where an earlier controller has not said the port."""
    allocation = message.job.allocation
    assert allocation is not None, "only jobs with an allocation are launched"
    if not message.node_ports:
        return "", 0
    index = allocation.names.index(node)
    return message.node_addresses[index], message.node_ports[index % len(message.node_ports)]
