"""Rows that are kept from one listing to the next equal recomputed rows."""

from __future__ import annotations

import sys

import msgspec
import pytest
from msgspec.structs import replace

from spritz.controller.api.queue.row_cache import LISTINGS_MAX, CachedListings, RowCache
from spritz.controller.api.queue.rows import row_of
from spritz.model.errors import SpritzError
from spritz.model.events import Changes
from spritz.model.job.record import Job, JobSpec
from spritz.model.states import JobState

FIELDS = ("id", "spec.name", "state", "priority", "allocation", "spec.partitions")
SPEC = JobSpec(name="train", uid=1, gid=1, user="alice", group="alice", work_dir="/")
JOBS = [Job(id=number, spec=SPEC, partition="debug", priority=number) for number in range(1, 6)]


def plain_rows(jobs: list[Job]) -> object:
    row = row_of(Job, FIELDS)
    return msgspec.msgpack.decode(msgspec.msgpack.encode([row(job) for job in jobs]))


def test_rows_are_those_of_the_records_as_they_are_now() -> None:
    kept = RowCache(FIELDS)
    jobs = list(JOBS)
    assert msgspec.msgpack.decode(kept.encoded(jobs)) == plain_rows(jobs)
    jobs[2] = replace(jobs[2], state=JobState.RUNNING)
    del jobs[0]
    assert msgspec.msgpack.decode(kept.encoded(jobs)) == plain_rows(jobs)
    assert msgspec.msgpack.decode(kept.encoded([])) == []


def test_an_unchanged_record_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = RowCache(FIELDS)
    before = bytes(kept.encoded(JOBS))
    encoded: list[object] = []

    def counted(row: object) -> bytes:
        encoded.append(row)
        return msgspec.msgpack.encode(row)

    monkeypatch.setattr("spritz.controller.api.queue.row_cache._encoded", counted)
    assert bytes(kept.encoded(JOBS)) == before
    assert encoded == []
    kept.encoded([JOBS[0], replace(JOBS[1], priority=9), *JOBS[2:]])
    assert len(encoded) == 1


def test_a_priority_that_time_has_changed_is_shown() -> None:
    kept = RowCache(FIELDS)
    for more in (0, 100, 100, 0):
        rows = msgspec.msgpack.decode(kept.encoded(JOBS, lambda job, more=more: job.priority + more))  # type: ignore[misc]
        assert [row[3] for row in rows] == [job.priority + more for job in JOBS]


def test_names_that_are_not_utf8_travel() -> None:
    odd = replace(JOBS[0], spec=replace(SPEC, name="\udcff"))
    kept = RowCache(FIELDS)
    assert len(msgspec.msgpack.decode(kept.encoded([odd, JOBS[1]]))) == 2


def test_only_the_latest_kinds_of_listings_are_kept() -> None:
    listings = CachedListings()
    first = listings.of(("id",))
    assert listings.of(("id",)) is first
    for number in range(LISTINGS_MAX):
        listings.of(("id", *["spec.name"] * (number + 1)))
    assert listings.of(("id",)) is not first
    with pytest.raises(SpritzError):
        listings.of(("nothing",))


def test_rows_of_jobs_that_are_forgotten_are_kept_no_longer() -> None:
    """Their records would stay in memory until the next listing."""
    listings = CachedListings()
    jobs = [replace(job) for job in JOBS]
    before = [sys.getrefcount(job) for job in jobs]
    listings.of(FIELDS).encoded(jobs)
    assert [sys.getrefcount(job) for job in jobs] != before
    listings.follow(Changes(jobs=tuple((job, None) for job in jobs)))
    assert [sys.getrefcount(job) for job in jobs] == before
