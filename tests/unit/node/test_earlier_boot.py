"""What ended a step whose supervisor is gone: the machine's boot, or something else."""

from __future__ import annotations

import os
import time
from pathlib import Path

from spritz.node.agent import _is_of_an_earlier_boot


def test_a_spool_directory_older_than_the_boot_is_of_an_earlier_one(tmp_path: Path) -> None:
    now = tmp_path.stat().st_mtime
    assert not _is_of_an_earlier_boot(str(tmp_path), now)
    before = now - time.clock_gettime(time.CLOCK_BOOTTIME) - 60
    os.utime(tmp_path, (before, before))
    assert _is_of_an_earlier_boot(str(tmp_path), now)
    assert not _is_of_an_earlier_boot(str(tmp_path / "gone"), now)
