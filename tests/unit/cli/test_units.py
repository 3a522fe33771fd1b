"""Units for systemd, as `spritz up` and `spritz join` write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.cli.local import units
from spritz.cli.local.paths import ClusterPaths
from spritz.cli.local.units import Unit, unit_command
from spritz.model.errors import SpritzError


def test_a_second_cluster_has_a_unit_of_its_own(tmp_path: Path) -> None:
    first, second = ClusterPaths(str(tmp_path / "default")), ClusterPaths(str(tmp_path / "two"))
    unit = Unit(first, str(tmp_path), "slurmd")
    assert (unit.path, unit.is_installed) == (str(tmp_path / "spritz-slurmd.service"), False)
    assert unit.write("join", ["slurmd", "-f", first.slurm_conf], "")
    again = Unit(first, str(tmp_path), "slurmd")
    assert (again.path, again.is_installed) == (unit.path, True)
    other = Unit(second, str(tmp_path), "slurmd")
    assert (other.path, other.is_installed) == (str(tmp_path / "spritz-slurmd-two.service"), False)


def test_a_unit_is_written_only_if_it_changes(tmp_path: Path) -> None:
    """systemd reads units again only then."""
    paths = ClusterPaths(str(tmp_path))
    words = ["slurmd", "-f", paths.slurm_conf]
    unit = Unit(paths, str(tmp_path), "slurmd")
    assert [unit.write("up", [*words, "-N", nodes], "") for nodes in ("a", "a", "b")] == [True, False, True]


def test_words_of_a_command_line_reach_the_daemon_as_they_are() -> None:
    assert unit_command(["/a b/py", '--conf=x"$HOME%n']) == '"/a b/py" "--conf=x\\"$$HOME%%n"'


def test_units_are_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SpritzError, match="--systemd is for root"):
        units.check_user()
