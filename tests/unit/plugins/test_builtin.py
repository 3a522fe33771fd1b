"""Slurm's plugins that need no script. Source: what job_submit/NAME of Slurm 22.05 does."""

from __future__ import annotations

from spritz.config.plugins import JOB_SUBMIT
from spritz.model.errors import ESLURM
from spritz.model.ids import INFINITE
from spritz.model.job.record import JobSpec
from spritz.model.node.partition import Partition
from spritz.model.states import PartitionState
from spritz.plugins.builtin import BUILTIN, SCRIPTS, BuiltinContext
from spritz.plugins.description import Description

PARTITIONS = (
    Partition(name="low", default=True),
    Partition(name="high", priority_tier=5, allow_groups=("staff",)),
    Partition(name="small", priority_tier=3, max_memory_mib_per_node=100),
    Partition(name="root", priority_tier=9, root_only=True),
    Partition(name="off", priority_tier=9, state=PartitionState.DRAIN),
)


def context(**fields: object) -> BuiltinContext:
    given: dict[str, object] = {"uid": 1000, "now": 1000.0, "groups": ("users",), "partitions": PARTITIONS}
    return BuiltinContext(**{**given, **fields})  # type: ignore[arg-type]  # by name


def described(**fields: object) -> Description:
    spec = JobSpec(**{"uid": 1000, "work_dir": "/w", **fields})  # type: ignore[arg-type]  # by name
    return Description.of_spec(spec, b"#!/bin/sh\n", (b"A=b",), {})


def test_the_configuration_knows_all_of_them() -> None:
    assert sorted(JOB_SUBMIT) == sorted([*BUILTIN, *SCRIPTS])


def test_all_partitions_are_those_that_take_jobs() -> None:
    plugin = BUILTIN["all_partitions"]()
    job = described()
    assert plugin.submit(job, context()).number == 0
    assert job.spec().partitions == ("low", "high", "small", "root")
    job = described(partitions=("low",))
    plugin.submit(job, context())
    assert job.spec().partitions == ("low",)


def test_partition_is_the_best_one_that_the_user_may_use() -> None:
    plugin = BUILTIN["partition"]()

    def chosen(fields: dict[str, object], **of_world: object) -> tuple[str, ...]:
        job = described(**fields)
        plugin.submit(job, context(**of_world))
        return job.spec().partitions

    assert chosen({}) == ("small",)
    assert chosen({}, groups=("staff",)) == ("high",)
    assert chosen({"memory_mib_per_node": 200}) == ("low",)
    assert chosen({}, uid=0) == ("root",)
    assert chosen({"partitions": ("low",)}) == ("low",)


def test_require_timelimit_wants_one_with_an_end() -> None:
    plugin = BUILTIN["require_timelimit"]()
    missing, invalid = ESLURM["ESLURM_MISSING_TIME_LIMIT"][0], ESLURM["ESLURM_INVALID_TIME_LIMIT"][0]
    assert plugin.submit(described(), context()).number == missing == 8000
    assert plugin.submit(described(time_limit_minutes=INFINITE), context()).number == invalid
    assert plugin.submit(described(time_limit_minutes=5), context()).number == 0
    assert plugin.modify(Description({"comment": "x"}, job_id=3), context()).number == 0
    assert plugin.modify(Description({"time_limit_minutes": INFINITE}, job_id=3), context()).number == invalid


def test_logging_tells_what_slurms_does() -> None:
    answer = BUILTIN["logging"]().submit(described(name="j", partitions=("p",)), context())
    assert answer.log == (
        (
            "info",
            "Job submit request: account:(null) begin_time:0 dependency:(null) name:j partition:p qos:(null) "
            "submit_uid:1000 time_limit:4294967294 user_id:1000",
        ),
    )


def test_pbs_leaves_variables_and_the_output_in_the_comment() -> None:
    plugin = BUILTIN["pbs"]()
    job = described(account="acc", partitions=("p",), comment="mine")
    plugin.submit(job, context(next_job_id=17))
    assert job.environment == [b"A=b", b"PBS_ACCOUNT=acc", b"PBS_QUEUE=p"]
    assert job.spec().comment == "mine,stdout=/w/slurm-17.out"
    job = described(stdout="/tmp/%j.txt")
    plugin.submit(job, context())  # the number is not known yet
    assert job.spec().comment == "stdout=/tmp/%j.txt"
    change = Description({"stdout": "new"}, facts={"comment": "old", "work_dir": "/w"}, job_id=3)
    plugin.modify(change, context())
    assert change.fields == {"comment": "old,stdout=/w/new"}


def test_throttle_counts_by_user_and_forgets_with_time() -> None:
    plugin = BUILTIN["throttle"]()

    def tried(uid: int, now: float, most: int = 2) -> int:
        job = described(uid=uid)
        return plugin.submit(job, context(now=now, jobs_per_user_per_hour=most)).number

    policy = ESLURM["ESLURM_ACCOUNTING_POLICY"][0]
    assert [tried(7, 100.0), tried(7, 100.0), tried(7, 100.0), tried(8, 100.0)] == [0, 0, policy, 0]
    assert tried(7, 100.0 + 359.0) == policy
    assert [tried(7, 100.0 + 360.0), tried(7, 100.0 + 360.0)] == [0, policy]
    assert [tried(7, 100.0 + 7200.0) for _ in range(3)] == [0, 0, policy]
    assert tried(9, 0.0, most=0) == 0
