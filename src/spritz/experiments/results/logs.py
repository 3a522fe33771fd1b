"""Logs of a run: of the batch script and of each rank, read while they grow and after the end."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: Names of logs: RESTART-RANK.log, and RESTART-srun.log with srun's messages. A task that never started has none.
_RANK = re.compile(r"(\d+)-(\d+|srun)\.log\Z")
_PIECE_BYTES = 1 << 16
#: Slurm's message in the log of a requeued run, which is not an error of the run: `spritz show` lists its pauses.
_REQUEUED = re.compile(r"slurmstepd: error: \*\*\* JOB \S+ ON .* DUE TO JOB REQUEUE \*\*\*")


@dataclass(frozen=True, order=True)
class Line:
    """A line of a log, without its newline. `rank` is None for the batch script."""

    restart: int
    rank: int | None
    text: str


def files(directory: Path) -> list[tuple[int, int | None, Path]]:
    """(restart, rank, file) in reading order. The batch script has restart -1; it and srun have rank None."""
    logs: list[tuple[int, int | None, Path]] = []
    folder = directory / "log"
    if os.path.exists(folder / "job.log"):  # `exists` of a path raises where another user may not look
        logs.append((-1, None, folder / "job.log"))
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return logs
    for match in filter(None, map(_RANK.fullmatch, names)):
        logs.append((int(match[1]), None if match[2] == "srun" else int(match[2]), folder / match[0]))
    return sorted(logs, key=lambda item: (item[0], item[1] is None, item[1] or 0))


def ranks(directory: Path) -> set[int]:
    """Ranks with output, since the first start."""
    return {rank for _, rank, _ in files(directory) if rank is not None}


@dataclass
class Tail:
    """Reads the additions to a run's logs since the last call."""

    directory: Path
    rank: int | None = None
    _at: dict[Path, int] = field(default_factory=dict)
    _rest: dict[Path, bytes] = field(default_factory=dict)

    def read(self, *, last: bool = False) -> Iterator[Line]:
        """New complete lines; with `last` also a final line without newline."""
        for restart, rank, path in files(self.directory):
            if self.rank is not None and rank is not None and rank != self.rank:
                continue
            yield from self._read(restart, rank, path, last)

    def _read(self, restart: int, rank: int | None, path: Path, last: bool) -> Iterator[Line]:
        try:
            with path.open("rb") as file:
                file.seek(self._at.get(path, 0))
                while data := file.read(_PIECE_BYTES):
                    self._at[path] = self._at.get(path, 0) + len(data)
                    *lines, unfinished = (self._rest.get(path, b"") + data).split(b"\n")
                    self._rest[path] = unfinished
                    for text in (line.decode("utf-8", "replace") for line in lines):
                        if rank is not None or not _REQUEUED.match(text):
                            yield Line(restart, rank, text)
        except OSError:
            return
        if last and self._rest.get(path):
            yield Line(restart, rank, self._rest.pop(path).decode("utf-8", "replace"))


def printer(write: Callable[[str], None], *, labels: Callable[[], bool]) -> Callable[[Line], None]:
    """Prints lines, preceded by their rank if there are several ranks."""

    def show(line: Line) -> None:
        label = f"{line.rank}: " if line.rank is not None and labels() else ""
        write(f"{label}{line.text}\n")

    return show
