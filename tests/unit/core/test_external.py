"""External jobs and nodes: what another system runs on nodes that are allocated here (a pod of Kubernetes)."""

from __future__ import annotations

from typing import Any

import pytest

from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import AddNodes, Configure, UpdateNode
from spritz.model.commands.job import FinishAllocation, SuspendJob
from spritz.model.commands.step import CreateStep
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.step import StepSpec
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.plan import PlannedStart
from spritz.model.resources import Allocation
from spritz.model.states import JobState, NodeFlag, NodeState
from spritz_testing.builders import ALICE, BOB, World, capacity, node_share, replayed


def world(**settings: Any) -> World:
    """Nodes n1 and n2 with a slurmd, and k1 of another system."""
    made = World(nodes=2, settings=ClusterSettings(max_node_count=8, **settings))
    made.ok(Configure(settings=made.settings, nodes=made.nodes, partitions=(
        Partition(name="debug", nodes=made.names, nodes_text="ALL", default=True),
    )))  # fmt: skip
    made.ok(AddNodes(nodes=(NodeConfig(name="k1", capacity=capacity(), initial_state="EXTERNAL"),)))
    return made


def start(here: World, job_id: int, *names: str) -> None:
    """On these nodes; nothing is asked of them."""
    allocation = Allocation(partition="debug", nodes=tuple(node_share(name) for name in names))
    assert not here.plan(PlannedStart(job_id=job_id, allocation=allocation)).effects
    assert here.job(job_id).state is JobState.RUNNING


def external(here: World, **fields: Any) -> int:
    return here.submit(batch=False, external=True, **fields)


def test_a_node_of_another_system_is_there_without_a_daemon() -> None:
    here = world()
    node = here.state.nodes["k1"]
    assert (node.state, node.flags) == (NodeState.IDLE, NodeFlag.EXTERNAL | NodeFlag.DYNAMIC_NORM)
    here.ok(UpdateNode(names=("k1",), state="DRAIN", reason="cordoned"))
    here.ok(UpdateNode(names=("k1",), state="RESUME"))
    assert here.state.nodes["k1"].flags == NodeFlag.EXTERNAL | NodeFlag.DYNAMIC_NORM
    here.ok(UpdateNode(names=("k1",), state="DOWN", reason="a broken fan"))
    here.ok(UpdateNode(names=("k1",), state="RESUME"))
    assert here.state.nodes["k1"].state is NodeState.IDLE  # not UNKNOWN: no slurmd will register
    here.check()


def test_only_external_jobs_start_there() -> None:
    here = world()
    job_id = here.submit()
    here.plan(PlannedStart(job_id=job_id, allocation=Allocation(partition="debug", nodes=(node_share("k1"),))))
    assert here.job(job_id).state is JobState.PENDING
    start(here, external(here), "k1", "n1")


def test_an_external_job_ends_with_the_status_that_its_system_reports() -> None:
    here = world()
    for status, state in ((0, JobState.COMPLETED), (3 << 8, JobState.FAILED)):
        job_id = external(here)
        start(here, job_id, "k1", "n1")
        assert here.refused(FinishAllocation(job_id=job_id), BOB) == "ESLURM_ACCESS_DENIED"
        here.ok(FinishAllocation(job_id=job_id, exit_status=status), ALICE)
        job = here.job(job_id)
        assert (job.state, job.exit_status, job.completing) == (state, status, ())
        assert here.refused(FinishAllocation(job_id=job_id), ALICE) == "ESLURM_ALREADY_DONE"
    assert not here.state.uses["k1"].jobs
    here.check()


def test_a_cancelled_external_job_keeps_its_nodes_until_its_end_is_reported() -> None:
    here = world()
    job_id = external(here)
    start(here, job_id, "k1", "n1")
    assert not here.cancel(job_id).effects
    assert here.job(job_id).completing == ("k1", "n1")
    assert not here.advance(3600), "nothing is ever asked of a node"
    assert not here.machine.pending_effects()
    assert here.state.uses["k1"].jobs
    here.ok(FinishAllocation(job_id=job_id, exit_status=9), ALICE)
    job = here.job(job_id)
    assert (job.state, job.completing, job.exit_status) == (JobState.CANCELLED, (), 0)
    assert not here.state.uses["k1"].jobs
    assert not here.state.uses["n1"].jobs
    assert replayed(here.events, here.settings).state.jobs == here.state.jobs
    here.check()


def test_a_node_that_is_lost_ends_it() -> None:
    here = world()
    job_id = external(here)
    start(here, job_id, "k1")
    here.ok(UpdateNode(names=("k1",), state="DOWN", reason="gone"))
    assert (here.job(job_id).state, here.job(job_id).completing) == (JobState.NODE_FAIL, ())


def test_what_an_external_job_cannot_do_is_refused() -> None:
    here = world()
    assert here.submit_refused(external=True) == "ESLURM_NOT_SUPPORTED"
    job_id = external(here)
    start(here, job_id, "k1")
    assert here.refused(SuspendJob(target=JobTarget(job_id))) == "ESLURM_NOT_SUPPORTED"
    assert here.refused(CreateStep(job_id=job_id, spec=StepSpec(argv=("true",))), ALICE) == "ESLURM_NOT_SUPPORTED"


@pytest.mark.parametrize("mode", [("SUSPEND", "GANG"), ("GANG",)])
def test_nor_is_there_one_where_jobs_are_suspended(mode: tuple[str, ...]) -> None:
    here = world(preemption=PreemptionPolicy(type="partition_prio", mode=mode))
    assert here.submit_refused(batch=False, external=True) == "ESLURM_NOT_SUPPORTED"


def test_a_restarted_controller_asks_nothing_of_the_nodes() -> None:
    here = world()
    running, ending = external(here), external(here)
    start(here, running, "k1")
    start(here, ending, "n1")
    here.cancel(ending)
    again = replayed(here.events, here.settings)
    assert not again.pending_effects()
    assert again.state.jobs[running].state is JobState.RUNNING
