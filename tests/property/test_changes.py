"""Whatever a command changes is heard of, and an index that hears of it is what one built from all records is."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.guard import guard
from tests.property.accepted import NODES, SETTINGS, Life, live

from spritz.model.events import Changed
from spritz.model.job.record import Job
from spritz.scheduling.view.projection import Projection
from spritz.scheduling.view.records import JobRecord
from spritz_testing.projections import COMPARED, HISTORY, ROW_HISTORY, held, portrait, rebuilt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Struct

    from spritz.core.machine import Outcome
    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller


class Followed(Life):
    """Compares after each command: records with what was told of them, and the projection with a rebuilt one."""

    def handled(self, command: Struct, caller: Caller) -> Outcome:
        before, laid_out = tables(self.machine.state), layout(self.machine.state)
        outcome = super().handled(command, caller)
        state, changes, what = self.machine.state, outcome.changes, type(command).__name__
        for name, now in tables(state).items():
            replaced = {
                key: (before[name].get(key), now.get(key))
                for key in before[name] | now
                if before[name].get(key) is not now.get(key)
            }
            told = by_key(getattr(changes, name))
            assert told == replaced, f"{what} has changed other {name} than it tells"
            assert all(told[key][1] is now.get(key) for key in told)
        if changes.layout is None:
            assert layout(state) == laid_out, f"{what} has changed the layout of the cluster, and tells nothing of it"
        else:
            assert (changes.layout.settings, list(changes.layout.partitions.items()), list(changes.layout.nodes)) == (
                layout(state)
            )
        if outcome.events:
            now_at, fresh = self.site.now, rebuilt(state)
            seen, wanted = held(self.site.projection), held(fresh)
            assert seen["table"] is None or seen == wanted, f"after {what}"
            assert portrait(self.site.projection, now_at) == portrait(fresh, now_at), f"after {what}"
        return outcome


def tables(state: State) -> dict[str, dict[Any, Any]]:
    """Copies of the tables of records that are told of."""
    return {"jobs": dict(state.jobs), "nodes": dict(state.nodes), "reservations": dict(state.reservations)}


def layout(state: State) -> tuple[object, ...]:
    return state.settings, list(state.partitions.items()), list(state.nodes)


def by_key(changes: Iterable[Changed[Any]]) -> dict[Any, tuple[Any, Any]]:
    """By id or name: the record before and after."""
    told = {}
    for before, after in changes:
        record: Any = before if after is None else after
        key = record.id if isinstance(record, Job) else record.name
        assert key not in told, f"{key} is told of twice"
        told[key] = (before, after)
    return told


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(NODES)), st.sampled_from(sorted(SETTINGS)))
def test_every_change_is_told_and_the_projection_that_follows_is_the_rebuilt_one(
    seed: int, hardware: str, configuration: str
) -> None:
    with guard(60.0):
        live(Random(seed), hardware, configuration, kind=Followed)


def test_every_attribute_is_compared() -> None:
    """A new one is compared in `portrait`, or is named as history, which a start forgets."""
    assert set(vars(Projection())) == HISTORY | COMPARED
    assert not HISTORY & COMPARED
    assert set(JobRecord.__slots__) > ROW_HISTORY
    assert set(portrait(Projection(), 0.0)) == COMPARED | {"waits"}
