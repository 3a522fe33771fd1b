"""Groups of one machine are shared by its node daemons: none takes away what another has just made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from spritz.node.cgroup import directory_name, sweep


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


def test_every_daemon_has_directories_of_its_own(tmp_path: Path) -> None:
    """What one of them removes when it ends, another one still uses."""
    (tmp_path / "same").symlink_to("a")
    assert directory_name(f"{tmp_path}/a") != directory_name(f"{tmp_path}/b")
    assert directory_name(f"{tmp_path}/a") == directory_name(f"{tmp_path}/same")
