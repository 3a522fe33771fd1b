"""A plan that is applied in slices at one moment has the effect of the plan in one piece."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack
from tests.unit.scheduling.site import Site, node, spec

from spritz.controller.scheduler import slices as plan_slices
from spritz.controller.scheduler.slices import slices
from spritz.core.invariants import breaches
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.commands.job import CancelJobs, Done
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.plan import Plan

single = st.tuples(st.just("job"), st.integers(1, 6), st.integers(1, 3), st.integers(1, 5))
array = st.tuples(st.just("array"), st.integers(1, 3), st.integers(2, 9), st.integers(0, 4))
whole = st.tuples(st.just("het"), st.integers(1, 3), st.integers(2, 4), st.integers(1, 5))
jobs = st.lists(st.one_of(single, single, array, whole), min_size=1, max_size=14)


def site(submitted: list[tuple[str, int, int, int]]) -> Site:
    """Six nodes of eight CPUs, and these jobs: some nodes each, tasks of an array, or components."""
    here = Site([node(f"n{number}") for number in range(1, 7)])
    for kind, tasks, count, more in submitted:
        if kind == "job":
            here.submit(spec(max(tasks, count), count), priority=more)
        elif kind == "array":
            here.submit(spec(tasks), array=range(count), limit=more)
        else:
            here.submit_het(*[spec(tasks)] * count, priorities=[more] * count)
    return here


def apply(here: Site, plan: Plan) -> list[str]:
    reply: Any = here.machine.handle(ApplyPlan(plan=plan), here.now).reply
    assert isinstance(reply, Done)
    return list(reply.messages)


@given(jobs, st.sets(st.integers(1, 20), max_size=4), st.integers(1, 4), st.integers(1, 6), st.integers(1, 3))
def test_slices_do_what_the_whole_plan_does(
    submitted: list[tuple[str, int, int, int]], cancelled: set[int], starts_max: int, nodes_max: int, notes_max: int
) -> None:
    """Some jobs have been cancelled since the plan was made: their starts are dropped from both, and no others."""
    one, other = site(submitted), site(submitted)
    plan = one.plan()
    for here in (one, other):
        targets = tuple(map(JobTarget, sorted(cancelled & set(here.jobs))))
        here.machine.handle(CancelJobs(filter=JobFilter(targets=targets)), here.now)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_slices, "STARTS_MAX", starts_max)
        patch.setattr(plan_slices, "NODES_MAX", nodes_max)
        patch.setattr(plan_slices, "NOTES_MAX", notes_max)
        pieces = slices(plan, other.machine.state)
    assert sum(len(piece.starts) for piece in pieces) == len(plan.starts)
    assert sum(len(piece.notes) for piece in pieces) == len(plan.notes)
    dropped = apply(one, plan)
    assert [message for piece in pieces for message in apply(other, piece)] == dropped
    assert breaches(other.machine.state) == []
    assert msgpack.decode(jobs_of(one)) == msgpack.decode(jobs_of(other))


def jobs_of(here: Site) -> bytes:
    return msgpack.encode(sorted(here.jobs.items()))
