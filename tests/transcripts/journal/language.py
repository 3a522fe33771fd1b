"""Conversations with the SQLite journal of a controller that is killed at any point.

    start [NAME]       open the journal and recover the state from it
    submit [name=J]    a decision: it is in memory, and nobody was told
    commit             append all that was decided as one group; on return it is durable, and acknowledged
    image, prune       write the state; forget what it makes superfluous
    kill               the process ends; the files stay as they are
    torn               it is killed, and power lost, while a group is written: a part of it reached the disk
    lose FILE, flip    a file is gone; a bit of the last acknowledged group has flipped
    unlock             the lock is lost, as on a shared file system whose locks do not meet
    groups, show       the groups of the journal; the jobs in memory

Commands are those of the controller `ctl1`, or of the one that begins the line: `ctl2: commit`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from spritz.controller.journal import log as journal_log
from spritz.controller.journal.contract import Group, Image, JournalError
from spritz.controller.journal.recovery import recover
from spritz.controller.journal.sqlite import SqliteJournal, SqliteReading
from spritz.core.invariants import breaches
from spritz.model.events.codec import encode_events
from spritz_testing.builders import World
from spritz_testing.conversation import words_of
from spritz_testing.rendering import render_job

#: Bytes of a frame of SQLite's log, and of the log's head.
_FRAME_BYTES, _HEAD_BYTES = 24 + 4096, 32


class Controller:
    """A running controller: its journal, and the state in memory. `decided`: events that are not committed."""

    def __init__(self, directory: Path) -> None:
        self.journal = SqliteJournal(directory)
        self.world = World(nodes=1)
        self.decided = list(self.world.events)
        recovered = recover(self.journal, self.world.settings)
        self.told = f"term {self.journal.term}, {recovered.replayed} events replayed"
        if recovered.image_sequence:
            self.told += f" after an image of event {recovered.image_sequence}"
        if self.journal.last_sequence:
            self.world.machine = recovered.machine
            self.decided.clear()
            problems = breaches(self.world.state)
            assert not problems, problems

    def commit(self) -> str:
        first = self.journal.last_sequence + 1
        last = first + len(self.decided) - 1
        payload = encode_events(self.decided)
        self.journal.append(Group(first=first, last=last, at=self.world.now, payload=payload), {})
        self.decided.clear()
        return f"events {first} to {last} are durable"


class JournalTranscript:
    def __init__(self, directory: Path) -> None:
        self._root = directory
        self._lives = 0
        self._directory = directory / "0"
        self._directory.mkdir()
        self._running: dict[str, Controller] = {}
        #: acknowledged by this number of frames in the log
        self._frames = 0

    def command(self, line: str) -> list[str]:
        name = "ctl1"
        if line.split()[0].endswith(":"):
            name, _, line = line.partition(":")
        (verb, *plain), named = words_of(line)
        try:
            lines: list[str] = getattr(self, f"_{verb}")(name, *plain, **named)
        except JournalError as error:
            text = error.message.replace(f"{self._directory}/", "").replace(str(self._directory), ".")
            text = text.replace(f"pid {os.getpid()}", "pid N")
            return [f"! {type(error).__name__}: {text}"]
        return lines

    def close(self) -> None:
        for controller in self._running.values():
            controller.journal.close()

    def _start(self, name: str) -> list[str]:
        controller = self._running[name] = Controller(self._directory)
        lines = [controller.told]
        if controller.decided:
            lines.append(f"a new cluster: {controller.commit()}")
        return lines

    def _submit(self, name: str, /, **fields: Any) -> list[str]:
        controller = self._running[name]
        before = len(controller.world.events)
        job_id = controller.world.submit(**fields)
        controller.decided += controller.world.events[before:]
        return [f"job {job_id} is in memory"]

    def _commit(self, name: str) -> list[str]:
        return [self._running[name].commit()]

    def _image(self, name: str) -> list[str]:
        controller = self._running[name]
        image = Image(sequence=controller.journal.last_sequence, payload=controller.world.machine.image())
        controller.journal.write_image(image)
        return [f"an image of event {image.sequence}"]

    def _prune(self, name: str) -> list[str]:
        journal = self._running[name].journal
        journal.prune(journal.last_sequence)
        return [f"the oldest event is {journal.oldest_sequence}"]

    def _kill(self, name: str) -> list[str]:
        self._leave(name, self._directory)
        return []

    def _leave(self, name: str, directory: Path) -> None:
        """The process is gone; the next one finds these files, which closing them properly would change."""
        self._lives += 1
        left = self._root / str(self._lives)
        shutil.copytree(directory, left)
        self._running.pop(name).journal.close()
        self._directory = left

    def _torn(self, name: str) -> list[str]:
        controller = self._running[name]
        mark = (self._directory / "journal.db-mark").read_bytes()
        frames = self._valid_frames()
        controller.commit()  # to the end of the append, which the power does not reach
        self._leave(name, self._directory)
        (self._directory / "journal.db-mark").write_bytes(mark)
        with (self._directory / "journal.db-wal").open("r+b") as file:
            file.seek(_HEAD_BYTES + frames * _FRAME_BYTES)
            file.write(bytes(_FRAME_BYTES))
        return ["nobody was told"]

    def _lose(self, name: str, /, file: str) -> list[str]:
        for path in self._directory.glob(file):
            path.unlink()
        return []

    def _flip(self, name: str) -> list[str]:
        with (self._directory / "journal.db-wal").open("r+b") as file:
            file.seek(_HEAD_BYTES + (self._valid_frames() - 1) * _FRAME_BYTES + 2000)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
        return []

    def _unlock(self, name: str) -> list[str]:
        (self._directory / "slurmctld.lock").unlink()
        return []

    def _groups(self, name: str) -> list[str]:
        journal = self._running[name].journal
        return [f"events {group.first} to {group.last}" for group in journal.groups(0)] or ["none"]

    def _show(self, name: str) -> list[str]:
        jobs = self._running[name].world.state.jobs
        return [render_job(job) for job in jobs.values()] or ["no jobs"]

    def _valid_frames(self) -> int:
        SqliteReading(self._directory).close()
        return journal_log.valid_frames(self._directory / "journal.db-shm")
