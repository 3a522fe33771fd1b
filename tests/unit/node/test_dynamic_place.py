"""A dynamic slurmd that cannot serve is refused before the controller hears of it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from tests.ports import free_port

from spritz.model.errors import SpritzError
from spritz.node import main
from spritz.node.options import parse
from spritz.runtime.privilege import current_user

CONF = """\
ClusterName=c
SlurmctldHost=localhost
SlurmctldPort=1
SlurmUser={user}
SlurmdUser={user}
SlurmdPort={port}
NodeName=other CPUs=1
PartitionName=main Nodes=ALL Default=YES
"""


@pytest.fixture
def introductions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of slurm.conf for which the controller was asked."""
    asked: list[str] = []

    def ask(path: str, *_: object) -> None:
        asked.append(path)
        raise SpritzError("asked")

    monkeypatch.setattr(main, "introduce", ask)
    return asked


def _refusal(tmp_path: Path, user: str, port: int, *conf: str) -> str:
    path = tmp_path / "slurm.conf"
    path.write_text(CONF.format(user=user, port=port))
    with pytest.raises(SpritzError) as refused:
        main._start(parse(["-D", "-f", str(path), "-Z", *conf]))
    return refused.value.message


def test_a_port_that_is_taken(tmp_path: Path, introductions: list[str]) -> None:
    user = current_user().name
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert _refusal(tmp_path, user, port) == f"Unable to bind listen port ({port}): Address already in use"
        assert not introductions
        assert _refusal(tmp_path, user, port, "--conf", f"Port={free_port()}") == "asked"


def test_another_user_than_slurmd_user(tmp_path: Path, introductions: list[str]) -> None:
    user = "nobody" if os.geteuid() == 0 else "root"
    assert "as something other than user" in _refusal(tmp_path, user, free_port())
    assert not introductions
