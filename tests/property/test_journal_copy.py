"""A standby's copy of the leader's state, while the database breaks at any group and page: it is the leader's state."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.controller.journal.contract import Group, Image, JournalError, JournalFailed
from spritz.controller.journal.copy import JournalCopy
from spritz.controller.journal.recovery import Recovered, recover
from spritz.core.invariants import breaches
from spritz.core.machine import Machine
from spritz.model.events import Event
from spritz.model.events.codec import encode_events
from spritz_testing.builders import World, node_share


@cache
def _recorded() -> tuple[World, tuple[Event, ...]]:
    """Jobs that hold CPUs and memory of nodes, some of which have ended."""
    world = World(nodes=3)
    for number in range(12):
        job = world.submit(tasks=1)
        if number % 3:
            world.start(job, node_share(f"n{number % 3 + 1}", f"{1 << number // 3:x}", memory_mib=100))
        if number % 3 == 2:
            world.cancel(job)
    return world, tuple(world.events)


class BreakingStore:
    """The leader's journal in groups, read in pages; the query with the number `breaks_at`, counted from now, fails."""

    def __init__(self, events: tuple[Event, ...], ends: list[int], page: int) -> None:
        self._events, self._page = events, page
        self._groups: list[Group] = []
        self._images: list[Image] = []
        self._ends = [end for end in ends if end <= len(events)]
        self.last_sequence = 0
        self.breaks_at = 0
        self.queries = 0

    @property
    def oldest_sequence(self) -> int:
        return self._groups[0].first if self._groups else 0

    def grow(self, count: int) -> None:
        """The leader commits this many groups."""
        for end in [end for end in self._ends if end > self.last_sequence][:count]:
            payload = encode_events(list(self._events[self.last_sequence : end]))
            self._groups.append(Group(first=self.last_sequence + 1, last=end, at=1.0, payload=payload))
            self.last_sequence = end

    def image(self) -> None:
        """The leader writes an image, and prunes the groups that it makes superfluous."""
        world, _ = _recorded()
        machine = Machine(world.settings)
        for event in self._events[: self.last_sequence]:
            machine.apply(event)
        self._images.insert(0, Image(sequence=self.last_sequence, payload=machine.image()))
        self._groups = [group for group in self._groups if group.last > self.last_sequence - 5]

    def lose(self, count: int) -> None:
        """Another server serves, which lacks the last events; others take their numbers."""
        oldest = max((image.sequence for image in self._images), default=0)
        for _ in range(count):
            if self._groups and self._groups[-1].first > oldest + 1:
                self.last_sequence = self._groups.pop().first - 1

    def _query(self) -> None:
        self.queries += 1
        if self.queries == self.breaks_at:
            raise JournalFailed("the connection is lost")

    def checksum(self, last: int) -> int | None:
        self._query()
        return next((group.checksum for group in self._groups if group.last == last), None)

    def groups(self, after: int, last: int | None = None) -> Generator[Group]:
        found = [group for group in self._groups if group.last > after and (last is None or group.last <= last)]
        for start in range(0, len(found) + 1, self._page):
            self._query()
            yield from found[start : start + self._page]

    def images(self) -> Iterator[Image]:
        self._query()
        yield from list(self._images)


Step = tuple[str, int]

#: Queries of one look: the checksum of the position, the pages, and the checksum of the end.
_breaks_at = st.integers(1, 8)

#: What may happen between two looks.
_step = st.one_of(
    st.tuples(st.just("grow"), st.integers(1, 8)),
    st.tuples(st.just("image"), st.just(0)),
    st.tuples(st.just("lose"), st.integers(1, 3)),
    st.tuples(st.just("break"), _breaks_at),
    st.tuples(st.just("lead"), _breaks_at),
    st.tuples(st.just("look"), st.just(0)),
)

#: A copy that is there falls behind by some pages, and its database breaks while it catches up: at the first page, or
#: between two. One by one these steps are seldom drawn in this order.
_caught_up_in_part = st.tuples(
    st.tuples(st.just("look"), st.just(0)),
    st.tuples(st.just("grow"), st.integers(3, 8)),
    st.tuples(st.sampled_from(["break", "lead"]), st.integers(2, 5)),
)

steps = st.lists(st.one_of(_step.map(lambda step: (step,)), _caught_up_in_part), max_size=25).map(
    lambda parts: [step for part in parts for step in part]
)

#: Where groups end.
cuts = st.deferred(lambda: st.lists(st.integers(1, len(_recorded()[1])), min_size=10, max_size=60))


def _tried(work: Callable[[], object]) -> None:
    try:
        work()
    except JournalFailed:
        pass  # as it was told to


@given(steps, cuts, st.integers(1, 4))
def test_a_copy_is_the_leaders_state_wherever_the_database_broke(done: list[Step], cuts: list[int], page: int) -> None:
    world, events = _recorded()
    store = BreakingStore(events, sorted({*cuts, len(events)}), page)
    copy = JournalCopy(world.settings)
    for what, number in done:
        store.queries, store.breaks_at = 0, 0
        if what in ("grow", "lose"):
            getattr(store, what)(number)
        elif what == "image":
            store.image()
        elif what == "lead":  # and then the database breaks before it does
            store.breaks_at = number
            _tried(lambda: copy.complete(store))
        else:
            store.breaks_at = number
            _tried(lambda: copy.follow(store, store.last_sequence))
        _check(copy, events)
    store.breaks_at = 0
    copy.follow(store, store.last_sequence)
    led: Recovered = copy.complete(store)
    assert copy.position == store.last_sequence
    assert led.replayed == store.last_sequence - led.image_sequence
    assert led.machine.image() == recover(store, world.settings).machine.image()
    assert not breaches(led.machine.state)


def _check(copy: JournalCopy, events: tuple[Event, ...]) -> None:
    """The state of the copy is that of its position, also after a failure."""
    if copy._recovered is None:
        return
    world, _ = _recorded()
    machine = Machine(world.settings)
    for event in events[: copy.position]:
        machine.apply(event)
    assert machine.image() == copy._recovered.machine.image()


def test_a_copy_that_does_not_fit_its_events_is_read_again() -> None:
    """An event that cannot be applied may have changed half of the state."""
    world, events = _recorded()
    store = BreakingStore(events, list(range(1, len(events) + 1)), 3)
    copy = JournalCopy(world.settings)
    store.grow(10)
    copy.follow(store, store.last_sequence)
    store.grow(5)
    whole = list(store._groups)
    store._groups[12] = Group(first=13, last=13, at=1.0, payload=b"\xc1")
    with pytest.raises(JournalError):
        copy.follow(store, store.last_sequence)
    assert copy.position == 0
    store._groups = whole
    copy.follow(store, store.last_sequence)
    assert copy.position == store.last_sequence
    _check(copy, events)
