"""The spool directory: what another version left there does not keep the daemon from starting."""

from __future__ import annotations

from pathlib import Path

from spritz.node.spool import Spool


def test_files_of_another_version_are_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / "job00007.0.batch"
    left.mkdir()
    (left / "something_older").write_text("x")
    assert Spool(str(tmp_path)).scan() == []
    assert not left.exists()
