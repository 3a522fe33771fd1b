"""TCP ports for tests."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from spritz.runtime.ports import unused_ports


def free_port() -> int:
    """A TCP port on which nothing listens, and that no other test of this run has or gets."""
    taken = Path(tempfile.gettempdir()) / "ports"  # in the directory of the whole run (tests/hermetic.py)
    taken.mkdir(exist_ok=True)
    while True:
        port = unused_ports(1)[0]
        with suppress(FileExistsError):
            (taken / str(port)).touch(exist_ok=False)
            return port
