"""Groups of one machine are shared by its node daemons: none takes away what another has just made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spritz.node.cgroup import KINDS, directory_name, missing, sweep, version


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


V1 = "32 31 0:29 / {0}/memory rw - cgroup cgroup rw,memory\n33 31 0:30 / {0}/cpuset rw - cgroup cgroup rw,cpuset\n"
V2 = "41 31 0:38 / {0}/unified rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("mounted", "controllers", "found", "plugin", "reason"),
    [
        (V1 + V2, "", "hybrid", "cgroup/v2", "cgroup/v2 has no controller memory, cpuset here"),
        (V1 + V2, "", "hybrid", "cgroup/v1", ""),
        (V1, "", "v1", "cgroup/v2", "no cgroup/v2 is mounted here"),
        (V2, "cpuset cpu memory", "v2", "cgroup/v2", ""),
        (V2, "cpuset cpu", "v2", "cgroup/v2", "cgroup/v2 has no controller memory here"),
        (V2, "cpuset cpu memory", "v2", "cgroup/v1", "no cgroup/v1 is mounted here"),
        (V1 + V2, "", "hybrid", "autodetect", ""),
        (
            V1,
            "",
            "v1",
            "autodetect",
            "memory, cpuset asked for, and only cgroup/v1 is mounted here: it cannot freeze, kill at once, or take"
            " sessions by ssh",
        ),
        (V1, "", "v1", "cgroup/v1", ""),
        ("", "", "", "autodetect", ""),
        ("", "", "", "disabled", ""),
    ],
)
def test_a_version_that_is_asked_for_and_not_here_is_told(
    tmp_path: Path, mounted: str, controllers: str, found: str, plugin: str, reason: str
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(mounted.format(tmp_path))
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified/cgroup.controllers").write_text(f"{controllers}\n")
    assert version(root=str(tmp_path)) == found
    assert missing(plugin, ("memory", "cpuset"), root=str(tmp_path)) == reason


def test_version_1_is_used_where_no_limit_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(V1.format(tmp_path))
    assert missing("autodetect", (), root=str(tmp_path)) == ""


def test_none_is_used_where_they_are_disabled(tmp_path: Path) -> None:
    assert version(KINDS["disabled"]) == ""
