"""The formula of multifactor priority, factor by factor, and the order that follows from it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from spritz.core.machine import Machine
from spritz.model.cluster.priority import PRIORITY_MAX, PriorityInputs, PriorityPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import KeepPriorities
from spritz.model.commands.job import UpdateJob
from spritz.model.events.cluster import PartitionUpdated
from spritz.model.events.job import JobUpdated
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import Job, JobSpec
from spritz.model.node.partition import Partition
from spritz.model.reasons import Reason
from spritz.model.resources import GresRequest
from spritz.scheduling.view.priority.multifactor import Pricing, Totals, totals_of
from spritz.scheduling.view.projection import Projection
from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec

TOTALS = Totals(10, 80, {"p": {"cpu": 40, "mem": 4000, "node": 5, "gres/gpu": 20}})
PARTITIONS = {"p": Partition(name="p", priority_job_factor=5), "q": Partition(name="q", priority_job_factor=20)}
INPUTS = PriorityInputs(
    fairshare={("ml", "ann"): 0.25}, associations={("ml", "ann"): 3, ("ml", "bob"): 12}, qos={"high": 5, "top": 50}
)


def pricing(policy: dict[str, Any] | None = None, **fields: Any) -> Pricing:
    fields = {"priority_policy": PriorityPolicy(**(policy or {})), "priority_max_age_seconds": 1000, **fields}
    return Pricing(ClusterSettings(**fields), PARTITIONS, TOTALS, INPUTS)


def job(**fields: Any) -> Job:
    request = {"user": "ann", "account": "ml", "qos": "high", "nodes_min": 2, "tasks": 8, "time_limit_minutes": 10}
    spec_fields = {
        key: fields.pop(key) for key in list(fields) if key in JobSpec.__struct_fields__ and key != "priority"
    }
    return Job(
        **{"id": 1, "spec": JobSpec(**{**request, **spec_fields}), "priority": 1, "eligible_at": 100.0, **fields}
    )


@pytest.mark.parametrize(
    ("policy", "fields", "changes", "expected"),
    [
        ({}, {"priority_weight_age": 1000}, {}, 400),  # 400 s of 1000
        ({}, {"priority_weight_age": 1000}, {"eligible_at": -9000.0}, 1000),  # no more than all of it
        ({}, {"priority_weight_age": 1000}, {"eligible_at": 0.0}, 1),  # not eligible yet
        ({"accrue_always": True}, {"priority_weight_age": 1000}, {"eligible_at": 0.0, "submitted_at": 300.0}, 200),
        ({}, {"priority_weight_age": 1000}, {"accrued_at": 250.0}, 250),  # a limit let it grow older later
        ({}, {"priority_weight_age": 1000}, {"accrued_at": 0.0}, 1),  # it does not yet
        ({}, {"priority_weight_jobsize": 1000}, {}, 150),  # (2/10 + 8/80) / 2
        ({"favor_small": True}, {"priority_weight_jobsize": 1000}, {}, 850),
        # 16 CPUs (two nodes' share) for 10 minutes, of 80
        ({"relative_to_time": True}, {"priority_weight_jobsize": 10_000}, {}, 200),
        ({}, {"priority_weight_partition": 1000}, {}, 250),  # 5 of 20
        ({"not_normal": ("PART",)}, {"priority_weight_partition": 1000}, {}, 5000),
        ({"weight_fairshare": 1000}, {}, {}, 250),
        ({"weight_fairshare": 1000}, {}, {"user": "eve"}, 1),
        ({"weight_assoc": 1000}, {}, {}, 250),  # 3 of 12
        ({"weight_assoc": 1000, "not_normal": ("ASSOC",)}, {}, {}, 3000),
        ({"weight_qos": 1000}, {}, {}, 100),  # 5 of 50
        ({"weight_qos": 1000, "not_normal": ("QOS",)}, {}, {}, 5000),
        ({"weight_tres": (("cpu", 1000.0), ("gres/gpu", 2000.0))}, {}, {}, 200),  # 8 of 40
        (
            {"weight_tres": (("gres/gpu", 2000.0),)},
            {},
            {"gpus_per_node": (GresRequest("gpu", "", 4),)},
            800,  # 8 of 20
        ),
        ({"weight_tres": (("cpu", 3.0),), "not_normal": ("TRES",)}, {}, {}, 24),
        ({"weight_qos": 1000}, {}, {"nice": 60}, 40),
        ({"weight_qos": 1000}, {}, {"nice": 6000}, 1),  # never 0, which would be held
        ({"weight_qos": 4_000_000_000}, {}, {"qos": "top", "nice": -2_000_000_000}, PRIORITY_MAX),
        ({"weight_qos": 1000}, {"priority_multifactor": False}, {"priority": 77}, 77),
    ],
)
def test_each_factor_adds_its_weight(
    policy: dict[str, Any], fields: dict[str, Any], changes: dict[str, Any], expected: int
) -> None:
    """slurm.conf(5) PriorityWeight*, PriorityFlags; half way through a wait of 1000 s."""
    assert pricing(policy, **fields).priority(job(**changes), "p", 500.0) == expected


@pytest.mark.parametrize(
    ("changes", "expected"), [({"memory_mib_counted": 4000}, 500), ({"memory_mib_per_node": 1000}, 125)]
)
def test_memory_that_counts_for_asking_for_none_counts_here(changes: dict[str, Any], expected: int) -> None:
    """slurm.conf(5) PriorityWeightTRES; figures of 22.05's sprio."""
    site = Site([node(f"n{index}", memory=memory) for index, memory in enumerate((4000, 2000, 5000, 5000))])
    totals = totals_of(site.projection.table.rows, {"p": range(4)})
    policy = PriorityPolicy(weight_tres=(("mem", 2000.0),))
    price = Pricing(ClusterSettings(priority_policy=policy), {"p": Partition(name="p")}, totals, INPUTS)
    assert price.priority(job(nodes_min=1, tasks=1, partitions=("p",), **changes), "p", 500.0) == expected


def test_the_parts_add_up_to_the_whole() -> None:
    price = pricing(
        {"weight_qos": 100, "weight_fairshare": 1000, "weight_assoc": 10, "weight_tres": (("cpu", 500.0),)},
        priority_weight_age=1000,
        priority_weight_jobsize=400,
        priority_weight_partition=300,
    )
    parts, weights = price.factors(job(nice=7), "p", 600.0), price.weights
    total = parts.age * weights.age + parts.assoc * weights.assoc + parts.fairshare * weights.fairshare
    total += parts.job_size * weights.job_size + parts.partition_factor * weights.partition
    total += parts.qos_factor * weights.qos + parts.tres[0][1] * weights.tres[0][1] - parts.nice
    assert parts.priority == int(total)


def test_a_priority_set_by_hand_has_no_factors() -> None:
    by_hand = structs.replace(job(), spec=JobSpec(priority=9), priority=9)
    parts = pricing({}, priority_weight_age=1000).factors(by_hand, "p", 600.0)
    assert (parts.by_hand, parts.priority, parts.age) == (True, 9, 0.0)


ages = st.floats(1.0, 3000.0)


@settings(deadline=None)
@given(st.lists(st.tuples(ages, st.integers(-500, 500), st.booleans()), min_size=2, max_size=6), st.floats(0.0, 3000.0))
def test_ranks_order_jobs_as_their_priorities_do(waits: list[tuple[float, int, bool]], later: float) -> None:
    """A rank that holds until some time gives the same order until then as exact priorities would."""
    price = pricing({}, priority_weight_age=10_000_000)
    jobs = [
        structs.replace(
            job(eligible_at=since, nice=nice),
            **({"spec": JobSpec(priority=2000 + nice), "priority": 2000 + nice} if by_hand else {}),
        )
        for since, nice, by_hand in waits
    ]
    at = 3000.0
    ranks = [price.rank(one, "p", at) for one in jobs]
    then = at + later
    ranks = [
        price.rank(one, "p", then) if until <= then else (rank, until)
        for one, (rank, until) in zip(jobs, ranks, strict=True)
    ]
    exact = [price.priority(one, "p", then) for one in jobs]
    for first in range(len(jobs)):
        for second in range(len(jobs)):
            if exact[first] > exact[second] + 1:
                assert ranks[first][0] > ranks[second][0]


def test_the_order_follows_what_accounting_says() -> None:
    policy = PriorityPolicy(weight_fairshare=1000)
    site = Site([node("n1", 1)], settings=structs.replace(SETTINGS, priority_policy=policy))
    poor, rich = (site.submit(spec(1, user=user, account="ml")) for user in ("poor", "rich"))
    site.projection.set_priority_inputs(PriorityInputs(fairshare={("ml", "poor"): 0.1, ("ml", "rich"): 0.9}))
    assert list(site.cycle()) == [rich]
    site.end(rich)
    site.projection.set_priority_inputs(PriorityInputs(fairshare={("ml", "poor"): 0.9, ("ml", "rich"): 0.1}))
    again = site.submit(spec(1, user="rich", account="ml"))
    assert list(site.cycle()) == [poor]
    assert again not in site.cycle()


@pytest.mark.parametrize("back", [0.0, 86_400.0], ids=["", "clock set back"])
def test_a_job_of_full_age_is_not_overtaken_by_jobs_that_only_age(back: float) -> None:
    """PriorityMaxAge: the aged job is given its place again as others catch up, at most every PriorityCalcPeriod."""
    site = Site(
        [node("n1", 1)],
        [partition("p", ["n1"], default=True)],
        structs.replace(SETTINGS, priority_weight_age=1000, priority_max_age_seconds=100),
    )
    site.now += back
    site.submit(spec(1, time_limit_minutes=1000))
    site.cycle()
    site.now -= back
    old = site.submit(spec(1))
    site.now += 50
    young = site.submit(spec(1, nice=-400))
    site.now += 10
    site.cycle()
    site.now += 400
    site.end(1)
    assert list(site.cycle()) == [young]
    site.end(young)
    assert list(site.cycle()) == [old]


def test_with_incr_only_no_priority_becomes_lower() -> None:
    for only, order in ((False, [2, 1]), (True, [1, 2])):
        policy = PriorityPolicy(weight_fairshare=1000, incr_only=only)
        site = Site(
            [node("n1", 1)], settings=structs.replace(SETTINGS, priority_multifactor=True, priority_policy=policy)
        )
        projection = site.projection
        projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): 0.9, ("a", "v"): 0.5}))
        jobs = [site.submit(spec(1, account="a", user=user)) for user in ("u", "v")]
        site.projection.snapshot(site.now)
        projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): 0.1, ("a", "v"): 0.6}))
        begun: list[int] = []
        for _ in jobs:
            started = site.cycle()
            begun += started
            site.end(next(iter(started)))
        assert begun == order, only


def incr_only() -> tuple[Site, int]:
    """With PriorityFlags=INCR_ONLY a waiting job whose fair share gives it 900 of 1,000."""
    policy = PriorityPolicy(weight_fairshare=1000, incr_only=True)
    site = Site([node("n1", 1)], settings=structs.replace(SETTINGS, priority_multifactor=True, priority_policy=policy))
    site.projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): 0.9}))
    job = site.submit(spec(1, account="a", user="u"))
    site.projection.snapshot(site.now)
    return site, job


def test_with_incr_only_a_priority_outlives_the_controller() -> None:
    site, job = incr_only()
    projection = site.projection
    assert projection.marks(site.now) == ()
    lower = PriorityInputs(fairshare={("a", "u"): 0.1})
    projection.set_priority_inputs(lower)
    marks = projection.marks(site.now)
    assert marks == ((job, "debug", 900.0),)
    projection.follow(site.machine.handle(KeepPriorities(marks=marks), site.now).changes)
    assert projection.marks(site.now) == (), "once is enough"

    again = Machine.from_image(site.machine.image())
    state, other = again.state, Projection()
    other.reset(state.jobs.values(), state.nodes.values(), state.partitions.values(), state.settings)
    other.set_priority_inputs(lower)
    assert other.pricing.priority(other.records[job], "debug", site.now) == 900
    target = JobTarget(job)
    assert again.handle(UpdateJob(target=target, changes={"nice": 5}), site.now).rejection is None
    assert state.jobs[job].priorities_reached == ()


def test_with_incr_only_a_changed_job_loses_its_age() -> None:
    site, job = incr_only()
    projection = site.projection
    assert projection.pricing.priority(projection.records[job], "debug", site.now) == 900
    record = site.jobs[job]
    site.apply(JobUpdated(at=site.now, job=structs.replace(record, spec=structs.replace(record.spec, nice=500))))
    projection.snapshot(site.now)
    assert projection.pricing.priority(projection.records[job], "debug", site.now) == 400


@pytest.mark.parametrize("reason", [Reason.BEGIN_TIME, Reason.DEPENDENCY])
def test_with_incr_only_a_job_to_come_keeps_what_its_partition_gave(reason: Reason) -> None:
    """As a real Slurm 22.05 does when PriorityJobFactor is lowered; what is raised counts, too."""
    weights = structs.replace(SETTINGS, priority_multifactor=True, priority_weight_partition=5000)
    rising = structs.replace(weights, priority_policy=PriorityPolicy(weight_fairshare=1000, incr_only=True))
    homes = [partition(name, ["n1"], default=name == "p", priority_job_factor=10) for name in "pq"]
    site = Site([node("n1", 1)], homes, rising)
    projection = site.projection
    job = site.submit(spec(1, account="a", user="u"))
    waits = structs.replace(site.jobs[job], reason=reason, eligible_at=0.0)
    site.apply(JobUpdated(at=site.now, job=waits))

    def priority() -> int:
        projection.settle(site.now)
        return projection.pricing.priority(projection.records[job], "p", site.now)

    assert priority() == 5000
    site.apply(PartitionUpdated(at=site.now, partition=structs.replace(homes[0], priority_job_factor=1)))
    assert priority() == 5000
    for fair_share in (0.9, 0.5):
        projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): fair_share}))
        assert priority() == 5000, "500 for its partition, and less than 1,000 for its share"
    assert projection.marks(site.now) == ((job, "p", 5000.0),)
    site.apply(PartitionUpdated(at=site.now, partition=homes[0]))
    assert priority() == 5500
    projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): 0.9}))
    assert priority() == 5900
    projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): 0.1}))
    assert priority() == 5900


@pytest.mark.parametrize("reason", [Reason.BEGIN_TIME, Reason.NONE])
def test_with_incr_only_a_partition_changed_before_the_next_cycle_takes_nothing(reason: Reason) -> None:
    weights = structs.replace(SETTINGS, priority_multifactor=True, priority_weight_partition=5000)
    homes = [partition(name, ["n1"], default=name == "p", priority_job_factor=10) for name in "pq"]
    site = Site([node("n1", 1)], homes, structs.replace(weights, priority_policy=PriorityPolicy(incr_only=True)))
    site.projection.settle(site.now)
    job = site.submit(spec(1))
    site.apply(JobUpdated(at=site.now, job=structs.replace(site.jobs[job], reason=reason)))
    site.apply(PartitionUpdated(at=site.now, partition=structs.replace(homes[0], priority_job_factor=1)))
    site.projection.settle(site.now)
    assert site.projection.pricing.priority(site.projection.records[job], "p", site.now) == 5000


def test_with_incr_only_what_a_job_would_come_to_later_is_not_reached_yet() -> None:
    """Expected starts rank jobs to come as of their begin times."""
    weights = structs.replace(SETTINGS, priority_multifactor=True, priority_weight_age=1000)
    growing = structs.replace(
        weights, priority_max_age_seconds=1000, priority_policy=PriorityPolicy(incr_only=True, accrue_always=True)
    )
    site = Site([node("n1", 1)], settings=growing)
    job = site.submit(spec(1))
    waits = structs.replace(site.jobs[job], reason=Reason.BEGIN_TIME, eligible_at=site.now + 900.0)
    site.apply(JobUpdated(at=site.now, job=waits))
    site.cycle()
    projection = site.projection
    assert projection.pricing.priority(projection.records[job], "debug", site.now + 100.0) == 100
