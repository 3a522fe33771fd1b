"""Real directories of simulated hosts, and what a killed process must not do to them any more.

A simulated process that was killed still has its descriptors, in the one real process that simulates all: SQLite's
locks, and files that a thread may write to when it is collected. So a directory gets new files, with the same content,
and the dead keep the old ones.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def renew_disk(path: Path | str) -> None:
    """Replace a directory by a copy of it: what was opened before no longer leads to it. The old files are removed."""
    here = Path(path)
    if not here.exists():
        return
    old = here.with_name(f"{here.name}.dead")
    os.rename(here, old)
    shutil.copytree(old, here, symlinks=True)
    shutil.rmtree(old)
