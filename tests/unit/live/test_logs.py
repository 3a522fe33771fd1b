"""The end of a log: read at once whatever its size, and nothing in it that a terminal would obey."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.live.logs import LINE_MAX, LINES_MAX, TAIL_BYTES, Tail, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31;1mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1;2|dcs\x1b\\after", "after"),
        ("\x1b[2J\x1b[H\x1b(0x\x1bc", "x"),
        ("\x9b31mred", "red"),
        ("10%\r50%\r100%", "100%"),
        ("done\r\n", "done"),
        ("a\tb", "a    b"),
        ("evil\u202etxt.exe\u2066", "evil\ufffdtxt.exe\ufffd"),
        ("bell\x07\x00", "bell\ufffd\ufffd"),
        ("bad\udce9", "bad?"),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_line_of_a_megabyte_is_cut() -> None:
    assert len(plain("x" * 1_000_000)) == LINE_MAX + 1


def test_a_tail_follows_truncation_replacement_and_growth(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(str(path))
    assert tail.read()
    assert tail.problem == "No such file or directory"
    assert not tail.read()
    path.write_bytes(b"one\ntw")
    assert tail.read()
    assert tail.lines == ["one", "tw"]
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert tail.read()
    assert tail.lines == ["one", "two", "three"]
    assert not tail.read()
    path.write_bytes(b"new\n")
    assert tail.read()
    assert tail.lines == ["new"]
    other = tmp_path / "other"
    other.write_bytes(b"another file, longer\n")
    other.rename(path)
    assert tail.read()
    assert tail.lines == ["another file, longer"]


def test_the_end_of_a_gigabyte_is_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nthe end\n")
    tail = Tail(str(path))
    tail.read()
    assert tail.lines[-1] == "the end"
    assert sum(map(len, tail.lines)) <= TAIL_BYTES


def test_no_more_lines_than_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x\n" * 50_000)
    tail = Tail(str(path))
    tail.read()
    with path.open("ab") as file:
        file.write(b"y\n" * 10)
    tail.read()
    assert len(tail.lines) == LINES_MAX
    assert tail.lines[-1] == "y"


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    tail = Tail(str(tmp_path / "pipe"))
    tail.read()
    assert tail.problem == "not a plain file"
