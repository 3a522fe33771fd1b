"""What `spritz join` says of the commands of this user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.cli.local import join
from spritz.cli.local.paths import ClusterPaths


def test_a_user_with_another_cluster_is_told_that_commands_still_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = ClusterPaths(str(tmp_path / "joined"))
    other = tmp_path / "other" / "slurm.conf"
    other.parent.mkdir()
    other.touch()
    export = f"  export SLURM_CONF={joined.slurm_conf} "
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SLURM_CONF", str(other))
    first, second = join._way_of_commands(joined).splitlines()
    assert first == f"Commands of this user still use another cluster, that of {other}:"
    assert second.startswith(export)
    joined.create()
    Path(joined.slurm_conf).touch()
    monkeypatch.setenv("SLURM_CONF", joined.slurm_conf)
    assert join._way_of_commands(joined) == ""
