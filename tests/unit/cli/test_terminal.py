"""What users called their jobs cannot command the terminal of those who list them."""

from __future__ import annotations

import io
import os
import pty
import tty

import pytest

from spritz.cli.call.context import Context

#: sets a window's title, clears the screen, asks the terminal for a report, overwrites the line
HOSTILE = "a\033]0;title\007b\033[2Jc\x9b6nd\re\x7f"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_terminal_gets_no_control_characters_but_colours(stream: str) -> None:
    outer, inner = pty.openpty()
    tty.setraw(inner)
    with open(inner, "w", encoding="utf-8", errors="surrogateescape") as terminal, open(outer, "rb") as screen:
        file, is_out = io.StringIO(), stream == "stdout"
        stdout, stderr = (terminal, file) if is_out else (file, terminal)
        context = Context("squeue", {}, "/", io.StringIO(), stdout, stderr)
        write = context.out if is_out else context.err
        write(f"{HOSTILE}\t\U0010ff9bé\033[32mgreen\033[0m\n")
        terminal.flush()
        written = os.read(screen.fileno(), 1000).decode()
    assert written == "a?]0;title?b?[2Jc?6nd?e?\t?é\033[32mgreen\033[0m\n"


def test_programs_get_what_the_user_wrote() -> None:
    out = io.StringIO()
    Context("squeue", {}, "/", io.StringIO(), out, io.StringIO()).out(HOSTILE)
    assert out.getvalue() == HOSTILE
