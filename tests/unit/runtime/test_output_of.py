"""What a helper program prints; nothing of it outlives its time."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from spritz.runtime.programs import output_of


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def program(path: Path, text: str) -> list[str]:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return [str(path)]


def test_output_and_status(tmp_path: Path) -> None:
    words = program(tmp_path / "p", 'echo "$ONE"; exit 3')
    assert asyncio.run(output_of(words, {"ONE": "1"}, 100.0)) == (3, "1\n")
    with pytest.raises(FileNotFoundError):
        asyncio.run(output_of([str(tmp_path / "none")], {}, 100.0))


def test_a_child_that_keeps_the_output_open_is_killed_with_its_time(tmp_path: Path) -> None:
    """Its parent has ended, and was its group's leader."""
    words = program(tmp_path / "p", f"sleep 1000 & echo $! > {tmp_path}/pid")

    async def late() -> None:
        before = open_files()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await output_of(words, {"PATH": os.environ["PATH"]}, 0.3)
            pid = int((tmp_path / "pid").read_text())
            async with asyncio.timeout(60):
                while _runs(pid):  # noqa: ASYNC110  # another process's end has no event
                    await asyncio.sleep(0.01)
        assert open_files() == before

    asyncio.run(late())


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
