"""What is said of a waiting job: facts that agree with the plan, in words that can be read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from spritz.model.events.cluster import PolicyChanged
from spritz.model.job.record import Dependency, Hold
from spritz.model.limits.records import Association, Policy, Qos
from spritz.model.queries.explain import Explanation
from spritz.model.reasons import Reason
from spritz.model.states import JobState, NodeState, PartitionState
from spritz.scheduling.explain.alternatives import once_free, try_others
from spritz.scheduling.explain.context import PlanView
from spritz.scheduling.explain.explanation import explain, past
from spritz.scheduling.explain.nodes import TESTS
from spritz.scheduling.forecast import full_cycle
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, partition, spec
from tests.unit.scheduling.test_preemption import high, low
from tests.unit.scheduling.test_preemption import site as preemption_site


def told(site: Site, job_id: int) -> Explanation:
    """The explanation by a full cycle."""
    snapshot = site.projection.snapshot(site.now, site.history)
    view = PlanView(snapshot, full_cycle.run(snapshot, held=True), site.jobs, site.projection.nodes)
    return explain(view, site.jobs[job_id])


def counts(one: Explanation) -> dict[str, int]:
    """Nodes by the first test that they fail, in the first partition."""
    found: dict[str, int] = {}
    for test in one.partitions[0].tests:
        found[test.test] = found.get(test.test, 0) + test.count
    return found


def texts(one: Explanation) -> list[str]:
    return [f"{test.count} {test.text}: {test.nodes}" for test in one.partitions[0].tests]


def others(site: Site, job_id: int, **more: Any) -> list[tuple[str, float]]:
    more.setdefault("acceptable", lambda request: True)
    found, _tried = try_others(site.projection, site.jobs[job_id], told(site, job_id), site.now, **more)
    return [(item.change, item.start_at) for item in found]


def gpu_site(**fields: Any) -> Site:
    return Site([node(f"n{number}", 8, gres=[gpus(4)]) for number in range(1, 5)], **fields)


def test_a_job_for_which_there_is_room_starts_at_once() -> None:
    site = gpu_site()
    one = told(site, site.submit(spec(1, gpus_per_node=2)))
    assert (one.verdict, one.summary, one.reason) == ("starts", "It starts at once.", "")
    assert one.expected is not None
    assert (one.expected.sure, one.expected.nodes) == ("now", "n1")


def test_each_node_is_counted_under_the_first_test_that_it_fails() -> None:
    configs = [
        node("n1", 8, gres=[gpus(4)], features=("x",)),
        node("n2", 8, gres=[gpus(4)], features=("x",)),
        node("n3", 8, gres=[gpus(4)], features=("x",)),
        node("n4", 8, gres=[gpus(1)], features=("x",)),
        node("n5", 8, gres=[gpus(4)]),
        node("n6", 8, gres=[gpus(4)], features=("x",)),
        node("n7", 8, gres=[gpus(4)], features=("x",)),
    ]
    site = Site(configs, [partition("p", configs[:6], default=True), partition("q", configs[6:])])
    site.submit(spec(1, nodes=1, gpus_per_node=3, node_list=("n1",)))
    site.cycle()
    site.set_node("n2", NodeState.DOWN)
    waiting = site.submit(spec(nodes=2, gpus_per_node=2, features="x", exclude=("n6",)))
    one = told(site, waiting)
    assert texts(one) == [
        "1 not in partition p: n7",
        "1 excluded by the job (--exclude): n6",
        "1 without the features x: n5",
        "1 not enough GPUs (2 needed, 1 there): n4",
        "1 down: n2",
        "1 GPUs in use (2 needed, 1 free): n1",
        "1 can take a part of it now: n3",
    ]
    assert [test.test for test in one.partitions[0].tests] == [
        "partition", "excluded", "features", "too_small", "state", "busy", "able",
    ]  # fmt: skip
    assert (one.partitions[0].total, one.partitions[0].able, one.partitions[0].nodes_needed) == (7, 1, 2)


def test_every_resource_that_is_short_is_named_with_its_figures() -> None:
    site = Site([node("n1", 4, memory=100, gres=[gpus(2)])])
    site.submit(spec(1, cpus_per_task=3, memory_mib_per_node=80, gpus_per_node=1))
    site.cycle()
    one = told(site, site.submit(spec(1, cpus_per_task=2, memory_mib_per_node=50, gpus_per_node=2)))
    assert texts(one) == [
        "1 GPUs, memory and CPUs in use (GPUs: 2 needed, 1 free; memory: 50 MB needed, 20 MB free; "
        "CPUs: 2 needed, 1 free): n1"
    ]
    assert one.summary == "It is next in line; CPUs, GPUs and memory are short."


def test_a_drained_node_says_why_an_administrator_drained_it() -> None:
    site = gpu_site()
    for name in ("n1", "n2"):
        record = site.projection.nodes[name]
        site.projection.update_node(structs.replace(record, state=NodeState.DOWN, reason="bad fan"))
    site.submit(spec(nodes=2, gpus_per_node=4, time_limit_minutes=5))
    site.cycle()
    one = told(site, site.submit(spec(nodes=1, gpus_per_node=1)))
    assert texts(one)[0] == "2 down: bad fan: n[1-2]"


def test_blocking_jobs_are_named_with_their_resources_and_end() -> None:
    site = gpu_site()
    running = [site.submit(spec(1, nodes=1, gpus_per_node=3, time_limit_minutes=10 * (n + 1))) for n in range(4)]
    site.cycle()
    waiting = site.submit(spec(nodes=2, gpus_per_node=2))
    one = told(site, waiting)
    assert [(item.job, item.ends_at, item.nodes) for item in one.blockers] == [
        (str(running[0]), site.now + 600, "n1"),
        (str(running[1]), site.now + 1200, "n2"),
    ]
    assert one.blockers[0].holds == "3 GPUs, 1 CPU, 1 MB"
    assert one.expected is not None
    assert (one.expected.sure, one.expected.start_at, one.expected.nodes) == ("promise", site.now + 1200, "n[1-2]")
    # They suffice.
    for job_id in running[:2]:
        site.end(job_id)
    assert waiting in site.cycle()


def test_those_ahead_are_told_with_the_parts_of_the_priority_that_put_them_there() -> None:
    weights = structs.replace(
        SETTINGS, priority_multifactor=True, priority_weight_age=1000, priority_weight_jobsize=500
    )
    site = gpu_site(settings=weights)
    site.submit(spec(nodes=4, gpus_per_node=4))
    site.cycle()
    first = site.submit(spec(nodes=4, gpus_per_node=4, user="alice"))
    site.now += 100
    second = site.submit(spec(nodes=1, gpus_per_node=4, user="bob"))
    one = told(site, second)
    assert (one.ahead.count, one.ahead.users) == (1, (("alice", 1),))
    (ahead,) = one.ahead.first
    assert (ahead.job, ahead.because) == (str(first), "job size +211")
    assert ahead.start_at == 1000.0 + 600
    assert one.summary == "1 job wants the same nodes and goes first; GPUs are short."


def test_a_higher_tier_is_told_before_any_priority() -> None:
    configs = [node("n1", 4)]
    homes = [partition("low", configs, default=True), partition("high", configs, priority_tier=9)]
    site = Site(configs, homes)
    site.submit(spec(4))
    site.cycle()
    waiting = site.submit(spec(4), priority=100)
    site.submit(spec(4, partitions=("high",)))
    assert [item.because for item in told(site, waiting).ahead.first] == ["PriorityTier 9 of its partition, here 1"]


def test_room_that_is_kept_for_a_promised_start_is_told_as_such() -> None:
    site = gpu_site()
    site.submit(spec(nodes=3, gpus_per_node=4))
    site.cycle()
    site.submit(spec(nodes=4, gpus_per_node=4))
    small = site.submit(spec(nodes=1, gpus_per_node=4, time_limit_minutes=60))
    one = told(site, small)
    assert one.room_is_kept
    assert counts(one) == {"busy": 3, "kept": 1}
    assert one.summary == "There is room, but it is kept for 1 job ahead of it."
    assert one.blockers == ()
    # Ten minutes are free before the promised start.
    assert ("a time limit of 00:10:00 (--time=00:10:00)", site.now) in others(site, small)


def test_licenses_are_explained_with_their_holders() -> None:
    site = gpu_site(settings=structs.replace(SETTINGS, licenses=(("lab", 3),)))
    holder = site.submit(spec(1, licenses="lab:2", user="alice"))
    site.cycle()
    waiting = site.submit(spec(1, licenses="lab:2"))
    one = told(site, waiting)
    (limit,) = [item for item in one.limits if item.kind == "Licenses"]
    assert (limit.holds, limit.asked, limit.used, limit.limit, limit.users) == (True, 2, 2, 3, (("alice", 2),))
    assert limit.text == "2 asked for, 1 of 3 free: alice has 2"
    assert [(item.job, item.why, item.holds) for item in one.blockers] == [(str(holder), "licenses", "2 lab")]
    assert one.reason == "Licenses"


OTHERS = ("carol", "dave", "erin", "frank")


def billed_site(qos: Qos, **fields: Any) -> Site:
    """Alice, Bob and four others in one account, under one QOS."""
    site = gpu_site(settings=structs.replace(SETTINGS, enforce=("associations", "limits", "qos")))
    root = Association(id=1, cluster="c", account="lab", qos="normal", **fields)
    users = [
        Association(id=place + 2, cluster="c", account="lab", user=user)
        for place, user in enumerate(("alice", "bob", *OTHERS))
    ]
    policy = Policy(version=1, associations=(root, *users), qos=(qos,))
    site.apply(PolicyChanged(at=site.now, policy=policy))
    return site


def bill(user: str, **fields: Any) -> Any:
    return spec(1, user=user, account="lab", qos="normal", **fields)


def test_a_limit_of_a_qos_is_explained_with_its_figures_and_the_jobs_whose_end_helps() -> None:
    site = billed_site(Qos(name="normal", max_tres_pu="gres/gpu=4"))
    first = site.submit(bill("alice", gpus_per_node=2, time_limit_minutes=5))
    second = site.submit(bill("alice", gpus_per_node=2, time_limit_minutes=9))
    site.submit(bill("bob", gpus_per_node=2))
    site.cycle()
    waiting = site.submit(bill("alice", gpus_per_node=2))
    one = told(site, waiting)
    assert one.reason == "QOSMaxGRESPerUser"
    (limit,) = [item for item in one.limits if item.holds]
    assert (limit.kind, limit.asked, limit.used, limit.limit) == (one.reason, 2, 4, 4)
    assert limit.text == "QOS normal, user alice allows 4 GPUs at a time, 4 in use, 2 asked for: alice has 4"
    assert [(item.job, item.why) for item in one.blockers] == [(str(first), "limit")]
    assert not one.room_is_kept
    site.end(first)
    assert site.cycle().keys() == {waiting}
    assert second in site.jobs


def test_a_group_limit_names_the_jobs_that_use_it() -> None:
    site = billed_site(Qos(name="normal"), grp_tres="gres/gpu=5")
    site.submit(bill("alice", gpus_per_node=3))
    site.submit(bill("bob", gpus_per_node=1))
    site.cycle()
    one = told(site, site.submit(bill("bob", gpus_per_node=2)))
    (limit,) = [item for item in one.limits if item.holds]
    assert (limit.kind, limit.used, limit.users) == ("AssocGrpGRES", 4, (("alice", 3), ("bob", 1)))
    assert limit.subject == "account lab"


def test_a_limit_that_the_job_exceeds_by_itself_never_lets_it_start() -> None:
    site = billed_site(Qos(name="normal", max_wall=60))
    one = told(site, site.submit(bill("alice", time_limit_minutes=90)))
    assert (one.verdict, one.reason) == ("never", "QOSMaxWallDurationPerJobLimit")
    assert one.summary == "QOS normal allows 01:00:00 a job, 01:30:00 asked for."


@pytest.mark.parametrize(
    ("qos", "fields", "asked"),
    [
        (Qos(name="normal", grp_jobs=1, max_jobs_pu=1), {}, {}),
        (Qos(name="normal", max_jobs_pu=1, max_jobs_pa=1, grp_tres="cpu=1"), {}, {}),
        (Qos(name="normal", max_tres_pa="node=1"), {"grp_jobs": 1}, {}),
        (Qos(name="normal"), {"grp_tres": "cpu=1", "grp_jobs": 1}, {}),
        (Qos(name="normal", max_tres_pj="gres/gpu=1"), {"max_tres": "cpu=1"}, {"gpus_per_node": 2}),
        (Qos(name="normal", min_tres_pj="cpu=2"), {"max_wall": 5}, {}),
        (Qos(name="normal", max_wall=20), {"max_wall": 5}, {}),
    ],
)
def test_the_first_limit_that_is_told_to_hold_a_job_is_the_reason_that_squeue_shows(
    qos: Qos, fields: dict[str, Any], asked: dict[str, Any]
) -> None:
    site = billed_site(qos, **fields)
    site.submit(bill("alice", **asked))
    site.cycle()
    one = told(site, site.submit(bill("alice", **asked)))
    holding = [item.kind for item in one.limits if item.holds]
    assert holding[:1] == ([one.reason] if one.verdict != "starts" else [])


def test_the_limit_of_an_array_names_the_task_that_ends_first() -> None:
    site = gpu_site()
    array = site.submit(spec(1), array=range(5), limit=2)
    site.cycle()
    one = told(site, array)
    assert one.job == f"{array}_[2-4]"
    (limit,) = [item for item in one.limits if item.kind == "ArrayTaskLimit"]
    assert (limit.holds, limit.used, limit.limit) == (True, 2, 2)
    assert [item.why for item in one.blockers] == ["array"]


def test_a_partition_that_is_down_and_limits_that_are_exceeded_hold_a_job() -> None:
    configs = [node("n1", 4), node("n2", 4)]
    limits = {"max_time_minutes": 5, "max_nodes": 1, "max_memory_mib_per_node": 50}
    site = Site(configs, [partition("p", configs, default=True, state=PartitionState.DOWN, **limits)])
    one = told(site, site.submit(spec(nodes=2, time_limit_minutes=10, memory_mib_per_node=100)))
    assert [(item.kind, item.asked, item.limit) for item in one.limits if item.holds] == [
        ("PartitionState", 0, 0), ("MaxTime", 10, 5), ("MaxNodes", 2, 1), ("MaxMemPerNode", 100, 50),
    ]  # fmt: skip
    assert one.summary.startswith("Partition p is DOWN: it starts no jobs. 3 more rules")


def test_what_no_node_could_ever_hold_never_starts_and_smaller_requests_are_found() -> None:
    site = gpu_site()
    site.submit(spec(1, nodes=1, gpus_per_node=4))
    site.cycle()
    huge = site.submit(spec(1, nodes=1, gpus_per_node=8))
    one = told(site, huge)
    assert (one.verdict, counts(one)) == ("never", {"too_small": 4})
    assert one.expected is not None
    assert one.expected.text == "never, as things are"
    assert ("4 GPUs a node (--gpus-per-node=4)", site.now) in others(site, huge)


def test_fewer_nodes_and_other_partitions_are_tried_by_planning_for_them() -> None:
    configs = [node(f"n{number}", 4) for number in range(1, 5)]
    homes = [partition("p", configs[:3], default=True), partition("q", configs[3:]), partition("r", configs[3:])]
    site = Site(configs, homes)
    site.submit(spec(4, nodes=1, time_limit_minutes=30))
    site.cycle()
    waiting = site.submit(spec(nodes=3, tasks_per_node=4))
    assert others(site, waiting, acceptable=lambda request: request.partitions != ("r",)) == [
        ("2 nodes (--nodes=2)", site.now)
    ]
    one = site.submit(spec(4, nodes=1, node_list=("n1",)))
    assert ("no --nodelist", site.now) in others(site, one)


def test_trying_leaves_the_job_as_it_was() -> None:
    site = gpu_site()
    site.submit(spec(nodes=4, gpus_per_node=4))
    site.cycle()
    waiting = site.submit(spec(nodes=2, gpus_per_node=4))
    before = told(site, waiting)
    others(site, waiting)
    assert structs.replace(told(site, waiting), alternatives=()) == before


def test_a_held_job_is_told_when_it_would_start_if_it_were_released() -> None:
    site = gpu_site()
    job_id = site.submit(spec(1))
    job = structs.replace(site.jobs[job_id], hold=Hold.USER, priority=0, reason=Reason.HELD_USER)
    site.machine.state.jobs[job_id] = job
    site.projection.put_job(job)
    one = told(site, job_id)
    assert one.summary == f"Held: `scontrol release {job_id}` lets it go on."
    assert one.expected is not None
    assert one.expected.sure == "unknown"
    assert once_free(site.projection, job, site.now).sure == "now"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("afterok", "job 1 has to end well (exit code 0); it is RUNNING"),
        ("afternotok", "job 1 has to fail; it is RUNNING"),
        ("afterany", "job 1 has to end; it is RUNNING"),
    ],
)
def test_a_dependency_is_told_in_words(kind: str, text: str) -> None:
    site = gpu_site()
    site.submit(spec(1))
    site.cycle()
    job_id = site.submit(spec(1))
    job = structs.replace(
        site.jobs[job_id], dependencies=(Dependency(kind=kind, job_id=1),), eligible_at=0.0, reason=Reason.DEPENDENCY
    )
    site.machine.state.jobs[job_id] = job
    site.projection.put_job(job)
    assert [item.text for item in told(site, job_id).limits if item.holds] == [text]


def test_beyond_the_promised_starts_the_estimate_says_that_it_is_rough() -> None:
    site = Site([node("n1", 4)], settings=structs.replace(SETTINGS, scheduler_parameters=(("bf_max_job_test", "1"),)))
    jobs = [site.submit(spec(4)) for _ in range(5)]
    site.cycle()
    one = told(site, jobs[-1])
    assert one.expected is not None
    assert (one.expected.sure, one.expected.start_at) == ("forecast", site.now + 4 * 600)
    assert "bf_max_job_test" in one.expected.text


def test_running_and_ended_jobs_are_told_simply() -> None:
    site = gpu_site()
    job_id = site.submit(spec(1, name="train", user="alice"))
    site.cycle()
    one = past(site.jobs[job_id])
    assert (one.verdict, one.nodes, one.started_at, one.ends_at) == ("runs", "n1", 1000.0, 1600.0)
    site.now += 60
    site.end(job_id)
    one = past(site.jobs[job_id])
    assert (one.verdict, one.state, one.ends_at) == ("ended", JobState.COMPLETED.value, 1060.0)
    assert one.summary == "Its exit code was 0."


def test_a_job_that_preempts_names_its_victims() -> None:
    here = preemption_site(nodes=1, low={"grace_seconds": 60})
    victim = here.submit(low(tasks=4))
    here.cycle()
    one = told(here, here.submit(high(tasks=4)))
    assert (one.verdict, one.summary) == ("starts", "It starts as soon as the jobs that make room for it have left.")
    assert [(item.job, item.state) for item in one.blockers] == [(str(victim), "preempted")]


def test_the_order_of_tests_is_the_order_in_which_they_are_told() -> None:
    assert TESTS[-1] == "able"
    assert len(set(TESTS)) == len(TESTS)


def test_a_job_of_several_partitions_is_not_kept_back_by_what_it_is_promised_in_another() -> None:
    """In `whole` it must wait until its node is empty; in `part` there is room next to the running job."""
    configs = [node("n1", 2)]
    homes = [partition("part", configs, default=True), partition("whole", configs, oversubscribe="EXCLUSIVE")]
    site = Site(configs, homes)
    site.submit(spec(1, time_limit_minutes=10))
    site.cycle()
    job = site.submit(spec(1, partitions=("whole", "part"), time_limit_minutes=20))
    assert told(site, job).verdict == "starts"
    assert site.cycle()[job].partition == "part"


def test_a_component_names_the_components_with_which_it_starts() -> None:
    site = Site([node("n1"), node("n2", gres=[gpus(2)])])
    site.submit(spec(8, gpus_per_node=2))
    site.cycle()
    first = site.submit_het(spec(4), spec(1, gpus_per_node=1))
    site.cycle()
    one, other = told(site, first), told(site, first + 1)
    assert (one.job, other.job) == (f"{first}+0", f"{first}+1")
    assert one.summary == f"There is room for it, but not for {first}+1, with which it starts."
    assert other.summary.endswith(f"It starts together with {first}+0.")
    assert not one.ahead.count
    assert not other.ahead.count
    assert one.expected is not None
    assert other.expected is not None
    assert one.expected.start_at == other.expected.start_at > site.now


def test_what_is_kept_for_one_component_is_no_room_for_another() -> None:
    """8+0 of a cluster played by hand: it has room on n2 and n3, but n3 is for the other component."""
    site = Site([node("n1", 4), node("n2", 4), node("n3", 4, features=("big",))])
    site.submit(spec(4, time_limit_minutes=5))
    (allocation,) = site.cycle().values()
    assert allocation.names == ("n1",)
    hour = {"time_limit_minutes": 60}
    first = site.submit_het(spec(8, nodes=2, **hour), spec(4, features="big", **hour), priorities=(9, 5))
    between = site.submit(spec(4, node_list=("n1",), time_limit_minutes=5), priority=7)
    site.cycle()
    one, other, job = told(site, first), told(site, first + 1), told(site, between)
    assert one.summary.startswith("1 job wants the same nodes and goes first; CPUs are short.")
    assert {(test.test, test.text): test.nodes for test in one.partitions[0].tests}[
        "kept", "free, but kept for a component that starts with it"
    ] == "n3"
    assert [blocker.job for blocker in one.blockers] == ["1"]
    assert other.summary == f"There is room for it, but not for {first}+0, with which it starts."
    # The whole has the place of its last component (bf_hetjob_prio=min).
    assert [[item.job for item in each.ahead.first] for each in (one, other, job)] == [[str(between)]] * 2 + [[]]


def test_a_requeued_job_says_when_it_may_start_again() -> None:
    site = Site([node("n1")])
    job = site.submit(spec(1))
    site.machine.state.jobs[job] = structs.replace(
        site.jobs[job], reason=Reason.BEGIN_TIME, eligible_at=site.now + 90.0, restart_count=1
    )
    (limit,) = (one for one in told(site, job).limits if one.kind == "BeginTime")
    assert limit.holds
    assert limit.at == site.now + 90.0
    assert "requeue_delay" in limit.text
