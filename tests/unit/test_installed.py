"""What an installation says of itself."""

from __future__ import annotations

import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz import installed
from spritz.commandserver.commands import find


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that others may enter, which pytest's are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_daemon_starts_no_command_server() -> None:
    """The launcher executes the daemons by itself."""
    source = (Path(__file__).parents[2] / "launcher/suits.c").read_text()
    direct = re.search(r"DIRECT\[\] = {(.+?)}", source, re.DOTALL)
    assert direct is not None
    assert set(installed._DAEMONS) - set(re.findall(r'"(.+?)"', direct[1])) == set()


def test_an_installation_that_others_cannot_enter_is_named(
    public_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any caller: root could enter every directory."""
    home = public_directory / "home"
    package = home / "venv/lib/python3/site-packages/spritz"
    package.mkdir(parents=True)
    python = home / "venv/bin/python"
    python.parent.mkdir()
    python.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(installed, "__file__", str(package / "installed.py"))
    assert installed.closed_to_others() == ""
    home.chmod(0o700)
    assert installed.closed_to_others() == str(home)
    home.chmod(0o711)
    package.chmod(0o750)
    assert installed.closed_to_others() == str(package)


def test_every_command_of_the_package_is_found() -> None:
    """They are installed as copies of one program, which looks for its module by its name."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    scripts = {name: target.partition(":")[0] for name, target in project["scripts"].items()}
    del scripts["spritz-command"]
    found = {name: installed._DAEMONS.get(name) or getattr(find(name), "__name__", "") for name in scripts}
    assert found == scripts
