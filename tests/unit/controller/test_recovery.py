"""Recovery: what comes back from the journal is the state that was, or nothing at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from msgspec import Struct

from spritz.controller.journal.blobs import BlobStore
from spritz.controller.journal.contract import Group, Image, JournalCorrupt, JournalNewer
from spritz.controller.journal.events import decode_group
from spritz.controller.journal.recovery import best_image, recover, replay_readable
from spritz.controller.writer.commit import InlineCommitter
from spritz.controller.writer.listeners import Loss
from spritz.controller.writer.loop import SingleWriter
from spritz.core.machine import Machine
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan, Configure
from spritz.model.commands.job import CancelJobs, SubmitJob
from spritz.model.events.codec import encode_events
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import JobSpec
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.node_daemon.reports import RegisterNode
from spritz.model.rejection import Rejection
from spritz.model.resources import NodeCapacity
from spritz.model.stored import FORMAT
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz.scheduling.plan import cycle
from spritz.scheduling.view.projection import Projection
from spritz_testing.memory_journal import MemoryJournal, MemoryStore

SETTINGS = ClusterSettings(cluster_name="test")
CAPACITY = NodeCapacity(cpus=4, cores_per_socket=4, memory_mib=100)


def configure() -> Configure:
    return Configure(
        settings=SETTINGS,
        nodes=(NodeConfig(name="n1", capacity=CAPACITY),),
        partitions=(Partition(name="p", nodes=("n1",), default=True),),
    )


def register() -> RegisterNode:
    return RegisterNode(name="n1", capacity=CAPACITY, booted_at=1.0, daemon_started_at=1.0, version="25.05.0")


def submit(name: str, **fields: object) -> SubmitJob:
    spec = JobSpec(name=name, uid=0, user="root", batch=True, script_key="k", **fields)  # type: ignore[arg-type]
    return SubmitJob(spec=spec)


def a_life(store: MemoryStore, *, image_after: int | None = None) -> Machine:
    """A machine that has seen something of each kind, journaled group by group."""

    async def main() -> Machine:
        journal = MemoryJournal(store)
        machine = Machine(SETTINGS)
        writer = SingleWriter(
            machine,
            journal,
            BlobStore(journal),
            InlineCommitter(lambda error: pytest.fail(error.message)),
            SystemClock(),
            get_logger("test"),
            on_effects=lambda effects: None,
            on_broken=lambda error: pytest.fail(repr(error)),
        )
        projection = Projection()
        writer.listeners.add("projection", None, Loss.STOP, follow=projection.follow)
        commands: Sequence[Struct] = (
            configure(),
            register(),
            submit("one"),
            submit("array", array="0-9%2"),
            submit("held", hold=True),
            submit("after"),
            CancelJobs(filter=JobFilter(targets=(JobTarget(3),))),
        )
        for number, command in enumerate(commands):
            reply = writer.handle_own(command)
            assert not isinstance(reply, Rejection), reply
            await writer.drain()
            if number == image_after:
                journal.write_image(Image(sequence=writer.last_sequence, payload=machine.image()))
        writer.handle_own(ApplyPlan(plan=cycle.run(projection.snapshot(SystemClock().now())).plan))
        await writer.drain()
        journal.close()
        return machine

    return asyncio.run(main())


def same(one: Machine, other: Machine) -> bool:
    return bool(msgspec.msgpack.decode(one.image()) == msgspec.msgpack.decode(other.image()))


@pytest.mark.parametrize("image_after", [None, 0, 3, 6])
def test_the_state_comes_back_from_events_alone_and_from_an_image_with_the_rest(image_after: int | None) -> None:
    store = MemoryStore()
    lived = a_life(store, image_after=image_after)
    assert lived.state.running, "the plan must have started something, or this test shows little"
    found = recover(MemoryJournal(store), SETTINGS)
    assert same(found.machine, lived)
    assert found.machine.state.version == store.groups[-1].last
    assert (found.image_sequence > 0) is (image_after is not None)
    assert found.machine.pending_effects() == lived.pending_effects()


def test_an_image_may_end_within_a_group_of_which_the_rest_is_applied_once() -> None:
    """It is of the state in memory, which is ahead of the group that is being written."""
    store = MemoryStore()
    lived = a_life(store)
    events = [event for group in store.groups for event in decode_group(group)]
    store.groups = [Group(first=1, last=len(events), at=1.0, payload=encode_events(events))]
    store.checksums = {len(events): store.groups[0].checksum}
    whole = recover(MemoryJournal(store), SETTINGS).machine
    for count in range(1, len(events)):
        machine = Machine(SETTINGS)
        for event in events[:count]:
            machine.apply(event)
        store.images, store.locked = {count: machine.image()}, False
        recovered = recover(MemoryJournal(store), SETTINGS)
        assert (recovered.image_sequence, recovered.replayed) == (count, len(events) - count)
        assert same(recovered.machine, whole)
    assert same(whole, lived)


def test_an_empty_journal_is_an_empty_cluster() -> None:
    assert recover(MemoryJournal(MemoryStore()), SETTINGS).machine.state.jobs == {}


def test_a_gap_between_image_and_events_is_damage() -> None:
    store = MemoryStore()
    a_life(store, image_after=1)
    first = next(iter(store.images))
    store.groups = [group for group in store.groups if group.first > first + 1]
    with pytest.raises(JournalCorrupt, match="missing"):
        recover(MemoryJournal(store), SETTINGS)


def test_an_image_of_what_the_journal_does_not_have_is_damage() -> None:
    store = MemoryStore()
    machine = a_life(store)
    store.images[10_000] = machine.image()
    with pytest.raises(JournalCorrupt, match="journal ends at 9"):
        recover(MemoryJournal(store), SETTINGS)


def add_group(store: MemoryStore, payload: bytes) -> None:
    """One more event, whole as far as its checksum says."""
    number = store.groups[-1].last + 1
    group = Group(first=number, last=number, at=0.0, payload=payload)
    store.groups.append(group)
    store.checksums[number] = group.checksum


def refused_by_i_too(store: MemoryStore, message: str) -> None:
    """It is of a later release: neither the start nor -i goes on without it."""
    with pytest.raises(JournalNewer, match=message) as caught:
        recover(MemoryJournal(store), SETTINGS)
    assert "start the release that wrote it" in caught.value.hint
    store.locked = False
    journal = MemoryJournal(store)
    with pytest.raises(JournalNewer, match=message):
        replay_readable(journal, best_image(journal.images(), pytest.fail) or Machine(SETTINGS), pytest.fail)


def event(**fields: object) -> list[dict[str, object]]:
    return [{"kind": "JobsPurged", "at": 1.0, "job_ids": [1], **fields}]


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ((FORMAT + 1, 1, event()), f"event.* 10 to 10 of the journal: format {FORMAT + 1} of a later release"),
        ((FORMAT, 1, event(colour="red")), "a field 'colour' of JobsPurged that this release does not know"),
        ((FORMAT, 1, event(kind="JobBeamedUp")), "a record 'JobBeamedUp' that this release does not know"),
        (event(kind="JobBeamedUp"), "a record 'JobBeamedUp' that this release does not know"),
    ],
)
def test_events_of_a_later_release_are_refused_and_not_skipped(payload: object, message: str) -> None:
    store = MemoryStore()
    a_life(store)
    add_group(store, msgspec.msgpack.encode(payload))
    refused_by_i_too(store, message)


@pytest.mark.parametrize(
    ("head", "record", "message"),
    [
        ((FORMAT + 1, 1), {}, f"the image of event 5: format {FORMAT + 1} of a later release"),
        ((FORMAT, 1), {"colour": "red"}, "a field 'colour' of Image that"),
        ((FORMAT, 1), {"jobs": [{"id": 1, "spec": {"colour": 1}}]}, "a field 'colour' of JobSpec that"),
    ],
)
def test_an_image_of_a_later_release_is_refused_though_an_older_one_is_there(
    head: tuple[int, int], record: object, message: str
) -> None:
    store = MemoryStore()
    a_life(store, image_after=2)
    store.images[5] = msgspec.msgpack.encode((*head, record))
    refused_by_i_too(store, message)


def test_events_without_a_number_are_of_the_first_format() -> None:
    store = MemoryStore()
    lived = a_life(store, image_after=3)
    for number, group in enumerate(store.groups):
        written, _, events = msgspec.msgpack.decode(group.payload)
        assert written == FORMAT
        group = msgspec.structs.replace(group, payload=msgspec.msgpack.encode(events))
        store.groups[number], store.checksums[group.last] = group, group.checksum
    for sequence, payload in store.images.items():
        store.images[sequence] = msgspec.msgpack.encode(msgspec.msgpack.decode(payload)[2])
    assert same(recover(MemoryJournal(store), SETTINGS).machine, lived)


def test_events_that_are_cut_short_are_damage() -> None:
    store = MemoryStore()
    a_life(store)
    add_group(store, store.groups[-1].payload[:-3])
    with pytest.raises(JournalCorrupt, match="events 10 to 10 of the journal cannot be read: Input data was truncated"):
        recover(MemoryJournal(store), SETTINGS)


def test_an_unreadable_image_is_made_up_for_by_the_events() -> None:
    store = MemoryStore()
    lived = a_life(store, image_after=4)
    store.images[max(store.images)] = b"\xc1"
    assert same(recover(MemoryJournal(store), SETTINGS).machine, lived)


def test_what_minus_i_leaves_out_is_told() -> None:
    """slurmctld(8) -i: what can be read is kept, and the rest is named."""
    store = MemoryStore()
    a_life(store, image_after=4)
    store.images[max(store.images) + 1] = b"\xc1"
    last = store.groups[-1].last
    add_group(store, b"\xc1")
    told: list[str] = []
    journal = MemoryJournal(store)
    machine = best_image(journal.images(), told.append)
    assert machine is not None
    assert told[0].startswith(f"the image of event {max(store.images)}: ")
    replay_readable(journal, machine, told.append)
    assert machine.state.version == last
    assert len(told) == 2
    assert f"events {last + 1} to {last + 1} of the journal cannot be read" in told[1]
