"""Errors of the system become one line that says what they are of."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from spritz.cli.call.context import Context
from spritz.cli.call.entry import call


def said(error: OSError | None = None) -> str:
    """What a command prints that fails so; without an error one that asks for the current directory."""

    def main(argv: list[str], context: Context) -> int:
        if error is not None:
            raise error
        return len(os.getcwd())

    context = Context("spritz", os.environ, "/", io.StringIO(), io.StringIO(), io.StringIO())
    assert call(main, [], context) == 1
    assert isinstance(context.stderr, io.StringIO)
    return context.stderr.getvalue()


def test_a_current_directory_that_is_gone_is_no_write_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert said() == "spritz: error: the current directory: No such file or directory\n"


def test_a_full_disk_is_one(tmp_path: Path) -> None:
    assert said(OSError(28, "No space left on device")) == "spritz: error: write error: No space left on device\n"
    assert said(OSError(2, "No such file", "x")) == "spritz: error: x: No such file\n"
