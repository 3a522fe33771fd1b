"""Whatever a slow judge can place, Spritz places; what Spritz places, the judge finds right (`placement_oracle`)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.placement_cases import cluster, described, job, judge, question, site_of
from tests.property.placement_oracle import Cluster, Gpu, Job, Node

SPEED = settings(max_examples=60, deadline=None)


@SPEED
@given(st.integers(0, 1 << 32), st.booleans(), st.booleans())
def test_a_job_starts_if_and_only_if_there_is_a_place_for_it(seed: int, busy: bool, tight: bool) -> None:
    """On idle and on partly busy clusters, also after it asks for as much as there is room for. What could run on the
    idle cluster is not refused at submission, by the core or by placement."""
    random = Random(seed)
    asked = cluster(random)
    wanted = job(random, asked)
    fault = judge(asked, wanted, Random(seed) if busy else None, Random(seed) if tight else None)
    assert not fault, f"{fault}\n{described(asked, wanted)}"


def gpu_node(name: str, *sockets: int, cores: int = 4) -> Node:
    """Two sockets, and a GPU next to each of `sockets`."""
    return Node(
        name=name,
        sockets=2,
        cores=cores,
        threads=1,
        memory=100,
        tmp=0,
        features=frozenset(),
        gpus=tuple(Gpu("", socket) for socket in sockets),
        nics=0,
        leaf=0,
        weight=1,
        free=[],
        free_memory=0,
        free_gpus=set(),
        free_nics=0,
    )


@pytest.mark.parametrize(
    ("wanted", "has_place"),
    [
        (Job(tasks=2, gpus_node=(("", 2),), cpus_per_task=4, binding="enforce"), True),
        (Job(tasks=3, gpus_node=(("", 2),), cpus_per_task=4, binding="enforce", nodes=(1, 1)), False),
        (Job(tasks=2, tasks_per_socket=1, gpus_node=(("", 1),), binding="enforce", nodes=(1, 1)), False),
        (Job(nodes=(2, 2), gpus=(("", 4),), tasks_per_gpu=2, cpus_per_task=2), True),
        (Job(nodes=(2, 2), gpus=(("", 5),), tasks_per_gpu=2, cpus_per_task=2), False),
    ],
)
def test_the_judge_knows_what_has_a_place(wanted: Job, has_place: bool) -> None:
    """Two nodes with two sockets of four cores, and two GPUs next to each."""
    asked = Cluster([gpu_node("n0", 0, 0, 1, 1), gpu_node("n1", 0, 0, 1, 1)])
    assert (question(asked, wanted, site_of(asked)).find() is not None) is has_place
    assert not judge(asked, wanted, None)
