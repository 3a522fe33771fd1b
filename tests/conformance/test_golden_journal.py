"""Journals of earlier versions still give the state that they gave then: events live for ever."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spritz.core.invariants import breaches
from tests.conformance.journals import record

JOURNALS = sorted(record.HERE.glob("*.db"))


def test_there_is_a_journal_of_every_release_so_far() -> None:
    assert [path.stem for path in JOURNALS] == ["0.1.0"]


@pytest.mark.parametrize("recorded", JOURNALS, ids=lambda path: path.stem)
def test_a_journal_of_an_earlier_version_replays_to_the_state_of_then(recorded: Path, tmp_path: Path) -> None:
    """If this fails, an event is read otherwise than it was written: new fields need defaults, new shapes an upcaster.

    The recorded files are never made again to please a change.
    """
    shutil.copy(recorded, tmp_path / "journal.db")
    machine = record.replayed(tmp_path)
    expected = json.loads(recorded.with_suffix(".json").read_text())
    assert json.loads(json.dumps(record.summary(machine))) == expected
    assert breaches(machine.state) == []
