"""The spool directory: what is left there is found again, whatever it is; directories serve one step after another."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from pathlib import Path

import pytest
from msgspec import msgpack
from msgspec.structs import replace

from spritz.model import stored
from spritz.model.errors import SpritzError
from spritz.model.ids import STEP_BATCH
from spritz.model.job.record import Job, JobSpec
from spritz.model.node_daemon.reports import RunningStep, StepFinished
from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.scarcity import UNWRITABLE
from spritz.node import spool as spools
from spritz.node import stored_job
from spritz.node.main import _need_sockets
from spritz.node.spool import LeftSteps, Spool, connect, give_up, read_record, sync
from spritz.node.supervisors.leftovers import forget_all
from spritz.stepd import daemonlink, record, spec

NOTHING = LeftSteps(found=[], unreadable=[], unsupported=[])


def test_files_of_another_version_are_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / "job00007.0.batch"
    left.mkdir()
    (left / "something_older").write_text("x")
    assert Spool(str(tmp_path)).scan() == NOTHING
    assert not left.exists()


def test_a_step_that_began_and_whose_record_makes_no_sense_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "job00007.0.batch"
    left.mkdir()
    (left / spec.RECORD).write_bytes(b"not a record")
    monkeypatch.chdir(left)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(spec.CONTROL)
        assert Spool(str(tmp_path)).scan() == replace(NOTHING, unreadable=[str(left)])
    assert left.exists()


def test_a_record_that_cannot_be_read_is_an_error_and_not_a_step_that_never_was(tmp_path: Path) -> None:
    left = tmp_path / "job00007.0.batch"
    (left / spec.RECORD).mkdir(parents=True)  # reading a directory fails for root too
    with pytest.raises(OSError):
        Spool(str(tmp_path)).scan()
    assert left.exists()


def test_a_spool_keeps_its_identity_until_it_is_lost_or_told_to_forget(tmp_path: Path) -> None:
    first = Spool(str(tmp_path)).identity()
    assert Spool(str(tmp_path)).identity() == first
    Spool(str(tmp_path)).forget_identity()
    assert Spool(str(tmp_path)).identity() not in ("", first)


def key(number: int) -> RunningStep:
    """A step of job `number`."""
    return RunningStep(number, 0, 0)


def known(number: int) -> spec.SupervisorSpec:
    """A step of job `number`."""
    task = spec.TaskSpec(0, ("true",))
    identity = spec.Identity(1, 1)
    return spec.SupervisorSpec(
        job_id=number, restart_count=0, step_id=0, label="", node="n", node_index=0, identity=identity, tasks=(task,)
    )


def test_a_directory_serves_one_step_after_another_and_nothing_of_the_first_is_left(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    first, second = (spool.directory(key(number)) for number in (1, 2))
    spool.create(first, known(1))
    inode = Path(first).stat().st_ino
    for name in (spec.CONTROL, spec.SCRIPT):
        (Path(first) / name).write_text("old")
    spools.mark_before_boot(first)
    spool.recycle(key(1))
    assert not Path(first).exists()
    spool.create(second, known(2))
    assert Path(second).stat().st_ino == inode
    assert [path.name for path in Path(second).iterdir()] == [spec.RECORD]
    assert not spools.is_before_boot(second)  # else its processes would count as ended, and live on
    found = read_record(second)
    assert found is not None
    assert (found.spec, found.result) == (known(2), None)
    assert (Path(second) / spec.RECORD).stat().st_mode & 0o777 == 0o600


def test_a_step_that_was_started_before_is_not_overwritten(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    kept, other = (spool.directory(key(number)) for number in (1, 2))
    spool.create(kept, known(1))
    spool.create(other, known(2))
    spool.recycle(key(2))
    with pytest.raises(FileExistsError):
        spool.create(kept, known(3))
    found = read_record(kept)
    assert found is not None
    assert found.spec == known(1)
    assert [path.name for path in tmp_path.iterdir()] == ["job00001.0.0"]


def test_kept_directories_are_few_and_end_with_the_daemon(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    names = [spool.directory(key(number)) for number in range(20)]
    for number, name in enumerate(names):
        spool.create(name, known(number))
    for number in range(20):
        spool.recycle(key(number))
    left = list(tmp_path.iterdir())
    assert 0 < len(left) < 20
    assert not list(tmp_path.glob("job*"))
    assert Spool(str(tmp_path)).scan() == NOTHING
    assert not list(tmp_path.iterdir())


JOB = Job(id=7, spec=JobSpec(name="seven"))
KEY = RunningStep(7, 0, 0)
RESULT = StepFinished(node="n", job_id=7, restart_count=0, step_id=0, ended_at=5.0)


def written(spool: Spool, job: bytes) -> Path:
    """The record of a step of this job, which a supervisor has begun."""
    directory = Path(spool.directory(KEY))
    spool.create(str(directory), replace(known(7), job=job))
    os.mkfifo(directory / spec.CONTROL)
    return directory / spec.RECORD


def test_a_step_of_an_earlier_release_is_found_with_its_job_and_result(tmp_path: Path) -> None:
    """Records without an envelope: format 1."""
    spool = Spool(str(tmp_path))
    path = written(spool, msgpack.encode(JOB))
    result = StepFinished(node="n", job_id=7, restart_count=0, step_id=0, ended_at=5.0)
    bodies = {b"S": replace(known(7), job=msgpack.encode(JOB)), b"P": (1, 2), b"R": result}
    path.write_bytes(b"".join(record._entry(kind, msgpack.encode(body)) for kind, body in bodies.items()))
    [found] = spool.scan().found
    assert (found.key, found.job, found.task_ids, found.result) == (KEY, JOB, (0,), result)


def test_the_job_of_a_wide_step_is_small_in_each_record_and_read_back(tmp_path: Path) -> None:
    nodes = tuple(NodeAllocation(node=f"node{number:04}", cpus="ff") for number in range(1000))
    job = replace(JOB, allocation=Allocation(partition="main", nodes=nodes))
    packed, compressed = stored_job.pack(job)
    spool = Spool(str(tmp_path))
    directory = spool.directory(KEY)
    spool.create(directory, replace(known(7), job=packed, job_compressed=compressed))
    assert os.stat(f"{directory}/{spec.RECORD}").st_size < 8192 < len(stored.encode(job))
    found = spool._look(directory)
    assert found is not None
    assert found.job == job


def test_a_damaged_job_is_no_step(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    directory = spool.directory(KEY)
    spool.create(directory, replace(known(7), job=b"not compressed", job_compressed=True))
    assert spool.scan() == NOTHING


@pytest.mark.parametrize("part", ["spec", "job", "result"])
def test_a_step_of_a_later_release_is_named_and_left_alone_until_it_is_to_be_forgotten(
    tmp_path: Path, part: str
) -> None:
    def newer(data: bytes) -> bytes:
        """The same entry with another number in its envelope."""
        return data.replace(stored._HEAD, msgpack.encode((stored.FORMAT + 1, stored.FINGERPRINT, None))[:-1])

    spool = Spool(str(tmp_path))
    path = written(spool, newer(stored.encode(JOB)) if part == "job" else stored.encode(JOB))
    if part == "spec":
        path.write_bytes(newer(path.read_bytes()))
    if part == "result":
        result = StepFinished(node="n", job_id=7, restart_count=0, step_id=0, ended_at=5.0)
        path.write_bytes(path.read_bytes() + newer(record.result_entry(result)))
    left = spool.scan()
    assert (left.found, left.unreadable) == ([], [])
    [(directory, reason)] = left.unsupported
    assert directory == str(path.parent)
    assert f"format {stored.FORMAT + 1} of a later release" in reason
    assert path.exists()
    forget_all([str(tmp_path)])
    assert not path.parent.exists()


def test_a_spool_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"))
    first, second = (spool.directory(key(number)) for number in (1, 2))
    spool.create(first, known(1))
    spool.recycle(key(1))
    shutil.rmtree(tmp_path / "spool")
    spool.create(second, known(2))
    assert read_record(second) is not None


class Refusing(socket.socket):
    """What a file system without sockets does."""

    def bind(self, address: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_slurmd_does_not_start_where_its_steps_could_not_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / ("long" * 40)
    spool.mkdir()
    _need_sockets(str(spool))
    assert list(spool.iterdir()) == []
    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(SpritzError, match=r"SlurmdSpoolDir .* cannot hold sockets: Operation not permitted"):
        _need_sockets(str(spool))
    assert list(spool.iterdir()) == []


def test_a_supervisor_tells_a_name_that_is_taken_from_a_directory_without_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / spec.CONTROL).touch()
    with pytest.raises(FileExistsError, match="given up"):
        daemonlink.Listener().listen()
    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(PermissionError, match="cannot listen in the spool directory"):
        daemonlink.Listener().listen()


def test_the_steps_of_a_supervisor_share_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = daemonlink.Listener()
    sockets = []
    for name in ("first", "second", "third", "given up"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        if name == "third":
            Spool(str(tmp_path)).scan()  # another daemon removed the name of the first two
        if name == "given up":
            assert give_up(str(tmp_path / name))
            with pytest.raises(FileExistsError, match="given up"):
                listener.listen()
            continue
        sockets.append(listener.listen())
        connection = connect(str(tmp_path / name))
        assert connection is not None
        sockets[-1].accept()[0].close()
        connection.close()
    assert sockets[0] is sockets[1]
    assert sockets[1] is not sockets[2]
    listener.close()
    assert connect(str(tmp_path / "third")) is None
    assert not list(tmp_path.glob(f"{spec.SUPERVISOR}*"))


def test_records_are_synced_but_for_those_of_steps_that_were_forgotten(tmp_path: Path) -> None:
    kept = written(Spool(str(tmp_path)), b"job")
    damaged = f"{kept}/{spec.RECORD}"
    failed = sync([str(tmp_path / "forgotten"), damaged, str(kept.parent)])
    assert {directory: type(error) for directory, error in failed.items()} == {damaged: NotADirectoryError}


class Machine:
    """Where reserves may be: directories that are on other disks than the spool, or forbid programs."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.forbids: set[str] = set()
        self.same: set[str] = set()
        self.places = tuple(str(root / name) for name in ("run", "shm"))
        for place in self.places:
            os.mkdir(place)
        real = os.statvfs

        def statvfs(path: str) -> os.statvfs_result:
            found = real(path)
            return os.statvfs_result((*found[:8], os.ST_NOEXEC if path in self.forbids else 0, found[9]))

        monkeypatch.setattr(spools, "_RESERVES", self.places)
        monkeypatch.setattr(spools, "_device", lambda path: self.places.index(path) + 1 if self._other(path) else 0)
        monkeypatch.setattr(os, "statvfs", statvfs)

    def _other(self, path: str) -> bool:
        return path in self.places and path not in self.same


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_step_that_finds_the_spool_full_is_kept_elsewhere(machine: Machine, tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"))
    assert spool.divert(key(1))
    directory = spool.directory(key(1))
    assert os.path.dirname(os.path.dirname(directory)) == machine.places[0]
    assert not spool.divert(key(1)), "there is no third place"
    packed, _ = stored_job.pack(JOB)
    spool.create(directory, replace(known(7), job=packed))
    os.mkfifo(f"{directory}/{spec.CONTROL}")
    assert spool.directory(key(2)) == f"{spool.path}/job00002.0.0"
    spool.forget(key(1))
    assert os.listdir(machine.places[0]) == []
    assert spool.directory(key(1)) == f"{spool.path}/job00001.0.0"


def test_a_later_daemon_finds_the_steps_in_the_reserve_and_forgets_them_there(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    earlier, later = (Spool(str(tmp_path / "spool")) for _ in range(2))
    earlier.divert(KEY)
    directory = earlier.directory(KEY)
    packed, _ = stored_job.pack(JOB)
    earlier.create(directory, replace(known(7), job=packed))
    with Path(directory, spec.RECORD).open("ab") as file:
        file.write(record.result_entry(RESULT))
    Path(os.path.dirname(directory), f"{spec.SUPERVISOR}12").touch()
    [found] = later.scan().found
    assert (found.key, found.directory, later.directory(KEY)) == (KEY, directory, directory)
    later.recycle(KEY)
    assert os.listdir(machine.places[0]) == []


def test_a_reserve_is_on_another_disk_and_lets_scripts_run(machine: Machine, tmp_path: Path) -> None:
    script = RunningStep(1, 0, STEP_BATCH)
    machine.forbids.add(machine.places[0])
    spool = Spool(str(tmp_path / "spool"))
    assert spool.divert(script)
    assert spool.divert(key(2))
    parents = [os.path.dirname(os.path.dirname(spool.directory(one))) for one in (script, key(2))]
    assert parents == [*reversed(machine.places)]
    machine.same.add(machine.places[1])
    assert not Spool(str(tmp_path / "spool")).divert(script)
    covered = Spool(str(tmp_path / "spool"), covered=machine.places)
    assert not covered.divert(key(3)), "tasks would not see it"


def test_a_reserve_of_another_user_is_not_used(machine: Machine, tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"))
    for path in spool._reserves:
        os.symlink(tmp_path, path)
    assert not spool.divert(key(1))


@pytest.mark.parametrize("number", sorted(UNWRITABLE), ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("begun", [True, False])
def test_a_step_is_given_up_on_a_disk_that_takes_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, begun: bool
) -> None:
    (tmp_path / spec.RECORD).write_bytes(b"record")
    monkeypatch.chdir(tmp_path)
    if begun:
        with socket.socket(socket.AF_UNIX) as supervisor:
            supervisor.bind(spec.CONTROL)

    def failing(path: str, flags: int, mode: int = 0o777) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        given_up = give_up(str(tmp_path))
    assert given_up is not begun
    assert (tmp_path / spec.RECORD).exists() is begun


def test_the_boot_of_the_last_daemon_is_kept(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    assert spool.last_boot() == ""
    for boot in ("first", "second"):
        spool.store_boot(boot)
        assert Spool(str(tmp_path)).last_boot() == boot


def test_steps_from_before_a_boot_are_marked_as_far_as_the_disk_lets_them(tmp_path: Path) -> None:
    assert not spools.is_before_boot(str(tmp_path))
    for directory in (tmp_path, tmp_path, tmp_path / "gone"):
        spools.mark_before_boot(str(directory))
    assert spools.is_before_boot(str(tmp_path))
    assert not spools.is_before_boot(str(tmp_path / "gone"))
