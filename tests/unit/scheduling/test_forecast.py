"""Every waiting job is told when and where: promises exactly, the others by a reckoning that gives nothing twice."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from spritz.model.job.record import Sharing
from spritz.model.plan import Plan
from spritz.scheduling import kernels
from spritz.scheduling.kernels import lanes
from spritz.scheduling.view.profile import NEVER
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, spec

SHALLOW = structs.replace(SETTINGS, scheduler_parameters=(("bf_max_job_test", "2"),))


def starts(plan: Plan) -> dict[int, tuple[float, list[int]]]:
    """Start and node positions by job number."""
    assert plan.forecast is not None
    ends = np.frombuffer(plan.forecast.ends, np.int64).tolist()
    nodes = np.frombuffer(plan.forecast.nodes, np.int32).tolist()
    at = np.frombuffer(plan.forecast.start_at, np.float64).tolist()
    found = {}
    for place, job_id in enumerate(np.frombuffer(plan.forecast.job_ids, np.int64).tolist()):
        found[job_id] = at[place], nodes[ends[place - 1] if place else 0 : ends[place]]
    return found


def test_every_waiting_job_has_an_expected_start_and_nodes() -> None:
    site = Site([node(f"n{number}", 4) for number in range(3)], settings=SHALLOW)
    for _ in range(20):
        site.submit(spec(4, nodes=1, time_limit_minutes=10))
    plan = site.plan()
    found = starts(plan)
    assert sorted(found) == list(range(4, 21))
    # Three run at a time, ten minutes each.
    assert [found[job][0] for job in range(4, 21)] == [1000.0 + 600 * ((job - 1) // 3) for job in range(4, 21)]
    assert all(len(nodes) == 1 for _, nodes in found.values())


def test_a_quick_cycle_says_nothing_of_later_jobs() -> None:
    site = Site([node("n1", 1)])
    for _ in range(3):
        site.submit(spec(1))
    assert site.plan(budget=50).forecast is None


def test_jobs_that_nothing_lets_start_have_no_expected_start() -> None:
    site = Site([node("n1", 4)], settings=structs.replace(SHALLOW, licenses=(("lab", 1),)))
    site.submit(spec(4))
    impossible, unlicensed = site.submit(spec(1, cpus_per_task=9)), site.submit(spec(1, licenses="lab:2"))
    waiting = site.submit(spec(4))
    assert set(starts(site.plan())) == {waiting}
    assert {impossible, unlicensed} == {2, 3}


def test_a_job_that_names_its_nodes_is_expected_on_these() -> None:
    site = Site([node(f"n{number}", 4) for number in range(3)], settings=SHALLOW)
    for _ in range(2):
        site.submit(spec(4, nodes=1, node_list=("n2",)))
    others = [site.submit(spec(4, nodes=1, node_list=("n2",))) for _ in range(3)]
    found = starts(site.plan())
    assert [found[job][1] for job in others if job in found] == [[2]] * sum(job in found for job in others)
    assert found


sizes = st.fixed_dictionaries(
    {
        "nodes": st.integers(1, 3),
        "cpus_per_task": st.integers(1, 4),
        "gpus_per_node": st.sampled_from([(), 1, 2]),
        "time_limit_minutes": st.integers(1, 30),
    }
)


@settings(max_examples=40, deadline=None)
@given(st.lists(sizes, min_size=5, max_size=25))
def test_the_reckoning_gives_nothing_twice(wanted: list[dict[str, Any]]) -> None:
    """Of running jobs, promises and expected starts together, no node ever gives more CPUs or GPUs than it has."""
    site = Site([node(f"n{number}", 4, gres=[gpus(2)]) for number in range(3)], settings=SHALLOW)
    requests = {}
    for fields in wanted:
        request = spec(fields["nodes"], **fields)
        requests[site.submit(request)] = request
    plan = site.plan()
    spans = [(start.job_id, site.now, [int(part.node[1:]) for part in start.allocation.nodes]) for start in plan.starts]
    spans += [(job_id, at, nodes) for job_id, (at, nodes) in starts(plan).items()]
    assert sorted(job_id for job_id, _, _ in spans) == sorted(requests)
    for moment in sorted({at for _, at, _ in spans}):
        cpus, devices = [0, 0, 0], [0, 0, 0]
        for job_id, at, nodes in spans:
            request = requests[job_id]
            assert len(nodes) == request.nodes_min
            if at <= moment < at + (request.time_limit_minutes or 0) * 60:
                for index in nodes:
                    cpus[index] += request.cpus_per_task or 1
                    devices[index] += sum(need.count for need in request.gpus_per_node)
        assert max(cpus) <= 4
        assert max(devices) <= 2


@pytest.mark.skipif(not kernels.compiled, reason="installed without a C compiler")
@given(st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_compiled_and_numpy_reckon_the_same(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [node(f"n{number}", rng.choice([2, 4]), gres=[gpus(2)] if number % 2 else []) for number in range(5)]
    site = Site(nodes, settings=SHALLOW)
    for _ in range(40):
        fields: dict[str, Any] = {"gpus_per_node": 1} if rng.random() < 0.3 else {}
        fields["sharing"] = rng.choice([Sharing.DEFAULT, Sharing.DEFAULT, Sharing.EXCLUSIVE])
        count = rng.choice([1, 1, 2, 3])
        minutes = rng.choice([1, 5, 5, 20])
        site.submit(spec(count, nodes=count, cpus_per_task=rng.randint(1, 2), time_limit_minutes=minutes, **fields))
    site.cycle()
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for compiled in (True, False):
            patch.setattr(kernels, "compiled", compiled)
            found.append(site.plan().forecast)
    assert found[0] == found[1]


@pytest.mark.skipif(not kernels.compiled, reason="installed without a C compiler")
@given(st.integers(0, 1000), st.integers(1, 900), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_compiled_and_numpy_choose_the_same_pool(seed: int, count: int, values: int) -> None:
    rng = np.random.default_rng(seed)
    times = rng.integers(1, values + 1, (3, count)).astype(np.float64)
    times[times == values] = NEVER
    free_at = (np.sort(times, axis=0), np.zeros((0, count)), np.sort(times[:2], axis=0))
    cpus, up = rng.integers(1, 4, count), rng.random(count) < 0.9
    need, whole = (int(rng.integers(1, 4)), 0, int(rng.integers(0, 3))), bool(rng.integers(2))
    nodes = np.arange(count)
    width = int(rng.integers(0, count))
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for compiled in (True, False):
            patch.setattr(kernels, "compiled", compiled)
            pool, usable, limit = lanes.pool(free_at, need, whole, cpus, up, nodes, 2.0, width)
            found.append((pool.tolist(), usable, limit))
    assert found[0] == found[1]
