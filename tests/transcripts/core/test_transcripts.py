"""Every `*.txt` next to this file is a conversation with the core; see `spritz_testing.transcript` for the language."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz_testing.transcript import run_file

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_conversation_goes_as_written(path: Path, bless: bool) -> None:
    run_file(path, bless=bless)
