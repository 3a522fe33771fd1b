"""Ports that a step reserves on all of its nodes: the same numbers on each, used by no other step there.

Source: srun(1) --resv-ports; slurm.conf(5) MpiParams=ports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decision import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.core.state import State
    from spritz.model.job.step import StepNode, StepSpec


def reserved_ports(state: State, spec: StepSpec, nodes: Sequence[StepNode]) -> tuple[int, ...]:
    """The lowest free ports; none for a step that asks for none.

    Raises Refused: ESLURM_PORTS_INVALID for more ports than exist, ESLURM_PORTS_BUSY for more than are free now.
    """
    if spec.ports is None:
        return ()
    first, last = state.settings.mpi_ports
    # One port for each task of the fullest node, plus one, as in Slurm.
    count = spec.ports or max(len(node.task_ids) for node in nodes) + 1
    if not first or count > last - first + 1:
        raise Refused("ESLURM_PORTS_INVALID", hint="MpiParams=ports=FIRST-LAST sets the ports that steps may have")
    taken = {
        port
        for node in nodes
        for job_id in state.uses[node.allocation.node].jobs
        for step in state.steps.get(job_id, {}).values()
        if step.ports and node.allocation.node in step.running_nodes
        for port in step.ports
    }
    free = [port for port in range(first, last + 1) if port not in taken]
    if len(free) < count:
        raise Refused("ESLURM_PORTS_BUSY")
    return tuple(free[:count])
