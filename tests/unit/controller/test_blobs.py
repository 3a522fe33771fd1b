"""Scripts and environments: what each user holds of them, and their removal."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.controller.api import submit
from spritz.controller.api.submit import Submissions
from spritz.controller.journal import blobs as module
from spritz.controller.journal.blobs import BlobCollector, BlobStore
from spritz.controller.journal.contract import BlobDamaged, Group, JournalCorrupt, content_key
from spritz.controller.journal.sqlite import SqliteJournal
from spritz.controller.writer.commit import Committer, InlineCommitter
from spritz.controller.writer.loop import SingleWriter
from spritz.model.cluster.settings import SYSTEM, Caller
from spritz.model.commands.job import SubmitJob
from spritz.model.job.record import JobSpec
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz_testing.memory_journal import MemoryJournal, MemoryStore

from .test_loop import Add, Counter, SlowCommitter, turns

ALICE, BOB = 1001, 1002


def job(script_key: str = "", environment_key: str = "", uid: int = ALICE) -> Any:
    return SimpleNamespace(spec=SimpleNamespace(script_key=script_key, environment_key=environment_key, uid=uid))


class Bench:
    """A collector over a journal in memory, behind the real single writer."""

    def __init__(self, committer: Committer | None = None) -> None:
        self.store = MemoryStore()
        self.journal = MemoryJournal(self.store)
        self.blobs = BlobStore(self.journal)
        self.committer = committer or InlineCommitter(lambda error: pytest.fail(str(error)))
        self.jobs: dict[int, Any] = {}
        self.removals: list[set[str]] = []
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._begin())

    async def _begin(self) -> None:
        self.writer = SingleWriter(
            Counter(),
            self.journal,
            self.blobs,
            self.committer,
            SystemClock(),
            get_logger("test"),
            on_effects=lambda effects: None,
            on_broken=lambda error: pytest.fail(repr(error)),
        )
        removed = self.journal.remove_blobs
        self.journal.remove_blobs = lambda keys: (self.removals.append(keys), removed(keys))[1]  # type: ignore[method-assign,func-returns-value]
        context: Any = SimpleNamespace(
            writer=self.writer, blobs=self.blobs, machine=SimpleNamespace(state=SimpleNamespace(jobs=self.jobs))
        )
        self.context = context
        self.collector = BlobCollector(context)

    def put(self, body: bytes, uid: int = ALICE) -> str:
        """Store a blob with an event, durably."""

        async def stored() -> str:
            key = self.blobs.put(body, uid)
            self.writer.handle(Add(1), SYSTEM)
            await self.writer.drain()
            return key

        return self.loop.run_until_complete(stored())

    def collect(self) -> None:
        self.loop.run_until_complete(self.collector.collect())


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.loop.close()


def test_a_blob_counts_once_for_the_user_who_brought_it(bench: Bench) -> None:
    for _ in range(2):
        bench.put(b"x" * 100, ALICE)
        bench.put(b"x" * 100, BOB)
    bench.put(b"y" * 10, BOB)
    assert (bench.blobs.held_bytes(ALICE), bench.blobs.held_bytes(BOB)) == (100, 10)


def test_what_is_removed_no_longer_counts(bench: Bench) -> None:
    kept, dropped = bench.put(b"kept"), bench.put(b"dropped")
    bench.jobs[1] = job(script_key=kept)
    bench.collect()
    assert set(bench.store.blobs) == {kept}
    assert bench.blobs.held_bytes(ALICE) == len(b"kept")
    assert dropped not in bench.blobs.known


def test_blobs_of_recovered_jobs_count_for_their_users(bench: Bench) -> None:
    key = bench.put(b"script", BOB)
    again = BlobStore(bench.journal)
    assert again.held_bytes(BOB) == 0
    again.attribute([job(script_key=key, uid=BOB), job(script_key=key, uid=ALICE)])
    assert (again.held_bytes(BOB), again.held_bytes(ALICE)) == (len(b"script"), 0)


def test_a_script_stays_until_slurmdbd_has_read_the_events_that_name_it(bench: Bench) -> None:
    read = 0
    bench.collector.needed_after = lambda: read
    key = bench.put(b"for accounting")
    bench.collect()
    bench.collect()
    assert key in bench.store.blobs
    read = bench.writer.last_sequence
    bench.collect()
    assert key not in bench.store.blobs


def test_many_large_blobs_are_removed_in_pieces(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMOVED_BYTES_MAX", 100)
    for number in range(10):
        bench.put(bytes([number]) * 60)
    bench.collect()
    assert [len(piece) for piece in bench.removals] == [2] * 5
    assert bench.store.blobs == {}


def test_a_removed_blob_may_come_back(bench: Bench) -> None:
    bench.put(b"again")
    bench.collect()
    assert bench.put(b"again") == content_key(b"again")
    assert set(bench.store.blobs) == {content_key(b"again")}
    assert bench.blobs.held_bytes(ALICE) == len(b"again")


@pytest.mark.parametrize("damaged", [b"damaged", None])
def test_a_script_that_the_journal_has_lost_is_stored_again_with_the_next_submission(
    bench: Bench, damaged: bytes | None
) -> None:
    key = bench.put(b"script")
    if damaged is None:
        del bench.store.blobs[key]
    else:
        bench.store.blobs[key] = damaged
    bench.blobs._cache.clear()  # as after a restart
    bench.blobs._cache_bytes = 0
    bench.blobs._unnamed[key] = bench.writer.last_sequence  # no job has it now, and its removal has yet to come
    for _ in range(2):
        with pytest.raises(JournalCorrupt):
            bench.loop.run_until_complete(bench.blobs.get(key))
    bench.collect()
    assert bench.blobs.held_bytes(ALICE) == 0
    assert bench.put(b"script", BOB) == key
    assert bench.store.blobs[key] == b"script"
    assert bench.loop.run_until_complete(BlobStore(bench.journal).get(key)) == b"script"
    assert (bench.blobs.held_bytes(ALICE), bench.blobs.held_bytes(BOB)) == (0, len(b"script"))


@pytest.mark.parametrize("body", [b"script", b"\xff\xfe"])
def test_a_bit_that_makes_a_text_of_a_script_damages_it_not(tmp_path: Path, body: bytes) -> None:
    """SQLite keeps the type beside the length. Not every script is text that it can decode."""
    key = content_key(body)
    journal = SqliteJournal(tmp_path)
    journal.append(Group(first=1, last=1, at=1.0, payload=b"group"), {key: body})
    journal.close()
    file = tmp_path / "journal.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    stored = bytearray(file.read_bytes())
    place = stored.index(key.encode()) - 1
    assert stored[place] == 2 * len(body) + 12
    stored[place] ^= 1
    file.write_bytes(stored)
    journal = SqliteJournal(tmp_path)
    assert journal.blob(key) == body
    journal.close()


def test_a_script_that_is_stored_again_while_it_is_read_is_not_lost(bench: Bench) -> None:
    """The answer is about the journal as it was before."""
    key = bench.put(b"script")
    bench.store.blobs[key] = b"damaged"
    bench.blobs._cache.clear()  # as after a restart
    bench.blobs._cache_bytes = 0
    answer: asyncio.Future[bytes] = bench.loop.create_future()

    async def slow(_key: str, *, seconds: float | None = None) -> bytes:
        return await answer

    read_now = bench.blobs._reader.blob
    bench.blobs._reader.blob = slow  # type: ignore[method-assign,assignment]
    late = bench.loop.create_task(bench.blobs.get(key))
    bench.loop.run_until_complete(asyncio.sleep(0))
    bench.blobs._reader.blob = read_now  # type: ignore[method-assign]
    with pytest.raises(BlobDamaged):
        bench.loop.run_until_complete(bench.blobs.get(key))
    bench.put(b"script", BOB)
    answer.set_exception(BlobDamaged("as it was"))
    with pytest.raises(BlobDamaged):
        bench.loop.run_until_complete(late)
    assert bench.blobs.held_bytes(BOB) == len(b"script")
    assert key in bench.blobs.known


def test_a_collection_stops_no_turn_of_the_loop_for_all_jobs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at some jobs a turn. What is put meanwhile is kept, though no job named it when it began."""
    monkeypatch.setattr(module, "SLICE", 10)
    named, again, dropped = bench.put(b"named"), bench.put(b"again"), bench.put(b"dropped")
    bench.jobs.update((number, job(script_key=named)) for number in range(100))

    async def main() -> int:
        turns = 0
        collection = asyncio.create_task(bench.collector.collect())
        while not collection.done():
            turns += 1
            if turns == 3:
                assert bench.blobs.put(b"again") == again
            await asyncio.sleep(0)
        return turns

    assert bench.loop.run_until_complete(main()) > 10
    assert set(bench.store.blobs) == {named, again}
    assert bench.removals == [{dropped}]


# What comes again while it is removed


def test_a_script_that_comes_again_before_its_removal_stays(bench: Bench) -> None:
    """slurmdbd is behind: what was found unnamed waits, and is named by another job meanwhile."""
    read = 0
    bench.collector.needed_after = lambda: read
    key = bench.put(b"script")
    bench.collect()
    assert bench.blobs.removable
    bench.jobs[1] = job(script_key=bench.put(b"script"))
    read = bench.writer.last_sequence
    bench.collect()
    assert set(bench.store.blobs) == {key}


def test_a_script_that_comes_again_just_when_its_removal_is_decided_is_stored_after_it(bench: Bench) -> None:
    key = bench.put(b"script")

    async def main() -> None:
        await bench.blobs.find_unnamed([], 1)
        loop = asyncio.get_running_loop()
        removal = asyncio.create_task(bench.writer.remove_unnamed_blobs(1))
        loop.call_soon(bench.blobs.put, b"script")  # in the turn in which the removal has begun
        bench.writer.handle(Add(1), SYSTEM)  # the event of the job that names it is committed at the end of that turn
        assert await removal
        await bench.writer.drain()

    bench.loop.run_until_complete(main())
    assert bench.removals == [{key}]
    assert set(bench.store.blobs) == {key}


def test_an_environment_is_named_by_its_job(bench: Bench) -> None:
    key = bench.put(b"PATH=/bin")
    bench.jobs[1] = job(environment_key=key)
    bench.collect()
    assert set(bench.store.blobs) == {key}


def test_a_script_found_lost_during_a_collection_ends_it_not(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 1)
    keys = sorted((bench.put(b"first"), bench.put(b"second")), key=list(bench.blobs.known).index)
    bench.blobs._cache.clear()  # as after a restart

    async def main() -> None:
        collection = asyncio.create_task(bench.collector.collect())
        while not bench.blobs.removable:  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0)
        for key in keys:
            if key not in bench.blobs._unnamed:
                bench.blobs._lost(key)  # what a read does that finds no such row
        await collection

    bench.loop.run_until_complete(main())
    assert len(bench.removals) == 1
    assert bench.blobs.known == set()


def test_a_script_of_a_refused_submission_is_not_removed_before_it_is_stored(bench: Bench) -> None:
    bench.put(b"other")
    refused = bench.blobs.put(b"refused")  # no events follow
    bench.collect()
    assert bench.removals == [{content_key(b"other")}]
    assert refused in bench.blobs.known
    bench.put(b"next")
    bench.collect()
    assert bench.store.blobs == {}
    assert bench.blobs.known == set()


def test_a_script_waits_for_slurmdbd_from_when_it_was_first_found(bench: Bench) -> None:
    """Were it found anew each time, slurmdbd that is always a little behind would keep it for ever."""
    read = 0
    bench.collector.needed_after = lambda: read
    key = bench.put(b"script")
    bench.jobs[1] = job(script_key=bench.put(b"of a job"))
    bench.collect()
    read = bench.writer.last_sequence
    bench.put(b"of a job")
    bench.collect()
    assert key not in bench.store.blobs


def test_a_script_stays_until_the_end_of_its_last_job_is_durable() -> None:
    """A crash that undoes that end leaves a job that is to be launched."""
    slow = SlowCommitter()
    bench = Bench(slow)

    async def main() -> None:
        key = bench.blobs.put(b"script")
        bench.writer.handle(Add(1), SYSTEM)
        await turns()
        slow.finish()
        bench.writer.handle(Add(1), SYSTEM)  # the job ends
        collection = asyncio.create_task(bench.collector.collect())
        await turns(10)
        assert len(slow.waiting) == 1, "the group of the end, and no removal behind it"
        slow.finish()
        await turns(10)
        slow.finish()
        await collection
        assert bench.removals == [{key}]

    bench.loop.run_until_complete(main())
    bench.loop.close()


def test_a_large_script_can_be_read_while_its_group_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_BYTES_MAX", 4)
    slow = SlowCommitter()
    bench = Bench(slow)

    async def main() -> None:
        key = bench.blobs.put(b"script")
        assert await bench.blobs.get(key) == b"script"
        bench.writer.handle(Add(1), SYSTEM)
        await turns()
        assert await bench.blobs.get(key) == b"script"
        slow.finish()
        assert await bench.blobs.get(key) == b"script"

    bench.loop.run_until_complete(main())
    bench.loop.close()


def test_no_user_fills_the_disk_with_scripts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "USER_BYTES_MAX", 1_000)
    submissions = object.__new__(Submissions)
    submissions._context = bench.context
    command = SubmitJob(spec=JobSpec(), script=b"s" * 400)
    user, admin = Caller(uid=ALICE, gid=ALICE), Caller(uid=0, gid=0, admin=True)
    bench.put(b"x" * 601, ALICE)
    refused = submissions._holds_too_much(command, ALICE, user)
    assert refused is not None
    assert refused.code == "ESLURM_PATHNAME_TOO_LONG"
    assert "MinJobAge" in refused.hint
    assert submissions._holds_too_much(command, BOB, user) is None
    assert submissions._holds_too_much(command, ALICE, admin) is None
    bench.collect()
    assert submissions._holds_too_much(command, ALICE, user) is None
