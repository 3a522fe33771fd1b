"""Who may submit what where; limits that refuse and limits that make wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.core.decide.waiting.update import PENDING
from spritz.model.cluster.settings import Caller, ClusterSettings
from spritz.model.commands.cluster import Configure, UpdatePartition
from spritz.model.commands.job import JobSubmitted, SubmitHetJob, SubmitJob, UpdateJob, WillRun
from spritz.model.commands.step import CreateStep
from spritz.model.ids import INFINITE
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import ContainerOptions
from spritz.model.job.step import StepSpec
from spritz.model.node.partition import Partition
from spritz.model.reasons import Reason
from spritz.model.resources import GresRequest
from spritz.model.states import PartitionState
from spritz_testing.builders import ALICE, BOB, ROOT, World, capacity, expect, job_spec

Make = Callable[..., World]


def part(**fields: Any) -> tuple[Partition, ...]:
    """One partition of n1 and n2."""
    return (replace(Partition(name="debug", nodes=("n1", "n2"), default=True), **fields),)


def test_a_job_is_its_callers_whatever_it_says(world: World) -> None:
    job = world.job(world.submit(ALICE, user="root", group="root", groups=(0,), admin_comment="x"))
    spec = job.spec
    assert (spec.uid, spec.gid, spec.user, spec.group, spec.groups) == (1001, 1001, "alice", "alice", (1001,))
    assert spec.admin_comment == ""


def test_an_administrator_may_submit_for_another_user(world: World) -> None:
    job = world.job(world.submit(ROOT, uid=1002, gid=1002, user="bob", group="bob", nice=-100))
    assert (job.spec.uid, job.spec.user, job.spec.nice) == (1002, "bob", -100)
    assert world.submit_refused(BOB, uid=1001) == "ESLURM_USER_ID_MISSING"


def test_only_administrators_raise_their_jobs_above_others(world: World) -> None:
    assert world.submit_refused(ALICE, nice=-1) == "ESLURM_INVALID_NICE"
    for priority in (5, 0, 4_294_967_293):
        assert world.submit_refused(ALICE, priority=priority) == "ESLURM_ACCESS_DENIED"
    assert world.job(world.submit(ROOT, priority=5)).priority == 5


def test_what_the_sites_plugins_have_set_needs_no_right_of_the_callers(world: World) -> None:
    spec = job_spec(nice=-5, priority=77, admin_comment="given")
    granted = SubmitJob(spec=spec, script=b"#!/bin/sh", granted=("admin_comment", "nice", "priority"))
    job = world.job(expect(world.ok(granted, ALICE).reply, JobSubmitted).job_id)
    assert (job.spec.nice, job.spec.priority, job.spec.admin_comment) == (-5, 77, "given")


def test_a_job_without_memory_has_what_its_partition_gives(make_world: Make) -> None:
    """slurm.conf DefMemPerCPU and its kin; a later change of them leaves the job alone."""
    settings = ClusterSettings(default_memory_mib_per_cpu=100, gres_types=("gpu",))
    world = make_world(settings=settings, partitions=part())

    def memory(**fields: Any) -> tuple[int | None, int | None, int | None]:
        spec = world.job(world.submit(**fields)).spec
        return spec.memory_mib_per_node, spec.memory_mib_per_cpu, spec.memory_mib_per_gpu

    assert memory() == (None, 100, None)
    assert memory(memory_mib_per_node=5) == (5, None, None)
    assert memory(memory_mib_per_cpu=0) == (None, 0, None)
    other = make_world(settings=settings, partitions=part(default_memory_mib_per_node=7))
    assert other.job(other.submit()).spec.memory_mib_per_node == 7
    none = make_world(settings=ClusterSettings(), partitions=part())
    assert none.job(none.submit()).spec.memory_mib_per_cpu is None


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ({"memory_mib_per_cpu": 100}, (None, None, 100)),
        ({"memory_mib_per_cpu": 101}, (2, None, 51)),
        ({"memory_mib_per_cpu": 250, "tasks": 2, "tasks_given": True, "cpus_per_task": 2}, (6, None, 84)),
        ({"memory_mib_per_node": 350}, (None, 4, None)),
        ({"memory_mib_per_node": 350, "cpus_per_task": 5}, (5, None, None)),
        ({"memory_mib_per_node": 350, "tasks": 2, "tasks_given": True}, (None, 4, None)),
    ],
)
def test_more_memory_than_a_cpu_may_have_brings_more_cpus(
    make_world: Make, asked: dict[str, Any], got: tuple[int | None, ...]
) -> None:
    """slurm.conf(5) MaxMemPerCPU; the numbers are those of a recorded Slurm 22.05."""
    world = make_world(partitions=part(max_memory_mib_per_cpu=100))
    spec = world.job(world.submit(ALICE, **asked)).spec
    assert (spec.cpus_per_task, spec.cpus_per_node_min, spec.memory_mib_per_cpu) == got


@pytest.mark.parametrize("field", ["name", "account", "comment", "features", "licenses", "work_dir", "stdout", "array"])
def test_texts_longer_than_slurm_takes_are_refused(world: World, field: str) -> None:
    assert world.submit_refused(ALICE, **{field: "x" * 5000}) == "ESLURM_PATHNAME_TOO_LONG"
    assert world.submit_refused(ALICE, partitions=("x" * 1025,)) == "ESLURM_PATHNAME_TOO_LONG"


def test_a_users_jobs_may_have_any_of_the_users_groups_and_no_other(world: World) -> None:
    carol = Caller(uid=7, gid=7, user="carol", group="carol", groups=(7, 8), group_names=("carol", "lab"))
    job = world.job(world.submit(carol, gid=8, group="lab"))
    assert (job.spec.gid, job.spec.group) == (8, "lab")
    assert world.job(world.submit(carol)).spec.gid == 7
    for gid in (0, 1001, 0xFFFFFFFE):
        assert world.submit_refused(carol, gid=gid, group="root") == "ESLURM_GROUP_ID_MISSING"
    assert world.job(world.submit(ROOT, uid=7, gid=1001)).spec.gid == 1001


def test_without_a_default_partition_one_must_be_named(make_world: Make) -> None:
    world = make_world(partitions=part(default=False))
    assert world.submit_refused() == "ESLURM_DEFAULT_PARTITION_NOT_SET"
    assert world.submit(partitions=("debug",))


def test_a_batch_job_needs_a_script(world: World) -> None:
    outcome = world.do(SubmitJob(spec=job_spec()), ALICE)
    assert outcome.rejection is not None
    assert outcome.rejection.code == "ESLURM_JOB_SCRIPT_MISSING"
    world.ok(SubmitJob(spec=job_spec(script_key="blob")), ALICE)


def test_a_script_may_not_be_larger_than_configured(make_world: Make) -> None:
    world = make_world(settings=ClusterSettings(max_script_bytes=10))
    outcome = world.do(SubmitJob(spec=job_spec(), script=b"#!/bin/sh\n\n"), ALICE)
    assert outcome.rejection is not None
    assert outcome.rejection.code == "ESLURM_PATHNAME_TOO_LONG"


def test_a_command_line_may_not_be_longer_than_configured(make_world: Make) -> None:
    """slurm.conf(5) SchedulerParameters=max_submit_line_size, in bytes; of jobs and of steps."""
    world = make_world(settings=ClusterSettings(max_submit_line_bytes=10))
    assert world.submit_refused(submit_line="sbatch \u00e9\u00e9") == "ESLURM_PATHNAME_TOO_LONG"
    job = world.submit(submit_line="sbatch \u00e9x")
    world.start(job)
    spec = StepSpec(argv=("true",), submit_line="srun " + "x" * 6)
    assert world.refused(CreateStep(job_id=job, spec=spec)) == "ESLURM_PATHNAME_TOO_LONG"
    assert ClusterSettings().max_submit_line_bytes == 1024 * 1024


def test_every_task_of_an_array_counts_for_max_job_count(make_world: Make) -> None:
    """slurm.conf(5) MaxJobCount: each task of a job array counts as one job."""
    world = make_world(settings=ClusterSettings(max_job_count=10))
    array = world.submit(array="0-7")
    world.submit()
    assert world.submit_refused(array="0-1") == "ESLURM_MAX_JOB_COUNT"
    world.submit()
    assert world.submit_refused() == "ESLURM_MAX_JOB_COUNT"
    world.cancel(array)
    world.advance(400)
    assert world.state.job_count == 2
    world.submit(array="0-7")


@pytest.mark.parametrize(
    ("rule", "fields", "code"),
    [
        ({"root_only": True}, {}, "ESLURM_ACCESS_DENIED"),
        ({"allow_groups": ("staff",)}, {}, "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP"),
        ({"deny_groups": ("staff", "alice")}, {}, "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP"),
        ({"allow_alloc_nodes": ("login",)}, {"submit_host": "n1"}, "ESLURM_ACCESS_DENIED"),
        ({"require_reservation": True}, {}, "ESLURM_ACCESS_DENIED"),
        ({"state": PartitionState.DRAIN}, {}, "ESLURM_PARTITION_NOT_AVAIL"),
        ({"state": PartitionState.INACTIVE}, {}, "ESLURM_PARTITION_NOT_AVAIL"),
    ],
)
def test_partitions_keep_out_users_that_they_do_not_allow(
    make_world: Make, rule: dict[str, Any], fields: dict[str, Any], code: str
) -> None:
    world = make_world(partitions=part(**rule))
    assert world.submit_refused(**fields) == code


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ({"allow_groups": ("alice", "staff")}, {}),
        ({"deny_groups": ("staff",)}, {}),
        ({"allow_groups": ("alice",), "deny_groups": ("alice",)}, {}),
        ({"allow_accounts": ("physics",)}, {"account": "physics"}),
        ({"deny_accounts": ("art",)}, {"account": "physics"}),
        ({"allow_alloc_nodes": ("login",)}, {"submit_host": "login"}),
        ({"state": PartitionState.DOWN}, {}),
    ],
)
def test_partitions_let_in_users_that_they_allow(
    make_world: Make, rule: dict[str, Any], fields: dict[str, Any]
) -> None:
    assert make_world(partitions=part(**rule)).submit(**fields)


@pytest.mark.parametrize(("enforced", "accepted"), [("NO", True), ("ANY", True), ("ALL", False)])
@pytest.mark.parametrize("names", [("staff", "debug"), ("debug", "staff")])
def test_one_partition_that_is_open_to_the_user_is_enough(
    make_world: Make, names: tuple[str, ...], enforced: str, accepted: bool
) -> None:
    """Differs: 22.05 accepts the second of the jobs alone so that it starts (decision 0130)."""
    nodes = ("n1", "n2", "n3", "n4")
    closed = Partition(name="staff", nodes=nodes, allow_groups=("staff",))
    partitions = (Partition(name="debug", nodes=nodes, default=True), closed)
    world = make_world(settings=ClusterSettings(enforce_part_limits=enforced), partitions=partitions)
    outcome = world.submit_outcome(partitions=names)
    assert (outcome.rejection is None) is accepted
    assert world.submit_refused(partitions=("staff",)) == "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP"


def test_root_jobs_may_be_disabled(make_world: Make) -> None:
    world = make_world(partitions=part(disable_root_jobs=True))
    assert world.submit_refused(ROOT) == "ESLURM_USER_ID_MISSING"
    assert world.submit(ROOT, uid=1001, gid=1001, user="alice", group="alice")


TIME, NODES = "ESLURM_INVALID_TIME_LIMIT", "ESLURM_INVALID_NODE_COUNT"
ACCOUNT, QOS = "ESLURM_INVALID_ACCOUNT", "ESLURM_INVALID_QOS"
LIMITS: list[tuple[dict[str, Any], dict[str, Any], Reason, str]] = [
    ({"allow_accounts": ("physics",)}, {"account": "art"}, Reason.ACCOUNT_NOT_ALLOWED, ACCOUNT),
    ({"allow_accounts": ("physics",)}, {}, Reason.ACCOUNT_NOT_ALLOWED, ACCOUNT),
    ({"deny_accounts": ("art",)}, {"account": "art"}, Reason.ACCOUNT_NOT_ALLOWED, ACCOUNT),
    ({"allow_qos": ("high",)}, {"qos": "low"}, Reason.QOS_NOT_ALLOWED, QOS),
    ({"deny_qos": ("low",)}, {"qos": "low"}, Reason.QOS_NOT_ALLOWED, QOS),
    ({"max_time_minutes": 60}, {"time_limit_minutes": 61}, Reason.PARTITION_TIME_LIMIT, TIME),
    ({"max_time_minutes": 60}, {"time_limit_minutes": INFINITE}, Reason.PARTITION_TIME_LIMIT, TIME),
    ({"max_nodes": 1}, {"nodes_min": 2, "nodes_given": True}, Reason.PARTITION_NODE_LIMIT, NODES),
    ({"min_nodes": 2}, {"nodes_min": 1, "nodes_given": True}, Reason.PARTITION_NODE_LIMIT, NODES),
    (
        {"max_memory_mib_per_node": 100},
        {"memory_mib_per_node": 101},
        Reason.MAX_MEMORY_PER_LIMIT,
        "ESLURM_INVALID_TASK_MEMORY",
    ),
]


@pytest.mark.parametrize(("rule", "fields", "reason", "code"), LIMITS)
@pytest.mark.parametrize("enforce", ["NO", "ANY", "ALL"])
def test_enforce_part_limits_says_whether_to_wait_or_refuse(
    make_world: Make, rule: dict[str, Any], fields: dict[str, Any], reason: Reason, code: str, enforce: str
) -> None:
    """slurm.conf(5) EnforcePartLimits."""
    world = make_world(partitions=part(**rule), settings=ClusterSettings(enforce_part_limits=enforce))
    if enforce == "NO":
        assert world.job(world.submit(**fields)).reason is reason
    else:
        assert world.submit_refused(**fields) == code


def test_with_any_one_partition_that_fits_is_enough(make_world: Make) -> None:
    parts = (*part(max_time_minutes=10), Partition(name="long", nodes=("n1",)))
    fields: dict[str, Any] = {"partitions": ("debug", "long"), "time_limit_minutes": 60}
    assert make_world(partitions=parts, settings=ClusterSettings(enforce_part_limits="ANY")).submit(**fields)
    world = make_world(partitions=parts, settings=ClusterSettings(enforce_part_limits="ALL"))
    assert world.submit_refused(**fields) == "ESLURM_INVALID_TIME_LIMIT"
    assert make_world(partitions=parts).submit(**fields)


def test_a_test_changes_nothing_and_names_the_partition(world: World) -> None:
    version = world.state.version
    outcome = world.ok(SubmitJob(spec=job_spec(), test_only=True), ALICE)
    assert expect(outcome.reply, WillRun).partition == "debug"
    assert world.state.version == version
    refused = world.do(SubmitJob(spec=job_spec(nodes_min=99), test_only=True), ALICE)
    assert refused.rejection is not None


def test_an_immediate_job_is_cancelled_unless_it_starts_in_time(world: World) -> None:
    outcome = world.ok(SubmitJob(spec=job_spec(batch=False), immediate_seconds=5), ALICE)
    job_id = outcome.reply.job_id  # type: ignore[attr-defined]  # it was accepted
    started = world.ok(SubmitJob(spec=job_spec(batch=False), immediate_seconds=5), ALICE).reply.job_id  # type: ignore[attr-defined]  # likewise
    world.start(started)
    world.advance(6)
    assert world.job(job_id).state.ended
    assert not world.job(started).state.ended


def test_jobs_that_cannot_end_before_their_deadline_are_given_up(world: World) -> None:
    job_id = world.submit(deadline_at=world.now + 600, time_limit_minutes=5)
    world.advance(299)
    assert not world.job(job_id).state.ended
    world.advance(3)
    assert world.job(job_id).state.value == "DEADLINE"


def test_a_refusal_has_neither_events_nor_effects(world: World) -> None:
    outcome = world.submit_outcome(partitions=("nope",))
    assert outcome.rejection is not None
    assert (outcome.events, outcome.effects) == ((), ())
    assert outcome.rejection.number == 2000


def test_an_array_has_no_more_tasks_than_max_array_tasks(make_world: Make) -> None:
    """slurm.conf(5) SchedulerParameters=max_array_tasks: how many tasks, whatever their indices."""
    world = make_world(settings=ClusterSettings(scheduler_parameters=(("max_array_tasks", "3"),)))
    assert world.submit_refused(array="0-3") == "ESLURM_INVALID_ARRAY"
    assert world.submit(array="0,10,500")


def test_an_alternate_takes_the_jobs_of_a_partition_that_takes_none(make_world: Make) -> None:
    """At submission and when a job changes its partition; through a row of them, in a circle too."""
    names = ("n1", "n2")
    debug = Partition(name="debug", nodes=names, default=True, alternate="long")
    long = Partition(name="long", nodes=names, alternate="third", default_time_minutes=60)
    third = Partition(name="third", nodes=names, alternate="debug")
    world = make_world(partitions=(debug, long, third))

    def home(**fields: Any) -> tuple[str, ...]:
        job = world.job(world.submit(ALICE, hold=True, **fields))
        assert job.partition == job.spec.partitions[0]
        return job.spec.partitions

    def put(name: str, state: PartitionState) -> None:
        world.ok(UpdatePartition(name=name, changes={"state": state.value}), ROOT)

    assert home() == ("debug",)
    held = world.submit(ALICE, hold=True, partitions=("third",))
    put("debug", PartitionState.DRAIN)
    assert home() == home(partitions=("debug", "long")) == ("long",)
    assert world.job(world.submit(ALICE, hold=True)).time_limit_minutes == 60
    world.ok(UpdateJob(target=JobTarget(job_id=held), changes={"partitions": ("debug",)}), ROOT)
    assert world.job(held).spec.partitions == ("long",)
    put("long", PartitionState.INACTIVE)
    assert home(partitions=("debug", "third")) == ("third",)
    world.ok(UpdateJob(target=JobTarget(job_id=held), changes={"nice": 5}), ROOT)
    assert world.job(held).spec.partitions == ("long",)
    put("third", PartitionState.DRAIN)
    assert world.submit_refused(ALICE) == "ESLURM_PARTITION_NOT_AVAIL"
    put("debug", PartitionState.DOWN)  # what takes jobs and starts none needs no alternate
    assert home() == ("debug",)


def test_numbers_suffice_for_every_task_of_an_array(make_world: Make) -> None:
    """slurm.conf(5) MaxJobId: an array is refused whose tasks could not all have a number of their own."""
    world = make_world(settings=ClusterSettings(first_job_id=1, max_job_id=10))
    array = world.submit(array="0-7", hold=True)
    world.submit()
    assert world.submit_refused(array="0-1") == "ESLURM_MAX_JOB_COUNT"
    for task in range(8):
        world.ok(UpdateJob(target=JobTarget(array, format(1 << task, "x")), changes={"nice": task}))
    assert max(world.state.jobs) == 9
    world.submit()
    assert world.submit_refused() == "ESLURM_MAX_JOB_COUNT"


def test_tasks_have_numbers_though_the_largest_was_lowered(make_world: Make) -> None:
    world = make_world(settings=ClusterSettings(first_job_id=1, max_job_id=10))
    array = world.submit(array="0-7", hold=True)
    settings = replace(world.settings, max_job_id=2)
    world.ok(Configure(settings=settings, nodes=world.nodes, partitions=world.partitions))
    every = JobTarget(array, format(0b1111, "x"))
    world.ok(UpdateJob(target=every, changes={"nice": 5}))
    assert len(world.state.jobs) == 5
    assert world.submit_refused() == "ESLURM_MAX_JOB_COUNT"


def test_extra_constraints_that_are_no_expression_are_refused(make_world: Make) -> None:
    """slurm.conf(5) SchedulerParameters=extra_constraints; without it --extra is any text."""
    world = make_world(settings=ClusterSettings(scheduler_parameters=(("extra_constraints", ""),)))
    outcome = world.do(SubmitJob(spec=job_spec(extra="a=1(b=2)"), script=b"#!/bin/sh\n"), ALICE)
    assert outcome.rejection is not None
    assert outcome.rejection.text == "Invalid extra constraints specification"
    job = world.submit(extra="a=1&b=2")
    assert world.refused(UpdateJob(target=JobTarget(job), changes={"extra": "a="})) == "ESLURM_INVALID_EXTRA"
    assert make_world().submit(extra="a=1(b=2)")


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({"tasks_per_node": 1, "nodes_min": 2, "nodes_given": True}, True),
        ({"nodes_min": 2, "nodes_given": True}, True),
        ({"tasks_per_node": 2}, True),
        ({"tasks": 2, "tasks_given": True}, True),
        ({}, False),
    ],
)
def test_gpus_of_tasks_need_a_number_of_tasks(options: dict[str, Any], taken: bool) -> None:
    """What real Slurm takes: submitit and Ray ask by nodes and tasks a node."""
    world = World(hardware=capacity(gpus=2))
    each = (GresRequest("gpu"),)
    if taken:
        assert world.job(world.submit(ALICE, gpus_per_task=each, **options)).spec.gpus_per_task == each
    else:
        assert world.submit_refused(ALICE, gpus_per_task=each) == "ESLURM_INVALID_GRES"


def test_an_account_is_in_small_letters_without_accounting_too(world: World) -> None:
    assert world.job(world.submit(ALICE, account="Physics")).spec.account == "physics"


@pytest.mark.parametrize("field", ["distribution", "cpu_bind", "gpu_bind", "memory_bind"])
def test_what_cannot_be_read_at_the_launch_is_refused_at_the_submission(world: World, field: str) -> None:
    """It was read when the job was launched, which then failed each time it was tried."""
    assert world.submit_refused(ALICE, **{field: "nope:"}) == "ESLURM_BAD_DIST"
    job = world.submit(ALICE, hold=True)
    if field in PENDING:
        assert world.refused(UpdateJob(target=JobTarget(job), changes={field: "nope:"})) == "ESLURM_BAD_DIST"


def test_a_deadline_without_a_limit_lets_the_limit_be_cut_to_it(world: World) -> None:
    job_id = world.submit(deadline_at=world.now + 600)
    assert world.job(job_id).spec.time_min_minutes == 1
    world.start(job_id)
    assert (world.job(job_id).time_limit_minutes or INFINITE) <= 10


def test_time_min_beyond_the_deadline_is_refused_and_time_is_not(world: World) -> None:
    """The latter ends at once as DEADLINE."""
    assert world.submit_refused(deadline_at=world.now + 600, time_min_minutes=11) == "ESLURM_INVALID_TIME_MIN_LIMIT"
    assert world.submit_refused(deadline_at=world.now - 1) == "ESLURM_INVALID_TIME_LIMIT"
    job_id = world.submit(deadline_at=world.now + 600, time_limit_minutes=20)
    world.advance(1)
    assert world.job(job_id).state.value == "DEADLINE"


def test_none_of_a_gres_that_is_not_there_may_be_asked_for(world: World) -> None:
    world.start(world.submit(gres_per_node=(GresRequest(name="craynetwork", count=0),)))
    assert world.submit_refused(gres_per_node=(GresRequest(name="craynetwork", count=1),)) == "ESLURM_INVALID_GRES"


def test_a_held_job_may_ask_for_more_than_there_is(world: World) -> None:
    assert world.submit(hold=True, cpus_per_task=10_000)
    assert world.submit_refused(cpus_per_task=10_000) == "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"


def test_a_submission_that_is_asked_for_again_queues_nothing(make_world: Make) -> None:
    """Its answer was lost (docs/decisions/0161). The key is its user's own."""
    world = make_world(settings=ClusterSettings(min_job_age_seconds=60))
    first = world.submit(ALICE, submit_key="k", name="once")
    again = world.submit_outcome(ALICE, submit_key="k", name="once")
    assert (again.reply, again.events) == (JobSubmitted(job_id=first), ())
    assert world.submit(BOB, submit_key="k") != first
    assert world.submit(ALICE, submit_key="other") != first
    assert world.submit(ROOT, submit_key="k", uid=1001, gid=1001, user="alice", group="alice") == first
    assert world.submit_outcome(submit_key="k" * 65).rejection is not None
    world.cancel(first)
    world.advance(30)
    assert world.submit(ALICE, submit_key="k") == first, "known for as long as the job is"


def test_tasks_of_an_array_have_no_key_of_their_own(world: World) -> None:
    array = world.submit(ALICE, submit_key="k", array="0-2")
    task = world.start(array, "n1", task=0)
    assert (world.job(array).submit_key, world.job(task).submit_key) == ("k", "")
    assert world.submit(ALICE, submit_key="k", array="0-2") == array


def test_the_leader_of_a_heterogeneous_job_has_the_key(world: World) -> None:
    parts = tuple(SubmitJob(spec=job_spec(), script=b"#!/bin/sh" if not place else b"") for place in range(2))
    whole = SubmitHetJob(components=(replace(parts[0], submit_key="k"), parts[1]))
    first = world.ok(whole, ALICE)
    again = world.ok(whole, ALICE)
    assert (again.reply, again.events) == (first.reply, ())


@pytest.mark.parametrize("share", ["mps", "shard"])
def test_a_job_has_whole_gpus_or_shares_of_them(make_world: Make, share: str) -> None:
    """Source: answers of Slurm 22.05."""
    world = make_world(settings=ClusterSettings(gres_types=("gpu", "mps", "shard")), hardware=capacity(gpus=2))
    both = {name: (GresRequest(name=name, count=1),) for name in ("gpu", share)}
    assert world.submit_refused(ALICE, gres_per_node=both["gpu"] + both[share]) == "ESLURM_INVALID_GRES"
    assert world.submit_refused(ALICE, gpus=both["gpu"], gres_per_node=both[share]) == "ESLURM_INVALID_GRES"


def test_lists_of_texts_are_as_long_as_a_line_may_be_together(world: World) -> None:
    most = ClusterSettings().max_submit_line_bytes
    assert world.submit_refused(arguments=("x" * 100,) * (most // 100 + 1)) == "ESLURM_PATHNAME_TOO_LONG"
    container = ContainerOptions(bundle="/b", mounts=("x" * (most + 1),))
    assert world.submit_refused(container=container) == "ESLURM_PATHNAME_TOO_LONG"
    job = world.start(world.submit(arguments=("x" * 100,) * (most // 100)))
    assert world.step_refused(job, environment=(b"x" * 1024,) * 8193) == "ESLURM_PATHNAME_TOO_LONG"


def test_notes_of_a_running_job_are_no_longer_than_those_of_a_new_one(world: World) -> None:
    """They would be repeated in each later change of the job."""
    job = world.start(world.submit())
    for name in ("comment", "name", "wckey", "mail_user", "extra"):
        command = UpdateJob(target=JobTarget(job), changes={name: "x" * 1025})
        assert world.refused(command, ALICE) == "ESLURM_PATHNAME_TOO_LONG"


@pytest.mark.parametrize("mode", ["x", "append", "A", " "])
def test_output_files_are_opened_in_one_of_two_modes(world: World, mode: str) -> None:
    """As commands send it: `a` or `t`, whatever word was typed."""
    assert world.submit_refused(open_mode=mode) == "ESLURM_NOT_SUPPORTED"
    job = world.start(world.submit(open_mode="a"))
    assert world.step_refused(job, open_mode=mode) == "ESLURM_NOT_SUPPORTED"
    world.step(job, open_mode="t")


def test_a_node_that_is_named_twice_counts_once(world: World) -> None:
    spec = world.job(world.submit(node_list=("n1", "n1"), exclude=("n2", "n3", "n2"))).spec
    assert (spec.node_list, spec.exclude) == (("n1",), ("n2", "n3"))
    tasks = world.submit(node_list=("n1", "n1", "n2"), distribution="arbitrary", tasks=3)
    assert world.job(tasks).spec.node_list == ("n1", "n1", "n2"), "the node of each task"
    job = world.submit()
    world.ok(UpdateJob(target=JobTarget(job), changes={"node_list": ["n2", "n2"]}))
    assert world.job(job).spec.node_list == ("n2",)
    world.ok(UpdatePartition(name="debug", changes={"nodes": ["n1", "n2", "n1"]}))
    assert world.state.partitions["debug"].nodes == ("n1", "n2")
