"""Our own journal as a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import msgpack

from spritz.controller.journal.contract import Group, Image
from spritz.controller.journal.sqlite import SqliteJournal
from spritz.model.events.codec import encode_events
from spritz.model.stored import FORMAT
from spritz.sim.trace.read import read_trace
from spritz.sim.trace.workload import TraceError
from spritz_testing.builders import World

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def history() -> World:
    """A job of 90 s, one that is cancelled before it runs, one that still runs."""
    world = World(nodes=2)
    job = world.submit(name="train", time_limit_minutes=5)
    idle = world.submit(name="idle")
    world.now += 10
    world.start(job, cpus=4)
    world.started(job)
    world.cancel(idle)
    world.now += 90
    world.finished(job)
    world.start(world.submit(name="long"), "n2")
    return world


def write(directory: Path, world: World, *, image_after: int = 0) -> None:
    journal = SqliteJournal(directory)
    events = world.events
    if image_after:
        from spritz.core.machine import Machine

        machine = Machine(world.settings)
        for event in events[:image_after]:
            machine.apply(event)
        journal.append(Group(first=1, last=image_after, at=1.0, payload=encode_events(events[:image_after])), {})
        journal.write_image(Image(sequence=image_after, payload=machine.image()))
        journal.prune(image_after)
    rest = events[image_after:]
    if rest:
        journal.append(Group(first=image_after + 1, last=len(events), at=2.0, payload=encode_events(rest)), {})
    journal.close()


def test_finished_jobs_become_rows(tmp_path: Path, history: World) -> None:
    write(tmp_path, history)
    for path in (tmp_path, tmp_path / "journal.db"):
        parsed = read_trace(str(path), None)
        workload = parsed.workload
        assert (workload.run, workload.limit, workload.processors) == ([90], [300], [4])
        assert (workload.user, workload.name, workload.queue) == (["alice"], ["train"], ["debug"])
        assert parsed.skipped["a job that never ran"].count == 1


def test_jobs_that_an_image_holds_count_too(tmp_path: Path, history: World) -> None:
    write(tmp_path, history, image_after=len(history.events))
    assert read_trace(str(tmp_path), None).workload.run == [90]


def test_a_journal_without_finished_jobs_is_refused(tmp_path: Path) -> None:
    write(tmp_path, World(nodes=1))
    with pytest.raises(TraceError, match="no job of the journal has ended"):
        read_trace(str(tmp_path), None)


def test_another_database_is_refused(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "other.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE t (x)")
    database.commit()
    database.close()
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(str(path), None)


@pytest.mark.parametrize("image", [False, True])
def test_a_journal_of_a_later_release_is_refused(tmp_path: Path, history: World, image: bool) -> None:
    write(tmp_path, history)
    newer = msgpack.encode((FORMAT + 1, 1, []))
    journal = SqliteJournal(tmp_path)
    if image:
        journal.write_image(Image(sequence=1, payload=newer))
    else:
        last = journal.last_sequence + 1
        journal.append(Group(first=last, last=last, at=3.0, payload=newer), {})
    journal.close()
    with pytest.raises(TraceError, match=f"format {FORMAT + 1} of a later release") as caught:
        read_trace(str(tmp_path), None)
    assert "with that release" in caught.value.hint


def test_a_damaged_image_is_told_and_not_a_traceback(tmp_path: Path, history: World) -> None:
    write(tmp_path, history, image_after=5)
    journal = SqliteJournal(tmp_path)
    journal.write_image(Image(sequence=4, payload=b"\xc1"))
    journal.close()
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(str(tmp_path), None)
