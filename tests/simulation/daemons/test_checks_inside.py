"""Looked at from inside: the journal gives the state; a due deadline moves something; each start is of one job."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.controller.journal.contract import Group, Image
from spritz.core.job.timers import Deadlines
from spritz_testing import builders
from spritz_testing.daemons.controller import checks_inside
from spritz_testing.daemons.controller.checks_inside import (
    DEADLINES_MOVE,
    LOOK_SECONDS,
    ONE_START_EACH,
    OVERDUE_SECONDS,
    Inside,
    _oldest,
)
from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.world import EPOCH, Process, World
from spritz_testing.projections import rebuilt
from tests.unit.scheduling.site import Site, node, spec


class _Idle(Inside):
    """A controller whose only deadline is due and moves nothing."""

    def replay_breach(self) -> str:
        return ""

    def look(self) -> None:
        self._report(DEADLINES_MOVE, self.deadline_breach())


class _Writer(SimpleNamespace):
    """What is looked at of the single writer."""

    groups, last_sequence, durable_sequence = 0, 1, 1

    def _on_effects(self, effects: Any) -> None: ...

    def handle(self, command: Any, caller: Any, then: Any = None) -> None: ...

    def when_durable(self, callback: Any) -> None: ...


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    world = World(1, tmp_path)
    process = Process(world.host("ctl1", "10.0.0.1"), "slurmctld")
    context: Any = SimpleNamespace(writer=_Writer(), journal=SimpleNamespace(append=lambda group, blobs: None))
    machine: Any = SimpleNamespace(
        next_deadline=lambda: EPOCH,
        state=SimpleNamespace(
            version=1, deadlines=Deadlines(), step_deadlines=Deadlines(), minute_deadlines=Deadlines()
        ),
        handle=lambda command, now: None,
        check=lambda command, now: None,
    )
    return _Idle(process, context, machine)


def test_the_core_looks_at_the_earliest_deadline(inside: Inside) -> None:
    deadlines = inside.machine.state.deadlines
    for job_id, at in ((1, 5000.0), (2, 4000.0)):
        deadlines.set(job_id, EPOCH + at)
    assert inside.deadline_breach() == ""
    deadlines._heap.reverse()
    assert "looks at" in inside.deadline_breach()


def test_a_deadline_that_stays_due_is_reported_once(inside: Inside) -> None:
    inside.world.run(OVERDUE_SECONDS + 2 * LOOK_SECONDS)
    assert inside.world.violations == []
    inside.world.run(300.0)
    assert [rule for rule, _, _ in inside.world.violations] == [DEADLINES_MOVE]


def test_a_stopped_controller_need_not_move(inside: Inside) -> None:
    """SIGSTOP lets a deadline pass; after SIGCONT it has the same time to move as any other."""
    inside.process.stop()
    inside.world.run(300.0)
    inside.process.go_on()
    inside.world.run(2 * LOOK_SECONDS)
    assert inside.world.violations == []
    inside.world.run(300.0)
    assert [rule for rule, _, _ in inside.world.violations] == [DEADLINES_MOVE]


def test_a_projection_that_has_missed_a_change_is_reported(inside: Inside) -> None:
    site = builders.World()
    site.submit()
    inside.machine = site.machine
    inside.context.forecasts = SimpleNamespace(projection=rebuilt(site.state))  # type: ignore[assignment]  # a part
    assert inside.projection_breach() == ""
    site.submit()
    assert "records" in inside.projection_breach()


def test_a_start_that_uses_up_planned_starts_of_others_is_reported(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "world", lambda: SimpleNamespace(running=SimpleNamespace(inside=inside)))
    site = Site([node("n1", 4)])
    running, *_waiting = (site.submit(spec(4, 1, time_limit_minutes=60)) for _ in range(4))
    site.cycle()
    record, projection = site.projection.records[running], site.projection
    (request,), allocation = projection.ledger.by_request, record.allocation
    assert allocation is not None

    def use_up(count: int) -> None:
        def redeem(*_arguments: object) -> None:
            for item in projection.ledger.of(request)[:count]:
                projection.ledger.drop(projection.profile, item)

        monkeypatch.setattr(checks_inside, "_redeem", redeem)
        checks_inside._redeemed(projection, record, request, allocation)

    use_up(1)
    assert inside.world.violations == []
    use_up(2)
    assert [(rule, text[-18:]) for rule, _, text in inside.world.violations] == [(ONE_START_EACH, "has used up 2 of 2")]


@dataclass
class _Journal:
    """What a reading of a journal shows: its events, and its images, newest first."""

    oldest_sequence: int
    last_sequence: int
    sequences: tuple[int, ...]

    def images(self) -> Iterator[Image]:
        return (Image(sequence=sequence, payload=b"") for sequence in self.sequences)

    def groups(self, after: int) -> Generator[Group]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("journal", "sequence"),
    [
        (_Journal(21, 35, (30, 20)), 20),
        (_Journal(21, 35, (30, 20, 10)), 20),  # the removal of the oldest was lost with the power
        (_Journal(26, 35, (30, 20)), 30),
        (_Journal(0, 30, (30, 20)), 30),
        (_Journal(1, 35, (30, 20)), None),
        (_Journal(0, 0, ()), None),
    ],
)
def test_a_replay_begins_with_the_oldest_image_that_all_events_follow(journal: _Journal, sequence: int | None) -> None:
    image = _oldest(journal)
    assert (image.sequence if image is not None else None) == sequence
