"""Files for a task's streams, which users name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.stepd.streams.files import StreamError, StreamFiles


def test_a_fifo_without_another_end_holds_up_no_supervisor(tmp_path: Path) -> None:
    """A supervisor that waits for it hears no order to end."""
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    files = StreamFiles(append=False)
    with pytest.raises(StreamError, match="Could not open stdout file .*: No such device or address"):
        files.output(path, "stdout")
    reader = files.input(path)
    assert os.read(reader, 1) == b""
    assert os.get_blocking(reader)
    writer = files.output(path, "stdout")
    os.write(writer, b"x")
    assert os.read(reader, 2) == b"x"
    os.close(reader)
    files.close()
