"""`slurmctld -i`: what can be read of a journal whose end is gone, and no job id given twice."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.controller.journal import Group, Image, JournalCorrupt
from spritz.controller.journal_sqlite import SqliteJournal
from spritz.controller.state_directory import UNKNOWN_IDS, open_state
from spritz.model.cluster import ClusterSettings
from spritz.model.events.codec import encode_events
from spritz.runtime.log import get_logger
from spritz.testing.builders import World


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
