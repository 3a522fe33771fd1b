"""The node: its configuration, what its daemon reported, and its state.

MIXED and ALLOCATED are not stored: they follow from the jobs that hold resources there. `Node.state` holds IDLE for
"up".

Source: slurm.conf(5) NODE CONFIGURATION, scontrol(1) show node.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.resources import NodeCapacity
from spritz.model.states import NodeState


class NodeConfig(Struct, frozen=True, kw_only=True):
    """One node as slurm.conf and gres.conf describe it."""

    name: str
    address: str = ""
    hostname: str = ""
    port: int = 6818
    capacity: NodeCapacity = NodeCapacity()
    features: tuple[str, ...] = ()
    weight: int = 1
    #: State= of the file: UNKNOWN, DOWN, DRAIN, FAIL, FUTURE, CLOUD
    initial_state: str = "UNKNOWN"
    reason: str = ""
    #: Gres= as written (for `scontrol show node`)
    gres_text: str = ""


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node as the controller knows it."""

    config: NodeConfig
    state: NodeState = NodeState.UNKNOWN
    #: NodeFlag bits
    flags: int = 0
    reason: str = ""
    reason_uid: int = 0
    reason_at: float = 0.0
    #: what counts for scheduling: the configuration, checked against the registration
    features_active: tuple[str, ...] = ()
    comment: str = ""
    extra: str = ""
    #: from the last registration
    registered_at: float = 0.0
    booted_at: float = 0.0
    daemon_started_at: float = 0.0
    version: str = ""
    operating_system: str = ""
    architecture: str = ""
    #: of the spool that remembers what was launched; "" until one was reported
    spool_id: str = ""
    #: not journaled, kept by the controller's shell: load, free memory, last answer
    last_busy_at: float = 0.0

    @property
    def name(self) -> str:
        """The node's name."""
        return self.config.name


class NodeSample(Struct, frozen=True, kw_only=True, gc=False):
    """High-rate facts about a node that are never journaled. Load is in hundredths; memory in MiB."""

    name: str
    cpu_load: int = 0
    free_memory_mib: int = 0
    sampled_at: float = 0.0
