"""A standby's two judgements: when it may take the lease, and whether its copy is the leader's state."""

from __future__ import annotations

import pytest

from spritz.controller.journal.contract import Group
from spritz.controller.journal.copy import JournalCopy
from spritz.controller.journal.postgresql import GONE_SECONDS, Lease
from spritz.controller.journal.recovery import recover
from spritz.controller.lead.standby import ORDER_SECONDS, Watch
from spritz.model.events.codec import encode_events
from spritz_testing.builders import World
from spritz_testing.memory_journal import MemoryJournal, MemoryStore

SECONDS = 6.0


def lease(beat: int, *, term: int = 1, alive: bool = True, holder: str = "ctl1") -> Lease:
    return Lease(term=term, beat=beat, holder=holder, address="", alive=alive, last=0, layout=2)


def taken_at(*observed: tuple[float, Lease | None], index: int = 1, until: float = 60.0) -> float:
    """When the standby takes the lease that it has seen last, looking each quarter of a second; `until`: it does not.

    None: the database does not answer.
    """
    watch = Watch(SECONDS, index)
    now, seen = observed[0]
    rest = list(observed[1:])
    while now < until:
        if rest and now >= rest[0][0]:
            seen = rest.pop(0)[1]
        if seen is None:
            watch.unanswered()
        elif watch.may_take(seen, now):
            return now
        now += 0.25
    return until


def test_a_lease_that_is_renewed_is_not_taken() -> None:
    """Also where the database shows no session of its holder, which may be connecting again."""
    assert taken_at(*((float(at), lease(at)) for at in range(40)), until=40.0) == 40.0
    watch = Watch(SECONDS, 1)
    assert not any(watch.may_take(lease(at, alive=bool(at % 2)), float(at)) for at in range(40))


def test_a_lease_that_is_not_renewed_is_taken_after_its_seconds_from_when_the_last_beat_was_seen() -> None:
    """Its holder's session may be there: the process is stopped, or its machine is cut off."""
    assert taken_at((0.0, lease(1)), (3.0, lease(2))) == 3.0 + SECONDS


def test_a_lease_whose_holder_is_gone_is_taken_after_a_pause_in_the_order_of_slurm_conf() -> None:
    for index in (0, 1, 2):
        gone = taken_at((0.0, lease(1)), (2.0, lease(1, alive=False)), index=index)
        assert gone == 1.75 + GONE_SECONDS + ORDER_SECONDS * index


def test_a_lease_that_was_given_back_is_taken_in_the_order_of_slurm_conf() -> None:
    for index in (0, 1, 2):
        assert taken_at((0.0, lease(1, holder="")), index=index) == ORDER_SECONDS * index


def test_time_for_which_the_database_was_away_does_not_count() -> None:
    """Its holder could not renew the lease either, and may do so in a moment."""
    assert taken_at((0.0, lease(1)), (1.0, None), (21.0, lease(1))) == 21.0 + SECONDS


def test_a_new_holder_has_all_of_its_time() -> None:
    """Its beats begin at 0 again, which the former holder's may have been too."""
    assert taken_at((0.0, lease(0)), (5.0, lease(0, term=2, holder="ctl3"))) == 5.0 + SECONDS


# The copy


class Leader:
    """A controller's journal as its standby reads it, without a lock."""

    def __init__(self) -> None:
        self.world = World(nodes=2)
        self.store = MemoryStore()
        self.journal = MemoryJournal(self.store)
        self.commit()

    @property
    def last(self) -> int:
        return self.journal.last_sequence

    def commit(self) -> None:
        """One group of all that was decided."""
        events = self.world.events[self.last :]
        group = Group(first=self.last + 1, last=self.last + len(events), at=1.0, payload=encode_events(events))
        self.journal.append(group, {})

    def checksum(self, last: int) -> int | None:
        return self.store.checksums.get(last) if last <= self.last else None

    def groups(self, after: int, last: int | None = None) -> object:
        return (group for group in self.journal.groups(after) if last is None or group.last <= last)

    images = property(lambda self: self.journal.images)
    last_sequence = property(lambda self: self.last)
    oldest_sequence = property(lambda self: self.journal.oldest_sequence)


def test_a_standby_leads_with_all_that_was_committed_before_it_had_the_lease() -> None:
    leader = Leader()
    copy = JournalCopy(leader.world.settings)
    copy.follow(leader, leader.last)  # type: ignore[arg-type]
    leader.world.submit()
    leader.commit()  # acknowledged after the standby's last look
    led = copy.complete(leader)  # type: ignore[arg-type]
    assert led.machine.image() == leader.world.machine.image()


@pytest.mark.parametrize("shorter", [False, True])
def test_a_copy_of_what_the_database_has_lost_is_read_again(shorter: bool) -> None:
    """A replica was promoted that lacked the last events; another leader has gone on from there, or not yet."""
    leader = Leader()
    begun = leader.last
    copy = JournalCopy(leader.world.settings)
    leader.world.submit(name="lost")
    leader.commit()
    copy.follow(leader, leader.last)  # type: ignore[arg-type]
    del leader.store.groups[-1]
    world = leader.world = World(nodes=2)
    assert leader.last == begun == len(world.events)
    if not shorter:
        world.submit(name="kept")
        leader.commit()
    copy.follow(leader, leader.last)  # type: ignore[arg-type]
    assert copy.position == leader.last
    led = copy.complete(leader)  # type: ignore[arg-type]
    assert led.machine.image() == recover(leader.journal, world.settings).machine.image() == world.machine.image()
