"""Every `*.txt` next to this file is a conversation of the core with its nodes; `language` has the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.transcripts.nodes.language import NodeTranscript

from spritz_testing.conversation import run_file

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_conversation_goes_as_written(path: Path, bless: bool) -> None:
    spoken = NodeTranscript()
    run_file(path, spoken, bless=bless)
    spoken.world.check()
