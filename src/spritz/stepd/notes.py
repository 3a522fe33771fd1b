"""Lines for the daemon's log, which is standard error of the zygote and of supervisors."""

from __future__ import annotations

import os
import select

#: A pipe with any room takes as much at once (PIPE_BUF).
_LINE_BYTES = 4096


def note(line: str) -> None:
    """Write a line, unless that would block or fail: the log may be on a full disk, or a pipe that is not read."""
    data = line.encode(errors="replace")[: _LINE_BYTES - 1] + b"\n"
    try:
        poll = select.poll()
        poll.register(2, select.POLLOUT)
        if poll.poll(0):
            os.write(2, data)
    except OSError:
        pass  # nowhere to say it
