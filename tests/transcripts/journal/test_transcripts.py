"""Every `*.txt` next to this file is a conversation with a journal on a temporary disk; `language` has the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.transcripts.journal.language import JournalTranscript

from spritz_testing.conversation import run_file

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_conversation_goes_as_written(path: Path, bless: bool, tmp_path: Path) -> None:
    spoken = JournalTranscript(tmp_path)
    try:
        run_file(path, spoken, bless=bless)
    finally:
        spoken.close()
