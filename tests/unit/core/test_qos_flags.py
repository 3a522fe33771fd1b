"""Flags of a QOS that lift limits of the partition, or bind its jobs to a reservation. Source: sacctmgr(1)."""

from __future__ import annotations

from typing import Any

import pytest

from spritz.core.decide.submission.spec import limit_reason
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.job import UpdateJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import JobSpec
from spritz.model.limits.records import Association, Policy, Qos, SetPolicy
from spritz.model.node.partition import Partition
from spritz.model.reasons import Reason
from spritz_testing.builders import ALICE, World, capacity

ASSOCIATIONS = (
    Association(id=1, cluster="cluster", account="root", qos="normal,free"),
    Association(id=2, cluster="cluster", account="chem", parent="root"),
    Association(id=3, cluster="cluster", account="chem", user="alice", is_default=True),
)


def world(flags: str) -> World:
    """A partition of jobs of two nodes for ten minutes, and a QOS with these flags in addition to `normal`."""
    home = Partition(
        name="debug", nodes=("n1", "n2", "n3"), default=True, max_time_minutes=10, min_nodes=2, max_nodes=2
    )
    settings = ClusterSettings(enforce=("associations", "qos"), enforce_part_limits="ALL")
    made = World(settings=settings, hardware=capacity(cpus=8), partitions=(home,))
    qos = (Qos(name="normal", id=1), Qos(name="free", id=2, flags=flags))
    made.ok(SetPolicy(policy=Policy(version=1, associations=ASSOCIATIONS, qos=qos)))
    return made


@pytest.mark.parametrize(
    ("flag", "asked", "code"),
    [
        ("PartitionTimeLimit", {"time_limit_minutes": 11, "nodes_min": 2}, "ESLURM_INVALID_TIME_LIMIT"),
        ("PartitionMaxNodes", {"nodes_min": 3}, "ESLURM_INVALID_NODE_COUNT"),
        ("PartitionMinNodes", {"nodes_min": 1}, "ESLURM_INVALID_NODE_COUNT"),
    ],
)
def test_a_qos_lifts_one_limit_of_the_partition_and_no_other(flag: str, asked: dict[str, int], code: str) -> None:
    wanted: dict[str, Any] = {"nodes_given": True, **asked}
    made = world(flag)
    assert made.submit_refused(qos="normal", **wanted) == code
    spec = made.job(made.submit(qos="free", **wanted)).spec
    assert spec.qos == "free"
    others = ",".join(sorted({"PartitionTimeLimit", "PartitionMaxNodes", "PartitionMinNodes"} - {flag}))
    assert world(others).submit_refused(qos="free", **wanted) == code
    made.check()


def test_a_lifted_time_limit_leaves_the_partitions_time_to_jobs_that_ask_for_none() -> None:
    made = world("PartitionTimeLimit")
    job = made.submit(qos="free", nodes_given=True, nodes_min=2)
    assert made.job(job).time_limit_minutes == 10


def test_without_flags_the_reason_is_the_limit() -> None:
    long = JobSpec(time_limit_minutes=0)
    home = Partition(name="debug", max_time_minutes=10)
    assert limit_reason(long, home, ClusterSettings()) is Reason.PARTITION_TIME_LIMIT
    assert limit_reason(long, home, ClusterSettings(), frozenset({"PartitionTimeLimit"})) is Reason.NONE


def test_jobs_of_a_qos_that_requires_a_reservation_name_one() -> None:
    made = world("RequiresReservation")
    two: dict[str, Any] = {"nodes_given": True, "nodes_min": 2}
    assert made.submit_refused(qos="free", **two) == "ESLURM_INVALID_QOS"
    assert made.submit_refused(qos="free", reservation="none", **two) == "ESLURM_RESERVATION_INVALID"
    job = made.submit(**two)
    assert made.refused(UpdateJob(target=JobTarget(job), changes={"qos": "free"}), ALICE) == "ESLURM_INVALID_QOS"
