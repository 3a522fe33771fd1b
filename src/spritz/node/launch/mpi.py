"""The step as MPI servers see it: one world of tasks, across all its components.

Source: srun(1) --mpi, --het-group.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct

from spritz.model.job.record import Component, Job
from spritz.model.job.step import Step
from spritz.stepd.pmi_wire import process_mapping
from spritz.stepd.spec import Pmi, Pmix


class _World(Struct, frozen=True):
    """Nodes in order of rank, the tasks' ranks on each, and the program (component) of each node."""

    label: str
    nodes: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    programs: tuple[int, ...]
    node: int


def _world(job: Job, step: Step, node_index: int) -> _World:
    label = f"{job.het_job_id or job.id}.{step.step_id}"
    if step.het is None or not step.het.task_ids:
        ranks = tuple(node.task_ids for node in step.nodes)
        return _World(label, step.node_names, ranks, (0,) * len(ranks), node_index)
    parts = step.het.task_ids
    programs = tuple(program for program, part in enumerate(parts) for _ in part)
    ranks = tuple(ranks for part in parts for ranks in part)
    return _World(label, step.het.names, ranks, programs, step.het.node_offset + node_index)


def pmi(job: Job, step: Step, node_index: int) -> Pmi | None:
    """The data for the PMI-2 server of this node; None unless the step has --mpi=pmi2."""
    if step.spec.mpi != "pmi2":
        return None
    world = _world(job, step, node_index)
    return Pmi(
        job_id=world.label,
        size=sum(map(len, world.ranks)),
        nodes=len(world.nodes),
        mapping=process_mapping(world.ranks),
        program=world.programs[world.node],
    )


def _namespace(world: _World, step: Step) -> str:
    """The name of this one run: Open MPI names its shared memory by this and the node, and clusters that share a
    machine have nodes, jobs and steps of the same names. All nodes and components get the same name.

    It is a secret too. libpmix listens at a TCP port, where it believes a client that knows the namespace and says that
    it runs as the step's user: another user of the machine who knows it can abort the step.
    """
    secret = hashlib.sha256(f"pmix {step.spec.io_key} {step.started_at!r}".encode()).hexdigest()[:32]
    return f"slurm.pmix.{world.label}.{secret}"


def pmix(job: Job, step: Step, node_index: int, components: tuple[Component, ...]) -> Pmix | None:
    """For --mpi=pmix. `components` are those of a heterogeneous job."""
    if step.spec.mpi != "pmix":
        return None
    world = _world(job, step, node_index)
    jobs = [components[number].job for number in step.het.groups] if step.het is not None and components else [job]
    return Pmix(
        namespace=_namespace(world, step),
        nodes=world.nodes,
        ranks=world.ranks,
        node=world.node,
        universe=sum(node.cpu_count for job in jobs if job.allocation is not None for node in job.allocation.nodes),
        apps=world.programs if len(set(world.programs)) > 1 else (),
    )
