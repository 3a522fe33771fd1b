"""The ends of daemons' logs."""

from __future__ import annotations

import os


def tail(path: str, count: int = 1 << 16) -> str:
    """The last bytes of a log; "" where there is none, or it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - count))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def last_error(path: str, event: str = "") -> str:
    """The last line about an error; "" without one. One of the last three about `event` counts before others."""
    errors = [line for line in tail(path, 8192).splitlines() if "error" in line.lower() or "fatal" in line.lower()]
    about = [line for line in errors[-3:] if event and f" {event} " in line]
    return (about or errors)[-1].strip()[:300] if errors else ""
