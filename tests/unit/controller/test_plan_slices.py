"""A plan in slices: bounded, in the plan's order, and nothing torn that belongs together."""

from __future__ import annotations

import pytest

from spritz.controller.scheduler import slices as plan_slices
from spritz.controller.scheduler.slices import slices
from spritz.model.plan import PendingNote, Plan, PlannedPreemption, PlannedStart
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation
from spritz_testing.builders import World, node_share


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices that fit on a screen."""
    monkeypatch.setattr(plan_slices, "STARTS_MAX", 3)
    monkeypatch.setattr(plan_slices, "NODES_MAX", 5)
    monkeypatch.setattr(plan_slices, "NOTES_MAX", 4)


def start(job_id: int, nodes: int = 1) -> PlannedStart:
    shares = tuple(node_share(f"n{number + 1}") for number in range(nodes))
    return PlannedStart(job_id=job_id, allocation=Allocation(partition="debug", nodes=shares))


def notes(count: int) -> tuple[PendingNote, ...]:
    return tuple(PendingNote(job_id=number + 1, reason=Reason.RESOURCES) for number in range(count))


def starts(world: World, *planned: PlannedStart) -> list[list[int]]:
    return [[one.job_id for one in piece.starts] for piece in slices(Plan(starts=planned), world.state)]


def test_a_plan_that_says_nothing_has_no_slice() -> None:
    assert slices(Plan(), World().state) == []


def test_a_small_plan_is_one_slice() -> None:
    plan = Plan(starts=(start(1), start(2)), notes=notes(2))
    assert slices(plan, World().state) == [plan]


def test_starts_are_cut_by_their_number_and_their_nodes() -> None:
    world = World(8)
    assert starts(world, *map(start, range(1, 8))) == [[1, 2, 3], [4, 5, 6], [7]]
    assert starts(world, start(1, 3), start(2, 3), start(3), start(4), start(5)) == [[1], [2, 3, 4], [5]]
    assert starts(world, start(1), start(2, 8), start(3)) == [[1], [2], [3]], "more nodes than a slice has"


def test_components_of_a_heterogeneous_job_stay_together() -> None:
    world = World(8)
    lone = world.submit()
    world.submit_het({}, {}, {})
    world.submit_het({}, {}, {}, {}, {})
    ids = sorted(world.state.jobs)
    assert starts(world, *map(start, ids)) == [[lone], ids[1:4], ids[4:]]


def test_what_follows_the_starts_joins_the_last_of_them() -> None:
    preemption = PlannedPreemption(job_id=9, allocation=start(9).allocation, victims=())
    plan = Plan(starts=tuple(map(start, range(1, 5))), preemptions=(preemption,) * 7, notes=notes(6))
    found = slices(plan, World().state)
    assert [(len(one.starts), len(one.preemptions), len(one.notes)) for one in found] == [
        (3, 0, 0),
        (1, 7, 4),
        (0, 0, 2),
    ]
    assert tuple(note for one in found for note in one.notes) == plan.notes
