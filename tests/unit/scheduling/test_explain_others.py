"""Requests that are tried in a job's stead, and what is said of jobs that no node holds alone."""

from __future__ import annotations

from msgspec import structs

from spritz.model.job.record import Dependency, JobSpec
from spritz.model.limits.records import Qos
from spritz.model.reasons import Reason
from spritz.model.states import NodeState
from spritz.scheduling.explain.alternatives import try_others
from tests.unit.scheduling.site import SETTINGS, Site, node, spec
from tests.unit.scheduling.test_explain import OTHERS, bill, billed_site, gpu_site, others, texts, told
from tests.unit.scheduling.test_topology import site_of


def updates(site: Site, job_id: int) -> list[str]:
    """The commands that are told, of what starts now."""
    found, _tried = try_others(site.projection, site.jobs[job_id], told(site, job_id), site.now, lambda request: True)
    return [item.update.partition(" ")[2] for item in found if item.now]


def dependent(site: Site, request: JobSpec) -> int:
    """A job that waits for others of its name."""
    job_id = site.submit(request)
    job = structs.replace(
        site.jobs[job_id], dependencies=(Dependency(kind="singleton"),), eligible_at=0.0, reason=Reason.DEPENDENCY
    )
    site.machine.state.jobs[job_id] = job
    site.projection.put_job(job)
    return job_id


def test_as_many_licenses_as_are_free_are_tried() -> None:
    site = gpu_site(settings=structs.replace(SETTINGS, licenses=(("lab", 4),)))
    site.submit(spec(1, licenses="lab:3", user="alice"))
    site.cycle()
    assert updates(site, site.submit(spec(1, licenses="lab:2"))) == ["Licenses=lab:1"]


def test_fewer_tasks_are_tried_where_cpus_are_short() -> None:
    site = Site([node("n1", 8), node("n2", 8)])
    site.submit(spec(10, time_limit_minutes=60))
    site.cycle()
    assert "NumTasks=4" in updates(site, site.submit(spec(16)))


def test_fewer_nodes_with_their_part_of_the_gpus_are_tried() -> None:
    site = gpu_site()
    site.submit(spec(nodes=3, gpus_per_node=4, time_limit_minutes=60))
    site.cycle()
    waiting = site.submit(spec(nodes=2, gpus=6))
    assert ("1 node and 3 GPUs in all (--nodes=1 --gpus=3)", site.now) in others(site, waiting)


def test_a_range_of_nodes_beyond_the_partitions_limit_is_cut_to_it() -> None:
    site = Site([node(f"n{number}", 8) for number in range(1, 5)])
    site = Site(site.configs, [structs.replace(site.partitions[0], max_nodes=2)])
    waiting = site.submit(spec(4, nodes=(1, 4)))
    assert told(site, waiting).verdict == "never"
    assert "NumNodes=1-2" in updates(site, waiting)


def test_a_job_that_waits_for_few_switches_is_told_until_when() -> None:
    site = site_of()
    waiting = site.submit(spec(nodes=4, switches=1, switch_wait_seconds=60))
    one = told(site, waiting)
    assert one.summary == "It waits for nodes of at most 1 leaf switch (--switches) before it takes any."
    assert [(rule.kind, rule.holds, rule.at - site.now) for rule in one.limits] == [("Switches", True, 60)]
    assert not one.room_is_kept
    assert "Switches=0" in updates(site, waiting)
    site.now += 60
    assert told(site, waiting).verdict == "starts"


def test_nodes_of_which_one_alone_is_too_small_take_a_part() -> None:
    """And as many are needed as it takes of the largest."""
    site = Site([node("n1", 4), node("n2", 8), node("n3", 8)])
    one = told(site, site.submit(spec(40)))
    assert texts(one) == ["3 can take a part of it now: n[1-3]"]
    site.submit(spec(4, node_list=("n2",), time_limit_minutes=60))
    site.cycle()
    one = told(site, site.submit(spec(18)))
    assert one.partitions[0].nodes_needed == 3
    one = told(site, dependent(site, spec(6)))
    assert texts(one) == ["2 can take a part of it now: n[1-2]", "1 can take it now: n3"]
    assert one.partitions[0].nodes_needed == 1


def test_a_job_that_exceeds_a_limit_by_itself_is_ahead_of_no_job() -> None:
    site = billed_site(Qos(name="normal", max_tres_pu="gres/gpu=4"))
    for user in OTHERS:
        site.submit(bill(user, gpus_per_node=4, time_limit_minutes=60))
    site.cycle()
    fits = site.submit(bill("bob", gpus_per_node=4), priority=9)
    site.submit(bill("alice", gpus_per_node=3, nodes_min=2), priority=9)
    last = told(site, site.submit(bill("bob", gpus_per_node=1)))
    assert [one.job for one in last.ahead.first] == [str(fits)]


def test_many_jobs_of_one_name_are_counted() -> None:
    site = Site([node("n1", 8)])
    for _ in range(8):
        site.submit(spec(1, name="again"))
    (rule,) = told(site, dependent(site, spec(1, name="again"))).limits
    assert rule.text.endswith("have to end: 1, 2, 3, 4, 5 and 3 more")


def test_nothing_is_kept_from_a_job_whose_nodes_are_down() -> None:
    site = Site([node("n1", 8), node("n2", 8)])
    site.set_node("n1", NodeState.DOWN)
    one = told(site, site.submit(spec(nodes=2)))
    assert one.summary == "Nodes that it cannot do without are down or drained."
    assert not one.room_is_kept
