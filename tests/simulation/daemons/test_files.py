"""What a simulated disk keeps when its machine loses power."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from spritz_testing.daemons.node.files import Files
from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.world import EPOCH, Process, World


def make(tmp_path: Path, seed: int) -> tuple[World, Files]:
    world = World(seed, tmp_path)
    return world, Files(world.host("n1", "10.0.1.1"))


def write(files: Files, path: str, data: bytes, *, sync: bool = False) -> None:
    descriptor = files.open(path, os.O_WRONLY | os.O_CREAT)
    files.write(descriptor, data)
    if sync:
        files.fsync(descriptor)
    files.close(descriptor)


def content(files: Files, path: str) -> bytes | None:
    try:
        return bytes(files.find(path).data)
    except FileNotFoundError:
        return None


def test_what_was_synced_is_kept_with_all_names_before_it(tmp_path: Path) -> None:
    for seed in range(20):
        _, files = make(tmp_path, seed)
        files.mkdir("/spool")
        files.mkdir("/spool/before")
        write(files, "/spool/file", b"kept", sync=True)
        files.lose_power()
        assert content(files, "/spool/file") == b"kept"
        assert files.find("/spool/before").is_directory


def test_names_are_lost_from_the_last_on(tmp_path: Path) -> None:
    seen = set()
    for seed in range(60):
        _, files = make(tmp_path, seed)
        for number in range(4):
            files.mkdir(f"/d{number}")
        files.rename("/d0", "/renamed")
        files.lose_power()
        names = sorted(set(files.listdir("/")) - {"run", "dev", "tmp"})
        seen.add(tuple(names))
        made = [name for name in ("d1", "d2", "d3") if name in names]
        assert made == ["d1", "d2", "d3"][: len(made)]
        assert ("d0" in names) + ("renamed" in names) == bool(names), "one of the two, if it was made"
    assert () in seen
    assert ("d1", "d2", "d3", "renamed") in seen


def test_content_that_was_not_synced_is_old_new_or_the_beginning_of_new(tmp_path: Path) -> None:
    seen = set()
    for seed in range(60):
        _, files = make(tmp_path, seed)
        write(files, "/file", b"old", sync=True)
        descriptor = files.open("/file", os.O_WRONLY)
        files.pwrite(descriptor, b" and new", 3)
        files.lose_power()
        kept = content(files, "/file")
        assert kept is not None
        assert b"old and new".startswith(kept)
        assert kept.startswith(b"old")
        seen.add(kept)
        with pytest.raises(OSError, match="Bad file descriptor"):
            files.close(descriptor)
    assert {b"old", b"old and new"} < seen


def test_what_the_kernel_has_written_meanwhile_is_kept(tmp_path: Path) -> None:
    world, files = make(tmp_path, 1)
    write(files, "/file", b"text")
    world.run(60)
    files.lose_power()
    assert content(files, "/file") == b"text"


def test_a_file_system_in_memory_is_empty_afterwards(tmp_path: Path) -> None:
    _, files = make(tmp_path, 1)
    write(files, "/run/file", b"text", sync=True)
    files.mkdir(f"{tmp_path}/n1")
    assert files.find("/run").device != files.find(f"{tmp_path}/n1").device
    files.lose_power()
    assert content(files, "/run/file") is None


def test_a_full_disk_lets_names_go_and_a_failing_one_does_not(tmp_path: Path) -> None:
    _, files = make(tmp_path, 1)
    write(files, "/file", b"text")
    files.error = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        files.unlink("/file")
    files.error = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        files.mkdir("/more")
    files.unlink("/file")
    write(files, "/run/reserve", b"text")


def test_a_wait_of_a_process_that_is_killed_while_it_stands_still_is_over(tmp_path: Path) -> None:
    """Its time had come meanwhile."""
    world, files = make(tmp_path, 1)
    files.slow_seconds = 10.0
    process = Process(files.host, "slurmd")

    async def main() -> int:
        files.mkdir("/more")
        return 0

    threads.use(world)
    try:
        process.loop.run_as(lambda: process.begin(main()))
        world.after(5.0, process.stop)
        world.after(15.0, process.end)
        for second in range(600):  # life goes on elsewhere
            world.after(float(second), lambda: None)
        world.run(60.0)
    finally:
        threads.use(None)
    assert content(files, "/more") is None
    assert world.now < EPOCH + 100.0, "nothing waits for the dead process"


@pytest.mark.parametrize("later_seconds", [0.0, 10.0])
def test_what_a_process_does_after_the_wait_that_it_was_killed_in_does_not_happen(
    tmp_path: Path, later_seconds: float
) -> None:
    """Such as to remove what it has half written, on a disk that is still slow or fast again."""
    world, files = make(tmp_path, 1)
    write(files, "/half", b"")
    files.slow_seconds = 10.0
    process = Process(files.host, "slurmd")

    async def main() -> int:
        try:
            files.mkdir("/more")
        finally:
            files.unlink("/half")
        return 0

    def kill() -> None:
        files.slow_seconds = later_seconds
        process.end()

    threads.use(world)
    try:
        process.loop.run_as(lambda: process.begin(main()))
        world.after(5.0, kill)
        for second in range(600):  # life goes on elsewhere
            world.after(float(second), lambda: None)
        world.run(60.0)
    finally:
        threads.use(None)
    assert content(files, "/half") is not None
    assert content(files, "/more") is None
    assert world.now < EPOCH + 100.0, "nothing waits for the dead process"
