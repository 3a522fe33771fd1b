"""Power saving: idle nodes are powered down, and powered up again for jobs.

Source: slurm.conf(5) SuspendProgram, ResumeProgram and related keys; the Power Saving Guide.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.states import NodeFlag, NodeState

#: a node with one of these need not answer, and runs nothing
AWAY: int = (NodeFlag.POWERED_DOWN | NodeFlag.POWERING_DOWN | NodeFlag.POWERING_UP | NodeFlag.REBOOT_ISSUED).value

_OFF: int = (NodeFlag.POWERED_DOWN | NodeFlag.POWERING_DOWN).value
_CALLED: int = NodeFlag.POWER_UP.value

#: a job that starts on a node with one of these waits until it is up
WAKING: int = (NodeFlag.POWERED_DOWN | NodeFlag.POWERING_UP | NodeFlag.POWER_UP | NodeFlag.REBOOT_ISSUED).value


def is_powered(state: NodeState, flags: int) -> bool:
    """Whether the node is up, powering up, or waiting to be powered up."""
    return state is not NodeState.FUTURE and bool(not flags & _OFF or flags & _CALLED)


class PowerPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Power saving in slurm.conf. Rates in nodes per minute (0: no limit), times in seconds."""

    #: there is a ResumeProgram: powered-down nodes can serve jobs
    resumes: bool = False
    #: there is a SuspendProgram
    suspends: bool = False
    resume_rate: int = 300
    suspend_rate: int = 60
    #: max_powered_nodes: most nodes that may be powered up at a time (None: no limit)
    powered_max: int | None = None
    resume_timeout_seconds: int = 60
    suspend_timeout_seconds: int = 30
    #: idle (or DOWN) time after which a node is powered down; None: never
    suspend_seconds: int | None = None
    #: SuspendExcNodes: sets of nodes, and how many idle ones of each stay up (0: all of them)
    kept: tuple[tuple[tuple[str, ...], int], ...] = ()
    #: SuspendExcParts
    kept_partitions: tuple[str, ...] = ()
    #: SuspendExcStates: DOWN, or names of NodeFlag
    kept_states: tuple[str, ...] = ()
    #: SlurmctldParameters=idle_on_node_suspend: a node becomes IDLE when it is powered down, whatever its state was
    idle_on_suspend: bool = False
    #: SlurmctldParameters=cloud_reg_addrs: a cloud node's address is where it registers from
    registered_addresses: bool = False
    #: there is a RebootProgram; it is run by the controller (reboot_from_controller), not on the nodes
    reboots: bool = False
    reboots_here: bool = False
    #: without PrivateData=cloud: powered-down cloud nodes are not listed
    hides: bool = False
