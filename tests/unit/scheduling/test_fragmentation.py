"""The fragment of a node: by hand, and arrays against scalars."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.scheduling.view.sharing.fragmentation import TypicalTasks, fragments


def typical(*rows: tuple[int, int, int, float], models: list[list[bool]] | None = None) -> TypicalTasks:
    """Each row: CPUs, GPUs, share of each, how often."""
    return TypicalTasks(
        cpu=np.array([row[0] for row in rows], dtype=np.int64),
        gpus=np.array([row[1] for row in rows], dtype=np.int64),
        milli=np.array([row[2] for row in rows], dtype=np.int64),
        share=np.array([row[3] for row in rows]),
        models=np.array(models if models is not None else [[True]] * len(rows)),
    )


def fragment_of(cpu_free: int, gpu_free: list[int], model: int, typical: TypicalTasks) -> float:
    """`fragments` for one node, in scalars: the reference for the arrays."""
    total = sum(gpu_free)
    expected = 0.0
    for cpu, gpus, milli, share, models in zip(
        typical.cpu.tolist(),
        typical.gpus.tolist(),
        typical.milli.tolist(),
        typical.share.tolist(),
        typical.models.tolist(),
        strict=True,
    ):
        roomy = sum(free >= milli for free in gpu_free)
        if gpus > 0 and roomy >= gpus and cpu_free >= cpu and models[model]:
            expected += share * sum(free for free in gpu_free if free < milli)
        else:
            expected += share * total
    return expected


@pytest.mark.parametrize(
    ("cpu", "gpus", "fragment"),
    [
        (4000, [1000, 1000], 0),  # fits: nothing is left over
        (4000, [1000, 400], 400),  # fits, and the second GPU is too full for it
        (4000, [600, 400], 1000),  # does not fit: all of it
        (3999, [1000, 1000], 2000),  # too few CPUs
    ],
)
def test_what_a_task_cannot_use_is_fragmented(cpu: int, gpus: list[int], fragment: float) -> None:
    tasks = typical((4000, 1, 1000, 1.0))
    assert fragment_of(cpu, gpus, 0, tasks) == fragment
    assert fragments(np.array([cpu]), np.array([gpus]), np.array([0]), tasks).tolist() == [fragment]


def test_a_task_without_gpus_sees_all_of_them_as_fragments() -> None:
    assert fragment_of(8000, [1000, 500], 0, typical((1000, 0, 0, 1.0))) == 1500


def test_the_wrong_model_is_a_fragment() -> None:
    tasks = typical((0, 1, 500, 1.0), models=[[True, False]])
    assert fragment_of(1000, [1000], 0, tasks) == 0
    assert fragment_of(1000, [1000], 1, tasks) == 1000


amounts = st.integers(0, 1000)


@given(
    st.lists(
        st.tuples(st.integers(0, 9000), st.lists(amounts, min_size=4, max_size=4), st.integers(0, 1)),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 4), st.integers(1, 1000)), min_size=1, max_size=4),
)
def test_arrays_equal_scalars(nodes: list[tuple[int, list[int], int]], requests: list[tuple[int, int, int]]) -> None:
    share = 1 / len(requests)
    flags = [[index % 2 == 0, index % 3 == 0] for index in range(len(requests))]
    tasks = typical(*((*request, share) for request in requests), models=flags)
    many = fragments(
        np.array([node[0] for node in nodes]),
        np.array([node[1] for node in nodes]),
        np.array([node[2] for node in nodes]),
        tasks,
    )
    assert many.tolist() == pytest.approx([fragment_of(cpu, free, model, tasks) for cpu, free, model in nodes])
