"""Pid files that name something else than a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.runtime.daemon.pidfile import PidFile


def test_a_pid_file_that_is_no_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    device = tmp_path / "null"
    device.symlink_to("/dev/null")
    with pytest.raises(OSError, match="Not a regular file"), PidFile(device):
        pass
    assert device.is_symlink()
