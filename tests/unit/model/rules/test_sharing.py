"""Who may use a CPU, and how much of a node the jobs of one partition may have."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.model.job.record import JobSpec, Sharing
from spritz.model.node.partition import Partition
from spritz.model.resources import NodeCapacity, mask_ids
from spritz.model.rules.sharing import Occupant, crowded_cpus, exceeds_partition_cpus, jobs_per_cpu, may_meet

masks = st.lists(st.integers(0, 255), max_size=6)


@given(masks, st.integers(1, 5))
def test_a_cpu_is_crowded_if_as_many_jobs_as_may_are_on_it(shares: list[int], most: int) -> None:
    used = Counter(cpu for share in shares for cpu in mask_ids(share))
    assert set(mask_ids(crowded_cpus(shares, most))) == {cpu for cpu, count in used.items() if count >= most}


@pytest.mark.parametrize(
    ("oversubscribe", "spec", "most"),
    [
        ("NO", JobSpec(sharing=Sharing.OVERSUBSCRIBE), 1),
        ("YES:3", JobSpec(sharing=Sharing.OVERSUBSCRIBE), 3),
        ("YES", JobSpec(sharing=Sharing.OVERSUBSCRIBE), 4),
        ("YES:3", JobSpec(), 1),
        ("FORCE:2", JobSpec(), 2),
        ("FORCE:2", JobSpec(sharing=Sharing.EXCLUSIVE), 2),
        ("FORCE:2", JobSpec(reboot=True), 1),
        ("EXCLUSIVE", JobSpec(sharing=Sharing.OVERSUBSCRIBE), 1),
    ],
)
def test_the_partition_and_the_job_say_how_many_share_a_cpu(oversubscribe: str, spec: JobSpec, most: int) -> None:
    assert jobs_per_cpu(Partition(name="p", oversubscribe=oversubscribe), spec) == most


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (Occupant(1, False, False, ""), Occupant(2, False, False, ""), True),
        (Occupant(1, True, False, ""), Occupant(1, False, False, ""), False),
        (Occupant(1, False, True, ""), Occupant(2, False, False, ""), False),
        (Occupant(1, False, True, ""), Occupant(1, False, False, ""), True),
        (Occupant(1, False, False, "a"), Occupant(2, False, False, "a"), True),
        (Occupant(1, False, False, "a"), Occupant(1, False, False, ""), False),
    ],
)
def test_two_jobs_may_be_on_one_node_or_not(one: Occupant, other: Occupant, together: bool) -> None:
    assert may_meet(one, other) is may_meet(other, one) is together


@pytest.mark.parametrize(
    ("limits", "shares", "added", "exceeds"),
    [
        ({"max_cpus_per_node": 4}, [0b11], 0b1100, False),
        ({"max_cpus_per_node": 4}, [0b11], 0b11100, True),
        ({"max_cpus_per_node": 4}, [0b111], 0b11, True),
        ({"max_cpus_per_socket": 2}, [0b1], 0b10, False),
        ({"max_cpus_per_socket": 2}, [0b1], 0b110, True),
        ({"max_cpus_per_socket": 2}, [0b11], 0b110000, False),
        ({"max_cpus_per_socket": 2}, [0b11], 0b11, False),
        ({"max_cpus_per_socket": 1}, [0b11], 0b110000, True),
        ({"max_cpus_per_socket": 1}, [0b11], 0b10000, False),  # the limit was lowered while jobs ran
    ],
)
def test_a_partition_has_no_more_of_a_node_or_socket_than_it_may(
    limits: dict[str, Any], shares: list[int], added: int, exceeds: bool
) -> None:
    capacity = NodeCapacity(cpus=8, sockets=2, cores_per_socket=4)
    assert exceeds_partition_cpus(Partition(name="p", **limits), capacity, shares, added) is exceeds
