"""The check that every cycle of these tests runs under finds what a cycle must not do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spritz.scheduling.view.records import Failure
from spritz.scheduling.view.snapshot import Snapshot
from tests.unit.scheduling.readonly import unchanged
from tests.unit.scheduling.site import Site, node, spec


def fail(snapshot: Snapshot) -> None:
    next(iter(snapshot.queue.shapes.values())).failure = Failure(1)


def move(snapshot: Snapshot) -> None:
    next(iter(snapshot.records.values())).ends_at += 1.0


def take(snapshot: Snapshot) -> None:
    snapshot.table.rows[0].free_memory_mib -= 1


def hold(snapshot: Snapshot) -> None:
    for promise in (promise for items in snapshot.ledger.by_request.values() for promise in items):
        promise.freed += 1


@pytest.mark.parametrize("change", [fail, move, take, hold])
def test_a_change_of_the_snapshot_is_found(change: Callable[[Snapshot], None]) -> None:
    site = Site([node("n1", 4)])
    site.submit(spec(3))
    site.submit(spec(4))
    site.cycle()
    snapshot = site.projection.snapshot(site.now)
    with unchanged(snapshot):
        pass
    with pytest.raises(AssertionError, match="a cycle changed snapshot"), unchanged(snapshot):
        change(snapshot)


def test_a_snapshot_has_no_other_fields() -> None:
    snapshot = Site([node("n1", 4)]).projection.snapshot(0.0)
    with pytest.raises(AttributeError):
        snapshot.now = 1.0  # type: ignore[misc]  # that it is refused is the test
