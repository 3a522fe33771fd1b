"""Every `*.txt` next to this file is a conversation of controllers that stand by; `language` has the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.daemons.database_runtimes import clockwork
from tests.transcripts.standby.language import StandbyTranscript

from spritz_testing.conversation import run_file

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_conversation_goes_as_written(path: Path, bless: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with clockwork(monkeypatch) as world:
        spoken = StandbyTranscript(world)
        try:
            run_file(path, spoken, bless=bless)
        finally:
            spoken.close()
