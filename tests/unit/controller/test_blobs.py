"""Scripts and environments: what each user holds of them, and their removal."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.controller import blobs as module
from spritz.controller.api import submit
from spritz.controller.api.submit import Submissions
from spritz.controller.blobs import BlobCollector, BlobStore
from spritz.controller.journal import content_key
from spritz.controller.journal_memory import MemoryJournal, MemoryStore
from spritz.model.cluster import Caller
from spritz.model.commands.job import SubmitJob
from spritz.model.job import JobSpec

ALICE, BOB = 1001, 1002


def job(script_key: str = "", environment_key: str = "", uid: int = ALICE) -> Any:
    return SimpleNamespace(spec=SimpleNamespace(script_key=script_key, environment_key=environment_key, uid=uid))


class Bench:
    """A collector over a journal in memory. What it hands to the journal's thread waits in `removals`."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.journal = MemoryJournal(self.store)
        self.blobs = BlobStore(self.journal)
        self.jobs: dict[int, Any] = {}
        self.removals: list[Callable[[], None]] = []
        self.writer = SimpleNamespace(
            last_sequence=0, when_durable=lambda callback: callback(), maintain=self.removals.append
        )
        context: Any = SimpleNamespace(
            writer=self.writer,
            journal=self.journal,
            blobs=self.blobs,
            machine=SimpleNamespace(state=SimpleNamespace(jobs=self.jobs)),
        )
        self.context = context
        self.collector = BlobCollector(context)

    def put(self, body: bytes, uid: int = ALICE) -> str:
        key = self.blobs.put(body, uid)
        self.store.blobs.update(self.blobs.take_unsent())
        self.blobs.committed()
        self.writer.last_sequence += 1
        return key

    def collect(self) -> None:
        self.collector.collect()
        while self.removals:
            self.removals.pop(0)()


def test_a_blob_counts_once_for_the_user_who_brought_it() -> None:
    bench = Bench()
    for _ in range(2):
        bench.put(b"x" * 100, ALICE)
        bench.put(b"x" * 100, BOB)
    bench.put(b"y" * 10, BOB)
    assert (bench.blobs.held_bytes(ALICE), bench.blobs.held_bytes(BOB)) == (100, 10)


def test_what_is_removed_no_longer_counts() -> None:
    bench = Bench()
    kept, dropped = bench.put(b"kept"), bench.put(b"dropped")
    bench.jobs[1] = job(script_key=kept)
    bench.collect()
    assert set(bench.store.blobs) == {kept}
    assert bench.blobs.held_bytes(ALICE) == len(b"kept")
    assert dropped not in bench.blobs.known


def test_blobs_of_recovered_jobs_count_for_their_users() -> None:
    bench = Bench()
    key = bench.put(b"script", BOB)
    again = BlobStore(bench.journal)
    assert again.held_bytes(BOB) == 0
    again.attribute([job(script_key=key, uid=BOB), job(script_key=key, uid=ALICE)])
    assert (again.held_bytes(BOB), again.held_bytes(ALICE)) == (len(b"script"), 0)


def test_a_script_stays_until_slurmdbd_has_read_the_events_that_name_it() -> None:
    bench = Bench()
    read = 0
    bench.collector.needed_after = lambda: read
    key = bench.put(b"for accounting")
    bench.collect()
    bench.collect()
    assert key in bench.store.blobs
    read = bench.writer.last_sequence
    bench.collect()
    assert key not in bench.store.blobs


def test_many_large_blobs_are_removed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMOVED_BYTES_MAX", 100)
    bench = Bench()
    for number in range(10):
        bench.put(bytes([number]) * 60)
    bench.collector.collect()
    assert len(bench.removals) == 5
    bench.collect()
    assert bench.store.blobs == {}


def test_a_removed_blob_may_come_back() -> None:
    bench = Bench()
    bench.put(b"again")
    bench.collect()
    assert bench.put(b"again") == content_key(b"again")
    assert set(bench.store.blobs) == {content_key(b"again")}
    assert bench.blobs.held_bytes(ALICE) == len(b"again")


def test_no_user_fills_the_disk_with_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "USER_BYTES_MAX", 1_000)
    bench = Bench()
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
