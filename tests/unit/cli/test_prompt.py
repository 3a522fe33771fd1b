"""Commands from standard input are echoed unless it is a terminal."""

from __future__ import annotations

import io

import pytest

from spritz.cli import sacctmgr
from spritz.cli.call.context import Context
from spritz.cli.call.prompt import read_line


@pytest.mark.parametrize("end", ["\n", ""])
def test_lines_of_a_pipe_are_echoed_after_the_prompt(end: str) -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(f"a b\n\nc{end}"), out := io.StringIO(), io.StringIO())
    lines = []
    while (line := read_line(context, "> ")) is not None:
        lines.append(line.strip())
    assert lines == ["a b", "", "c"]
    assert out.getvalue() == "> a b\n> \n> c\n> \n"


def test_sacctmgr_of_a_pipe() -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO("# none\nquit\n"), out := io.StringIO(), io.StringIO())
    assert sacctmgr.main([], context) == 0
    assert out.getvalue() == "sacctmgr: # none\nsacctmgr: quit\n"
