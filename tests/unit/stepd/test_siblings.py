"""How often a step looks at the memory of its job's other steps."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from spritz.process_identity import identify
from spritz.stepd import processes, record
from spritz.stepd.resources.siblings import Siblings
from spritz.stepd.spec import RECORD


def test_the_steps_of_a_job_with_many_look_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks at all others. Ten times a second is for few: a hundred steps would keep a processor busy."""
    for step in range(21):
        directory = tmp_path / f"job00012.0.{step}"
        directory.mkdir()
        (directory / RECORD).touch()
    (tmp_path / "job00013.0.0").mkdir()
    looked: list[int] = []

    def descendants(pid: int) -> list[int]:
        looked.append(pid)
        return []

    monkeypatch.setattr(
        record, "read", lambda _path: SimpleNamespace(result=None, pids=(1,), supervisor=lambda: identify(os.getpid()))
    )
    monkeypatch.setattr(processes, "descendants", descendants)
    own = Siblings(str(tmp_path / "job00012.0.0"))
    for tenth in range(20):
        assert len(own.memory_bytes(tenth / 10)) == 20
    assert len(looked) == 2 * 20, "at once and after a second"
    own.look()
    assert len(looked) == 3 * 20, "before a step is killed"
