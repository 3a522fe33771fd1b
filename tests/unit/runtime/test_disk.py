"""Files are replaced whole or not at all; private directories belong to one user."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from spritz.runtime import disk
from spritz.runtime.daemon.pidfile import AlreadyRunning, PidFile


def test_a_file_is_replaced_with_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "state"
    disk.write_atomically(path, b"old")
    disk.write_atomically(path, b"new" * 100_000, mode=0o640)
    assert path.read_bytes() == b"new" * 100_000
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["state"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    disk.write_atomically(path, b"old")

    def full(descriptor: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        disk.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


def test_a_private_directory_is_made_with_its_parents_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = disk.private_directory(tmp_path / "a/b")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert disk.private_directory(path) == path


def test_a_directory_that_others_could_change_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(disk.UnsafeDirectory, match="writable by others"):
        disk.private_directory(open_to_all)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(disk.UnsafeDirectory, match="not a directory"):
        disk.private_directory(tmp_path / "link")


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs to give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(0o700)
    os.chown(theirs, 65534, 65534)
    with pytest.raises(disk.UnsafeDirectory, match="belongs to uid 65534"):
        disk.private_directory(theirs)


def test_a_pid_file_holds_our_pid_and_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "d.pid"
    path.write_text("stale 123456\n" * 3)
    with PidFile(path):
        assert path.read_text() == f"{os.getpid()}\n"
    assert not path.exists()


def test_a_second_daemon_is_told_the_pid_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "d.pid"
    with PidFile(path):
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            outcome = b"acquired"
            try:
                PidFile(path).acquire()
            except AlreadyRunning as error:
                outcome = str(error.pid).encode()
            os.write(told, outcome)
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(ready, 100) == str(os.getpid()).encode()
        os.close(ready)
        os.close(told)
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_pid_file_of_a_dead_daemon_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "d.pid"
    child = os.fork()
    if child == 0:
        PidFile(path).acquire()
        os._exit(0)
    os.waitpid(child, 0)
    assert path.read_text() == f"{child}\n"
    with PidFile(path):
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_pid_file_where_nothing_can_be_locked_is_not_held_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS without a lock daemon: fcntl(2) ENOLCK."""

    def lockf(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.lockf", lockf)
    with pytest.raises(OSError, match=r"No locks available\. Set it to a file of a local disk") as refused:
        PidFile(tmp_path / "pid").acquire()
    assert not isinstance(refused.value, AlreadyRunning)
