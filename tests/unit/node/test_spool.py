"""The spool directory: what is left there is found again, whatever it is."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from spritz.node.spool import Spool
from spritz.stepd import spec


def test_files_of_another_version_are_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / "job00007.0.batch"
    left.mkdir()
    (left / "something_older").write_text("x")
    assert Spool(str(tmp_path)).scan() == ([], [])
    assert not left.exists()


def test_a_step_that_began_and_whose_record_makes_no_sense_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "job00007.0.batch"
    left.mkdir()
    (left / spec.RECORD).write_bytes(b"not a record")
    monkeypatch.chdir(left)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(spec.CONTROL)
        assert Spool(str(tmp_path)).scan() == ([], [str(left)])
    assert left.exists()


def test_a_record_that_cannot_be_read_is_an_error_and_not_a_step_that_never_was(tmp_path: Path) -> None:
    left = tmp_path / "job00007.0.batch"
    (left / spec.RECORD).mkdir(parents=True)  # reading a directory fails for root too
    with pytest.raises(OSError):
        Spool(str(tmp_path)).scan()
    assert left.exists()


def test_a_spool_keeps_its_identity_until_it_is_lost_or_told_to_forget(tmp_path: Path) -> None:
    first = Spool(str(tmp_path)).identity()
    assert Spool(str(tmp_path)).identity() == first
    Spool(str(tmp_path)).forget_identity()
    assert Spool(str(tmp_path)).identity() not in ("", first)
