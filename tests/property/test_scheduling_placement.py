"""Fast rules against slow ones: arrays against rows, the choice of nodes against all subsets."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.property.test_scheduling import moves, node_configs, play, requests, settings_of, sharing_of
from tests.unit.scheduling.site import Site, partition, spec

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.node.record import NodeConfig
from spritz.scheduling.placement import counts
from spritz.scheduling.placement.columns import capacity_columns, counts_suffice
from spritz.scheduling.placement.place import place
from spritz.scheduling.placement.runs import select_columns
from spritz.scheduling.placement.select import Candidate, select, target_of
from spritz.scheduling.placement.share import assign
from spritz.scheduling.view.capacity import capacity
from spritz.scheduling.view.request import Request
from spritz.scheduling.view.resolve import resolve

SPEED = settings(max_examples=150, deadline=None)


def request_on(configs: list[NodeConfig], fields: dict[str, Any], sharing: str, settings: ClusterSettings) -> Request:
    """The request that these keywords of `spec` make of one partition of all nodes."""
    home = partition("p", configs, oversubscribe=sharing)
    return resolve(spec(**{**fields, "partitions": ("p",)}), home, settings)


@SPEED
@given(node_configs(), settings_of, sharing_of, moves, requests())
def test_arrays_say_what_rows_say(
    configs: list[NodeConfig],
    settings: ClusterSettings,
    sharing: str,
    script: list[tuple[str, Any]],
    fields: dict[str, Any],
) -> None:
    """Never less than the exact rule, and the same where the array rule claims to suffice."""
    partitions = (partition("p", configs, default=True, oversubscribe=sharing), partition("q", configs))
    site = Site(configs, partitions, settings)
    for move in script:
        play(site, move)
    table = site.projection.table
    request = request_on(configs, fields, sharing, settings)
    tasks, devices = capacity_columns(table, request, np.arange(len(table.rows)))
    for row in table.rows:
        exact = capacity(row, request)
        bound = (int(tasks[row.index]), int(devices[row.index]))
        assert bound[0] >= exact[0], f"{row.name}: arrays say {bound}, the row {exact}"
        assert bound[1] >= exact[1] or not exact[0]
        if counts_suffice(table, request) and row.index not in table.exclusive:
            assert bound == exact


@SPEED
@given(node_configs(), settings_of, sharing_of, moves, requests())
def test_a_node_can_carry_all_that_its_capacity_says(
    configs: list[NodeConfig],
    settings: ClusterSettings,
    sharing: str,
    script: list[tuple[str, Any]],
    fields: dict[str, Any],
) -> None:
    partitions = (partition("p", configs, default=True, oversubscribe=sharing), partition("q", configs))
    site = Site(configs, partitions, settings)
    for move in script:
        play(site, move)
    request = request_on(configs, fields, sharing, settings)
    if request.enforce_binding:
        return
    for row in site.projection.table.rows:
        tasks, devices = capacity(row, request)
        for count in {1, tasks // 2, tasks} - {0} if tasks else ():
            for gpus in {min(1, devices), devices}:
                assert assign(row, request, count, gpus) is not None, f"{row.name}: {count} tasks, {gpus} GPUs"


candidates_of = st.lists(
    st.builds(
        lambda index, tasks, gpus, weight: Candidate(index, tasks, gpus, weight),
        st.integers(0, 9),
        st.integers(1, 4),
        st.integers(1, 3),
        st.integers(1, 2),
    ),
    max_size=6,
    unique_by=lambda candidate: candidate.index,
).map(lambda found: sorted(found, key=lambda candidate: candidate.index))

sizes = st.fixed_dictionaries(
    {
        "tasks": st.one_of(st.none(), st.integers(1, 9)),
        "nodes": st.one_of(st.none(), st.tuples(st.integers(1, 4), st.integers(1, 5)).map(sorted).map(tuple)),
        "contiguous": st.booleans(),
        "spread": st.booleans(),
        "gpus": st.sampled_from([(), (), 2, 4, 7]),
    }
)


@settings(max_examples=150, deadline=None)
@given(candidates_of, sizes, st.integers(0, 9))
def test_nodes_are_found_whenever_some_choice_of_them_would_do(
    candidates: list[Candidate], size: dict[str, Any], required_index: int
) -> None:
    request = request_on([], size, "NO", ClusterSettings())
    required = frozenset({required_index} & {candidate.index for candidate in candidates})
    portions = select(candidates, request, required)
    possible = any(
        suffices(chosen, request, required)
        for count in range(1, len(candidates) + 1)
        for chosen in combinations(candidates, count)
    )
    assert (portions is not None) == possible
    if portions is None:
        return
    by_index = {candidate.index: candidate for candidate in candidates}
    chosen = tuple(by_index[portion.index] for portion in portions)
    assert suffices(chosen, request, required)
    assert all(1 <= portion.tasks <= by_index[portion.index].tasks for portion in portions)
    if request.tasks is not None:
        assert sum(portion.tasks for portion in portions) == request.tasks
    if request.gres_total is not None:
        assert all(1 <= portion.gpus <= by_index[portion.index].gpus for portion in portions)
        assert sum(portion.gpus for portion in portions) == request.gres_total.count


def suffices(chosen: tuple[Candidate, ...], request: Request, required: frozenset[int]) -> bool:
    """Does this set satisfy the request?"""
    indexes = [candidate.index for candidate in chosen]
    target = target_of(request)
    if request.contiguous and indexes != list(range(indexes[0], indexes[0] + len(indexes))):
        return False
    if not required <= set(indexes) or not target.nodes_min <= len(chosen) <= target.nodes_max:
        return False
    if request.tasks is None:
        enough = all(candidate.tasks >= target.tasks_per_node for candidate in chosen)
    else:
        enough = sum(candidate.tasks for candidate in chosen) >= request.tasks
    return enough and sum(candidate.gpus for candidate in chosen) >= target.gpus


@settings(max_examples=150, deadline=None)
@given(candidates_of, sizes)
def test_the_array_form_of_the_choice_agrees_with_the_scalar_one(
    candidates: list[Candidate], size: dict[str, Any]
) -> None:
    request = request_on([], {**size, "contiguous": False, "spread": False}, "NO", ClusterSettings())
    columns = [
        np.array([getattr(candidate, name) for candidate in candidates], np.int64)
        for name in ("index", "tasks", "gpus", "weight")
    ]
    portions, final = select_columns(columns[0], columns[1], columns[2], columns[3], request)
    expected = select(candidates, request)
    if final:
        assert portions == expected
    else:
        assert portions is None


@pytest.fixture
def few_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two numbers are too many to try all of them."""
    monkeypatch.setattr(counts, "TRIED_MAX", 1)


@settings(SPEED, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    node_configs(), settings_of, sharing_of, moves, requests(), st.sets(st.integers(1, 8), min_size=1), st.booleans()
)
@pytest.mark.usefixtures("few_tried")
def test_the_best_of_several_numbers_of_nodes_is_found_though_few_are_tried(
    configs: list[NodeConfig],
    settings: ClusterSettings,
    sharing: str,
    script: list[tuple[str, Any]],
    fields: dict[str, Any],
    numbers: set[int],
    fewest: bool,
) -> None:
    """As if each number were tried, the largest first (with --use-min-nodes the smallest)."""
    partitions = (partition("p", configs, default=True, oversubscribe=sharing), partition("q", configs))
    site = Site(configs, partitions, settings)
    for move in script:
        play(site, move)
    wanted = {
        **fields,
        "nodes": (min(numbers), max(numbers)),
        "node_counts": tuple(sorted(numbers)),
        "use_min_nodes": fewest,
    }
    request = request_on(configs, wanted, sharing, settings)
    snapshot = site.projection.snapshot(site.now)
    tried = [count for count in sorted(numbers, reverse=not fewest) if count >= request.nodes_min]
    expected = None
    for count in tried if request.nodes_max is None else [count for count in tried if count <= request.nodes_max]:
        exact = replace(request, nodes_min=count, nodes_max=count, node_counts=())
        expected = expected or place(site.projection.table, exact, snapshot.eligibility)
    assert place(site.projection.table, request, snapshot.eligibility) == expected
