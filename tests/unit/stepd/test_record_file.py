"""A record on a disk that refuses writes: nothing is lost, and nothing that is half written is taken for an entry."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.node_daemon.reports import StepFinished
from spritz.stepd import record, spec
from spritz.stepd.record import RecordFile

STEP = spec.SupervisorSpec(
    job_id=7,
    restart_count=0,
    step_id=0,
    label="",
    node="n",
    node_index=0,
    identity=spec.Identity(1, 1),
    tasks=(spec.TaskSpec(0, ("true",)),),
)
RESULT = StepFinished(node="n", job_id=7, restart_count=0, step_id=0, ended_at=5.0)
ENTRIES = (record.pids_entry((1, 2)), record.result_entry(RESULT))


class Disk:
    """Takes `room` bytes more, then none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 30
        self.number = errno.ENOSPC
        self.syncs = True
        self._write, self._sync = os.pwrite, os.fsync
        monkeypatch.setattr(os, "pwrite", self.pwrite)
        monkeypatch.setattr(os, "fsync", self.fsync)

    def pwrite(self, descriptor: int, data: memoryview, at: int) -> int:
        if not self.room:
            raise OSError(self.number, os.strerror(self.number))
        written = self._write(descriptor, data[: self.room], at)
        self.room -= written
        return written

    def fsync(self, descriptor: int) -> None:
        if not self.syncs:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._sync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "step"
    made.write_bytes(record.spec_entry(STEP))
    return made


@pytest.fixture
def file(path: Path) -> Iterator[RecordFile]:
    made = RecordFile(os.open(path, os.O_RDWR))
    yield made
    made.close()


@pytest.mark.parametrize("room", range(sum(map(len, ENTRIES))))
def test_what_a_full_disk_refused_is_written_when_there_is_room(
    disk: Disk, path: Path, file: RecordFile, room: int
) -> None:
    disk.room = room
    for entry in ENTRIES:
        file.append(entry)
    assert (file.is_complete, file.error) == (False, errno.ENOSPC)
    torn = record.read(str(path))
    assert torn is not None
    assert (torn.spec, torn.result) == (STEP, None)
    disk.room = 1 << 30
    assert file.sync(ENTRIES[-1])
    assert record.read(str(path)) == record.SpooledStep(STEP, (1, 2), RESULT)
    assert path.read_bytes() == record.spec_entry(STEP) + b"".join(ENTRIES)


def test_a_result_that_could_not_be_synced_is_written_again(disk: Disk, path: Path, file: RecordFile) -> None:
    for entry in ENTRIES:
        file.append(entry)
    assert file.is_complete
    disk.syncs = False
    assert not file.sync(ENTRIES[-1])
    assert (file.is_complete, file.error) == (False, errno.EIO)
    disk.syncs = True
    assert file.sync(ENTRIES[-1])
    assert record.read(str(path)) == record.SpooledStep(STEP, (1, 2), RESULT)
