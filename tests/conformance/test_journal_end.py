"""The end of SQLite's journal: acknowledged events that cannot be read are missed, and a torn last write is not.

SQLite takes the first frame of its log that is not valid for the end. The sweeps flip a bit, cut the log, or delete it,
at every place that holds something, and look for a start that knows less than was acknowledged.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from spritz.controller.journal import log as journal_log
from spritz.controller.journal import sqlite as journal_sqlite
from spritz.controller.journal.contract import Group, Image, JournalBusy, JournalCorrupt, content_key
from spritz.controller.journal.mark import MarkFile, read_mark
from spritz.controller.journal.sqlite import SqliteJournal, SqliteReading

GROUPS = 24
FRAME_BYTES = 24 + 4096
Damage = Callable[[Path], None]


def append(journal: SqliteJournal, count: int) -> None:
    for number in range(journal.last_sequence + 1, journal.last_sequence + count + 1):
        body = b"script %d" % number
        payload = (b"event %d " % number) * 700
        blobs = {content_key(body): body} if number % 3 == 0 else {}
        journal.append(Group(first=number, last=number, at=0.0, payload=payload), blobs)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The files that a killed controller leaves: part of its events is in the database, part in the log alone."""
    journal = SqliteJournal(tmp_path / "live")
    append(journal, GROUPS // 3)
    journal.write_image(Image(sequence=GROUPS // 3, payload=b"state"))
    journal.tidy()
    append(journal, GROUPS - GROUPS // 3)
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    journal.close()
    return tmp_path / "killed"


def valid_frames(directory: Path) -> int:
    """Frames of the log that SQLite reads."""
    SqliteReading(directory).close()
    return journal_log.valid_frames(directory / "journal.db-shm")


def outcome(killed: Path, work: Path, damage: Damage) -> str:
    """What a start says to a copy with this damage: "whole", "refused", or "LOST"."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(killed, work)
    damage(work)
    try:
        journal = SqliteJournal(work)
    except JournalCorrupt:
        return "refused"
    try:
        whole = journal.last_sequence == GROUPS and len(list(journal.groups(0))) == GROUPS
        return "whole" if whole and all(map(journal.blob, journal.blob_sizes())) else "LOST"
    except JournalCorrupt:
        return "refused"
    finally:
        journal.close()


def flip(name: str, position: int, bit: int = 0) -> Damage:
    def damage(directory: Path) -> None:
        with (directory / name).open("r+b") as file:
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ (1 << bit)]))

    return damage


def cut(position: int) -> Damage:
    return lambda directory: os.truncate(directory / "journal.db-wal", position)


def zero(position: int) -> Damage:
    def damage(directory: Path) -> None:
        with (directory / "journal.db-wal").open("r+b") as file:
            file.seek(position)
            file.write(bytes(4096))

    return damage


def test_a_killed_controllers_files_are_whole(killed: Path, tmp_path: Path) -> None:
    assert outcome(killed, tmp_path / "work", lambda directory: None) == "whole"


def test_no_damage_of_the_log_passes_for_its_end(killed: Path, tmp_path: Path) -> None:
    """One place in the head, and in the header and the page of each frame: flipped, overwritten, cut off."""
    frames = valid_frames(killed)
    assert frames > GROUPS
    rng = random.Random(1)
    places = [rng.randrange(32), *(32 + n * FRAME_BYTES + rng.choice((9, 20, 500, 4000)) for n in range(frames))]
    found = {
        f"{kind} at {place}": outcome(killed, tmp_path / "work", damage)
        for place in places
        for kind, damage in (("flip", flip("journal.db-wal", place)), ("cut", cut(place)), ("zero", zero(place)))
    }
    assert {what: said for what, said in found.items() if said == "LOST"} == {}
    assert list(found.values()).count("refused") > frames


@pytest.mark.slow
@pytest.mark.parametrize("name", ["journal.db-wal", "journal.db", "journal.db-mark", "image"])
def test_no_flipped_bit_is_passed_over(killed: Path, tmp_path: Path, name: str) -> None:
    rng = random.Random(name)
    path = next(killed.glob("image.*")) if name == "image" else killed / name
    size = 32 + valid_frames(killed) * FRAME_BYTES if name == "journal.db-wal" else path.stat().st_size
    for _ in range(400):
        place, bit = rng.randrange(size), rng.randrange(8)
        said = outcome(killed, tmp_path / "work", flip(path.name, place, bit))
        assert said != "LOST", f"{path.name}: bit {bit} of byte {place}"


@pytest.mark.parametrize("names", [("journal.db-wal",), ("journal.db-wal", "journal.db-shm")])
def test_a_log_that_is_gone_is_missed(killed: Path, tmp_path: Path, names: tuple[str, ...]) -> None:
    def remove(directory: Path) -> None:
        for name in names:
            (directory / name).unlink(missing_ok=True)

    assert outcome(killed, tmp_path / "work", remove) == "refused"


def test_the_refusal_names_the_events_and_what_each_way_out_means_and_changes_nothing(killed: Path) -> None:
    (killed / "journal.db-wal").unlink()
    before = {path.name: path.read_bytes() for path in killed.glob("journal.db*") if not path.name.endswith("-shm")}
    for _ in range(2):
        with pytest.raises(JournalCorrupt) as refused:
            SqliteJournal(killed)
        lost = f"events {GROUPS // 3 + 1} to {GROUPS}, which were acknowledged, cannot be read"
        assert refused.value.message == f"{killed}/journal.db-wal is missing: {lost}"
        for part in ("from a copy", "-i", "event 8", "no job id is given twice", "are kept"):
            assert part in refused.value.hint
    after = {path.name: path.read_bytes() for path in killed.glob("journal.db*") if not path.name.endswith("-shm")}
    assert after == before


def test_a_database_and_a_mark_of_different_journals_are_not_taken_together(killed: Path, tmp_path: Path) -> None:
    other = SqliteJournal(tmp_path / "other")
    append(other, GROUPS + 1)
    other.close()
    shutil.copy(tmp_path / "other/journal.db-mark", killed)
    with pytest.raises(JournalCorrupt, match="another journal"):
        SqliteJournal(killed)


def test_a_journal_of_an_earlier_release_has_no_mark_and_gets_one(killed: Path) -> None:
    (killed / "journal.db-mark").unlink()
    SqliteJournal(killed).close()
    mark = read_mark(killed / "journal.db-mark")
    assert mark is not None
    assert mark.last == GROUPS


def test_without_log_and_mark_the_database_is_not_trusted(killed: Path) -> None:
    """As where somebody copied `journal.db` alone."""
    for name in ("journal.db-wal", "journal.db-mark"):
        (killed / name).unlink()
    with pytest.raises(JournalCorrupt, match=r"some events after 8"):
        SqliteJournal(killed)


def test_a_new_journals_database_alone_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """Before its log was ever moved to it, as where a backup has copied one file of three."""
    journal = SqliteJournal(tmp_path / "live")
    append(journal, 2)
    (tmp_path / "copied").mkdir()
    shutil.copy(tmp_path / "live" / "journal.db", tmp_path / "copied")
    journal.close()
    with pytest.raises(JournalCorrupt, match=r"journal\.db-mark is missing or damaged, and so is"):
        SqliteJournal(tmp_path / "copied")


# What a power failure leaves


def torn(killed: Path, tmp_path: Path, lost: Callable[[int], bool]) -> Path:
    """A copy whose last group was being written: `lost(n)` tells whether its nth frame never reached the disk."""
    grown = tmp_path / "grown"
    shutil.copytree(killed, grown)
    journal = SqliteJournal(grown)
    # those of the term that the start has written, and synced
    frames = journal_log.valid_frames(grown / "journal.db-shm")
    body = b"x" * 20_000
    journal.append(Group(first=GROUPS + 1, last=GROUPS + 1, at=0.0, payload=body), {content_key(body): body})
    work = tmp_path / "torn"
    shutil.copytree(grown, work)
    shutil.copy(killed / "journal.db-mark", work)  # not acknowledged: the mark is that of the group before
    journal.close()
    total = valid_frames(work)
    assert total > frames + 5
    with (work / "journal.db-wal").open("r+b") as file:
        for number in range(frames, total):
            if lost(number - frames):
                file.seek(32 + number * FRAME_BYTES)
                file.write(bytes(FRAME_BYTES))
    return work


LOST_FRAMES: dict[str, Callable[[int], bool]] = {
    "first": lambda n: n == 0,
    "last": lambda n: n == 5,
    "every second": lambda n: n % 2 == 0,
    "half of a page": lambda n: False,
}


@pytest.mark.parametrize("which", LOST_FRAMES)
def test_an_unfinished_last_write_is_dropped_and_the_controller_starts(
    killed: Path, tmp_path: Path, which: str
) -> None:
    work = torn(killed, tmp_path, LOST_FRAMES[which])
    if which == "half of a page":
        frames = valid_frames(work)
        zero(32 + (frames - 2) * FRAME_BYTES + 2000)(work)
    for _ in range(3):  # and again, with new writes before what is left of the old one
        journal = SqliteJournal(work)
        last = journal.last_sequence
        assert last >= GROUPS
        append(journal, 1)
        shutil.copytree(work, tmp_path / f"again-{last}")
        journal.close()
        work = tmp_path / f"again-{last}"
    final = SqliteJournal(work)
    assert final.last_sequence == last + 1
    final.close()


def test_a_start_writes_again_what_it_has_found_in_the_log(killed: Path) -> None:
    """If a sync had failed, the log may be whole in the page cache alone. Found by a simulated power loss."""
    journal = SqliteJournal(killed)
    with closing(sqlite3.connect(f"file:{killed}/journal.db?immutable=1", uri=True)) as database:
        assert database.execute("SELECT max(last) FROM groups").fetchone() == (GROUPS,)
    append(journal, 1)
    assert journal_log.valid_frames(killed / "journal.db-shm") < 10, "the log has begun again"
    journal.close()


def test_a_start_whose_log_is_read_by_another_process_is_refused(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a new log it would acknowledge events on top of what may not be on the disk."""
    monkeypatch.setattr(journal_sqlite, "_BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(killed / "journal.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM groups").fetchone() == (GROUPS,)
        with pytest.raises(JournalBusy, match="another process reads"):
            SqliteJournal(killed)
    SqliteJournal(killed).close()


def test_a_mark_that_a_power_failure_set_back_hides_no_damage_of_an_older_group(killed: Path, tmp_path: Path) -> None:
    """The mark is not synced with each group. Groups behind the damaged one prove that it was acknowledged."""
    mark = read_mark(killed / "journal.db-mark")
    assert mark is not None
    (killed / "journal.db-mark").unlink()
    MarkFile(killed / "journal.db-mark", type(mark)(identity=mark.identity, last=3, ids_below=7)).close()
    ends = ends_of_transactions(killed)
    said = {
        n: outcome(killed, tmp_path / "work", flip("journal.db-wal", 32 + n * FRAME_BYTES + 900))
        for n in range(ends[-1] + 1)
    }
    # Of the last group alone it cannot be known: as far as the files tell, it was not finished.
    last_group = range(ends[-2] + 1, ends[-1] + 1)
    assert {n for n, what in said.items() if what != "refused"} == set(last_group)


def ends_of_transactions(directory: Path) -> list[int]:
    """Numbers of the frames that end one."""
    log = (directory / "journal.db-wal").read_bytes()
    starts = [32 + n * FRAME_BYTES for n in range(valid_frames(directory))]
    return [n for n, start in enumerate(starts) if log[start + 4 : start + 8] != bytes(4)]


def test_half_an_image_of_a_killed_controller_is_removed(killed: Path) -> None:
    part = killed / "image.0000000000000020.part"
    part.write_bytes(b"spritz image 1\n")
    SqliteJournal(killed).close()
    assert not part.exists()
    assert list(killed.glob("image.*"))


# The mark


def test_a_mark_is_read_whatever_one_write_did_to_it(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    append(journal, 3)
    journal.reserve_ids(1005)
    append(journal, 1)
    journal.close()
    path = tmp_path / "journal.db-mark"
    whole = path.read_bytes()
    for start in (0, 2048):
        path.write_bytes(whole[:start] + bytes(36) + whole[start + 36 :])
        mark = read_mark(path)
        assert mark is not None
        assert (mark.last in (3, 4), mark.ids_below) == (True, 1005)
    path.write_bytes(bytes(len(whole)))
    assert read_mark(path) is None


def test_reserved_ids_survive_and_rise_with_the_journal(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    assert journal.ids_below == 0
    journal.reserve_ids(1001)
    journal.close()
    again = SqliteJournal(tmp_path)
    assert again.ids_below == 1001
    again.close()
