"""Groups of one machine are shared by its node daemons: none takes away what another has just made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from spritz.node.cgroup import sweep


def test_groups_of_the_dead_are_removed_and_no_others(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for pid in (gone.pid, os.getpid()):
        for kind in ("slurmstepd", "probe"):
            (tmp_path / f"{kind}_{pid}").mkdir()
    used = tmp_path / f"slurmstepd_{gone.pid}0000000"
    used.mkdir()
    (used / "in use").touch()
    sweep(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {
        f"slurmstepd_{os.getpid()}",
        f"probe_{os.getpid()}",
        used.name,
    }
    sweep(str(tmp_path / "is not there"))
    sweep("")
