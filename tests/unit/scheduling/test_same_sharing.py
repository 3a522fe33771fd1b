"""The core and the scheduler give the same answer about who may be on a node together."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.settings import McsPolicy
from spritz.model.commands.cluster import ApplyPlan, UpdatePartition
from spritz.model.commands.job import CancelJobs, Done, SuspendJob
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Sharing
from spritz.scheduling.plan.feasible import check_whole
from spritz.scheduling.view.projection import Projection
from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec

NODE = [node("n1", 4)]


def update(site: Site, name: str, **changes: object) -> None:
    site.send(UpdatePartition(name=name, changes=changes))


def test_a_users_other_jobs_go_to_nodes_that_are_for_this_user_alone() -> None:
    """Source: Slurm 22.05; --exclusive=user, and ExclusiveUser=YES in one of two partitions."""
    for first in ({"sharing": Sharing.USER}, {"partitions": ("own",)}):
        site = Site(NODE, [partition("p", NODE, default=True), partition("own", NODE, exclusive_user=True)])
        waits = site.ask(spec(1, uid=6, begin_at=0.0))
        assert site.cycle().keys() == {waits}
        site.end(waits)
        owner = site.ask(spec(1, uid=5, **first))
        site.cycle()
        other, same = site.ask(spec(1, uid=6)), site.ask(spec(1, uid=5))
        assert site.cycle().keys() == {same}
        again = Projection()
        again.reset(site.jobs.values(), site.machine.state.nodes.values(), site.partitions, site.machine.state.settings)
        assert again.owners == site.projection.owners == {5: 1}
        site.end(owner)
        assert site.cycle().keys() == {other}, "the node is open to everybody again"
        assert site.projection.owners == {}


def test_what_a_job_was_given_says_whether_it_has_its_nodes_for_itself() -> None:
    """Not what its partition says by now: as the core, and Slurm, have it."""
    homes = [partition("p", NODE, default=True, oversubscribe="EXCLUSIVE"), partition("q", NODE)]
    site = Site(NODE, homes)
    alone = site.ask(spec(1))
    assert site.cycle()[alone].whole_nodes
    update(site, "p", oversubscribe="NO")
    site.projection.settle(site.now)
    assert all(holder.whole for holder in site.projection.table.rows[0].holders.values())
    site.end(alone)
    shared = site.ask(spec(1))
    assert not site.cycle()[shared].whole_nodes
    update(site, "p", oversubscribe="EXCLUSIVE")
    site.projection.settle(site.now)
    assert not any(holder.whole for holder in site.projection.table.rows[0].holders.values())
    in_q, alone = site.ask(spec(1, partitions=("q",))), site.ask(spec(1))
    assert site.cycle().keys() == {in_q}
    site.end(shared)
    site.end(in_q)
    assert site.cycle()[alone].whole_nodes


def test_a_plan_from_before_a_partition_became_exclusive_is_stale() -> None:
    site = Site(NODE)
    job = site.ask(spec(1))
    plan = site.plan()
    update(site, "debug", oversubscribe="EXCLUSIVE")
    reply = site.send(ApplyPlan(plan=plan)).reply
    assert isinstance(reply, Done)
    assert reply.messages == (f"job {job}: no whole nodes",)


def test_jobs_with_one_label_share_nodes() -> None:
    policy = McsPolicy(plugin="label", select="select")
    site = Site(NODE, settings=replace(SETTINGS, mcs=policy))
    first, same = (site.ask(spec(1, mcs_label="a")) for _ in range(2))
    other, none = site.ask(spec(1, mcs_label="b")), site.ask(spec(1))
    assert site.cycle().keys() == {first, same}
    site.end(first)
    site.end(same)
    assert site.cycle().keys() == {other}
    site.end(other)
    assert site.cycle().keys() == {none}


def test_a_job_that_wants_its_nodes_rebooted_waits_where_nothing_can_reboot_them() -> None:
    """RebootProgram was taken out of the configuration while it waited."""
    site = Site(NODE, settings=replace(SETTINGS, power=PowerPolicy(reboots=False)))
    job = site.submit(spec(1, reboot=True))
    assert site.cycle() == {}
    assert site.jobs[job].reason.value == "BadConstraints"


@pytest.mark.parametrize("limit", ["max_cpus_per_node", "max_cpus_per_socket"])
def test_two_plans_together_do_not_give_a_partition_more_of_a_node_than_it_may_have(limit: str) -> None:
    """The second was made before the first was followed."""
    site = Site(NODE, [partition("p", NODE, default=True, **{limit: 2})])
    first, second = site.ask(spec(2)), site.ask(spec(2))
    plan = site.plan()
    assert [start.job_id for start in plan.starts] == [first]
    (share,) = plan.starts[0].allocation.nodes
    elsewhere = replace(plan.starts[0].allocation, nodes=(replace(share, cpus="c"),))
    late = replace(plan, starts=(replace(plan.starts[0], job_id=second, allocation=elsewhere),), future_starts=())
    site.follow(replace(plan, future_starts=()))
    reply = site.send(ApplyPlan(plan=late)).reply
    assert isinstance(reply, Done)
    assert reply.messages == (f"job {second}: node n1: too many CPUs for partition p",)


def test_components_of_one_user_share_a_node_that_is_for_this_user_alone() -> None:
    """In whichever order: one of them with --exclusive=user."""
    settings = replace(SETTINGS, scheduler_parameters=(("hetjob_share_nodes", ""),))
    for sharings in ((Sharing.USER, Sharing.DEFAULT), (Sharing.DEFAULT, Sharing.USER)):
        site = Site(NODE, settings=settings)
        first = site.submit_het(*(spec(1, uid=5, user="alice", sharing=sharing) for sharing in sharings))
        specs = [site.jobs[first + offset].spec for offset in range(2)]
        assert check_whole(specs, site.projection.snapshot(site.now)) is None
        assert site.cycle().keys() == {first, first + 1}


def test_a_suspended_job_keeps_the_node_that_it_has_for_itself() -> None:
    """Its CPUs are free, but no other job may be there."""
    site = Site(NODE)
    alone = site.ask(spec(1, sharing=Sharing.EXCLUSIVE))
    site.cycle()
    site.send(SuspendJob(target=JobTarget(job_id=alone)))
    other = site.ask(spec(1))
    assert site.cycle() == {}
    site.send(CancelJobs(filter=JobFilter(targets=(JobTarget(job_id=alone),))))
    site.gone(alone, "n1")
    assert other in site.cycle()


@pytest.mark.parametrize(("most", "cpus"), [(2, None), (3, 3)])
def test_a_socket_that_a_partition_may_not_fill_is_not_given_to_its_jobs(most: int, cpus: int | None) -> None:
    """SelectTypeParameters=CR_Socket with MaxCPUsPerSocket."""
    nodes = [node("n1", 6, sockets=2)]
    home = partition("p", nodes, default=True, max_cpus_per_socket=most, max_cpus_per_node=3)
    site = Site(nodes, [home], replace(SETTINGS, consumable="socket"))
    job = site.ask(spec(1))
    given = site.cycle().get(job)
    assert (given.cpu_count if given else None) == cpus
