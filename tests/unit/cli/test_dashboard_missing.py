"""`spritz dashboard` and `spritz up --dashboard` where a package of the dashboard is missing."""

from __future__ import annotations

import io
from argparse import ArgumentParser
from pathlib import Path
from types import ModuleType

import pytest

from spritz.cli.call.context import Context
from spritz.cli.local import daemons, dashboard, rest, up
from spritz.extras import pip_install
from spritz.model.errors import SpritzError


@pytest.mark.parametrize(("command", "words"), [(dashboard, []), (up, ["--dashboard"])])
def test_the_extra_of_the_dashboard_is_named_before_anything_starts(
    command: ModuleType, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "etc" / "slurm.conf"
    conf.parent.mkdir()
    conf.write_text("")
    running = {"slurmctld": 1, "slurmd": 1, "slurmdbd": 1}
    started: list[object] = []
    monkeypatch.setattr(dashboard, "_NEEDS", ("a_package_that_is_missing",))
    monkeypatch.setattr(daemons, "living", lambda paths: running)
    monkeypatch.setattr(rest, "start", lambda *arguments: started.append(arguments))
    parser = ArgumentParser()
    command.add_arguments(parser)
    context = Context("spritz", {}, str(tmp_path), io.StringIO(), io.StringIO(), io.StringIO())
    with pytest.raises(SpritzError, match="the dashboard needs a_package_that_is_missing") as refusal:
        command.run(parser.parse_args(["--dir", str(tmp_path), *words]), context)
    assert refusal.value.hint == pip_install("dashboard")
    assert not started


def test_users_of_a_sites_cluster_learn_where_its_dashboard_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    (tmp_path / "slurm.conf").touch()
    parser = ArgumentParser()
    dashboard.add_arguments(parser)
    context = Context("spritz", {}, str(tmp_path), io.StringIO(), io.StringIO(), io.StringIO())
    with pytest.raises(SpritzError, match="no cluster runs in") as refusal:
        dashboard.run(parser.parse_args([]), context)
    assert f"commands use the cluster of {tmp_path}/slurm.conf" in refusal.value.hint
