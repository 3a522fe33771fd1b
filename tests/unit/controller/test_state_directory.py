"""`slurmctld -i`: what can be read of a journal whose end is gone, and no job id given twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.controller.journal.contract import Group, Image, JournalCorrupt
from spritz.controller.journal.sqlite import SqliteJournal
from spritz.controller.journal.state_directory import UNKNOWN_IDS, open_state
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.events.codec import encode_events
from spritz.runtime.log import get_logger
from spritz_testing.builders import World


def start(directory: Path, *, ignore_errors: bool) -> Any:
    options: Any = SimpleNamespace(clear=False, ignore_errors=ignore_errors)
    configuration: Any = SimpleNamespace(state_directory=directory, settings=ClusterSettings(cluster_name="c"))
    return open_state(options, configuration, get_logger("test"))


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, int]:
    """A directory that has lost its log, and with it the last of two jobs; and that job's id."""
    directory = tmp_path / "state"
    world = World(nodes=1)
    journal = SqliteJournal(directory)
    journal.reserve_ids(1001)
    for _ in range(2):
        world.submit(script_key="5c" * 20)
        first = journal.last_sequence + 1
        events = world.events[journal.last_sequence :]
        group = Group(first=first, last=first + len(events) - 1, at=world.now, payload=encode_events(events))
        journal.append(group, {})
        if first == 1:
            journal.write_image(Image(sequence=journal.last_sequence, payload=world.machine.image()))
            journal.tidy()
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    journal.close()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    (directory / "journal.db-wal").unlink()
    return directory, max(world.state.jobs)


def test_ids_go_on_above_all_that_were_reserved(damaged: tuple[Path, int]) -> None:
    directory, lost = damaged
    with pytest.raises(JournalCorrupt, match="cannot be read"):
        start(directory, ignore_errors=False)
    journal, recovered = start(directory, ignore_errors=True)
    state = recovered.machine.state
    assert list(state.jobs) == [lost - 1]
    assert state.next_job_id == 1001
    journal.close()
    again, later = start(directory, ignore_errors=False)
    assert later.machine.state.next_job_id == 1001
    again.close()
    assert (directory / "damaged.1" / "journal.db").exists()


#: What changes files while `-i` saves what can be read.
CHANGES = ((os, "rename"), (os, "unlink"), (os, "replace"), (SqliteJournal, "seed"), (SqliteJournal, "write_image"))


def is_killed(directory: Path, at: int) -> bool:
    """Start with -i in a process that is killed at a change of files. False: it made fewer."""
    process = os.fork()
    if not process:
        try:
            changes = iter(range(1, at))
            for place, name in CHANGES:
                setattr(place, name, _counted(getattr(place, name), changes))
            start(directory, ignore_errors=True)[0].close()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, 9)
    return code == 9


def _counted(function: Callable[..., Any], changes: Iterator[int]) -> Callable[..., Any]:
    def change(*arguments: Any, **keywords: Any) -> Any:
        if next(changes, None) is None:
            os._exit(9)
        return function(*arguments, **keywords)

    return change


def test_a_salvage_that_is_killed_leaves_no_empty_state_and_is_made_again(damaged: tuple[Path, int]) -> None:
    """At each change of files; and perhaps once more, in the salvage that takes it up."""
    damage, lost = damaged
    for first in count(1):
        kills = 0
        for second in (0, 2, 6, 9):
            directory = damage.with_name(f"killed.{first}.{second}")
            shutil.copytree(damage, directory)
            kills = sum(is_killed(directory, at) for at in (first, second) if at)
            if kills:
                with pytest.raises(JournalCorrupt):
                    start(directory, ignore_errors=False)
            journal, recovered = start(directory, ignore_errors=True)
            assert (list(recovered.machine.state.jobs), recovered.machine.state.next_job_id) == ([lost - 1], 1001)
            journal.close()
            start(directory, ignore_errors=False)[0].close()
            shutil.rmtree(directory)
            if not kills:
                break
        if not kills:
            break
    assert first > 8


def test_where_no_ids_are_reserved_many_are_left_out(damaged: tuple[Path, int]) -> None:
    """A journal of an earlier release, or one whose mark is gone as well."""
    directory, lost = damaged
    (directory / "journal.db-mark").unlink()
    with pytest.raises(JournalCorrupt, match=r"journal\.db-mark is missing or damaged"):
        start(directory, ignore_errors=False)
    journal, recovered = start(directory, ignore_errors=True)
    assert recovered.machine.state.next_job_id == lost + UNKNOWN_IDS
    journal.close()


def test_each_job_without_its_script_is_named(damaged: tuple[Path, int], capfd: pytest.CaptureFixture[str]) -> None:
    """As where a bit of the script's key has flipped."""
    directory, lost = damaged
    journal, _ = start(directory, ignore_errors=True)
    journal.close()
    assert f"script or environment of job {lost - 1}: {'5c' * 20} is missing" in capfd.readouterr().err
